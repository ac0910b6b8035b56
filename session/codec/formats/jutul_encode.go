package formats

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// jutulEncode returns the events of the session.
func jutulEncode(s *codec.Session) []jutulEvent {
	t := s.Sorted()
	e := &jutulEncoder{s: s, foreign: rows.Read(t.Session.MetadataJSON).Object("jutul") == nil,
		calls: make(map[string]int)}
	e.session(&t.Session)
	for i := range t.Messages {
		e.message(t, i)
	}
	e.flush(1<<63-1, true)
	if !e.foreign && !jutulNames(e.events, t.Session.ID) {
		named := &jutulEncoder{}
		named.start(&t.Session)
		for _, v := range e.events {
			v.id = int64(len(named.events) + 1)
			named.events = append(named.events, v)
		}
		return named.events
	}
	return e.events
}

// jutulNames reports whether reading the events gives the session the id.
func jutulNames(events []jutulEvent, id string) bool {
	var p jutulParser
	for _, v := range events {
		p.add(v)
	}
	return p.sessionID() == id
}

// jutulEncoder writes events in the order of the rows. What has a time but no row of
// its own waits until its time has come.
type jutulEncoder struct {
	s       *codec.Session
	foreign bool // the session never was a trace
	events  []jutulEvent
	last    int64
	waiting []jutulWaiting // in order of at
	// calls counts the calls by their ids, which must be different in a trace.
	calls map[string]int
}

type jutulWaiting struct {
	at      int64
	kind    string
	payload rows.Object
}

func (e *jutulEncoder) emit(at int64, kind string, payload rows.Object) {
	if e.foreign {
		at = max(at, e.last) // as a trace is written: readers take events in order
	}
	e.last = at
	e.events = append(e.events, jutulEvent{
		id: int64(len(e.events) + 1), timestamp: jutulFormatTime(at), kind: kind,
		payload: string(rows.Python{ASCII: true}.Append(nil, payload.JSON())),
	})
}

// row emits an event that stands for a row.
func (e *jutulEncoder) row(at int64, kind string, payload rows.Object) {
	e.flush(at, false)
	e.emit(at, kind, payload)
}

// later keeps an event until its time.
func (e *jutulEncoder) later(at int64, kind string, payload rows.Object) {
	i, _ := slices.BinarySearchFunc(e.waiting, at, func(w jutulWaiting, at int64) int {
		if w.at <= at {
			return -1
		}
		return 1
	})
	e.waiting = slices.Insert(e.waiting, i, jutulWaiting{at, kind, payload})
}

// flush emits what waited for a time up to at; the session's end only when
// everything else of that time is there.
func (e *jutulEncoder) flush(at int64, all bool) {
	n := 0
	for n < len(e.waiting) {
		w := &e.waiting[n]
		if w.at > at || !all && w.kind == jutulKindEnd && w.at == at {
			break
		}
		e.emit(w.at, w.kind, w.payload)
		n++
	}
	e.waiting = slices.Delete(e.waiting, 0, n)
}

// jutulSessionEvents returns the events of the session's life that its metadata has.
func jutulSessionEvents(row *session.Session) []jutulWaiting {
	var all []jutulWaiting
	for o := range rows.Objects(rows.Read(row.MetadataJSON).Object("jutul").Get("session_events")) {
		w := jutulWaiting{kind: o.Text("kind"), payload: o.Object("payload")}
		switch w.kind {
		case jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd:
			if json.Unmarshal(o.Get("at"), &w.at) == nil && w.payload != nil && w.at >= 0 && w.at <= rows.MaxTime {
				all = append(all, w)
			}
		}
	}
	return all
}

func (e *jutulEncoder) session(row *session.Session) {
	if e.foreign {
		e.start(row)
		if row.Title != session.Untitled {
			e.emit(row.CreatedAt, jutulKindTitle, rows.Of("session_id", row.ID, "title", row.Title))
		}
		e.decisions()
	}
	for _, w := range jutulSessionEvents(row) {
		e.later(w.at, w.kind, w.payload)
	}
}

func (e *jutulEncoder) start(row *session.Session) {
	e.emit(row.CreatedAt, jutulKindStart, rows.Of("session_id", row.ID, "simulator", nil))
}

// decisions writes those of a person as requests and responses.
func (e *jutulEncoder) decisions() {
	for i := range e.s.Decisions {
		o := &e.s.Decisions[i]
		if o.Action != "ask" {
			continue // nobody was asked
		}
		asked := o.DecidedAt
		if o.WaitedMS != nil {
			asked -= *o.WaitedMS
		}
		name, input := e.call(o)
		requests := []rows.Object{rows.Of("name", name, "args", input)}
		e.later(asked, jutulKindRequest, rows.Of("interrupt_id", o.ID, "value", rows.Of("action_requests", requests)))
		typ := map[string]string{"allowed": "approve", "denied": "reject"}[o.Outcome]
		if typ == "" {
			continue
		}
		decision := append(rows.Of("type", typ), rows.NonEmpty("message", o.Reason)...)
		answer := rows.Of("decisions", []rows.Object{decision})
		e.later(o.DecidedAt, jutulKindResponse, rows.Of("interrupt_id", o.ID, "payload", answer))
	}
}

// call returns the name and the input of the call that the decision is about.
func (e *jutulEncoder) call(o *store.Decision) (name string, input json.RawMessage) {
	for i := range e.s.Messages {
		for j := range e.s.Messages[i].Parts {
			p := &e.s.Messages[i].Parts[j]
			if o.PartID != p.ID && (o.ToolCallID == "" || p.ToolCallID == nil || *p.ToolCallID != o.ToolCallID) {
				continue
			}
			data, err := rows.Parse([]byte(p.DataJSON))
			if input := data.Get("input"); err == nil && input != nil {
				return rows.ToolName(data), input
			}
		}
	}
	return o.ToolID, json.RawMessage("{}")
}

// message writes what a message says. A trace has no word for what the system says.
func (e *jutulEncoder) message(t *session.Transcript, i int) {
	m := &t.Messages[i]
	if m.Message.Role == session.RoleSystem {
		return
	}
	counted := false
	for j := range m.Parts {
		counted = counted || m.Parts[j].Type == "data-"+jutulKindUsage
		e.part(t, i, &m.Parts[j])
	}
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	if used := meta.Tokens(m.Message.Role, m.IsMarker() && len(m.Parts) > 0).Used; e.foreign && !counted &&
		used != nil && !t.Session.Copied(m.Message.CreatedAt) {
		e.row(m.Message.UpdatedAt, jutulKindUsage, jutulUsagePayload(*used))
	}
}

// jutulUsagePayload counts as LangChain does.
func jutulUsagePayload(u session.Usage) rows.Object {
	input, output := u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
	return rows.Of(
		"input_tokens", input, "output_tokens", output, "total_tokens", input+output,
		"input_token_details", rows.Of("cache_read", u.CacheRead, "cache_creation", u.CacheWrite),
		"output_token_details", rows.Of("reasoning", u.Reasoning))
}

func (e *jutulEncoder) part(t *session.Transcript, i int, p *session.Part) {
	if p.Type == "step-start" {
		return // it reports nothing that jutul could show
	}
	data := rows.Read(p.DataJSON)
	kind, payload := jutulPartEvent(t, i, p, data)
	if e.foreign {
		kind, payload = jutulReadable(kind, p.Type, payload)
		if kind == jutulKindCall {
			id := payload.Text("id")
			if e.calls[id]++; e.calls[id] > 1 {
				payload.Set("id", fmt.Sprintf("%s#%d", id, e.calls[id]))
			}
		}
	}
	e.row(p.CreatedAt, kind, payload)
	if kind != jutulKindCall {
		return
	}
	meta := data.Object("callProviderMetadata").Object("jutul")
	var again []int64
	_ = json.Unmarshal(meta.Get("repeated_at"), &again) // none when it is not there
	for _, at := range again {
		if at >= 0 && at <= rows.MaxTime {
			e.later(at, jutulKindCall, payload)
		}
	}
	if result := jutulResultPayload(payload, data, meta.Object("result")); result != nil {
		e.later(p.UpdatedAt, jutulKindResult, result)
	}
}

// jutulReadable changes the event of a part that came from elsewhere into one that
// jutul's readers take: they index arguments, and read what is in the payloads of
// their own kinds as if it could only be that.
func jutulReadable(kind, partType string, payload rows.Object) (string, rows.Object) {
	switch {
	case strings.HasPrefix(partType, "data-") && kind != jutulKindCompaction:
		if slices.Contains(jutulOwnKinds, kind) {
			kind = partType
		}
	case kind == jutulKindCall && payload.Object("args") == nil && payload.Has("args"):
		payload.Set("args", rows.Of("input", payload.Get("args")))
	case kind == jutulKindCall && payload.Object("args") == nil:
		payload.Set("args", rows.Object{})
	}
	return kind, payload
}

// jutulOwnKinds are the kinds of events that jutul itself writes.
var jutulOwnKinds = []string{
	jutulKindStart, jutulKindResume, jutulKindTitle, jutulKindEnd, jutulKindUser, jutulKindAssistant,
	jutulKindReasoning, jutulKindUsage, jutulKindCall, jutulKindResult,
	jutulKindRequest, jutulKindResponse, jutulKindCompaction, "artifact", "attempt", "upload", "ui", "ui_event", "eval_target",
	"eval_result",
}

// jutulPartEvent returns what stands for the part in the trace.
func jutulPartEvent(t *session.Transcript, i int, p *session.Part, data rows.Object) (kind string, payload rows.Object) {
	role := t.Messages[i].Message.Role
	switch {
	case p.Type == "text" || p.Type == "reasoning" || p.Type == session.TypeWithheld:
		if p.Type == session.TypeWithheld {
			data = rows.Of("text", codec.WithheldText)
		}
		kind = jutulKindAssistant
		if p.Type == "reasoning" {
			kind = jutulKindReasoning
		} else if role == session.RoleUser {
			kind = jutulKindUser
		}
		payload = rows.Of("content", data.Text("text"))
		payload.Add(data.Object("providerMetadata").Object("jutul").Without("content"))
		return kind, payload
	case p.ToolCallID != nil && session.IsToolType(p.Type):
		name := rows.ToolName(data)
		if name == "" {
			return p.Type, data.Without("type") // no reader takes it for a call
		}
		input := rows.Input(p, data)
		if input == nil {
			input = json.RawMessage("{}")
		}
		payload = rows.Of("id", *p.ToolCallID, "name", name, "args", input)
		payload.Add(data.Object("callProviderMetadata").Object("jutul").Object("call"))
		return jutulKindCall, payload
	case p.Type == session.TypeCompaction:
		if payload = data.Object("data").Object("jutul"); payload != nil {
			return jutulKindCompaction, payload
		}
		return jutulKindCompaction, jutulCompactionPayload(t, i, p)
	case strings.HasPrefix(p.Type, "data-"):
		kind = strings.TrimPrefix(p.Type, "data-")
		switch payload = data.Object("data"); {
		case payload == nil && data.Get("data") != nil:
			payload = rows.Of("data", data.Get("data"))
		case payload == nil:
			payload = rows.Object{}
		}
		return kind, payload
	}
	return p.Type, data.Without("type")
}

// jutulCompactionPayload counts the messages that a compaction summed up and those
// that it left, in the words of all versions of jutul-agent.
func jutulCompactionPayload(t *session.Transcript, i int, p *session.Part) rows.Object {
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
	o := rows.Of("summarized", before-kept, "kept", kept, "offloaded", false, "manual", !c.Auto,
		"messages_before", before, "messages_after", kept+1)
	return append(o, rows.NonEmpty("summary", c.Summary)...)
}

// jutulResultPayload returns the result of a call, nil when it has none.
func jutulResultPayload(call, data, rest rows.Object) rows.Object {
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
	name := call.Get("name")
	if rest.Get("name") != nil {
		name = rest.Get("name")
	}
	o := rows.Of("tool_call_id", call.Text("id"), "name", name, "content", content, "status", status)
	for _, f := range rest {
		if f.Key == "status" || o.Get(f.Key) == nil {
			o.Set(f.Key, f.Value)
		}
	}
	return o
}
