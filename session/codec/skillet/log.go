package skillet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// Decode reads a replay log. It does not say whose it is: key does, and may be
// empty. The session passes [session.Check], and the caller owns it. Lines that
// cannot be read are left out and reported, as are steps that stand in no turn,
// which skillet drops too; report may be nil. The error is of reading, or says that
// nothing in the stream is of a log.
func Decode(r io.Reader, key Key, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		text, err := io.ReadAll(r)
		if err != nil {
			yield(nil, fmt.Errorf("read log: %w", err))
			return
		}
		d := logDecoder{key: key, report: report}
		s, err := d.decode(text)
		yield(s, err)
	}
}

// Kinds of entries and types of steps.
const (
	userMessage = "user_message"
	stepEntry   = "step"
	finalResult = "final_result"

	agentStart = "agent_start"
	agentEnd   = "agent_end"
	toolStart  = "agent_tool_start"
	toolEnd    = "agent_tool_end"
	handoff    = "handoff"
	textStep   = "text"
)

type logDecoder struct {
	key    Key
	file   string
	report func(codec.Problem)
	store  *guide // nil without a store

	s     *rows.Session
	asked bool
	turn  *turn
	turns int64
	at    int64 // of the entry before
	agent bool  // the session's agent is known
}

// turn is an assistant message being built.
type turn struct {
	m       *rows.Message
	entries []rows.Object // what remains of the entries beside the parts
	pending []*rows.Part  // calls that have not come back
	calls   int
	text    *rows.Part      // that a text step continues
	words   strings.Builder // its text so far
	agent   string
	model   *session.Model
	done    bool
	index   int64
}

func (d *logDecoder) problem(line int, reason string) {
	if d.report != nil {
		d.report(codec.Problem{File: d.file, Line: line, Reason: reason})
	}
}

func (d *logDecoder) decode(text []byte) (*codec.Session, error) {
	d.s = rows.New(d.key.sessionID(), agentName)
	entries := 0
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	for n := 1; len(text) > 0; n++ {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
			d.problem(n, "bytes that are not UTF-8 were replaced by U+FFFD")
		}
		e, err := rows.Parse(line)
		if err != nil {
			d.problem(n, "is not an entry: left out: "+err.Error())
			continue
		}
		if d.entry(e, n) {
			entries++
		}
	}
	if entries == 0 {
		return nil, fmt.Errorf("read log: no entry in it: want lines of kind %s, %s and %s", userMessage, stepEntry, finalResult)
	}
	d.close()
	finishSession(d.s, d.key)
	return d.s.Finish(), nil
}

// finishSession names the session.
func finishSession(s *rows.Session, key Key) {
	if key.SessionName != "" {
		s.Row.Title = key.SessionName
	}
	var own rows.Object
	if key.UserID != "" {
		own.Set("user", key.UserID)
		if key.sanitized().UserID != key.UserID {
			s.SetMeta("user_id", key.UserID)
		}
	}
	own.Set("session_name", key.SessionName)
	s.SetMeta(metaKey, own)
}

// entry takes an entry, and reports whether it is one.
func (d *logDecoder) entry(e rows.Object, line int) bool {
	kind := e.Text("kind")
	if kind != userMessage && kind != stepEntry && kind != finalResult {
		d.problem(line, "has a kind that a log does not know: left out")
		return false
	}
	if at, ok := parseTime(e.Text("timestamp")); ok {
		d.at = at
	} else {
		d.problem(line, "timestamp is not a time: took that of the entry before it")
	}
	if kind == userMessage {
		d.user(e)
		return true
	}
	if !d.asked {
		d.problem(line, kind+" stands in no turn: left out, as skillet does")
		return true
	}
	if d.turn != nil && d.turn.done {
		d.problem(line, kind+" stands after the final result of its turn: left out, as skillet does")
		return true
	}
	d.s.See(d.at)
	if d.turn == nil {
		d.turn = &turn{m: d.s.Message(session.RoleAssistant, d.at), index: d.turns - 1}
	}
	if kind == stepEntry {
		d.step(e, line)
	} else {
		d.final(e)
	}
	d.turn.m.Touch(d.at)
	return true
}

func (d *logDecoder) user(e rows.Object) {
	d.close()
	d.s.See(d.at)
	m := d.s.Message(session.RoleUser, d.at)
	var parts []rows.Object
	var messages [][]rows.Object
	switch userInput := e.Get("userInput"); {
	case len(userInput) > 0 && userInput[0] == '"':
		parts = contentParts(userInput)
	default:
		for _, v := range rows.Elements(userInput) {
			message := contentParts(object(string(v)).Get("content"))
			messages = append(messages, message)
			parts = append(parts, message...)
		}
	}
	for _, p := range parts {
		m.Part(p, m.Row.CreatedAt)
	}
	keep(m, userEntry(parts, m.Row.CreatedAt), e)
	d.asked = true
	d.turns++
	if d.store != nil && !d.store.user(parts) {
		// Messages that came at once are one entry, and an item each.
		for _, message := range messages {
			d.store.user(message)
		}
	}
}

// keep notes the entry of a user message where it would not be written so.
func keep(m *rows.Message, again, e rows.Object) {
	var own rows.Object
	own.Set("log", true)
	if string(again.JSON()) != string(e.JSON()) {
		own.Set("entry", e)
	}
	m.SetMeta(metaKey, own)
}

// userEntry is the entry of a user message.
func userEntry(parts []rows.Object, at int64) rows.Object {
	in := input(parts)
	if in[0] != '"' {
		var message rows.Object
		message.Set("type", "message")
		message.Set("role", session.RoleUser)
		message.Set("content", in)
		in = raw([]rows.Object{message})
	}
	var e rows.Object
	e.Set("kind", userMessage)
	e.Set("userInput", in)
	e.Set("timestamp", formatTime(at))
	return e
}

func (d *logDecoder) step(e rows.Object, line int) {
	t := d.turn
	step := e.Object("stepResult")
	var note rows.Object
	note.Set("at", d.at)
	typ := step.Text("type")
	if typ != textStep {
		t.flush()
	}
	switch typ {
	case textStep:
		text := step.Text("text")
		if t.text == nil {
			d.reasoning(t, d.store.text(), d.at)
			t.text = t.m.Part(textPart("text", ""), d.at)
		}
		note.Set("part", t.text.Row.Index)
		note.Set("from", t.words.Len())
		note.Set("text", len(text))
		t.words.WriteString(text)
		t.text.Touch(d.at)
	case toolStart:
		d.toolStart(step, &note)
	case toolEnd:
		d.toolEnd(step, &note, line)
	case agentStart, agentEnd, handoff:
		partType := "data-agent"
		if typ == handoff {
			partType = "data-handoff"
		}
		if name := step.Text("agentName"); typ == agentStart && t.agent == "" {
			t.agent = name
			if !d.agent && name != "" {
				d.s.Row.Agent, d.agent = name, true
			}
		}
		note.Set("part", t.m.Part(dataPart(partType, step.JSON()), d.at).Row.Index)
	default:
		d.problem(line, fmt.Sprintf("step of type %q, which skillet does not know and cannot replay: kept as data-step", typ))
		data := e.Get("stepResult")
		if data == nil {
			data = json.RawMessage("null")
		}
		note.Set("part", t.m.Part(dataPart("data-step", data), d.at).Row.Index)
	}
	d.note(e, typ, note)
}

// note notes of a step what its part does not say.
func (d *logDecoder) note(e rows.Object, typ string, note rows.Object) {
	t := d.turn
	noted := append(rows.Object{{Key: "type", Value: raw(typ)}}, note...)
	part := func(index int64) rows.Object { return partAt(t.m, index) }
	check := noted
	if typ == textStep {
		// The part has its text when the last step has said its own; this one speaks
		// for itself.
		said := textPart("text", e.Object("stepResult").Text("text"))
		part = func(int64) rows.Object { return said }
		check = noted.Without("from")
		check.Set("from", 0)
	}
	again, ok := stepOf(check, part)
	if !ok || string(again.JSON()) != string(e.JSON()) {
		noted.Set("entry", e)
	}
	t.entries = append(t.entries, noted)
}

// flush ends the text that steps have made so far.
func (t *turn) flush() {
	if t.text != nil {
		t.text.Set(textPart("text", t.words.String()))
		t.text = nil
		t.words.Reset()
	}
}

func partAt(m *rows.Message, index int64) rows.Object {
	if parts := m.Parts(); index >= 0 && index < int64(len(parts)) {
		return parts[index].Data()
	}
	return nil
}

func number(v json.RawMessage) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (d *logDecoder) reasoning(t *turn, texts []string, at int64) {
	for _, text := range texts {
		t.m.Part(textPart("reasoning", text), at)
	}
}

func (d *logDecoder) toolStart(step rows.Object, note *rows.Object) {
	t := d.turn
	name, arguments := step.Text("toolName"), step.Text("toolArgumentsStr")
	id, thoughts := d.store.call(name, arguments)
	d.reasoning(t, thoughts, d.at)
	if id == "" {
		id = spans.DeriveID("call_", d.at, d.s.Row.ID, strconv.FormatInt(t.index, 10), strconv.Itoa(t.calls))
	}
	t.calls++
	data := toolPart(name, id, session.StateInputAvailable)
	data.Set("input", parseArguments(arguments))
	own := rows.Object{{Key: "agentName", Value: raw(step.Text("agentName"))}}
	if string(data.Get("input")) != arguments {
		own.Set("arguments", arguments)
	}
	data.Set("callProviderMetadata", rows.Object{{Key: metaKey, Value: own.JSON()}})
	p := t.m.Part(data, d.at)
	t.pending = append(t.pending, p)
	note.Set("part", p.Row.Index)
}

// parseArguments reads the arguments of a call, which are JSON, or a text when
// they are not.
func parseArguments(arguments string) json.RawMessage {
	if v, err := rows.Value([]byte(arguments)); err == nil {
		return v
	}
	return raw(arguments)
}

func (d *logDecoder) toolEnd(step rows.Object, note *rows.Object, line int) {
	t := d.turn
	name, agent := step.Text("toolName"), step.Text("agentName")
	var p *rows.Part
	for i, pending := range t.pending {
		data := pending.Data()
		if toolName(data) == name && data.Object("callProviderMetadata").Object(metaKey).Text("agentName") == agent {
			p = pending
			t.pending = append(t.pending[:i:i], t.pending[i+1:]...)
			break
		}
	}
	if p == nil {
		d.problem(line, fmt.Sprintf("tool %q ended and was not started: its input is unknown", name))
		data := toolPart(name, spans.DeriveID("call_", d.at, d.s.Row.ID, strconv.FormatInt(t.index, 10), strconv.Itoa(t.calls)), session.StateInputAvailable)
		t.calls++
		data.Set("input", json.RawMessage("null"))
		data.Set("callProviderMetadata", rows.Object{{Key: metaKey, Value: rows.Object{{Key: "agentName", Value: raw(agent)}}.JSON()}})
		p = t.m.Part(data, d.at)
	}
	output := step.Get("result")
	if output == nil {
		output = json.RawMessage("null")
	}
	p.Set(withResult(p.Data(), output))
	p.Touch(d.at)
	note.Set("part", p.Row.Index)
}

// The texts in which the Agents SDK, which skillet is built on, gives the model an error and
// a denial as the result of a call.
const (
	failedText = "An error occurred while running the tool. Please try again. Error: "
	deniedText = "Tool execution was not approved."
)

// withResult gives a call its result, before what is not the call's.
func withResult(data rows.Object, output json.RawMessage) rows.Object {
	own := data.Get("callProviderMetadata")
	data = data.Without("callProviderMetadata")
	text, _ := rows.Text(output)
	if text == noResult {
		return append(data, rows.Object{{Key: "callProviderMetadata", Value: own}}...)
	}
	if details, failed := strings.CutPrefix(text, failedText); failed {
		data.Set("state", session.StateOutputError)
		data.Set("errorText", details)
	} else if reason, denied := strings.CutPrefix(text, deniedText); denied {
		data.Set("state", session.StateOutputError)
		data.Set("errorText", cmp.Or(strings.TrimPrefix(reason, " "), text))
		data.Set("toolMetadata", json.RawMessage(`{"agenttrace":{"denied":true}}`))
	} else {
		data.Set("state", session.StateOutputAvailable)
		data.Set("output", output)
	}
	if own != nil {
		data.Set("callProviderMetadata", own)
	}
	return data
}

func (d *logDecoder) final(e rows.Object) {
	t := d.turn
	t.flush()
	t.done = true
	var note rows.Object
	note.Set("at", d.at)
	text := e.Object("finalResult").Text("text")
	if text != saidLast(t.m) && text != saidAll(t.m) && text != noResponse {
		d.reasoning(t, d.store.text(), d.at)
		note.Set("part", t.m.Part(textPart("text", text), d.at).Row.Index)
	} else if text != saidLast(t.m) {
		note.Set("text", text)
	}
	if v := e.Object("finalResult").Get("jobIds"); v != nil {
		note.Set("jobIds", v)
	}
	if spec := e.Text("model"); spec != "" {
		note.Set("model", spec)
		t.model = new(parseModel(spec))
		d.s.Row.ModelJSON = new(string(raw(t.model)))
	}
	d.note(e, finalResult, note)
}

const noResponse = "[no response]"

// parseModel reads a provider/model spec.
func parseModel(spec string) session.Model {
	if provider, model, ok := strings.Cut(spec, "/"); ok {
		return session.Model{ProviderID: provider, ModelID: model}
	}
	return session.Model{ModelID: spec}
}

func modelSpec(m session.Model) string {
	if m.ProviderID == "" {
		return m.ModelID
	}
	return m.ProviderID + "/" + m.ModelID
}

// saidLast and saidAll are what a final result may repeat.
func saidLast(m *rows.Message) string {
	text := ""
	for _, p := range m.Parts() {
		if p.Row.Type == "text" {
			text = p.Data().Text("text")
		}
	}
	return strings.TrimSpace(text)
}

func saidAll(m *rows.Message) string {
	var b strings.Builder
	for _, p := range m.Parts() {
		if p.Row.Type == "text" {
			b.WriteString(p.Data().Text("text"))
		}
	}
	return strings.TrimSpace(b.String())
}

// close ends the turn.
func (d *logDecoder) close() {
	t := d.turn
	d.turn = nil
	if t == nil {
		return
	}
	t.flush()
	d.reasoning(t, d.store.rest(), t.m.Row.UpdatedAt)
	if t.model != nil {
		t.m.SetMeta("model", t.model)
	}
	if t.agent != "" && t.agent != d.s.Row.Agent {
		t.m.SetMeta("agent", t.agent)
	}
	trace := session.MessageTrace{TurnIndex: &t.index, Incomplete: !t.done}
	if t.done {
		trace.EndReason = semconv.EndFinish
	}
	t.m.SetMeta("agenttrace", trace)
	t.m.SetMeta(metaKey, rows.Object{{Key: "log", Value: raw(t.entries)}})
}

// stepOf makes the entry again that a note was taken of.
func stepOf(noted rows.Object, part func(int64) rows.Object) (rows.Object, bool) {
	if e := noted.Object("entry"); e != nil {
		return e, true
	}
	typ := noted.Text("type")
	data := rows.Object{}
	if at := noted.Get("part"); at != nil {
		if data = part(number(at)); data == nil {
			return nil, false
		}
	}
	var e rows.Object
	timestamp := raw(formatTime(number(noted.Get("at"))))
	if typ == finalResult {
		var result rows.Object
		switch {
		case noted.Has("text"):
			result.Set("text", noted.Text("text"))
		case noted.Get("part") != nil:
			result.Set("text", data.Text("text"))
		default:
			result.Set("text", lastText(part))
		}
		if v := noted.Get("jobIds"); v != nil {
			result.Set("jobIds", v)
		}
		e.Set("kind", finalResult)
		e.Set("finalResult", result)
		e.Set("timestamp", timestamp)
		if v := noted.Get("model"); v != nil {
			e.Set("model", v)
		}
		return e, true
	}
	step, ok := stepResult(typ, data, noted)
	e.Set("kind", stepEntry)
	e.Set("stepResult", step)
	e.Set("timestamp", timestamp)
	return e, ok
}

func lastText(part func(int64) rows.Object) string {
	text := ""
	for i := int64(0); ; i++ {
		data := part(i)
		if data == nil {
			return strings.TrimSpace(text)
		}
		if data.Text("type") == "text" {
			text = data.Text("text")
		}
	}
}

func stepResult(typ string, data, noted rows.Object) (step rows.Object, ok bool) {
	own := data.Object("callProviderMetadata").Object(metaKey)
	switch typ {
	case textStep:
		text := data.Text("text")
		from, n := number(noted.Get("from")), number(noted.Get("text"))
		if size := int64(len(text)); from < 0 || n < 0 || from > size || n > size-from {
			return nil, false
		}
		step.Set("type", typ)
		step.Set("text", text[from:from+n])
	case toolStart:
		arguments := own.Get("arguments")
		if arguments == nil {
			arguments = raw(string(data.Get("input")))
		}
		step.Set("type", typ)
		step.Set("agentName", own.Text("agentName"))
		step.Set("toolName", toolName(data))
		step.Set("toolArgumentsStr", arguments)
	case toolEnd:
		output := data.Get("output")
		if output == nil {
			return nil, false
		}
		step.Set("type", typ)
		step.Set("agentName", own.Text("agentName"))
		step.Set("toolName", toolName(data))
		step.Set("result", output)
	default:
		step = data.Object("data")
	}
	return step, step != nil
}
