package spans

import (
	"errors"

	"github.com/agenttrace/agenttrace/semconv"
)

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
