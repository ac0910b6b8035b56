package agenttrace

import (
	"context"
	"fmt"
	"math"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// ScoreOptions is what a person, a program or a model thinks of a session, a turn, an answer or a tool call. Name is
// required, and a Value or a Label.
type ScoreOptions struct {
	// Name is what is judged, such as "relevance". A target has one score of each name and author: a later one replaces
	// an earlier one.
	Name string
	// Value is the score as a number, Label as a word, such as "pass".
	Value *float64
	Label string
	// Explanation states why.
	Explanation string
	// Author is who judges; empty means the program, by its service name.
	Author string

	// What the score is about, by the ids of [Turn.UserMessageID], which stands for the turn, [Turn.AssistantMessageID]
	// and [ToolCall.PartID], which needs the MessageID of its answer, or by the id that a model's server gave to an
	// answer. Without any of them it is about the session, with [Score] about the work in ctx.
	MessageID, PartID, ResponseID string
}

// Score reports a score of what ctx belongs to: the tool call, the answer of the model call, the turn or the session,
// unless o names something in that session. Without a session in ctx it does nothing. See [Session.Score].
func Score(ctx context.Context, o ScoreOptions) {
	at := scopeOf(ctx)
	if at.run == nil || at.run.off {
		return
	}
	if o.MessageID == "" && o.PartID == "" && o.ResponseID == "" {
		switch {
		case at.tool != nil:
			o.MessageID, o.PartID = at.tool.answerID, at.tool.partID
		case at.call != nil && at.call.messageID != "":
			o.MessageID = at.call.messageID
		default:
			o.MessageID = at.turn.UserMessageID()
		}
	}
	at.run.sess.Score(ctx, o)
}

// Score reports a score of the session or of something in it, as the event gen_ai.evaluation.result: now, or long
// after the session has ended, in the process that judges: there [Tracer.NewSession] with its ID makes the Session.
// Without a LoggerProvider the event is on a span of its own. A score that cannot be stored is reported to
// [otel.Handle].
func (s *Session) Score(ctx context.Context, o ScoreOptions) {
	if s == nil {
		return
	}
	f := &s.tracer.filter
	e := spans.Evaluation{
		SessionID: s.id, Name: validUTF8(o.Name), Value: o.Value, Label: f.text(redact.Other, "", o.Label),
		Explanation: f.text(redact.Other, "", o.Explanation), Author: validUTF8(o.Author),
		MessageID: o.MessageID, PartID: o.PartID, ResponseID: o.ResponseID,
	}
	err := e.Validate()
	if v := o.Value; err == nil && v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
		err = fmt.Errorf("its value is %v", *v)
	}
	if err != nil {
		otel.Handle(fmt.Errorf("score %q of session %s is left out: %w", o.Name, s.id, err))
		return
	}
	ctx = orBackground(ctx)
	// A store takes the context of an event for what it is about. The judge's own span is not.
	if own := scopeOf(ctx).run; own == nil || own.sess != s || o.MessageID == "" {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	now := s.now()
	if s.tracer.live != nil {
		s.emitEvent(context.WithoutCancel(ctx), now, spans.Event{Name: semconv.EventEvaluation, Evaluation: &e})
		s.flush()
		return
	}
	s.moment(ctx, semconv.RunOperationUpdate, now, nil, &e)
}
