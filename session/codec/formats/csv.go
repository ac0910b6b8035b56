package formats

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// This file writes sessions as a table for spreadsheets, data frames and histograms of tokens and cost: one row per
// part. It is an export only. Texts, tool inputs and tool outputs are left out; their size is there.
//
// What is counted per message (tokens, cost, duration) is on the row of the message's first part and nowhere else, so
// the sum of a column is the sum over messages: the tokens of the session as every command counts them, see
// [session.Tokens]. Those of messages that a fork copied are in the table of its parent, and their cells are empty. A
// cell is empty when the source did not say, which is not zero. Hidden messages are in the table: filter on the column
// hidden to leave them out.

// csvColumns are the columns of the table. Those of parts are empty for a message without parts.
var csvColumns = []string{
	"session_id", "title", "agent", // of the session
	"message_id", "role",
	"turn",               // from 1, as agenttrace show counts them; empty for a message that waits in the queue
	"message_created_at", // in Unix milliseconds
	"hidden",             // true when a rewind hid the message, else false
	"provider_id", "model_id",
	"part_id", "index", "type", "tool_name", "tool_call_id", "tool_state",
	"chars", // see [csvSize]
	"part_created_at", "part_updated_at",
	// What the message used; for a compaction, the call that made the summary. input is what no cache had, output what
	// is not reasoning, and total the sum of the five.
	"input", "output", "reasoning", "cache_read", "cache_write", "total",
	"cost_usd",    // that the source reports
	"stop_reason", // the model's own word
	"duration_ms", // of the turn
	"copied",      // true when the session is a fork and has the message from its parent, else false
	// Those of the part, on the message's first row those of the message, and on the first row of the session those of
	// the session: tags and scores, as name=value, are separated by a comma; notes have a line each.
	"tags", "scores", "notes",
}

// csvEncoder writes sessions one after the other under one header. It is not safe for concurrent use.
type csvEncoder struct{ w *csv.Writer }

// csvNewEncoder returns an Encoder that writes to w. The header is written with the first session.
func csvNewEncoder(w io.Writer) *csvEncoder {
	e := &csvEncoder{csv.NewWriter(w)}
	_ = e.w.Write(csvColumns) // an error is that of Flush, here and below
	return e
}

// Encode writes the rows of one session, in canonical order, and flushes them. It does not change s. A column that
// cannot be read (no JSON, another kind) gives empty cells, not an error: [session.Check] reports it.
func (e *csvEncoder) Encode(s *codec.Session) (err error) {
	defer wrapWriting(s, &err)
	t := s.Sorted()
	numbers, places := document.TurnNumbers(t), document.PlaceAnnotations(t, s.Annotations)
	annotations := places.Session // of the rows to come
	for i := range t.Messages {
		m := &t.Messages[i]
		message, spent := csvOfMessage(t, &m.Message, m.IsMarker(), numbers[m.Message.ID])
		annotations = append(annotations, places.Messages[m.Message.ID]...)
		for j := range max(1, len(m.Parts)) {
			if j > 0 { // what is counted per message is on its first row
				clear(spent[:len(spent)-1])
			}
			part := make([]string, 9)
			if j < len(m.Parts) {
				part = csvOfPart(&m.Parts[j])
				annotations = append(annotations, places.Parts[m.Parts[j].ID]...)
			}
			_ = e.w.Write(append(append(append(csvTexts(t.Session.ID, t.Session.Title, t.Session.Agent), message...),
				append(part, spent...)...), csvAnnotations(annotations)...))
			annotations = nil
		}
	}
	e.w.Flush()
	return e.w.Error()
}

// csvTexts are cells of texts that came from outside and may hold anything.
//
// A spreadsheet may run a cell that begins with =, +, - or @ as a formula, a terminal obeys control characters, and
// titles, ids and tool names may have been chosen by anybody who wrote to the agent. Such a cell of text gets an
// apostrophe in front, as OWASP advises, and [document.Sanitize] leaves no control character but a line end; numbers are
// never touched. A reader that wants the exact text takes JSON lines.
func csvTexts(texts ...string) []string {
	for i, text := range texts {
		text = document.Sanitize(text)
		if start := strings.TrimLeft(text, " \n"); start != "" && strings.IndexByte("=+-@", start[0]) >= 0 {
			text = "'" + text
		}
		texts[i] = text
	}
	return texts
}

// csvOfMessage are the cells that every row of a message has, and those that its first row has, of which the last is on
// every row too.
func csvOfMessage(t *session.Transcript, m *session.Message, marker bool, turn int) (message, spent []string) {
	meta := session.ParseMessageMetadata([]byte(m.MetadataJSON))
	model := session.Deref(meta.Model)
	number := ""
	if turn > 0 {
		number = strconv.Itoa(turn)
	}
	message = append(csvTexts(m.ID, m.Role), number, csvInteger(m.CreatedAt), strconv.FormatBool(m.HiddenAt != nil))
	message = append(message, csvTexts(model.ProviderID, model.ModelID)...)

	copied := t.Session.Copied(m.CreatedAt)
	var tokens session.MessageTokens // nothing for a copy
	if !copied {
		tokens = meta.Tokens(m.Role, marker)
	}
	spent = make([]string, 7, 10)
	if u := tokens.Used; u != nil {
		// Cells are empty of buckets that the source does not state.
		stated := rows.Read(m.MetadataJSON).Object("usage")
		for i, n := range []int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite} {
			key := [...]string{"input", "output", "reasoning", "cache_read", "cache_write"}[i]
			if stated.Get(key) != nil || n != 0 {
				spent[i] = csvInteger(n)
			}
		}
		if *u != (session.Usage{}) || len(stated) > 0 {
			spent[5] = csvInteger(u.Total())
		}
	}
	if tokens.CostUSD != nil {
		spent[6] = strconv.FormatFloat(*tokens.CostUSD, 'f', -1, 64)
	}
	var trace session.MessageTrace
	if m.Role == session.RoleAssistant {
		trace = meta.Trace
	}
	spent = append(spent, csvTexts(trace.StopReason)[0], "", strconv.FormatBool(copied))
	if trace.DurationMS != nil {
		spent[8] = csvInteger(*trace.DurationMS)
	}
	return message, spent
}

// csvOfPart are the cells of a part.
func csvOfPart(p *session.Part) []string {
	data, err := session.ParseUIPart(p.DataJSON)
	name, size := session.ToolName(p.Type, data.ToolName), strconv.Itoa(csvSize(p, &data))
	if err != nil { // not an object, or with a value of another kind
		name, size = session.ToolName(p.Type, ""), ""
	}
	cells := append(csvTexts(p.ID), csvInteger(p.Index))
	cells = append(cells, csvTexts(p.Type, name, session.Deref(p.ToolCallID), session.Deref(p.ToolState))...)
	return append(cells, size, csvInteger(p.CreatedAt), csvInteger(p.UpdatedAt))
}

// csvSize is the size in bytes of the part's text; for a tool, of its input and its output or error as JSON, without
// what the source withholds; for data, of the data as JSON; for a file, of its url.
func csvSize(p *session.Part, d *session.UIPart) int {
	switch {
	case session.IsToolType(p.Type):
		n := len(session.Deref(d.ErrorText))
		// The null that stands for a value which no source reports has no size.
		withheldInput, withheldOutput := codec.Withheld(p)
		if !withheldInput {
			n += len(d.Input)
		}
		if !withheldOutput {
			n += len(d.Output)
		}
		return n
	case strings.HasPrefix(p.Type, "data-"):
		return len(d.Data)
	case p.Type == "file":
		return len(session.Deref(d.URL))
	}
	return len(session.Deref(d.Text))
}

// csvAnnotations are the cells of annotations.
func csvAnnotations(all []document.Annotation) []string {
	of := make(map[store.AnnotationKind][]string)
	for i := range all {
		of[all[i].Kind] = append(of[all[i].Kind], all[i].Short())
	}
	return csvTexts(strings.Join(of[store.AnnotationTag], ", "), strings.Join(of[store.AnnotationScore], ", "),
		strings.Join(of[store.AnnotationNote], "\n"))
}

func csvInteger(n int64) string { return strconv.FormatInt(n, 10) }
