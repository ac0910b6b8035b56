package spans

import (
	"encoding/json"
	"errors"
	"strings"

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
	dst = append(dst, semconv.SessionIDKey.String(e.SessionID))
	dst = appendString(dst, semconv.MessageIDKey, e.MessageID)
	dst = appendString(dst, semconv.MessageRoleKey, e.Role)
	dst = appendInt(dst, semconv.MessageCreatedAtKey, e.MessageCreatedAt)
	if len(e.Parts) > 0 {
		all := make([]string, len(e.Parts))
		for i := range e.Parts {
			all[i] = e.Parts[i].text()
		}
		dst = append(dst, semconv.MessagePartsKey.StringSlice(all))
	}
	dst = appendString(dst, semconv.MessageMetadataKey, string(e.MessageMetadata))
	dst = appendString(dst, semconv.StatusKey, e.Status)
	dst = appendInt(dst, semconv.StatusHeartbeatKey, e.Heartbeat)
	dst = appendInt(dst, semconv.StatusSinceKey, e.Since)
	dst = appendInt(dst, semconv.StatusAttemptKey, e.Attempt)
	dst = appendString(dst, semconv.StatusDetailKey, e.Detail)
	return appendString(dst, semconv.ToolCallIDKey, e.CallID)
}

// text returns AppendJSON as a string. It copies Data, the greater part of it, only once.
func (p *Part) text() string {
	var buf [384]byte
	head := *p
	head.Data = nil
	b := head.AppendJSON(buf[:0])
	if len(p.Data) == 0 {
		return string(b)
	}
	const data = `,"data":`
	var out strings.Builder
	out.Grow(len(b) + len(data) + len(p.Data))
	out.Write(b[:len(b)-1])
	out.WriteString(data)
	out.Write(p.Data)
	out.WriteByte('}')
	return out.String()
}

// Set implements [SpanData].
func (e *Event) Set(key string, v Value) (known bool, err error) {
	if e.Name == semconv.EventSession {
		if e.Session == nil {
			e.Session = new(Run)
		}
		known, err = e.Session.Set(key, v)
		e.SessionID = e.Session.SessionID
		return known, err
	}
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&e.SessionID, v)
	case semconv.MessageIDKey:
		return true, setString(&e.MessageID, v)
	case semconv.MessageRoleKey:
		return true, setString(&e.Role, v)
	case semconv.MessageCreatedAtKey:
		return true, setInt(&e.MessageCreatedAt, v)
	case semconv.MessageMetadataKey:
		return true, setJSON(&e.MessageMetadata, v, '{')
	case semconv.MessagePartsKey:
		_, err := setParts(&e.Parts, v)
		return true, err
	case semconv.StatusKey:
		return true, setString(&e.Status, v)
	case semconv.StatusAttemptKey:
		return true, setInt(&e.Attempt, v)
	case semconv.StatusHeartbeatKey:
		return true, setInt(&e.Heartbeat, v)
	case semconv.StatusSinceKey:
		return true, setInt(&e.Since, v)
	case semconv.StatusDetailKey:
		return true, setString(&e.Detail, v)
	case semconv.ToolCallIDKey:
		return true, setString(&e.CallID, v)
	}
	return false, nil
}

// Validate implements [SpanData].
func (e *Event) Validate() error {
	var errs []error
	if e.SessionID == "" {
		errs = append(errs, errors.New("session.id is missing"))
	}
	switch e.Name {
	case semconv.EventSession:
	case semconv.EventMessage, semconv.EventPart:
		if e.MessageID == "" {
			errs = append(errs, errors.New("agenttrace.message.id is missing"))
		}
		if e.Name == semconv.EventPart && len(e.Parts) == 0 {
			errs = append(errs, errors.New("agenttrace.message.parts is missing"))
		}
	case semconv.EventStatus:
		if e.Status == "" {
			errs = append(errs, errors.New("agenttrace.status is missing"))
		}
	default:
		errs = append(errs, errors.New("event "+e.Name+" is not known"))
	}
	return errors.Join(errs...)
}
