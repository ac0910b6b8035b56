package agenttrace

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

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
func (t *Turn) stop(err error) { t.finish(t.unlessPending(err, orAborted(err), false), "") }

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
