package agentdbg

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// draft puts a session that is not AgentDbg's in its terms.
func draft(s *codec.Session, o Options) formatted {
	t := s.Sorted()
	d := &drafter{
		s: s, runID: runID(t.Session.ID), loops: newLoopDetector(o),
		counter: counter{name: raw(t.Session.Title), started: t.Session.CreatedAt, ended: t.Session.UpdatedAt},
	}
	d.start()
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Message.Role == session.RoleAssistant {
			d.assistant(m)
		} else {
			d.asked = append(d.asked, m)
		}
	}
	if len(d.asked) > 0 {
		d.unanswered()
	}
	status := runStatus(t)
	if status != statusRunning {
		d.end(status)
	}
	return formatted{meta: d.counter.meta(d.runID, status), events: d.finish()}
}

// runStatus says how a session stands: how its run ended, where that was in no good
// way, and else how its last visible message of the assistant did. AgentDbg knows runs
// that go on, that were left by an exception, an interrupt included, and others: a run
// that was interrupted is an error.
func runStatus(t *session.Transcript) string {
	own := metadata(t.Session.MetadataJSON).Object("agenttrace")
	if outcome := own.Text("outcome"); outcome == semconv.EndError || outcome == semconv.EndAbort {
		return statusError
	}
	for i := len(t.Messages) - 1; i >= 0; i-- {
		m := &t.Messages[i].Message
		if m.Role != session.RoleAssistant || m.HiddenAt != nil {
			continue
		}
		switch trace := messageMetadata(m).Trace; {
		case trace.Incomplete:
			return statusRunning
		case trace.EndReason == semconv.EndError, trace.EndReason == semconv.EndAbort:
			return statusError
		}
		return statusOK
	}
	return statusOK
}

func messageMetadata(m *session.Message) session.MessageMetadata {
	var meta session.MessageMetadata
	if json.Unmarshal([]byte(m.MetadataJSON), &meta) != nil {
		return session.MessageMetadata{} // unreadable, which the rows in meta still say
	}
	return meta
}

// drafted is an event being put together.
type drafted struct {
	typ, id, parent string
	at              int64
	duration        json.RawMessage
	payload         rows.Object
	carrier         carrier
}

type drafter struct {
	s     *codec.Session
	runID string
	loops *loopDetector
	counter
	events  []*drafted
	startID string
	latest  int64 // the time of the last event

	asked []*session.MessageAndParts // what was said since the last call

	// Of the message being drafted:
	m       *session.MessageAndParts
	meta    session.MessageMetadata
	carried bool     // an event brings its row
	last    *drafted // its last LLM_CALL
	calls   []*drafted
	step    []content // what the model said since the last LLM_CALL
	called  bool      // the step has its LLM_CALL
	steps   int
	loose   []json.RawMessage // rows of parts that no event shows
}

// content is a part that a model said.
type content struct {
	part *session.Part
	data rows.Object
}

// add adds an event. What analyses runs puts events in the order of their times, so
// none is earlier than what it follows from: a tool's call than the model's call
// that asked for it, any other than all before it. Calls that a model asks for at
// once come back in any order, and keep their times.
func (d *drafter) add(typ, id, parent string, at int64, payload rows.Object) *drafted {
	if typ == toolCall {
		at = max(at, d.last.at)
	} else {
		at = max(at, d.latest)
	}
	d.latest = max(d.latest, at)
	e := &drafted{typ: typ, id: id, parent: parent, at: at, payload: payload}
	if d.m != nil {
		if !d.carried {
			e.carrier.Message, d.carried = d.m.Message.AppendJSON(nil), true
		}
		e.carrier.Parts, d.loose = d.loose, nil
	}
	d.events = append(d.events, e)
	d.count(typ)
	return e
}

// watch lets the detector see an event that is complete.
func (d *drafter) watch(e *drafted) {
	warning := d.loops.see(e.typ, e.id, e.payload)
	if warning == nil {
		return
	}
	w := &drafted{typ: loopWarning, id: uuid(d.runID, loopWarning, warning.Text("pattern")), parent: e.id, at: e.at, payload: warning}
	w.carrier.Derived = true
	d.events = append(d.events, w)
	d.count(loopWarning)
}

func (d *drafter) start() {
	var p rows.Object
	p.Set("run_name", d.s.Session.Title)
	p.Set("python_version", "")
	p.Set("platform", "")
	cwd := ""
	if d.s.Session.WorkspaceRoot != nil {
		cwd = *d.s.Session.WorkspaceRoot
	}
	p.Set("cwd", cwd)
	p.Set("argv", json.RawMessage("[]"))
	d.startID = uuid(d.runID, runStart)
	e := d.add(runStart, d.startID, "", d.started, p)
	e.carrier.Carrier = *rows.SessionCarrier(d.s)
}

func (d *drafter) end(status string) {
	var p rows.Object
	d.ended = max(d.ended, d.latest)
	p.Set("status", status)
	p.Set("summary", d.summary())
	d.m = nil
	e := d.add(runEnd, uuid(d.runID, runEnd), d.startID, d.ended, p)
	e.carrier.Derived = true
}

func (d *drafter) assistant(m *session.MessageAndParts) {
	d.m, d.meta = m, messageMetadata(&m.Message)
	d.carried, d.last, d.called, d.steps, d.calls = false, nil, false, 0, nil
	d.step, d.loose = nil, nil
	failed := false // an event says why
	used := d.meta.Tokens(m.Message.Role, m.IsMarker() && len(m.Parts) > 0).Used
	if used != nil && (d.meta.Compaction || m.IsMarker() && len(m.Parts) > 0) {
		d.compacted()
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		data := metadata(p.DataJSON)
		switch {
		case p.Type == "step-start":
			d.close()
			d.called = false
			d.step = append(d.step, content{p, data})
		case isContent(p.Type):
			d.called = false // it called what it called, and then was asked again
			d.step = append(d.step, content{p, data})
		case p.Type == "dynamic-tool" || strings.HasPrefix(p.Type, "tool-"):
			if !d.called {
				d.call()
			}
			d.tool(p, data)
		case p.Type == dataTypes[loopWarning]:
			d.hold(p)
		default:
			d.close()
			failed = d.data(p, data) || failed
		}
	}
	if d.close(); !d.carried {
		d.call()
	}
	if d.last != nil {
		d.account(used)
	}
	if len(d.loose) > 0 {
		last := d.events[len(d.events)-1]
		for i := len(d.events) - 1; last.carrier.Derived; i-- {
			last = d.events[i]
		}
		last.carrier.Parts = append(last.carrier.Parts, d.loose...)
		d.loose = nil
	}
	switch trace := d.meta.Trace; {
	case trace.EndReason == semconv.EndError && !failed:
		d.failure("Error", cmp.Or(trace.Error, "the turn failed"))
	case trace.EndReason == semconv.EndAbort:
		d.failure("Interrupted", cmp.Or(trace.Error, "the turn was interrupted"))
	}
	d.m = nil
}

// compacted adds the call that made the summary of a compaction: a call of a model like
// any other. It answers no prompt, and what it said is in the event of the compaction.
func (d *drafter) compacted() {
	asked := d.asked
	d.asked = nil
	d.call()
	d.asked = asked
	d.last.carrier.Derived = d.last.carrier.Message == nil
}

// hold keeps the row of a part for the next event.
func (d *drafter) hold(p *session.Part) { d.loose = append(d.loose, rows.PartRow(p, nil)) }

// close makes an LLM_CALL of what the model has said and that has none.
func (d *drafter) close() {
	if len(d.step) > 0 {
		d.call()
	}
}

// call adds an LLM_CALL for what the model said: nothing, when it only called
// tools.
func (d *drafter) call() {
	var p rows.Object
	model, provider := "unknown", "unknown"
	if m := d.meta.Model; m != nil {
		if m.ModelID != "" {
			model = m.ModelID
		}
		if m.ProviderID != "" {
			provider = m.ProviderID
		}
	}
	at := d.m.Message.CreatedAt
	var said []rows.Object
	for _, c := range d.step {
		at = max(at, c.part.UpdatedAt)
		if c.part.Type != "step-start" {
			said = append(said, c.data)
		}
	}
	prompt, carried := d.prompt()
	p.Set("model", model)
	p.Set("prompt", prompt)
	p.Set("response", response(said))
	p.Set("usage", null)
	p.Set("provider", provider)
	temperature := null
	if t := d.meta.Trace.Temperature; t != nil {
		temperature = pythonFloat(*t)
	}
	p.Set("temperature", temperature)
	p.Set("stop_reason", null)
	p.Set("status", statusOK)
	p.Set("error", null)
	e := d.add(llmCall, uuid(d.runID, llmCall, d.m.Message.ID, strconv.Itoa(d.steps)), d.startID, at, p)
	e.carrier.Prompt = carried
	for _, c := range d.step {
		native := through(c.data)
		if c.part.Type == "step-start" {
			native = nativePart(llmCall, p, c.part.Type, "", "")
		}
		e.carrier.Parts = append(e.carrier.Parts, rows.PartRow(c.part, native))
	}
	d.steps++
	d.step, d.called, d.last = nil, true, e
	d.calls = append(d.calls, e)
	d.watch(e)
}

// response is what a model said: a text as it is, anything else as the parts.
func response(said []rows.Object) json.RawMessage {
	switch {
	case len(said) == 0:
		return null
	case len(said) == 1 && isPlainText(said[0]):
		return said[0].Get("text")
	}
	return raw(rows.Object{{Key: "content", Value: raw(said)}})
}

func isPlainText(data rows.Object) bool {
	return len(data) == 2 && data[0].Key == "type" && data.Text("type") == "text" && data[1].Key == "text"
}

// prompt takes what was said since the last call.
func (d *drafter) prompt() (prompt json.RawMessage, carried []rows.Carrier) {
	if len(d.asked) == 0 {
		return null, nil
	}
	var messages []rows.Object
	for _, m := range d.asked {
		parts := make([]rows.Object, len(m.Parts))
		c := rows.Carrier{Message: m.Message.AppendJSON(nil)}
		for i := range m.Parts {
			parts[i] = metadata(m.Parts[i].DataJSON)
			c.Parts = append(c.Parts, rows.PartRow(&m.Parts[i], through(parts[i])))
		}
		carried = append(carried, c)
		var o rows.Object
		o.Set("role", m.Message.Role)
		o.Set("content", parts)
		messages = append(messages, o)
	}
	only := d.asked[0]
	d.asked = nil
	if len(carried) == 1 && only.Message.Role == session.RoleUser && len(only.Parts) == 1 {
		if data := metadata(only.Parts[0].DataJSON); isPlainText(data) {
			return data.Get("text"), carried
		}
	}
	return raw(rows.Object{{Key: "messages", Value: raw(messages)}}), carried
}

// unanswered adds an event for what no call has answered.
func (d *drafter) unanswered() {
	last := d.asked[len(d.asked)-1].Message
	prompt, carried := d.prompt()
	var p rows.Object
	p.Set("state", prompt)
	p.Set("diff", null)
	e := d.add(stateUpdate, uuid(d.runID, "unanswered", last.ID), d.startID, last.UpdatedAt, p)
	e.carrier.Prompt = carried
	d.watch(e)
}

func (d *drafter) tool(p *session.Part, data rows.Object) {
	var payload rows.Object
	payload.Set("tool_name", toolName(data))
	withheldInput, withheldOutput := codec.Withheld(p)
	payload.Set("args", orNull(data.Get("input")))
	if withheldInput {
		payload.Set("args", codec.WithheldText)
	}
	payload.Set("result", orNull(data.Get("output")))
	if withheldOutput {
		payload.Set("result", codec.WithheldText)
	}
	state := ""
	if p.ToolState != nil {
		state = *p.ToolState
	}
	switch state {
	case session.StateOutputAvailable:
		payload.Set("status", statusOK)
		payload.Set("error", null)
	case session.StateOutputError:
		payload.Set("status", statusError)
		typ := "ToolError"
		if string(data.Object("toolMetadata").Object("agenttrace").Get("denied")) == "true" {
			typ = "PermissionDenied"
		}
		payload.Set("error", failure(typ, data.Text("errorText")))
	case session.StateOutputDenied:
		reason := data.Object("approval").Text("reason")
		if reason == "" {
			reason = "the call was denied"
		}
		payload.Set("status", statusError)
		payload.Set("error", failure("PermissionDenied", reason))
	default:
		// AgentDbg records calls that have returned. One that has not is no success.
		payload.Set("status", statusError)
		payload.Set("error", failure("Unfinished", "the call has no result; its state is "+state))
	}
	e := d.add(toolCall, uuid(d.runID, toolCall, p.ID), d.last.id, p.UpdatedAt, payload)
	e.duration = raw(max(0, p.UpdatedAt-p.CreatedAt))
	callID := ""
	if p.ToolCallID != nil {
		callID = *p.ToolCallID
	}
	native := nativePart(toolCall, through(payload), p.Type, callID, state)
	e.carrier.Parts = append(e.carrier.Parts, rows.PartRow(p, native))
	d.watch(e)
}

// data adds an event for a part that is neither said nor called, and reports
// whether it is an error.
func (d *drafter) data(p *session.Part, data rows.Object) (failed bool) {
	inner := data.Object("data")
	if p.Type == dataTypes[errorEvent] && inner.Text("error_type") != "" && inner.Get("message") != nil {
		e := d.add(errorEvent, uuid(d.runID, errorEvent, p.ID), d.startID, p.UpdatedAt, inner)
		e.carrier.Parts = append(e.carrier.Parts, rows.PartRow(p, nativePart(errorEvent, through(inner), p.Type, "", "")))
		return true
	}
	var payload rows.Object
	payload.Set("state", data)
	payload.Set("diff", null)
	e := d.add(stateUpdate, uuid(d.runID, stateUpdate, p.ID), d.startID, p.UpdatedAt, payload)
	e.carrier.Parts = append(e.carrier.Parts, rows.PartRow(p, through(data)))
	d.watch(e)
	return false
}

// failure adds what ended the message.
func (d *drafter) failure(typ, text string) {
	e := d.add(errorEvent, uuid(d.runID, errorEvent, d.m.Message.ID), d.startID, d.m.Message.UpdatedAt, failure(typ, text).Without("details"))
	e.carrier.Derived = true
}

// failure is an error object.
func failure(typ, message string) rows.Object {
	var o rows.Object
	o.Set("error_type", typ)
	o.Set("message", message)
	o.Set("details", null)
	o.Set("stack", null)
	return o
}

// account puts on a message's calls what is known of each, and on the last what is known
// of the whole message alone.
func (d *drafter) account(used *session.Usage) {
	steps := d.modelCalls(used)
	for i, step := range steps {
		p := &d.calls[i].payload
		setUsage(p, step.Usage)
		if step.StopReason != "" {
			p.Set("stop_reason", step.StopReason)
		}
		if step.Model != nil && step.Model.ModelID != "" {
			p.Set("model", step.Model.ModelID)
			if step.Model.ProviderID != "" {
				p.Set("provider", step.Model.ProviderID)
			}
		}
	}
	p := &d.last.payload
	if steps == nil && used != nil {
		setUsage(p, used)
		if len(d.calls) > 1 {
			d.last.carrier.UsageOf = "turn"
		}
	}
	if s := d.meta.Trace.StopReason; s != "" {
		p.Set("stop_reason", s)
	}
	if n := len(d.meta.Trace.ModelErrors); n > 0 && d.meta.Trace.EndReason == semconv.EndError {
		p.Set("status", statusError)
		p.Set("error", failure("ModelError", d.meta.Trace.ModelErrors[n-1]))
	}
}

func setUsage(p *rows.Object, u *session.Usage) {
	if u == nil {
		return
	}
	var usage rows.Object
	prompt, completion := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	usage.Set("prompt_tokens", prompt)
	usage.Set("completion_tokens", completion)
	usage.Set("total_tokens", prompt+completion)
	p.Set("usage", usage)
}

// modelCalls are what is known of each of the message's calls, in their order: what the
// source lists, or else the spans of the calls. It is nil where these are not the calls
// that were drafted, or do not add up to what the message used, for then nobody knows
// which used what.
func (d *drafter) modelCalls(used *session.Usage) []session.Step {
	s, m, n := d.s, d.m, len(d.calls)
	steps := d.meta.Trace.Steps
	if len(steps) == 0 {
		var links []*store.Link
		for i := range s.Links {
			if l := &s.Links[i]; l.MessageID == m.Message.ID && l.Facts != nil && l.Facts.Step {
				links = append(links, l)
			}
		}
		slices.SortStableFunc(links, func(a, b *store.Link) int { return cmp.Compare(a.StartNano, b.StartNano) })
		for _, l := range links {
			if l.Error && l.Facts.Usage == nil {
				continue // it gave nothing
			}
			steps = append(steps, session.Step{Model: l.Facts.Model, Usage: l.Facts.Usage, StopReason: l.Facts.Trace.StopReason})
		}
	}
	var sum session.Usage
	for i := range steps {
		if steps[i].Usage == nil {
			return nil
		}
		sum = sum.Add(*steps[i].Usage)
	}
	if len(steps) != n || used == nil || sum != *used {
		return nil
	}
	return steps
}

func (d *drafter) finish() []rows.Object {
	all := make([]rows.Object, len(d.events))
	for i, e := range d.events {
		if e.carrier.Empty() && e.carrier.Prompt == nil {
			e.carrier.Derived = true
		}
		o := &all[i]
		o.Set("spec_version", specVersion)
		o.Set("event_id", e.id)
		o.Set("run_id", d.runID)
		parent := null
		if e.parent != "" {
			parent = raw(e.parent)
		}
		o.Set("parent_id", parent)
		o.Set("event_type", e.typ)
		o.Set("ts", formatTime(e.at))
		o.Set("duration_ms", orNull(e.duration))
		o.Set("name", defaultName(e.typ, e.payload))
		o.Set("payload", e.payload)
		o.Set("meta", rows.Object{{Key: rows.CarrierKey, Value: raw(e.carrier)}})
	}
	return all
}

// pythonFloat writes a number as Python does, which keeps the point of one that
// is whole.
func pythonFloat(f float64) json.RawMessage {
	b := raw(f)
	if f == float64(int64(f)) && !strings.ContainsAny(string(b), ".e") {
		b = append(b, ".0"...)
	}
	return b
}
