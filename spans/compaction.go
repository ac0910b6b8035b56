package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Compaction is a compaction.run span: in the model's context, a summary replaces the earlier messages of the session.
type Compaction struct {
	SessionID string

	// SummarizedMessages is the number of messages that the summary replaces.
	SummarizedMessages int64
	// InputTokens and OutputTokens are those of the call that made the summary, as its provider counts.
	InputTokens, OutputTokens int64

	// MessageID, MessageCreatedAt (Unix milliseconds) and PartID are those of the
	// synthetic assistant message with the summary.
	MessageID        string
	MessageCreatedAt int64
	PartID           string

	Summary       string
	SummaryTokens int64
	// Auto reports that the agent compacted on its own.
	Auto bool
	// TailStartID is the first message that stays in the context verbatim. It is empty if there is none.
	TailStartID string

	Error, ErrorType string
}

// Kind returns compaction.run.
func (r *Compaction) Kind() string { return semconv.SpanCompactionRun }

func (r *Compaction) visit(c *coder) {
	c.required(semconv.SessionIDKey, &r.SessionID)
	c.text(semconv.MessageIDKey, &r.MessageID)
	c.count(semconv.MessageCreatedAtKey, &r.MessageCreatedAt)
	c.text(semconv.PartIDKey, &r.PartID)
	c.text(semconv.CompactionSummaryKey, &r.Summary)
	c.text(semconv.CompactionTailStartIDKey, &r.TailStartID)
	c.text(semconv.ErrorKey, &r.Error)
	c.text(semconv.ErrorTypeKey, &r.ErrorType)
	c.total(semconv.SummarizedMessageCountKey, &r.SummarizedMessages)
	c.total(semconv.CompactionInputTokensKey, &r.InputTokens)
	c.total(semconv.CompactionOutputTokensKey, &r.OutputTokens)
	c.count(semconv.CompactionSummaryTokensKey, &r.SummaryTokens)
	c.flag(semconv.CompactionAutoKey, &r.Auto)
	c.copied(semconv.SessionIDFloorKey, &r.SessionID)
	c.fallback(semconv.GenAIConversationIDKey, &r.SessionID)
	c.constant(semconv.GenAIConversationCompactedKey, attribute.BoolValue(true))
}

// Validate implements [SpanData].
func (r *Compaction) Validate() error {
	var negative error
	if r.SummarizedMessages < 0 || r.InputTokens < 0 || r.OutputTokens < 0 || r.SummaryTokens < 0 {
		negative = errors.New("a count is negative")
	}
	return errors.Join(missing(semconv.SessionIDKey, r.SessionID), missing(semconv.MessageIDKey, r.MessageID+r.Error),
		negative)
}
