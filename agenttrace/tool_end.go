package agenttrace

import (
	"encoding/json"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// End ends the call with the output that the model will see: [json.RawMessage],
// text, or any value that encodes to JSON. JSON in a []byte stays JSON, other
// bytes become text. An output that is an error ends the call as Fail does, and so does
// the result of a tool of MCP that has isError.
func (c *ToolCall) End(output any) {
	if c == nil {
		return
	}
	if text, ok := output.(string); ok {
		c.EndText(text)
		return
	}
	if err, ok := output.(error); ok && !isNil(err) {
		c.fail(err)
		return
	}
	c.endJSON(encodeJSON(output))
}

// endJSON ends the call with an output that is JSON, or fails it if that is the result of a tool of MCP that failed.
func (c *ToolCall) endJSON(output string) {
	if err := mcpFailure(output); err != "" {
		c.fail(err)
		return
	}
	c.end(stateOutputAvailable, func() { c.output, c.cut = c.filter().value(redact.ToolOutput, output) })
}

// mcpError is the text of a tool that failed, as its server reports it.
type mcpError string

func (e mcpError) Error() string     { return string(e) }
func (e mcpError) ErrorType() string { return "tool_error" }

// mcpFailure returns what the CallToolResult of MCP that an output is reports as an error, or "".
func mcpFailure(output string) mcpError {
	if !strings.Contains(output, `"isError"`) {
		return ""
	}
	var result struct {
		IsError bool
		Content []json.RawMessage
	}
	if json.Unmarshal([]byte(output), &result) != nil || !result.IsError || len(result.Content) == 0 {
		return ""
	}
	var texts []string
	for _, raw := range result.Content {
		var block struct{ Text string }
		if json.Unmarshal(raw, &block) == nil && block.Text != "" {
			texts = append(texts, block.Text)
		} else {
			texts = append(texts, string(raw))
		}
	}
	return mcpError(strings.Join(texts, "\n"))
}

// EndText is End for text. It does not make an interface of it.
func (c *ToolCall) EndText(output string) {
	if c == nil {
		return
	}
	if err := mcpFailure(output); err != "" {
		c.fail(err)
		return
	}
	c.end(stateOutputAvailable, func() { c.output, c.cut = c.filter().quoted(redact.ToolOutput, output) })
}

// EndRaw is End for JSON text. It does not make an interface of it.
func (c *ToolCall) EndRaw(output json.RawMessage) {
	if c == nil {
		return
	}
	c.endJSON(encodeRaw(output))
}

// EndTruncated ends the call with an output that was too long: head is what the
// model will see.
func (c *ToolCall) EndTruncated(head any, whole Truncated) {
	if c == nil {
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
	if err != nil {
		c.fail(err)
		return
	}
	c.end(stateOutputAvailable, func() { c.output = "null" })
}

func (c *ToolCall) fail(err error) {
	switch endReason(err) {
	case semconv.EndAbort:
		c.end("", func() {})
		return
	case semconv.EndFinish: // the decision of Authorize is pending
		if c.isPending(err) {
			return
		}
	}
	c.end(stateOutputError, func() {
		c.errText, c.errType = c.filter().content(redact.ToolOutput, errorText(err)), errorType(err)
		c.panic = panicOf(err)
	})
}

// Abort ends the call in the state that it has reached. Defer it as a safe net: a
// call that is then open because its function panics fails with the panic, and one
// that waits for a human, for longer than the process may live, goes on waiting.
func (c *ToolCall) Abort() {
	if c == nil || c.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	if cause := causeOf(nil, p); !c.isPending(cause) {
		c.fail(orAborted(cause))
	}
}

// Done ends the call when the function that executes it returns, where nothing else did:
//
//	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "bash", Input: input})
//	defer tool.Done(&err)
//
// It is [ToolCall.Fail] with *err; without an error the call ends without output. When the
// function panics, the call fails with the panic, which goes on with the same value. A call
// that waits for a human, for longer than the process may live, goes on waiting; an error
// ends it if it waits for its user's input.
func (c *ToolCall) Done(err *error) {
	if c == nil || c.hasEnded() {
		return
	}
	p := recover()
	defer repanic(p)
	if cause := causeOf(valueOf(err), p); !c.isPending(cause) {
		c.Fail(cause)
	}
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

// end ends the call, in its present state if state is empty; set stores what
// it ended with. A call that has ended drops a second end, without notice if
// either is an abort or a denial, for those are safe nets.
func (c *ToolCall) end(state string, set func()) {
	tracer := c.turn.run.sess.tracer
	now := c.turn.run.now()
	c.mu.Lock()
	if c.ended {
		late := state != "" && !c.denied && !c.shared && c.state != stateInputAvailable &&
			c.state != stateInputStreaming
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
