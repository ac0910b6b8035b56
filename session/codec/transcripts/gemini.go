package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Gemini reads chats of Gemini CLI, each of which is one session: a JSON object, or
// JSON lines where messages are written again as they grow, and later records take
// back or replace earlier ones: $rewindTo hides the messages from there on.
//
// A list of messages that the program puts in place of those before, by $set, is what the model is to see from there
// on: what it leaves out stays, and what it cuts is kept whole. A summary in it that replaces some is a compaction.
//
// The place of a file reports more: the chats of sub-agents are in a directory that is
// named for their parent, and the project's directory states which one it is.
var Gemini = decodeGemini.reading(codec.Reading{
	Keys:       []string{"sessionId=* projectHash=*", "id=* type=gemini"},
	Extensions: []string{".json", ".jsonl"}, Appends: true,
	Beside: func(path string) []string {
		dir := filepath.Dir(path)
		return []string{filepath.Join(dir, "..", projectRootFile), filepath.Join(dir, "..", "..", projectRootFile)}
	},
})

// projectRootFile states which directory a project is.
const projectRootFile = ".project_root"

var decodeGemini decoder = func(from *source, text []byte) []*codec.Session {
	d := &gemini{source: from, byID: make(map[string]*geminiMessage)}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n")); json.Valid(first) {
		from.lines(text, d.read)
	} else {
		about, all := from.list(text, "messages")
		d.describe(about)
		for _, m := range all {
			if from.Place.Line = m.line; m.Text("id") == "" {
				d.Problem("is not a message with an id: left out")
			} else {
				d.put(m.Object)
			}
		}
	}
	if d.id == "" {
		return nil
	}
	return d.session().alone()
}

// gemini is the log of a chat: what was recorded, and what became of it.
type gemini struct {
	*source
	id    string
	about rows.Object // what is reported of the session, the latest
	at    int64       // of the message before
	order []*geminiMessage
	byID  map[string]*geminiMessage
	b     *builder
}

// geminiMessage is a message, as it was recorded last.
type geminiMessage struct {
	rows.Object
	line int
	// gone reports that the chat does not have it any more, hiddenAt when the user went back to before it.
	gone     bool
	hiddenAt int64
	// summary reports that it replaces what stood before tail, which is empty for all.
	summary bool
	tail    *geminiMessage
	// answer is what the program has the model say to a summary.
	answer bool
	row    *message // that it is in
}

func (d *gemini) read(o rows.Object) {
	set := o.Object("$set")
	switch {
	case o.Has("$rewindTo"):
		d.rewind(o.Text("$rewindTo"))
	case o.Text("id") != "":
		d.put(o)
	case set != nil:
		if set.Has("messages") {
			d.replace(d.messagesIn(set))
		}
		d.describe(set)
	case o.Text("sessionId") != "" && o.Text("projectHash") != "":
		d.describe(o)
		for _, m := range d.messagesIn(o) {
			d.put(m)
		}
	default:
		d.Problem("is not a record of a chat: left out")
	}
}

// describe takes what is reported of the session. Its id is the first.
func (d *gemini) describe(o rows.Object) {
	if d.id == "" && o.Text("projectHash") != "" {
		d.id = o.Text("sessionId")
	}
	d.about.Add(o.Without("messages"))
}

// messagesIn are the messages that a record lists.
func (d *gemini) messagesIn(o rows.Object) (all []rows.Object) {
	for _, v := range rows.Elements(o.Get("messages")) {
		if m := rows.Read(string(v)); m.Text("id") == "" {
			d.Problem("lists something that is not a message with an id: left out")
		} else {
			all = append(all, m)
		}
	}
	return all
}

// put takes a message, or the later version of one.
func (d *gemini) put(o rows.Object) *geminiMessage {
	d.at = max(d.at, milli(o.Text("timestamp")))
	id := o.Text("id")
	m := d.byID[id]
	if m == nil {
		m = &geminiMessage{line: d.Place.Line}
		d.byID[id], d.order = m, append(d.order, m)
	}
	m.Object, m.gone, m.hiddenAt = o, false, 0
	return m
}

// rewind takes back the messages from id on; all, where there is none of that id,
// as the program does it. The record has no time.
func (d *gemini) rewind(id string) {
	from := slices.IndexFunc(d.order, func(m *geminiMessage) bool { return m.Text("id") == id && !m.gone })
	if from < 0 {
		d.Problem("rewinds to message %s, which is not there: all before is hidden", id)
	}
	for _, m := range d.order[max(0, from):] {
		if !m.gone {
			m.gone, m.hiddenAt = true, max(1, d.at)
		}
	}
}

// replace has the chat go on with the messages that are listed. Of those that are known the list may report less than
// was recorded, because it is what the model is to see. New ones at its head, which take the place of others, are a
// summary of them, and what the program lets the model answer.
func (d *gemini) replace(list []rows.Object) {
	dropped := make(map[*geminiMessage]bool)
	for _, m := range d.order {
		if kind := m.Text("type"); !m.gone && (kind == "user" || kind == "gemini") {
			dropped[m] = true
		}
	}
	var head []*geminiMessage // the new ones at the beginning
	var tail *geminiMessage
	for _, o := range list {
		if m := d.byID[o.Text("id")]; m != nil {
			m.gone, m.hiddenAt, tail = false, 0, cmp.Or(tail, m)
			delete(dropped, m)
		} else if m = d.put(o); tail == nil {
			head = append(head, m)
		}
	}
	if len(dropped) == 0 || len(head) == 0 || head[0].Text("type") != "user" || head[0].spoken() == "" {
		return
	}
	head[0].summary, head[0].tail = true, tail
	if len(head) > 1 {
		m := head[1]
		m.answer = m.Text("type") == "gemini" && !m.Has("tokens") && !m.Has("toolCalls")
	}
}

// session makes the rows of the log.
func (d *gemini) session() *builder {
	parent, root, ofItsOwn := d.place()
	id, start := d.id, d.about.Text("startTime")
	if parent == "" && !ofItsOwn && d.about.Text("kind") == "subagent" { // it is beside its parent's, and has its id
		parent, id = id, id+"-"+cmp.Or(start, "subagent")
	}
	b := newBuilder(d.source, id, "gemini-cli")
	d.b = b
	b.parent(parent)
	b.workspace(root)
	b.s.SetMeta("gemini_cli", d.about.Only("projectHash", "kind", "directories"))
	b.see(milli(start))
	hidden := int64(0)
	for _, m := range d.order {
		if m.hiddenAt != hidden {
			b.end() // a message is hidden as a whole
			hidden = m.hiddenAt
		}
		b.see(milli(m.Text("timestamp")))
		b.touched, b.Place.Line = nil, m.line
		switch kind := m.Text("type"); {
		case kind == "user" && m.summary:
			b.compaction(compacted{summary: m.spoken(), auto: true})
			if m.tail != nil && m.tail.row != nil {
				b.touched.Last().SetInner("tail_start_id", m.tail.row.Row.ID)
			}
		case kind == "user":
			d.user(m)
		case kind == "gemini" && m.answer:
		case kind == "gemini":
			d.answer(m)
		case kind == "error":
			if b.turn != nil || b.isAsked() {
				b.fails(m.spoken())
			}
		case kind == "info" || kind == "warning":
			d.info(m)
		default:
			d.Problem("message %s has no known type: left out", m.Text("id"))
		}
		if m.row = b.touched; m.row != nil && m.hiddenAt > 0 {
			m.row.hide(m.hiddenAt)
		}
	}
	b.Title = d.about.Text("summary")
	return b
}

// place is what is known of a chat from the place of its file: the session whose sub-agent's it is, the directory of
// the project, and whether the file of a sub-agent has an id of its own.
func (d *gemini) place() (parent, root string, ofItsOwn bool) {
	path, err := filepath.Abs(d.path)
	if d.path == "" || err != nil {
		return "", "", true
	}
	dir := filepath.Dir(path)
	ofItsOwn = !strings.HasPrefix(filepath.Base(path), "session-")
	if filepath.Base(dir) != "chats" && filepath.Base(filepath.Dir(dir)) == "chats" {
		parent, dir = valid(filepath.Base(dir)), filepath.Dir(dir)
	}
	if filepath.Base(dir) == "chats" {
		text, _ := codec.ReadFile(filepath.Join(filepath.Dir(dir), projectRootFile)) // older versions write none
		if text := strings.TrimSpace(string(text)); filepath.IsAbs(text) {
			root = valid(text)
		}
	}
	return parent, root, ofItsOwn
}

func (m *geminiMessage) contents() []rows.Object { return contents(m.Get("content")) }

// spoken is the text of a message.
func (m *geminiMessage) spoken() string {
	return joined(slices.DeleteFunc(m.contents(), func(p rows.Object) bool { return p.True("thought") }), "")
}

func (d *gemini) user(m *geminiMessage) {
	var parts []rows.Object
	for _, p := range m.contents() {
		if response := p.Object("functionResponse"); response != nil {
			// The call has most of them already.
			output, failed := geminiResult(rows.Raw([]rows.Object{p}))
			d.b.settle(response.Text("id"), output, failed)
			continue
		}
		parts = append(parts, partOf(p))
	}
	if i := slices.IndexFunc(parts, func(p rows.Object) bool { return strings.Contains(p.Text("text"), session.Referenced) }); i >= 0 {
		files := rows.TextPart("text", joined(parts[i:], "")) // which has a part for each file and line between them
		parts = append(parts[:i:i], append(slices.DeleteFunc(parts[i:], func(p rows.Object) bool { return p.Has("text") }), files)...)
	}
	if _, own := spoken(parts); own && d.b.Asked == "" {
		d.b.Asked = joined(contents(m.Get("displayContent")), "") // as the user typed it, before files were put in
	}
	d.b.message(session.RoleUser, parts...)
}

// info looks for what reports the conversation among what the program shows the user, or adds to it.
func (d *gemini) info(m *geminiMessage) {
	switch strings.TrimSpace(m.spoken()) {
	case "Request cancelled.", "User cancelled the request.":
		d.b.ended("abort", "")
		return
	}
	var parts []rows.Object
	for _, p := range m.contents() {
		if p.Has("inlineData") || p.Has("fileData") { // of a tool, for the model
			parts = append(parts, partOf(p))
		}
	}
	d.b.message(session.RoleSystem, parts...)
}

// answer adds what the model answered: what it thought, as the program summarizes it or else as the model wrote it,
// what it said, and what it called, in an order that is not known.
func (d *gemini) answer(m *geminiMessage) {
	b := d.b
	var thoughts, said, calls []rows.Object
	for thought := range rows.Objects(m.Get("thoughts")) {
		text := thought.Text("description")
		if subject := thought.Text("subject"); subject != "" {
			text = strings.TrimSpace("**" + subject + "**\n\n" + text)
		}
		thoughts = append(thoughts, partsOf(rows.TextPart("reasoning", text))...)
	}
	summarized := len(thoughts) > 0
	for _, p := range m.contents() {
		switch {
		case p.True("thought") && !summarized:
			thoughts = append(thoughts, partsOf(rows.TextPart("reasoning", p.Text("text")))...)
		case p.True("thought"):
		case p.Object("functionCall") != nil:
			calls = append(calls, p.Object("functionCall"))
		default:
			said = append(said, partsOf(p)...)
		}
	}
	done := contents(m.Get("toolCalls"))
	id := m.Text("id")
	if len(thoughts)+len(said)+len(calls)+len(done) > 0 {
		b.step(id)
	}
	b.add(append(thoughts, said...)...)
	known := make(map[string]bool)
	for _, call := range done {
		known[call.Text("id")] = true
		d.call(call)
	}
	for _, call := range calls {
		if id := call.Text("id"); id == "" && len(known) == 0 || id != "" && !known[id] && !b.called(id) {
			b.call(call.Text("name"), id, call.Get("args"))
		}
	}
	if tokens := m.Object.Object("tokens"); tokens != nil && b.turn != nil {
		// The input excludes what tools added to it, and the output the thoughts.
		u := counts{input: "input", output: "output", read: "cached"}.capped(tokens)
		u.Input, u.Reasoning = u.Input+number(tokens, "tool"), number(tokens, "thoughts")
		b.turn.stepOf(id).count(modelUse{usage: u}, semconv.BasisInclusive)
	}
	b.model("gcp.gen_ai", m.Text("model"))
}

// operationCancelled is how Gemini CLI reports to the model that there was no call, and
// refusedByUser why, where the user said no, now and in older versions.
const operationCancelled = "[Operation Cancelled] Reason: "

var refusedByUser = []string{"User denied execution", "User did not allow tool call"}

// call adds a call with what came of it.
func (d *gemini) call(o rows.Object) {
	b, id := d.b, o.Text("id")
	if c := b.calls[id]; c != nil && c.Data().Text("state") != session.StateInputAvailable {
		id = "" // another one
	}
	at := b.At
	defer func() { b.At = at }() // so that ids do not depend on when another call was done
	c := b.call(o.Text("name"), id, o.Get("args"))
	id = *c.Row.ToolCallID
	b.measure(id, "child_session_id", o.Text("agentId"))
	b.see(milli(o.Text("timestamp")))
	output, failed := geminiResult(o.Get("result"))
	none := string(output) == "null"
	switch status := o.Text("status"); status {
	case "success":
		b.settle(id, output, false)
	case "error", "cancelled":
		text, isText := rows.Text(output)
		if !isText && !none {
			text = string(output)
		}
		text = cmp.Or(text, status)
		reason := strings.TrimPrefix(text, operationCancelled)
		if status == "cancelled" && beginsWith(reason, refusedByUser) {
			c.deny(reason, b.At)
		} else {
			b.settle(id, rows.Raw(text), true)
		}
	default: // it is under way, or an older version did not say
		if !none {
			b.settle(id, output, failed)
		}
	}
}

// geminiResult is what a tool returned: the text or the value of one response, with the files beside it, and otherwise
// all that was sent to the model.
func geminiResult(raw json.RawMessage) (output json.RawMessage, failed bool) {
	parts := contents(raw)
	if _, isText := rows.Text(raw); isText || len(parts) == 0 {
		return rows.OrNull(raw), false
	}
	responses := 0
	var files []rows.Object
	for _, p := range parts {
		o := p.Object("functionResponse")
		if response := o.Object("response"); response == nil {
			files = append(files, p)
		} else {
			responses, files = responses+1, append(files, contents(o.Get("parts"))...)
			output, failed = geminiOutput(response)
		}
	}
	if responses == 1 {
		return withFiles(output, files...), failed
	}
	return raw, failed
}

func geminiOutput(response rows.Object) (output json.RawMessage, failed bool) {
	switch {
	case response == nil:
		return rows.OrNull(nil), false
	case response.Has("error"):
		return response.Get("error"), true
	case response.Has("output"):
		return response.Get("output"), false
	}
	return response.JSON(), false
}
