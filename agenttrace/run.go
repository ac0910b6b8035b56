package agenttrace

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
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
	// off reports that nothing is recorded and nothing decides: every turn of the
	// run is offTurn.
	off     bool
	offTurn Turn
	scope   scope
	sent    sentBodies
	guard   *guard          // nil when nothing is bounded
	events  context.Context // where events go, nil when there are none
	parent  *Turn           // the turn whose sub-agent runs, if any
	caller  *ToolCall       // its call that started the sub-agent, if any

	inferred bool
	ref      SpanRef // of the span

	ending // its mu guards what follows
	turns  []*Turn
	comps  []*Compaction
}

// StartRun begins a run. A span in ctx becomes its parent; the session's last
// run is linked. The returned context carries the run and is the one to work
// in.
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
	ctx, r.span = s.startSpan(ctx, now, &record, last)
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
	if r.off {
		s.mu.Lock()
		s.unrecorded, s.st.Incomplete = true, true
		s.mu.Unlock()
	}
	r.offTurn = Turn{run: r, off: true, span: r.span}
	r.scope = scope{Context: ctx, run: r}
	if parent != nil && parent.run.sess != s && !parent.off && !r.off {
		r.parent, r.caller = parent, caller
		parent.adopt(r)
	}
	s.flush()
	return &r.scope, r
}

// Session returns the run's session.
func (r *Run) Session() *Session {
	if r == nil {
		return nil
	}
	return r.sess
}

// SpanContext returns the trace and span id of the run, for links from
// elsewhere.
func (r *Run) SpanContext() trace.SpanContext {
	if r == nil {
		return trace.SpanContext{}
	}
	return r.span.SpanContext()
}

// End ends the run: it finished when err is nil, was aborted when err is
// [ErrAborted] or [context.Canceled], and failed otherwise. Turns and compactions
// that are still open end the same way; with a nil error they are aborted,
// because they did not finish. Calls after the first do nothing.
//
// What ends a turn that did not finish ends the runs of sub-agents that were
// started in its context too, see [Turn.Abort].
//
// When End or Abort is deferred and the function panics, the run has failed with
// the panic as its error, as with [Run.Done].
func (r *Run) End(err error) {
	if r == nil || r.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	r.finish(causeOf(err, p))
}

func (r *Run) finish(err error) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = true
	turns, comps := r.turns, r.comps
	r.turns, r.comps = nil, nil
	r.mu.Unlock()
	for _, c := range comps {
		c.finish(CompactionResult{}, orAborted(err))
	}
	for _, t := range turns {
		t.finish(t.unlessPending(err, orAborted(err), false), "") // what asks its user runs, and is stopped
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
	s.tracer.metrics.run(r, err, now)
	if !r.span.IsRecording() {
		s.tracer.finish(r.span, now)
		return
	}
	record.Model = r.model.record()
	record.Outcome = endReason(err)
	if record.Outcome == semconv.EndError {
		record.Error, record.ErrorType = f.content(redact.Other, errorText(err)), errorType(err)
		s.tracer.fail(r.span, now, err, record.Error)
	}
	r.span.SetAttributes(f.attributes(record.Append(make([]attribute.KeyValue, 0, 16)))...)
	s.tracer.finish(r.span, now)
}

// Abort ends the run because its user stopped it: it is End with [ErrAborted].
func (r *Run) Abort() {
	if r == nil || r.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	r.finish(causeOf(ErrAborted, p))
}

// open adds a turn or a compaction to those that the run's end closes. It
// reports whether the run was still open.
func (r *Run) open(t *Turn, c *Compaction) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	if t != nil {
		r.turns = append(r.turns, t)
	}
	if c != nil {
		r.comps = append(r.comps, c)
	}
	r.sess.work(1)
	return true
}

// close takes a turn or a compaction out again.
func (r *Run) close(t *Turn, c *Compaction) {
	r.sess.work(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.turns, t); t != nil && i >= 0 {
		r.turns = slices.Delete(r.turns, i, i+1)
	}
	if i := slices.Index(r.comps, c); c != nil && i >= 0 {
		r.comps = slices.Delete(r.comps, i, i+1)
	}
}

// work counts open turns and compactions.
func (s *Session) work(delta int) {
	s.mu.Lock()
	s.working += delta
	s.mu.Unlock()
}

func (r *Run) now() time.Time { return r.sess.now() }
