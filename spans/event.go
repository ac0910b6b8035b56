package spans

import (
	"encoding/json"
	"errors"

	"github.com/agenttrace/agenttrace/semconv"
)

// Event is a log record about work in progress. It is a full snapshot of a session, a message, a part or a status
// at one moment, so losing, repeating or reordering events is harmless. A later event takes precedence over an
// earlier one, and the span of the finished work over all events.
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

	// Status is one of semconv.Status…, set for semconv.EventStatus. Attempt counts retries from 1. Detail is what
	// is retried or awaited, or the error. CallID is the tool call that waits.
	Status, Detail, CallID string
	Attempt                int64
	// Heartbeat is the interval at which the status is repeated, in milliseconds, or 0. Since is when the status
	// began, in Unix milliseconds; 0 means the time of the event.
	Heartbeat, Since int64

	// Evaluation is set for semconv.EventEvaluation.
	Evaluation *Evaluation
}

// Kind returns the event's name.
func (e *Event) Kind() string { return e.Name }

func (e *Event) visit(c *coder) {
	if e.Name == semconv.EventSession {
		if e.Session == nil {
			e.Session = new(Run)
		}
		e.Session.visit(c)
		e.SessionID = e.Session.SessionID
		return
	}
	if e.Name == semconv.EventEvaluation {
		if e.Evaluation == nil {
			e.Evaluation = new(Evaluation)
		}
		e.Evaluation.visit(c)
		e.SessionID = e.Evaluation.SessionID
		return
	}
	c.required(semconv.SessionIDKey, &e.SessionID)
	c.text(semconv.MessageIDKey, &e.MessageID)
	c.text(semconv.MessageRoleKey, &e.Role)
	c.count(semconv.MessageCreatedAtKey, &e.MessageCreatedAt)
	c.parts(semconv.MessagePartsKey, &e.Parts)
	c.json(semconv.MessageMetadataKey, &e.MessageMetadata, '{')
	c.text(semconv.StatusKey, &e.Status)
	c.count(semconv.StatusHeartbeatKey, &e.Heartbeat)
	c.count(semconv.StatusSinceKey, &e.Since)
	c.count(semconv.StatusAttemptKey, &e.Attempt)
	c.text(semconv.StatusDetailKey, &e.Detail)
	c.text(semconv.ToolCallIDKey, &e.CallID)
}

// Validate implements [SpanData].
func (e *Event) Validate() error {
	session := missing(semconv.SessionIDKey, e.SessionID)
	switch e.Name {
	case semconv.EventSession:
		return session
	case semconv.EventMessage, semconv.EventPart:
		var parts error
		if e.Name == semconv.EventPart && len(e.Parts) == 0 {
			parts = missing(semconv.MessagePartsKey, "")
		}
		return errors.Join(session, missing(semconv.MessageIDKey, e.MessageID), parts)
	case semconv.EventEvaluation:
		return e.Evaluation.Validate()
	case semconv.EventStatus:
		return errors.Join(session, missing(semconv.StatusKey, e.Status))
	}
	return errors.Join(session, errors.New("event "+e.Name+" is not known"))
}
