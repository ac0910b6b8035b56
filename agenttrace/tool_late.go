package agenttrace

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

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
	b := make([]byte, 0, len(in)+len(c.output)+len(c.errText)+256)
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
	if c.output != "" {
		b = append(append(b, `,"output":`...), c.output...)
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
