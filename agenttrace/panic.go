package agenttrace

import (
	"errors"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

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

// causeOf returns the error with which something ends: err, unless the goroutine
// panics or exits. recovered is what recover returned to the method that the
// agent called.
//
// recover returns the value of a panic only to the function that was deferred
// itself. Where a function around it was, as in "defer func() { turn.Fail(err) }()",
// the value cannot be had, but the stack reports that there is a panic, and where.
// unwound reports that this was so when the thing began: then it means nothing.
func causeOf(err error, recovered any, unwound bool) error {
	if recovered != nil {
		return &panicError{
			text: "panic: " + spans.Printed(recovered), class: reflect.TypeOf(recovered).String(),
			stack: string(debug.Stack()),
		}
	}
	if err != nil || unwound {
		return err
	}
	switch how, at := unwinding(nearby); how {
	case panics:
		return &panicError{text: "panic at " + at, class: "panic", stack: string(debug.Stack())}
	case exits:
		return ErrAborted
	}
	return nil
}

// leaving is how a goroutine leaves its functions.
type leaving int

const (
	returns leaving = iota
	panics
	exits // by runtime.Goexit
)

const (
	// nearby is how many frames may lie between a deferred function and the method
	// that it calls. What is further away is an agent that runs in a deferred
	// function, and its turns are not those that panicked.
	nearby = 8
	// anywhere is deeper than the stacks of agents are.
	anywhere = 512
)

// unwinding reports whether a panic or runtime.Goexit is running the deferred
// function that the caller's caller is called from, among the next frames. at is
// the first place that is not the runtime's. Whatever begins and ends asks this, so
// frames get their names only below a panic, and nothing is allocated without one.
func unwinding(frames int) (how leaving, at string) {
	var pcs [anywhere + nearby]uintptr
	n := runtime.Callers(4, pcs[:frames+nearby]) // without Callers, unwinding, its caller and that one's caller
	for i, pc := range pcs[:min(n, frames)] {
		switch runtime.FuncForPC(pc - 1).Name() {
		case "runtime.gopanic":
			return panics, origin(append([]uintptr(nil), pcs[i+1:n]...)) // slices.Clone would have pcs escape
		case "runtime.Goexit":
			return exits, ""
		}
	}
	return returns, ""
}

// origin names the place that panicked: the first of the frames that is not the runtime's.
func origin(pcs []uintptr) string {
	stack := runtime.CallersFrames(pcs)
	for more := len(pcs) > 0; more; {
		var f runtime.Frame
		if f, more = stack.Next(); !strings.HasPrefix(f.Function, "runtime.") {
			return f.Function + " (" + f.File + ":" + strconv.Itoa(f.Line) + ")"
		}
	}
	return "an unknown place"
}

// begunUnwinding reports whether something begins while its goroutine panics or
// exits, in a deferred function: as an agent does that explains what went wrong.
func begunUnwinding() bool {
	how, _ := unwinding(anywhere)
	return how != returns
}

// panicOf returns err as the panic that it is, or nil. Done makes these errors and
// nothing wraps them: what an error of the agent wraps does not matter.
func panicOf(err error) *panicError {
	p, _ := err.(*panicError) //nolint:errorlint // see above
	return p
}

// maxStack bounds the stack in an event, in bytes.
const maxStack = 32 << 10

// fail marks a span as failed and, if err is a panic, adds the event of
// OpenTelemetry's conventions for exceptions. text is err's, as it may be sent.
func (t *Tracer) fail(span trace.Span, now time.Time, err error, text string) {
	setError(span, text)
	p := panicOf(err)
	if p == nil {
		return
	}
	stack := p.stack
	if len(stack) > maxStack {
		stack = stack[:maxStack]
	}
	stack = t.filter.text(redact.Other, "", validUTF8(stack))
	event := spans.Exception{Type: validUTF8(p.class), Message: text, Stack: stack}
	opts := []trace.EventOption{trace.WithAttributes(t.filter.attributes(event.Append(nil))...)}
	if t.ownClock || t.shifted.Load() {
		opts = append(opts, trace.WithTimestamp(now))
	}
	span.AddEvent(semconv.SpanEventException, opts...)
}

// Done ends the run when the function that defers it returns:
//
//	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
//	defer run.Done(&err)
//
// It is [Run.End] with *err, and a nil pointer means no error. When the
// function panics, the run has failed with the panic as its error, and the panic
// goes on with the same value. When it leaves by [runtime.Goexit], the run is
// aborted.
func (r *Run) Done(err *error) {
	if r == nil || r.off || r.hasEnded() {
		r.End(valueOf(err))
		return
	}
	p := recover()
	defer repanic(p)
	r.finish(causeOf(valueOf(err), p, r.unwound))
}

// Done ends the turn when the function that defers it returns:
//
//	ctx, turn := run.StartTurn(ctx, message, agenttrace.TurnOptions{})
//	defer turn.Done(&err)
//
// It is [Turn.Fail] with *err, which without an error is [Turn.End]; a nil pointer
// means no error. When the function panics, the turn has failed with the
// panic as its error, its open tool calls too, and the panic goes on with the same
// value. When it leaves by [runtime.Goexit], the turn is aborted. A turn with a tool call
// that waits for a human is then pending, also if the error is that of the decision or
// [context.Canceled].
func (t *Turn) Done(err *error) {
	if t == nil || t.off || t.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	e := causeOf(valueOf(err), p, t.unwound)
	e = t.unlessPending(e, e, true)
	t.finish(endReason(e), e, "")
}

// unlessPending returns cause, or nil if a call waits for a human: of the errors of a safe net, only one that failed
// the turn or with which its user stopped it ends the wait. asks reports that a call that asks its user counts too.
func (t *Turn) unlessPending(err, cause error, asks bool) error {
	if endReason(err) == semconv.EndError || errors.Is(err, ErrAborted) {
		return cause
	}
	t.mu.Lock()
	pending := len(t.waiting) > 0
	calls := make([]*ToolCall, 0, len(t.parts))
	for i := range t.parts {
		calls = append(calls, t.parts[i].tool)
	}
	t.mu.Unlock()
	for _, c := range calls {
		pending = pending || c != nil && c.isPending(nil) && (asks || !c.asksUser())
	}
	if pending {
		return nil
	}
	return cause
}

// repanic lets a panic go on that recover returned, with the same value.
func repanic(recovered any) {
	if recovered != nil {
		panic(recovered)
	}
}

func valueOf(err *error) error {
	if err == nil {
		return nil
	}
	return *err
}
