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
	status := runStatus(t)
	last := len(t.Messages) - 1
	for ; last >= 0 && t.Messages[last].Message.Role != session.RoleAssistant; last-- {
	}
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Message.Role == session.RoleAssistant {
			d.assistant(m, i == last && status == statusRunning)
		} else {
			d.asked = append(d.asked, m)
		}
	}
	if len(d.asked) > 0 {
		d.unanswered()
	}
	if outcome(t) == semconv.EndAbort && (d.m == nil || d.meta.Trace.EndReason != semconv.EndAbort) {
		id := uuid(d.runID, errorEvent)
		d.add(errorEvent, id, d.startID, d.latest, failure(interrupted, "the run was interrupted").Without("details"))
	}
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
	if end := outcome(t); end == semconv.EndError || end == semconv.EndAbort {
		return statusError
	}
	for i := len(t.Messages) - 1; i >= 0; i-- {
		m := &t.Messages[i].Message
		if m.Role != session.RoleAssistant || m.HiddenAt != nil {
			continue
		}
		switch trace := messageMetadata(m).Trace; {
		case goesOn(trace):
			return statusRunning
		case trace.EndReason == semconv.EndError, trace.EndReason == semconv.EndAbort:
			return statusError
		}
		return statusOK
	}
	return statusOK
}

// outcome is how the run ended, as the session has it.
func outcome(t *session.Transcript) string {
	return metadata(t.Session.MetadataJSON).Object("agenttrace").Text("outcome")
}

func messageMetadata(m *session.Message) session.MessageMetadata {
	var meta session.MessageMetadata
	if json.Unmarshal([]byte(m.MetadataJSON), &meta) != nil {
		return session.MessageMetadata{} // unreadable: nothing is known
	}
	return meta
}

// drafted is an event being put together.
type drafted struct {
	typ, id, parent string
	at              int64
	duration        json.RawMessage
	payload         rows.Object
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
	m      *session.MessageAndParts
	meta   session.MessageMetadata
	last   *drafted // its last LLM_CALL
	calls  []*drafted
	step   []content // what the model said since the last LLM_CALL
	called bool      // the step has its LLM_CALL
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
	id := uuid(d.runID, loopWarning, warning.Text("pattern"))
	d.events = append(d.events, &drafted{typ: loopWarning, id: id, parent: e.id, at: e.at, payload: warning})
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
	d.add(runStart, d.startID, "", d.started, p)
}

func (d *drafter) end(status string) {
	var p rows.Object
	d.ended = max(d.ended, d.latest)
	p.Set("status", status)
	p.Set("summary", d.summary())
	d.add(runEnd, uuid(d.runID, runEnd), d.startID, d.ended, p)
}

// assistant drafts an answer. last says that nothing was answered after it.
func (d *drafter) assistant(m *session.MessageAndParts, last bool) {
	d.m, d.meta = m, messageMetadata(&m.Message)
	d.last, d.called, d.calls, d.step = nil, false, nil, nil
	failed := false // an event says why
	before := len(d.events)
	used := d.meta.Tokens(m.Message.Role, m.IsMarker() && len(m.Parts) > 0).Used
	if d.s.Session.Copied(m.Message.CreatedAt) {
		used = nil // the run of the parent has it
	}
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
		case p.Type == session.TypeWithheld:
			d.called = false
			d.step = append(d.step, content{p, textPart("text", codec.WithheldText)})
		case isContent(p.Type):
			d.called = false // it called what it called, and then was asked again
			d.step = append(d.step, content{p, data})
		case session.IsToolType(p.Type):
			if !d.called {
				d.call()
			}
			d.tool(p, data)
		case p.Type == dataTypes[loopWarning]: // the detector warns of it again
		default:
			d.close()
			failed = d.data(p, data) || failed
		}
	}
	if d.close(); len(d.events) == before || used != nil && d.last == nil {
		d.call()
	}
	if d.last != nil {
		d.account(used)
	}
	switch trace := d.meta.Trace; {
	case trace.EndReason == semconv.EndError && !failed:
		d.failure(plainError, cmp.Or(trace.Error, "the turn failed"))
	case trace.EndReason == semconv.EndAbort:
		d.failure(interrupted, cmp.Or(trace.Error, "the turn was interrupted"))
	case goesOn(trace) && !last:
		d.failure(unfinished, "the turn was not seen to end")
	}
}

// goesOn says whether a turn was not seen to end, or waits for a human.
func goesOn(trace session.MessageTrace) bool {
	return trace.Incomplete || trace.PendingApproval && trace.EndReason == ""
}

// isContent says whether parts of the type are what a model says, and so stand in
// a call's response.
func isContent(partType string) bool {
	return partType == "text" || partType == "reasoning" || partType == "file" || strings.HasPrefix(partType, "source-")
}

// compacted adds the call that made the summary of a compaction: a call of a model like
// any other. It answers no prompt, and what it said is in the event of the compaction.
func (d *drafter) compacted() {
	asked := d.asked
	d.asked = nil
	d.call()
	d.asked = asked
}

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
	p.Set("model", model)
	p.Set("prompt", d.prompt())
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
	e := d.add(llmCall, uuid(d.runID, llmCall, d.m.Message.ID, strconv.Itoa(len(d.calls))), d.startID, at, p)
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
func (d *drafter) prompt() json.RawMessage {
	if len(d.asked) == 0 {
		return null
	}
	var messages []rows.Object
	for _, m := range d.asked {
		parts := make([]rows.Object, len(m.Parts))
		for i := range m.Parts {
			if parts[i] = metadata(m.Parts[i].DataJSON); m.Parts[i].Type == session.TypeWithheld {
				parts[i] = textPart("text", codec.WithheldText)
			}
		}
		var o rows.Object
		o.Set("role", m.Message.Role)
		o.Set("content", parts)
		messages = append(messages, o)
	}
	d.asked = nil
	if only := objects(messages[0].Get("content")); len(messages) == 1 && messages[0].Text("role") == session.RoleUser && len(only) == 1 {
		if isPlainText(only[0]) {
			return only[0].Get("text")
		}
	}
	return raw(rows.Object{{Key: "messages", Value: raw(messages)}})
}

// unanswered adds an event for what no call has answered.
func (d *drafter) unanswered() {
	last := d.asked[len(d.asked)-1].Message
	var p rows.Object
	p.Set("state", d.prompt())
	p.Set("diff", null)
	d.watch(d.add(stateUpdate, uuid(d.runID, "unanswered", last.ID), d.startID, last.UpdatedAt, p))
	id := uuid(d.runID, errorEvent, last.ID)
	d.add(errorEvent, id, d.startID, last.UpdatedAt, failure(unfinished, "nothing was answered").Without("details"))
}

func (d *drafter) tool(p *session.Part, data rows.Object) {
	var payload rows.Object
	payload.Set("tool_name", toolName(data))
	payload.Set("args", orNull(rows.Input(p, data)))
	payload.Set("result", orNull(rows.Output(data)))
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
		own := data.Object("toolMetadata").Object("agenttrace")
		typ := cmp.Or(own.Text("error_type"), plainError)
		if string(own.Get("denied")) == "true" {
			typ = permissionDenied
		}
		payload.Set("error", failure(typ, data.Text("errorText")))
	case session.StateOutputDenied:
		reason := data.Object("approval").Text("reason")
		if reason == "" {
			reason = "the call was denied"
		}
		payload.Set("status", statusError)
		payload.Set("error", failure(permissionDenied, reason))
	default:
		// AgentDbg records calls that have returned. One that has not is no success.
		payload.Set("status", statusError)
		payload.Set("error", failure(unfinished, "the call has no result; its state is "+state))
	}
	e := d.add(toolCall, uuid(d.runID, toolCall, p.ID), d.last.id, p.UpdatedAt, payload)
	e.duration = raw(max(0, p.UpdatedAt-p.CreatedAt))
	d.watch(e)
}

// data adds an event for a part that is neither said nor called, and reports
// whether it is an error.
func (d *drafter) data(p *session.Part, data rows.Object) (failed bool) {
	inner := data.Object("data")
	if p.Type == dataTypes[errorEvent] {
		if text := inner.Text("text"); text != "" && inner.Text("error_type") == "" {
			inner = failure(plainError, text) // as this program says that nothing was answered
		}
		if inner.Text("error_type") != "" && inner.Get("message") != nil {
			d.add(errorEvent, uuid(d.runID, errorEvent, p.ID), d.startID, p.UpdatedAt, inner)
			return true
		}
	}
	var payload rows.Object
	payload.Set("state", data)
	payload.Set("diff", null)
	d.watch(d.add(stateUpdate, uuid(d.runID, stateUpdate, p.ID), d.startID, p.UpdatedAt, payload))
	return false
}

// failure adds what ended the message.
func (d *drafter) failure(typ, text string) {
	id := uuid(d.runID, errorEvent, d.m.Message.ID)
	d.add(errorEvent, id, d.startID, d.m.Message.UpdatedAt, failure(typ, text).Without("details"))
}

// Types of errors that are no exceptions of the agent's: an error of which no more is
// known, a turn that a human stopped, a turn or a call that was not seen to end, and a
// call that was not allowed.
const (
	plainError       = "Error"
	interrupted      = "Interrupted"
	unfinished       = "Unfinished"
	permissionDenied = "PermissionDenied"
)

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
	prompt, completion := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	if max(prompt, completion) > maxTokens {
		return // no reader takes it for a count
	}
	var usage rows.Object
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
		var links []*store.SpanRef
		for i := range s.SpanRefs {
			if l := &s.SpanRefs[i]; l.MessageID == m.Message.ID && l.TurnStats != nil && l.TurnStats.Step {
				links = append(links, l)
			}
		}
		slices.SortStableFunc(links, func(a, b *store.SpanRef) int { return cmp.Compare(a.StartNano, b.StartNano) })
		for _, l := range links {
			if l.Error && l.TurnStats.Usage == nil {
				continue // it gave nothing
			}
			steps = append(steps, session.Step{Model: l.TurnStats.Model, Usage: l.TurnStats.Usage, StopReason: l.TurnStats.Trace.StopReason})
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
		o.Set("meta", rows.Object{})
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

func objects(list json.RawMessage) []rows.Object {
	elements := rows.Elements(list)
	all := make([]rows.Object, len(elements))
	for i, v := range elements {
		all[i], _ = rows.Parse(v) // what is no object gives no data
	}
	return all
}
