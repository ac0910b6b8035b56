package formats

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// agentdbgDraft makes the run of a session.
func agentdbgDraft(s *codec.Session, maida bool) agentdbgFormatted {
	t := s.Sorted()
	d := &agentdbgDrafter{
		s: s, own: t.Session.Agent == agentdbgAgentName || t.Session.Agent == agentdbgMaidaName, maida: maida,
		runID: agentdbgRunID(t.Session.ID), used: make(map[string]bool),
	}
	if maida {
		d.runID = agentdbgTraceOf(t.Session.ID)
	}
	d.status, d.lastVisible, d.last = agentdbgRunStatus(t)
	cwd := ""
	if t.Session.WorkspaceRoot != nil {
		cwd = *t.Session.WorkspaceRoot
	}
	d.startID = agentdbgUUID(d.runID, agentdbgRunStart)
	d.add(agentdbgRunStart, d.startID, "", t.Session.CreatedAt, rows.Of(
		"run_name", t.Session.Title, "python_version", "", "platform", "", "cwd", cwd, "argv", []string{}))
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Message.Role == session.RoleAssistant {
			d.assistant(m, i)
		} else {
			d.asked = append(d.asked, m)
			d.loops.recent = nil // an ordinary chat is no loop
		}
	}
	if len(d.asked) > 0 {
		d.unanswered()
	}
	switch end := agentdbgOutcome(t); {
	case end == semconv.EndAbort && d.ended != agentdbgInterrupted:
		d.failure(d.latest, agentdbgInterrupted, "the run was interrupted")
	case end == semconv.EndError && d.ended == "" && d.m != nil:
		d.failure(d.latest, agentdbgPlainError, "the run failed")
	}
	return d.finish()
}

// agentdbgRunStatus returns how a session stands: how its run ended, if it failed, and otherwise
// how the last visible message of the assistant did. AgentDbg has runs that go on, that an
// exception ended, including an interrupt, and others. lastVisible and last are the places
// of the last visible message of the assistant and of its last, -1 if there is none.
func agentdbgRunStatus(t *session.Transcript) (status string, lastVisible, last int) {
	status, lastVisible, last = agentdbgStatusOK, -1, -1
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.Role != session.RoleAssistant {
			continue
		}
		if last = i; m.Message.HiddenAt != nil {
			continue
		}
		status, lastVisible = agentdbgStatusOK, i
		switch trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace; {
		case rows.GoesOn(m):
			status = agentdbgStatusRunning
		case agentdbgFailed(trace.EndReason):
			status = agentdbgStatusError
		}
	}
	if agentdbgFailed(agentdbgOutcome(t)) {
		status = agentdbgStatusError
	}
	return status, lastVisible, last
}

func agentdbgFailed(end string) bool { return end == semconv.EndError || end == semconv.EndAbort }

// agentdbgOutcome is how the run ended, as the session has it.
func agentdbgOutcome(t *session.Transcript) string {
	return rows.Read(t.Session.MetadataJSON).Object("agenttrace").Text("outcome")
}

type agentdbgDrafter struct {
	s                 *codec.Session
	runID, startID    string
	status            string
	own               bool // it is a run of AgentDbg or Maida, which has all its warnings
	maida             bool // it is written as Maida has it
	lastVisible, last int  // places of messages
	loops             agentdbgLoopDetector
	events            []agentdbgEventJSON
	counts            agentdbgCounts
	latest            int64           // the time of the last event
	used              map[string]bool // ids of calls that are ids of events

	asked []*session.MessageAndParts // what was said since the last call

	// Of the message being drafted:
	m      *session.MessageAndParts
	meta   session.MessageMetadata
	calls  []int             // places of its LLM_CALLs in events
	step   []agentdbgContent // what the model said since the last one
	called bool              // the step has its LLM_CALL
	ended  string            // the type of the error with which the turn ended
}

// agentdbgContent is a part that a model said.
type agentdbgContent struct {
	part *session.Part
	data rows.Object
}

// add adds an event. What analyses runs sorts events by time, so none is earlier than
// what it follows from: the call of a tool not before the model call that requested it,
// any other not before the events above. Calls that a model requests at once come back
// in any order, and keep their times.
func (d *agentdbgDrafter) add(typ, id, parent string, at int64, payload rows.Object) {
	after := d.latest
	if n := len(d.calls); typ == agentdbgToolCall && n > 0 {
		after = d.events[d.calls[n-1]].at
	} else if typ == agentdbgToolCall {
		after = d.events[0].at
	}
	// An event that is earlier than its cause would be shown before it, and a result before its call.
	at = max(at, after)
	d.latest = max(d.latest, at)
	for i := range payload {
		payload[i].Value = agentdbgBounded(payload[i].Value)
	}
	e := agentdbgEventJSON{
		SpecVersion: agentdbgSpecVersion, EventID: id, RunID: d.runID, EventType: typ, at: at, TS: rows.FormatTime(at),
		Name: agentdbgDefaultName(typ, payload), Payload: payload,
	}
	if parent != "" {
		e.ParentID = &parent
	}
	d.events = append(d.events, e)
	d.counts.add(typ)
	if warning := d.loops.see(typ, id, payload); warning != nil && !d.own {
		d.add(agentdbgLoopWarning, agentdbgUUID(d.runID, agentdbgLoopWarning, warning.Text("pattern")), id, at, warning)
	}
}

func (d *agentdbgDrafter) finish() agentdbgFormatted {
	meta := rows.Of("spec_version", agentdbgSpecVersion, "run_id", d.runID, "run_name", d.s.Session.Title,
		"started_at", rows.FormatTime(d.s.Session.CreatedAt), "ended_at", nil, "duration_ms", nil,
		"status", d.status, "counts", agentdbgCounts{}, "last_event_ts", nil)
	if d.status != agentdbgStatusRunning { // AgentDbg counts when the run ends
		ended := max(d.s.Session.UpdatedAt, d.latest)
		took := max(0, ended-d.s.Session.CreatedAt)
		at := rows.FormatTime(ended)
		meta.Add(rows.Of("counts", d.counts, "ended_at", at, "duration_ms", took, "last_event_ts", at))
		d.add(agentdbgRunEnd, agentdbgUUID(d.runID, agentdbgRunEnd), d.startID, ended,
			rows.Of("status", d.status, "summary", rows.Of(
				"llm_calls", d.counts.LLMCalls, "tool_calls", d.counts.ToolCalls, "errors", d.counts.Errors,
				"duration_ms", took)))
	}
	return agentdbgFormatted{d.runID, meta, d.events, d.maida}
}

// assistant drafts the answer at a place of the session.
func (d *agentdbgDrafter) assistant(m *session.MessageAndParts, place int) {
	d.m, d.meta = m, session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	d.called, d.calls, d.step = false, nil, nil
	before := len(d.events)
	used := d.meta.Tokens(m.Message.Role, m.IsMarker()).Used
	if d.s.Session.Copied(m.Message.CreatedAt) {
		used = nil // the run of the parent has it
	}
	if used != nil && (d.meta.Compaction || m.IsMarker()) {
		d.compacted()
	}
	end, text := d.end(place)
	d.ended = end
	explained := d.parts(used, end != "")
	if d.close(); len(d.events) == before || used != nil && len(d.calls) == 0 {
		d.call()
	}
	d.account(used)
	if end != "" && (end != agentdbgPlainError || !explained) {
		d.failure(m.Message.UpdatedAt, end, text)
	}
}

// parts adds the events of the message's parts, and reports whether one of them is the
// error with which the turn ended. ends reports that it did end with one.
func (d *agentdbgDrafter) parts(used *session.Usage, ends bool) (explained bool) {
	warning := func(p session.Part) bool { return p.Type == agentdbgDataTypes[agentdbgLoopWarning] && !d.own }
	parts := slices.DeleteFunc(slices.Clone(d.m.Parts), warning) // the detector gives it again
	for i := range parts {
		p := &parts[i]
		data := rows.Read(p.DataJSON)
		switch {
		case d.said(p, data):
			d.called = false // it was asked again after its calls
		case session.IsToolType(p.Type):
			if len(d.step) > 0 || !d.called && d.isAnswer(used) {
				d.call()
			}
			d.tool(p, data)
		default:
			if d.close(); len(d.asked) > 0 {
				d.call()
			}
			explained = d.data(p, data, ends || i < len(parts)-1) || explained
		}
	}
	return explained
}

// said adds a part to the step if a model said it.
func (d *agentdbgDrafter) said(p *session.Part, data rows.Object) bool {
	switch {
	case p.Type == "step-start":
		d.close()
	case p.Type == session.TypeWithheld:
		data = rows.TextPart("text", codec.WithheldText)
	case p.Type == "text", p.Type == "reasoning", p.Type == "file", strings.HasPrefix(p.Type, "source-"):
	case p.Type == agentdbgDataResponse && agentdbgKnownResponse(data.Get("data"), 0) == nil:
	default:
		return false
	}
	d.step = append(d.step, agentdbgContent{p, data})
	return true
}

// isAnswer reports whether a model was asked for the calls of the message: a run of
// AgentDbg may have calls that no model requested.
func (d *agentdbgDrafter) isAnswer(used *session.Usage) bool {
	return len(d.asked) > 0 || used != nil || d.meta.Model != nil || d.meta.Trace.ModelCalls > 0 || !d.own
}

// end returns the type and the text of the error with which the turn at a place ended,
// or "" for another end. The last turn also stands for the end of the run. So one that a
// rewind hid has no end if it did not end as the run did.
func (d *agentdbgDrafter) end(place int) (typ, text string) {
	switch trace, goesOn := d.meta.Trace, rows.GoesOn(d.m); {
	case place > d.lastVisible && (d.status == agentdbgStatusError || agentdbgFailed(trace.EndReason)),
		goesOn && (place < d.last || d.status != agentdbgStatusRunning):
		return agentdbgUnfinished, "the end of the turn is not known"
	case trace.EndReason == semconv.EndError && !goesOn:
		return agentdbgPlainError, cmp.Or(trace.Error, "the turn failed")
	case trace.EndReason == semconv.EndAbort && !goesOn:
		return agentdbgInterrupted, cmp.Or(trace.Error, "the turn was interrupted")
	}
	return "", ""
}

// compacted adds the call that made the summary of a compaction: a model call like any
// other. It answers no prompt, and what it said is in the event of the compaction.
func (d *agentdbgDrafter) compacted() {
	asked := d.asked
	d.asked = nil
	d.call()
	d.asked = asked
}

// close makes an LLM_CALL of what the model has said without one.
func (d *agentdbgDrafter) close() {
	if len(d.step) > 0 {
		d.call()
	}
}

// call adds an LLM_CALL for what the model said: nothing, if it only called tools.
func (d *agentdbgDrafter) call() {
	model := cmp.Or(d.meta.Model, &session.Model{})
	from, at := d.m.Message.CreatedAt, d.m.Message.CreatedAt
	var said []rows.Object
	for i, c := range d.step {
		if at = max(at, c.part.UpdatedAt); i == 0 {
			from = c.part.CreatedAt
		}
		if c.part.Type != "step-start" {
			said = append(said, c.data)
		}
	}
	temperature := rows.OrNull(nil)
	if t := d.meta.Trace.Temperature; t != nil {
		temperature = agentdbgPythonFloat(*t)
	}
	id := agentdbgUUID(d.runID, agentdbgLlmCall, d.m.Message.ID, strconv.Itoa(len(d.calls)))
	place := len(d.events)
	d.add(agentdbgLlmCall, id, d.startID, at, rows.Of(
		"model", cmp.Or(model.ModelID, agentdbgUnknown), "prompt", d.prompt(),
		"response", agentdbgResponse(said), "usage", nil,
		"provider", cmp.Or(model.ProviderID, agentdbgUnknown), "temperature", temperature, "stop_reason", nil,
		"status", agentdbgStatusOK, "error", nil))
	if took := at - from; took > 0 {
		d.events[place].DurationMS = &took
	}
	d.step, d.called = nil, true
	d.calls = append(d.calls, place)
}

// agentdbgResponse is what a model said: a text as it is, anything else as the parts.
func agentdbgResponse(said []rows.Object) json.RawMessage {
	switch {
	case len(said) == 0:
		return rows.OrNull(nil)
	case len(said) == 1 && agentdbgIsPlainText(said[0]):
		return said[0].Get("text")
	case len(said) == 1 && said[0].Text("type") == agentdbgDataResponse:
		return rows.OrNull(said[0].Get("data"))
	}
	return rows.Raw(rows.Of("content", said))
}

func agentdbgIsPlainText(data rows.Object) bool {
	return data.Text("type") == "text" && data.Get("text") != nil && len(data) == 2
}

// prompt takes what was said since the last call, and for a message's first call its system prompt.
func (d *agentdbgDrafter) prompt() json.RawMessage {
	var messages []rows.Object
	if body := d.systemPrompt(); body != "" {
		messages = append(messages, rows.Of("role", session.RoleSystem, "content", body))
	}
	var only rows.Object
	for _, m := range d.asked {
		parts := make([]rows.Object, len(m.Parts))
		for i := range m.Parts {
			if parts[i] = rows.Read(m.Parts[i].DataJSON); m.Parts[i].Type == session.TypeWithheld {
				parts[i] = rows.TextPart("text", codec.WithheldText)
			}
		}
		messages = append(messages, rows.Of("role", m.Message.Role, "content", parts))
		if len(messages) == 1 && len(d.asked) == 1 && len(parts) == 1 && m.Message.Role == session.RoleUser {
			only = parts[0]
		}
	}
	d.asked = nil
	switch {
	case messages == nil:
		return rows.OrNull(nil)
	case agentdbgIsPlainText(only):
		return only.Get("text")
	}
	return rows.Raw(rows.Of("messages", messages))
}

// systemPrompt returns the message's system prompt, for its first call.
func (d *agentdbgDrafter) systemPrompt() string {
	i := slices.IndexFunc(d.s.Blobs, func(b store.Blob) bool {
		return b.Kind == store.BlobSystemPrompt && b.Digest == d.meta.SystemPromptDigest
	})
	if i < 0 || len(d.calls) > 0 {
		return ""
	}
	return d.s.Blobs[i].Body
}

// unanswered adds an event for what no call has answered.
func (d *agentdbgDrafter) unanswered() {
	last := d.asked[len(d.asked)-1].Message
	d.add(agentdbgStateUpdate, agentdbgUUID(d.runID, "unanswered", last.ID), d.startID, last.UpdatedAt,
		agentdbgState(d.prompt()))
	d.failure(last.UpdatedAt, agentdbgUnfinished, "nothing was answered")
}

func agentdbgState(v any) rows.Object { return rows.Of("state", v, "diff", nil) }

// agentdbgMaxField is the most bytes of a text in an event by default, and cutMark the end of one that AgentDbg cut.
const (
	agentdbgMaxField = 20_000
	agentdbgCutMark  = "__TRUNCATED__"
)

// agentdbgBounded cuts the texts in a value that AgentDbg would cut.
func agentdbgBounded(v json.RawMessage) json.RawMessage {
	if len(v) <= agentdbgMaxField {
		return v
	}
	switch v[0] {
	case '"':
		text, _ := rows.Text(v)
		if len(text) <= agentdbgMaxField {
			return v
		}
		end := agentdbgMaxField - len(agentdbgCutMark)
		for !utf8.RuneStart(text[end]) {
			end--
		}
		return rows.Raw(text[:end] + agentdbgCutMark)
	case '[':
		all := rows.Elements(v)
		for i := range all {
			all[i] = agentdbgBounded(all[i])
		}
		return rows.Raw(all)
	}
	o, err := rows.Parse(v)
	if err != nil {
		return v
	}
	for i := range o {
		o[i].Value = agentdbgBounded(o[i].Value)
	}
	return o.JSON()
}

// agentdbgPlain is a value as AgentDbg has them: an object, a text or null. Another is the
// value of an object, as in its SDK.
func agentdbgPlain(v json.RawMessage) json.RawMessage {
	if v = rows.OrNull(v); v[0] != '{' && v[0] != '"' && v[0] != 'n' {
		return rows.Of("value", v).JSON()
	}
	return v
}

func (d *agentdbgDrafter) tool(p *session.Part, data rows.Object) {
	payload := rows.Of("tool_name", rows.ToolName(data), "args", agentdbgPlain(rows.Input(p, data)),
		"result", agentdbgPlain(rows.Output(data)), "status", agentdbgStatusError)
	switch own := data.Object("toolMetadata").Object("agenttrace"); data.Text("state") {
	case session.StateOutputAvailable:
		payload.Set("status", agentdbgStatusOK)
		payload.Set("error", nil)
	case session.StateOutputError:
		typ := cmp.Or(own.Text("error_type"), agentdbgPlainError)
		if own.True("denied") {
			typ = agentdbgPermissionDenied
		}
		payload.Set("error", agentdbgFailure(typ, data.Text("errorText")))
	case session.StateOutputDenied:
		reason := data.Object("approval").Text("reason")
		payload.Set("error", agentdbgFailure(agentdbgPermissionDenied, cmp.Or(reason, "the call was denied")))
	default: // AgentDbg records calls that have returned, and one that has not is no success
		payload.Set("error", agentdbgFailure(agentdbgUnfinished, "the call has no result; its state is "+data.Text("state")))
	}
	id, parent := agentdbgUUID(d.runID, agentdbgToolCall, p.ID), d.startID
	call := data.Text("toolCallId")
	if (agentdbgIsUUID4(call) || d.maida && agentdbgSpanID.MatchString(call)) && !d.used[call] {
		id = call // of an event
		d.used[call] = true
	}
	if n := len(d.calls); n > 0 {
		parent = d.events[d.calls[n-1]].EventID
	}
	place := len(d.events)
	d.add(agentdbgToolCall, id, parent, p.UpdatedAt, payload)
	d.events[place].DurationMS = new(max(0, p.UpdatedAt-p.CreatedAt))
}

// data adds an event for a part that is neither said nor called, and reports whether it
// is an error: one ends the turn unless something follows.
func (d *agentdbgDrafter) data(p *session.Part, data rows.Object, follows bool) (failed bool) {
	inner := data.Object("data")
	if text := inner.Text("text"); p.Type == session.TypeError && text != "" && inner.Text("error_type") == "" {
		inner = agentdbgFailure(agentdbgPlainError, text)
	}
	if p.Type == session.TypeError && follows && inner.Text("error_type") != "" && inner.Get("message") != nil {
		d.add(agentdbgErrorEvent, agentdbgUUID(d.runID, agentdbgErrorEvent, p.ID), d.startID, p.UpdatedAt, inner)
		return true
	}
	if p.Type == agentdbgDataTypes[agentdbgLoopWarning] && inner.Text("pattern") != "" {
		d.add(agentdbgLoopWarning, agentdbgUUID(d.runID, agentdbgLoopWarning, p.ID), d.startID, p.UpdatedAt, inner)
		return false
	}
	payload := agentdbgState(data)
	if p.Type == agentdbgDataTypes[agentdbgStateUpdate] && len(inner) == 2 && inner.Get("state") != nil &&
		inner.Get("diff") != nil &&
		agentdbgStatePart(inner) == nil {
		payload = inner
	}
	d.add(agentdbgStateUpdate, agentdbgUUID(d.runID, agentdbgStateUpdate, p.ID), d.startID, p.UpdatedAt, payload)
	return false
}

// failure adds an error that is the end of a turn or of the run.
func (d *agentdbgDrafter) failure(at int64, typ, text string) {
	id := agentdbgUUID(d.runID, agentdbgErrorEvent, strconv.Itoa(len(d.events)))
	d.add(agentdbgErrorEvent, id, d.startID, at, agentdbgFailure(typ, text).Without("details"))
}

// agentdbgFailure is an error object.
func agentdbgFailure(typ, message string) rows.Object {
	return rows.Of("error_type", typ, "message", message, "details", nil, "stack", nil)
}

// account sets on a message's calls what is known of each, and on the last what is known
// only of the whole message.
func (d *agentdbgDrafter) account(used *session.Usage) {
	if len(d.calls) == 0 {
		return
	}
	steps := d.modelCalls(used)
	reason := d.meta.Trace.StopReason
	for i, step := range steps {
		e := &d.events[d.calls[i]]
		p := &e.Payload
		if used != nil {
			agentdbgSetUsage(p, step.Usage)
		}
		if step.StopReason != "" {
			p.Set("stop_reason", step.StopReason)
			reason = "" // each call has its own
		}
		if step.Model != nil && step.Model.ModelID != "" {
			p.Set("model", step.Model.ModelID)
			p.Set("provider", cmp.Or(step.Model.ProviderID, agentdbgUnknown))
			e.Name = step.Model.ModelID
		}
	}
	p := &d.events[d.calls[len(d.calls)-1]].Payload
	if steps == nil && used != nil {
		agentdbgSetUsage(p, used)
	}
	if reason != "" {
		p.Set("stop_reason", reason)
	}
	at := len(d.calls) - 1
	if trace := d.meta.Trace; !agentdbgFailed(trace.EndReason) && !rows.GoesOn(d.m) {
		at-- // the last call did not fail: the turn went on after its errors
	}
	for _, text := range slices.Backward(d.meta.Trace.ModelErrors) {
		if at >= 0 {
			p := &d.events[d.calls[at]].Payload
			p.Set("status", agentdbgStatusError)
			p.Set("error", agentdbgFailure(agentdbgPlainError, text))
		}
		at--
	}
}

func agentdbgSetUsage(p *rows.Object, u *session.Usage) {
	if u == nil {
		return
	}
	prompt, completion := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	if max(prompt, completion) > agentdbgMaxTokens {
		return // no reader takes it for a count
	}
	p.Set("usage", rows.Of("prompt_tokens", prompt, "completion_tokens", completion, "total_tokens", prompt+completion))
}

// modelCalls returns what is known of each of the message's calls, in their order: what
// the source lists, or else the spans of the calls. It is nil if these are not the calls
// that were drafted, or do not add up to what the message used, because then it is not
// known which call used what.
func (d *agentdbgDrafter) modelCalls(used *session.Usage) []session.Step {
	steps := d.meta.Trace.Steps
	if len(steps) == 0 {
		var refs []*store.SpanRef
		for i := range d.s.SpanRefs {
			r := &d.s.SpanRefs[i]
			if r.MessageID != d.m.Message.ID || r.TurnStats == nil || !r.TurnStats.Step {
				continue
			}
			if !r.Error || r.TurnStats.Usage != nil { // otherwise it gave nothing
				refs = append(refs, r)
			}
		}
		slices.SortStableFunc(refs, func(a, b *store.SpanRef) int { return cmp.Compare(a.StartNano, b.StartNano) })
		for _, r := range refs {
			stats := r.TurnStats
			steps = append(steps, session.Step{Model: stats.Model, Usage: stats.Usage,
				StopReason: stats.Trace.StopReason})
		}
	}
	var sum session.Usage
	for i := range steps {
		if steps[i].Usage != nil {
			sum = sum.Add(*steps[i].Usage)
		}
	}
	if len(steps) != len(d.calls) || sum != *cmp.Or(used, &session.Usage{}) {
		return nil
	}
	return steps
}

// agentdbgPythonFloat writes a number as Python does, which keeps the point of one that is whole.
func agentdbgPythonFloat(f float64) json.RawMessage {
	b := rows.Raw(f)
	if f == float64(int64(f)) && !strings.ContainsAny(string(b), ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// How many events the detector looks at, and how often a pattern repeats to be a loop: the
// defaults of AgentDbg.
const (
	agentdbgLoopWindow      = 12
	agentdbgLoopRepetitions = 3
)

// agentdbgLoopDetector gives the warnings that AgentDbg's detector would have given. The zero value has seen no event.
type agentdbgLoopDetector struct {
	recent []agentdbgSeen
	warned []string // patterns
}

// agentdbgSeen is an event of the window.
type agentdbgSeen struct{ signature, id string }

// agentdbgSignature is what the detector compares events by: the arguments of a call
// do not count.
func agentdbgSignature(typ string, payload rows.Object) string {
	key := map[string]string{agentdbgLlmCall: "model", agentdbgToolCall: "tool_name"}[typ]
	if key == "" {
		return typ
	}
	return typ + ":" + cmp.Or(payload.Text(key), "UNKNOWN")
}

// see takes an event and returns the payload of the warning that follows it, or
// nil. Of the patterns that the window ends with it is the shortest, and a
// pattern is warned of once.
func (d *agentdbgLoopDetector) see(typ, id string, payload rows.Object) rows.Object {
	if typ != agentdbgLlmCall && typ != agentdbgToolCall && typ != agentdbgStateUpdate {
		return nil
	}
	d.recent = append(d.recent, agentdbgSeen{agentdbgSignature(typ, payload), id})
	if over := len(d.recent) - agentdbgLoopWindow; over > 0 {
		d.recent = slices.Delete(d.recent, 0, over)
	}
	n := len(d.recent)
	for m := 1; m*agentdbgLoopRepetitions <= n; m++ {
		tail := d.recent[n-m*agentdbgLoopRepetitions:]
		same := func(a, b agentdbgSeen) bool { return a.signature == b.signature }
		if !slices.EqualFunc(tail[m:], tail[:len(tail)-m], same) {
			continue
		}
		block := make([]string, m)
		evidence := make([]string, len(tail))
		for i := range tail {
			if i < m {
				block[i] = tail[i].signature
			}
			evidence[i] = cmp.Or(tail[i].id, "__MISSING__")
		}
		pattern := strings.Join(block, " -> ")
		if slices.Contains(d.warned, pattern) {
			return nil
		}
		d.warned = append(d.warned, pattern)
		return rows.Of("pattern", pattern, "repetitions", agentdbgLoopRepetitions, "window_size", n,
			"evidence_event_ids", evidence)
	}
	return nil
}

// agentdbgLoopName is the name of a warning's event.
func agentdbgLoopName(pattern string) string {
	const maximum = 80
	if name := []rune(pattern); len(name) > maximum {
		return string(name[:maximum-1]) + "..."
	}
	return pattern
}
