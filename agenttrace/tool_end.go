package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// End ends the call with the output that the model will see: [json.RawMessage], text, or any value that encodes to
// JSON. JSON in a []byte stays JSON, other bytes become text. An output that is an error ends the call as Fail
// does, and so does the result of a tool of MCP that has isError.
func (c *ToolCall) End(output any) {
	if c == nil {
		return
	}
	now := c.turn.run.now()
	switch out := output.(type) {
	case string:
		c.succeed(now, out, true)
		return
	case error:
		if !isNil(out) {
			c.fail(now, out)
			return
		}
	}
	c.succeed(now, encodeJSON(output), false)
}

// EndText is End for text. It does not make an interface of it.
func (c *ToolCall) EndText(output string) {
	if c != nil {
		c.succeed(c.turn.run.now(), output, true)
	}
}

// EndRaw is End for JSON text. It does not make an interface of it.
func (c *ToolCall) EndRaw(output json.RawMessage) {
	if c != nil {
		c.succeed(c.turn.run.now(), encodeRaw(output), false)
	}
}

// succeed ends the call with an output, or fails it if that is the result of a tool of MCP that failed. Like all that
// ends a call, it is given the time of the end: what is done to the output until it may be sent is no work of the tool.
func (c *ToolCall) succeed(now time.Time, output string, isText bool) {
	if err := mcpFailure(output); err != "" {
		c.fail(now, err)
		return
	}
	var r outcome
	if c.recorded() {
		r.output, r.cut = c.filter().value(redact.ToolOutput, output, isText)
	}
	c.end(now, stateOutputAvailable, r)
}

// EndTruncated ends the call with an output that was too long: head is what the model will see.
func (c *ToolCall) EndTruncated(head any, whole Truncated) {
	if c == nil {
		return
	}
	now := c.turn.run.now()
	text, isText := head.(string)
	if !isText {
		text = encodeJSON(head)
	}
	r := outcome{cut: &whole}
	if c.recorded() {
		r.output, _ = c.filter().value(redact.ToolOutput, text, isText)
	}
	c.end(now, stateOutputAvailable, r)
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
		Content []struct{ Text string }
	}
	if json.Unmarshal([]byte(output), &result) != nil || !result.IsError || len(result.Content) == 0 {
		return ""
	}
	var texts []string
	for _, block := range result.Content {
		if block.Text != "" {
			texts = append(texts, block.Text)
		}
	}
	return mcpError(cmp.Or(strings.Join(texts, "\n"), output))
}

// Fail ends the call with an error; its text is what the model will see. An err that is [ErrAborted] or
// [context.Canceled] aborts the call, a nil err ends it without output.
func (c *ToolCall) Fail(err error) {
	if c != nil {
		c.fail(c.turn.run.now(), err)
	}
}

func (c *ToolCall) fail(now time.Time, err error) {
	switch reason := endReason(err); {
	case err == nil:
		c.end(now, stateOutputAvailable, outcome{output: "null"})
		return
	case reason == semconv.EndAbort:
		c.end(now, "", outcome{})
		return
	case reason == semconv.EndFinish && c.waitsAfter(err): // the decision of Authorize is
		return
	}
	c.end(now, stateOutputError, outcome{
		errText: c.filter().content(redact.ToolOutput, errorText(err)), errType: errorType(err), err: err,
	})
}

// Abort ends the call in the state that it has reached. Defer it as a safe net: a
// call that is then open because its function panics fails with the panic, and one
// that waits for a human, for longer than the process may live, goes on waiting.
func (c *ToolCall) Abort() { c.endNet(nil, ErrAborted, recover()) }

// Done ends the call when the function that executes it returns, where nothing else did:
//
//	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: id, Name: "bash", Input: input})
//	defer tool.Done(&err)
//
// It is [ToolCall.Fail] with *err; without an error the call ends without output. When the function panics, the
// call fails with the panic, which goes on with the same value. A call that waits for a human, for longer than the
// process may live, goes on waiting; an error ends it if it waits for its user's input.
func (c *ToolCall) Done(err *error) { c.endNet(valueOf(err), nil, recover()) }

// endNet ends the call as a safe net: with the panic, the error or, without these, as byDefault states.
func (c *ToolCall) endNet(err, byDefault error, recovered any) {
	defer repanic(recovered)
	if c == nil || c.hasEnded() {
		return
	}
	if cause := causeOf(err, recovered); !c.waitsAfter(cause) {
		c.Fail(cmp.Or(cause, byDefault))
	}
}

// abandon ends the call because nothing waits for it any more; the model gets the reason.
func (c *ToolCall) abandon(why, class string) {
	now := c.turn.run.now()
	c.end(now, stateOutputError, outcome{
		errText: c.filter().content(redact.ToolOutput, validUTF8(why)), errType: class,
	})
}

// outcome is what a call ended with, as it may be sent.
type outcome struct {
	output           string // JSON
	cut              *Truncated
	errText, errType string
	denied           bool
	err              error // that the call failed with
}

// recorded reports whether a span has what the call ends with.
func (c *ToolCall) recorded() bool { return c.recording() || c.turn.recording }

// end ends the call, in its present state if state is empty. A call that has ended drops a second end, without notice
// if either is an abort or a denial, for those are safe nets. The result of one that ended with its turn is accepted
// for a while: as the span that ended with the turn cannot be changed, another span of the same part has the result.
func (c *ToolCall) end(now time.Time, state string, r outcome) {
	t, tracer, span := c.turn, c.tracer(), c.span
	t.mu.Lock()
	late := c.ended
	if late {
		second := !c.denied && !c.shared && c.p.State != stateInputAvailable && c.p.State != stateInputStreaming
		overdue := !c.lateUntil.IsZero()
		accepted := state != "" && overdue && now.Before(c.lateUntil)
		c.lateUntil = time.Time{}
		if !accepted {
			t.mu.Unlock()
			if state != "" && (second || overdue) {
				tracer.drop("an output", "tool call "+c.p.CallID)
			}
			return
		}
		ctx := trace.ContextWithSpan(context.Background(), t.span)
		_, span = tracer.start(ctx, semconv.SpanToolCall, trace.SpanKindInternal, c.announced)
	}
	c.ended = true
	if state == stateOutputAvailable {
		c.complete()
	}
	if state != "" {
		c.p.State, c.changed, c.outcome = state, true, r
	}
	c.unwait(now)
	c.updated = max(c.updated, now.UnixMilli())
	c.describe(span, now)
	c.emitState(now)
	if !late && !t.off && !t.ended {
		t.parts[c.at] = c.remains()
	}
	ran := max(0, now.Sub(c.started))
	t.mu.Unlock()
	if !r.denied && state != "" {
		tracer.metrics.tool(c, ran, r.errType)
	}
	if late {
		t.run.sess.stamp(now)
	}
	if !t.off {
		tracer.finish(span, now)
		t.run.sess.flush()
	}
	if !late {
		c.noteOnce(now)
	}
}

// freeze ends a call that is still open in its present state, except for its span. Unless it waits for a human, its
// result is accepted until then.
func (c *ToolCall) freeze(now, until time.Time) spans.Part {
	open := !c.ended
	c.ended = true
	if open {
		if p := c.open(); !p.waits() {
			c.lateUntil = until
		}
		c.updated = max(c.updated, now.UnixMilli())
		c.describe(c.span, now)
		c.emitState(now)
	}
	p := c.part(c.partType(), c.updated, nil)
	p.ToolCallID, p.ToolState = c.filter().id(c.p.CallID), c.p.State
	switch {
	case c.rest != nil:
		p.Data = c.rest.listed
	case c.turn.recording && (open || !c.kept): // otherwise a span of the call's own has them
		p.Data = c.data(c.sentInput())
	}
	if c.p.Dynamic && p.Data == nil {
		p.ToolName = c.filter().id(c.p.Name)
	}
	return p
}

// remains returns what represents the call in its turn when it has ended: what the call holds, its span among it,
// should not live as long as a turn of many calls. It takes nothing, and allows nothing. The caller holds mu.
func (c *ToolCall) remains() *ToolCall {
	rest := &remains{shared: c.shared}
	if lists, sends := !c.kept, c.tracer().genAI.content; c.turn.recording && (lists || sends) {
		data := c.data(c.sentInput())
		if lists {
			rest.listed = data
		}
		if sends {
			rest.sent = data
		}
	}
	return &ToolCall{
		slot: c.slot, span: reference(c.span), p: c.p,
		ended: true, inferred: c.inferred, shared: true, outcome: outcome{denied: c.denied},
		updated: c.updated, noted: true, rest: rest,
	}
}

// describe sets the attributes of a span of the call. The caller holds mu.
func (c *ToolCall) describe(span trace.Span, now time.Time) {
	if c.turn.off || !span.IsRecording() {
		return
	}
	c.duration = max(0, now.Sub(c.started).Milliseconds())
	record := spans.ToolCall{
		SessionID: c.turn.run.sess.id, ToolID: c.p.Name, CallID: c.p.CallID, Type: c.toolType(),
		MessageID: c.answerID, PartID: c.partID, PartIndex: &c.index, State: c.p.State,
		Input: c.sentInput(), Output: c.output, Error: c.errText, ErrorType: c.errType,
		ACPKind: string(c.p.Kind), Dynamic: c.p.Dynamic, ProviderExecuted: c.p.ProviderExecuted, Denied: c.denied,
		Inferred: c.inferred, ApprovalID: c.p.ApprovalID, ChildSessionID: c.p.ChildSessionID,
	}
	if !c.restored {
		record.DurationMS = &c.duration
	}
	if c.started.After(c.announced) {
		record.StartedAt = c.started.UnixMilli()
	}
	if c.cut != nil {
		record.Truncated = true
		record.OutputPath, record.OutputSize, record.OutputSHA256 = validUTF8(c.cut.Path), c.cut.Size, c.cut.SHA256
	}
	if c.p.State == stateOutputError {
		c.tracer().fail(span, now, c.err, c.errText)
	}
	span.SetAttributes(c.filter().attributes(spans.Append(make([]attribute.KeyValue, 0, 18), &record))...)
}

// inferredID returns the id of the call that a layer begins without knowing its id: the first of that name and
// input that another layer inferred from an answer and that nobody has begun, or else the first of that name, because
// a framework may hand the input over in another form. It is "" if there is none.
func (t *Turn) inferredID(o ToolOptions) string {
	if o.Inferred || t.off || o.Input == nil && o.RawInput == nil {
		return ""
	}
	if t.unclaimed(&o, "", false) == nil {
		return ""
	}
	c := t.unclaimed(&o, o.canonicalInput(), true)
	if c == nil {
		c = t.unclaimed(&o, "", true)
	}
	return c.ID()
}

func (o *ToolOptions) canonicalInput() string {
	if o.RawInput != nil {
		return canonical(encodeRaw(o.RawInput))
	}
	return canonical(encodeInput(o.Input))
}

// unclaimed returns the first inferred call of a tool that nobody has begun and that has the id of the options, if
// they have one, and the canonical input, if it is not "". The layer that begins it now claims it.
func (t *Turn) unclaimed(o *ToolOptions, input string, claim bool) *ToolCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.tools() {
		if c.inferred && !c.ended && !c.claimed && c.p.Name == validUTF8(o.Name) &&
			(o.ID == "" || c.p.CallID == validUTF8(o.ID)) && (input == "" || canonical(c.input) == input) {
			c.claimed = claim
			return c
		}
	}
	return nil
}

// observed has the open turns whose caller observes requests: those of package modelhttp, in whose agents no context
// has a turn.
var observed sync.Map // keys are of type *Turn

// observedCall returns the turn that waits for the tool call of those options, and its id. With several alike it
// returns nil: they may be those of different users.
func observedCall(o ToolOptions) (found *Turn, id string) {
	if o.Inferred || o.ID == "" && o.Input == nil && o.RawInput == nil {
		return nil, ""
	}
	input := ""
	for key := range observed.Range {
		if o.ID == "" && input == "" {
			input = o.canonicalInput()
		}
		if t := key.(*Turn); t.unclaimed(&o, input, false) == nil {
			continue
		} else if found != nil {
			return nil, ""
		} else {
			found = t
		}
	}
	if found != nil {
		if id = found.unclaimed(&o, input, true).ID(); id == "" { // somebody else has begun it
			found = nil
		}
	}
	return found, id
}

// canonical returns JSON in the one form that equal values have, and other text as it is.
func canonical(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(data)
}
