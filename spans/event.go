package spans

import (
	"encoding/json"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Event is a log record about work in progress. It is a full snapshot of a session, a
// message, a part or a status at one moment, so losing, repeating or reordering events is
// harmless. A later event takes precedence over an earlier one, and the span of the
// finished work over all events.
//
// The event name of the log record is one of semconv.Event…, its timestamp is the time of
// the snapshot, and its trace and span are those of the current run or turn.
type Event struct {
	// Name is the event name of the log record.
	Name      string
	SessionID string

	// Session is set for semconv.EventSession: the state of the session so far.
	Session *Run

	// MessageID, Role and MessageCreatedAt (Unix milliseconds) are set for
	// semconv.EventMessage and semconv.EventPart. Metadata is a JSON object or nil.
	MessageID        string
	Role             string
	MessageCreatedAt int64
	MessageMetadata  json.RawMessage
	// Parts are whole parts in their current state, with data: all parts of a user
	// message, or the one that a part event describes.
	Parts []Part

	// Status is one of semconv.Status…, set for semconv.EventStatus. Attempt counts
	// retries from 1. Detail is what is retried or awaited, or the error. CallID is the
	// tool call that waits.
	Status  string
	Attempt int64
	Detail  string
	CallID  string
	// Heartbeat is the interval at which the status is repeated, in milliseconds, or 0.
	// Since is when the status began, in Unix milliseconds; 0 means the time of the
	// event.
	Heartbeat, Since int64
}

var _ SpanData = (*Event)(nil)

// Kind returns the event's name.
func (e *Event) Kind() string { return e.Name }

// Append implements [SpanData].
func (e *Event) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	if e.Session != nil {
		return e.Session.Append(dst)
	}
	return eventTable.append(e, dst)
}

// Set implements [SpanData].
func (e *Event) Set(key string, val Value) (known bool, err error) {
	if e.Name != semconv.EventSession {
		return eventTable.set(e, key, val)
	}
	if e.Session == nil {
		e.Session = new(Run)
	}
	known, err = e.Session.Set(key, val)
	e.SessionID = e.Session.SessionID
	return known, err
}

// Validate implements [SpanData].
func (e *Event) Validate() error {
	var unknown error
	ofMessage := e.Name == semconv.EventMessage || e.Name == semconv.EventPart
	if !ofMessage && e.Name != semconv.EventSession && e.Name != semconv.EventStatus {
		unknown = errors.New("event " + e.Name + " is not known")
	}
	return eventTable.validate(e, unknown,
		missingIf(ofMessage && e.MessageID == "", semconv.MessageIDKey),
		missingIf(e.Name == semconv.EventPart && len(e.Parts) == 0, semconv.MessagePartsKey),
		missingIf(e.Name == semconv.EventStatus && e.Status == "", semconv.StatusKey))
}

var eventTable = newTable(func(t *builder, e *Event) {
	t.session(&e.SessionID)
	t.add(semconv.MessageIDKey, &e.MessageID)
	t.add(semconv.MessageRoleKey, &e.Role)
	t.add(semconv.MessageCreatedAtKey, &e.MessageCreatedAt)
	t.add(semconv.MessagePartsKey, &e.Parts)
	t.add(semconv.MessageMetadataKey, &e.MessageMetadata)
	t.add(semconv.StatusKey, &e.Status)
	t.add(semconv.StatusHeartbeatKey, &e.Heartbeat)
	t.add(semconv.StatusSinceKey, &e.Since)
	t.add(semconv.StatusAttemptKey, &e.Attempt)
	t.add(semconv.StatusDetailKey, &e.Detail)
	t.add(semconv.ToolCallIDKey, &e.CallID)
})
