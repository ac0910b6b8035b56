package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// The files of a run of Maida 0.4 and later, trace format 0.2: what run.json has is in
// meta.json, and spans.jsonl has a span for each event. The root is the run.
const (
	agentdbgMaidaVersion = "0.2.0"
	agentdbgMaidaName    = "maida"

	agentdbgMetaFile  = "meta.json"
	agentdbgSpansFile = "spans.jsonl"
)

// agentdbgOtherSpan is an event that a span of no known type is read as.
const agentdbgOtherSpan = "SPAN"

var agentdbgTraceID, agentdbgSpanID = regexp.MustCompile(`^[0-9a-f]{32}$`), regexp.MustCompile(`^[0-9a-f]{16}$`)

// agentdbgEncodeMaida writes the session to w as the spans.jsonl of a run of Maida: the root span
// has what its meta.json has.
func agentdbgEncodeMaida(w io.Writer, s *codec.Session) error {
	return agentdbgWriteTo(w, s, true)
}

// agentdbgEncodeMaidaFile writes the session as a run in a data directory of Maida, as [agentdbgEncodeFile]
// does in one of AgentDbg.
func agentdbgEncodeMaidaFile(dir string, s *codec.Session, replace bool) (path string, err error) {
	return agentdbgWriteRun(dir, s, replace, true)
}

// agentdbgTraceOf returns the trace id of the run that a session is written as.
func agentdbgTraceOf(sessionID string) string {
	if id := strings.ReplaceAll(sessionID, "-", ""); agentdbgTraceID.MatchString(id) {
		return id
	}
	return strings.ReplaceAll(agentdbgRunID(sessionID), "-", "")
}

// agentdbgSpanOf returns the span id of an event.
func agentdbgSpanOf(eventID string) string { return strings.ReplaceAll(eventID, "-", "")[:16] }

// maidaMeta is a run.json as a meta.json.
func (f *agentdbgFormatted) maidaMeta() rows.Object {
	o := rows.Of("spec_version", agentdbgMaidaVersion, "trace_id", f.id)
	o.Add(f.run.Without("spec_version", "run_id", "last_event_ts"))
	o.Set("started_at", agentdbgMicro(o.Get("started_at")))
	o.Set("ended_at", agentdbgMicro(o.Get("ended_at")))
	return o
}

// agentdbgMicro gives a time the microseconds that Maida writes.
func agentdbgMicro(at json.RawMessage) json.RawMessage {
	return bytes.Replace(at, []byte(`Z"`), []byte(`000Z"`), 1)
}

// spans are the run's events as spans, the root first. What analyses runs sorts spans by
// their starts, so none starts before the one above it.
func (f *agentdbgFormatted) spans() (all []rows.Object) {
	started := f.events[0].at
	for i := range f.events {
		e := &f.events[i]
		if e.EventType == agentdbgRunEnd {
			continue
		}
		started = max(started, e.at-*cmp.Or(e.DurationMS, new(int64)))
		all = append(all, f.span(e, started))
	}
	return all
}

// span is an event as a span, which has its payload as attributes and as events.
func (f *agentdbgFormatted) span(e *agentdbgEventJSON, started int64) rows.Object {
	attributes, events, p := rows.Object{}, []rows.Object{}, e.Payload
	at := agentdbgMicro(rows.Raw(e.TS))
	event := func(name string, attributes rows.Object) {
		events = append(events, rows.Of("name", name, "timestamp", at, "attributes", attributes))
	}
	known := func(o rows.Object, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			if o.Has(pairs[i+1]) {
				attributes.Set(pairs[i], o.Get(pairs[i+1]))
			}
		}
	}
	values := func(name string, keys ...string) { // as JSON texts
		o := p.Only(keys...)
		for i := range o {
			o[i].Value = rows.Raw(string(o[i].Value))
		}
		if o != nil {
			event(name, o)
		}
	}
	name, kind, code, description := e.Name, "INTERNAL", "OK", ""
	ended, took := at, rows.Raw(max(0, e.at-started))
	failure := p.Object("error")
	switch e.EventType {
	case agentdbgRunStart:
		name, ended, took = cmp.Or(name, "run"), agentdbgMicro(f.run.Get("ended_at")), f.run.Get("duration_ms")
		known(p, "maida.run_name", "run_name", "maida.cwd", "cwd")
		known(f.run.Object("counts"), "maida.llm_calls", "llm_calls", "maida.tool_calls", "tool_calls",
			"maida.errors", "errors", "maida.loop_warnings", "loop_warnings")
		switch f.run.Text("status") {
		case agentdbgStatusRunning:
			code = "UNSET"
		case agentdbgStatusError:
			code, description = "ERROR", agentdbgStatusError
		}
	case agentdbgLlmCall:
		kind = "CLIENT"
		attributes.Set("gen_ai.operation.name", "chat")
		known(p, "gen_ai.system", "provider", "gen_ai.request.model", "model", "maida.status", "status",
			"gen_ai.request.temperature", "temperature", "gen_ai.response.finish_reasons", "stop_reason")
		known(p.Object("usage"), "gen_ai.usage.input_tokens", "prompt_tokens",
			"gen_ai.usage.output_tokens", "completion_tokens", "gen_ai.usage.total_tokens", "total_tokens")
		said := func(role string, content json.RawMessage, dataType string) {
			event("gen_ai."+role+".message", rows.Of("content", agentdbgEventText(content, dataType)))
		}
		prompt := p.Get("prompt")
		if _, ok := rows.Text(prompt); ok {
			said(session.RoleUser, prompt, agentdbgDataPrompt)
		}
		for m := range rows.Objects(rows.Read(string(prompt)).Get("messages")) {
			said(m.Text("role"), m.Get("content"), agentdbgDataPrompt)
		}
		if p.Has("response") {
			said(session.RoleAssistant, p.Get("response"), agentdbgDataResponse)
		}
	case agentdbgToolCall:
		known(p, "maida.tool_name", "tool_name", "maida.status", "status")
		values("maida.tool.args", "args")
		values("maida.tool.result", "result")
	case agentdbgStateUpdate:
		values("state", "state", "diff")
	case agentdbgLoopWarning:
		name = "loop_warning"
		attributes.Set("maida.event_type", agentdbgLoopWarning)
		warning := slices.Clone(p)
		for i, field := range warning {
			if c := field.Value[0]; c == '[' || c == '{' { // as the SDK writes what is no attribute's value
				warning[i].Value = rows.Raw(string(field.Value))
			}
		}
		event("maida.loop.warning", warning)
	case agentdbgErrorEvent:
		name, failure = "exception", p
	}
	if failure != nil {
		code, description = "ERROR", failure.Text("message")
		known(failure, "maida.error_type", "error_type", "maida.error_message", "message", "maida.error_stack", "stack")
	}
	o := rows.Of("trace_id", f.id, "span_id", agentdbgSpanOf(e.EventID), "parent_span_id", nil, "name", name,
		"kind", kind, "start_time", agentdbgMicro(rows.Raw(rows.FormatTime(started))), "end_time", ended,
		"duration_ms", took, "attributes", attributes, "events", events, "status_code", code,
		"status_description", description)
	if e.ParentID != nil {
		o.Set("parent_span_id", agentdbgSpanOf(*e.ParentID))
	}
	return o
}

// agentdbgEventText is what somebody said as the text of an event: a text as it is, and anything else as its parts,
// also a text that would be read as parts. What is in no form of parts is the data of one.
func agentdbgEventText(said json.RawMessage, dataType string) string {
	text, ok := rows.Text(said)
	if parts := rows.Elements(said); len(parts) == 1 {
		if part := rows.Read(string(parts[0])); agentdbgIsPlainText(part) {
			text, ok = part.Text("text"), true
		}
	}
	part := rows.DataPart(dataType, said)
	switch structured := agentdbgStructured(text); {
	case ok && structured == nil:
		return text
	case ok:
		part = rows.TextPart("text", text)
	case agentdbgStructured(string(said)) != nil:
		return string(said)
	}
	return string(rows.Raw([]rows.Object{part}))
}

// agentdbgStructured returns the value of a text that is messages or parts of one in JSON: a list
// of objects with a role or a type, or an object that has such a list. A text that is
// other JSON is what somebody said, and nil is returned.
func agentdbgStructured(text string) json.RawMessage {
	if text == "" || text[0] != '[' && text[0] != '{' {
		return nil
	}
	v, err := rows.Value([]byte(text))
	if err != nil {
		v, err = rows.Value([]byte(agentdbgFromPython(text)))
	}
	if err != nil {
		return nil
	}
	list := v
	if o, err := rows.Parse(v); err == nil {
		if list = o.Get("messages"); list == nil {
			list = o.Get("content")
		}
	}
	all := rows.Elements(list)
	for _, v := range all {
		if o := rows.Read(string(v)); o.Text("role") == "" && o.Text("type") == "" {
			return nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	return v
}

var (
	agentdbgPythonToken  = regexp.MustCompile(`(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:None|True|False)\b`)
	agentdbgPythonEscape = strings.NewReplacer(`\\`, `\\`, `\'`, `'`, `\"`, `\"`, `"`, `\"`, `\x`, `\u00`)
)

// agentdbgFromPython spells a list or a dictionary as Python prints it, which is how the SDK writes
// prompts that are no texts, as JSON.
func agentdbgFromPython(text string) string {
	return agentdbgPythonToken.ReplaceAllStringFunc(text, func(word string) string {
		switch word {
		case "None":
			return "null"
		case "True", "False":
			return strings.ToLower(word)
		}
		return `"` + agentdbgPythonEscape.Replace(word[1:len(word)-1]) + `"`
	})
}

// projected makes an event of those that "maida export" makes of spans one of 0.1: its time
// is that of the start, unknown counts are null, and the root may follow what it begins with.
func (e *agentdbgEvent) projected() {
	switch e.typ {
	case agentdbgRunStart:
		e.order = math.MinInt64
	case agentdbgRunEnd:
		e.order = math.MaxInt64
	case agentdbgLlmCall, agentdbgToolCall:
		e.at += e.tookMS
	}
	for _, key := range []string{"prompt", "response"} {
		if v := agentdbgStructured(e.payload.Text(key)); v != nil {
			e.payload.Set(key, v)
		}
	}
	if usage := e.payload.Object("usage"); usage != nil {
		e.payload.Set("usage", usage.Only("prompt_tokens", "completion_tokens"))
	}
}

// span reads a span as the events that it stands for.
func (d *agentdbgReader) span(o rows.Object, line int) []agentdbgEvent {
	start := d.time(o, "start_time", "span", line)
	end, ended := rows.ParseTime(o.Text("end_time"))
	if !ended && o.Has("end_time") {
		d.problem(line, "end_time is not a time: the end of the span is unknown")
	}
	end = max(end, start)
	e := agentdbgEvent{line: line, id: o.Text("span_id"), runID: o.Text("trace_id"), name: o.Text("name"),
		at: end, tookMS: end - start, order: start, span: true}
	attributes := o.Object("attributes")
	inner := slices.Collect(rows.Objects(o.Get("events")))
	if o.Text("parent_span_id") == "" {
		return agentdbgRootEvents(e, o, ended, inner)
	}
	status, failure := agentdbgStatusOK, rows.OrNull(nil)
	if o.Text("status_code") == "ERROR" {
		status, failure = agentdbgStatusError, agentdbgErrorOf(attributes, o.Text("status_description")).JSON()
	}
	switch {
	case attributes.Has("gen_ai.system") || attributes.Has("gen_ai.operation.name"):
		e.typ = agentdbgLlmCall
		e.payload = agentdbgModelCall(attributes, inner, e.name)
		e.payload.Add(rows.Of("status", status, "error", failure))
	case attributes.Has("maida.tool_name"):
		e.typ = agentdbgToolCall
		if !ended && status == agentdbgStatusOK {
			status, failure = agentdbgStatusError, rows.Of("error_type", agentdbgUnfinished).JSON()
		}
		e.payload = rows.Of("tool_name", attributes.Text("maida.tool_name"), "status", status, "error", failure)
		for _, field := range agentdbgAttributesOf(inner).Only("args", "result") {
			e.payload.Set(field.Key, rows.Unquoted(field.Value))
		}
	case e.name == "state":
		e.typ, e.payload = agentdbgNamedEvent("state", agentdbgAttributesOf(inner), "")
	case e.name == "loop_warning" || attributes.Text("maida.event_type") == agentdbgLoopWarning:
		e.typ, e.payload = agentdbgNamedEvent("maida.loop.warning", agentdbgAttributesOf(inner), "")
	case attributes.Has("maida.error_type"):
		e.typ, e.payload = agentdbgNamedEvent("exception", attributes, "")
	default:
		e.typ = agentdbgOtherSpan
		e.payload = o.Without("trace_id", "span_id", "parent_span_id", "start_time", "end_time", "duration_ms")
	}
	return []agentdbgEvent{e}
}

// agentdbgAttributesOf are those of all events in a span.
func agentdbgAttributesOf(events []rows.Object) (all rows.Object) {
	for _, ev := range events {
		all.Add(ev.Object("attributes"))
	}
	return all
}

// agentdbgNamedEvent is what an event in a span is by its name; nothing for one of another name.
func agentdbgNamedEvent(name string, attributes rows.Object, message string) (typ string, payload rows.Object) {
	switch name {
	case "exception":
		return agentdbgErrorEvent, agentdbgErrorOf(attributes, message)
	case "state":
		return agentdbgStateUpdate, rows.Of("state", rows.Unquoted(rows.OrNull(attributes.Get("state"))),
			"diff", rows.Unquoted(rows.OrNull(attributes.Get("diff"))))
	case "maida.loop.warning":
		payload = slices.Clone(attributes)
		for i, field := range payload {
			if v := rows.Unquoted(field.Value); v[0] == '[' { // the SDK writes the list as a text
				payload[i].Value = v
			}
		}
		return agentdbgLoopWarning, payload
	}
	return "", nil
}

// agentdbgRootEvents are those of the root: the start of the run, what happened in it, and its end.
func agentdbgRootEvents(e agentdbgEvent, o rows.Object, ended bool, inner []rows.Object) []agentdbgEvent {
	attributes := o.Object("attributes")
	first, last := e, e
	first.typ, first.at, first.tookMS, first.order = agentdbgRunStart, e.order, 0, math.MinInt64
	first.payload = rows.Of("run_name", cmp.Or(attributes.Text("maida.run_name"), e.name),
		"cwd", attributes.Get("maida.cwd"))
	events := []agentdbgEvent{first}
	for _, ev := range inner {
		at, ok := rows.ParseTime(ev.Text("timestamp"))
		if !ok {
			at = e.at
		}
		one := agentdbgEvent{line: e.line, id: e.id, runID: e.runID, at: at, order: at, span: true}
		message := o.Text("status_description")
		one.typ, one.payload = agentdbgNamedEvent(ev.Text("name"), ev.Object("attributes"), message)
		if one.typ == "" {
			one.typ, one.payload = agentdbgOtherSpan, ev.Without("timestamp")
		}
		events = append(events, one)
	}
	if ended {
		last.typ, last.tookMS, last.order = agentdbgRunEnd, 0, math.MaxInt64
		last.payload = rows.Of("status", agentdbgStatusOK)
		if o.Text("status_code") == "ERROR" {
			last.payload.Set("status", agentdbgStatusError)
		}
		events = append(events, last)
	}
	return events
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
