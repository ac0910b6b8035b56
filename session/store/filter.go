package store

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
)

// SessionFilter selects sessions. Each field that is set must match; the zero value selects all.
type SessionFilter struct {
	// Project is the workspace of the session, its root or its id, or that of its parent if it has none.
	Project string
	// Agent is the agent that the session was started with.
	Agent string
	// Model is the model of the session or of one of its messages: the id, or provider/id. Provider likewise.
	Model, Provider string
	// User is the user_id in the session's metadata.
	User string
	// Tags are tags that the session, its turns or its parts have: all of them.
	Tags []string
	// Scores are comparisons of which each must hold for a score of the session, its turns or its parts.
	Scores []ScoreFilter
	// Tool is a tool that was called.
	Tool string
	// Text is in the title or in a message, upper and lower case alike, as [Reader].Search finds it.
	Text string
	// Errors selects sessions with a failed run, turn or tool call, Loops those with a warning about a loop, and
	// Denials those in which a call was not allowed.
	Errors, Loops, Denials bool
	// IDs, if not nil, are the sessions that are selected from.
	IDs []string
	// Since and Until select sessions that were active in that time, which includes Since; zero is unlimited.
	Since, Until time.Time
}

// ScoreFilter compares scores of a name. Op is one of =, !=, <, <=, > and >=; with "" there need only be a score.
type ScoreFilter struct {
	Name, Op string
	Value    float64
}

// scoreOps are the comparisons, those that begin with another before it.
var scoreOps = []string{">=", "<=", "!=", "=", ">", "<"}

// ParseScoreFilter reads a comparison such as quality>=0.8, or a name alone.
func ParseScoreFilter(text string) (f ScoreFilter, _ error) {
	at, op := -1, ""
	for _, o := range scoreOps {
		if i := strings.LastIndex(text, o); i >= 0 && (at < 0 || i+len(o) > at+len(op)) {
			at, op = i, o
		}
	}
	if at < 0 {
		at = len(text)
	}
	f.Name, f.Op = strings.TrimSpace(text[:at]), op
	if f.Name == "" {
		return f, fmt.Errorf("%q has no name of a score; write one such as quality>=0.8", text)
	}
	if op == "" {
		return f, nil
	}
	var err error
	f.Value, err = strconv.ParseFloat(strings.TrimSpace(text[at+len(op):]), 64)
	if err != nil || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
		return f, fmt.Errorf("%q compares with no number; write one such as quality>=0.8", text)
	}
	return f, nil
}

func (f ScoreFilter) String() string {
	if f.Op == "" {
		return f.Name
	}
	return f.Name + f.Op + strconv.FormatFloat(f.Value, 'g', -1, 64)
}

// Valid reports whether the operator is one.
func (f ScoreFilter) Valid() bool { return f.Op == "" || slices.Contains(scoreOps, f.Op) }

// SetFilter is a field of a filter that is set: its name and value as front ends write them, and the filter without it.
type SetFilter struct {
	Name, Value string
	Without     SessionFilter
}

// Set returns the fields that are set, one for each tag and score.
func (f SessionFilter) Set() (all []SetFilter) {
	add := func(set bool, name, value string, unset func(*SessionFilter)) {
		if set {
			without := f
			unset(&without)
			all = append(all, SetFilter{name, value, without})
		}
	}
	text := func(name, value string, field func(*SessionFilter) *string) {
		add(value != "", name, value, func(f *SessionFilter) { *field(f) = "" })
	}
	text("project", f.Project, func(f *SessionFilter) *string { return &f.Project })
	text("agent", f.Agent, func(f *SessionFilter) *string { return &f.Agent })
	text("model", f.Model, func(f *SessionFilter) *string { return &f.Model })
	text("provider", f.Provider, func(f *SessionFilter) *string { return &f.Provider })
	text("user", f.User, func(f *SessionFilter) *string { return &f.User })
	for i, tag := range f.Tags {
		add(true, "tag", tag, func(f *SessionFilter) { f.Tags = slices.Delete(slices.Clone(f.Tags), i, i+1) })
	}
	for i, score := range f.Scores {
		add(true, "score", score.String(), func(f *SessionFilter) {
			f.Scores = slices.Delete(slices.Clone(f.Scores), i, i+1)
		})
	}
	text("tool", f.Tool, func(f *SessionFilter) *string { return &f.Tool })
	text("text", f.Text, func(f *SessionFilter) *string { return &f.Text })
	add(f.Errors, "errors", "", func(f *SessionFilter) { f.Errors = false })
	add(f.Loops, "loops", "", func(f *SessionFilter) { f.Loops = false })
	add(f.Denials, "denials", "", func(f *SessionFilter) { f.Denials = false })
	add(!f.Since.IsZero(), "since", f.Since.Format(time.RFC3339), func(f *SessionFilter) { f.Since = time.Time{} })
	add(!f.Until.IsZero(), "until", f.Until.Format(time.RFC3339), func(f *SessionFilter) { f.Until = time.Time{} })
	return all
}

// SessionSort is an order of sessions. Sessions that are equal in it are ordered by their ids, likewise.
type SessionSort string

// Orders of sessions: all descending, except for that by title.
const (
	SortUpdated SessionSort = ""        // by updated_at
	SortCreated SessionSort = "created" // by created_at
	SortTitle   SessionSort = "title"
	SortContext SessionSort = "context" // by the tokens in context
	SortCost    SessionSort = "cost"    // by the cost that sources report

	// Those that follow are by figures of [Spent]. What the messages and calls of a session give is not in its row: what
	// is not kept of it is read first.
	SortTurns    SessionSort = "turns"
	SortErrors   SessionSort = "errors"
	SortTokens   SessionSort = "tokens"   // by the tokens used
	SortDuration SessionSort = "duration" // by the time that answers took; those that state none come last
)

// SessionSorts are all orders by the names that front ends have for them.
func SessionSorts() []string {
	all := []string{"updated"}
	for _, s := range []SessionSort{SortCreated, SortTitle, SortContext, SortCost, SortTurns, SortErrors, SortTokens,
		SortDuration} {
		all = append(all, string(s))
	}
	return all
}

// ParseSessionSort returns the order of a name.
func ParseSessionSort(name string) (SessionSort, bool) {
	if !slices.Contains(SessionSorts(), cmp.Or(name, "updated")) {
		return "", false
	}
	if name == "updated" {
		name = ""
	}
	return SessionSort(name), true
}

// SearchQuery selects what is looked through.
type SearchQuery struct {
	// Text is what is looked for, upper and lower case alike. Empty finds nothing.
	Text string
	// Regexp reports that Text is a regular expression: see [SearchQuery.Compile].
	Regexp bool
	// Agent, if set, selects sessions of that agent.
	Agent string
	// Session, if set, is the id of the one session that is looked through. What it copied is found in it, too.
	Session string
	// Since leaves out parts that are older; zero leaves out nothing.
	Since time.Time
}

// Compile returns the regular expression that Text is, in the syntax of package regexp. It ignores case, and ^ and $
// match at the beginning and end of each line; (?-i) and (?-m) change that.
func (q SearchQuery) Compile() (*regexp.Regexp, error) {
	if _, err := syntax.Parse(q.Text, syntax.Perl); err != nil {
		return nil, err // as it was typed
	}
	return regexp.Compile("(?im)" + q.Text)
}

// Types of hits that are in no part.
const (
	TypeSession      = "session"       // in the title of a session
	TypeSystemPrompt = "system-prompt" // in a system prompt, reported at the first message that has it
	TypeToolCatalog  = "tool-catalog"  // in a tool catalog, likewise
	TypeNote         = "note"          // in a note about a session, turn or part, or a remark on a tag or score
)

// Hit is a place where a text was found: one value of one part, or the title of a session.
type Hit struct {
	SessionID string `json:"session_id"`
	Title     string `json:"title"`
	// Opening is how the first text of a user begins, of a session without a title. An engine leaves it empty.
	Opening string `json:"opening,omitempty"`
	Agent   string `json:"agent"`
	// Turn is the number of the turn in the session's timeline; 0 where it is not known. An engine leaves it 0.
	Turn      int    `json:"turn,omitempty"`
	MessageID string `json:"message_id,omitempty"` // a title has neither message nor role nor part
	Role      string `json:"role,omitempty"`
	// Hidden reports that a rewind hid the message.
	Hidden bool   `json:"hidden,omitempty"`
	PartID string `json:"part_id,omitempty"`
	// Type is that of the part: text, reasoning, tool-<name> and so on; [TypeSession]
	// of a title, [TypeNote] of a note, of which the message and the part are what it is about.
	Type string `json:"type"`
	// Digest is that of the system prompt or tool catalog.
	Digest string `json:"digest,omitempty"`
	// Tool and CallID are those of a tool call.
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"tool_call_id,omitempty"`
	// Field is where in the part: text, input.command, output[2].name; or title, system prompt, tool catalog, note.
	Field string `json:"field"`
	// Matches counts how often the text is in the value. Matches of a regular expression that are empty do not count,
	// nor do those after the first 100,000.
	Matches int `json:"matches"`
	// Context is the value around the first match, of which it has 4 KiB at most, and Marks are
	// the ranges of bytes of the matches in it.
	Context string   `json:"context"`
	Marks   [][2]int `json:"marks"`
	// CutBefore and CutAfter report that Context is not the value's beginning or end.
	CutBefore bool  `json:"cut_before,omitempty"`
	CutAfter  bool  `json:"cut_after,omitempty"`
	CreatedAt int64 `json:"created_at"`
}

// ExcerptQuery selects messages of a session, and what is read of them. The zero value selects all messages with all
// their parts.
type ExcerptQuery struct {
	// Messages, if not nil, are the ids of the messages.
	Messages []string `json:"messages"`
	// From is the first message. With LastTurns, the first is the nth last user message that is neither hidden nor
	// queued, or the first of the session if it has fewer.
	From      Position `json:"from,omitzero"`
	LastTurns int      `json:"last_turns,omitempty"`
	// Outline leaves out the parts that do not show where turns begin and end: it reads those of messages with a
	// compaction, and tool calls that have no result; with LastTurns also texts that are streaming.
	Outline bool `json:"outline,omitempty"`
	// Spans also reads the spans of the messages. It needs Messages.
	Spans bool `json:"spans,omitempty"`
}

// Excerpt is a part of a session.
type Excerpt struct {
	// Transcript is the session's row, and the messages in order with their parts.
	*session.Transcript
	// From is the first message that was selected: of the last turns where they begin.
	From Position
	// Decisions are those about the messages, their parts and their calls. Without Messages in the query, they are
	// those made since From or since the first of the last turns, in order of time. An outline has none.
	Decisions []Decision
	// Spans are those of the messages, as [Reader].Spans returns them.
	Spans []SpanRef
	// ToolCalls counts the tool calls of the session, in an outline of all of it.
	ToolCalls int
}
