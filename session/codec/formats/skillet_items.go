package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// skilletItem is a row of session_items.
type skilletItem struct {
	row  int64 // its id
	at   int64 // created_at, in Unix milliseconds
	text string
}

// Types of items.
const (
	skilletMessageItem, skilletReasoningItem = "message", "reasoning"
	skilletCallItem, skilletResultItem       = "function_call", "function_call_result"
)

// skilletParseItem reads the item_json of a row. A message may lack its type.
func skilletParseItem(i skilletItem) (o rows.Object, typ string, err error) {
	o, err = rows.Parse([]byte(i.text))
	if typ = o.Text("type"); typ == "" && o.Has("role") {
		typ = skilletMessageItem
	}
	return o, typ, err
}

type skilletItemDecoder struct {
	file   string
	report func(codec.Problem)

	s     *rows.Session
	m     *rows.Message // the assistant's message that is open
	users int64
	calls map[string]*rows.Part
	count int // of items
}

// skilletDecodeItems makes a session of the rows of a conversation.
func skilletDecodeItems(key skilletNames, items []skilletItem, file string, report func(codec.Problem)) *codec.Session {
	d := skilletItemDecoder{file: file, report: report, s: rows.New(key.sessionID(), skilletName),
		calls: make(map[string]*rows.Part)}
	for _, i := range items {
		if !utf8.ValidString(i.text) {
			i.text = strings.ToValidUTF8(i.text, "\uFFFD")
			d.problem(i, "bytes that are not UTF-8 were replaced by U+FFFD")
		}
		o, typ, err := skilletParseItem(i)
		if err != nil {
			d.problem(i, "is not an item: left out: %v", err)
			continue
		}
		d.s.See(i.at)
		d.count++
		d.item(i, o, typ)
	}
	return skilletFinish(d.s, key)
}

func (d *skilletItemDecoder) problem(i skilletItem, format string, args ...any) {
	record := fmt.Sprintf("session_items row %d", i.row)
	d.report(codec.Problem{File: d.file, Record: record, Reason: fmt.Sprintf(format, args...)})
}

func (d *skilletItemDecoder) item(i skilletItem, o rows.Object, typ string) {
	role, id := o.Text("role"), o.Text("callId")
	call := d.calls[id]
	switch {
	case typ == skilletMessageItem && (role == session.RoleUser || role == session.RoleSystem):
		d.m = nil
		m := d.s.Message(role, i.at)
		for _, data := range skilletContentParts(o.Get("content")) {
			m.Part(data, i.at)
		}
		if role == session.RoleUser {
			d.users++
		}
		return
	case typ == skilletResultItem && call != nil:
		skilletWithResult(call, skilletItemOutput(o.Get("output")))
		call.Touch(i.at)
		return
	}
	if d.m == nil {
		d.m = d.s.Message(session.RoleAssistant, i.at)
		d.m.SetMeta("agenttrace", session.MessageTrace{TurnIndex: new(max(d.users-1, 0))})
	}
	d.m.Touch(i.at)
	switch {
	case typ == skilletMessageItem && role == session.RoleAssistant:
		for _, data := range skilletSpoken(o.Get("content")) {
			d.m.Part(data, i.at)
		}
	case typ == skilletReasoningItem:
		d.m.Part(rows.TextPart("reasoning", skilletReasoningText(o)), i.at)
	case typ == skilletCallItem:
		if id == "" || call != nil {
			d.problem(i, "call with the callId %q, which names no call or another one: its result cannot be matched", id)
			id = spans.DeriveID("call_", i.at, d.s.Row.ID, strconv.Itoa(d.count))
		}
		d.calls[id] = d.m.Call(id, o.Text("name"), skilletParseArguments(o.Text("arguments")), i.at)
	case typ == "compaction":
		empty := json.RawMessage(`{"summary":"","tail_start_id":null,"auto":true,"summary_tokens":0}`)
		d.m.Part(rows.DataPart(session.TypeCompaction, empty), i.at)
	default:
		if typ == skilletResultItem {
			d.problem(i, "result of call %q, which is not above it: kept as data-item", id)
		}
		d.m.Part(rows.DataPart("data-item", o), i.at)
	}
}

// skilletSpoken returns the parts of what an assistant's message says.
func skilletSpoken(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for _, v := range rows.Elements(content) {
		if c := rows.Read(string(v)); c.Text("type") == "output_text" {
			parts = append(parts, rows.TextPart("text", c.Text("text")))
		} else {
			parts = append(parts, rows.DataPart(skilletContentPart, v))
		}
	}
	return parts
}

// skilletReasoningText returns what a reasoning item says: its content, or else its raw content.
func skilletReasoningText(o rows.Object) (text string) {
	for _, key := range []string{"content", "rawContent"} {
		var texts []string
		for c := range rows.Objects(o.Get(key)) {
			texts = append(texts, c.Text("text"))
		}
		text = cmp.Or(text, strings.Join(texts, "\n\n"))
	}
	return text
}

// skilletItemOutput is the output of a call: a text as it is, anything else as JSON.
func skilletItemOutput(output json.RawMessage) json.RawMessage {
	if o, err := rows.Parse(output); err == nil && len(o) == 2 && o.Text("type") == "text" && o[1].Key == "text" {
		return o.Get("text")
	}
	return rows.OrNull(output)
}

// skilletItemsOf returns the session as rows of the store: what the model would be sent.
func skilletItemsOf(t *session.Transcript) (items []skilletItem) {
	t = t.Sorted()
	last := int64(math.MinInt64)
	add := func(at int64, o rows.Object) {
		last = max(last, at) // the rows are read in order of time
		items = append(items, skilletItem{row: int64(len(items) + 1), at: last, text: string(o.JSON())})
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.HiddenAt != nil {
			continue
		}
		parts := skilletPartsOf(m)
		content := skilletInput(parts)
		switch m.Message.Role {
		case session.RoleAssistant:
			for k, data := range parts {
				skilletPartItems(&m.Parts[k], data, add)
			}
			continue
		case session.RoleSystem: // an item that holds no more than a text
			var texts []string
			for _, data := range parts {
				if data.Text("type") == "text" {
					texts = append(texts, data.Text("text"))
				}
			}
			content = rows.Raw(strings.Join(texts, "\n\n"))
		}
		add(m.Message.CreatedAt, rows.Of("role", m.Message.Role, "content", content))
	}
	return items
}

// skilletPartItems adds the items of a part of the assistant's.
func skilletPartItems(p *session.Part, data rows.Object, add func(int64, rows.Object)) {
	message := func(content rows.Object) {
		add(p.CreatedAt, rows.Of("type", skilletMessageItem, "role", session.RoleAssistant, "status", "completed",
			"content", []rows.Object{content}))
	}
	inner := data.Object("data")
	switch {
	case p.Type == "text":
		message(rows.Of("type", "output_text", "text", data.Text("text")))
	case p.Type == skilletContentPart && inner != nil:
		message(inner)
	case p.Type == "reasoning":
		text := rows.Of("type", "input_text", "text", data.Text("text"))
		add(p.CreatedAt, rows.Of("type", skilletReasoningItem, "content", []rows.Object{text}))
	case p.Type == "data-item" && inner.Text("type") != "":
		add(p.CreatedAt, inner)
	case session.IsToolType(p.Type):
		id, name := data.Text("toolCallId"), rows.ToolName(data)
		add(p.CreatedAt, rows.Of("type", skilletCallItem, "callId", id, "name", name,
			"arguments", skilletArgumentsOf(data), "status", "completed"))
		if result, done := skilletResultText(data); done {
			output := rows.Of("type", "text", "text", result).JSON()
			if list := rows.Elements(data.Get("output")); len(list) > 0 && // of content
				!slices.ContainsFunc(list, func(c json.RawMessage) bool {
					return !strings.HasPrefix(rows.Read(string(c)).Text("type"), "input_")
				}) {
				output = data.Get("output")
			}
			add(p.UpdatedAt, rows.Of("type", skilletResultItem, "callId", id, "name", name, "status", "completed",
				"output", output))
		}
	}
}

// skilletGuide knows from the store what the log leaves out.
type skilletGuide struct {
	items []skilletKnown // and one without a type that is the end
	at    int            // those before it are used
}

type skilletKnown struct {
	rows.Object
	typ string
}

func (k skilletKnown) isUser() bool {
	return k.typ == skilletMessageItem && k.Text("role") == session.RoleUser
}

func skilletNewGuide(items []skilletItem) (g skilletGuide) {
	for _, i := range items {
		if o, typ, err := skilletParseItem(i); err == nil {
			g.items = append(g.items, skilletKnown{o, typ})
		}
	}
	g.items = append(g.items, skilletKnown{})
	return g
}

// take moves on to what follows the next item that is wanted, if it comes before an end, and returns the item and the
// reasoning before it.
func (g *skilletGuide) take(wanted, end func(skilletKnown) bool) (found *skilletKnown, thoughts []string) {
	for i := g.at; i < len(g.items) && !end(g.items[i]); i++ {
		k := &g.items[i]
		if wanted(*k) {
			g.at = i + 1
			return k, thoughts
		}
		if text := skilletReasoningText(k.Object); k.typ == skilletReasoningItem && text != "" {
			thoughts = append(thoughts, text)
		}
	}
	return nil, nil
}

// user moves on to what follows a user message, and reports whether the store still has it.
func (g *skilletGuide) user(parts []rows.Object) bool {
	want := string(skilletInput(parts))
	found, _ := g.take(func(k skilletKnown) bool {
		return k.isUser() && string(skilletInput(skilletContentParts(k.Get("content")))) == want
	}, func(skilletKnown) bool { return false })
	return found != nil
}

// call returns the id of a call, and the reasoning before it.
func (g *skilletGuide) call(name, arguments string) (id string, thoughts []string) {
	k, thoughts := g.take(func(k skilletKnown) bool {
		return k.typ == skilletCallItem && k.Text("name") == name && k.Text("arguments") == arguments
	}, skilletKnown.isUser)
	if k != nil {
		id = k.Text("callId")
	}
	return id, thoughts
}

// text returns the reasoning before the next text.
func (g *skilletGuide) text() []string {
	_, thoughts := g.take(func(k skilletKnown) bool { return k.typ == skilletMessageItem },
		func(k skilletKnown) bool { return k.typ == skilletCallItem || k.isUser() })
	return thoughts
}

// rest returns the reasoning with which a turn ends: what the log knows nothing of is not between.
func (g *skilletGuide) rest() []string {
	found, thoughts := g.take(func(k skilletKnown) bool { return k.typ == skilletMessageItem || k.Object == nil },
		func(k skilletKnown) bool { return k.typ == skilletCallItem })
	if found != nil {
		g.at-- // it is of the next turn
	}
	return thoughts
}
