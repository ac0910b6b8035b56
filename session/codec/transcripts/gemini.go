package transcripts

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// looksGemini reports whether a record with these keys, and the values of those that
// are strings, is one of a chat of Gemini CLI, or the whole chat.
func looksGemini(keys map[string]string) bool {
	return keys["sessionId"] != "" && keys["projectHash"] != "" || keys["id"] != "" && keys["type"] == "gemini"
}

// Gemini reads chats of Gemini CLI, each of which is one session: a JSON object, or
// JSON lines where messages are written again as they grow, and later records take
// back or replace earlier ones.
//
//	user                  user message; what the program says for the user is a
//	                      system message
//	gemini                parts of the turn, and its usage
//	thoughts              reasoning parts
//	toolCalls             parts tool-<name>, with the session of a sub-agent
//	error, info           how the turn ended, where they report it
//	$rewindTo             hides the messages from there on
//	$set of the messages  data-compaction part, where a summary replaces some
//
// A list of messages that the program puts in place of those before is what the model
// is to see from there on: what it leaves out stays, and what it cuts is kept whole.
//
// Lines that cannot be read are reported and left out, as is what follows where an
// object is damaged; report may be nil. An error is yielded when reading fails, when
// nothing in the stream is of Gemini CLI, or when no record names the session.
//
// The place of a file reports more: the chats of sub-agents are in a directory that is
// named for their parent, and the project's directory states which one it is.
var Gemini = codec.Reading{
	Extensions: []string{".json", ".jsonl"}, SniffKeys: looksGemini, Transcript: true,
	Decode: decodeGemini.stream, DecodeFile: decodeGemini.file, DecodeText: decodeGemini, Beside: besideGemini,
}

func besideGemini(path string) []string {
	dir := filepath.Dir(path)
	return []string{filepath.Join(dir, "..", projectRootFile), filepath.Join(dir, "..", "..", projectRootFile)}
}

// projectRootFile states which directory a project is.
const projectRootFile = ".project_root"

// geminiPlace is what is known of a chat from the place of its file.
type geminiPlace struct {
	parent string // the session whose sub-agent's the chat is
	beside bool   // a sub-agent's chat would be beside its parent's, and have its id
	root   string // of the project
}

func placeOfGemini(path string) geminiPlace {
	var p geminiPlace
	if path == "" {
		return p
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return p
	}
	dir := filepath.Dir(path)
	p.beside = strings.HasPrefix(filepath.Base(path), "session-")
	if filepath.Base(dir) != "chats" && filepath.Base(filepath.Dir(dir)) == "chats" {
		p.parent, p.beside = strings.ToValidUTF8(filepath.Base(dir), "\uFFFD"), false
		dir = filepath.Dir(dir)
	}
	if filepath.Base(dir) == "chats" {
		root, _ := codec.ReadFile(filepath.Join(filepath.Dir(dir), projectRootFile)) // older versions write none
		if text := strings.TrimSpace(string(root)); filepath.IsAbs(text) {
			p.root = strings.ToValidUTF8(text, "\uFFFD")
		}
	}
	return p
}

var decodeGemini decoder = func(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	d := &gemini{report: report, file: placeOfGemini(path), byID: make(map[string]*geminiMessage)}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if areLines(text) {
		rows.Records(text, d.report, d.record)
	} else {
		d.object(text)
	}
	s, err := d.session()
	if err != nil {
		return nil, err
	}
	return []*codec.Session{s}, nil
}

// areLines reports whether text is JSON lines. One object may be so damaged that no
// line of it is whole; of lines, one is.
func areLines(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
			continue
		}
		o, _ := parse(line)
		if o.Text("id") != "" || o.Text("sessionId") != "" || o.Has("$set") || o.Has("$rewindTo") {
			return true
		}
	}
	return false
}

// gemini is the log of a chat: what was recorded, and what became of it.
type gemini struct {
	report func(codec.Problem)
	file   geminiPlace
	id     string
	about  rows.Object // what is reported of the session, the latest
	at     int64       // of the message before
	order  []*geminiMessage
	byID   map[string]*geminiMessage
}

// geminiMessage is a message, as it was recorded last.
type geminiMessage struct {
	id     string
	record rows.Object
	line   int
	// gone reports that the chat does not have it any more, hiddenAt when the user went
	// back to before it.
	gone     bool
	hiddenAt int64
	// summary reports that it replaces what stood before tail, which is empty for all.
	summary bool
	tail    *geminiMessage
	// answer is what the program has the model say to a summary.
	answer bool
	row    *rows.Message // that it is in
}

// object reads a chat that is one object, as far as it is good.
func (d *gemini) object(text []byte) {
	d.describe(objectsIn(text, "messages", d.report, func(o rows.Object, line int) {
		if o.Text("id") == "" {
			d.report(codec.Problem{Line: line, Reason: "is not a message with an id: left out"})
			return
		}
		d.put(o, line)
	}))
}

func (d *gemini) record(o rows.Object, line int) {
	switch {
	case o.Has("$rewindTo"):
		d.rewind(o.Text("$rewindTo"), line)
	case o.Text("id") != "":
		d.put(o, line)
	case o.Object("$set") != nil:
		set := o.Object("$set")
		if set.Has("messages") {
			d.replace(set, line)
		}
		d.describe(set)
	case o.Text("sessionId") != "" && o.Text("projectHash") != "":
		d.describe(o)
		for _, m := range d.messagesIn(o, line) {
			d.put(m, line)
		}
	default:
		d.report(codec.Problem{Line: line, Reason: "is not a record of a chat: left out"})
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
func (d *gemini) messagesIn(o rows.Object, line int) []rows.Object {
	var all []rows.Object
	for _, v := range rows.Elements(o.Get("messages")) {
		m, err := rows.Parse(v)
		if err != nil || m.Text("id") == "" {
			d.report(codec.Problem{Line: line, Reason: "lists something that is not a message with an id: left out"})
			continue
		}
		all = append(all, m)
	}
	return all
}

// put takes a message, or the later version of one.
func (d *gemini) put(o rows.Object, line int) *geminiMessage {
	if at := milli(o.Text("timestamp")); at > 0 {
		d.at = max(d.at, at)
	}
	id := o.Text("id")
	if m := d.byID[id]; m != nil {
		m.record, m.gone, m.hiddenAt = o, false, 0
		return m
	}
	m := &geminiMessage{id: id, record: o, line: line}
	d.byID[id], d.order = m, append(d.order, m)
	return m
}

// rewind takes back the messages from id on; all, where there is none of that id,
// as the program does it. The record has no time.
func (d *gemini) rewind(id string, line int) {
	from := slices.IndexFunc(d.order, func(m *geminiMessage) bool { return m.id == id && !m.gone })
	if from < 0 {
		d.report(codec.Problem{Line: line, Reason: "rewinds to message " + id +
			", which is not there: all before is hidden"})
	}
	for _, m := range d.order[max(0, from):] {
		if !m.gone {
			m.gone, m.hiddenAt = true, max(1, d.at)
		}
	}
}

// replace has the chat go on with the messages that are listed. Of those that are
// known the list may report less than was recorded, because it is what the model is to see.
// New ones at its head, which take the place of others, are a summary of them, and
// what the program lets the model answer.
func (d *gemini) replace(set rows.Object, line int) {
	list := d.messagesIn(set, line)
	listed := make(map[string]bool, len(list))
	for _, o := range list {
		listed[o.Text("id")] = true
	}
	dropped := false
	for _, m := range d.order {
		if kind := m.record.Text("type"); !m.gone && !listed[m.id] && (kind == "user" || kind == "gemini") {
			dropped = true
		}
	}
	var head []*geminiMessage // the new ones at the beginning
	var tail *geminiMessage
	for _, o := range list {
		if m := d.byID[o.Text("id")]; m != nil {
			if m.gone, m.hiddenAt = false, 0; tail == nil {
				tail = m
			}
			continue
		}
		m := d.put(o, line)
		if tail == nil {
			head = append(head, m)
		}
	}
	if !dropped || len(head) == 0 || head[0].record.Text("type") != "user" || spokenBy(head[0].record) == "" {
		return
	}
	head[0].summary, head[0].tail = true, tail
	if len(head) > 1 && head[1].record.Text("type") == "gemini" && !head[1].record.Has("tokens") &&
		!head[1].record.Has("toolCalls") {
		head[1].answer = true
	}
}
