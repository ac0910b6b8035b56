package transcripts

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// session makes the rows of the log.
func (d *gemini) session() (*codec.Session, error) {
	if d.id == "" {
		return nil, errors.New(
			"read chat: no record in it names a session of Gemini CLI, with its sessionId and projectHash")
	}
	id, start := d.id, d.about.Text("startTime")
	parent := d.file.parent
	if parent == "" && d.file.beside && d.about.Text("kind") == "subagent" {
		parent, id = id, id+"-"+cmp.Or(start, "subagent")
	}
	b := newBuilder(id, "gemini-cli", d.report)
	b.parent(parent)
	rows.SetText(&b.s.Row.WorkspaceRoot, d.file.root)
	b.s.SetMeta("gemini_cli", d.about.Only("projectHash", "kind", "directories"))
	b.see(start)
	hidden := int64(0)
	for _, m := range d.order {
		if m.hiddenAt != hidden {
			b.turn, hidden = nil, m.hiddenAt // a message is hidden as a whole
		}
		b.see(m.record.Text("timestamp"))
		b.touched = nil
		switch m.record.Text("type") {
		case "user":
			d.user(b, m)
		case "gemini":
			d.gemini(b, m)
		case "error":
			if n := len(b.s.Messages()); b.turn == nil && n > 0 && b.s.Messages()[n-1].Row.Role == session.RoleUser {
				b.part(errorPart(spokenBy(m.record)))
			}
			b.ended("error", spokenBy(m.record))
		case "info", "warning":
			d.info(b, m)
		default:
			d.report(codec.Problem{Line: m.line, Reason: "message " + m.id + " has no known type: left out"})
		}
		m.row = b.touched
		if m.row != nil && m.hiddenAt > 0 {
			hide(m.row, m.hiddenAt)
		}
	}
	b.Title = d.about.Text("summary")
	return b.finish(), nil
}

// contents are the parts of a message, of which the program writes one form or
// another: a text, a part, or a list of both.
func contents(raw json.RawMessage) []rows.Object {
	list := rows.Elements(raw)
	if list == nil && len(raw) > 0 && string(raw) != `""` {
		list = []json.RawMessage{raw}
	}
	var all []rows.Object
	for _, v := range list {
		if text, ok := rows.Text(v); ok {
			all = append(all, rows.Of("text", text))
		} else if o, err := rows.Parse(v); err == nil {
			all = append(all, o)
		}
	}
	return all
}

// spokenBy is the text of a message.
func spokenBy(o rows.Object) string {
	var b strings.Builder
	for _, p := range contents(o.Get("content")) {
		if string(p.Get("thought")) != "true" {
			b.WriteString(p.Text("text"))
		}
	}
	return b.String()
}

func (d *gemini) user(b *builder, m *geminiMessage) {
	if m.summary {
		d.compaction(b, m)
		return
	}
	var parts []rows.Object
	for _, p := range contents(m.record.Get("content")) {
		if response := p.Object("functionResponse"); response != nil {
			// The call has most of them already.
			output, failed := geminiOutput(response.Object("response"))
			b.result(response.Text("id"), output, failed)
			continue
		}
		parts = append(parts, partOf(p))
	}
	if len(parts) == 0 {
		return
	}
	if _, own := spoken(parts); own && b.Asked == "" {
		for _, p := range contents(m.record.Get("displayContent")) {
			b.Asked += p.Text("text") // what the user typed, before files were put in
		}
	}
	b.message(session.RoleUser, parts)
}

func (d *gemini) compaction(b *builder, m *geminiMessage) {
	b.compaction(compacted{summary: spokenBy(m.record), auto: true})
	if m.tail != nil && m.tail.row != nil {
		b.touched.Last().SetInner("tail_start_id", m.tail.row.Row.ID)
	}
}

// info looks for what reports the conversation among what the program shows the
// user, or adds to it.
func (d *gemini) info(b *builder, m *geminiMessage) {
	switch strings.TrimSpace(spokenBy(m.record)) {
	case "Request cancelled.", "User cancelled the request.":
		b.ended("abort", "")
		return
	}
	var parts []rows.Object
	for _, p := range contents(m.record.Get("content")) {
		if p.Has("inlineData") || p.Has("fileData") { // of a tool, for the model
			parts = append(parts, partOf(p))
		}
	}
	if len(parts) > 0 {
		b.message(session.RoleSystem, parts)
	}
}

// gemini adds what the model answered: what it thought, what it said, and what it
// called, in an order that is not known.
func (d *gemini) gemini(b *builder, m *geminiMessage) {
	if m.answer {
		return
	}
	thoughts, said, calls := d.answered(m)
	done := rows.Elements(m.record.Get("toolCalls"))
	if len(thoughts)+len(said)+len(calls)+len(done) > 0 {
		b.step(m.id)
	}
	for _, p := range append(thoughts, said...) {
		b.part(p)
	}
	known := make(map[string]bool)
	for _, v := range done {
		call, err := rows.Parse(v)
		if err != nil {
			d.report(codec.Problem{Line: m.line, Reason: "a tool call of message " + m.id +
				" is not an object: left out"})
			continue
		}
		known[call.Text("id")] = true
		d.call(b, call)
	}
	for _, call := range calls {
		if id := call.Text("id"); id == "" && len(known) == 0 || id != "" && !known[id] && !b.called(id) {
			d.begin(b, call)
		}
	}
	d.spend(b, m)
	if model := m.record.Text("model"); model != "" {
		b.model("gcp.gen_ai", model)
	}
}

// answered returns the parts of an answer: the thoughts, as the program summarizes them or
// else as the model wrote them, what it said, and the calls that it requested.
func (d *gemini) answered(m *geminiMessage) (thoughts, said, calls []rows.Object) {
	for thought := range rows.Objects(m.record.Get("thoughts")) {
		text := thought.Text("description")
		if subject := thought.Text("subject"); subject != "" {
			text = strings.TrimSpace("**" + subject + "**\n\n" + text)
		}
		if text != "" {
			thoughts = append(thoughts, rows.TextPart("reasoning", text))
		}
	}
	summarized := len(thoughts) > 0
	for _, p := range contents(m.record.Get("content")) {
		switch {
		case p.True("thought"):
			if text := p.Text("text"); !summarized && text != "" {
				thoughts = append(thoughts, rows.TextPart("reasoning", text))
			}
		case p.Object("functionCall") != nil:
			calls = append(calls, p.Object("functionCall"))
		case p.Has("text") && p.Text("text") == "":
		default:
			said = append(said, partOf(p))
		}
	}
	return thoughts, said, calls
}

// spend adds what a message used. The input includes what was cached but not what tools
// added to it, and the output excludes the thoughts. No more of the input was cached than
// there was.
func (d *gemini) spend(b *builder, m *geminiMessage) {
	u := m.record.Object("tokens")
	if u == nil || b.turn == nil {
		return
	}
	cached := min(number(u, "input"), number(u, "cached"))
	input := number(u, "input") - cached + number(u, "tool")
	b.spend(m.id, session.Usage{Input: input, Output: number(u, "output"), Reasoning: number(u, "thoughts"),
		CacheRead: cached})
	b.turn.SetTrace("usage_basis", "inclusive")
}

func (d *gemini) begin(b *builder, call rows.Object) *rows.Part {
	return b.call(call.Text("name"), call.Text("id"), call.Get("args"))
}

// operationCancelled is how Gemini CLI tells the model that there was no call, and
// refusedByUser why, where the user said no, now and in older versions.
const operationCancelled = "[Operation Cancelled] Reason: "

var refusedByUser = []string{"User denied execution", "User did not allow tool call"}

// call adds a call with what came of it.
func (d *gemini) call(b *builder, call rows.Object) {
	if id := call.Text("id"); id != "" && b.called(id) && b.calls[id].Data().Text("state") !=
		session.StateInputAvailable {
		call = call.Without("id") // another one
	}
	at := b.At
	defer func() { b.At = at }() // so that ids do not depend on when another call was done
	p := d.begin(b, call)
	id := p.Data().Text("toolCallId")
	if child := call.Text("agentId"); child != "" {
		b.measure(id, "child_session_id", child)
	}
	b.see(call.Text("timestamp"))
	output, failed := geminiResult(call.Get("result"))
	switch status := call.Text("status"); status {
	case "success":
		b.result(id, output, false)
	case "error", "cancelled":
		text, ok := rows.Text(output)
		if !ok && string(output) != "null" {
			text = string(output)
		}
		text = cmp.Or(text, status)
		reason, _ := strings.CutPrefix(text, operationCancelled)
		if status == "cancelled" && slices.ContainsFunc(refusedByUser,
			func(s string) bool { return strings.HasPrefix(reason, s) }) {
			o := p.Data()
			o.Set("state", session.StateOutputDenied)
			o.Set("approval", map[string]any{"id": id, "approved": false, "reason": reason})
			p.Set(o)
			p.Touch(b.At)
			return
		}
		b.result(id, rows.Raw(text), true)
	default: // it is under way, or an older version did not say
		if len(output) > 0 && string(output) != "null" {
			b.result(id, output, failed)
		}
	}
}

// geminiResult is what a tool returned: the text or the value of one response, and
// otherwise all that was sent to the model.
func geminiResult(raw json.RawMessage) (output json.RawMessage, failed bool) {
	if len(raw) == 0 {
		return json.RawMessage("null"), false
	}
	parts := contents(raw)
	if _, text := rows.Text(raw); text || len(parts) == 0 {
		return raw, false
	}
	var rest []rows.Object
	var responses int
	for _, p := range parts {
		if response := p.Object("functionResponse").Object("response"); response != nil {
			responses++
			output, failed = geminiOutput(response)
		} else {
			rest = append(rest, p)
		}
	}
	if responses == 1 && len(rest) == 0 {
		return output, failed
	}
	return raw, failed
}

func geminiOutput(response rows.Object) (output json.RawMessage, failed bool) {
	switch {
	case response == nil:
		return json.RawMessage("null"), false
	case response.Has("error"):
		return response.Get("error"), true
	case response.Has("output"):
		return response.Get("output"), false
	}
	return response.JSON(), false
}
