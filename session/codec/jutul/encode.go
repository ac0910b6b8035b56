package jutul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// encode returns the events of the session: without carried rows where the
// events alone give the same session again, else with them.
func encode(s *codec.Session) []event {
	plain := encodeEvents(s, false)
	if again, _ := decodeEvents(plain, true, func(codec.Problem) {}); rows.Equal(s, again) {
		return plain
	}
	return encodeEvents(s, true)
}

func encodeEvents(s *codec.Session, carry bool) []event {
	t := s.Sorted()
	e := &encoder{s: s, carry: carry, foreign: carry && metaOf(&t.Session).Object("jutul") == nil}
	e.session(&t.Session)
	for i := range t.Messages {
		e.message(t, i)
	}
	e.flush(1<<63-1, true)
	return e.events
}

// encoder writes events in the order of the rows. What has a time but no row of
// its own waits until its time has come.
type encoder struct {
	s       *codec.Session
	carry   bool
	foreign bool // the session never was a trace
	events  []event
	carrier *rows.Carrier     // of the next event
	steps   []json.RawMessage // rows of the message's step-starts that no event carries yet
	last    int64
	waiting []waiting // in order of at
}

type waiting struct {
	at      int64
	kind    string
	payload rows.Object
}

func (e *encoder) emit(at int64, kind string, payload rows.Object) {
	if e.carry {
		c := e.carrier
		if c == nil {
			c = &rows.Carrier{Derived: true}
		}
		payload = slices.Clone(payload)
		payload.Set(rows.CarrierKey, c)
		e.carrier = nil
		// The rows have their own times, so the events' may be in order.
		at = max(at, e.last)
	}
	e.last = at
	e.events = append(e.events, event{
		id: int64(len(e.events) + 1), timestamp: formatTime(at), kind: kind,
		payload: string(appendPython(nil, payload.JSON())),
	})
}

// row emits an event that stands for a row.
func (e *encoder) row(at int64, kind string, payload rows.Object) {
	e.flush(at, false)
	e.emit(at, kind, payload)
}

// later keeps an event until its time.
func (e *encoder) later(at int64, kind string, payload rows.Object) {
	i, _ := slices.BinarySearchFunc(e.waiting, at, func(w waiting, at int64) int {
		if w.at <= at {
			return -1
		}
		return 1
	})
	e.waiting = slices.Insert(e.waiting, i, waiting{at, kind, payload})
}

// flush emits what waited for a time up to at; the session's end only when
// everything else of that time is there.
func (e *encoder) flush(at int64, all bool) {
	carrier := e.carrier
	e.carrier = nil
	n := 0
	for n < len(e.waiting) {
		w := &e.waiting[n]
		if w.at > at || !all && w.kind == kindEnd && w.at == at {
			break
		}
		e.emit(w.at, w.kind, w.payload)
		n++
	}
	e.waiting = slices.Delete(e.waiting, 0, n)
	e.carrier = carrier
}

func metaOf(row *session.Session) rows.Object {
	meta, _ := rows.Parse([]byte(row.MetadataJSON)) // not an object: nothing is known
	return meta
}

// sessionEvents returns the events of the session's life that its metadata has.
func sessionEvents(row *session.Session) []waiting {
	var all []waiting
	for _, raw := range rows.Elements(metaOf(row).Object("jutul").Get("session_events")) {
		o, err := rows.Parse(raw)
		if err != nil {
			continue
		}
		w := waiting{kind: o.Text("kind"), payload: o.Object("payload")}
		switch w.kind {
		case kindStart, kindResume, kindTitle, kindEnd:
			if json.Unmarshal(o.Get("at"), &w.at) == nil && w.payload != nil && w.at >= 0 && w.at <= maxTime {
				all = append(all, w)
			}
		}
	}
	return all
}

// maxTime is the end of the year 9999, the last that Python can read.
const maxTime = 253402300799999

func (e *encoder) session(row *session.Session) {
	all := sessionEvents(row)
	if e.carry {
		// The carrier stands on the first event, which begins the session.
		e.carrier = rows.SessionCarrier(e.s)
		payload := rows.Object{}
		payload.Set("session_id", row.ID)
		payload.Set("simulator", nil)
		at := row.CreatedAt
		if i := slices.IndexFunc(all, func(w waiting) bool { return w.kind == kindStart }); i >= 0 {
			at, payload = all[i].at, all[i].payload
			all = slices.Delete(all, i, i+1)
			payload.Set("session_id", row.ID)
		}
		e.emit(at, kindStart, payload)
		if row.Title != session.Untitled && !slices.ContainsFunc(all, func(w waiting) bool { return w.kind == kindTitle }) {
			title := rows.Object{}
			title.Set("session_id", row.ID)
			title.Set("title", row.Title)
			e.emit(at, kindTitle, title)
		}
		e.decisions()
	}
	for _, w := range all {
		e.later(w.at, w.kind, w.payload)
	}
}

// decisions writes those that no hitl_request of the session stands for as
// requests and responses.
func (e *encoder) decisions() {
	for i := range e.s.Messages {
		for j := range e.s.Messages[i].Parts {
			if !e.foreign && e.s.Messages[i].Parts[j].Type == "data-"+kindRequest {
				return
			}
		}
	}
	for i := range e.s.Decisions {
		o := &e.s.Decisions[i]
		if o.Action != "ask" {
			continue // nobody was asked
		}
		asked := o.DecidedAt
		if o.WaitedMS != nil {
			asked -= *o.WaitedMS
		}
		action := rows.Object{}
		action.Set("name", o.ToolID)
		action.Set("args", e.input(o))
		request := rows.Object{}
		request.Set("interrupt_id", o.ID)
		request.Set("value", map[string]any{"action_requests": []rows.Object{action}})
		e.later(asked, kindRequest, request)
		typ := map[string]string{"allowed": "approve", "denied": "reject"}[o.Outcome]
		if typ == "" {
			continue
		}
		decision := rows.Object{}
		decision.Set("type", typ)
		if o.Reason != "" {
			decision.Set("message", o.Reason)
		}
		response := rows.Object{}
		response.Set("interrupt_id", o.ID)
		response.Set("payload", map[string]any{"decisions": []rows.Object{decision}})
		e.later(o.DecidedAt, kindResponse, response)
	}
}

// input returns the input of the call that the decision is about.
func (e *encoder) input(o *store.Decision) json.RawMessage {
	for i := range e.s.Messages {
		for j := range e.s.Messages[i].Parts {
			p := &e.s.Messages[i].Parts[j]
			if o.ToolCallID == "" || p.ToolCallID == nil || *p.ToolCallID != o.ToolCallID {
				continue
			}
			data, err := rows.Parse([]byte(p.DataJSON))
			if input := data.Get("input"); err == nil && input != nil {
				return input
			}
		}
	}
	return json.RawMessage("{}")
}

func (e *encoder) message(t *session.Transcript, i int) {
	m := &t.Messages[i]
	if e.carry {
		e.carrier = &rows.Carrier{Message: m.Message.AppendJSON(nil)}
		if len(m.Parts) == 0 {
			e.row(m.Message.CreatedAt, kindMessage, rows.Object{})
		}
	}
	counted := false
	for j := range m.Parts {
		counted = counted || m.Parts[j].Type == "data-"+kindUsage
		e.part(t, i, &m.Parts[j])
	}
	if len(e.steps) > 0 {
		e.carryParts()
		e.row(m.Parts[len(m.Parts)-1].CreatedAt, kindMessage, rows.Object{})
	}
	if u, _ := session.UsageOf(m.Message.MetadataJSON); e.carry && !counted && u != (session.Usage{}) {
		e.row(m.Message.UpdatedAt, kindUsage, usagePayload(u))
	}
}

// usagePayload counts as LangChain does.
func usagePayload(u session.Usage) rows.Object {
	o := rows.Object{}
	input, output := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	o.Set("input_tokens", input)
	o.Set("output_tokens", output)
	o.Set("total_tokens", input+output)
	var in, out rows.Object
	in.Set("cache_read", u.CacheRead)
	in.Set("cache_creation", u.CacheWrite)
	out.Set("reasoning", u.Reasoning)
	o.Set("input_token_details", in)
	o.Set("output_token_details", out)
	return o
}

func (e *encoder) part(t *session.Transcript, i int, p *session.Part) {
	if e.carry && p.Type == "step-start" {
		// It says nothing that jutul could show, so another event takes its row along.
		e.steps = append(e.steps, rows.PartRow(p, nil))
		return
	}
	data, _ := rows.Parse([]byte(p.DataJSON)) // a part without readable data is carried
	kind, payload := partEvent(t, i, p, data)
	if e.foreign {
		kind, payload = readable(kind, p.Type, payload)
	}
	var native rows.Object
	switch kind {
	case kindCall:
		native, _ = callData(payload)
	case kindReasoning:
		native = textData("reasoning", payload)
	case kindUser, kindAssistant, kindSystem:
		native = textData("text", payload)
	default:
		native = kindData(kind, payload.JSON())
	}
	if e.carry {
		e.carryParts(rows.PartRow(p, native))
	}
	e.row(p.CreatedAt, kind, payload)
	if kind != kindCall {
		return
	}
	meta := data.Object("callProviderMetadata").Object("jutul")
	var again []int64
	_ = json.Unmarshal(meta.Get("repeated_at"), &again) // none when it is not there
	for _, at := range again {
		if at >= 0 && at <= maxTime {
			e.later(at, kindCall, payload)
		}
	}
	if result := resultPayload(payload, data, meta.Object("result")); result != nil {
		e.later(p.UpdatedAt, kindResult, result)
	}
}

// carryParts makes the next event carry the rows, and those that wait.
func (e *encoder) carryParts(more ...json.RawMessage) {
	if e.carrier == nil {
		e.carrier = new(rows.Carrier)
	}
	e.carrier.Parts = append(e.steps, more...)
	e.steps = nil
}

// readable changes the event of a part that came from elsewhere into one that
// jutul's readers take: they index arguments, and read what is in the payloads of
// their own kinds as if it could only be that.
func readable(kind, partType string, payload rows.Object) (string, rows.Object) {
	ok := true
	switch kind {
	case kindCall:
		if partType != "data-"+kindCall {
			if args := payload.Get("args"); payload.Object("args") == nil {
				wrapped := rows.Object{}
				if string(args) != "null" {
					wrapped.Set("input", args)
				}
				payload.Set("args", wrapped)
			}
			return kind, payload
		}
		ok = false
	case "artifact":
		ok = payload.Text("path") != "" && isSize(payload.Get("size_px"))
	case "attempt":
		ok = isAttempt(payload)
	case "upload":
		ok = payload.Text("path") != ""
	case kindUser, kindAssistant, kindReasoning, kindSystem, kindCompaction:
		ok = partType == "text" || partType == "reasoning" || partType == session.TypeCompaction
	case kindStart, kindResume, kindTitle, kindEnd, kindUsage, kindResult, kindRequest, kindResponse,
		"ui", "ui_event", "eval_target", "eval_result", kindMessage:
		ok = false
	}
	if !ok {
		kind = partType
	}
	return kind, payload
}

// isSize says that a value is a width and a height, or nothing.
func isSize(v json.RawMessage) bool {
	var size []float64
	return v == nil || json.Unmarshal(v, &size) == nil && (size == nil || len(size) == 2)
}

// isAttempt says that a payload is a step of an investigation.
func isAttempt(o rows.Object) bool {
	var metrics map[string]float64
	if m := o.Get("metrics"); m != nil && json.Unmarshal(m, &metrics) != nil {
		return false
	}
	parent := o.Text("parent_id") != "" || !o.Has("parent_id")
	return o.Text("id") != "" && parent && (!o.Has("parameters_changed") || o.Object("parameters_changed") != nil)
}

// partEvent returns what stands for the part in the trace.
func partEvent(t *session.Transcript, i int, p *session.Part, data rows.Object) (kind string, payload rows.Object) {
	role := t.Messages[i].Message.Role
	switch {
	case p.Type == "text" || p.Type == "reasoning":
		kind = map[string]string{session.RoleUser: kindUser, session.RoleAssistant: kindAssistant, session.RoleSystem: kindSystem}[role]
		if p.Type == "reasoning" {
			kind = kindReasoning
		}
		payload.Set("content", data.Text("text"))
		for _, f := range data.Object("providerMetadata").Object("jutul") {
			if f.Key != "content" && f.Key != rows.CarrierKey {
				payload.Set(f.Key, f.Value)
			}
		}
		return cmp.Or(kind, kindSystem), payload
	case p.ToolCallID != nil && (strings.HasPrefix(p.Type, "tool-") || p.Type == "dynamic-tool"):
		name := strings.TrimPrefix(p.Type, "tool-")
		if p.Type == "dynamic-tool" {
			name = data.Text("toolName")
		}
		payload.Set("id", *p.ToolCallID)
		payload.Set("name", name)
		input := data.Get("input")
		if input == nil {
			input = json.RawMessage("{}")
		}
		payload.Set("args", input)
		for _, f := range data.Object("callProviderMetadata").Object("jutul").Object("call") {
			if f.Key != rows.CarrierKey {
				payload.Set(f.Key, f.Value)
			}
		}
		return kindCall, payload
	case p.Type == session.TypeCompaction:
		if payload = data.Object("data").Object("jutul"); payload != nil {
			return kindCompaction, payload.Without(rows.CarrierKey)
		}
		return kindCompaction, compactionPayload(t, i, p)
	case strings.HasPrefix(p.Type, "data-"):
		kind = strings.TrimPrefix(p.Type, "data-")
		if payload = data.Object("data"); payload == nil {
			payload.Set("data", data.Get("data"))
			if data.Get("data") == nil {
				payload = rows.Object{}
			}
		}
		return kind, payload.Without(rows.CarrierKey)
	}
	return p.Type, data.Without("type", rows.CarrierKey)
}

// compactionPayload counts the messages that a compaction summed up and those
// that it left, in the words of all versions of jutul-agent.
func compactionPayload(t *session.Transcript, i int, p *session.Part) rows.Object {
	c, _ := session.ParseCompaction(p.DataJSON) // unreadable: nothing is known of it
	before, kept, inTail := 0, 0, false
	for k := range i {
		m := &t.Messages[k].Message
		if m.HiddenAt != nil {
			continue
		}
		before++
		if inTail = inTail || c.TailStartID != nil && m.ID == *c.TailStartID; inTail {
			kept++
		}
	}
	o := rows.Object{}
	o.Set("summarized", before-kept)
	o.Set("kept", kept)
	o.Set("offloaded", false)
	o.Set("manual", !c.Auto)
	o.Set("messages_before", before)
	o.Set("messages_after", kept+1)
	if c.Summary != "" {
		o.Set("summary", c.Summary)
	}
	return o
}

// resultPayload returns the result of a call, nil when it has none.
func resultPayload(call, data, rest rows.Object) rows.Object {
	var content, status string
	switch data.Text("state") {
	case session.StateOutputAvailable:
		status = "success"
		output := rows.Output(data)
		ok := false
		if content, ok = rows.Text(output); !ok {
			content = string(output)
		}
	case session.StateOutputError:
		content, status = data.Text("errorText"), "error"
	case session.StateOutputDenied:
		content, status = "Permission denied", "error"
		if reason := data.Object("approval").Text("reason"); reason != "" {
			content = fmt.Sprintf("%s: %s", content, reason)
		}
	default:
		return nil
	}
	o := rows.Object{}
	o.Set("tool_call_id", call.Text("id"))
	name := call.Get("name")
	if rest.Get("name") != nil {
		name = rest.Get("name")
	}
	o.Set("name", name)
	o.Set("content", content)
	o.Set("status", status)
	for _, f := range rest {
		if f.Key == "status" || o.Get(f.Key) == nil && f.Key != rows.CarrierKey {
			o.Set(f.Key, f.Value)
		}
	}
	return o
}
