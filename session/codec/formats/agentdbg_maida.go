package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
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

// agentdbgMaidaLosses are what a run of Maida does not hold of a session.
var agentdbgMaidaLosses = func() codec.Losses {
	all := slices.Clone(agentdbgLosses)
	all[0].Note = "a run has a trace id, and calls have those of spans; times are those of spans"
	return all
}()

// agentdbgEncodeMaida writes the session to w as the spans.jsonl of a run of Maida: the root span
// has what its meta.json has. It does not change s. Rows that make no tree are refused.
func agentdbgEncodeMaida(w io.Writer, s *codec.Session) error {
	f, err := agentdbgFormat(s, true)
	if err != nil {
		return err
	}
	if _, err := w.Write(f.lines()); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
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
func agentdbgSpanOf(eventID string) string {
	if agentdbgSpanID.MatchString(eventID) {
		return eventID
	}
	return strings.ReplaceAll(eventID, "-", "")[:16]
}

// maidaMeta is a run.json as a meta.json.
func (f *agentdbgFormatted) maidaMeta() rows.Object {
	return rows.Of("spec_version", agentdbgMaidaVersion, "trace_id", f.id, "run_name", f.meta.Get("run_name"),
		"started_at", agentdbgMicro(f.meta.Get("started_at")), "ended_at", agentdbgMicro(f.meta.Get("ended_at")),
		"duration_ms", f.meta.Get("duration_ms"), "status", f.meta.Get("status"), "counts", f.meta.Get("counts"))
}

// agentdbgMicro gives a time the microseconds that Maida writes.
func agentdbgMicro(at json.RawMessage) json.RawMessage {
	if text, ok := rows.Text(at); ok {
		return rows.Raw(strings.TrimSuffix(text, "Z") + "000Z")
	}
	return rows.OrNull(at)
}

// spans are the run's events as spans, the root first. What analyses runs sorts spans by
// their starts, so none starts before the one above it.
func (f *agentdbgFormatted) spans() (all []rows.Object) {
	root := &f.events[0]
	started := root.at
	for i := range f.events {
		e := &f.events[i]
		if e.EventType == agentdbgRunEnd {
			continue
		}
		kind, parent, name := "INTERNAL", any(nil), e.Name
		if e.ParentID != nil {
			parent = agentdbgSpanOf(*e.ParentID)
		}
		attributes, events := f.content(e)
		code, description := "OK", ""
		if e.DurationMS != nil {
			started = max(started, e.at-*e.DurationMS)
		} else {
			started = max(started, e.at)
		}
		ended, took := agentdbgMicro(rows.Raw(e.TS)), rows.Raw(max(0, e.at-started))
		failure := e.Payload.Object("error")
		switch e.EventType {
		case agentdbgRunStart:
			name = cmp.Or(name, "run")
			ended, took = agentdbgMicro(f.meta.Get("ended_at")), f.meta.Get("duration_ms")
			switch f.meta.Text("status") {
			case agentdbgStatusRunning:
				code = "UNSET"
			case agentdbgStatusError:
				failure = rows.Of("message", agentdbgStatusError)
			}
		case agentdbgLlmCall:
			kind = "CLIENT"
		case agentdbgErrorEvent:
			name, failure = "exception", e.Payload
		case agentdbgLoopWarning:
			name = "loop_warning"
		}
		if failure != nil {
			code, description = "ERROR", failure.Text("message")
		}
		all = append(all, rows.Of("trace_id", f.id, "span_id", agentdbgSpanOf(e.EventID), "parent_span_id", parent,
			"name", name, "kind", kind, "start_time", agentdbgMicro(rows.Raw(rows.FormatTime(started))), "end_time", ended,
			"duration_ms", took, "attributes", attributes, "events", events, "status_code", code,
			"status_description", description))
	}
	return all
}

// content returns the attributes of an event's span, and the events in it.
func (f *agentdbgFormatted) content(e *agentdbgEventJSON) (attributes rows.Object, events []rows.Object) {
	attributes, events = rows.Object{}, []rows.Object{}
	add := func(name string, attributes rows.Object) {
		events = append(events, rows.Of("name", name, "timestamp", agentdbgMicro(rows.Raw(e.TS)), "attributes", attributes))
	}
	known := func(o rows.Object, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			if v := o.Get(pairs[i+1]); v != nil && string(v) != "null" {
				attributes.Set(pairs[i], v)
			}
		}
	}
	p := e.Payload
	values := func(keys ...string) (o rows.Object) { // as JSON texts
		for _, key := range keys {
			if v := p.Get(key); v != nil && string(v) != "null" {
				o.Set(key, string(v))
			}
		}
		return o
	}
	failure := p.Object("error")
	switch e.EventType {
	case agentdbgRunStart:
		known(p, "maida.run_name", "run_name", "maida.cwd", "cwd")
		known(f.meta.Object("counts"), "maida.llm_calls", "llm_calls", "maida.tool_calls", "tool_calls",
			"maida.errors", "errors", "maida.loop_warnings", "loop_warnings")
	case agentdbgLlmCall:
		attributes.Set("gen_ai.operation.name", "chat")
		known(p, "gen_ai.system", "provider", "gen_ai.request.model", "model", "maida.status", "status",
			"gen_ai.request.temperature", "temperature", "gen_ai.response.finish_reasons", "stop_reason")
		known(p.Object("usage"), "gen_ai.usage.input_tokens", "prompt_tokens",
			"gen_ai.usage.output_tokens", "completion_tokens", "gen_ai.usage.total_tokens", "total_tokens")
		for _, m := range agentdbgPromptMessages(p.Get("prompt")) {
			add("gen_ai."+m.Text("role")+".message", rows.Of("content", agentdbgPromptText(m.Get("content"))))
		}
		if response := p.Get("response"); string(response) != "null" {
			add("gen_ai.assistant.message", rows.Of("content", agentdbgResponseText(response)))
		}
	case agentdbgToolCall:
		known(p, "maida.tool_name", "tool_name", "maida.status", "status")
		for _, key := range []string{"args", "result"} {
			if o := values(key); o != nil {
				add("maida.tool."+key, o)
			}
		}
	case agentdbgStateUpdate:
		if o := values("state", "diff"); o != nil {
			add("state", o)
		}
	case agentdbgLoopWarning:
		attributes.Set("maida.event_type", agentdbgLoopWarning)
		warning := slices.Clone(p)
		for i, field := range warning {
			if c := field.Value[0]; c == '[' || c == '{' { // as the SDK writes what is no attribute's value
				warning[i].Value = rows.Raw(string(field.Value))
			}
		}
		add("maida.loop.warning", warning)
	case agentdbgErrorEvent:
		failure = p
	}
	known(failure, "maida.error_type", "error_type", "maida.error_message", "message", "maida.error_stack", "stack")
	return attributes, events
}

// agentdbgPromptMessages are the messages of a prompt that was drafted.
func agentdbgPromptMessages(prompt json.RawMessage) (all []rows.Object) {
	if _, ok := rows.Text(prompt); ok {
		return []rows.Object{rows.Of("role", session.RoleUser, "content", prompt)}
	}
	o, _ := rows.Parse(prompt) // otherwise there is none
	return slices.Collect(rows.Objects(o.Get("messages")))
}

// agentdbgPromptText is the content of a message as the text of an event: a text as it is, and
// anything else as its parts, also a text that would be read as parts.
func agentdbgPromptText(content json.RawMessage) string {
	text, ok := rows.Text(content)
	if parts := rows.Elements(content); !ok && len(parts) == 1 {
		if part, err := rows.Parse(parts[0]); err == nil && agentdbgIsPlainText(part) {
			text, ok = part.Text("text"), true
		}
	}
	switch {
	case !ok:
		return string(content)
	case agentdbgStructured(text) != nil:
		return string(rows.Raw([]rows.Object{rows.TextPart("text", text)}))
	}
	return text
}

// agentdbgResponseText is a response as the text of an event.
func agentdbgResponseText(response json.RawMessage) string {
	text, ok := rows.Text(response)
	part := rows.DataPart(agentdbgDataResponse, response)
	switch {
	case ok && agentdbgStructured(text) == nil:
		return text
	case ok:
		part = rows.TextPart("text", text)
	case agentdbgStructured(string(response)) != nil:
		return string(response)
	}
	return string(rows.Of("content", []rows.Object{part}).JSON())
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
		v, err = rows.Value(agentdbgFromPython(text))
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
		if o, err := rows.Parse(v); err != nil || o.Text("role") == "" && o.Text("type") == "" {
			return nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	return v
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
	for i, field := range e.payload {
		switch text, _ := rows.Text(field.Value); field.Key {
		case "prompt", "response":
			if v := agentdbgStructured(text); v != nil {
				e.payload[i].Value = v
			}
		case "usage":
			if usage := e.payload.Object("usage"); usage != nil {
				e.payload[i].Value = usage.Only("prompt_tokens", "completion_tokens").JSON()
			}
		}
	}
}

// agentdbgFromPython spells a list or a dictionary as Python prints it, which is how the SDK writes
// prompts that are no texts, as JSON.
func agentdbgFromPython(text string) (out []byte) {
	for text != "" {
		word := agentdbgPythonToken.FindString(text)
		text = text[len(word):]
		switch c := word[0]; {
		case (c == '\'' || c == '"') && len(word) > 1:
			inner := agentdbgPythonEscape.ReplaceAllStringFunc(word[1:len(word)-1], func(escape string) string {
				switch {
				case escape == `"`:
					return `\"`
				case escape == `\'`:
					return "'"
				case escape[1] == 'x':
					return `\u00` + escape[2:]
				case escape[1] == 'U':
					r, _ := strconv.ParseInt(escape[2:], 16, 32)
					return string(rune(r))
				}
				return escape
			})
			out = append(append(append(out, '"'), inner...), '"')
		case agentdbgPythonWords[word] != "":
			out = append(out, agentdbgPythonWords[word]...)
		default:
			out = append(out, word...)
		}
	}
	return out
}

var (
	agentdbgPythonToken  = regexp.MustCompile(`(?s)^(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\w+|.)`)
	agentdbgPythonEscape = regexp.MustCompile(`\\x[0-9a-f]{2}|\\U[0-9a-f]{8}|(?s)\\.|"`)
	agentdbgPythonWords  = map[string]string{"None": "null", "True": "true", "False": "false"}
)

// span appends the events of a span to those of its run. order sorts them.
func (d *agentdbgDecoder) span(
	events []agentdbgEvent, all rows.Object, line int, file string, before *int64,
) []agentdbgEvent {
	start, ok := rows.ParseTime(all.Text("start_time"))
	if !ok {
		start = *before
		d.problem(line, file, "start_time is not a time: took that of the span before it")
	}
	*before = start
	end, ended := rows.ParseTime(all.Text("end_time"))
	if end = max(end, start); !ended && all.Text("end_time") != "" {
		d.problem(line, file, "end_time is not a time: the end of the span is unknown")
	}
	e := agentdbgEvent{line: line, id: all.Text("span_id"), runID: all.Text("trace_id"), name: all.Text("name"),
		at: end, tookMS: end - start, order: start, span: true}
	attributes := all.Object("attributes")
	inner := slices.Collect(rows.Objects(all.Get("events")))
	if parent := all.Text("parent_span_id"); parent == "" {
		return append(events, agentdbgRootEvents(e, all, start, ended, inner)...)
	}
	failed := all.Text("status_code") == "ERROR"
	failure := rows.OrNull(nil)
	if failed {
		failure = agentdbgErrorOf(attributes, all.Text("status_description")).JSON()
	}
	status := map[bool]string{false: agentdbgStatusOK, true: agentdbgStatusError}[failed]
	switch {
	case attributes.Has("gen_ai.system") || attributes.Has("gen_ai.operation.name"):
		e.typ = agentdbgLlmCall
		e.payload = agentdbgModelCall(attributes, inner, e.name)
		e.payload.Add(rows.Of("status", status, "error", failure))
	case attributes.Has("maida.tool_name"):
		e.typ = agentdbgToolCall
		if !ended && !failed {
			status, failure = agentdbgStatusError, rows.Of("error_type", agentdbgUnfinished).JSON()
		}
		e.payload = rows.Of("tool_name", attributes.Text("maida.tool_name"), "status", status, "error", failure)
		for _, ev := range inner {
			key := strings.TrimPrefix(ev.Text("name"), "maida.tool.")
			if v := ev.Object("attributes").Get(key); v != nil && (key == "args" || key == "result") {
				e.payload.Set(key, agentdbgDecoded(v))
			}
		}
	case e.name == "state":
		e.typ, e.payload = agentdbgStateUpdate, rows.Of("state", nil, "diff", nil)
		for _, ev := range inner {
			e.payload.Add(agentdbgStateOf(ev.Object("attributes")))
		}
	case e.name == "loop_warning" || attributes.Text("maida.event_type") == agentdbgLoopWarning:
		e.typ = agentdbgLoopWarning
		for _, ev := range inner {
			e.payload.Add(agentdbgWarningOf(ev.Object("attributes")))
		}
	case attributes.Has("maida.error_type"):
		e.typ, e.payload = agentdbgErrorEvent, agentdbgErrorOf(attributes, "")
	default:
		e.typ, e.payload = agentdbgOtherSpan, all.Without("trace_id", "span_id", "parent_span_id", "start_time", "end_time",
			"duration_ms")
	}
	return append(events, e)
}

// agentdbgRootEvents are those of the root: the start of the run, what happened in it, and its end.
func agentdbgRootEvents(
	e agentdbgEvent, all rows.Object, start int64, ended bool, inner []rows.Object,
) []agentdbgEvent {
	attributes := all.Object("attributes")
	first := e
	first.typ, first.at, first.tookMS, first.order = agentdbgRunStart, start, 0, math.MinInt64
	first.payload = rows.Of("run_name", cmp.Or(attributes.Text("maida.run_name"), e.name),
		"cwd", attributes.Get("maida.cwd"))
	events := []agentdbgEvent{first}
	for _, ev := range inner {
		at, ok := rows.ParseTime(ev.Text("timestamp"))
		if !ok {
			at = e.at
		}
		one := agentdbgEvent{line: e.line, id: e.id, runID: e.runID, at: at, order: at, span: true}
		switch attributes := ev.Object("attributes"); ev.Text("name") {
		case "exception":
			one.typ, one.payload = agentdbgErrorEvent, agentdbgErrorOf(attributes, all.Text("status_description"))
		case "state":
			one.typ, one.payload = agentdbgStateUpdate, agentdbgStateOf(attributes)
		case "maida.loop.warning":
			one.typ, one.payload = agentdbgLoopWarning, agentdbgWarningOf(attributes)
		default:
			one.typ, one.payload = agentdbgOtherSpan, ev.Without("timestamp")
		}
		events = append(events, one)
	}
	if ended {
		last := e
		last.typ, last.tookMS, last.order = agentdbgRunEnd, 0, math.MaxInt64
		last.payload = rows.Of("status", agentdbgStatusOK)
		if all.Text("status_code") == "ERROR" {
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
	var usage rows.Object
	for _, keys := range [][2]string{{"prompt_tokens", "input"}, {"completion_tokens", "output"}} {
		if v := attributes.Get("gen_ai.usage." + keys[1] + "_tokens"); v != nil && string(v) != "null" {
			usage.Set(keys[0], v)
		}
	}
	if usage != nil {
		p.Set("usage", usage)
	}
	var messages []json.RawMessage
	for i, ev := range inner {
		role := strings.TrimSuffix(strings.TrimPrefix(ev.Text("name"), "gen_ai."), ".message")
		content := ev.Object("attributes").Get("content")
		text, isText := rows.Text(content)
		said := agentdbgStructured(text)
		switch o, _ := rows.Parse(said); {
		case agentdbgRoles[role] == "" || content == nil:
		case agentdbgRoles[role] == session.RoleAssistant && i == len(inner)-1:
			if p.Set("response", content); isText && said != nil {
				p.Set("response", said)
			}
		case o.Get("messages") != nil:
			messages = append(messages, rows.Elements(o.Get("messages"))...)
		case bytes.Contains(said, []byte(`"role"`)) && o == nil:
			messages = append(messages, rows.Elements(said)...)
		default:
			if said != nil && o == nil {
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

// agentdbgDecoded is the value of an attribute that is JSON in a text, or the attribute itself.
func agentdbgDecoded(v json.RawMessage) json.RawMessage {
	if text, ok := rows.Text(v); ok {
		if inner, err := rows.Value([]byte(text)); err == nil {
			return inner
		}
	}
	return v
}

func agentdbgStateOf(attributes rows.Object) rows.Object {
	return rows.Of("state", agentdbgDecoded(rows.OrNull(attributes.Get("state"))),
		"diff", agentdbgDecoded(rows.OrNull(attributes.Get("diff"))))
}

// agentdbgWarningOf is a loop warning, whose list the SDK writes as a text.
func agentdbgWarningOf(attributes rows.Object) rows.Object {
	warning := slices.Clone(attributes)
	for i, field := range warning {
		if v := agentdbgDecoded(field.Value); v[0] == '[' {
			warning[i].Value = v
		}
	}
	return warning
}

func agentdbgErrorOf(attributes rows.Object, message string) rows.Object {
	return rows.Of("error_type", cmp.Or(attributes.Text("maida.error_type"), agentdbgPlainError),
		"message", cmp.Or(attributes.Text("maida.error_message"), message),
		"stack", rows.OrNull(attributes.Get("maida.error_stack")))
}
