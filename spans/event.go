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

// Evaluation is the event that reports a score of a session, of one of its messages or parts, or of an answer of a
// model.
type Evaluation struct {
	SessionID string
	// Name is what is judged, Value and Label are the score as a number and as a word, of which one is set.
	Name        string
	Value       *float64
	Label       string
	Explanation string
	// Author is the person or program that judges; empty means the service.
	Author string
	// PartID, with the MessageID of the part, is a tool call, MessageID alone a message or, as a user's message, its turn.
	// ResponseID is an answer of a model. Without any of them the score is of the session.
	MessageID, PartID, ResponseID string
}

// Kind returns the event's name.
func (e *Evaluation) Kind() string { return semconv.EventEvaluation }

func (e *Evaluation) visit(c *coder) {
	c.required(semconv.SessionIDKey, &e.SessionID)
	c.required(semconv.GenAIEvaluationNameKey, &e.Name)
	c.double(semconv.GenAIEvaluationValueKey, &e.Value)
	c.text(semconv.GenAIEvaluationLabelKey, &e.Label)
	c.text(semconv.GenAIEvaluationExplanationKey, &e.Explanation)
	c.text(semconv.EvaluationAuthorKey, &e.Author)
	c.text(semconv.GenAIResponseIDKey, &e.ResponseID)
	c.text(semconv.MessageIDKey, &e.MessageID)
	c.text(semconv.PartIDKey, &e.PartID)
}

// Validate implements [SpanData].
func (e *Evaluation) Validate() error {
	var score, message error
	if e.Value == nil {
		score = missing(semconv.GenAIEvaluationLabelKey, e.Label)
	}
	if e.PartID != "" {
		message = missing(semconv.MessageIDKey, e.MessageID)
	}
	return errors.Join(missing(semconv.SessionIDKey, e.SessionID), missing(semconv.GenAIEvaluationNameKey, e.Name), score,
		message)
}

// LoopWarning is an event on a turn's span, and the data of a data-loop-warning part: the
// agent repeated the same calls several times in a row. Its JSON has the keys of AgentDbg's LOOP_WARNING event, and
// evidence.
type LoopWarning struct {
	// Pattern is the repeated sequence of calls, oldest first, joined by " -> ".
	Pattern string `json:"pattern"`
	// Repetitions is how often the pattern occurred in a row, WindowSize the number of
	// recent calls that were examined.
	Repetitions int64 `json:"repetitions"`
	WindowSize  int64 `json:"window_size"`
	// Evidence identifies the repeated calls, oldest first: part ids of tool calls and of
	// data, span ids of model calls.
	Evidence []string `json:"evidence"`
}

// Kind returns the event's name.
func (w *LoopWarning) Kind() string { return semconv.SpanEventLoopWarning }

func (w *LoopWarning) visit(c *coder) {
	c.required(semconv.LoopPatternKey, &w.Pattern)
	c.count(semconv.LoopRepetitionsKey, &w.Repetitions)
	c.count(semconv.LoopWindowSizeKey, &w.WindowSize)
	c.strings(semconv.LoopEvidenceKey, &w.Evidence)
}

// Validate implements [SpanData].
func (w *LoopWarning) Validate() error {
	return missing(semconv.LoopPatternKey, w.Pattern)
}

// Exception is the event on the span that a panic ended, as in OpenTelemetry's conventions for exceptions.
type Exception struct {
	// Type is the type of the panic value.
	Type string
	// Message is the text of the panic, Stack the stack of the goroutine.
	Message, Stack string
}

// Kind returns the event's name.
func (e *Exception) Kind() string { return semconv.SpanEventException }

func (e *Exception) visit(c *coder) {
	c.text(semconv.ExceptionTypeKey, &e.Type)
	c.text(semconv.ExceptionMessageKey, &e.Message)
	c.text(semconv.ExceptionStacktraceKey, &e.Stack)
}

// Validate implements [SpanData]. The conventions require a type or a message.
func (e *Exception) Validate() error {
	if e.Type == "" && e.Message == "" {
		return errors.New("exception.type and exception.message are missing")
	}
	return nil
}
