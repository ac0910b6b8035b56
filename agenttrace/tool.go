package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
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
	// ID is the model's id of the call; empty means that of the first call of the same Name
	// and Input that is Inferred and has not begun, or else a new one.
	ID string
	// Name is the tool's.
	Name string
	// Input is what the model gave the tool: JSON as [json.RawMessage], []byte or
	// string, or any value that encodes to JSON. Other text is stored as text. Nil
	// means that it has yet to arrive, by [ToolCall.InputDelta] or
	// [ToolCall.SetInput].
	Input any
	// RawInput is Input for callers on a hot path: JSON text that is not looked
	// at, where Input is checked and turned into a JSON string when it is none.
	// What turns out to be no JSON is stored as text, and marked. RawInput is
	// copied.
	RawInput json.RawMessage
	Kind     ToolKind
	// Dynamic reports that the tool was not known when the agent was built, as with
	// MCP.
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

// ToolCall is one call of a tool: a tool.call span. End it with End,
// EndTruncated, Fail, Done or Abort; of these the first counts. A call that is denied
// by [ToolCall.Authorize] has ended.
//
// A call may end after its turn, unless that was aborted: for [Options].ResultGrace its
// result is accepted, and then dropped, counted and reported. Such a call has two spans of
// one part, the first of which ended with the turn.
//
// A ToolCall is safe for concurrent use.
type ToolCall struct {
	turn  *Turn
	span  trace.Span
	scope scope

	callID  string
	name    string
	kind    ToolKind
	partID  string
	index   int64
	slot    int // where its turn keeps the part
	created int64
	message string
	// answered is when the message began, in Unix milliseconds.
	answerAt int64
	// announced is when the call began, started, guarded by mu, when its execution did.
	announced, started time.Time

	dynamic, providerExecuted bool
	// inferred, guarded by mu, is that of the options; shared, too, reports that several
	// layers report the call.
	inferred, shared bool
	// claimed, guarded by mu, reports that a layer without its id has found the call.
	claimed bool
	kept    bool // the span is recorded and sampled

	ending   // its mu guards what follows
	state    string
	partial  []byte // what came of the input while it streams
	input    string // JSON, empty until it is whole
	output   string // JSON
	errText  string
	errType  string
	denied   bool
	panic    *panicError // what the call failed with, if it was one
	cut      *Truncated
	child    string
	approval *approval // nil if no person was asked
	updated  int64
	// unchecked reports that the input, rawOutput that the output, may be no JSON.
	unchecked, rawOutput bool
	// clean is the input as it may be sent, once cleaned is set.
	clean   string
	cleaned bool
	// question is what the call asks its user, if asks is set. waits reports that the
	// session knows that the call waits.
	question    string
	asks, waits bool
	// noted reports that the run's guard knows of the call.
	noted bool
	// lateUntil is set if the turn ended before the call, until when a result is accepted.
	lateUntil time.Time
	// changed reports that something has changed since the last event.
	changed  bool
	throttle throttle
	// resumed reports that an earlier turn reported the call in its present state.
	resumed bool
	// duration is here because a pointer to it is taken. restored reports that it is
	// not known.
	duration int64
	restored bool
}

// approval is the question that a tool call waits or waited on.
type approval struct {
	id      string
	subject string
	rule    match
	asked   time.Time
	// answered reports that a human did; approved is the answer.
	answered, approved bool
	reason             string
}

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
		c.input, c.unchecked = validUTF8(string(o.RawInput)), true
	case o.Input != nil:
		c.input, c.unchecked = encodeInput(o.Input), false
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
	if !late && resumed == nil && (t.chunks() || t.wholes() && c.state != stateInputStreaming) {
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

// emitEvent queues the call's part as it is now. The caller holds mu, or is the only
// one to know the call.
func (c *ToolCall) emitEvent(now time.Time) { c.emitInput(now, c.sentInput()) }

func (c *ToolCall) emitInput(now time.Time, input string) {
	if c.turn.events == nil {
		return
	}
	c.changed = false
	c.throttle.at, c.throttle.size = now, len(c.partial)
	data := c.data(input)
	if c.errType == semconv.ErrorTypeAborted {
		// This process did not see the call end, so any other report takes precedence.
		data = append(data[:len(data)-1], `,"toolMetadata":{"agenttrace":{"error_type":"`+semconv.ErrorTypeAborted+`"}}}`...)
	}
	c.turn.emitPart(&spans.Message{ID: c.message, CreatedAt: c.answerAt}, now, spans.Part{
		ID: c.partID, Index: c.index, Type: c.partType(), ToolCallID: c.filter().id(c.callID), ToolState: c.state,
		CreatedAt: c.created, UpdatedAt: max(c.created, c.updated), Data: data,
	})
}

// emitState queues the part if it has changed since the last event. The caller holds mu.
func (c *ToolCall) emitState(now time.Time) {
	if c.changed && c.turn.wholes() {
		c.emitEvent(now)
	}
}

func (c *ToolCall) partType() string {
	if c.dynamic {
		return "dynamic-tool"
	}
	return "tool-" + c.filter().id(c.name)
}

// toolType states, with a value of the GenAI conventions, who runs the tool.
func (c *ToolCall) toolType() string {
	if c.providerExecuted {
		return "extension"
	}
	return "function"
}

// ID returns the call's id, "" for nil.
func (c *ToolCall) ID() string {
	if c == nil {
		return ""
	}
	return c.callID
}

// Name returns the tool's name, "" for nil.
func (c *ToolCall) Name() string {
	if c == nil {
		return ""
	}
	return c.name
}

// PartID returns the id of the call's part of the message, "" when nothing is
// recorded.
func (c *ToolCall) PartID() string {
	if c == nil {
		return ""
	}
	return c.partID
}

// SpanContext returns the call's trace and span id.
func (c *ToolCall) SpanContext() trace.SpanContext {
	if c == nil {
		return trace.SpanContext{}
	}
	return c.span.SpanContext()
}

// change runs f with mu held, unless the call has ended.
func (c *ToolCall) change(what string, f func(now time.Time)) {
	if c == nil {
		return
	}
	now := c.turn.run.now()
	c.mu.Lock()
	ended, shared := c.ended, c.shared
	if !ended {
		c.updated = max(c.updated, now.UnixMilli())
		f(now)
	}
	c.mu.Unlock()
	if ended {
		if !shared {
			c.turn.run.sess.tracer.drop(what, "tool call "+c.callID)
		}
		return
	}
	c.turn.run.sess.flush()
}

// InputDelta adds to the input as the model sends it. [ToolCall.SetInput] makes
// it whole; so does anything that needs it whole.
func (c *ToolCall) InputDelta(text string) {
	var hold time.Duration
	c.change("input", func(now time.Time) {
		if c.state != stateInputStreaming {
			return
		}
		c.partial = append(c.partial, text...)
		c.changed = true
		if !c.turn.chunks() {
			return
		}
		var due bool
		if due, hold = c.throttle.due(c.turn.run.sess.tracer.live, now, len(c.partial)); due {
			c.emitPartial(now, c.settled())
		}
	})
	if hold > 0 {
		c.turn.run.sess.hold(c, hold)
	}
}

// settled is as much of the input that streams as cannot change. The caller holds
// mu.
func (c *ToolCall) settled() string { return c.filter().settled(string(c.partial)) }

// emitPartial queues input that still streams. The caller holds mu.
func (c *ToolCall) emitPartial(now time.Time, settled string) {
	c.throttle.sent = len(settled)
	input, _ := c.filter().quoted(redact.ToolInput, settled)
	c.emitInput(now, input)
	c.changed = true // the event may lack the last words
}

// sendHeld sends what no event has had, if it is settled.
func (c *ToolCall) sendHeld(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throttle.held = false
	if c.ended || c.state != stateInputStreaming {
		return
	}
	if settled := c.settled(); len(settled) > c.throttle.sent {
		c.emitPartial(now, settled)
	}
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
		c.input, c.unchecked, c.cleaned, c.changed = encoded, false, false, true
		if c.state == stateInputStreaming {
			c.started = now // not before its input is whole
		}
		c.complete()
		c.emitState(now)
	})
	c.noteOnce(now)
}

// check makes JSON of input that was taken on trust and is none.
// The caller holds mu.
func (c *ToolCall) check() {
	if c.unchecked && c.input != "" && !redact.ValidJSON(c.input) {
		c.input = quote(c.input)
		if c.cleaned && !redact.ValidJSON(c.clean) {
			c.clean = quote(c.clean)
		}
	}
	c.unchecked = false
}

// complete makes the input whole if it still streams. The caller holds mu.
func (c *ToolCall) complete() {
	if c.input == "" && len(c.partial) > 0 {
		c.input, c.cleaned = encodeRaw(c.partial), false
	}
	c.partial = nil
	if c.state == stateInputStreaming {
		c.state, c.changed = stateInputAvailable, true
	}
}

// End ends the call with the output that the model will see: [json.RawMessage],
// text, or any value that encodes to JSON. JSON in a []byte stays JSON, other
// bytes become text. An output that is an error ends the call as Fail does.
//
// When the method that ends a call is deferred and the function panics, the call
// fails with the panic as its error, and the panic goes on.
func (c *ToolCall) End(output any) {
	if c == nil {
		return
	}
	p := recover()
	defer repanic(p)
	text, isText := output.(string)
	// What has an output did not panic: so the stack is looked at only without.
	if c.broken(causeOf(nil, p, c.turn.unwound || output != nil && (!isText || text != ""))) {
		return
	}
	if isText {
		c.endText(text)
		return
	}
	if err, ok := output.(error); ok && !isNil(err) {
		c.fail(err)
		return
	}
	c.end(stateOutputAvailable, func() { c.output, c.cut = c.filter().value(redact.ToolOutput, encodeJSON(output)) })
}

// EndText is End for text. It does not make an interface of it.
func (c *ToolCall) EndText(output string) {
	if c == nil {
		return
	}
	p := recover()
	defer repanic(p)
	if !c.broken(causeOf(nil, p, c.turn.unwound || output != "")) {
		c.endText(output)
	}
}

func (c *ToolCall) endText(output string) {
	c.end(stateOutputAvailable, func() { c.output, c.cut = c.filter().quoted(redact.ToolOutput, output) })
}

// EndRaw is End for JSON text that is not looked at, as
// [ToolOptions].RawInput is not. It is copied.
func (c *ToolCall) EndRaw(output json.RawMessage) {
	if c == nil {
		return
	}
	p := recover()
	defer repanic(p)
	if c.broken(causeOf(nil, p, c.turn.unwound || len(output) > 0)) {
		return
	}
	c.end(stateOutputAvailable, func() {
		c.output, c.cut = c.filter().value(redact.ToolOutput, cmp.Or(validUTF8(string(output)), "null"))
		c.rawOutput = true
	})
}

// EndTruncated ends the call with an output that was too long: head is what the
// model will see.
func (c *ToolCall) EndTruncated(head any, whole Truncated) {
	if c == nil {
		return
	}
	p := recover()
	defer repanic(p)
	if c.broken(causeOf(nil, p, c.turn.unwound || head != nil)) {
		return
	}
	c.end(stateOutputAvailable, func() {
		if text, ok := head.(string); ok {
			c.output, _ = c.filter().quoted(redact.ToolOutput, text)
		} else {
			c.output, _ = c.filter().value(redact.ToolOutput, encodeJSON(head))
		}
		c.cut = &whole
	})
}

// Fail ends the call with an error; its text is what the model will see. An err
// that is [ErrAborted] or [context.Canceled] aborts the call, a nil err ends it
// without output.
func (c *ToolCall) Fail(err error) {
	if c == nil {
		return
	}
	p := recover()
	defer repanic(p)
	if cause := causeOf(err, p, c.turn.unwound); cause != nil {
		c.fail(cause)
		return
	}
	c.end(stateOutputAvailable, func() { c.output = "null" })
}

func (c *ToolCall) fail(err error) {
	if endReason(err) == semconv.EndAbort {
		c.end("", func() {})
		return
	}
	c.end(stateOutputError, func() {
		c.errText, c.errType = c.filter().content(redact.ToolOutput, errorText(err)), errorType(err)
		c.panic = panicOf(err)
	})
}

// broken ends the call if err is one, and reports that.
func (c *ToolCall) broken(err error) bool {
	if err != nil {
		c.fail(err)
	}
	return err != nil
}

// Abort ends the call in the state that it has reached. Defer it as a safe net: a
// call that is then open because its function panics fails with the panic.
func (c *ToolCall) Abort() {
	if c == nil || c.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	c.fail(orAborted(causeOf(nil, p, c.turn.unwound)))
}

// Done ends the call when the function that executes it returns, where nothing else did:
//
//	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "bash", Input: input})
//	defer tool.Done(&err)
//
// It is [ToolCall.Fail] with *err; without an error the call ends without output. When the
// function panics, the call fails with the panic, which goes on with the same value.
func (c *ToolCall) Done(err *error) {
	if c == nil || c.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	if cause := causeOf(valueOf(err), p, c.turn.unwound); cause != nil {
		c.fail(cause)
		return
	}
	c.end(stateOutputAvailable, func() { c.output = "null" })
}

// deny ends the call because it is not permitted.
func (c *ToolCall) deny(err *DeniedError) {
	c.end(stateOutputError, func() {
		c.errText, c.errType, c.denied = c.filter().content(redact.Other, err.Error()), err.ErrorType(), true
	})
}

// abandon ends the call because nothing waits for it any more; the model gets the
// reason.
func (c *ToolCall) abandon(why, class string) {
	c.end(stateOutputError, func() {
		c.errText, c.errType, c.denied = c.filter().content(redact.ToolOutput, validUTF8(why)), class, false
	})
}

func (c *ToolCall) filter() *filter { return &c.turn.run.sess.tracer.filter }

// end ends the call, in its present state if state is empty; set stores what
// it ended with. A call that has ended drops a second end, without notice if
// either is an abort or a denial, for those are safe nets.
func (c *ToolCall) end(state string, set func()) {
	tracer := c.turn.run.sess.tracer
	now := c.turn.run.now()
	c.mu.Lock()
	if c.ended {
		late := state != "" && !c.denied && !c.shared && c.state != stateInputAvailable && c.state != stateInputStreaming
		overdue := state != "" && !c.lateUntil.IsZero()
		accepted := overdue && now.Before(c.lateUntil)
		c.lateUntil = time.Time{}
		c.mu.Unlock()
		switch {
		case accepted:
			c.endLate(now, state, set)
		case late || overdue:
			tracer.drop("an output", "tool call "+c.callID)
		}
		return
	}
	c.ended = true
	if state == stateOutputAvailable {
		c.complete()
	}
	if state != "" {
		c.state, c.changed = state, true
	}
	c.unwait(now)
	c.updated = max(c.updated, now.UnixMilli())
	recording := !c.turn.off && c.span.IsRecording()
	if recording || c.turn.recording || state == stateOutputError {
		set()
	}
	if recording {
		c.emit(c.span, now)
	}
	c.emitState(now)
	f := c.frozen()
	ran, failed, denied := max(0, now.Sub(c.started)), c.errType, c.denied
	c.mu.Unlock()
	if !denied && state != "" {
		tracer.metrics.tool(c, ran, failed)
	}
	if !c.turn.off {
		tracer.finish(c.span, now)
		c.turn.settle(c, f)
		c.turn.run.sess.flush()
	}
	c.noteOnce(now)
}

// endLate ends a call whose turn ended before it: as the span that ended with the turn
// cannot be changed, another span of the same part has the result.
func (c *ToolCall) endLate(now time.Time, state string, set func()) {
	s := c.turn.run.sess
	ctx := trace.ContextWithSpan(context.Background(), c.turn.span)
	_, span := s.tracer.start(ctx, semconv.SpanToolCall, trace.SpanKindInternal, c.announced,
		trace.WithTimestamp(c.announced))
	c.mu.Lock()
	if state == stateOutputAvailable {
		c.complete()
	}
	c.state, c.changed = state, true
	c.updated = max(c.updated, now.UnixMilli())
	set()
	c.emit(span, now)
	c.emitState(now)
	ran, failed := max(0, now.Sub(c.started)), c.errType
	c.mu.Unlock()
	s.tracer.metrics.tool(c, ran, failed)
	s.stamp(now)
	s.tracer.finish(span, now)
	s.flush()
}

// emit sets the attributes of a span of the call. The caller holds mu.
func (c *ToolCall) emit(span trace.Span, now time.Time) {
	c.duration = max(0, now.Sub(c.started).Milliseconds())
	record := spans.ToolCall{
		SessionID: c.turn.run.sess.id, ToolID: c.name, CallID: c.callID, Type: c.toolType(),
		MessageID: c.message, PartID: c.partID, PartIndex: &c.index, State: c.state,
		Input: c.sentInput(), Output: c.output, Error: c.errText, ErrorType: c.errType,
		ACPKind: string(c.kind), Dynamic: c.dynamic, ProviderExecuted: c.providerExecuted, Denied: c.denied,
		Inferred:       c.inferred,
		ChildSessionID: c.child,
	}
	if !c.restored {
		record.DurationMS = &c.duration
	}
	if c.started.After(c.announced) {
		record.StartedAt = c.started.UnixMilli()
	}
	if c.approval != nil {
		record.ApprovalID = c.approval.id
	}
	if c.cut != nil {
		record.Truncated = true
		record.OutputPath, record.OutputSize, record.OutputSHA256 = validUTF8(c.cut.Path), c.cut.Size, c.cut.SHA256
	}
	switch {
	case c.panic != nil:
		c.turn.run.sess.tracer.fail(span, now, c.panic, c.errText)
	case c.state == stateOutputError:
		setError(span, c.errText)
	}
	span.SetAttributes(c.filter().attributes(record.Append(make([]attribute.KeyValue, 0, 18)))...)
}

// sentInput is wholeInput as it may be sent. What was taken for JSON on trust
// and is none is none here either. The caller holds mu.
func (c *ToolCall) sentInput() string {
	if c.input == "" {
		if len(c.partial) == 0 {
			return ""
		}
		out, _ := c.filter().quoted(redact.ToolInput, string(c.partial))
		return out
	}
	if !c.cleaned {
		c.clean, _ = c.filter().value(redact.ToolInput, c.input)
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

// SetChildSession states which session a sub-agent started by the call has. A sub-agent in
// this process needs no call of it: see [Tracer.NewSession].
func (c *ToolCall) SetChildSession(id string) {
	c.change("a child session", func(time.Time) { c.child = validUTF8(id) })
}

// frozen is how a turn lists a tool call, and what it remembers of one that has ended.
type frozen struct {
	id, tool                 string
	span                     trace.SpanContext
	inferred, shared, denied bool
	kind, callID, state      string
	// name is set on a dynamic tool, whose kind does not contain it.
	name    string
	updated int64
	// data is nil when a span of the call's own has it.
	data []byte
	// content is the call for the model calls that follow, if content is captured.
	content []byte
}

// freeze ends a call that is still open in its present state, and states how its
// turn lists it. Unless it waits for a human, its result is accepted until then.
func (c *ToolCall) freeze(now, until time.Time) frozen {
	c.mu.Lock()
	open := !c.ended
	c.ended = true
	if open {
		if p := c.open(); !p.waits() {
			c.lateUntil = until
		}
		c.updated = max(c.updated, now.UnixMilli())
		if c.span.IsRecording() {
			c.emit(c.span, now)
		}
		c.emitState(now)
	}
	f := c.frozen()
	if open && c.turn.recording {
		f.data = c.data(c.sentInput())
	}
	c.mu.Unlock()
	if open {
		c.turn.run.sess.tracer.finish(c.span, now)
	}
	return f
}

// frozen states how a turn lists the call if it ends now. The caller holds mu.
func (c *ToolCall) frozen() frozen {
	f := frozen{
		id: c.callID, tool: c.name, span: c.span.SpanContext(), inferred: c.inferred, shared: c.shared,
		denied: c.denied,
		kind:   c.partType(), callID: c.filter().id(c.callID), state: c.state, updated: c.updated,
	}
	if c.dynamic {
		f.name = c.filter().id(c.name)
	}
	if c.turn.recording && !c.kept {
		f.data = c.data(c.sentInput())
	}
	if c.turn.recording && c.turn.run.sess.tracer.genAI.content {
		f.content = c.data(c.sentInput())
	}
	return f
}

// settle lists a call that has ended, and lets go of it: what it holds, its span
// among it, should not live as long as a turn of many calls.
func (t *Turn) settle(c *ToolCall, f frozen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && c.slot < len(t.parts) {
		p := &t.parts[c.slot]
		p.tool, p.ended = nil, &f
	}
}

// data returns the call as an AI SDK part with that input. The caller holds mu.
func (c *ToolCall) data(in string) []byte {
	if c.unchecked && in != "" {
		if redact.ValidJSON(in) {
			c.unchecked = false
		} else {
			in = quote(in)
		}
	}
	output := c.output
	if c.rawOutput && !redact.ValidJSON(output) {
		output = quote(output)
	}
	b := make([]byte, 0, len(in)+len(output)+len(c.errText)+256)
	b = spans.AppendJSONMember(append(b, '{'), "type", c.partType())
	if c.dynamic {
		b = spans.AppendJSONMember(b, "toolName", c.filter().id(c.name))
	}
	b = spans.AppendJSONMember(b, "toolCallId", c.filter().id(c.callID))
	b = spans.AppendJSONMember(b, "state", c.state)
	if in != "" {
		b = append(append(b, `,"input":`...), in...)
	} else if c.state != stateInputStreaming && c.state != stateOutputError {
		b = append(b, `,"input":null`...)
	}
	if output != "" {
		b = append(append(b, `,"output":`...), output...)
	}
	if c.state == stateOutputError {
		b = spans.AppendJSONMember(b, "errorText", c.errText)
	}
	if c.providerExecuted {
		b = append(b, `,"providerExecuted":true`...)
	}
	if c.approval != nil && (c.state == stateApprovalRequested || c.state == stateApprovalResponded) {
		b = spans.AppendJSONMember(append(b, `,"approval":{`...), "id", c.approval.id)
		if c.approval.answered {
			b = append(b, `,"approved":`...)
			b = strconv.AppendBool(b, c.approval.approved)
			b = spans.AppendJSONOptional(b, "reason", c.approval.reason)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}
