package web

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
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
	rowsAtOnce  = 20
	turnsAtOnce = 5
)

// mcpServer answers the calls.
type mcpServer struct {
	*api
	zone *time.Location
}

// NewMCP returns a server of the Model Context Protocol for agents that look up past sessions, those of a backend.
// Nothing can be changed through it, except that agents may give scores if the backend has Change. Times are in the
// zone; nil means UTC. It runs until its transport ends, and closes nothing.
func NewMCP(b Backend, version string, zone *time.Location) *mcp.Server {
	s := &mcpServer{&api{Backend: b, version: version}, zone}
	texts := make(map[string]string)
	for line := range strings.Lines(mcpText) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		texts[name] = text
	}
	m := mcp.NewServer(&mcp.Implementation{Name: "agenttrace", Title: "Past agent sessions", Version: version},
		&mcp.ServerOptions{Instructions: texts["instructions"]})
	tool := func(name string) *mcp.Tool {
		closed := false // to the world, and destroys nothing
		return &mcp.Tool{Name: name, Description: texts[name],
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: name != scoreTool, IdempotentHint: true,
				DestructiveHint: &closed, OpenWorldHint: &closed}}
	}
	s.ask(m, tool("list_sessions"), "listSessions", "project", "agent", "model", "status", "tag", "tool", "text", "errors",
		"since", "children", "archived", "limit", "cursor")
	s.ask(m, tool("search_sessions"), "search", "q", "regexp", "project", "agent", "since", "limit")
	s.ask(m, tool("session_stats"), "stats", "by", "project", "agent", "model", "since", "zone")
	add(s, m, tool("read_session"), s.read)
	add(s, m, tool("read_part"), s.part)
	add(s, m, tool("session_status"), s.status)
	add(s, m, tool("diff_sessions"), s.diff)
	if b.Change != nil {
		add(s, m, tool(scoreTool), s.score)
	}
	return m
}

// scoreTool is the name of the one tool that changes something.
const scoreTool = "score_session"

// scoreArgs are a score and what it is of.
type scoreArgs struct {
	Session     string   `json:"session" session:"" jsonschema:"id of the session"`
	Turn        *int     `json:"turn,omitempty" jsonschema:"number of the turn that is scored, if not the session"`
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

// add registers a tool. As in parameters of the API, an argument with the tag session names a session, and do gets its
// id.
func add[In any](s *mcpServer, m *mcp.Server, tool *mcp.Tool, do func(context.Context, In) (string, error)) {
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

// ask registers a tool that asks an operation of the API. Its arguments are some of the parameters of that, and its
// result is the answer.
func (s *mcpServer) ask(m *mcp.Server, tool *mcp.Tool, operation string, arguments ...string) {
	op, properties, required := operationOf(operation), map[string]any{}, []string{}
	for _, p := range op.Parameters {
		if !slices.Contains(arguments, p.Name) {
			continue
		}
		if p.Required {
			required = append(required, p.Name)
		}
		p.Schema.Default = nil // the SDK cannot add one to arguments that are null
		properties[p.Name] = struct {
			schema
			Description string `json:"description"`
		}{p.Schema, p.Description}
	}
	tool.InputSchema = map[string]any{"type": "object", "properties": properties, "required": required,
		"additionalProperties": false}
	add(s, m, tool, func(ctx context.Context, in map[string]any) (string, error) {
		query := url.Values{}
		for name, value := range map[string]any{"limit": rowsAtOnce, "zone": s.zone.String()} {
			if properties[name] != nil && in[name] == nil {
				query.Set(name, fmt.Sprint(value))
			}
		}
		for name, value := range in {
			values, many := value.([]any)
			if !many {
				values = []any{value}
			}
			for _, v := range values {
				query.Add(name, fmt.Sprint(v))
			}
		}
		for {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/?"+query.Encode(), nil)
			if err != nil {
				return "", err
			}
			w := result{header: http.Header{}}
			err = endpoints[op.ID](s.api, op, &w, r)
			limit, _ := strconv.Atoi(query.Get("limit"))
			if err != nil || w.Len() <= maxText || limit < 2 {
				return cut(w.String(), "ask for less"), err
			}
			query.Set("limit", strconv.Itoa(limit/2)) // what is left out is behind "next"
		}
	})
}

// result is a ResponseWriter that keeps the body.
type result struct {
	bytes.Buffer
	header http.Header
}

func (r *result) Header() http.Header { return r.header }

func (r *result) WriteHeader(int) {}

func jsonLines[V any](values []V) (string, error) {
	var b strings.Builder
	err := document.EncodeJSON(&b, "", values...)
	return b.String(), err
}

// resolve puts the ids of sessions in the place of their names in arguments.
func (s *mcpServer) resolve(ctx context.Context, args reflect.Value) error {
	if args.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(args.Type()) {
		if _, names := f.Tag.Lookup("session"); names {
			id, err := s.Sessions.Resolve(ctx, args.FieldByIndex(f.Index).String())
			if err != nil {
				return fmt.Errorf("%w; list_sessions has the ids", err)
			}
			args.FieldByIndex(f.Index).SetString(id)
		}
	}
	return nil
}

func (s *mcpServer) words() render.Options {
	return render.Options{Width: 120, Location: s.zone, Now: time.Now(), Lines: 40}
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
		to = max(from, min(n, from+turnsAtOnce-1))
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
	if err := render.Document(&b, doc.Between(from, to), words); err != nil {
		return "", err
	}
	text := cut(b.String(), "ask for fewer turns; read_part has the whole of a part")
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
