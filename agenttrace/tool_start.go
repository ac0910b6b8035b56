package agenttrace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// StartTool begins a tool call and its part of the answer. The returned context
// carries the call, so that a sub-agent started in it is tied to it.
//
// However many layers report a call, it is one: when the turn has an open call of the
// same ID, or one of the last model call's answer that has ended, StartTool returns that
// one. Its execution then begins now, unless o is Inferred, and the first of its
// ends counts.
func (t *Turn) StartTool(ctx context.Context, o ToolOptions) (context.Context, *ToolCall) {
	if t == nil {
		return ctx, nil
	}
	if t.off && !t.run.sess.decides() {
		return t.run.unrecorded(ctx), nil
	}
	if o.ID == "" {
		o.ID = t.inferredID(o)
	}
	if o.ID == "" || t.off {
		ctx, c := t.startTool(ctx, o, nil)
		c.begun()
		return ctx, c
	}
	// Two layers that report a call at the same time must not begin it twice.
	t.starting.Lock()
	c := t.reported(&o)
	if c != nil {
		t.starting.Unlock()
		return c.again(ctx, o)
	}
	ctx, c = t.startTool(ctx, o, nil)
	t.starting.Unlock()
	c.begun()
	return ctx, c
}

// Tool returns the turn's call of that id, for layers that report something of a call
// that another layer began: its output, or that it is executed now. Of several it is the
// last. It is nil when the turn has none, or nothing is recorded.
func (t *Turn) Tool(callID string) *ToolCall {
	if t == nil || t.off || callID == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last(validUTF8(callID), func(*part, bool) bool { return true })
}

// reported returns the call that the turn has already of those options, or nil. Ids need to
// be unique among the calls of one answer only, so a call that ended counts until the next
// model call begins; where model calls are not reported, if several layers reported it.
func (t *Turn) reported(o *ToolOptions) *ToolCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	steps := t.callCount > 0
	return t.last(validUTF8(o.ID), func(p *part, thisStep bool) bool {
		switch {
		case p.ended == nil:
			return thisStep || !o.Inferred
		case o.Inferred:
			return thisStep && !p.ended.inferred // an answer that was read late; otherwise another call
		}
		return thisStep && (steps || p.ended.shared)
	})
}

// last returns the last call of that id that matches, or nil. thisStep reports that it was
// begun since the last model call. The caller holds mu.
func (t *Turn) last(id string, matches func(p *part, thisStep bool) bool) *ToolCall {
	for i := len(t.parts) - 1; i >= 0; i-- {
		switch p := &t.parts[i]; {
		case p.tool != nil && p.tool.callID == id && matches(p, i >= t.stepBegin):
			return p.tool.share()
		case p.ended != nil && p.ended.id == id && matches(p, i >= t.stepBegin):
			return p.endedCall(t)
		}
	}
	return nil
}

// share notes that several layers report the call.
func (c *ToolCall) share() *ToolCall {
	c.mu.Lock()
	c.shared = true
	c.mu.Unlock()
	return c
}

// endedCall stands for a call that the turn has let go of. It has ended: it takes nothing,
// and allows nothing.
func (p *part) endedCall(t *Turn) *ToolCall {
	span := trace.SpanFromContext(trace.ContextWithSpanContext(context.Background(), p.ended.span))
	c := &ToolCall{
		turn: t, span: span, callID: p.ended.id, name: p.ended.tool, partID: p.id, index: p.index,
		message: t.assistant.ID, shared: true, noted: true, state: p.ended.state, denied: p.ended.denied,
	}
	c.ended = true
	return c
}

// again begins a call that another layer reported before.
func (c *ToolCall) again(ctx context.Context, o ToolOptions) (context.Context, *ToolCall) {
	now := c.turn.run.now()
	c.mu.Lock()
	if !c.ended {
		lacks := c.input == ""
		if !o.Inferred {
			lacks = lacks || c.inferred
			c.started, c.changed, c.inferred = now, true, false
		}
		if o.Kind != "" {
			c.kind = o.Kind
		}
		if lacks {
			c.give(o)
		}
		c.updated = max(c.updated, now.UnixMilli())
		c.emitState(now)
	}
	c.mu.Unlock()
	c.begun()
	ctx, _ = c.turn.within(ctx)
	return &scope{Context: trace.ContextWithSpan(ctx, c.span), run: c.turn.run, turn: c.turn, tool: c}, c
}

// give takes the input of the options, if they have one. The caller holds mu, or is the
// only one to know the call.
func (c *ToolCall) give(o ToolOptions) {
	switch {
	case o.RawInput != nil:
		c.input = encodeRaw(o.RawInput)
	case o.Input != nil:
		c.input = encodeInput(o.Input)
	default:
		return
	}
	c.cleaned, c.partial = false, nil
	if c.state == stateInputStreaming {
		c.state = stateInputAvailable
	}
}

// begun reports what the call's beginning changed. The caller holds no lock.
func (c *ToolCall) begun() {
	if c.turn.off {
		return
	}
	c.turn.run.sess.flush()
	c.noteOnce(c.turn.run.now())
}

// Executing reports that the tool runs from now on. A call begins when it is announced,
// perhaps long before that: while its input streams, while other calls of the answer run,
// while a person is asked. Its duration is that of its execution, which begins, unless
// Executing is called, when the last layer began the call, when its input is whole, or
// when it is allowed, whichever is last.
func (c *ToolCall) Executing() {
	c.change("an execution", func(now time.Time) { c.started = now })
}

// startTool begins a call, or goes on with one that waited.
func (t *Turn) startTool(ctx context.Context, o ToolOptions, resumed *PendingTool) (context.Context, *ToolCall) {
	now := t.run.now()
	c := &ToolCall{
		turn: t, name: validUTF8(o.Name), callID: validUTF8(o.ID), started: now, state: stateInputStreaming,
		kind: o.Kind, dynamic: o.Dynamic, providerExecuted: o.ProviderExecuted, inferred: o.Inferred,
	}
	c.announced = now
	c.give(o)
	if t.off {
		c.span = t.span
		return c.enter(ctx), c
	}
	if t.hasEnded() {
		t.drop("a tool call")
		c.span, c.ended = t.span, true
		return c.enter(ctx), c
	}
	c.changed, c.noted, c.resumed = resumed == nil, resumed != nil, resumed != nil
	if t.recording {
		c.sentInput()
	}
	ctx, _ = t.within(ctx)
	ctx, c.span = t.run.sess.tracer.start(ctx, semconv.SpanToolCall, trace.SpanKindInternal, now)
	c.kept = c.span.IsRecording() && c.span.SpanContext().IsSampled()
	ctx = c.enter(ctx)
	p := part{tool: c}

	t.mu.Lock()
	late := t.ended
	switch {
	case late:
		c.ended = true
	case resumed != nil:
		p.id, p.index, p.created = resumed.PartID, resumed.PartIndex, resumed.CreatedAt
		t.parts = append(t.parts, p)
	default:
		t.place(&p, now)
	}
	c.slot = len(t.parts) - 1
	c.message, c.answerAt = t.assistant.ID, t.assistant.CreatedAt
	c.partID, c.index, c.created, c.updated = p.id, p.index, p.created, p.created
	if c.callID == "" && !late {
		c.callID = "call_" + p.id[len(spans.PrefixPart):]
	}
	if !late && resumed == nil && t.events != nil {
		c.emitEvent(now)
	}
	t.mu.Unlock()
	if late {
		// The turn ended meanwhile and does not list the call.
		t.drop("a tool call")
		c.span.SetAttributes(c.filter().attributes([]attribute.KeyValue{
			semconv.SessionIDKey.String(t.run.sess.id), semconv.ToolIDKey.String(c.name),
			semconv.ToolCallIDKey.String(c.callID),
		})...)
		t.run.sess.tracer.finish(c.span, now)
	}
	return ctx, c
}

// enter returns the context in which the call goes on.
func (c *ToolCall) enter(ctx context.Context) context.Context {
	c.scope = scope{Context: ctx, run: c.turn.run, turn: c.turn, tool: c}
	return &c.scope
}
