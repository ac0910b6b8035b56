package skillet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// item is a row of session_items.
type item struct {
	row  int64 // its id
	at   int64 // created_at, in Unix milliseconds
	text string
}

// Types of items.
const (
	messageItem    = "message"
	reasoningItem  = "reasoning"
	callItem       = "function_call"
	resultItem     = "function_call_result"
	compactionItem = "compaction"
)

// parseItem reads the item_json of a row. A message may lack its type.
func parseItem(i item) (o rows.Object, typ string, err error) {
	if o, err = rows.Parse([]byte(i.text)); err != nil {
		return nil, "", err
	}
	if typ = o.Text("type"); typ == "" && o.Has("role") {
		typ = messageItem
	}
	return o, typ, nil
}

type itemDecoder struct {
	file   string
	report func(codec.Problem)

	s     *rows.Session
	m     *rows.Message // the assistant's message that is open
	calls map[string]*rows.Part
	count int // of items
}

// decodeItems makes a session of the rows of a conversation.
func decodeItems(key names, items []item, file string, report func(codec.Problem)) *codec.Session {
	s := rows.New(key.sessionID(), agentName)
	d := itemDecoder{file: file, report: report, s: s, calls: make(map[string]*rows.Part)}
	for _, i := range items {
		if !utf8.ValidString(i.text) {
			i.text = strings.ToValidUTF8(i.text, "\uFFFD")
			d.problem(i, "bytes that are not UTF-8 were replaced by U+FFFD")
		}
		o, typ, err := parseItem(i)
		if err != nil {
			d.problem(i, "is not an item: left out: %v", err)
			continue
		}
		d.s.See(i.at)
		d.count++
		d.item(i, o, typ)
	}
	turns := int64(0)
	for _, m := range d.s.Messages() {
		switch m.Row.Role {
		case session.RoleUser:
			turns++
		case session.RoleAssistant:
			m.SetMeta("agenttrace", session.MessageTrace{TurnIndex: new(max(turns-1, 0))})
		}
	}
	finishSession(d.s, key)
	return d.s.Finish()
}

func (d *itemDecoder) problem(i item, format string, args ...any) {
	record := fmt.Sprintf("session_items row %d", i.row)
	d.report(codec.Problem{File: d.file, Record: record, Reason: fmt.Sprintf(format, args...)})
}

func (d *itemDecoder) item(i item, o rows.Object, typ string) {
	role := o.Text("role")
	if typ == messageItem && (role == session.RoleUser || role == session.RoleSystem) {
		d.m = nil
		m := d.s.Message(role, i.at)
		for _, data := range contentParts(o.Get("content")) {
			m.Part(data, i.at)
		}
		return
	}
	call := d.calls[o.Text("callId")]
	if typ == resultItem && call != nil {
		call.Set(withResult(call.Data(), itemOutput(o.Get("output"))))
		call.Touch(i.at)
		return
	}
	if d.m == nil {
		d.m = d.s.Message(session.RoleAssistant, i.at)
	}
	d.m.Touch(i.at)
	switch {
	case typ == messageItem && role == session.RoleAssistant:
		for _, data := range spoken(o.Get("content")) {
			d.m.Part(data, i.at)
		}
	case typ == reasoningItem:
		d.m.Part(rows.TextPart("reasoning", reasoningText(o)), i.at)
	case typ == callItem:
		d.call(i, o)
	case typ == compactionItem:
		empty := json.RawMessage(`{"summary":"","tail_start_id":null,"auto":true,"summary_tokens":0}`)
		d.m.Part(rows.DataPart(session.TypeCompaction, empty), i.at)
	default:
		if typ == resultItem {
			d.problem(i, "result of call %q, which is not above it: kept as data-item", o.Text("callId"))
		}
		d.m.Part(rows.DataPart("data-item", o), i.at)
	}
}

func (d *itemDecoder) call(i item, o rows.Object) {
	id := o.Text("callId")
	if id == "" || d.calls[id] != nil {
		d.problem(i, "call with the callId %q, which names no call or another one: its result cannot be matched", id)
		id = spans.DeriveID("call_", i.at, d.s.Row.ID, strconv.Itoa(d.count))
	}
	data := rows.ToolPart(o.Text("name"), id, session.StateInputAvailable)
	data.Set("input", parseArguments(o.Text("arguments")))
	d.calls[id] = d.m.Part(data, i.at)
}

// spoken returns the parts of what an assistant's message says.
func spoken(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for _, v := range rows.Elements(content) {
		if c := rows.Read(string(v)); c.Text("type") == "output_text" {
			parts = append(parts, rows.TextPart("text", c.Text("text")))
		} else {
			parts = append(parts, rows.DataPart(contentPart, v))
		}
	}
	return parts
}

// reasoningText returns what a reasoning item says: its content, or else its raw content.
func reasoningText(o rows.Object) string {
	read := func(list json.RawMessage) string {
		var texts []string
		for c := range rows.Objects(list) {
			texts = append(texts, c.Text("text"))
		}
		return strings.Join(texts, "\n\n")
	}
	return cmp.Or(read(o.Get("content")), read(o.Get("rawContent")))
}

// itemOutput is the output of a call: a text as it is, anything else as JSON.
func itemOutput(output json.RawMessage) json.RawMessage {
	if o, err := rows.Parse(output); err == nil && len(o) == 2 && o.Text("type") == "text" && o[1].Key == "text" {
		return o.Get("text")
	}
	return rows.OrNull(output)
}

// guide knows from the store what the log leaves out.
type guide struct {
	items []known
	at    int // those before it are used
}

type known struct {
	rows.Object
	typ string
}

func (k known) isUser() bool { return k.typ == messageItem && k.Text("role") == session.RoleUser }

func newGuide(items []item) (g guide) {
	for _, i := range items {
		if o, typ, err := parseItem(i); err == nil {
			g.items = append(g.items, known{o, typ})
		}
	}
	return g
}

// user moves on to what follows a user message, and reports whether the store
// still has it.
func (g *guide) user(parts []rows.Object) bool {
	want := string(input(parts))
	return g.skip(func(k known) bool {
		return k.isUser() && string(input(contentParts(k.Get("content")))) == want
	}, func(known) bool { return false }) != nil
}

// skip moves on to what follows the next item that is wanted, if it comes before an end.
func (g *guide) skip(wanted, end func(known) bool) *known {
	for i := g.at; i < len(g.items) && !end(g.items[i]); i++ {
		if wanted(g.items[i]) {
			g.at = i + 1
			return &g.items[i]
		}
	}
	return nil
}

// call returns the id of a call, and the reasoning right before it.
func (g *guide) call(name, arguments string) (id string, thoughts []string) {
	before := g.at
	k := g.skip(func(k known) bool {
		return k.typ == callItem && k.Text("name") == name && k.Text("arguments") == arguments
	}, known.isUser)
	if k == nil {
		return "", nil
	}
	return k.Text("callId"), g.thoughts(before)
}

// text returns the reasoning right before the next text.
func (g *guide) text() []string {
	before := g.at
	message := func(k known) bool { return k.typ == messageItem }
	if g.skip(message, func(k known) bool { return k.typ == callItem || k.isUser() }) == nil {
		return nil
	}
	return g.thoughts(before)
}

// rest returns the reasoning with which a turn ends.
func (g *guide) rest() []string {
	before, end := g.at, g.at
	for ; end < len(g.items) && g.items[end].typ != messageItem; end++ {
		if g.items[end].typ == callItem {
			return nil // what the log knows nothing of is between
		}
	}
	g.at = end
	return g.thoughts(before)
}

// thoughts returns the reasoning from before up to the current place.
func (g *guide) thoughts(before int) (texts []string) {
	for _, k := range g.items[before:g.at] {
		if k.typ == reasoningItem {
			if text := reasoningText(k.Object); text != "" {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
