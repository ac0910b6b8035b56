package agenttrace

import (
	"reflect"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// panicError is the error of what a panic ended. It does not unwrap: a panic with
// [context.Canceled] is a panic and not an abort.
type panicError struct {
	text  string
	class string // type of the value
	stack string
}

func (e *panicError) Error() string     { return e.text }
func (e *panicError) ErrorType() string { return semconv.ErrorTypePanic }

// causeOf returns the error with which something ends: err, unless recovered, which recover returned to the deferred
// method, is the value of a panic.
func causeOf(err error, recovered any) error {
	if recovered == nil {
		return err
	}
	return &panicError{
		text: "panic: " + spans.Printed(recovered), class: reflect.TypeOf(recovered).String(),
		stack: string(debug.Stack()),
	}
}

// panicOf returns err as the panic that it is, or nil. Nothing wraps these errors: what an error of the agent wraps
// does not matter.
func panicOf(err error) *panicError {
	p, _ := err.(*panicError) //nolint:errorlint // see above
	return p
}

// repanic lets a panic go on that recover returned, with the same value.
func repanic(recovered any) {
	if recovered != nil {
		panic(recovered)
	}
}

// maxStack bounds the stack in an event, in bytes.
const maxStack = 32 << 10

// failed marks a span as failed and returns the text of the error, as it may be sent, and its class. If the error is a
// panic, the span gets the event of OpenTelemetry's conventions for exceptions.
func (t *Tracer) failed(span trace.Span, now time.Time, err error) (text, class string) {
	text = t.filter.content(redact.Other, errorText(err))
	t.fail(span, now, err, text)
	return text, errorType(err)
}

// fail is failed for an error whose text is known.
func (t *Tracer) fail(span trace.Span, now time.Time, err error, text string) {
	span.SetStatus(codes.Error, text)
	if p := panicOf(err); p != nil {
		stack := t.filter.text(redact.Other, "", validUTF8(p.stack[:min(len(p.stack), maxStack)]))
		event := spans.Exception{Type: validUTF8(p.class), Message: text, Stack: stack}
		t.addEvent(span, now, semconv.SpanEventException, &event)
	}
}

// Done ends the run when the function that defers it returns:
//
//	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
//	defer run.Done(&err)
//
// It is [Run.End] with *err, and a nil pointer means no error. When the function panics, the run has failed with
// the panic as its error, and the panic goes on with the same value.
func (r *Run) Done(err *error) { r.endWith(valueOf(err), recover()) }

// Done ends the turn when the function that defers it returns:
//
//	ctx, turn := run.StartTurn(ctx, message, agenttrace.TurnOptions{})
//	defer turn.Done(&err)
//
// It is [Turn.Fail] with *err, which without an error is [Turn.End]; a nil pointer means no error. When the
// function panics, the turn has failed with the panic as its error, its open tool calls too, and the panic goes on
// with the same value. A turn with a tool call that waits for a human is then pending, also if the error is that of
// the decision or [context.Canceled].
func (t *Turn) Done(err *error) {
	p := recover()
	defer repanic(p)
	if t == nil || t.off || t.hasEnded() {
		return
	}
	e := causeOf(valueOf(err), p)
	t.finish(t.unlessPending(e, e, true), "")
}

func valueOf(err *error) error { return of(err, func(err *error) error { return *err }) }
