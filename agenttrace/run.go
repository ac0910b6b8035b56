package agenttrace

import (
	"cmp"
	"context"
	"reflect"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// RunOptions describes a run.
type RunOptions struct {
	// Model is the model that the run starts with; turns use it unless they name
	// another. The zero Model is that of the session's last turn.
	Model Model
	// Inferred reports that the caller observes requests and not the agent: [StartTool] then finds the tool
	// calls of the run's turns also where the context has no turn.
	Inferred bool
}

// Run is an agent at work on a session: a session.run span. End it.
//
// A Run is safe for concurrent use.
type Run struct {
	sess  *Session
	span  trace.Span
	model Model
	// started is when the run began.
	started time.Time
	// off reports that nothing is recorded and nothing decides: every turn of the run is offTurn.
	off     bool
	offTurn Turn
	scope   scope
	bodies  memory[string, bool] // that were sent, by their digests
	guard   *guard               // nil when nothing is bounded
	events  context.Context      // where events go, nil when there are none
	parent  *Turn                // the turn whose sub-agent runs, if any
	caller  *ToolCall            // its call that started the sub-agent, if any

	inferred bool
	ref      SpanRef // of the span

	inferences, executions atomic.Int64 // calls of models and tools, of sub-agents not

	ending        // its mu guards what follows
	work   []work // open
}

// StartRun begins a run. A span in ctx becomes its parent; the session's last run is linked. The returned context
// carries the run and is the one to work in.
func (s *Session) StartRun(ctx context.Context, o RunOptions) (context.Context, *Run) {
	if s == nil {
		return ctx, nil
	}
	now := s.now()
	r := &Run{sess: s, model: o.Model, started: now, inferred: o.Inferred}
	s.mu.Lock()
	if r.model == (Model{}) {
		r.model = s.st.Model
	}
	record := s.record()
	last := s.st.LastRun.spanContext()
	s.runs++
	s.mu.Unlock()
	parent, caller := TurnFromContext(ctx), ToolFromContext(ctx)
	record.Model = r.model.record()
	// What samplers may want to know; the rest is set at the end.
	attrs := append(make([]attribute.KeyValue, 0, 4), semconv.SessionIDKey.String(s.id),
		semconv.AgentKey.String(record.Agent), semconv.GenAIAgentNameKey.String(record.Agent))
	if record.RootID != "" {
		attrs = append(attrs, semconv.SessionRootIDKey.String(record.RootID))
	}
	ctx, r.span = s.startSpan(ctx, now, attrs, last)
	if !r.span.IsRecording() {
		s.tracer.warn()
	}
	r.guard = s.tracer.newGuard(now)
	r.off = !r.span.IsRecording() && !s.decides() && r.guard == nil
	r.ref = refOf(r.span.SpanContext())
	r.events = s.tracer.live.begin(ctx, r.span, semconv.EventSession)
	s.mu.Lock()
	s.st.LastRun = cmp.Or(r.ref, s.st.LastRun)
	if r.events != nil {
		s.runEvents, s.runModel = r.events, r.model
		s.emitSession(r.events, now, r.model)
	}
	s.mu.Unlock()
	r.offTurn = Turn{run: r, off: true, span: r.span}
	r.scope = scope{Context: ctx, run: r}
	if parent != nil && parent.run.sess != s && !parent.off && !r.off {
		r.parent, r.caller = parent, caller
		parent.adopt(r)
	}
	s.flush()
	return &r.scope, r
}

// work is a turn or a compaction. stop ends it when its run ends with an error, or nil.
type work interface{ stop(err error) }

func (c *Compaction) stop(err error) { c.finish(CompactionResult{}, orAborted(err)) }

// stop leaves the turn pending if a call waits for a human; one that asks its user runs, and is stopped.
func (t *Turn) stop(err error) {
	t.finish(t.run.now(), t.unlessPending(err, orAborted(err), false), "")
}

// Session returns the run's session.
func (r *Run) Session() *Session { return of(r, func(r *Run) *Session { return r.sess }) }

// SpanContext returns the trace and span id of the run, for links from elsewhere.
func (r *Run) SpanContext() trace.SpanContext {
	return of(r, func(r *Run) trace.SpanContext { return r.span.SpanContext() })
}

// End ends the run: it finished when err is nil, was aborted when err is [ErrAborted] or [context.Canceled], and
// failed otherwise. Turns and compactions that are still open end the same way; with a nil error they are aborted,
// because they did not finish. Calls after the first do nothing.
//
// What ends a turn that did not finish ends the runs of sub-agents that were
// started in its context too, see [Turn.Abort].
//
// When End or Abort is deferred and the function panics, the run has failed with
// the panic as its error, as with [Run.Done].
func (r *Run) End(err error) { r.endWith(err, recover()) }

// Abort ends the run because its user stopped it: it is End with [ErrAborted].
func (r *Run) Abort() { r.endWith(ErrAborted, recover()) }

func (r *Run) endWith(err error, recovered any) {
	defer repanic(recovered)
	if r != nil {
		r.finish(causeOf(err, recovered))
	}
}

func (r *Run) finish(err error) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = true
	open := r.work
	r.work = nil
	r.mu.Unlock()
	for _, w := range slices.Backward(open) { // a compaction before the turn that it is in
		w.stop(err)
	}
	if r.parent != nil {
		r.parent.disown(r)
	}
	s := r.sess
	f := &s.tracer.filter
	now := s.now()
	s.mu.Lock()
	s.runs--
	record := s.record()
	s.st.LastRun = cmp.Or(r.ref, s.st.LastRun)
	switch {
	case r.off:
	case endReason(err) == semconv.EndError:
		s.enter(r.events, now, Status{State: StatusError, Detail: errorText(err)})
	case s.working == 0 && s.st.Pending == nil && s.status.State != StatusError:
		s.enter(r.events, now, Status{State: StatusIdle})
	}
	if s.runs == 0 {
		s.runEvents = nil
	}
	s.mu.Unlock()
	s.flush()
	now = failedAt(err, now)
	s.tracer.metrics.run(r, failureType(err), now)
	if r.span.IsRecording() {
		record.Model = r.model.record()
		record.Outcome = endReason(err)
		if record.Outcome == semconv.EndError {
			record.Error, record.ErrorType = s.tracer.failed(r.span, now, err)
		}
		r.span.SetAttributes(f.attributes(spans.Append(make([]attribute.KeyValue, 0, 16), &record))...)
	}
	s.tracer.finish(r.span, now)
}

// open adds work to what the run's end stops, and to what the session counts, unless the run has ended. close takes it
// out again; the caller counts it no more.
func (r *Run) open(w work) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.work = append(r.work, w)
		r.sess.mu.Lock()
		r.sess.working++
		r.sess.mu.Unlock()
	}
	return !r.ended
}

func (r *Run) close(w work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work = slices.DeleteFunc(r.work, func(o work) bool { return o == w })
}

func (r *Run) now() time.Time { return r.sess.now() }

// CompactionOptions describes a compaction.
type CompactionOptions struct {
	// Auto reports that the agent compacts on its own, without a request.
	Auto bool
	// TailStartID is the first message that stays in context word for word; empty means none.
	TailStartID string
	// SummarizedMessages is the number of messages that the summary replaces.
	SummarizedMessages int
}

// CompactionResult is what a compaction came to.
type CompactionResult struct {
	Summary string
	// SummaryTokens is the size of the summary in the context that follows.
	SummaryTokens int64
	// Usage is that of the summarizing call, nil when it was not counted.
	Usage Usage
}

// Compaction replaces, for the model, the head of a session by a summary: a
// compaction.run span and a message of the assistant. End it with End or Fail.
//
// A Compaction is safe for concurrent use.
type Compaction struct {
	run       *Run
	span      trace.Span
	scope     scope
	options   CompactionOptions
	messageID string
	partID    string
	createdAt int64

	ending
}

// StartCompaction begins a compaction and creates the message that will hold the summary: it is where the
// compaction began. The returned context carries the span, for the summarizing call.
func (r *Run) StartCompaction(ctx context.Context, o CompactionOptions) (context.Context, *Compaction) {
	if r == nil || r.off {
		return ctx, nil
	}
	now := r.now()
	s := r.sess
	c := &Compaction{run: r, options: o}
	if !r.open(c) {
		s.tracer.drop("a compaction", s.id)
		return ctx, nil
	}
	s.do(&s.mu, func() { s.enter(r.events, now, s.atWork()) })
	c.createdAt = s.stamp(now)
	c.messageID = spans.NewID(spans.PrefixMessage, now)
	c.partID = spans.NewID(spans.PrefixPart, now)
	turn := TurnFromContext(ctx)
	if turn != nil && turn.run == r {
		ctx, _ = turn.within(ctx)
	} else {
		turn = nil
		if RunFromContext(ctx) != r {
			ctx = withSpan(ctx, r.span)
		}
	}
	ctx, c.span = s.tracer.start(ctx, semconv.SpanCompactionRun, trace.SpanKindInternal, now)
	c.scope = scope{Context: ctx, run: r, turn: turn}
	return &c.scope, c
}

// MessageID returns the id of the message that holds the summary, "" when nothing is recorded.
func (c *Compaction) MessageID() string {
	return of(c, func(c *Compaction) string { return c.messageID })
}

// End ends the compaction with its summary.
func (c *Compaction) End(result CompactionResult) { c.finish(result, nil) }

// Fail ends the compaction without a summary: the context stays as it was.
func (c *Compaction) Fail(err error) { c.finish(CompactionResult{}, orAborted(err)) }

func (c *Compaction) finish(result CompactionResult, err error) {
	if c == nil || !c.endOnce() {
		return
	}
	s := c.run.sess
	now := c.run.now()
	f := &s.tracer.filter
	if c.span.IsRecording() {
		record := spans.Compaction{
			SessionID: s.id, SummarizedMessages: int64(max(0, c.options.SummarizedMessages)), Auto: c.options.Auto,
			TailStartID: validUTF8(c.options.TailStartID), Summary: f.content(redact.Other, cloneText(result.Summary)),
			SummaryTokens: max(0, result.SummaryTokens),
		}
		if t := usageOf(result.Usage, nil, nil).Tokens; t != nil {
			record.InputTokens, record.OutputTokens = t.Input+t.CacheRead+t.CacheWrite, t.Output+t.Reasoning
		}
		if err == nil {
			record.MessageID, record.MessageCreatedAt, record.PartID = c.messageID, c.createdAt, c.partID
		} else {
			record.Error, record.ErrorType = s.tracer.failed(c.span, now, err)
		}
		c.span.SetAttributes(f.attributes(spans.Append(make([]attribute.KeyValue, 0, 20), &record))...)
	}
	s.tracer.finish(c.span, now)
	c.run.close(c)
	s.do(&s.mu, func() {
		if s.working--; s.working == 0 && s.st.Pending == nil {
			s.enter(c.run.events, now, Status{State: StatusIdle})
		}
	})
}

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
	t.finish(t.run.now(), t.unlessPending(e, e, true), "")
}

func valueOf(err *error) error { return of(err, func(err *error) error { return *err }) }
