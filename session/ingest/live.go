package ingest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// The SDK reports work in progress as events: log records that hold a full snapshot. They become the rows that the
// spans will become, by the same ids and with a lower rank. So an event that is lost, late or repeated changes neither
// what a later one reports, nor what the span reports; and if the span never arrives, the last event remains.
//
// An event bounds its session in time, so that a reader can detect that an agent has stopped. Problems of events are
// counted and not stored: the event is soon replaced by a later one.

// statusKey is the key of a session's metadata for its status.
const statusKey = "status"

// recognizeLive reports whether a log record is an event of the SDK.
func recognizeLive(r *dialect.Record) bool {
	events := []string{semconv.EventSession, semconv.EventMessage, semconv.EventPart, semconv.EventStatus}
	return r.Scope.Name() == semconv.ScopeName && slices.Contains(events, r.Event)
}

// attributeLive adds what an event reports. It begins and ends at its time.
func attributeLive(b *builder, r *dialect.Record) bool {
	e := spans.Event{Name: r.Event}
	b.read(&e, r.Attributes(), r.DroppedAttributesCount(), true)
	at := cmp.Or(dialect.Nanos(r.Timestamp()), dialect.Nanos(r.ObservedTimestamp()))
	if at == 0 {
		b.problem("time is missing or absurd")
	}
	o := own{builder: b, traceID: r.TraceID().String(), startNano: at, endNano: at}
	switch {
	case !o.identify(e.SessionID):
		return false
	case e.Name == semconv.EventSession && e.Session != nil:
		o.liveRun(e.Session)
	case e.Name == semconv.EventStatus:
		return o.liveStatus(&e)
	case e.Name != semconv.EventSession && e.MessageID != "":
		o.liveMessage(&e)
	default:
		return false
	}
	return true
}

// liveRun reports the session's row. What a run does to its session besides, such as
// a rewind, is reported by its span at once.
func (o *own) liveRun(r *spans.Run) {
	start := o.startNano
	if session.Credible(r.CreatedAt) && (start == 0 || r.CreatedAt*1e6 < start) {
		start = r.CreatedAt * 1e6
	}
	c := o.session(o.sessionID, start, o.endNano)
	now := func(text string) *store.Value { return reported(text, o.endNano, store.RankLive) }
	o.attributes(c, r, now, now)
	metadata, valid := o.sessionMetadata(r)
	if !valid {
		delete(metadata, "given") // the span of the run reports it
	}
	setKeys(c, metadata, o.endNano, store.RankLive)
}

// setKeys sets keys of the session's metadata.
func setKeys(c *store.SessionChange, keys map[string]json.RawMessage, at int64, rank store.Rank) {
	c.Metadata = make(map[string]store.Value, len(keys)+1)
	for key, raw := range keys {
		c.Metadata[key] = store.Value{Text: string(raw), At: at, Rank: rank}
	}
}

// liveMessage reports a message, and of its parts those that are there.
func (o *own) liveMessage(e *spans.Event) {
	o.session(o.sessionID, o.startNano, o.endNano)
	c := store.MessageChange{
		ID: e.MessageID, SessionID: o.sessionID, Role: e.Role, CreatedAt: milli(e.MessageCreatedAt, o.startNano),
		UpdatedAt: o.endNano / 1e6, Rank: store.RankLive,
	}
	switch e.Role {
	case session.RoleUser:
		c.UpdatedAt = c.CreatedAt // a user's message is there at once
	case session.RoleAssistant, session.RoleSystem:
	default:
		if e.Role != "" {
			o.problem("agenttrace.message.role is not one: " + e.Role)
		}
		c.Role, c.Rank = "", store.RankStub
	}
	if len(e.MessageMetadata) > 0 && c.Rank == store.RankLive {
		c.Metadata = o.stamped(o.validateMetadata(e.Role, e.MessageMetadata))
	}
	o.batch.Messages = append(o.batch.Messages, c)
	if e.Name == semconv.EventMessage && e.Role == session.RoleUser {
		o.closeRanks(e.Parts)
	}
	for i := range e.Parts {
		o.livePart(e, &e.Parts[i], i)
	}
}

// stamped is a message's metadata with the time at which it was so.
func (o *own) stamped(metadata json.RawMessage) json.RawMessage {
	m := session.Object(metadata)
	trace := session.Object(m["agenttrace"])
	trace["seen"] = o.seen()
	m["agenttrace"], _ = json.Marshal(trace)
	b, _ := json.Marshal(m)
	return b
}

// seen is the event's time as JSON, in a form of which the later is the greater text.
func (o *own) seen() json.RawMessage {
	return json.RawMessage(time.Unix(0, o.endNano).UTC().Format(`"2006-01-02T15:04:05.000000000Z"`))
}

// livePart reports a part as it is now. One that has no content yet, or of which it
// arrived damaged, is worth as much as in a turn's list.
func (o *own) livePart(e *spans.Event, p *spans.Part, place int) {
	if p.ID == "" {
		o.problem("a part has no id")
		return
	}
	if p.Type == session.TypeCompaction {
		o.problem("part " + p.ID + ": a compaction is reported by its span")
		return
	}
	c, whole := o.partOf(e.MessageID, p, place, o.startNano, store.RankLive)
	if whole {
		if c.Type == session.TypeCompaction { // whatever the part's own type is
			quarantine(&c, string(c.Data))
		}
		o.validatePart(&c, e.Role)
		if c.Rank == store.RankLive {
			o.mark(&c)
		}
	}
	o.batch.Parts = append(o.batch.Parts, c)
}

// mark records in the data of a part that it was in progress, and when. The mark is right after the type: of two
// reports that are equal in rank, state and millisecond, the greater text takes precedence, which is then the later
// one. The event itself states whether a text is streaming, as the AI SDK calls it.
func (o *own) mark(c *store.PartChange) {
	data, key := session.Object(c.Data), "providerMetadata"
	if c.ToolCallID != "" {
		key = "toolMetadata"
	}
	metadata := session.Object(data[key])
	ours := objectWith(session.Object(metadata["agenttrace"]), member{"seen", o.seen()},
		member{"live", json.RawMessage("true")})
	c.Data = objectWith(data, member{"type", jsonscan.AppendString(nil, c.Type)},
		member{key, objectWith(metadata, member{"agenttrace", ours})})
}

// objectWith writes an object of members, and of the others by name.
func objectWith(others map[string]json.RawMessage, members ...member) json.RawMessage {
	for _, m := range members {
		delete(others, m.name)
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		members = append(members, member{name, others[name]})
	}
	return appendAll(nil, members, true)
}

// status is the value of "status" in a session's metadata: its state, as its agent last reported it.
type status struct {
	State      string `json:"state"`
	Attempt    int64  `json:"attempt,omitempty"`
	Detail     string `json:"detail,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	// At is when it began, in Unix milliseconds.
	At int64 `json:"at"`
	// Heartbeat is how often the agent repeats it while it lasts, in milliseconds; 0 is never.
	Heartbeat int64 `json:"heartbeat,omitempty"`
}

// liveStatus reports what the session is doing. The later report takes precedence, whether it is an
// event or the end of a run, so all have one rank.
func (o *own) liveStatus(e *spans.Event) bool {
	switch e.Status {
	case semconv.StatusIdle, semconv.StatusBusy, semconv.StatusRetrying, semconv.StatusWaitingApproval,
		semconv.StatusWaitingUserInput, semconv.StatusError:
	case "":
		return false
	default:
		o.problem("agenttrace.status is not one: " + e.Status)
		return false
	}
	if e.Attempt < 0 {
		o.problem("agenttrace.status.attempt is negative")
	}
	if e.Heartbeat < 0 {
		o.problem("agenttrace.status.heartbeat is negative")
	}
	s := status{State: e.Status, Attempt: max(e.Attempt, 0), Detail: e.Detail, ToolCallID: e.CallID, At: o.endNano / 1e6,
		Heartbeat: max(e.Heartbeat, 0)}
	if session.Credible(e.Since) && e.Since <= s.At {
		s.At = e.Since
	}
	c := o.session(o.sessionID, o.startNano, o.endNano)
	setKeys(c, nil, 0, 0)
	s.set(c, o.endNano)
	return true
}

// set sets the status in the metadata.
func (s *status) set(c *store.SessionChange, at int64) {
	text, _ := json.Marshal(s)
	c.Metadata[statusKey] = store.Value{Text: string(text), At: at, Rank: store.RankFinal}
}

// endStatus reports what a session does when a run of it is over: nothing. That
// takes precedence over a status of the very moment of the end.
func (o *own) endStatus(c *store.SessionChange, r *spans.Run) {
	s := status{State: semconv.StatusIdle}
	switch {
	case r.Operation != "" && r.Operation != semconv.RunOperationRun:
		return // a moment, not a run
	case r.Outcome == semconv.EndError:
		s = status{State: semconv.StatusError, Detail: r.Error}
	}
	s.At = (o.endNano + 1) / 1e6
	s.set(c, o.endNano+1)
}
