package skillet

import (
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
	key    Key
	file   string
	report func(codec.Problem)

	s     *rows.Session
	m     *rows.Message // the assistant's message that is open
	notes map[*rows.Message][]rows.Object
	calls map[string]*rows.Part
	count int // of items
}

// decodeItems makes a session of the rows of a conversation.
func decodeItems(key Key, items []item, file string, report func(codec.Problem)) *codec.Session {
	d := itemDecoder{key: key, file: file, report: report, s: rows.New(key.sessionID(), agentName),
		notes: make(map[*rows.Message][]rows.Object), calls: make(map[string]*rows.Part)}
	for _, i := range items {
		if !utf8.ValidString(i.text) {
			i.text = strings.ToValidUTF8(i.text, "\uFFFD")
			d.problem(i, "bytes that are not UTF-8 were replaced by U+FFFD")
		}
		o, typ, err := parseItem(i)
		if err != nil {
			d.problem(i, "is not an item: left out: "+err.Error())
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
			index := max(turns-1, 0)
			m.SetMeta("agenttrace", session.MessageTrace{TurnIndex: &index})
		}
		m.SetMeta(metaKey, rows.Object{{Key: "items", Value: raw(d.notes[m])}})
	}
	finishSession(d.s, key)
	return d.s.Finish()
}

func (d *itemDecoder) problem(i item, reason string) {
	if d.report != nil {
		d.report(codec.Problem{File: d.file, Record: fmt.Sprintf("session_items row %d", i.row), Reason: reason})
	}
}

func (d *itemDecoder) assistant(at int64) *rows.Message {
	if d.m == nil {
		d.m = d.s.Message(session.RoleAssistant, at)
	}
	d.m.Touch(at)
	return d.m
}

func (d *itemDecoder) item(i item, o rows.Object, typ string) {
	note := rows.Object{{Key: "at", Value: raw(i.at)}, {Key: "type", Value: raw(typ)}}
	if v := o.Get("id"); v != nil {
		note.Set("id", v)
	}
	if v := o.Get("status"); v != nil {
		note.Set("status", v)
	}
	var m *rows.Message
	part := func(data rows.Object) *rows.Part {
		p := m.Part(data, i.at)
		if note.Get("part") == nil {
			note.Set("part", p.Row.Index)
		}
		return p
	}
	switch role := o.Text("role"); {
	case typ == messageItem && (role == session.RoleUser || role == session.RoleSystem):
		d.m = nil
		m = d.s.Message(role, i.at)
		for _, data := range contentParts(o.Get("content")) {
			m.Part(data, i.at)
		}
		note.Set("role", role)
	case typ == messageItem && role == session.RoleAssistant:
		m = d.assistant(i.at)
		for _, data := range spoken(o.Get("content")) {
			part(data)
		}
		note.Set("role", role)
	case typ == reasoningItem:
		m = d.assistant(i.at)
		text, _ := reasoningText(o)
		part(textPart("reasoning", text))
	case typ == callItem:
		m = d.assistant(i.at)
		d.call(i, o, part)
	case typ == resultItem && d.calls[o.Text("callId")] != nil:
		p := d.calls[o.Text("callId")]
		m = p.Message()
		p.Set(withResult(p.Data(), itemOutput(o.Get("output"))))
		p.Touch(i.at)
		note.Set("part", p.Row.Index)
	case typ == compactionItem:
		m = d.assistant(i.at)
		part(dataPart(session.TypeCompaction, json.RawMessage(`{"summary":"","tail_start_id":null,"auto":true,"summary_tokens":0}`)))
	default:
		if typ == resultItem {
			d.problem(i, fmt.Sprintf("result of call %q, which is not above it: kept as data-item", o.Text("callId")))
		}
		m = d.assistant(i.at)
		part(dataPart("data-item", o.JSON()))
		note.Set("data", true)
	}
	again, ok := itemOf(note, func(index int64) rows.Object { return partAt(m, index) })
	if !ok || string(again.JSON()) != i.text {
		note.Set("item", i.text)
	}
	d.notes[m] = append(d.notes[m], note)
}

func (d *itemDecoder) call(i item, o rows.Object, part func(rows.Object) *rows.Part) {
	id := o.Text("callId")
	if id == "" || d.calls[id] != nil {
		d.problem(i, fmt.Sprintf("call with the callId %q, which names no call or another one: its result cannot be told", id))
		id = spans.DeriveID("call_", i.at, d.s.Row.ID, strconv.Itoa(d.count))
	}
	arguments := o.Text("arguments")
	data := toolPart(o.Text("name"), id, session.StateInputAvailable)
	data.Set("input", parseArguments(arguments))
	if string(data.Get("input")) != arguments {
		data.Set("callProviderMetadata", rows.Object{{Key: metaKey, Value: rows.Object{{Key: "arguments", Value: raw(arguments)}}.JSON()}})
	}
	d.calls[id] = part(data)
}

// spoken returns the parts of what an assistant's message says.
func spoken(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{textPart("text", s)}
	}
	for _, v := range rows.Elements(content) {
		c, err := rows.Parse(v)
		switch {
		case err == nil && c.Text("type") == "output_text":
			parts = append(parts, textPart("text", c.Text("text")))
		default:
			parts = append(parts, dataPart("data-content", v))
		}
	}
	return parts
}

// reasoningText returns what a reasoning item says, and whether it is in its raw
// content only.
func reasoningText(o rows.Object) (text string, fromRaw bool) {
	read := func(list json.RawMessage) string {
		var texts []string
		for _, v := range rows.Elements(list) {
			if c, err := rows.Parse(v); err == nil {
				texts = append(texts, c.Text("text"))
			}
		}
		return strings.Join(texts, "\n\n")
	}
	if text = read(o.Get("content")); text != "" {
		return text, false
	}
	return read(o.Get("rawContent")), true
}

// itemOutput is the output of a call: a text as it is, anything else as JSON.
func itemOutput(output json.RawMessage) json.RawMessage {
	if output == nil {
		return json.RawMessage("null")
	}
	if o, err := rows.Parse(output); err == nil && len(o) == 2 && o.Text("type") == "text" && o[1].Key == "text" {
		return o.Get("text")
	}
	return output
}

// itemOf makes the item again that a note was taken of.
func itemOf(note rows.Object, part func(int64) rows.Object) (rows.Object, bool) {
	if text, ok := rows.Text(note.Get("item")); ok {
		return object(text), true
	}
	var o rows.Object
	set := func(key string) {
		if v := note.Get(key); v != nil {
			o.Set(key, v)
		}
	}
	if role := note.Text("role"); role == session.RoleUser || role == session.RoleSystem {
		o.Set("role", role)
		var parts []rows.Object
		for i := int64(0); part(i) != nil; i++ {
			parts = append(parts, part(i))
		}
		o.Set("content", input(parts))
		return o, true
	}
	data := part(number(note.Get("part")))
	if data == nil {
		return nil, false
	}
	if note.Get("data") != nil {
		return data.Object("data"), true
	}
	switch typ := note.Text("type"); typ {
	case messageItem:
		o.Set("type", typ)
		set("id")
		o.Set("role", session.RoleAssistant)
		set("status")
		o.Set("content", []rows.Object{{{Key: "type", Value: raw("output_text")}, {Key: "text", Value: raw(data.Text("text"))}}})
	case reasoningItem:
		o.Set("type", typ)
		set("id")
		o.Set("content", []rows.Object{{{Key: "type", Value: raw("input_text")}, {Key: "text", Value: raw(data.Text("text"))}}})
	case callItem:
		o.Set("type", typ)
		set("id")
		o.Set("callId", data.Text("toolCallId"))
		o.Set("name", toolName(data))
		arguments := data.Object("callProviderMetadata").Object(metaKey).Get("arguments")
		if arguments == nil {
			arguments = raw(string(data.Get("input")))
		}
		o.Set("arguments", arguments)
		set("status")
	case resultItem:
		o.Set("type", typ)
		set("id")
		o.Set("callId", data.Text("toolCallId"))
		o.Set("name", toolName(data))
		set("status")
		output := data.Get("output")
		if output == nil {
			return nil, false
		}
		if output[0] == '"' {
			output = rows.Object{{Key: "type", Value: raw("text")}, {Key: "text", Value: output}}.JSON()
		}
		o.Set("output", output)
	default:
		return nil, false
	}
	return o, true
}

// guide tells from the store what the log leaves out. A nil guide knows nothing.
type guide struct {
	items []rows.Object
	types []string
	at    int // what is before it was told
}

func newGuide(items []item) *guide {
	g := new(guide)
	for _, i := range items {
		if o, typ, err := parseItem(i); err == nil {
			g.items, g.types = append(g.items, o), append(g.types, typ)
		}
	}
	return g
}

// user moves on to what follows a user message, and reports whether the store
// still has it.
func (g *guide) user(parts []rows.Object) bool {
	want := string(input(parts))
	for i := g.at; i < len(g.items); i++ {
		if g.types[i] == messageItem && g.items[i].Text("role") == session.RoleUser && string(input(contentParts(g.items[i].Get("content")))) == want {
			g.at = i + 1
			return true
		}
	}
	return false
}

// call returns the id of a call, and the reasoning right before it.
func (g *guide) call(name, arguments string) (id string, thoughts []string) {
	if g == nil {
		return "", nil
	}
	for i := g.at; i < len(g.items) && !g.isUser(i); i++ {
		if g.types[i] == callItem && g.items[i].Text("name") == name && g.items[i].Text("arguments") == arguments {
			thoughts = g.thoughts(i)
			g.at = i + 1
			return g.items[i].Text("callId"), thoughts
		}
	}
	return "", nil
}

// text returns the reasoning right before the next text.
func (g *guide) text() []string {
	if g == nil {
		return nil
	}
	for i := g.at; i < len(g.items) && g.types[i] != callItem && !g.isUser(i); i++ {
		if g.types[i] == messageItem {
			thoughts := g.thoughts(i)
			g.at = i + 1
			return thoughts
		}
	}
	return nil
}

// rest returns the reasoning with which a turn ends.
func (g *guide) rest() []string {
	if g == nil {
		return nil
	}
	i := g.at
	for i < len(g.items) && g.types[i] != messageItem {
		if g.types[i] == callItem {
			return nil // what the log knows nothing of stands between
		}
		i++
	}
	thoughts := g.thoughts(i)
	g.at = i
	return thoughts
}

func (g *guide) isUser(i int) bool {
	return g.types[i] == messageItem && g.items[i].Text("role") == session.RoleUser
}

// thoughts returns the reasoning that was not told yet and stands before i.
func (g *guide) thoughts(i int) (texts []string) {
	for k := g.at; k < i; k++ {
		if g.types[k] == reasoningItem {
			if text, _ := reasoningText(g.items[k]); text != "" {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
