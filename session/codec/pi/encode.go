package pi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/document"
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
	// The conversation is the way to the last entry, which must not be one that a rewind hid.
	if titled := row.Title != "" && row.Title != session.Untitled; titled {
		e.entry(entryInfo, row.UpdatedAt, false, "name", row.Title)
	} else if e.branch != "" {
		e.entry(entryInfo, row.UpdatedAt, false, "name", "")
	}
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
	effort       string            // the thinking level in force
	entries      map[string]string // the first ones of messages
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
	o.Add(rows.NonEmpty("parentId", parent))
	e.line(append(o, rows.Of(fields...)...))
	return id
}

// send writes an entry that is a message.
func (e *encoder) send(at int64, hidden bool, role string, content any, fields ...any) string {
	message := append(rows.Of("role", role, "content", content), rows.Of(fields...)...)
	message.Set("timestamp", at)
	return e.entry(entryMessage, at, hidden, "message", message)
}

func (e *encoder) message(m *session.MessageAndParts) {
	row := &m.Message
	hidden := row.HiddenAt != nil
	e.entries[row.ID] = e.next()
	switch {
	case row.Role == session.RoleAssistant && m.IsMarker():
		e.compaction(m)
		return
	case row.Role == session.RoleAssistant:
		steps := rows.Steps(e.s, m)
		for i := range steps {
			e.step(m, &steps[i], i == len(steps)-1)
		}
		return
	}
	content := []rows.Object{}
	for i := range m.Parts {
		if b := block(rows.Read(m.Parts[i].DataJSON)); b != nil && b.Text("type") != "thinking" {
			content = append(content, b)
		}
	}
	if row.Role == session.RoleSystem {
		e.entry(entryCustomMessage, row.CreatedAt, hidden, "customType", session.RoleSystem, "content", content,
			"display", true)
	} else {
		e.send(row.CreatedAt, hidden, session.RoleUser, content)
	}
}

// compaction writes a message that consists of compactions. What the first one used is that of all.
func (e *encoder) compaction(m *session.MessageAndParts) {
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	tokens := meta.Tokens(m.Message.Role, true)
	var before int64
	trace := rows.Read(m.Message.MetadataJSON).Object("agenttrace")
	_ = json.Unmarshal(rows.OrNull(trace.Get("context_tokens_before")), &before) // of another kind is unknown
	for i := range m.Parts {
		c, _ := session.ParseCompaction(m.Parts[i].DataJSON) // what is of another kind is unknown
		kept := e.next()                                     // itself: nothing before it is kept
		if c.TailStartID != nil {
			kept = cmp.Or(e.entries[*c.TailStartID], kept)
		}
		fields := []any{"summary", c.Summary, "firstKeptEntryId", kept, "tokensBefore", max(0, before)}
		if tokens.Used != nil && i == 0 && !e.t.Session.Copied(m.Message.CreatedAt) {
			fields = append(fields, "usage", usage(&rows.Step{Usage: tokens.Used, CostUSD: tokens.CostUSD}))
		}
		e.entry(entryCompaction, m.Message.CreatedAt, m.Message.HiddenAt != nil, fields...)
	}
}

// step writes a model call and the results of the tool calls that it requested.
func (e *encoder) step(m *session.MessageAndParts, st *rows.Step, last bool) {
	content := []rows.Object{}
	ids := make(map[string]bool)
	var results []*rows.Call
	outputs := make(map[*rows.Call]json.RawMessage)
	for _, p := range st.Parts {
		data := rows.Read(p.DataJSON)
		if b := block(data); b != nil && b.Text("type") != "image" {
			content = append(content, b)
		} else if c := rows.CallOf(p, data, func(id string) bool { return ids[id] }); c != nil {
			ids[c.ID] = true
			content = append(content, rows.Of("type", "toolCall", "id", c.ID, "name", c.Name, "arguments",
				c.Arguments()))
			if c.Result != nil {
				results = append(results, c)
				outputs[c] = rows.Output(data)
			}
		}
	}
	at, hidden := max(m.Message.CreatedAt, st.At), m.Message.HiddenAt != nil
	fields := []any{"api", unknown, "provider", cmp.Or(st.Model.ProviderID, unknown), "model",
		cmp.Or(st.Model.ModelID, unknown), "usage", usage(st)}
	if v := st.Model.Variant; v != e.effort && st.Model.ModelID != "" {
		e.effort = v
		e.entry(entryThinking, at, hidden, "thinkingLevel", cmp.Or(v, "off"))
	}
	reason, failure := stop(m, st, last, len(ids) > 0)
	if fields = append(fields, "stopReason", reason); failure != "" {
		fields = append(fields, "errorMessage", failure)
	}
	e.send(at, hidden, session.RoleAssistant, content, fields...)
	for _, c := range results {
		e.send(max(at, c.At), hidden, roleResult, resultBlocks(c, outputs[c]),
			"toolCallId", c.ID, "toolName", c.Name, "isError", c.Failed)
	}
}

// resultBlocks are those of what a tool returned: a text, and its images.
func resultBlocks(c *rows.Call, output json.RawMessage) (content []rows.Object) {
	rest, media := document.TakeMedia(output)
	images := slices.DeleteFunc(media, func(m document.Media) bool { return !m.IsImage() })
	if len(images) == 0 || c.Failed {
		return []rows.Object{rows.TextPart("text", *c.Result)}
	}
	parts := rows.Elements(rest)
	if parts == nil {
		parts = []json.RawMessage{rest}
	}
	for _, v := range parts {
		text, ok := rows.Text(v)
		if o, err := rows.Parse(v); err == nil && o.Text("type") == "text" && o.Has("text") {
			text, ok = o.Text("text"), true
		}
		if !ok {
			text = string(v)
		}
		if !slices.ContainsFunc(images, func(m document.Media) bool { return m.String() == text }) {
			content = append(content, rows.TextPart("text", text))
		}
	}
	for _, m := range images {
		content = append(content, rows.Of("type", "image", "data", m.Data, "mimeType", m.Type))
	}
	return content
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
func stop(m *session.MessageAndParts, st *rows.Step, last, called bool) (reason, failure string) {
	trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace
	known := ends[st.StopReason] != ""
	switch {
	case last && trace.EndReason == semconv.EndError || !last && st.StopReason == "error":
		return "error", cmp.Or(trace.Error, unknown)
	case last && trace.EndReason == semconv.EndAbort:
		return "aborted", ""
	case !last && known:
		return st.StopReason, ""
	case called || !last || st.StopReason == "tool_calls",
		trace.EndReason == "" && (trace.Incomplete || trace.PendingApproval):
		return "toolUse", ""
	case trace.StopReason == "length":
		return "length", ""
	}
	return "stop", ""
}
