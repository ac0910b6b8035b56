package agentdbg

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// event is one event of a run.
type event struct {
	line           int // from 1, 0 if it is unknown
	typ, id, runID string
	name           string
	at             int64 // Unix milliseconds, of the event before it if it has none
	payload        rows.Object
	tookMS         int64 // how long the call took, 0 if it is unknown
	order          int64 // among the spans of a run; 0 for an event of events.jsonl
	span           bool  // it is one of Maida's
}

// newEvent reads an event. before is the time of the one before it.
func newEvent(all rows.Object, line int, before int64) (e event, note string, err error) {
	e = event{
		line: line, typ: all.Text("event_type"), id: all.Text("event_id"),
		runID: all.Text("run_id"), name: all.Text("name"),
	}
	if e.typ == "" {
		return e, "", errors.New("has no event_type: left out")
	}
	at, ok := rows.ParseTime(all.Text("ts"))
	if e.at = at; !ok {
		e.at, note = before, "ts is not a time: took that of the event before it"
	}
	if e.payload = all.Object("payload"); e.payload == nil {
		e.payload = rows.Object{}
		if all.Has("payload") {
			e.payload.Set("value", all.Get("payload")) // as AgentDbg itself writes what is not a dictionary
		}
	}
	e.tookMS = took(all)
	if strings.HasPrefix(all.Text("spec_version"), "0.2") {
		e.projected()
	}
	return e, note, nil
}

// took returns how long the event's call took in milliseconds: its duration_ms or, as
// AgentDbg's integrations write it, that of its meta.<framework>.
func took(all rows.Object) int64 {
	values := []json.RawMessage{all.Get("duration_ms")}
	meta := all.Object("meta")
	for _, f := range meta {
		values = append(values, meta.Object(f.Key).Get("duration_ms"))
	}
	for _, v := range values {
		const maximum = 1e12 // thirty years: anything above is not a duration
		var ms float64
		if json.Unmarshal(v, &ms) == nil && string(v) != "null" && ms >= 0 && ms < maximum {
			return int64(ms)
		}
	}
	return 0
}

// dataType is the type of the data part for events of a type: LOOP_WARNING is
// data-loop-warning. A type that 0.1 does not have gets a name of its own, so that it is
// never taken for a part with another meaning.
func dataType(typ string) string {
	if t, ok := dataTypes[typ]; ok {
		return t
	}
	return "data-event-" + notWord.ReplaceAllString(strings.ToLower(typ), "-")
}

var notWord = regexp.MustCompile("[^a-z0-9]")

// statePart returns the data part that a STATE_UPDATE has as its state, or nil. A part
// with a meaning of its own, such as a compaction, is not read from a state.
func statePart(payload rows.Object) rows.Object {
	part := payload.Object("state")
	typ := part.Text("type")
	switch typ {
	case session.TypeCompaction, session.TypeWithheld, session.TypeUnfinished, "data-":
		return nil
	}
	_, named := rows.Text(part.Get("id"))
	if !strings.HasPrefix(typ, "data-") || part.Get("data") == nil || part.Get("id") != nil && !named ||
		len(part.Without("type", "id", "data")) > 0 || payload.Has("diff") {
		return nil
	}
	return part
}
