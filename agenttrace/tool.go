package agenttrace

import (
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/trace"

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
	// RawInput is Input for JSON text, of which it makes no interface.
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
	// clean is the input as it may be sent, once cleaned is set.
	clean   string
	cleaned bool
	// question is what the call asks its user, if asks is set. waits reports that the
	// session knows that the call waits.
	question    string
	asks, waits bool
	// later reports that the answer to an approval may outlast the process.
	later bool
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

// emitEvent queues the call's part as it is now. The caller holds mu, or is the only
// one to know the call.
func (c *ToolCall) emitEvent(now time.Time) { c.emitInput(now, c.sentInput()) }

func (c *ToolCall) emitInput(now time.Time, input string) {
	if c.turn.events == nil {
		return
	}
	c.changed = false
	c.throttle.at = now
	data := c.data(input)
	if c.errType == semconv.ErrorTypeAborted {
		// This process did not see the call end, so any other report takes precedence.
		const metadata = `,"toolMetadata":{"agenttrace":{"error_type":"` + semconv.ErrorTypeAborted + `"}}}`
		data = append(data[:len(data)-1], metadata...)
	}
	c.turn.emitPart(&spans.Message{ID: c.message, CreatedAt: c.answerAt}, now, spans.Part{
		ID: c.partID, Index: c.index, Type: c.partType(), ToolCallID: c.filter().id(c.callID), ToolState: c.state,
		CreatedAt: c.created, UpdatedAt: max(c.created, c.updated), Data: data,
	})
}

// emitState queues the part if it has changed since the last event. The caller holds mu.
func (c *ToolCall) emitState(now time.Time) {
	if c.changed && c.turn.events != nil {
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

func (c *ToolCall) filter() *filter { return &c.turn.run.sess.tracer.filter }

// SetChildSession states which session a sub-agent started by the call has. A sub-agent in
// this process needs no call of it: see [Tracer.NewSession].
func (c *ToolCall) SetChildSession(id string) {
	c.change("a child session", func(time.Time) { c.child = validUTF8(id) })
}
