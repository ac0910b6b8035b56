package agentdbg

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// event is one event of a run.
type event struct {
	line    int // from 1, 0 when it stood on none
	all     rows.Object
	typ, id string
	at      int64 // Unix milliseconds, of the event before it when it says none
	payload rows.Object
	meta    rows.Object
}

// newEvent reads an event. before is the time of the one before it.
func newEvent(all rows.Object, line int, before int64) (e event, note string, err error) {
	e = event{line: line, all: all, typ: all.Text("event_type"), id: all.Text("event_id"), at: before, meta: all.Object("meta")}
	if e.typ == "" {
		return e, "", errors.New("has no event_type: left out")
	}
	if at, ok := parseTime(all.Text("ts")); ok {
		e.at = at
	} else {
		note = "ts is not a time: took that of the event before it"
	}
	if e.payload = all.Object("payload"); e.payload == nil {
		e.payload = rows.Object{}
		if v := all.Get("payload"); v != nil && string(v) != "null" {
			// As AgentDbg itself writes what is no dictionary.
			e.payload.Set("value", v)
		}
	}
	return e, note, nil
}

// shelf finds what a shortened event left to the rows.
type shelf struct {
	runID string
	// part returns the data of a part of the event's message, prompt what a user
	// message says, as the prompt that it came from. Both return nil for none.
	part   func(index int64) rows.Object
	prompt func(messageID string) json.RawMessage
}

// shorten returns what remains of an event beside its rows: the event without
// what goes without saying, and with the place of its part. kept are the keys of
// the payload that rows hold. Where expand could not make the event of it again,
// it is the whole event.
func (s shelf) shorten(e *event, places rows.Object, kept ...string) rows.Object {
	short := e.all.Without("spec_version", "run_id", "parent_id", "duration_ms", "name", "payload", "meta")
	keep := func(key, nothing string) {
		if v := e.all.Get(key); v != nil && string(v) != nothing {
			short.Set(key, v)
		}
	}
	keep("spec_version", string(raw(specVersion)))
	keep("run_id", string(raw(s.runID)))
	keep("parent_id", "null")
	keep("duration_ms", "null")
	keep("name", string(raw(defaultName(e.typ, e.payload))))
	keep("meta", "{}")
	if rest := e.payload.Without(kept...); dataTypeOf(places) == "" {
		for _, k := range payloadKeys[e.typ] {
			if v := rest.Get(k.key); k.nothing != "" && string(v) == k.nothing {
				rest = rest.Without(k.key)
			}
		}
		if len(rest) > 0 {
			short.Set("payload", rest)
		}
	}
	short = append(short, places...)
	if again, ok := s.expand(short); !ok || string(again.JSON()) != string(e.all.JSON()) {
		whole := rows.Object{}
		whole.Set("event", e.all)
		return append(whole, places...)
	}
	return short
}

// dataTypeOf says in which way the places hold the payload: "data" when a part is
// the whole of it.
func dataTypeOf(places rows.Object) string { return places.Text("holds") }

// expand makes the event again that shorten took apart.
func (s shelf) expand(short rows.Object) (rows.Object, bool) {
	if whole := short.Object("event"); whole != nil {
		return whole, true
	}
	typ := short.Text("event_type")
	payload, ok := s.payload(typ, short)
	if !ok {
		return nil, false
	}
	var e rows.Object
	or := func(key string, otherwise json.RawMessage) {
		if v := short.Get(key); v != nil {
			otherwise = v
		}
		e.Set(key, otherwise)
	}
	or("spec_version", raw(specVersion))
	or("event_id", null)
	or("run_id", raw(s.runID))
	or("parent_id", null)
	or("event_type", null)
	or("ts", null)
	or("duration_ms", null)
	or("name", raw(defaultName(typ, payload)))
	e.Set("payload", payload)
	or("meta", json.RawMessage("{}"))
	return e, true
}

func (s shelf) payload(typ string, short rows.Object) (rows.Object, bool) {
	rest := short.Object("payload")
	held := map[string]json.RawMessage{}
	data := rows.Object{}
	if at := short.Get("part"); at != nil {
		var index int64
		if json.Unmarshal(at, &index) != nil {
			return nil, false
		}
		if data = s.part(index); data == nil {
			return nil, false
		}
	}
	if dataTypeOf(short) == "data" {
		payload := data.Object("data")
		return payload, payload != nil
	}
	switch typ {
	case llmCall:
		if id := short.Text("prompt"); id != "" {
			if held["prompt"] = s.prompt(id); held["prompt"] == nil {
				return nil, false
			}
		}
		if at := short.Get("response"); at != nil {
			var index int64
			if json.Unmarshal(at, &index) != nil {
				return nil, false
			}
			if held["response"] = s.part(index).Get("text"); held["response"] == nil {
				return nil, false
			}
		}
	case toolCall:
		held["tool_name"] = raw(toolName(data))
		held["args"] = data.Get("input")
		held["result"] = data.Get("output")
	}
	payload := rows.Object{}
	for _, k := range payloadKeys[typ] {
		v := held[k.key]
		if v == nil {
			v = rest.Get(k.key)
		}
		if v == nil && k.nothing != "" {
			v = json.RawMessage(k.nothing)
		}
		if v != nil {
			payload = append(payload, rows.Field{Key: k.key, Value: v})
		}
	}
	for _, f := range rest {
		if payload.Get(f.Key) == nil {
			payload = append(payload, f)
		}
	}
	return payload, true
}

// toolName returns the name of the tool that a tool part calls.
func toolName(data rows.Object) string {
	if name, ok := strings.CutPrefix(data.Text("type"), "tool-"); ok {
		return name
	}
	return data.Text("toolName")
}

// toolType is the type of the parts that call a tool.
func toolType(name string) string {
	if name == "" {
		return "dynamic-tool"
	}
	return "tool-" + name
}

// toolPart begins the data of a tool part.
func toolPart(partType, name, callID, state string) rows.Object {
	var data rows.Object
	data.Set("type", partType)
	if partType == "dynamic-tool" {
		data.Set("toolName", name)
	}
	data.Set("toolCallId", callID)
	data.Set("state", state)
	return data
}

// dataPart is a data part.
func dataPart(partType string, data json.RawMessage) rows.Object {
	var o rows.Object
	o.Set("type", partType)
	o.Set("data", orNull(data))
	return o
}

// textPart is a text or reasoning part.
func textPart(partType, text string) rows.Object {
	var o rows.Object
	o.Set("type", partType)
	o.Set("text", text)
	return o
}

// dataType is the type of the data part for events of a type: LOOP_WARNING is
// data-loop-warning. A type that 0.1 does not know has a name of its own, so that
// it is never taken for a part that means something to others.
func dataType(typ string) string {
	if t, ok := dataTypes[typ]; ok {
		return t
	}
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, typ)
	return "data-event-" + name
}

// errorText says in words what an error object says.
func errorText(v json.RawMessage) string {
	if s, ok := rows.Text(v); ok {
		return s
	}
	o, err := rows.Parse(v)
	if err != nil {
		return ""
	}
	typ, message := o.Text("error_type"), o.Text("message")
	if typ == "" {
		typ = o.Text("type")
	}
	return strings.Join(slices.DeleteFunc([]string{typ, message}, func(s string) bool { return s == "" }), ": ")
}

// duration returns how long the event's call took in milliseconds: as the event
// says or, as AgentDbg's integrations do, its meta.<framework>.
func (e *event) duration() (int64, bool) {
	read := func(v json.RawMessage) (int64, bool) {
		const maximum = 1e12 // thirty years: anything above is no duration
		var ms float64
		if v == nil || string(v) == "null" || json.Unmarshal(v, &ms) != nil || !(ms >= 0 && ms < maximum) {
			return 0, false
		}
		return int64(ms), true
	}
	if ms, ok := read(e.all.Get("duration_ms")); ok {
		return ms, true
	}
	for _, f := range e.meta {
		if o := e.meta.Object(f.Key); o != nil {
			if ms, ok := read(o.Get("duration_ms")); ok {
				return ms, true
			}
		}
	}
	return 0, false
}
