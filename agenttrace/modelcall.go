package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Usage is a count of tokens: an [InclusiveUsage], an [ExclusiveUsage] or a
// [GeminiUsage], whichever the provider counts by.
type Usage interface{ usage() }

// InclusiveUsage is a count whose Input includes CacheRead and CacheWrite and whose Output includes Reasoning, as
// OpenAI's and the AI SDK's do. What is less than what it should include does not include it. Gemini's output
// excludes its thoughts: use [GeminiUsage].
type InclusiveUsage struct {
	Input, Output, Reasoning, CacheRead, CacheWrite int64
}

// GeminiUsage is a count as Gemini's usageMetadata has it: the total is the sum of
// Prompt, ToolUsePrompt, Candidates and Thoughts. Prompt includes Cached.
type GeminiUsage struct {
	// Prompt is promptTokenCount, Cached cachedContentTokenCount, ToolUsePrompt toolUsePromptTokenCount.
	Prompt, Cached, ToolUsePrompt int64
	// Candidates is candidatesTokenCount, Thoughts thoughtsTokenCount.
	Candidates, Thoughts int64
}

// ExclusiveUsage is a count in five disjoint buckets. Anthropic's input and cache counts are; its output includes
// thinking, which it does not count apart.
type ExclusiveUsage struct {
	Input, Output, Reasoning, CacheRead, CacheWrite int64
}

func (InclusiveUsage) usage() {}
func (GeminiUsage) usage()    {}
func (ExclusiveUsage) usage() {}

func (u GeminiUsage) buckets() spans.Tokens {
	t := spans.Tokens{
		Input: max(0, u.Prompt) + max(0, u.ToolUsePrompt), Output: max(0, u.Candidates), CacheRead: u.Cached,
	}.Disjoint()
	t.Reasoning = max(0, u.Thoughts)
	return t
}

func (u ExclusiveUsage) buckets() spans.Tokens {
	return spans.Tokens{
		Input: max(0, u.Input), Output: max(0, u.Output), Reasoning: max(0, u.Reasoning),
		CacheRead: max(0, u.CacheRead), CacheWrite: max(0, u.CacheWrite),
	}
}

// ModelCallOptions describes a model call where it differs from its turn.
type ModelCallOptions struct {
	// Model is the turn's when it is zero. A call that names another one changes the turn's when it writes to the
	// answer, by its Text, Reasoning or streams. One that writes nothing, or that a tool makes, is a side call,
	// such as for a title or a check: its tokens count, and the turn's model, temperature and stop reason stay. What
	// one writes that a tool makes is the tool's to return, and no part of the answer.
	Model       Model
	Temperature *float64
	// Side reports that the call is beside the conversation, such as one for a title: it
	// is no step of the turn, and nothing of the turn's but its usage comes from it; its texts are not kept. It may end
	// after the turn, and begin after it, see [Session.StartSideCall].
	Side bool
	// UsageElsewhere reports that the model's client emits a span of its own with the usage of the call, which is
	// the active one of the context. The span of this call is then a child of that, and does not have the usage
	// under the keys of the GenAI conventions, so that a backend that adds these up counts once.
	UsageElsewhere bool
}

// ModelResult is what a model call came to.
type ModelResult struct {
	// StopReason is the provider's word.
	StopReason string
	// Usage is nil when the provider did not count.
	Usage Usage
	// RawUsage is the count as the provider gave it, a JSON object.
	RawUsage json.RawMessage
	// CostUSD is the cost that the provider or the host reports; nil if neither
	// does. Costs are never computed from prices here.
	CostUSD       *float64
	ResponseID    string
	ResponseModel string
}

// ModelCall is one call of a model: a "chat {model}" span. End it.
//
// A ModelCall is safe for concurrent use.
type ModelCall struct {
	turn        *Turn
	span        trace.Span
	model       Model
	temperature *float64
	step        int64
	messageID   string
	scope       scope

	// side reports that nothing of the turn's but its usage comes from the call; inTool
	// that this stays so. The turn's mu guards side.
	side, inTool   bool
	aside          bool // it may end after its turn
	usageElsewhere bool
	retries        []string // guarded by the turn's mu

	started time.Time
	// firstPart is how many parts the turn had when the call began.
	firstPart int
	// firstChunk is the time to the first part of a streamed answer, 0 until it comes.
	firstChunk atomic.Int64
	ended      bool // guarded by the turn's mu
}

// StartModelCall begins a model call. Between the model calls of a turn stands a step-start part.
//
// The returned context carries the call's span, for the HTTP client to propagate.
func (t *Turn) StartModelCall(ctx context.Context, o ModelCallOptions) (context.Context, *ModelCall) {
	if t == nil || t.off {
		return ctx, nil
	}
	now := t.run.now()
	if !t.recording {
		t.noteModelCall(o.Model, "", now)
		return ctx, nil
	}
	c := &ModelCall{turn: t, aside: o.Side, usageElsewhere: o.UsageElsewhere, started: now}
	inner, outer := t.within(ctx)
	if o.UsageElsewhere {
		inner = ctx // in the trace of the client's span, so that the two are known to be one call
	}
	if !t.startCall(inner, c, outer, o) {
		t.drop("a model call")
		return ctx, nil
	}
	t.run.sess.flush()
	if !t.hasEnded() {
		t.noteModelCall(c.model, refOf(c.span.SpanContext()).SpanID, now)
	}
	return &c.scope, c
}

// startCall starts a call's span, in a context, unless the turn has ended: then only a side call begins. outer is the
// tool call around it. The span starts as that of a tool call does.
func (t *Turn) startCall(ctx context.Context, c *ModelCall, outer *ToolCall, o ModelCallOptions) bool {
	t.starting.Lock()
	defer t.starting.Unlock()
	t.mu.Lock()
	late := t.ended
	if !late || o.Side {
		t.placeCall(c, o, outer != nil || o.Side)
	}
	t.mu.Unlock()
	if late && !o.Side {
		return false
	}
	name := semconv.OperationChat
	if c.model.ID != "" {
		name += " " + t.run.sess.tracer.filter.id(validUTF8(c.model.ID))
	}
	ctx, c.span = t.run.sess.tracer.start(ctx, name, trace.SpanKindClient, c.started)
	c.scope = scope{Context: ctx, run: t.run, turn: t, tool: outer, call: c}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !late {
		t.calls = append(t.calls, c)
	}
	return true
}

// noteModelCall has the guard count a call. The zero Model is the turn's.
func (t *Turn) noteModelCall(m Model, spanID string, now time.Time) {
	if t.run.guard == nil {
		return
	}
	if m == (Model{}) {
		m = with(&t.mu, func() Model { return t.model })
	}
	t.note(guardModelCall, guardModelCall+":"+cmp.Or(m.ID, "UNKNOWN"), spanID, now)
}

// placeCall gives a call that begins its model and its place in the turn. t.mu is held.
func (t *Turn) placeCall(c *ModelCall, o ModelCallOptions, inTool bool) {
	now := c.started
	c.model, c.temperature = t.model, t.temperature
	if o.Model != (Model{}) {
		c.model = o.Model
	}
	if o.Temperature != nil {
		c.temperature = cloneFloat(o.Temperature)
	}
	named := t.model != (Model{})
	c.inTool = inTool
	c.side = c.inTool || named && c.model != t.model
	if !c.side {
		t.model, t.temperature = c.model, c.temperature
	}
	if !c.inTool {
		t.stepBegin = len(t.parts)
	}
	c.step = t.nextStep
	t.nextStep++
	if !o.Side {
		t.callCount++
	}
	begun := t.assistant.ID != ""
	c.messageID = t.answer(now)
	if !named && begun && t.model != (Model{}) {
		t.emitAnswer(now)
	}
	if !t.ended {
		t.goesOn(now, true)
	}
	if c.step > 0 && !o.Side {
		t.placeData("step-start", now, func(string) []byte { return stepStart })
	}
	c.firstPart = len(t.parts)
}

// StartSideCall begins a model call beside the conversation, such as one for a title, in the turn that is open, or else
// in the one that ended last: its usage counts with that one's. Without any it returns ctx and a nil ModelCall.
func (s *Session) StartSideCall(ctx context.Context, o ModelCallOptions) (context.Context, *ModelCall) {
	if s == nil {
		return ctx, nil
	}
	s.mu.Lock()
	t := s.last
	if n := len(s.turns); n > 0 {
		t = s.turns[n-1]
	}
	s.mu.Unlock()
	o.Side = true
	return t.StartModelCall(ctx, o)
}

// Text adds a part of text that the model wrote.
func (c *ModelCall) Text(text string) { c.writes().Text(text) }

// Reasoning adds a part of reasoning.
func (c *ModelCall) Reasoning(text string) { c.writes().Reasoning(text) }

// StreamText begins a part of text that grows. Parts keep the order in which they began.
func (c *ModelCall) StreamText() *TextStream { return c.writes().stream("text", c) }

// StreamReasoning begins a part of reasoning that grows.
func (c *ModelCall) StreamReasoning() *TextStream { return c.writes().stream("reasoning", c) }

// writes reports that the answer has something of the call: then it is no side call. It returns the turn, nil for a
// call that stays beside it.
func (c *ModelCall) writes() *Turn {
	if c == nil || c.inTool {
		return nil
	}
	t := c.turn
	t.do(func() {
		if c.side && !t.ended {
			c.side = false
			t.model, t.temperature = c.model, c.temperature
			t.emitAnswer(t.run.now())
		}
	})
	return t
}

// FirstChunk reports that the first part of a streamed answer has arrived. What is written
// to a stream of the call reports so by itself.
func (c *ModelCall) FirstChunk() {
	if c != nil {
		c.chunk(c.turn.run.now())
	}
}

func (c *ModelCall) chunk(now time.Time) {
	if c.firstChunk.Load() == 0 {
		c.firstChunk.CompareAndSwap(0, max(1, int64(now.Sub(c.started))))
	}
}

// Retried reports that an attempt of the call failed with err and that the client tried again after waiting. The turn
// lists it among the errors of its model calls. Texts that the attempt has streamed are replaced by those of the next
// one. See [Turn.Retrying] for what to report while the client waits.
func (c *ModelCall) Retried(err error, waited time.Duration) {
	if c == nil || err == nil {
		return
	}
	const maxRetries = 32
	text := fmt.Sprintf("%s, tried again after %s", errorText(err), waited.Round(time.Millisecond))
	text = c.turn.run.sess.tracer.filter.content(redact.Other, text)
	c.turn.mu.Lock()
	defer c.turn.mu.Unlock()
	if len(c.retries) < maxRetries {
		c.retries = append(c.retries, text)
	}
}

// End ends the call and adds its usage to the turn's. A failed call may have a result too. Calls after the first do
// nothing. An err with the method FailedAt() time.Time ends the call, and a turn or run that it is given to, then.
func (c *ModelCall) End(result ModelResult, err error) { c.finish(result, err, false) }

// finish ends the call. byTurn reports that its turn ended first: then nothing is added to it.
func (c *ModelCall) finish(result ModelResult, err error, byTurn bool) {
	if c == nil {
		return
	}
	t := c.turn
	now := failedAt(err, t.run.now())
	usage := usageOf(result.Usage, result.RawUsage, result.CostUSD)
	usage.Raw = t.run.sess.tracer.filter.raw(redact.Other, "", usage.Raw)
	stop := cloneText(result.StopReason)
	t.mu.Lock()
	if c.ended {
		t.mu.Unlock()
		return
	}
	c.ended = true
	retries, late := c.retries, !byTurn && t.ended
	if !byTurn && !late {
		if c.aside {
			t.callCount++
		}
		t.addUsage(usage)
		if stop != "" && !c.side {
			t.stopReason = stop
		}
		if i := slices.Index(t.calls, c); i >= 0 {
			t.calls = slices.Delete(t.calls, i, i+1)
		}
	}
	t.mu.Unlock()
	if late && !c.aside {
		t.drop("a model call's usage")
	}
	failed := failureType(err)
	if c.span.IsRecording() {
		record := spans.ModelCall{
			SessionID: t.run.sess.id, MessageID: c.messageID, Index: &c.step, Model: c.model.record(),
			Temperature:   c.temperature,
			ResponseModel: cloneText(result.ResponseModel), ResponseID: cloneText(result.ResponseID), StopReason: stop,
			Usage: usage, ErrorType: failed, Late: late && c.aside, Retries: retries,
		}
		if first := time.Duration(c.firstChunk.Load()); first > 0 {
			record.FirstChunk = new(first.Seconds())
		}
		if failed != "" {
			record.Error, _ = t.run.sess.tracer.failed(c.span, now, err)
		}
		if t.run.sess.tracer.genAI.content {
			c.capture(&record)
		}
		attrs := t.run.sess.tracer.genAI.rename(spans.Append(make([]attribute.KeyValue, 0, 32), &record), !c.usageElsewhere)
		c.span.SetAttributes(t.run.sess.tracer.filter.attributes(attrs)...)
	}
	t.run.sess.tracer.metrics.modelCall(c, result.ResponseModel, failed, usage.Tokens, now)
	t.run.sess.tracer.finish(c.span, now)
}

// stepStart is the part between two model calls; it is never changed.
var stepStart = []byte(`{"type":"step-start"}`)

// usageOf makes the buckets disjoint.
func usageOf(u Usage, raw json.RawMessage, cost *float64) spans.Usage {
	out := spans.Usage{Raw: rawObject(raw)}
	// A type switch and not a method call: so the caller's usage stays on its stack when nothing is recorded.
	switch u := u.(type) {
	case InclusiveUsage:
		out.Tokens, out.Basis = new(spans.Tokens(u).Disjoint()), semconv.BasisInclusive
	case GeminiUsage:
		out.Tokens, out.Basis = new(u.buckets()), semconv.BasisInclusive
	case ExclusiveUsage:
		out.Tokens, out.Basis = new(u.buckets()), semconv.BasisExclusive
	}
	out.CostUSD = cloneFloat(cost)
	return out
}

// addUsage adds a model call's usage to the turn's. What the provider reported word for word stays with the turn
// while there is one such call; with several it is on their own spans. The caller holds mu.
func (t *Turn) addUsage(u spans.Usage) {
	if u.Tokens != nil {
		if t.usage.Tokens == nil {
			t.usage.Tokens = new(spans.Tokens) // u's are the call's own
		}
		*t.usage.Tokens = t.usage.Tokens.Add(*u.Tokens)
		t.usage.Basis = u.Basis
	}
	t.usage.Raw = nil
	if t.callCount == 1 {
		t.usage.Raw = u.Raw
	}
	if u.CostUSD != nil {
		t.usage.CostUSD = new(*u.CostUSD + of(t.usage.CostUSD, func(cost *float64) float64 { return *cost }))
	}
}
