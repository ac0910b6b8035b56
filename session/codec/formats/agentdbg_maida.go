package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Maida 0.4 and later have trace format 0.2: what run.json has is in meta.json, and spans.jsonl has a span for each
// event. The root is the run.

var agentdbgTraceID, agentdbgSpanID = lazy.Regexp(`^[0-9a-f]{32}$`), lazy.Regexp(`^[0-9a-f]{16}$`)

// agentdbgTraceOf returns the trace id of the run that a session is written as.
func agentdbgTraceOf(sessionID string) string {
	if id := strings.ReplaceAll(sessionID, "-", ""); agentdbgTraceID().MatchString(id) {
		return id
	}
	return strings.ReplaceAll(agentdbgRunID(sessionID), "-", "")
}

// agentdbgSpanOf returns the span id of an event.
func agentdbgSpanOf(eventID string) string { return strings.ReplaceAll(eventID, "-", "")[:16] }

// maidaMeta is a run.json as a meta.json.
func (d *agentdbgDrafter) maidaMeta() rows.Object {
	o := rows.Of("spec_version", "0.2.0", "trace_id", d.id)
	o.Add(d.run.Without("spec_version", "run_id", "last_event_ts"))
	o.Set("started_at", agentdbgMicro(o.Get("started_at")))
	o.Set("ended_at", agentdbgMicro(o.Get("ended_at")))
	return o
}

// agentdbgMicro gives a time the microseconds that Maida writes.
func agentdbgMicro(at json.RawMessage) json.RawMessage {
	return bytes.Replace(at, []byte(`Z"`), []byte(`000Z"`), 1)
}

// spans are the run's events as spans, the root first. What analyses runs sorts spans by their starts, so none starts
// before the one above it.
func (d *agentdbgDrafter) spans() (all []rows.Object) {
	started := d.events[0].at
	for i := range d.events {
		if e := &d.events[i]; e.EventType != agentdbgRunEnd {
			started = max(started, e.from())
			all = append(all, d.span(e, started))
		}
	}
	return all
}

// agentdbgAttributes are the attributes of spans, each with the key of an event's payload that it has the value of.
var agentdbgAttributes = map[string][]string{
	agentdbgRunStart: {"maida.run_name", "run_name", "maida.cwd", "cwd"},
	agentdbgLlmCall: {"gen_ai.system", "provider", "gen_ai.request.model", "model", "maida.status", "status",
		"gen_ai.request.temperature", "temperature", "gen_ai.response.finish_reasons", "stop_reason"},
	agentdbgToolCall: {"maida.tool_name", "tool_name", "maida.status", "status"},
	"usage": {"gen_ai.usage.input_tokens", "prompt_tokens", "gen_ai.usage.output_tokens", "completion_tokens",
		"gen_ai.usage.total_tokens", "total_tokens"},
	"counts": {"maida.llm_calls", "llm_calls", "maida.tool_calls", "tool_calls", "maida.errors", "errors",
		"maida.loop_warnings", "loop_warnings"},
	"error": {"maida.error_type", "error_type", "maida.error_message", "message", "maida.error_stack", "stack"},
}

// span is an event as a span, which has its payload as attributes and as events.
func (d *agentdbgDrafter) span(e *agentdbgEvent, started int64) rows.Object {
	attributes, events, p := rows.Object{}, []rows.Object{}, e.Payload
	at := agentdbgMicro(rows.Raw(e.TS))
	event := func(name string, attributes rows.Object) {
		events = append(events, rows.Of("name", name, "timestamp", at, "attributes", attributes))
	}
	known := func(of string, o rows.Object) {
		for pair := range slices.Chunk(agentdbgAttributes[of], 2) {
			if o.Has(pair[1]) {
				attributes.Set(pair[0], o.Get(pair[1]))
			}
		}
	}
	// texts adds an event of the values that accepts takes, which are JSON texts, as the SDK writes what is no
	// attribute's value.
	texts := func(name string, o rows.Object, accepts string) {
		for i, field := range o {
			if strings.Contains(accepts, string(field.Value[:1])) || accepts == "" {
				o[i].Value = rows.Raw(string(field.Value))
			}
		}
		if o != nil {
			event(name, o)
		}
	}
	name, kind, code, description := e.Name, "INTERNAL", "OK", ""
	ended, took := at, rows.Raw(max(0, e.at-started))
	failure := p.Object("error")
	known(e.EventType, p)
	switch e.EventType {
	case agentdbgRunStart:
		name, ended, took = cmp.Or(name, "run"), agentdbgMicro(d.run.Get("ended_at")), d.run.Get("duration_ms")
		known("counts", d.run.Object("counts"))
		switch d.status {
		case agentdbgStatusRunning:
			code = "UNSET"
		case agentdbgStatusError:
			code, description = "ERROR", agentdbgStatusError
		}
	case agentdbgLlmCall:
		kind, attributes = "CLIENT", append(rows.Of("gen_ai.operation.name", "chat"), attributes...)
		known("usage", p.Object("usage"))
		said := func(role string, content json.RawMessage) {
			event("gen_ai."+role+".message", rows.Of("content", agentdbgEventText(content)))
		}
		prompt := p.Get("prompt")
		if _, ok := rows.Text(prompt); ok {
			said(session.RoleUser, prompt)
		}
		for m := range rows.Objects(rows.Read(string(prompt)).Get("messages")) {
			said(m.Text("role"), m.Get("content"))
		}
		if p.Has("response") {
			said(session.RoleAssistant, p.Get("response"))
		}
	case agentdbgToolCall:
		texts("maida.tool.args", p.Only("args"), "")
		texts("maida.tool.result", p.Only("result"), "")
	case agentdbgStateUpdate:
		texts("state", p.Only("state", "diff"), "")
	case agentdbgLoopWarning:
		name = "loop_warning"
		attributes.Set("maida.event_type", agentdbgLoopWarning)
		texts("maida.loop.warning", slices.Clone(p), "[{")
	case agentdbgErrorEvent:
		name, failure = "exception", p
	}
	if failure != nil {
		code, description = "ERROR", failure.Text("message")
		known("error", failure)
	}
	o := rows.Of("trace_id", d.id, "span_id", agentdbgSpanOf(e.EventID), "parent_span_id", nil, "name", name,
		"kind", kind, "start_time", agentdbgMicro(rows.Raw(rows.FormatTime(started))), "end_time", ended,
		"duration_ms", took, "attributes", attributes, "events", events, "status_code", code,
		"status_description", description)
	if e.ParentID != nil {
		o.Set("parent_span_id", agentdbgSpanOf(*e.ParentID))
	}
	return o
}

// agentdbgEventText is what somebody said as the text of an event: a text as it is, and anything else as its parts, also
// a text that would be read as parts.
func agentdbgEventText(said json.RawMessage) string {
	text, ok := rows.Text(said)
	switch {
	case !ok:
		return string(said)
	case agentdbgStructured(text) != nil:
		return string(rows.Raw([]rows.Object{rows.TextPart("text", text)}))
	}
	return text
}

// agentdbgStructured returns the value of a text that is messages or parts of one in JSON: a list of objects with a
// role or a type, or an object that has such a list. A text that is other JSON is what somebody said, and nil is
// returned.
func agentdbgStructured(text string) json.RawMessage {
	if text == "" || text[0] != '[' && text[0] != '{' {
		return nil
	}
	v, err := rows.Value([]byte(text))
	if err != nil {
		if v, err = rows.Value([]byte(agentdbgFromPython(text))); err != nil {
			return nil
		}
	}
	list := v
	if o, err := rows.Parse(v); err == nil {
		if list = o.Get("messages"); list == nil {
			list = o.Get("content")
		}
	}
	all := rows.Elements(list)
	if len(all) == 0 || slices.ContainsFunc(all, func(v json.RawMessage) bool {
		return len(rows.Read(string(v)).Texts("role", "type")) == 0
	}) {
		return nil
	}
	return v
}

var (
	agentdbgPythonToken  = lazy.Regexp(`(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:None|True|False)\b`)
	agentdbgPythonEscape = strings.NewReplacer(`\\`, `\\`, `\'`, `'`, `\"`, `\"`, `"`, `\"`, `\x`, `\u00`)
)

// agentdbgFromPython spells a list or a dictionary as Python prints it, which is how the SDK writes prompts that are no
// texts, as JSON.
func agentdbgFromPython(text string) string {
	return agentdbgPythonToken().ReplaceAllStringFunc(text, func(word string) string {
		switch word {
		case "None":
			return "null"
		case "True", "False":
			return strings.ToLower(word)
		}
		return `"` + agentdbgPythonEscape.Replace(word[1:len(word)-1]) + `"`
	})
}

// projected makes an event of those that "maida export" makes of spans one of 0.1: its time is that of the start,
// unknown counts are null, and the root may follow what it begins with.
func (e *agentdbgEvent) projected() {
	switch e.EventType {
	case agentdbgRunStart:
		e.order = math.MinInt64
	case agentdbgRunEnd:
		e.order = math.MaxInt64
	case agentdbgLlmCall, agentdbgToolCall:
		e.at += session.Deref(e.DurationMS)
	}
	for _, key := range []string{"prompt", "response"} {
		if v := agentdbgStructured(e.Payload.Text(key)); v != nil {
			e.Payload.Set(key, v)
		}
	}
	if usage := e.Payload.Object("usage"); usage != nil {
		e.Payload.Set("usage", usage.Only("prompt_tokens", "completion_tokens"))
	}
}

// span reads a span as the events that it stands for.
func (d *agentdbgReader) span(o rows.Object) {
	start := d.time(o, "start_time", "span")
	end, ended := rows.ParseTime(o.Text("end_time"))
	if !ended && o.Has("end_time") {
		d.Problem("end_time is not a time: the end of the span is unknown")
	}
	end = max(end, start)
	e := agentdbgEvent{line: d.Place.Line, EventID: o.Text("span_id"), RunID: o.Text("trace_id"), Name: o.Text("name"),
		at: end, DurationMS: new(end - start), order: start, span: true}
	attributes := o.Object("attributes")
	inner := slices.Collect(rows.Objects(o.Get("events")))
	if o.Text("parent_span_id") == "" {
		d.root(e, o, ended, inner)
		return
	}
	var all rows.Object // attributes of events
	for _, ev := range inner {
		all.Add(ev.Object("attributes"))
	}
	status, failure := agentdbgStatusOK, rows.OrNull(nil)
	if o.Text("status_code") == "ERROR" {
		status, failure = agentdbgStatusError, agentdbgErrorOf(attributes, o.Text("status_description")).JSON()
	}
	switch {
	case attributes.Has("gen_ai.system") || attributes.Has("gen_ai.operation.name"):
		e.EventType, e.Payload = agentdbgLlmCall, agentdbgModelCall(attributes, inner, e.Name)
		e.Payload.Add(rows.Of("status", status, "error", failure))
	case attributes.Has("maida.tool_name"):
		if !ended && status == agentdbgStatusOK {
			status, failure = agentdbgStatusError, rows.Of("error_type", agentdbgUnfinished).JSON()
		}
		e.EventType = agentdbgToolCall
		e.Payload = rows.Of("tool_name", attributes.Text("maida.tool_name"), "status", status, "error", failure)
		for _, field := range all.Only("args", "result") {
			e.Payload.Set(field.Key, rows.Unquoted(field.Value))
		}
	case e.Name == "state":
		e.named("state", all, "")
	case e.Name == "loop_warning" || attributes.Text("maida.event_type") == agentdbgLoopWarning:
		e.named("maida.loop.warning", all, "")
	case attributes.Has("maida.error_type"):
		e.named("exception", attributes, "")
	default:
		e.EventType = agentdbgOtherSpan
		e.Payload = o.Without("trace_id", "span_id", "parent_span_id", "start_time", "end_time", "duration_ms")
	}
	d.add(e)
}

// named gives an event the type and the payload that an event in a span has by its name, if it has one of those.
func (e *agentdbgEvent) named(name string, attributes rows.Object, message string) {
	switch name {
	case "exception":
		e.EventType, e.Payload = agentdbgErrorEvent, agentdbgErrorOf(attributes, message)
	case "state":
		e.EventType = agentdbgStateUpdate
		e.Payload = rows.Of("state", rows.Unquoted(rows.OrNull(attributes.Get("state"))),
			"diff", rows.Unquoted(rows.OrNull(attributes.Get("diff"))))
	case "maida.loop.warning":
		e.EventType, e.Payload = agentdbgLoopWarning, slices.Clone(attributes)
		for i, field := range attributes {
			if v := rows.Unquoted(field.Value); v[0] == '[' { // the SDK writes the list as a text
				e.Payload[i].Value = v
			}
		}
	}
}

// root reads the root: the start of the run, what happened in it, and its end.
func (d *agentdbgReader) root(e agentdbgEvent, o rows.Object, ended bool, inner []rows.Object) {
	attributes, took := o.Object("attributes"), e.DurationMS
	e.DurationMS = nil
	add := func(typ string, at, order int64, payload rows.Object) {
		one := e
		one.EventType, one.at, one.order, one.Payload = typ, at, order, payload
		d.add(one)
	}
	add(agentdbgRunStart, e.at-*took, math.MinInt64, rows.Of("run_name",
		cmp.Or(attributes.Text("maida.run_name"), e.Name), "cwd", attributes.Get("maida.cwd")))
	for _, ev := range inner {
		at, ok := rows.ParseTime(ev.Text("timestamp"))
		if !ok {
			at = e.at
		}
		one := agentdbgEvent{EventType: agentdbgOtherSpan, Payload: ev.Without("timestamp")}
		one.named(ev.Text("name"), ev.Object("attributes"), o.Text("status_description"))
		add(one.EventType, at, at, one.Payload)
	}
	if ended {
		status := agentdbgStatusOK
		if o.Text("status_code") == "ERROR" {
			status = agentdbgStatusError
		}
		add(agentdbgRunEnd, e.at, math.MaxInt64, rows.Of("status", status))
	}
}

// agentdbgModelCall is the payload of an LLM_CALL, without its status.
func agentdbgModelCall(attributes rows.Object, inner []rows.Object, name string) rows.Object {
	stop := attributes.Get("gen_ai.response.finish_reasons")
	if reasons := rows.Elements(stop); len(reasons) > 0 {
		stop = reasons[0]
	}
	p := rows.Of("model", cmp.Or(attributes.Text("gen_ai.request.model"), attributes.Text("gen_ai.response.model"), name),
		"provider", cmp.Or(attributes.Text("gen_ai.system"), attributes.Text("gen_ai.provider.name"), agentdbgUnknown),
		"temperature", rows.OrNull(attributes.Get("gen_ai.request.temperature")), "stop_reason", rows.OrNull(stop))
	usage := rows.NonEmpty("prompt_tokens", attributes.Get("gen_ai.usage.input_tokens"),
		"completion_tokens", attributes.Get("gen_ai.usage.output_tokens"))
	p.Add(rows.NonEmpty("usage", usage.Only("prompt_tokens", "completion_tokens")))
	var messages []json.RawMessage
	for i, ev := range inner {
		role := strings.TrimSuffix(strings.TrimPrefix(ev.Text("name"), "gen_ai."), ".message")
		content := ev.Object("attributes").Get("content")
		text, _ := rows.Text(content)
		said := agentdbgStructured(text)
		list := len(said) > 0 && said[0] == '['
		switch o := rows.Read(string(said)); {
		case agentdbgRoles[role] == "" || content == nil:
		case agentdbgRoles[role] == session.RoleAssistant && i == len(inner)-1:
			if p.Set("response", content); said != nil {
				p.Set("response", said)
			}
		case o.Get("messages") != nil:
			messages = append(messages, rows.Elements(o.Get("messages"))...)
		case list && bytes.Contains(said, []byte(`"role"`)):
			messages = append(messages, rows.Elements(said)...)
		default:
			if list {
				content = said
			}
			messages = append(messages, rows.Of("role", role, "content", content).JSON())
		}
	}
	if messages != nil {
		p.Set("prompt", rows.Of("messages", messages))
	}
	return p
}

func agentdbgErrorOf(attributes rows.Object, message string) rows.Object {
	return rows.Of("error_type", cmp.Or(attributes.Text("maida.error_type"), agentdbgPlainError),
		"message", cmp.Or(attributes.Text("maida.error_message"), message),
		"stack", rows.OrNull(attributes.Get("maida.error_stack")))
}
