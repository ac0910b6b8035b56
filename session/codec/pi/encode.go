package pi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Encode writes the session as a file of Pi's.
func Encode(w io.Writer, s *codec.Session) error {
	e := encoder{s: s, t: s.Sorted(), entries: make(map[string]string)}
	row := &e.t.Session
	dir := ""
	if row.WorkspaceRoot != nil {
		dir = *row.WorkspaceRoot
	}
	e.line(rows.Of("type", "session", "version", version, "id", row.ID, "timestamp", rows.FormatTime(row.CreatedAt),
		"cwd", dir, "harness", cmp.Or(row.Agent, agentName)))
	for i := range e.t.Messages {
		e.message(&e.t.Messages[i])
	}
	if row.Title != "" && row.Title != session.Untitled {
		e.entry(entryInfo, row.UpdatedAt, false, "name", row.Title)
	}
	embedded := rows.EmbedSession(s)
	rows.EmbedBlobs(&embedded, s.Blobs)
	embedded.Set("entries", e.own)
	e.entry(entryCustom, row.UpdatedAt, false, "customType", own, "data", embedded)
	if _, err := w.Write(e.out); err != nil {
		return fmt.Errorf("write session %s: %w", row.ID, err)
	}
	return nil
}

type encoder struct {
	s   *codec.Session
	t   *session.Transcript
	out []byte
	n   int
	// leaf is the last entry of the conversation, and branch the last one of a branch that was left,
	// empty after an entry of the conversation.
	leaf, branch string
	// entries are the first ones of messages, and own has what is ours of entries.
	entries map[string]string
	own     rows.Object
}

func (e *encoder) line(o rows.Object) { e.out = append(append(e.out, o.JSON()...), '\n') }

// next is the id of the next entry.
func (e *encoder) next() string { return fmt.Sprintf("%08x", e.n+1) }

// entry writes an entry with fields of its type, and returns its id.
func (e *encoder) entry(kind string, at int64, hidden bool, fields ...any) string {
	id, parent := e.next(), e.leaf
	e.n++
	if hidden {
		parent, e.branch = cmp.Or(e.branch, parent), id
	} else {
		e.leaf, e.branch = id, ""
	}
	o := rows.Of("type", kind, "id", id, "parentId", nil, "timestamp", rows.FormatTime(at))
	if parent != "" {
		o.Set("parentId", parent)
	}
	e.line(append(o, rows.Of(fields...)...))
	return id
}

// say writes an entry that is a message.
func (e *encoder) say(at int64, hidden bool, role string, content any, fields ...any) string {
	message := append(rows.Of("role", role, "content", content), rows.Of(fields...)...)
	message.Set("timestamp", at)
	return e.entry(entryMessage, at, hidden, "message", message)
}

func (e *encoder) message(m *session.MessageAndParts) {
	row := &m.Message
	embedded, hidden := rows.Of("message", rows.EmbedMessage(row)), row.HiddenAt != nil
	e.entries[row.ID] = e.next()
	switch {
	case row.Role == session.RoleAssistant && m.IsMarker():
		e.compaction(m, embedded)
		return
	case row.Role == session.RoleAssistant:
		steps := rows.Steps(e.s, m)
		for i := range steps {
			e.step(m, &steps[i], i == len(steps)-1, embedded)
			embedded = rows.Object{}
		}
		return
	}
	content, others := []rows.Object{}, []rows.Object(nil)
	var order, rest []*session.Part
	for i := range m.Parts {
		data := rows.Read(m.Parts[i].DataJSON)
		if b := block(data); b != nil && b.Text("type") != "thinking" {
			content, order = append(content, b), append(order, &m.Parts[i])
		} else {
			others, rest = append(others, data), append(rest, &m.Parts[i])
		}
	}
	if others != nil {
		embedded.Set("parts", others)
	}
	rows.EmbedParts(&embedded, append(order, rest...))
	var id string
	if row.Role == session.RoleSystem {
		id = e.entry(entryCustomMessage, row.CreatedAt, hidden, "customType", session.RoleSystem, "content", content,
			"display", true)
	} else {
		id = e.say(row.CreatedAt, hidden, session.RoleUser, content)
	}
	e.own.Set(id, embedded)
}

// compaction writes the first part of a message that consists of compactions.
func (e *encoder) compaction(m *session.MessageAndParts, embedded rows.Object) {
	first := rows.Read(m.Parts[0].DataJSON)
	inner := first.Object("data")
	c, _ := session.ParseCompaction(m.Parts[0].DataJSON) // what is of another kind is unknown
	first.Set("data", inner.Without("summary"))
	parts, order := []rows.Object{first}, []*session.Part{&m.Parts[0]}
	for i := range m.Parts[1:] {
		parts, order = append(parts, rows.Read(m.Parts[i+1].DataJSON)), append(order, &m.Parts[i+1])
	}
	embedded.Set("parts", parts)
	rows.EmbedParts(&embedded, order)
	kept := e.next() // itself: nothing before it is kept
	if c.TailStartID != nil {
		kept = cmp.Or(e.entries[*c.TailStartID], kept)
	}
	var before int64
	trace := rows.Read(m.Message.MetadataJSON).Object("agenttrace")
	_ = json.Unmarshal(rows.OrNull(trace.Get("context_tokens_before")), &before) // of another kind is unknown
	summary := inner.Get("summary")
	if _, ok := rows.Text(summary); !ok {
		summary = json.RawMessage(`""`)
	}
	e.own.Set(e.entry(entryCompaction, m.Message.CreatedAt, m.Message.HiddenAt != nil,
		"summary", summary, "firstKeptEntryId", kept, "tokensBefore", max(0, before)), embedded)
}

// step writes a model call and the results of the tool calls that it requested.
func (e *encoder) step(m *session.MessageAndParts, st *rows.Step, last bool, embedded rows.Object) {
	content, others := []rows.Object{}, []rows.Object(nil)
	calls := rows.Object{}
	var results []rows.Call
	var order, rest []*session.Part
	if st.Start != nil {
		order = append(order, st.Start)
	}
	for _, p := range st.Parts {
		data := rows.Read(p.DataJSON)
		if b := block(data); b != nil && b.Text("type") != "image" {
			content, order = append(content, b), append(order, p)
		} else if p.ToolCallID != nil && session.IsToolType(p.Type) {
			c := rows.CallOf(p, data, func(id string) bool { return calls.Get(id) != nil })
			content = append(content, rows.Of("type", "toolCall", "id", c.ID, "name", c.Name, "arguments", c.Input))
			calls.Set(c.ID, c.Extra)
			order = append(order, p)
			if c.Result != nil {
				results = append(results, c)
			}
		} else {
			others, rest = append(others, data), append(rest, p)
		}
	}
	rows.EmbedParts(&embedded, append(order, rest...))
	for _, set := range []struct {
		key  string
		n    int
		with any
	}{{"parts", len(others), others}, {"calls", len(calls), calls}} {
		if set.n > 0 {
			embedded.Set(set.key, set.with)
		}
	}
	if !st.Started {
		embedded.Set("step_start", false)
	}
	at, hidden := max(m.Message.CreatedAt, st.At), m.Message.HiddenAt != nil
	fields := []any{"api", "unknown", "provider", cmp.Or(st.Model.ProviderID, "unknown"), "model",
		cmp.Or(st.Model.ModelID, "unknown"), "usage", usage(st)}
	reason, failure := stop(m, last, len(calls) > 0)
	if fields = append(fields, "stopReason", reason); failure != "" {
		fields = append(fields, "errorMessage", failure)
	}
	if id := e.say(at, hidden, session.RoleAssistant, content, fields...); len(embedded) > 0 {
		e.own.Set(id, embedded)
	}
	for _, c := range results {
		e.say(max(at, c.At), hidden, roleResult, []rows.Object{rows.Of("type", "text", "text", c.Result)},
			"toolCallId", c.ID, "toolName", c.Name, "isError", c.Failed)
	}
}

// usage returns the usage of a step, which every message has: where it is not known, it is 0.
func usage(st *rows.Step) rows.Object {
	var u session.Usage
	var usd float64
	if st.Usage != nil {
		u = *st.Usage
	}
	if st.CostUSD != nil {
		usd = *st.CostUSD
	}
	u.Output += u.Reasoning
	var o, cost rows.Object
	for _, b := range buckets {
		o.Set(b.key, *b.of(&u))
		cost.Set(b.key, 0)
	}
	o.Set("totalTokens", u.Total()-u.Reasoning)
	cost.Set("total", usd)
	o.Set("cost", cost)
	return o
}

// stop returns why a model call stopped, and its error.
func stop(m *session.MessageAndParts, last, called bool) (reason, failure string) {
	trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace
	switch {
	case last && trace.EndReason == semconv.EndError:
		return "error", cmp.Or(trace.Error, "unknown")
	case last && (trace.EndReason == semconv.EndAbort || trace.EndReason == "" && trace.Incomplete):
		return "aborted", ""
	case called || !last:
		return "toolUse", ""
	case trace.StopReason == "length":
		return "length", ""
	}
	return "stop", ""
}
