package skillet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Encode writes the session to w as a replay log. It does not change s. Rows that
// make no tree are refused, see [session.Transcript.CheckTree].
func Encode(w io.Writer, s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	if _, err := w.Write(logText(logOf(s))); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// logOf is the log that a session is: the one that it was read from, when it is the same
// still.
func logOf(s *codec.Session) []rows.Object {
	if entries, ok := replayLog(s); ok {
		return entries
	}
	return draftLog(s.Transcript)
}

func logText(entries []rows.Object) (text []byte) {
	for _, e := range entries {
		text = append(append(text, e.JSON()...), '\n')
	}
	return text
}

// replayLog returns the log that the session was read from, when it is the same
// still. What only the store told is no change.
func replayLog(s *codec.Session) ([]rows.Object, bool) {
	t := s.Sorted()
	var entries []rows.Object
	for i := range t.Messages {
		m := &t.Messages[i]
		own := object(m.Message.MetadataJSON).Object(metaKey)
		log := own.Get("log")
		if log == nil {
			return nil, false
		}
		if m.Message.Role == session.RoleUser {
			e := own.Object("entry")
			if e == nil {
				e = userEntry(partsOf(m), m.Message.CreatedAt)
			}
			entries = append(entries, e)
			continue
		}
		part := partIn(m)
		for _, v := range rows.Elements(log) {
			e, ok := stepOf(object(string(v)), part)
			if !ok {
				return nil, false
			}
			entries = append(entries, e)
		}
	}
	key := logKey(&t.Session)
	// What only the store told is in the rows by now.
	d := logDecoder{key: key, store: newGuide(draftItems(t))}
	again, err := d.decode(logText(entries))
	return entries, err == nil && equal(again.Transcript, t)
}

// logKey returns the names that a session was read under.
func logKey(s *session.Session) Key {
	own := object(s.MetadataJSON).Object(metaKey)
	return Key{own.Text("user"), own.Text("session_name")}
}

func equal(a, b *session.Transcript) bool {
	var have, want bytes.Buffer
	return jsonl.Encode(&have, a) == nil && jsonl.Encode(&want, b) == nil && bytes.Equal(have.Bytes(), want.Bytes())
}

// partIn finds the data of a message's parts, and parses each once.
func partIn(m *session.MessageAndParts) func(int64) rows.Object {
	parsed := make(map[int64]rows.Object)
	return func(index int64) rows.Object {
		if data, ok := parsed[index]; ok {
			return data
		}
		for i := range m.Parts {
			if m.Parts[i].Index == index {
				parsed[index] = object(m.Parts[i].DataJSON)
			}
		}
		return parsed[index]
	}
}

// turnRows are the messages of a turn of the log: what users said, and then what
// the assistant did.
type turnRows struct {
	users, assistants []*session.MessageAndParts
}

// turnsOf groups messages into turns. Messages of the system and those that a
// rewind hid are in none.
func turnsOf(t *session.Transcript) (turns []turnRows) {
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.HiddenAt != nil || m.Message.Role == session.RoleSystem || isCompaction(m) {
			continue
		}
		user := m.Message.Role == session.RoleUser
		if n := len(turns); n == 0 || user && len(turns[n-1].assistants) > 0 {
			turns = append(turns, turnRows{})
		}
		last := &turns[len(turns)-1]
		if user {
			last.users = append(last.users, m)
		} else {
			last.assistants = append(last.assistants, m)
		}
	}
	return turns
}

// isCompaction says whether the message is the mark of a compaction, and no turn.
func isCompaction(m *session.MessageAndParts) bool {
	return len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction
}

// draftLog puts a session in the log's words.
func draftLog(t *session.Transcript) (entries []rows.Object) {
	t = (&session.Transcript{Session: t.Session, Messages: t.Messages}).Sorted()
	for _, turn := range turnsOf(t) {
		entries = append(entries, draftUser(turn))
		if len(turn.assistants) == 0 {
			continue
		}
		entries = append(entries, draftAnswer(&t.Session, turn)...)
	}
	return entries
}

// draftAnswer is what the log says of a turn's answer. An answer that failed, was
// interrupted, or did not end has no final result.
func draftAnswer(s *session.Session, turn turnRows) []rows.Object {
	d := logDrafter{open: make(map[call]bool)}
	for _, m := range turn.assistants {
		d.message(s, m)
	}
	last := turn.assistants[len(turn.assistants)-1]
	switch trace := metadataOf(last).Trace; {
	case trace.Incomplete, trace.PendingApproval, trace.EndReason != "" && trace.EndReason != semconv.EndFinish:
		return d.entries
	}
	return append(d.entries, d.final(last))
}

// draftUser is the entry of what users said; of nobody, where the assistant began.
func draftUser(turn turnRows) rows.Object {
	if len(turn.users) == 0 {
		return userEntry([]rows.Object{textPart("text", "")}, turn.assistants[0].Message.CreatedAt)
	}
	if len(turn.users) == 1 {
		return userEntry(partsOf(turn.users[0]), turn.users[0].Message.CreatedAt)
	}
	var messages []rows.Object
	for _, m := range turn.users {
		list, _ := content(partsOf(m))
		var o rows.Object
		o.Set("type", messageItem)
		o.Set("role", session.RoleUser)
		o.Set("content", list)
		messages = append(messages, o)
	}
	var e rows.Object
	e.Set("kind", userMessage)
	e.Set("userInput", messages)
	e.Set("timestamp", formatTime(turn.users[0].Message.CreatedAt))
	return e
}

func metadataOf(m *session.MessageAndParts) (meta session.MessageMetadata) {
	if json.Unmarshal([]byte(m.Message.MetadataJSON), &meta) != nil {
		return session.MessageMetadata{}
	}
	return meta
}

type logDrafter struct {
	entries []rows.Object
	said    string // the last text, of all the steps that a reader joins
	saying  bool   // the last step is of it
	// open are the calls that have not come back. What comes of a call is told by its
	// tool and agent alone, so one is closed before the next of them begins.
	open map[call]bool
}

// call is what the log knows of a tool call.
type call struct{ agent, tool string }

// noResult is the result of a call that has none, where there must be one.
const noResult = "[no result]"

func (d *logDrafter) step(at int64, fields rows.Object) {
	d.saying = false
	var e rows.Object
	e.Set("kind", stepEntry)
	e.Set("stepResult", fields)
	e.Set("timestamp", formatTime(at))
	d.entries = append(d.entries, e)
}

func (d *logDrafter) message(s *session.Session, m *session.MessageAndParts) {
	agent := agentOf(s, m)
	framed := false // by its own steps
	for i := range m.Parts {
		framed = framed || m.Parts[i].Type == "data-agent"
	}
	frame := func(typ string, at int64) {
		if !framed {
			d.step(at, rows.Object{{Key: "type", Value: raw(typ)}, {Key: "agentName", Value: raw(agent)}})
		}
	}
	frame(agentStart, m.Message.CreatedAt)
	for i := range m.Parts {
		p := &m.Parts[i]
		data := object(p.DataJSON)
		switch {
		case p.Type == "text":
			d.say(p.UpdatedAt, data.Text("text"))
		case p.Type == session.TypeWithheld:
			d.say(p.UpdatedAt, codec.WithheldText)
		case session.IsToolType(p.Type):
			d.tool(p, data, agent)
		case isStep(p.Type, data):
			d.step(p.UpdatedAt, data.Object("data"))
		}
	}
	frame(agentEnd, m.Message.UpdatedAt)
}

// agentOf returns the agent that a message is of.
func agentOf(s *session.Session, m *session.MessageAndParts) string {
	if agent := metadataOf(m).Agent; agent != "" {
		return agent
	}
	return s.Agent
}

func (d *logDrafter) say(at int64, text string) {
	if !d.saying {
		d.said = ""
	}
	d.said += text
	d.step(at, rows.Object{{Key: "type", Value: raw(textStep)}, {Key: "text", Value: raw(text)}})
	d.saying = true
}

// isStep says whether a data part is a step that skillet knows. Any other would
// stop its replay.
func isStep(partType string, data rows.Object) bool {
	if partType != "data-agent" && partType != "data-handoff" {
		return false
	}
	switch data.Object("data").Text("type") {
	case agentStart, agentEnd, handoff:
		return true
	}
	return false
}

func (d *logDrafter) tool(p *session.Part, data rows.Object, agent string) {
	c := callOf(data, agent)
	arguments := data.Object("callProviderMetadata").Object(metaKey).Get("arguments")
	if arguments == nil {
		arguments = raw(string(data.Get("input")))
	}
	step := func(typ string, at int64, key string, value json.RawMessage) {
		d.step(at, rows.Object{{Key: "type", Value: raw(typ)}, {Key: "agentName", Value: raw(c.agent)}, {Key: "toolName", Value: raw(c.tool)}, {Key: key, Value: value}})
	}
	if d.open[c] {
		step(toolEnd, p.CreatedAt, "result", raw(noResult))
	}
	step(toolStart, p.CreatedAt, "toolArgumentsStr", arguments)
	result, done := resultText(data)
	if done {
		step(toolEnd, p.UpdatedAt, "result", raw(result))
	}
	d.open[c] = !done
}

func callOf(data rows.Object, agent string) call {
	if name := data.Object("callProviderMetadata").Object(metaKey).Text("agentName"); name != "" {
		agent = name
	}
	return call{agent, toolName(data)}
}

// resultText is what came of a call as a text, which is all that skillet keeps.
func resultText(data rows.Object) (text string, done bool) {
	switch data.Text("state") {
	case session.StateOutputAvailable:
		output := rows.Output(data)
		if s, ok := rows.Text(output); ok {
			return s, true
		}
		return string(output), true
	case session.StateOutputError:
		if string(data.Object("toolMetadata").Object("agenttrace").Get("denied")) == "true" {
			return denial(data.Text("errorText")), true
		}
		return failedText + data.Text("errorText"), true
	case session.StateOutputDenied:
		return denial(data.Object("approval").Text("reason")), true
	}
	return "", false
}

// denial is the result of a call that was denied for a reason, if there is one.
func denial(reason string) string {
	if reason == "" || reason == deniedText {
		return deniedText
	}
	return deniedText + " " + reason
}

func (d *logDrafter) final(m *session.MessageAndParts) rows.Object {
	text := strings.TrimSpace(d.said)
	if text == "" {
		text = noResponse
	}
	var e rows.Object
	e.Set("kind", finalResult)
	e.Set("finalResult", rows.Object{{Key: "text", Value: raw(text)}})
	e.Set("timestamp", formatTime(m.Message.UpdatedAt))
	if model := metadataOf(m).Model; model != nil && modelSpec(*model) != "" {
		e.Set("model", modelSpec(*model))
	}
	return e
}

// itemsOf returns the rows of the store that a session is: those that it was read
// from, when it is the same still.
func itemsOf(s *codec.Session) []item {
	if items, ok := replayItems(s); ok {
		return items
	}
	return draftItems(s.Transcript)
}

func replayItems(s *codec.Session) ([]item, bool) {
	t := s.Sorted()
	var items []item
	for i := range t.Messages {
		m := &t.Messages[i]
		notes := object(m.Message.MetadataJSON).Object(metaKey).Get("items")
		if notes == nil {
			return nil, false
		}
		part := partIn(m)
		for _, v := range rows.Elements(notes) {
			note := object(string(v))
			text, verbatim := rows.Text(note.Get("item"))
			if !verbatim {
				o, ok := itemOf(note, part)
				if !ok {
					return nil, false
				}
				text = string(o.JSON())
			}
			items = append(items, item{row: int64(len(items) + 1), at: number(note.Get("at")), text: text})
		}
	}
	again := decodeItems(logKey(&t.Session), items, "", nil)
	return items, equal(again.Transcript, t)
}

// draftItems puts a session in the store's words: what the model would be sent.
func draftItems(t *session.Transcript) (items []item) {
	t = (&session.Transcript{Session: t.Session, Messages: t.Messages}).Sorted()
	add := func(at int64, o rows.Object) {
		items = append(items, item{row: int64(len(items) + 1), at: at, text: string(o.JSON())})
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		at := m.Message.CreatedAt
		if m.Message.HiddenAt != nil {
			continue
		}
		if role := m.Message.Role; role != session.RoleAssistant {
			said := input(partsOf(m))
			if role == session.RoleSystem {
				said = raw(textOf(m))
			}
			add(at, rows.Object{{Key: "role", Value: raw(role)}, {Key: "content", Value: said}})
			continue
		}
		part := partIn(m)
		for k := range m.Parts {
			data := object(m.Parts[k].DataJSON)
			note := rows.Object{{Key: "part", Value: raw(m.Parts[k].Index)}, {Key: "status", Value: raw("completed")}}
			switch typ := m.Parts[k].Type; {
			case typ == "text":
				note.Set("type", messageItem)
			case typ == "reasoning":
				note = note.Without("status")
				note.Set("type", reasoningItem)
			case typ == "data-item" && data.Object("data").Text("type") != "":
				note.Set("data", true)
			case session.IsToolType(typ):
				note.Set("type", callItem)
			default:
				continue
			}
			if o, ok := itemOf(note, part); ok {
				add(at, o)
			}
			if result, done := resultText(data); done && session.IsToolType(m.Parts[k].Type) {
				add(at, rows.Object{{Key: "type", Value: raw(resultItem)}, {Key: "callId", Value: raw(data.Text("toolCallId"))}, {Key: "name", Value: raw(toolName(data))},
					{Key: "status", Value: raw("completed")}, {Key: "output", Value: rows.Object{{Key: "type", Value: raw("text")}, {Key: "text", Value: raw(result)}}.JSON()}})
			}
		}
	}
	return items
}

// textOf is what a message says, for an item that holds no more than a text.
func textOf(m *session.MessageAndParts) string {
	var texts []string
	for _, data := range partsOf(m) {
		if data.Text("type") == "text" {
			texts = append(texts, data.Text("text"))
		}
	}
	return strings.Join(texts, "\n\n")
}
