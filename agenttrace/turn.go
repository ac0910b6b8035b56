package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Tool describes a tool to the model.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON Schema of the tool's input.
	Parameters json.RawMessage
}

// TurnOptions states what the turn's model calls are made with. Each can be changed while the turn goes on.
type TurnOptions struct {
	// Model is the run's when it is zero.
	Model       Model
	Temperature *float64
	// SystemPrompt is the prompt as assembled. It is stored once per digest and sent once per run.
	SystemPrompt string
	// Tools are those that the model may call.
	Tools []Tool
}

// TurnResult states how a turn finished.
type TurnResult struct {
	// StopReason is the provider's word; empty means that of the last model call.
	StopReason string
	// Metadata is stored with the assistant message as JSON.
	Metadata map[string]any
}

// Turn is one user message through to a finished answer, over however many model calls: a session.turn span. End it
// with End, Abort or Fail; of these the first counts, so that "defer turn.Abort()" is a safe net.
//
// A Turn is safe for concurrent use.
type Turn struct {
	run *Run
	// off reports that nothing is recorded and nothing decides; such a turn is
	// shared by all turns of its run and has no other field set but span.
	off bool
	// recording reports that the span takes attributes.
	recording bool
	span      trace.Span
	scope     scope
	index     int64
	started   time.Time
	user      spans.Message
	userID    string
	// events is where events of the turn go, nil when there are none.
	events context.Context
	// restored reports that the turn ended with its process, and when is not known.
	restored bool

	// starting is held while the span of a call starts, and by a turn that ends. It is locked before mu.
	starting sync.Mutex

	ending      // its mu guards what follows, and the parts and model calls. It is locked before the session's.
	model       Model
	temperature *float64
	prompt      *body
	catalog     *body
	assistant   spans.Message
	reserved    string // id of the answer that has not begun, once a state names it
	nextPart    int64
	nextStep    int64
	parts       []part
	stepBegin   int          // how many parts there were when the last model call began
	calls       []*ModelCall // open ones
	callCount   int64
	usage       spans.Usage
	stopReason  string
	metadata    map[string]json.RawMessage
	waiting     []PendingTool
	children    []*Run // of sub-agents that were started in the turn's context
}

// StartTurn begins a turn with a user message, before the model sees it. The returned context carries the turn.
func (r *Run) StartTurn(ctx context.Context, m UserMessage, o TurnOptions) (context.Context, *Turn) {
	if r == nil {
		return ctx, nil
	}
	if r.off {
		return r.unrecorded(ctx), &r.offTurn
	}
	s := r.sess
	now := r.now()
	at := s.stamp(now)
	t := r.newTurn(now, o)
	s.mu.Lock()
	t.index = s.st.NextTurn
	s.st.NextTurn++
	s.mu.Unlock()
	t.userID = validUTF8(m.ID)
	if t.userID == "" {
		t.userID = spans.NewID(spans.PrefixMessage, now)
	}
	r.guard.reset()
	t.mu.Lock()
	ctx = t.begin(ctx, now)
	if t.recording {
		t.user = userMessage(&s.tracer.filter, m, t.userID, at, now)
		t.emitUser(now)
	}
	t.mu.Unlock()
	s.flush()
	return ctx, t
}

func userMessage(f *filter, m UserMessage, id string, at int64, now time.Time) spans.Message {
	u := spans.Message{ID: id, CreatedAt: at}
	parts := m.Parts
	if m.Text != "" {
		parts = append([]Part{TextPart(m.Text)}, parts...)
	}
	for _, p := range parts {
		if p.kind == "" {
			continue
		}
		u.Parts = append(u.Parts, spans.Part{
			ID: spans.NewID(spans.PrefixPart, now), Index: int64(len(u.Parts)), Type: f.id(p.kind), CreatedAt: at,
			UpdatedAt: at, Data: p.data(f, redact.Prompt),
		})
	}
	if len(m.Metadata) > 0 || m.Trigger != nil {
		values := make(map[string]json.RawMessage, len(m.Metadata)+1)
		encodeValues(values, m.Metadata)
		if m.Trigger != nil {
			values["trigger"] = json.RawMessage(encodeJSON(m.Trigger))
		}
		u.Metadata = f.raw(redact.Other, "", encodeObject(values))
	}
	return u
}

func (r *Run) newTurn(now time.Time, o TurnOptions) *Turn {
	t := &Turn{
		run: r, started: now, model: o.Model, temperature: cloneFloat(o.Temperature),
		prompt: r.sess.tracer.prompt(o.SystemPrompt), catalog: r.sess.tracer.catalog(o.Tools),
	}
	if t.model == (Model{}) {
		t.model = r.model
	}
	return t
}

// begin starts the turn's span and enters it among the run's open turns. The
// caller holds mu, so that a run that ends meanwhile finds the turn whole.
func (t *Turn) begin(ctx context.Context, now time.Time) context.Context {
	r := t.run
	if !r.open(t) {
		t.ended = true
		t.span = r.span
		r.sess.tracer.drop("a turn", r.sess.id)
	} else {
		if RunFromContext(ctx) != r {
			ctx = withSpan(ctx, r.span) // a session's spans belong to its runs, and are sampled with them
		}
		ctx, t.span = r.sess.tracer.start(ctx, semconv.SpanSessionTurn, trace.SpanKindInternal, now)
		t.recording = t.span.IsRecording()
		t.events = r.sess.tracer.live.begin(ctx, t.span, semconv.EventPart)
		s := r.sess
		s.mu.Lock()
		s.turns = append(s.turns, t)
		s.enter(t.events, now, s.atWork())
		s.mu.Unlock()
		if r.inferred && t.recording {
			observed.Store(t, nil)
		}
	}
	t.scope = scope{Context: ctx, run: r, turn: t}
	return &t.scope
}

// ContinueTurn takes up the turn that waits for a human: the same turn index and the same assistant message go on,
// and no user message is sent. Options left zero are those of the run.
//
// Read [Turn.PendingTools] for what waits and answer with [Turn.ResumeTool]. The
// error is [ErrNothingPending] when no turn waits.
func (r *Run) ContinueTurn(ctx context.Context, o TurnOptions) (context.Context, *Turn, error) {
	if r == nil {
		return ctx, nil, nil
	}
	if r.off {
		return r.unrecorded(ctx), &r.offTurn, nil
	}
	s := r.sess
	now := r.now()
	t := r.newTurn(now, o)
	s.mu.Lock()
	p := s.st.Pending
	if p == nil {
		s.mu.Unlock()
		return ctx, nil, fmt.Errorf("continue turn of session %s: %w", s.id, ErrNothingPending)
	}
	s.st.Pending = nil
	s.mu.Unlock()
	t.restore(p)
	t.waiting = slices.Clone(p.Tools)
	t.mu.Lock()
	ctx = t.begin(ctx, now)
	late := t.ended
	t.mu.Unlock()
	if late {
		s.mu.Lock()
		s.st.Pending = p
		s.mu.Unlock()
		return ctx, t, fmt.Errorf("continue turn of session %s: the run has ended", s.id)
	}
	s.flush()
	return ctx, t, nil
}

// restore makes t go on where p stopped.
func (t *Turn) restore(p *PendingTurn) {
	t.index, t.userID = p.Index, p.UserMessageID
	t.assistant = spans.Message{ID: p.AssistantMessageID, CreatedAt: p.AssistantCreatedAt}
	if p.AssistantCreatedAt == 0 && len(p.Tools) == 0 {
		t.assistant.ID, t.reserved = "", p.AssistantMessageID // it had not begun
	}
	t.nextPart, t.nextStep = p.NextPart, p.NextStep
}

// Index returns the turn's place among the turns of its session, from 0.
func (t *Turn) Index() int64 { return of(t, func(t *Turn) int64 { return t.index }) }

// UserMessageID returns the id of the message that began the turn, "" when nothing is recorded.
func (t *Turn) UserMessageID() string { return of(t, func(t *Turn) string { return t.userID }) }

// AssistantMessageID returns the id of the message that answers and creates it if
// the answer has not begun. It is "" when nothing is recorded.
func (t *Turn) AssistantMessageID() string {
	if t == nil || t.off {
		return ""
	}
	id, now := "", t.run.now()
	t.do(func() { id = t.answer(now) })
	return id
}

// do runs f with mu held, and then emits the events of the turn.
func (t *Turn) do(f func()) { t.run.sess.do(&t.mu, f) }

// answer returns the id of the assistant message, which begins when it is first needed: what comes between the user
// message and the answer, such as a compaction, sorts between them. The caller holds mu.
func (t *Turn) answer(now time.Time) string {
	if t.assistant.ID == "" {
		s := t.run.sess
		if t.assistant.ID = t.reserved; t.reserved == "" {
			t.assistant.ID = spans.NewID(spans.PrefixMessage, now)
		}
		t.assistant.CreatedAt = s.stamp(now)
		t.emitAnswer(now)
	}
	return t.assistant.ID
}

// SpanContext returns the turn's trace and span id.
func (t *Turn) SpanContext() trace.SpanContext {
	return of(t, func(t *Turn) trace.SpanContext { return t.span.SpanContext() })
}

// SetModel changes the model for the calls that follow. The turn is recorded
// with its last model; each call with its own.
func (t *Turn) SetModel(m Model) {
	t.set("a model", func() {
		if t.model != m {
			t.model = m
			t.emitAnswer(t.run.now())
		}
	})
}

// SetSystemPrompt changes the prompt for the calls that follow. The turn is recorded with the last one.
func (t *Turn) SetSystemPrompt(prompt string) {
	if t != nil && !t.off {
		b := t.run.sess.tracer.prompt(prompt)
		t.set("a system prompt", func() { t.prompt = b })
	}
}

// SetTools changes the tools that the model may call. The turn is recorded with the last ones.
func (t *Turn) SetTools(tools []Tool) {
	if t != nil && !t.off {
		b := t.run.sess.tracer.catalog(tools)
		t.set("a tool catalog", func() { t.catalog = b })
	}
}

// SetMetadata merges values into the assistant message's metadata.
func (t *Turn) SetMetadata(values map[string]any) {
	t.set("metadata", func() {
		if t.metadata == nil {
			t.metadata = make(map[string]json.RawMessage, len(values))
		}
		encodeValues(t.metadata, values)
		t.emitAnswer(t.run.now())
	})
}

// set runs change with mu held, unless the turn has ended.
func (t *Turn) set(what string, change func()) {
	if t == nil || t.off {
		return
	}
	ended := false
	t.do(func() {
		if ended = t.ended; !ended {
			change()
		}
	})
	if ended {
		t.drop(what)
	}
}

func (t *Turn) drop(what string) { t.run.sess.tracer.drop(what, "turn "+t.userID) }

// End ends the turn: the model came to a finished state. Tool calls that wait for an approval make the turn
// pending; other open tool calls and model calls end as they are.
//
// When End or Abort is deferred and the function panics, the turn has failed with
// the panic as its error, as with [Turn.Done].
func (t *Turn) End(result TurnResult) { t.endWith(nil, result, recover()) }

func (t *Turn) endWith(err error, result TurnResult, recovered any) {
	defer repanic(recovered)
	if t == nil || t.off || t.hasEnded() {
		return
	}
	now := t.run.now()
	if len(result.Metadata) > 0 {
		t.SetMetadata(result.Metadata)
	}
	t.finish(now, causeOf(err, recovered), result.StopReason)
}

// Abort ends the turn because its user stopped it. Text stays where it stopped
// and open tool calls in the state that they had reached.
//
// Open runs of sub-agents that were started in the turn's context are aborted with it, and the tool call that
// started one fails with "aborted by parent"; the same holds when the turn fails, and when its run ends before it.
// A turn that ends with End leaves them alone.
//
// Nothing but Abort, Fail and [Run.End] aborts: a context that is cancelled, a
// client that goes away, a log processor that is shut down do not.
func (t *Turn) Abort() { t.endWith(ErrAborted, TurnResult{}, recover()) }

// Fail ends the turn because of err. An err that is [ErrAborted] or
// [context.Canceled] aborts it; with a nil err Fail is End.
func (t *Turn) Fail(err error) { t.endWith(err, TurnResult{}, nil) }

// unlessPending returns cause, or nil if a call waits for a human: of the errors of a safe net, only one that failed
// the turn or with which its user stopped it ends the wait. asks reports that a call that asks its user counts too.
func (t *Turn) unlessPending(err, cause error, asks bool) error {
	if endReason(err) == semconv.EndError || errors.Is(err, ErrAborted) {
		return cause
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := len(t.waiting) > 0
	for _, c := range t.tools() {
		pending = pending || c.isPending(nil) && (asks || !c.p.AsksUser)
	}
	if pending {
		return nil
	}
	return cause
}

// finish ends the turn once: it ends what is open in it, reads its parts as they are then,
// brings the session up to date, and writes the span.
func (t *Turn) finish(now time.Time, err error, stopReason string) {
	reason := endReason(err)
	t.starting.Lock()
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		t.starting.Unlock()
		return
	}
	if t.ended = true; reason == semconv.EndFinish {
		err = nil
	}
	t.answer(now)
	calls, children := slices.DeleteFunc(t.calls, func(c *ModelCall) bool { return c.aside }), t.children
	t.calls, t.children = nil, nil
	t.mu.Unlock()
	t.starting.Unlock()

	t.endOpen(reason, err, calls, children)
	until := time.Time{} // an aborted turn leaves its calls as they are
	if grace := t.run.sess.tracer.grace; reason != semconv.EndAbort && grace > 0 {
		until = now.Add(grace)
	}
	parts, waiting, updated := t.freeze(now, until)
	pending := len(waiting) > 0 && reason == semconv.EndFinish
	title := t.leave(now, reason, err, pending, waiting, updated)
	t.run.close(t)
	if t.run.inferred {
		observed.Delete(t)
	}
	s := t.run.sess
	s.flush()
	now = failedAt(err, now) // the status above is of now
	if t.recording {
		t.record(now, reason, err, cmp.Or(stopReason, t.stopReason), title, pending, parts)
	}
	s.tracer.finish(t.span, now)
}

// endOpen ends what is open when the turn ends: sub-agents of a turn that did not finish,
// the tool calls of one that panicked, and model calls.
func (t *Turn) endOpen(reason string, err error, calls []*ModelCall, children []*Run) {
	if reason != semconv.EndFinish {
		for _, r := range children {
			r.End(ErrAborted)
			if r.caller != nil && r.caller.turn == t {
				r.caller.abandon(abortedByParent, semconv.ErrorTypeAborted)
			}
		}
	}
	if p := panicOf(err); p != nil {
		for _, c := range t.tools() { // nothing is added to an ended turn
			c.abandon("aborted by "+p.text, semconv.ErrorTypePanic)
		}
	}
	for _, c := range calls {
		c.finish(ModelResult{}, orAborted(err), true)
	}
}

// freeze returns the parts as they are when the turn ends, the calls that wait for a human,
// and when the answer changed last.
func (t *Turn) freeze(now, until time.Time) (encoded []spans.Part, waiting []PendingTool, updated int64) {
	var open []trace.Span
	defer func() { // without the lock
		for _, span := range open {
			t.run.sess.tracer.finish(span, now)
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	encoded = make([]spans.Part, len(t.parts))
	updated = t.assistant.CreatedAt
	for i, p := range t.parts {
		if c, ok := p.(*ToolCall); ok && !c.ended {
			open = append(open, c.span)
		}
		encoded[i] = p.freeze(now, until)
		updated = max(updated, encoded[i].UpdatedAt)
		if c, ok := p.(*ToolCall); ok {
			if w, waits := c.pending(); waits {
				waiting = append(waiting, w)
			}
		}
	}
	t.waiting = append(t.waiting, waiting...)
	return encoded, slices.Clone(t.waiting), updated
}

// leave brings the session's state and status up to date when the turn ends, and returns the session's title.
func (t *Turn) leave(
	now time.Time, reason string, err error, pending bool, waiting []PendingTool, updated int64) (title string,
) {
	s := t.run.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working--
	s.st.Model = t.model
	s.turns = slices.DeleteFunc(s.turns, func(o *Turn) bool { return o == t })
	s.last = t.remains()
	s.waits = slices.DeleteFunc(s.waits, func(w waitingCall) bool { return w.call.turn == t })
	s.st.LastStamp = max(s.st.LastStamp, updated)
	if pending {
		p := t.pending(waiting)
		s.st.Pending = &p
	}
	switch {
	case pending: // then the session need not be alive any more
		s.enter(t.events, now, waiting[0].status())
	case s.working > 0:
		s.enter(t.events, now, s.atWork())
	case reason == semconv.EndError:
		s.enter(t.events, now, Status{State: StatusError, Detail: errorText(err)})
	default:
		s.enter(t.events, now, Status{State: StatusIdle})
	}
	return s.st.Title
}

// remains is what a call beside the conversation needs of the turn that ended last, without the content.
func (t *Turn) remains() *Turn {
	return &Turn{
		run: t.run, recording: t.recording, span: reference(t.span), index: t.index, userID: t.userID,
		ending: ending{ended: true}, model: t.model, assistant: spans.Message{ID: t.assistant.ID}, nextStep: t.nextStep,
	}
}

// record writes what the turn's span reports.
func (t *Turn) record(
	now time.Time, reason string, err error, stopReason, title string, pending bool, parts []spans.Part,
) {
	s := t.run.sess
	f := &s.tracer.filter
	record := spans.Turn{
		SessionID: s.id, Agent: s.st.Agent, Title: f.text(redact.Other, "", title), ParentID: s.st.ParentID,
		ParentMessageID: s.st.ParentMessageID, Index: &t.index, Model: t.model.record(), Temperature: t.temperature,
		Usage: t.usage, ModelCalls: t.callCount, StopReason: validUTF8(stopReason), EndReason: reason,
		PendingApproval: pending,
		User:            t.user, Assistant: t.assistant,
	}
	record.SystemPromptDigest, record.SystemPrompt = t.run.sent(t.prompt)
	record.ToolCatalogDigest, record.ToolCatalog = t.run.sent(t.catalog)
	record.Assistant.Parts = parts
	record.Assistant.Metadata = f.raw(redact.Other, "", encodeObject(t.metadata))
	duration := max(0, now.Sub(t.started).Milliseconds())
	if !t.restored {
		record.DurationMS = &duration
	}
	switch {
	case reason == semconv.EndError:
		record.Error, record.ErrorType = s.tracer.failed(t.span, now, err)
	case t.restored && reason == semconv.EndAbort:
		record.Error, record.ErrorType = abortedByRestart, semconv.ErrorTypeAborted
	}
	t.span.SetAttributes(f.attributes(spans.Append(make([]attribute.KeyValue, 0, 48), &record))...)
}

// adopt remembers the run of a sub-agent that was started in the turn's context, disown forgets it.
func (t *Turn) adopt(r *Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.children = append(t.children, r)
	}
}

func (t *Turn) disown(r *Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.children = slices.DeleteFunc(t.children, func(o *Run) bool { return o == r })
}
