package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/spans"
)

// skilletDecode reads a replay log, which does not report whose it is. Lines that cannot be read are left out and
// reported, as are steps that are in no turn, which skillet drops too.
var skilletDecode = rows.Whole("log", func(text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	d := skilletLogDecoder{report: report}
	s, err := d.decode(text)
	if err != nil {
		return nil, err
	}
	return []*codec.Session{s}, nil
})

// Kinds of entries and types of steps.
const (
	skilletUserMessage = "user_message"
	skilletStepEntry   = "step"
	skilletFinalResult = "final_result"

	skilletAgentStart = "agent_start"
	skilletAgentEnd   = "agent_end"
	skilletToolStart  = "agent_tool_start"
	skilletToolEnd    = "agent_tool_end"
	skilletHandoff    = "handoff"
	skilletTextStep   = "text"
)

// Parts that stand for steps.
const (
	skilletAgentPart   = "data-agent"
	skilletHandoffPart = "data-handoff"
)

type skilletLogDecoder struct {
	key    skilletNames
	file   string
	report func(codec.Problem)
	store  skilletGuide

	s     *rows.Session
	turn  *skilletTurn
	turns int64 // user messages so far
	at    int64 // of the entry before
	agent bool  // the session's agent is known
}

// skilletTurn is an assistant message being built.
type skilletTurn struct {
	m       *rows.Message
	index   int64
	pending []*rows.Part // calls that have not come back
	calls   int
	text    *rows.Part      // that a text step continues
	words   strings.Builder // its text so far
	agent   string
	model   *session.Model
	done    bool
}

func (d *skilletLogDecoder) problem(line int, format string, args ...any) {
	d.report(codec.Problem{File: d.file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

func (d *skilletLogDecoder) decode(text []byte) (*codec.Session, error) {
	d.s = rows.New(d.key.sessionID(), skilletAgentName)
	entries := 0
	for l := range rows.Lines(text, func(p codec.Problem) { d.problem(p.Line, "%s", p.Reason) }) {
		if l.Err != nil {
			d.problem(l.N, "is not an entry: left out: %v", l.Err)
			continue
		}
		if d.entry(l.Object, l.N) {
			entries++
		}
	}
	if entries == 0 {
		return nil, fmt.Errorf("no entry in it: want lines of kind %s, %s and %s",
			skilletUserMessage, skilletStepEntry, skilletFinalResult)
	}
	d.close()
	skilletFinishSession(d.s, d.key)
	return d.s.Finish(), nil
}

// skilletFinishSession names the session.
func skilletFinishSession(s *rows.Session, key skilletNames) {
	s.Row.Title = cmp.Or(key.SessionName, s.Row.Title)
	var own rows.Object
	if key.UserID != "" {
		own.Set("user", key.UserID)
		if key.sanitized().UserID != key.UserID {
			s.SetMeta("user_id", key.UserID)
		}
	}
	own.Set("session_name", key.SessionName)
	s.SetMeta(skilletMetaKey, own)
}

// entry takes an entry, and reports whether it is one.
func (d *skilletLogDecoder) entry(e rows.Object, line int) bool {
	kind := e.Text("kind")
	if kind != skilletUserMessage && kind != skilletStepEntry && kind != skilletFinalResult {
		d.problem(line, "has a kind that a log does not know: left out")
		return false
	}
	if at, ok := rows.ParseTime(e.Text("timestamp")); ok {
		d.at = at
	} else {
		d.problem(line, "timestamp is not a time: took that of the entry before it")
	}
	switch {
	case kind == skilletUserMessage:
		d.user(e.Get("userInput"))
		return true
	case d.turns == 0:
		d.problem(line, "%s is not in a turn: left out, as skillet does", kind)
		return true
	case d.turn != nil && d.turn.done:
		d.problem(line, "%s comes after the final result of its turn: left out, as skillet does", kind)
		return true
	}
	d.s.See(d.at)
	if d.turn == nil {
		d.turn = &skilletTurn{m: d.s.Message(session.RoleAssistant, d.at), index: d.turns - 1}
	}
	if kind == skilletStepEntry {
		d.step(e.Get("stepResult"), e.Object("stepResult"), line)
	} else {
		d.final(e)
	}
	d.turn.m.Touch(d.at)
	return true
}

func (d *skilletLogDecoder) user(userInput json.RawMessage) {
	d.close()
	d.s.See(d.at)
	d.turns++
	m := d.s.Message(session.RoleUser, d.at)
	var messages [][]rows.Object
	if len(userInput) > 0 && userInput[0] == '"' {
		messages = append(messages, skilletContentParts(userInput))
	}
	for _, v := range rows.Elements(userInput) {
		messages = append(messages, skilletContentParts(rows.Read(string(v)).Get("content")))
	}
	parts := slices.Concat(messages...)
	for _, p := range parts {
		m.Part(p, m.Row.CreatedAt)
	}
	if !d.store.user(parts) {
		// Messages that came at once are one entry, and an item each.
		for _, message := range messages {
			d.store.user(message)
		}
	}
}

func (d *skilletLogDecoder) step(data json.RawMessage, step rows.Object, line int) {
	t := d.turn
	typ := step.Text("type")
	if typ != skilletTextStep {
		t.flush()
	}
	switch typ {
	case skilletTextStep:
		if t.text == nil {
			d.reasoning(d.store.text())
			t.text = t.m.Part(rows.TextPart("text", ""), d.at)
		}
		t.words.WriteString(step.Text("text"))
		t.text.Touch(d.at)
	case skilletToolStart:
		d.toolStart(step)
	case skilletToolEnd:
		d.toolEnd(step, line)
	case skilletAgentStart, skilletAgentEnd, skilletHandoff:
		partType := skilletAgentPart
		if typ == skilletHandoff {
			partType = skilletHandoffPart
		}
		if name := step.Text("agentName"); typ == skilletAgentStart && t.agent == "" {
			t.agent = name
			if !d.agent && name != "" {
				d.s.Row.Agent, d.agent = name, true
			}
		}
		t.m.Part(rows.DataPart(partType, step), d.at)
	default:
		d.problem(line, "step of type %q, which skillet does not know and cannot replay: kept as data-step", typ)
		t.m.Part(rows.DataPart("data-step", rows.OrNull(data)), d.at)
	}
}

// flush ends the text that steps have made so far.
func (t *skilletTurn) flush() {
	if t.text != nil {
		t.text.Set(rows.TextPart("text", t.words.String()))
		t.text = nil
		t.words.Reset()
	}
}

func (d *skilletLogDecoder) reasoning(texts []string) {
	for _, text := range texts {
		d.turn.m.Part(rows.TextPart("reasoning", text), d.at)
	}
}

func (d *skilletLogDecoder) toolStart(step rows.Object) {
	t := d.turn
	name, arguments := step.Text("toolName"), step.Text("toolArgumentsStr")
	id, thoughts := d.store.call(name, arguments)
	d.reasoning(thoughts)
	t.pending = append(t.pending, d.call(id, step, skilletParseArguments(arguments)))
}

// call adds the part of a call of a step. A call without an id gets one.
func (d *skilletLogDecoder) call(id string, step rows.Object, input json.RawMessage) *rows.Part {
	t := d.turn
	if id == "" {
		id = spans.DeriveID("call_", d.at, d.s.Row.ID, strconv.FormatInt(t.index, 10), strconv.Itoa(t.calls))
	}
	t.calls++
	data := rows.ToolPart(step.Text("toolName"), id, session.StateInputAvailable)
	data.Set("input", input)
	data.Set("callProviderMetadata", rows.Of(skilletMetaKey, rows.Of("agentName", step.Text("agentName"))))
	return t.m.Part(data, d.at)
}

// skilletParseArguments reads the arguments of a call, which are JSON, or a text when they are not.
func skilletParseArguments(arguments string) json.RawMessage {
	return rows.Unquoted(rows.Raw(arguments))
}

func (d *skilletLogDecoder) toolEnd(step rows.Object, line int) {
	t := d.turn
	name, agent := step.Text("toolName"), step.Text("agentName")
	i := slices.IndexFunc(t.pending, func(p *rows.Part) bool { return skilletCallOf(p.Data(), "") == skilletCall{agent, name} })
	var p *rows.Part
	if i >= 0 {
		p = t.pending[i]
		t.pending = slices.Delete(t.pending, i, i+1)
	} else {
		d.problem(line, "tool %q ended and was not started: its input is unknown", name)
		p = d.call("", step, rows.OrNull(nil))
	}
	p.Set(skilletWithResult(p.Data(), rows.OrNull(step.Get("result"))))
	p.Touch(d.at)
}

// The texts in which the Agents SDK, which skillet is built on, gives the model an error and
// a denial as the result of a call.
const (
	skilletFailedText = "An error occurred while running the tool. Please try again. Error: "
	skilletDeniedText = "Tool execution was not approved."
)

// skilletWithResult gives a call its result, before what is not the call's.
func skilletWithResult(data rows.Object, output json.RawMessage) rows.Object {
	own := data.Get("callProviderMetadata")
	text, _ := rows.Text(output)
	if text == skilletNoResult {
		return data
	}
	data = data.Without("callProviderMetadata")
	if details, failed := strings.CutPrefix(text, skilletFailedText); failed {
		data.Set("state", session.StateOutputError)
		data.Set("errorText", details)
	} else if reason, denied := strings.CutPrefix(text, skilletDeniedText); denied {
		data.Set("state", session.StateOutputError)
		data.Set("errorText", cmp.Or(strings.TrimPrefix(reason, " "), text))
		data.SetToolTrace("denied", true)
	} else {
		data.Set("state", session.StateOutputAvailable)
		data.Set("output", output)
	}
	data.Add(rows.NonEmpty("callProviderMetadata", own))
	return data
}

// final ends the turn with a result, which is a text of its own unless it repeats what was said.
func (d *skilletLogDecoder) final(e rows.Object) {
	t := d.turn
	t.flush()
	t.done = true
	text := e.Object("finalResult").Text("text")
	if last, all := skilletSaid(t.m); text != last && text != all && text != skilletNoResponse {
		d.reasoning(d.store.text())
		t.m.Part(rows.TextPart("text", text), d.at)
	}
	if spec := e.Text("model"); spec != "" {
		t.model = new(skilletParseModel(spec))
		d.s.Row.ModelJSON = new(string(rows.Raw(t.model)))
	}
}

const skilletNoResponse = "[no response]"

// skilletParseModel reads a provider/model spec.
func skilletParseModel(spec string) session.Model {
	if provider, model, ok := strings.Cut(spec, "/"); ok {
		return session.Model{ProviderID: provider, ModelID: model}
	}
	return session.Model{ModelID: spec}
}

// skilletSaid returns the last text of a message, and all of them together: a final result may repeat either.
func skilletSaid(m *rows.Message) (last, all string) {
	var b strings.Builder
	for _, p := range m.Parts() {
		if p.Row.Type == "text" {
			last = p.Data().Text("text")
			b.WriteString(last)
		}
	}
	return strings.TrimSpace(last), strings.TrimSpace(b.String())
}

// close ends the turn.
func (d *skilletLogDecoder) close() {
	t := d.turn
	if t == nil {
		return
	}
	t.flush()
	d.turn = nil
	for _, text := range d.store.rest() {
		t.m.Part(rows.TextPart("reasoning", text), t.m.Row.UpdatedAt)
	}
	t.m.AddMeta(rows.NonEmpty("model", t.model))
	if t.agent != "" && t.agent != d.s.Row.Agent {
		t.m.SetMeta("agent", t.agent)
	}
	trace := session.MessageTrace{TurnIndex: &t.index, Incomplete: !t.done}
	if t.done {
		trace.EndReason = semconv.EndFinish
	}
	t.m.SetMeta("agenttrace", trace)
}
