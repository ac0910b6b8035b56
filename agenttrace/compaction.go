package agenttrace

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// CompactionOptions describes a compaction.
type CompactionOptions struct {
	// Auto reports that the agent compacts on its own, without a request.
	Auto bool
	// TailStartID is the first message that stays in context word for word; empty means none.
	TailStartID string
	// SummarizedMessages is the number of messages that the summary replaces.
	SummarizedMessages int
}

// CompactionResult is what a compaction came to.
type CompactionResult struct {
	Summary string
	// SummaryTokens is the size of the summary in the context that follows.
	SummaryTokens int64
	// Usage is that of the summarizing call, nil when it was not counted.
	Usage Usage
}

// Compaction replaces, for the model, the head of a session by a summary: a
// compaction.run span and a message of the assistant. End it with End or Fail.
//
// A Compaction is safe for concurrent use.
type Compaction struct {
	run       *Run
	span      trace.Span
	scope     scope
	options   CompactionOptions
	messageID string
	partID    string
	createdAt int64

	ending
}

// StartCompaction begins a compaction and creates the message that will hold the summary: it is where the
// compaction began. The returned context carries the span, for the summarizing call.
func (r *Run) StartCompaction(ctx context.Context, o CompactionOptions) (context.Context, *Compaction) {
	if r == nil || r.off {
		return ctx, nil
	}
	now := r.now()
	s := r.sess
	c := &Compaction{run: r, options: o}
	if !r.open(c) {
		s.tracer.drop("a compaction", s.id)
		return ctx, nil
	}
	s.do(&s.mu, func() { s.enter(r.events, now, s.atWork()) })
	c.createdAt = s.stamp(now)
	c.messageID = spans.NewID(spans.PrefixMessage, now)
	c.partID = spans.NewID(spans.PrefixPart, now)
	turn := TurnFromContext(ctx)
	if turn != nil && turn.run == r {
		ctx, _ = turn.within(ctx)
	} else {
		turn = nil
		if RunFromContext(ctx) != r {
			ctx = withSpan(ctx, r.span)
		}
	}
	ctx, c.span = s.tracer.start(ctx, semconv.SpanCompactionRun, trace.SpanKindInternal, now)
	c.scope = scope{Context: ctx, run: r, turn: turn}
	return &c.scope, c
}

// MessageID returns the id of the message that holds the summary, "" when nothing is recorded.
func (c *Compaction) MessageID() string {
	return of(c, func(c *Compaction) string { return c.messageID })
}

// End ends the compaction with its summary.
func (c *Compaction) End(result CompactionResult) { c.finish(result, nil) }

// Fail ends the compaction without a summary: the context stays as it was.
func (c *Compaction) Fail(err error) { c.finish(CompactionResult{}, orAborted(err)) }

func (c *Compaction) finish(result CompactionResult, err error) {
	if c == nil || !c.endOnce() {
		return
	}
	s := c.run.sess
	now := c.run.now()
	f := &s.tracer.filter
	if c.span.IsRecording() {
		record := spans.Compaction{
			SessionID: s.id, SummarizedMessages: int64(max(0, c.options.SummarizedMessages)), Auto: c.options.Auto,
			TailStartID: validUTF8(c.options.TailStartID), Summary: f.content(redact.Other, cloneText(result.Summary)),
			SummaryTokens: max(0, result.SummaryTokens),
		}
		if t := usageOf(result.Usage, nil, nil).Tokens; t != nil {
			record.InputTokens, record.OutputTokens = t.Input+t.CacheRead+t.CacheWrite, t.Output+t.Reasoning
		}
		if err == nil {
			record.MessageID, record.MessageCreatedAt, record.PartID = c.messageID, c.createdAt, c.partID
		} else {
			record.Error, record.ErrorType = s.tracer.failed(c.span, now, err)
		}
		c.span.SetAttributes(f.attributes(spans.Append(make([]attribute.KeyValue, 0, 20), &record))...)
	}
	s.tracer.finish(c.span, now)
	c.run.close(c)
	s.do(&s.mu, func() {
		if s.working--; s.working == 0 && s.st.Pending == nil {
			s.enter(c.run.events, now, Status{State: StatusIdle})
		}
	})
}
