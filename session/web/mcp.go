package web

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

// Results are what a model reads, so they are short: a longer one ends with how to ask for the rest.
const (
	maxText     = 40_000 // bytes of a result
	maxRows     = 100
	defaultRows = 20
	turnsAtOnce = 5
)

// mcpServer answers the calls.
type mcpServer struct {
	Backend
	zone *time.Location
}

// NewMCP returns a server of the Model Context Protocol for agents that look up past sessions, those of a backend.
// Nothing can be changed through it, except that agents may give scores if the backend has Change. Times are in the
// zone; nil means UTC. It runs until its transport ends, and closes nothing.
func NewMCP(b Backend, version string, zone *time.Location) *mcp.Server {
	s := &mcpServer{b, zone}
	texts := make(map[string]string)
	for line := range strings.Lines(mcpText) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		texts[name] = text
	}
	m := mcp.NewServer(&mcp.Implementation{Name: "agenttrace", Title: "Past agent sessions", Version: version},
		&mcp.ServerOptions{Instructions: texts["instructions"]})
	add(s, m, texts, "list_sessions", s.list)
	add(s, m, texts, "search_sessions", s.search)
	add(s, m, texts, "read_session", s.read)
	add(s, m, texts, "read_part", s.part)
	add(s, m, texts, "session_status", s.status)
	add(s, m, texts, "session_stats", s.stats)
	add(s, m, texts, "diff_sessions", s.diff)
	if b.Change != nil {
		add(s, m, texts, scoreTool, s.score)
	}
	return m
}

// scoreTool is the name of the one tool that changes something.
const scoreTool = "score_session"

// scoreArgs are a score and what it is of.
type scoreArgs struct {
	Session     string   `json:"session" session:"" jsonschema:"id of the session"`
	Turn        int      `json:"turn,omitempty" jsonschema:"number of the turn that is scored, if not the session"`
	PartID      string   `json:"part_id,omitempty" jsonschema:"id of the part that the score is of, such as a tool call"`
	Name        string   `json:"name" jsonschema:"what is scored, such as quality"`
	Value       *float64 `json:"value,omitempty" jsonschema:"the score as a number"`
	Label       string   `json:"label,omitempty" jsonschema:"the score as a word, such as pass"`
	Explanation string   `json:"explanation,omitempty" jsonschema:"why"`
}

// score gives a score, in place of one of the same name and author.
func (s *mcpServer) score(ctx context.Context, in scoreArgs) (text string, err error) {
	err = s.Change(ctx, func(ctx context.Context, w store.Service) error {
		set, err := s.annotate(ctx, w, sessionPath{ID: in.Session}, newAnnotation{Kind: store.AnnotationScore,
			Name: in.Name, Value: in.Value, Label: in.Label, Comment: in.Explanation, Turn: in.Turn, PartID: in.PartID})
		text = "Stored: " + set.Text()
		return err
	})
	return text, err
}

// mcpText has the instructions, and the descriptions of the tools by their names.
//
//go:embed mcp.txt
var mcpText string

// add registers a tool, which reads unless it is scoreTool. As in parameters of the API, an argument with the tag
// session names a session, and do gets its id.
func add[In any](s *mcpServer, m *mcp.Server, texts map[string]string, name string,
	do func(context.Context, In) (string, error)) {
	closed := false // to the world, and destroys nothing
	tool := &mcp.Tool{Name: name, Description: texts[name],
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: name != scoreTool, IdempotentHint: true,
			DestructiveHint: &closed, OpenWorldHint: &closed}}
	mcp.AddTool(m, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		if err := s.resolve(ctx, reflect.ValueOf(&in).Elem()); err != nil {
			return nil, nil, err
		}
		text, err := do(ctx, in)
		if err != nil {
			return nil, nil, err // the model reads it
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
}

// filterArgs select sessions, by the names that the filters have everywhere.
type filterArgs struct {
	Project string   `json:"project,omitempty" jsonschema:"only sessions of this project: the root of its workspace"`
	Agent   string   `json:"agent,omitempty" jsonschema:"only sessions of this agent"`
	Model   string   `json:"model,omitempty" jsonschema:"only sessions with this model"`
	Tags    []string `json:"tags,omitempty" jsonschema:"only sessions with all of these tags"`
	Tool    string   `json:"tool,omitempty" jsonschema:"only sessions in which this tool was called"`
	Text    string   `json:"text,omitempty" jsonschema:"only sessions with this text in the title or a message"`
	Errors  bool     `json:"errors,omitempty" jsonschema:"only sessions with an error"`
	Since   string   `json:"since,omitempty" jsonschema:"only sessions active since this time, as of RFC 3339"`
}

func (a *filterArgs) filter() (f store.SessionFilter, err error) {
	f = store.SessionFilter{
		Project: a.Project, Agent: a.Agent, Model: a.Model, Tags: a.Tags, Tool: a.Tool, Text: a.Text, Errors: a.Errors,
	}
	f.Since, err = sinceOf(a.Since)
	return f, err
}

// sinceOf is a time of the arguments; nothing is the zero time.
func sinceOf(text string) (at time.Time, err error) {
	if text != "" {
		if at, err = store.ParseTime(text, time.Now(), time.UTC); err != nil {
			err = fmt.Errorf("since: %w", err)
		}
	}
	return at, err
}

type listArgs struct {
	filterArgs
	Children bool   `json:"children,omitempty" jsonschema:"include sessions of sub-agents"`
	Archived bool   `json:"archived,omitempty" jsonschema:"include archived sessions"`
	Limit    int    `json:"limit,omitempty" jsonschema:"maximum number of sessions, 20 if it is left out, at most 100"`
	After    string `json:"after,omitempty" session:"" jsonschema:"continue after the session with this id, the last of the previous list"`
}

func (s *mcpServer) list(ctx context.Context, in listArgs) (string, error) {
	limit, err := bounded("limit", in.Limit, defaultRows, maxRows)
	if err != nil {
		return "", err
	}
	filter, err := in.filter()
	if err != nil {
		return "", err
	}
	q := store.SessionQuery{SessionFilter: filter, Children: in.Children, Archived: in.Archived, Limit: limit + 1}
	if in.After != "" {
		last, err := s.Sessions.Session(ctx, in.After)
		if err != nil {
			return "", err
		}
		q.Before = &store.Cursor{UpdatedAt: last.UpdatedAt, ID: last.ID}
	}
	rows, err := s.Sessions.Select(ctx, q, "")
	if err != nil {
		return "", err
	}
	more := len(rows) > limit
	rows = rows[:min(limit, len(rows))]
	items, _, err := s.Sessions.Items(ctx, rows)
	if err != nil {
		return "", err
	}
	if len(items) == 0 {
		return "no sessions", nil
	}
	text, err := jsonLines(items)
	if more {
		text += fmt.Sprintf("there are more: pass after=%q\n", items[len(items)-1].ID)
	}
	return text, err
}

func jsonLines[V any](values []V) (string, error) {
	var b strings.Builder
	err := document.EncodeJSON(&b, "", values...)
	return b.String(), err
}

// bounded is a number of the arguments, or its default.
func bounded(name string, n, otherwise, most int) (int, error) {
	switch {
	case n == 0:
		return otherwise, nil
	case n < 0 || n > most:
		return 0, fmt.Errorf("%s is %d; use a number from 1 to %d", name, n, most)
	}
	return n, nil
}

// resolve puts the ids of sessions in the place of their names in arguments.
func (s *mcpServer) resolve(ctx context.Context, args reflect.Value) error {
	for _, f := range reflect.VisibleFields(args.Type()) {
		_, names := f.Tag.Lookup("session")
		name := args.FieldByIndex(f.Index).String()
		if !names || name == "" && strings.Contains(f.Tag.Get("json"), "omitempty") {
			continue
		}
		id, err := s.Sessions.Resolve(ctx, name)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("no session is named %q; list_sessions lists them", name)
		case errors.Is(err, store.ErrAmbiguous):
			return fmt.Errorf("several sessions are named %q; give more of the id", name)
		case err != nil:
			return err
		}
		args.FieldByIndex(f.Index).SetString(id)
	}
	return nil
}

func (s *mcpServer) words() render.Options {
	return render.Options{Width: 120, Location: s.zone, Now: time.Now(), Lines: 40}
}

type searchArgs struct {
	Text   string `json:"text" jsonschema:"what to look for, upper and lower case alike"`
	Regexp bool   `json:"regexp,omitempty" jsonschema:"text is a regular expression"`
	Agent  string `json:"agent,omitempty" jsonschema:"only sessions of this agent"`
	Since  string `json:"since,omitempty" jsonschema:"only since this time, as of RFC 3339"`
	Limit  int    `json:"limit,omitempty" jsonschema:"maximum number of results, 20 if it is left out, at most 100"`
}

func (s *mcpServer) search(ctx context.Context, in searchArgs) (string, error) {
	if in.Text == "" {
		return "", errors.New("text is empty; give a text to look for")
	}
	limit, err := bounded("limit", in.Limit, defaultRows, maxRows)
	if err != nil {
		return "", err
	}
	q := store.SearchQuery{Text: in.Text, Regexp: in.Regexp, Agent: in.Agent}
	if _, err := q.Compile(); in.Regexp && err != nil {
		return "", err
	}
	if q.Since, err = sinceOf(in.Since); err != nil {
		return "", err
	}
	hits, more, err := s.Sessions.Find(ctx, q, nil, limit, 0)
	if err != nil {
		return "", err
	}
	if len(hits) == 0 {
		return "nothing was found", nil
	}
	text, err := jsonLines(hits)
	if more {
		text += "there are more: narrow the search, or raise limit\n"
	}
	return cut(text, "narrow the search, or lower limit"), err
}

type readArgs struct {
	sessionArgs
	From int  `json:"from,omitempty" jsonschema:"first turn, counted from 1"`
	To   int  `json:"to,omitempty" jsonschema:"last turn"`
	Full bool `json:"full,omitempty" jsonschema:"do not cut long texts"`
}

func (s *mcpServer) read(ctx context.Context, in readArgs) (string, error) {
	outline, err := s.Sessions.LoadOutline(ctx, in.Session)
	if err != nil {
		return "", err
	}
	n := len(outline.Turns)
	from, to := in.From, in.To
	switch {
	case from == 0 && to == 0:
		from, to = max(1, n-turnsAtOnce+1), n
	case to == 0:
		to = min(n, from+turnsAtOnce-1)
	case from == 0:
		from = max(1, to-turnsAtOnce+1)
	}
	if n > 0 && (from < 1 || to > n || from > to) {
		return "", fmt.Errorf("session %s has no turns %d to %d; its turns are 1 to %d", in.Session, from, to, n)
	}
	if n > 0 {
		if err := outline.Load(ctx, from, to); err != nil {
			return "", err
		}
	}
	doc := outline.Document()
	words := s.words()
	words.Full = in.Full
	var b bytes.Buffer
	for more := true; more; {
		b.Reset()
		if err := render.Document(&b, doc.Between(from, to), words); err != nil {
			return "", err
		}
		if more = b.Len() > maxText && to > from; more {
			to--
		}
	}
	text := cut(b.String(), "read_part has the whole of a part")
	if from > 1 || to < n {
		text += fmt.Sprintf("\nthese are turns %d to %d of %d\n", from, to, n)
	}
	return text, nil
}

// cut is a text, cut where it is longer than a result may be, and what to do about that.
func cut(text, remedy string) string {
	if len(text) <= maxText {
		return text
	}
	head := document.Head(text, maxText)
	return fmt.Sprintf("%s\n%d bytes are cut: %s\n", head, len(text)-len(head), remedy)
}

type partArgs struct {
	Session string `json:"session" session:"" jsonschema:"id of the session"`
	Part    string `json:"part" jsonschema:"id of the part"`
	Offset  int    `json:"offset,omitempty" jsonschema:"byte to begin at, for a part that is longer than one result"`
}

func (s *mcpServer) part(ctx context.Context, in partArgs) (string, error) {
	t, err := s.Sessions.Transcript(ctx, in.Session)
	if err != nil {
		return "", err
	}
	p := document.PartRow(t.Messages, in.Part)
	if p == nil {
		return "", fmt.Errorf("session %s has no part %q", in.Session, in.Part)
	}
	if in.Offset < 0 || in.Offset > len(p.DataJSON) {
		return "", fmt.Errorf("offset is %d; part %s has %d bytes", in.Offset, p.ID, len(p.DataJSON))
	}
	rest := p.DataJSON[in.Offset:]
	if head := document.Head(rest, maxText); len(head) < len(rest) {
		return fmt.Sprintf("%s\n%d more bytes: pass offset=%d\n", head, len(rest)-len(head), in.Offset+len(head)), nil
	}
	return rest, nil
}

type sessionArgs struct {
	Session string `json:"session" session:"" jsonschema:"id of the session, the beginning of one, a trace id, or last"`
}

func (s *mcpServer) status(ctx context.Context, in sessionArgs) (string, error) {
	status, err := s.Sessions.LoadStatus(ctx, in.Session)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = render.Status(&b, &status, s.words())
	return b.String(), err
}

type statsArgs struct {
	By    string `json:"by,omitempty" jsonschema:"group by day, week, weekday, hour, model, agent, project or tool, or by several: project,week"`
	Since string `json:"since,omitempty" jsonschema:"only since this time, as of RFC 3339, or a duration before now such as 7d"`
}

func (s *mcpServer) stats(ctx context.Context, in statsArgs) (string, error) {
	q := store.StatsQuery{Location: s.zone}
	var err error
	if q.By, err = store.ParseStatsBy(in.By); err != nil {
		return "", fmt.Errorf("by: %w", err)
	}
	if q.Since, err = sinceOf(in.Since); err != nil {
		return "", err
	}
	figures, err := s.Sessions.Stats(ctx, q)
	if err != nil {
		return "", err
	}
	text, err := jsonLines([]store.Stats{figures})
	return cut(text, "pass since"), err
}

type diffArgs struct {
	A string `json:"a" session:"" jsonschema:"id of the one session"`
	B string `json:"b" session:"" jsonschema:"id of the other session"`
}

func (s *mcpServer) diff(ctx context.Context, in diffArgs) (string, error) {
	d, _, _, err := s.Sessions.Compare(ctx, in.A, in.B, document.CompareOptions{})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = render.Diff(&b, d, s.words(), true)
	return cut(b.String(), "read the turns that differ with read_session"), err
}
