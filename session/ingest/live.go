package ingest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// The SDK reports work in progress as events: log records that hold
// a full snapshot. They become the rows that the spans will
// become, by the same ids and with a lower rank. So an event that is lost, late or
// repeated changes neither what a later one reports, nor what
// the span reports; and if the span never arrives, the last event remains.
//
// An event bounds its session in time, so that a reader can detect that
// an agent has stopped. Problems of events are counted and not stored: the
// event is soon replaced by a later one.

// statusKey is the key of a session's metadata for its status.
const statusKey = "status"

// recognizeLive reports whether a log record is an event of the SDK.
func recognizeLive(r *dialect.Record) bool {
	if r.Scope.Name() != semconv.ScopeName {
		return false
	}
	switch r.Event {
	case semconv.EventSession, semconv.EventMessage, semconv.EventPart, semconv.EventStatus:
		return true
	}
	return false
}

// live is an event on its way into a batch.
type live struct {
	own
	atNano int64
}

func attributeLive(b *builder, r *dialect.Record) bool {
	e := spans.Event{Name: r.Event}
	b.read(&e, r.Attributes())
	b.problemDropped(r.DroppedAttributesCount())
	l := live{own: own{builder: b}, atNano: dialect.Nanos(r.Timestamp())}
	if l.atNano == 0 {
		l.atNano = dialect.Nanos(r.ObservedTimestamp())
	}
	if l.atNano == 0 {
		b.problem("time is missing or absurd")
	}
	l.startNano, l.endNano = l.atNano, l.atNano
	if l.sessionID = b.redaction.identifier(e.SessionID); l.sessionID == "" {
		if id := r.TraceID(); !id.IsEmpty() {
			l.sessionID = spans.TraceSession(id.String())
		}
	}
	if err := e.Validate(); err != nil {
		b.problem(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if l.sessionID == "" {
		return false
	}
	switch e.Name {
	case semconv.EventSession:
		if e.Session == nil {
			return false
		}
		l.run(e.Session)
	case semconv.EventStatus:
		return l.status(&e)
	default:
		if e.MessageID == "" {
			return false
		}
		l.message(&e)
	}
	return true
}

// run reports the session's row. What a run does to its session besides, such as
// a rewind, is reported by its span at once.
func (l *live) run(r *spans.Run) {
	start := l.atNano
	if session.Credible(r.CreatedAt) && (start == 0 || r.CreatedAt*1e6 < start) {
		start = r.CreatedAt * 1e6
	}
	c := l.session(l.sessionID, start, l.atNano)
	now := func(text string) *store.Value { return reported(text, l.atNano, store.RankLive) }
	l.attributes(c, r, now, now)
	metadata, valid := l.sessionMetadata(r)
	if !valid {
		delete(metadata, "given") // the span of the run reports it
	}
	c.Metadata = make(map[string]store.Value, len(metadata))
	for key, raw := range metadata {
		c.Metadata[key] = store.Value{Text: string(raw), At: l.atNano, Rank: store.RankLive}
	}
}

// message reports a message, and of those of its parts that are there.
func (l *live) message(e *spans.Event) {
	l.session(l.sessionID, l.atNano, l.atNano)
	c := store.MessageChange{
		ID: e.MessageID, SessionID: l.sessionID, Role: e.Role, CreatedAt: milli(e.MessageCreatedAt, l.atNano),
		UpdatedAt: l.atNano / 1e6, Rank: store.RankLive,
	}
	switch e.Role {
	case session.RoleUser:
		c.UpdatedAt = c.CreatedAt // a user's message is there at once
	case session.RoleAssistant, session.RoleSystem:
	default:
		if e.Role != "" {
			l.problem("agenttrace.message.role is not one: " + e.Role)
		}
		c.Role, c.Rank = "", store.RankStub
	}
	if len(e.MessageMetadata) > 0 && c.Rank == store.RankLive {
		c.Metadata = l.stamped(l.validateMetadata(e.Role, e.MessageMetadata))
	}
	l.batch.Messages = append(l.batch.Messages, c)
	if e.Name == semconv.EventMessage && e.Role == session.RoleUser {
		l.closeRanks(e.Parts)
	}
	for i := range e.Parts {
		l.part(e, &e.Parts[i], i)
	}
}

// stamped is a message's metadata with the time at which it was so.
func (l *live) stamped(metadata json.RawMessage) json.RawMessage {
	m, trace := objectOf(metadata), make(map[string]json.RawMessage)
	if raw, ok := m["agenttrace"]; ok {
		trace = objectOf(raw)
	}
	trace["seen"] = l.seen()
	m["agenttrace"], _ = json.Marshal(trace)
	b, _ := json.Marshal(m)
	return b
}

// seen is the event's time as JSON, in a form of which the later is the greater
// text.
func (l *live) seen() json.RawMessage {
	return json.RawMessage(time.Unix(0, l.atNano).UTC().Format(`"2006-01-02T15:04:05.000000000Z"`))
}

func objectOf(raw []byte) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return make(map[string]json.RawMessage)
	}
	return m
}

// part reports a part as it is now. One that has no content yet, or of which it
// arrived damaged, is worth as much as in a turn's list.
func (l *live) part(e *spans.Event, p *spans.Part, place int) {
	if p.ID == "" {
		l.problem("a part has no id")
		return
	}
	if p.Type == session.TypeCompaction {
		l.problem("part " + p.ID + ": a compaction is reported by its span")
		return
	}
	c, whole := l.partOf(e.MessageID, p, place, l.atNano, store.RankLive)
	if whole {
		if c.Type == session.TypeCompaction { // whatever the part's own type is
			quarantine(&c, string(c.Data))
		}
		l.validatePart(&c, e.Role)
		if c.Rank == store.RankLive {
			l.mark(&c)
		}
	}
	l.batch.Parts = append(l.batch.Parts, c)
}

// mark records in the data of a part that it was in progress, and when. The mark is
// right after the type: of two reports that are equal in rank, state and
// millisecond, the greater text takes precedence, which is then the later one. The event
// itself states whether a text is streaming, as the AI SDK calls it.
func (l *live) mark(c *store.PartChange) {
	data := objectOf(c.Data)
	key := "providerMetadata"
	if c.ToolCallID != "" {
		key = "toolMetadata"
	}
	metadata := objectOf(data[key])
	ours := objectOf(metadata["agenttrace"])
	delete(metadata, "agenttrace")
	delete(ours, "live")
	delete(ours, "seen")
	delete(data, "type")
	delete(data, key)

	out := spans.AppendJSONMember(append(make([]byte, 0, len(c.Data)+128), '{'), "type", c.Type)
	out = append(append(out, `,"`...), key...)
	out = append(out, `":{"agenttrace":{"seen":`...)
	out = append(append(out, l.seen()...), `,"live":true`...)
	out = append(appendMembers(out, ours), '}')
	out = append(appendMembers(out, metadata), '}')
	c.Data = append(appendMembers(out, data), '}')
}

// appendMembers appends an object's members, each after a comma, by name.
func appendMembers(dst []byte, members map[string]json.RawMessage) []byte {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		dst = append(jsonscan.AppendString(append(dst, ','), name), ':')
		dst = append(dst, members[name]...)
	}
	return dst
}

// status is the value of "status" in a session's metadata: its state, as
// its agent last reported it.
type status struct {
	State      string `json:"state"`
	Attempt    int64  `json:"attempt,omitempty"`
	Detail     string `json:"detail,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	// At is when it began, in Unix milliseconds.
	At int64 `json:"at"`
	// Heartbeat is how often the agent repeats it while it lasts, in milliseconds; 0
	// is never.
	Heartbeat int64 `json:"heartbeat,omitempty"`
}

// status reports what the session is doing. The later report takes precedence, whether it is an
// event or the end of a run, so all have one rank.
func (l *live) status(e *spans.Event) bool {
	switch e.Status {
	case semconv.StatusIdle, semconv.StatusBusy, semconv.StatusRetrying, semconv.StatusWaitingApproval,
		semconv.StatusWaitingUserInput, semconv.StatusError:
	case "":
		return false
	default:
		l.problem("agenttrace.status is not one: " + e.Status)
		return false
	}
	if e.Attempt < 0 {
		l.problem("agenttrace.status.attempt is negative")
	}
	if e.Heartbeat < 0 {
		l.problem("agenttrace.status.heartbeat is negative")
	}
	s := status{State: e.Status, Attempt: max(e.Attempt, 0), Detail: e.Detail, ToolCallID: e.CallID, At: l.atNano / 1e6,
		Heartbeat: max(e.Heartbeat, 0)}
	c := l.session(l.sessionID, l.atNano, l.atNano)
	if session.Credible(e.Since) && e.Since <= s.At {
		s.At = e.Since
	}
	setStatus(c, l.atNano, s)
	return true
}

func setStatus(c *store.SessionChange, atNano int64, s status) {
	text, _ := json.Marshal(s)
	if c.Metadata == nil {
		c.Metadata = make(map[string]store.Value)
	}
	c.Metadata[statusKey] = store.Value{Text: string(text), At: atNano, Rank: store.RankFinal}
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
	setStatus(c, o.endNano+1, s)
}
