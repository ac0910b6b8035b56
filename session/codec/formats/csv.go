// This file writes sessions as a table for spreadsheets, data frames and
// histograms of tokens and cost: one row per part. It is an export only. Texts,
// tool inputs and tool outputs are left out; their size is there.
//
// What is counted per message (tokens, cost, duration) is on the row of the
// message's first part and nowhere else, so the sum of a column is the sum over
// messages: the tokens of the session as every command counts them, see
// [session.Tokens]. Those of messages that a fork copied are in the table of its parent,
// and their cells are empty. A cell is empty when the source did not say, which is not zero.
// Hidden messages are in the table: filter on the column hidden to leave them
// out.

package formats

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// csvColumn is a column of the table.
type csvColumn struct {
	// Name is the header.
	Name string
	// Doc states what the column holds, in one sentence.
	Doc string

	value func(*csvRow) string
	// text is set for columns whose cells came from outside and may hold
	// anything; see [csvEncoder].
	text bool
}

var csvColumns = []csvColumn{
	{"session_id", "The session's id.", func(r *csvRow) string { return r.t.Session.ID }, true},
	{"title", "The session's title.", func(r *csvRow) string { return r.t.Session.Title }, true},
	{"agent", "The agent that the session was started with.", func(r *csvRow) string { return r.t.Session.Agent }, true},
	{"message_id", "The message's id.", func(r *csvRow) string { return r.m.ID }, true},
	{"role", "user, assistant or system.", func(r *csvRow) string { return r.m.Role }, true},
	{"turn",
		"The number of the turn, from 1, as agenttrace show counts them; empty for a message that waits in the queue.",
		func(r *csvRow) string { return r.turn }, false},
	{"message_created_at", "When the message began, in Unix milliseconds.",
		func(r *csvRow) string { return csvInteger(r.m.CreatedAt) }, false},
	{"hidden", "true when a rewind hid the message, else false.",
		func(r *csvRow) string { return strconv.FormatBool(r.m.HiddenAt != nil) }, false},
	{"provider_id", "The provider of the message's model.",
		func(r *csvRow) string { return session.Deref(r.meta.Model).ProviderID }, true},
	{"model_id", "The message's model.", func(r *csvRow) string { return session.Deref(r.meta.Model).ModelID }, true},
	{"part_id", "The part's id; it and all further part columns are empty for a message without parts.",
		func(r *csvRow) string { return r.p.ID }, true},
	{"index", "The part's place in its message.", func(r *csvRow) string { return r.ofPart(r.p.Index) }, false},
	{"type", "The part's type.", func(r *csvRow) string { return r.p.Type }, true},
	{"tool_name", "The tool called.", func(r *csvRow) string { return r.toolName() }, true},
	{"tool_call_id", "The id of the tool call.", func(r *csvRow) string { return session.Deref(r.p.ToolCallID) }, true},
	{"tool_state", "How far the tool call got.", func(r *csvRow) string { return session.Deref(r.p.ToolState) }, true},
	{"chars",
		"The size in bytes of the part's text; for a tool, of its input and its output or error as JSON, without " +
			"what the source withholds; for data, of the data as JSON; for a file, of its url.",
		func(r *csvRow) string { return r.chars() }, false},
	{"part_created_at", "When the part began, in Unix milliseconds.",
		func(r *csvRow) string { return r.ofPart(r.p.CreatedAt) }, false},
	{"part_updated_at", "When the part last changed, in Unix milliseconds.",
		func(r *csvRow) string { return r.ofPart(r.p.UpdatedAt) }, false},
	{"input",
		"Uncached input tokens that the assistant message used; for a compaction, the call that made the summary.",
		func(r *csvRow) string { return r.tokens(0) }, false},
	{"output", "Output tokens that are not reasoning.", func(r *csvRow) string { return r.tokens(1) }, false},
	{"reasoning", "Reasoning tokens.", func(r *csvRow) string { return r.tokens(2) }, false},
	{"cache_read", "Input tokens read from a cache.", func(r *csvRow) string { return r.tokens(3) }, false},
	{"cache_write", "Input tokens written to a cache.", func(r *csvRow) string { return r.tokens(4) }, false},
	{"total", "The sum of the five.", func(r *csvRow) string { return r.total() }, false},
	{"cost_usd", "The cost of the message that the source reports, in US dollars.",
		func(r *csvRow) string { return r.cost() }, false},
	{"stop_reason", "Why the model stopped, in its own word.", func(r *csvRow) string { return r.trace().StopReason },
		true},
	{"duration_ms", "How long the turn took, in milliseconds.",
		func(r *csvRow) string { return csvCount(r.trace().DurationMS) },
		false},
	{"copied",
		"true when the session is a fork and has the message from its parent, where its tokens and cost count, " +
			"else false.",
		func(r *csvRow) string { return strconv.FormatBool(r.copied) }, false},
	{"tags", "The tags of the part, on the message's first row those of the message, and on the first row of the " +
		"session those of the session; separated by a comma.",
		func(r *csvRow) string { return r.annotated(store.AnnotationTag) }, true},
	{"scores", "The scores likewise, as name=value.",
		func(r *csvRow) string { return r.annotated(store.AnnotationScore) }, true},
	{"notes", "The notes likewise, a line each.", func(r *csvRow) string { return r.annotated(store.AnnotationNote) },
		true},
}

// csvLosses are what the table does not have of a session. Of contents it has the size.
var csvLosses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "times of the session, and ids of messages that are queued"},
	{What: "agents and models", Note: "the model of the session, agents of messages, and variants of models"},
	{What: "rewinds", Note: "the column hidden states that there was one"},
	{What: "compactions", Note: "their content"},
	{What: "ends of turns", Note: "all but stop reasons"},
	{What: "tool calls", Note: "errors"},
	{What: "tags, notes and scores", Note: "their authors and times"},
}, "texts", "reasoning", "files and sources", "data parts", "tool inputs and outputs", "permissions",
	"system prompts and tool catalogs")

// csvEncoder writes sessions one after the other under one header. It is not safe
// for concurrent use.
//
// A spreadsheet runs a cell that begins with =, +, -, @, a tab or a carriage
// return as a formula, and titles, ids and tool names may have been chosen by
// whoever wrote to the agent. Such a cell of text gets an apostrophe in front,
// as OWASP advises; numbers are never touched. A reader that wants the exact
// text takes JSON lines. Bytes that are not UTF-8 become U+FFFD.
type csvEncoder struct {
	w      *csv.Writer
	header bool
	record []string
}

// csvNewEncoder returns an Encoder that writes to w. The header is written with
// the first session.
func csvNewEncoder(w io.Writer) *csvEncoder {
	return &csvEncoder{w: csv.NewWriter(w), record: make([]string, len(csvColumns))}
}

// Encode writes the rows of one session, in canonical order, and flushes them.
// It does not change s. A column that cannot be read (no JSON, another kind)
// gives empty cells, not an error: [session.Check] reports it.
func (e *csvEncoder) Encode(s *codec.Session) error {
	if err := e.encode(s.Sorted(), s.Annotations); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

func (e *csvEncoder) encode(t *session.Transcript, annotations []store.Annotation) error {
	if !e.header {
		e.header = true
		for i, c := range csvColumns {
			e.record[i] = c.Name
		}
		if err := e.w.Write(e.record); err != nil {
			return err
		}
	}
	numbers, annotated := document.TurnNumbers(t), document.PlaceAnnotations(t, annotations)
	for i := range t.Messages {
		m := &t.Messages[i]
		r := csvRow{t: t, m: &m.Message, p: new(session.Part), first: true, meta: csvReadMetadata(m.Message.MetadataJSON),
			annotations: annotated}
		r.firstOfSession = i == 0
		if r.copied = t.Session.Copied(m.Message.CreatedAt); !r.copied {
			r.spent = r.meta.Tokens(m.Message.Role, m.IsMarker())
		}
		if n := numbers[m.Message.ID]; n > 0 {
			r.turn = strconv.Itoa(n)
		}
		if len(m.Parts) == 0 {
			if err := e.write(&r); err != nil {
				return err
			}
		}
		for j := range m.Parts {
			r.p, r.hasPart, r.first = &m.Parts[j], true, j == 0
			r.firstOfSession = i == 0 && j == 0
			r.data = csvReadData(r.p.DataJSON)
			if err := e.write(&r); err != nil {
				return err
			}
		}
	}
	e.w.Flush()
	return e.w.Error()
}

func (e *csvEncoder) write(r *csvRow) error {
	for i := range csvColumns {
		v := csvColumns[i].value(r)
		if csvColumns[i].text {
			v = csvGuard(strings.ToValidUTF8(v, "\uFFFD"))
		}
		e.record[i] = v
	}
	return e.w.Write(e.record)
}

// csvGuard keeps a spreadsheet from running the text as a formula.
func csvGuard(text string) string {
	if text != "" && strings.IndexByte("=+-@\t\r", text[0]) >= 0 {
		return "'" + text
	}
	return text
}

// csvRow is what the columns of one line of the table are taken from.
type csvRow struct {
	t       *session.Transcript
	m       *session.Message
	p       *session.Part // zero for a message without parts
	hasPart bool
	first   bool // the message's first row
	// firstOfSession is set for the session's first row.
	firstOfSession bool
	annotations    document.AnnotationPlaces
	turn           string
	copied         bool
	spent          session.MessageTokens // zero for a copy
	meta           csvMetadata
	data           *session.UIPart // nil without a part, or when data_json is not an object
}

// csvMetadata is what the table shows of metadata_json. Each field is read on its
// own, so that one of the wrong kind does not take the others with it.
type csvMetadata struct {
	session.MessageMetadata
	// buckets are those of usage that the source states.
	buckets map[string]json.RawMessage
}

func csvReadMetadata(text string) csvMetadata {
	m := csvMetadata{MessageMetadata: session.ParseMessageMetadata([]byte(text))}
	var keys struct{ Usage json.RawMessage }
	if json.Unmarshal([]byte(text), &keys) == nil {
		_ = json.Unmarshal(keys.Usage, &m.buckets) // what is not an object states no bucket
	}
	return m
}

func csvReadData(text string) *session.UIPart {
	d, err := session.ParseUIPart(text)
	if err != nil {
		return nil
	}
	return &d
}

// tokens is the cell of a bucket, on the message's first row. It is empty where the source
// states no usage, or usage without the bucket.
func (r *csvRow) tokens(bucket int) string {
	u := r.spent.Used
	if !r.first || u == nil {
		return ""
	}
	n := [...]int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite}[bucket]
	key := [...]string{"input", "output", "reasoning", "cache_read", "cache_write"}[bucket]
	if _, stated := r.meta.buckets[key]; n == 0 && !stated {
		return ""
	}
	return csvInteger(n)
}

// total is the sum of the buckets, empty when none is stated.
func (r *csvRow) total() string {
	if !r.first || r.spent.Used == nil || *r.spent.Used == (session.Usage{}) && len(r.meta.buckets) == 0 {
		return ""
	}
	return csvInteger(r.spent.Used.Total())
}

// trace is that of the message, on its first row if it is the assistant's.
func (r *csvRow) trace() session.MessageTrace {
	if r.first && r.m.Role == session.RoleAssistant {
		return r.meta.Trace
	}
	return session.MessageTrace{}
}

func (r *csvRow) cost() string {
	if c := r.spent.CostUSD; c != nil && r.first {
		return strconv.FormatFloat(*c, 'f', -1, 64)
	}
	return ""
}

// annotated are the annotations of a kind that belong to the row.
func (r *csvRow) annotated(kind string) string {
	var all []document.Annotation
	if r.firstOfSession {
		all = append(all, r.annotations.Session...)
	}
	if r.first {
		all = append(all, r.annotations.Messages[r.m.ID]...)
	}
	if r.hasPart {
		all = append(all, r.annotations.Parts[r.p.ID]...)
	}
	var texts []string
	for i := range all {
		if all[i].Kind == kind {
			texts = append(texts, all[i].Short())
		}
	}
	if kind == store.AnnotationNote {
		return strings.Join(texts, "\n")
	}
	return strings.Join(texts, ", ")
}

func (r *csvRow) ofPart(n int64) string {
	if !r.hasPart {
		return ""
	}
	return csvInteger(n)
}

func (r *csvRow) toolName() string {
	if r.data == nil {
		return session.ToolName(r.p.Type, "")
	}
	return session.ToolName(r.p.Type, r.data.ToolName)
}

func (r *csvRow) chars() string {
	if r.data == nil {
		return ""
	}
	d := r.data
	n := 0
	switch {
	case session.IsToolType(r.p.Type):
		// The null that stands for a value which no source reports has no size.
		withheldInput, withheldOutput := codec.Withheld(r.p)
		if !withheldInput {
			n += len(d.Input)
		}
		if !withheldOutput {
			n += len(d.Output)
		}
		n += len(session.Deref(d.ErrorText))
	case strings.HasPrefix(r.p.Type, "data-"):
		n = len(d.Data)
	case r.p.Type == "file":
		n = len(session.Deref(d.URL))
	default:
		n = len(session.Deref(d.Text))
	}
	return strconv.Itoa(n)
}

func csvInteger(n int64) string { return strconv.FormatInt(n, 10) }

func csvCount(n *int64) string {
	if n == nil {
		return ""
	}
	return csvInteger(*n)
}
