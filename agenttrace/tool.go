package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// ToolKind states what a tool does, in the words of the Agent Client Protocol.
// Permission rules may name it as a capability.
type ToolKind string

// Kinds of tools.
const (
	ToolRead    ToolKind = semconv.ToolKindRead
	ToolEdit    ToolKind = semconv.ToolKindEdit
	ToolDelete  ToolKind = semconv.ToolKindDelete
	ToolMove    ToolKind = semconv.ToolKindMove
	ToolSearch  ToolKind = semconv.ToolKindSearch
	ToolExecute ToolKind = semconv.ToolKindExecute
	ToolThink   ToolKind = semconv.ToolKindThink
	ToolFetch   ToolKind = semconv.ToolKindFetch
	ToolOther   ToolKind = semconv.ToolKindOther
)

// ToolOptions describes a tool call.
type ToolOptions struct {
	// ID is the model's id of the call; empty means that of the first call of the same Name that is Inferred and has
	// not begun, with the same Input if there is one, or else a new one.
	ID string
	// Name is the tool's.
	Name string
	// Input is what the model gave the tool: JSON as [json.RawMessage], []byte or string, or any value that encodes
	// to JSON. Other text is stored as text. Nil means that it has yet to arrive, by [ToolCall.InputDelta] or
	// [ToolCall.SetInput].
	Input any
	// RawInput is Input for JSON text, of which it makes no interface.
	RawInput json.RawMessage
	Kind     ToolKind
	// Dynamic reports that the tool was not known when the agent was built, as with MCP.
	Dynamic bool
	// ProviderExecuted reports that the provider ran the tool, not the agent.
	ProviderExecuted bool
	// Inferred reports that the caller observes requests and not the tool: the call
	// lasts from here until the request with its result. When the agent itself begins a
	// call of the same ID in the turn, it gets this one, which is then not inferred.
	Inferred bool
}

// Truncated describes the whole of an output of which the model saw the head.
type Truncated struct {
	// Path is where the whole output is.
	Path string
	// Size is in bytes.
	Size int64
	// SHA256 is in lower-case hex.
	SHA256 string
}

// States of a tool call, those of the AI SDK.
const (
	stateInputStreaming    = "input-streaming"
	stateInputAvailable    = "input-available"
	stateApprovalRequested = "approval-requested"
	stateApprovalResponded = "approval-responded"
	stateOutputAvailable   = "output-available"
	stateOutputError       = "output-error"
)

// ToolCall is one call of a tool: a tool.call span. End it with End, EndTruncated, Fail, Done or Abort; of these
// the first counts. A call that is denied by [ToolCall.Authorize] has ended.
//
// A call may end after its turn, unless that was aborted: for [Options].ResultGrace its result is accepted, and then
// dropped, counted and reported. Such a call has two spans of one part, the first of which ended with the turn.
//
// A ToolCall is safe for concurrent use.
type ToolCall struct {
	slot
	at    int // the index of the call among the parts of its turn
	span  trace.Span
	scope scope

	// announced is when the call began, started, guarded by the turn's mu, when its execution did.
	announced, started time.Time

	kept bool // the span is recorded and sampled

	// The turn's mu guards what follows.
	ended bool
	// inferred is that of the options; shared reports that several layers report the call, claimed that one without
	// its id has found it.
	inferred, shared, claimed bool

	// p is what another process must know of the call, without its input and place. Its id and name never change.
	p PendingTool
	// answered reports that a human answered the question that the call waited on, approved and reason are the answer.
	answered, approved bool
	reason             string
	partial            []byte // what came of the input while it streams
	input              string // JSON, empty until it is whole
	clean              string // input as it may be sent, once cleaned is set
	cleaned            bool
	outcome
	updated int64
	// waits reports that the session knows that the call waits, later that the answer to an approval may outlast the
	// process.
	waits, later bool
	noted        bool      // the run's guard knows of the call
	changed      bool      // something has changed since the last event
	resumed      bool      // an earlier turn reported the call in its present state
	restored     bool      // its duration is not known
	lateUntil    time.Time // until when a result is accepted, if the turn ended before the call
	throttle     throttle
	duration     int64
	rest         *remains // set in what a turn keeps of a call that has ended
}

// remains is what a turn needs of the content of a call that has ended.
type remains struct {
	// listed is nil if the call's own span has the content. sent is for the model calls that follow, if content is
	// captured.
	listed, sent []byte
	// shared reports that several layers reported the call while it was open.
	shared bool
}

// StartTool begins a tool call and its part of the answer. The returned context
// carries the call, so that a sub-agent started in it is tied to it.
//
// However many layers report a call, it is one: when the turn has an open call of the same ID, or one of the last
// model call's answer that has ended, StartTool returns that one. Its execution then begins now, unless o is
// Inferred, and the first of its ends counts.
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
	ctx, c := t.startTool(ctx, o, nil)
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
	return t.lastTool(callID, func(*ToolCall, bool) bool { return true })
}

// reported returns the call that the turn has already of those options, or nil. Ids need to
// be unique among the calls of one answer only, so a call that ended counts until the next
// model call begins; where model calls are not reported, if several layers reported it. The caller holds mu.
func (t *Turn) reported(o *ToolOptions) *ToolCall {
	return t.lastTool(o.ID, func(c *ToolCall, thisStep bool) bool {
		switch {
		case c.rest == nil:
			return thisStep || !o.Inferred
		case o.Inferred:
			return thisStep && !c.inferred // an answer that was read late; otherwise another call
		}
		return thisStep && (t.callCount > 0 || c.rest.shared)
	})
}

// lastTool returns the last call of that id that matches, or nil. thisStep reports that it was
// begun since the last model call. The caller holds mu.
func (t *Turn) lastTool(id string, matches func(c *ToolCall, thisStep bool) bool) *ToolCall {
	id = validUTF8(id)
	for i := len(t.parts) - 1; i >= 0; i-- {
		if c, ok := t.parts[i].(*ToolCall); ok && c.p.CallID == id && matches(c, i >= t.stepBegin) {
			c.shared = true
			return c
		}
	}
	return nil
}

// tools returns the tool calls of the answer. The caller holds mu, or the turn has ended.
func (t *Turn) tools() (all []*ToolCall) {
	for _, p := range t.parts {
		if c, ok := p.(*ToolCall); ok {
			all = append(all, c)
		}
	}
	return all
}

// again begins a call that another layer reported before, and returns its context. by is the call as this layer
// has it. The caller holds the turn's mu.
func (c *ToolCall) again(ctx context.Context, by *ToolCall, now time.Time) context.Context {
	if !c.ended {
		lacks := c.input == ""
		if !by.inferred {
			lacks = lacks || c.inferred
			c.started, c.changed, c.inferred = now, true, false
		}
		c.p.Kind = cmp.Or(by.p.Kind, c.p.Kind)
		if lacks && by.input != "" {
			c.take(by.input)
		}
		c.updated = max(c.updated, now.UnixMilli())
		c.emitState(now)
	}
	return &scope{Context: withSpan(ctx, c.span), run: c.turn.run, turn: c.turn, tool: c}
}

// take makes an input the call's.
func (c *ToolCall) take(input string) {
	c.input, c.cleaned, c.partial = input, false, nil
	if c.p.State == stateInputStreaming {
		c.p.State = stateInputAvailable
	}
}

// begun reports what the call's beginning changed. The caller holds no lock.
func (c *ToolCall) begun() {
	if !c.turn.off {
		c.turn.run.sess.flush()
		c.noteOnce(c.turn.run.now())
	}
}

// Executing reports that the tool runs from now on. A call begins when it is announced, perhaps long before that:
// while its input streams, while other calls of the answer run, while a person is asked. Its duration is that of
// its execution, which begins, unless Executing is called, when the last layer began the call, when its input is
// whole, or when it is allowed, whichever is last.
func (c *ToolCall) Executing() {
	c.change("an execution", func(now time.Time) { c.started = now })
}

// startTool begins a call, or goes on with one that waited. When the turn has the call already, it is that one.
func (t *Turn) startTool(ctx context.Context, o ToolOptions, resumed *PendingTool) (context.Context, *ToolCall) {
	now := t.run.now()
	c := &ToolCall{
		slot: slot{turn: t}, announced: now, started: now,
		p: PendingTool{
			CallID: validUTF8(o.ID), Name: validUTF8(o.Name), State: stateInputStreaming, Kind: o.Kind, Dynamic: o.Dynamic,
			ProviderExecuted: o.ProviderExecuted,
		},
		inferred: o.Inferred, changed: resumed == nil, noted: resumed != nil, resumed: resumed != nil, span: t.span,
	}
	switch {
	case o.RawInput != nil:
		c.take(encodeRaw(o.RawInput))
	case o.Input != nil:
		c.take(encodeInput(o.Input))
	}
	if t.off {
		return c.enter(ctx), c
	}
	if t.recording {
		c.sentInput()
	}
	inner, _ := t.within(ctx)
	// Two layers that report a call at the same time must not begin it twice, and a turn that ends must find its span.
	// The span starts without mu, because a sampler or a span processor may ask the turn, or log into it.
	t.starting.Lock()
	defer t.starting.Unlock()
	t.mu.Lock()
	var known *ToolCall
	if resumed == nil && o.ID != "" {
		if known = t.reported(&o); known != nil {
			ctx = known.again(inner, c, now)
		}
	}
	c.ended = t.ended
	t.mu.Unlock()
	switch {
	case known != nil:
		return ctx, known
	case c.ended:
		t.drop("a tool call")
		return c.enter(ctx), c
	}
	ctx, c.span = c.tracer().start(inner, semconv.SpanToolCall, trace.SpanKindInternal, now)
	c.kept = c.span.IsRecording() && c.span.SpanContext().IsSampled()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enroll(c, now, resumed)
	if resumed == nil {
		c.emitEvent(now)
	}
	return c.enter(ctx), c
}

// enroll gives a call that begins, or goes on, its part of the answer. The caller holds mu.
func (t *Turn) enroll(c *ToolCall, now time.Time, resumed *PendingTool) {
	if resumed != nil {
		c.slot = slot{
			t, resumed.PartID, resumed.PartIndex, resumed.CreatedAt, t.assistant.ID, t.assistant.CreatedAt,
		}
		t.parts = append(t.parts, c)
	} else {
		c.slot = t.place(c, now)
	}
	c.at, c.updated = len(t.parts)-1, c.created
	if c.p.CallID == "" {
		c.p.CallID = "call_" + c.partID[len(spans.PrefixPart):]
	}
}

// enter returns the context in which the call goes on.
func (c *ToolCall) enter(ctx context.Context) context.Context {
	c.scope = scope{Context: orBackground(ctx), run: c.turn.run, turn: c.turn, tool: c}
	return &c.scope
}

// emitEvent queues the call's part as it is now. The caller holds the turn's mu.
func (c *ToolCall) emitEvent(now time.Time) {
	if c.turn.events != nil {
		c.emitInput(now, c.sentInput())
	}
}

func (c *ToolCall) emitInput(now time.Time, input string) {
	c.changed, c.throttle.at = false, now
	data := c.data(input)
	p := c.part(c.partType(), c.updated, data)
	p.ToolCallID, p.ToolState = c.filter().id(c.p.CallID), c.p.State
	c.emit(now, p)
}

// emitState queues the part if it has changed since the last event. The caller holds mu.
func (c *ToolCall) emitState(now time.Time) {
	if c.changed {
		c.emitEvent(now)
	}
}

func (c *ToolCall) partType() string {
	if c.p.Dynamic {
		return "dynamic-tool"
	}
	return "tool-" + c.filter().id(c.p.Name)
}

// toolType states, with a value of the GenAI conventions, who runs the tool.
func (c *ToolCall) toolType() string {
	if c.p.ProviderExecuted {
		return "extension"
	}
	return "function"
}

// ID returns the call's id, "" for nil.
func (c *ToolCall) ID() string { return of(c, func(c *ToolCall) string { return c.p.CallID }) }

// Name returns the tool's name, "" for nil.
func (c *ToolCall) Name() string { return of(c, func(c *ToolCall) string { return c.p.Name }) }

// PartID returns the id of the call's part of the message, "" when nothing is recorded.
func (c *ToolCall) PartID() string { return of(c, func(c *ToolCall) string { return c.partID }) }

// SpanContext returns the call's trace and span id.
func (c *ToolCall) SpanContext() trace.SpanContext {
	return of(c, func(c *ToolCall) trace.SpanContext { return c.span.SpanContext() })
}

// hasEnded reports whether the call has ended.
func (c *ToolCall) hasEnded() bool { return with(&c.turn.mu, func() bool { return c.ended }) }

// change runs f with the turn's mu held, unless the call has ended.
func (c *ToolCall) change(what string, f func(now time.Time)) {
	if c == nil {
		return
	}
	now := c.turn.run.now()
	dropped := false
	c.turn.do(func() {
		if dropped = c.ended && !c.shared; !c.ended {
			c.updated = max(c.updated, now.UnixMilli())
			f(now)
		}
	})
	if dropped {
		c.tracer().drop(what, "tool call "+c.p.CallID)
	}
}

// SetChildSession states which session a sub-agent started by the call has. A sub-agent in
// this process needs no call of it: see [Tracer.NewSession].
func (c *ToolCall) SetChildSession(id string) {
	c.change("a child session", func(now time.Time) {
		c.p.ChildSessionID, c.changed = validUTF8(id), true
		c.emitState(now)
	})
}

// InputDelta adds to the input as the model sends it. [ToolCall.SetInput] makes
// it whole; so does anything that needs it whole.
func (c *ToolCall) InputDelta(text string) {
	c.change("input", func(now time.Time) {
		if c.p.State != stateInputStreaming {
			return
		}
		c.partial, c.changed = append(c.partial, text...), true
		c.turn.grow(&c.throttle, now, len(c.partial), c.emitPartial)
	})
}

// emitPartial queues as much of the input that streams as cannot change, if no event has had it. The caller holds mu.
func (c *ToolCall) emitPartial(now time.Time) {
	settled := c.filter().settled(string(c.partial))
	if c.ended || c.p.State != stateInputStreaming || len(settled) <= c.throttle.sent {
		return
	}
	c.throttle.sent = len(settled)
	input, _ := c.filter().value(redact.ToolInput, settled, true)
	c.emitInput(now, input)
	c.changed = true // the event may lack the last words
}

// SetInput gives the call its whole input, which is what [ToolOptions].Input may
// be. With nil, what InputDelta added up to is the whole.
func (c *ToolCall) SetInput(input any) {
	if c == nil {
		return
	}
	var encoded string
	if input != nil {
		encoded = encodeInput(input)
	}
	now := c.turn.run.now()
	c.change("input", func(now time.Time) {
		c.input, c.cleaned, c.changed = encoded, false, true
		if c.p.State == stateInputStreaming {
			c.started = now // not before its input is whole
		}
		c.complete()
		c.emitState(now)
	})
	c.noteOnce(now)
}

// complete makes the input whole if it still streams. The caller holds mu.
func (c *ToolCall) complete() {
	if c.input == "" && len(c.partial) > 0 {
		c.input, c.cleaned = encodeRaw(c.partial), false
	}
	c.partial = nil
	if c.p.State == stateInputStreaming {
		c.p.State, c.changed = stateInputAvailable, true
	}
}

// sentInput is wholeInput as it may be sent. The caller holds mu.
func (c *ToolCall) sentInput() string {
	if c.input == "" {
		if len(c.partial) == 0 {
			return ""
		}
		out, _ := c.filter().value(redact.ToolInput, string(c.partial), true)
		return out
	}
	if !c.cleaned {
		c.clean, _ = c.filter().value(redact.ToolInput, c.input, false)
		c.cleaned = true
	}
	return c.clean
}

// wholeInput returns the input as JSON, "" when none came. Of input that never
// became whole it is as much as came, as a JSON string. The caller holds mu.
func (c *ToolCall) wholeInput() string {
	if c.input == "" && len(c.partial) > 0 {
		return quote(string(c.partial))
	}
	return c.input
}

// data returns the call as an AI SDK part with that input. The caller holds mu.
func (c *ToolCall) data(in string) []byte {
	b := make([]byte, 0, len(in)+len(c.output)+len(c.errText)+256)
	b = spans.AppendJSONMember(append(b, '{'), "type", c.partType())
	if c.p.Dynamic {
		b = spans.AppendJSONMember(b, "toolName", c.filter().id(c.p.Name))
	}
	b = spans.AppendJSONMember(b, "toolCallId", c.filter().id(c.p.CallID))
	b = spans.AppendJSONMember(b, "state", c.p.State)
	if in != "" {
		b = append(append(b, `,"input":`...), in...)
	} else if c.p.State != stateInputStreaming && c.p.State != stateOutputError {
		b = append(b, `,"input":null`...)
	}
	if c.output != "" {
		b = append(append(b, `,"output":`...), c.output...)
	}
	if c.p.State == stateOutputError {
		b = spans.AppendJSONMember(b, "errorText", c.errText)
	}
	if c.p.ProviderExecuted {
		b = append(b, `,"providerExecuted":true`...)
	}
	if c.p.ApprovalID != "" && (c.p.State == stateApprovalRequested || c.p.State == stateApprovalResponded) {
		b = spans.AppendJSONMember(append(b, `,"approval":{`...), "id", c.p.ApprovalID)
		if c.answered {
			b = strconv.AppendBool(append(b, `,"approved":`...), c.approved)
			b = spans.AppendJSONOptional(b, "reason", c.reason)
		}
		b = append(b, '}')
	}
	// An error of this type was not seen by this process, so any other report takes precedence.
	if aborted := c.errType == semconv.ErrorTypeAborted; aborted || c.p.ChildSessionID != "" {
		b = append(b, `,"toolMetadata":{"agenttrace":{`...)
		b = spans.AppendJSONOptional(b, "child_session_id", c.filter().id(c.p.ChildSessionID))
		if aborted {
			b = spans.AppendJSONMember(b, "error_type", semconv.ErrorTypeAborted)
		}
		b = append(b, "}}"...)
	}
	return append(b, '}')
}

func (c *ToolCall) content() []byte {
	if c.rest != nil {
		return c.rest.sent
	}
	return c.data(c.sentInput())
}
