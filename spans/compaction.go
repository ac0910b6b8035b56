package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Compaction is a compaction.run span: in the model's context, a summary replaces the
// earlier messages of the session.
type Compaction struct {
	SessionID string

	// SummarizedMessages is the number of messages that the summary replaces.
	SummarizedMessages int64
	// InputTokens and OutputTokens are those of the call that made the summary, as its
	// provider counts.
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
	// TailStartID is the first message that stays in the context verbatim. It is empty if
	// there is none.
	TailStartID string

	Error     string
	ErrorType string
}

// Kind returns compaction.run.
func (c *Compaction) Kind() string { return semconv.SpanCompactionRun }

// Append implements [SpanData]. The most important attributes come first, as in a [Turn].
func (c *Compaction) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	return compactionTable.append(c, dst)
}

// Set implements [SpanData].
func (c *Compaction) Set(key string, val Value) (known bool, err error) {
	return compactionTable.set(c, key, val)
}

// Validate implements [SpanData].
func (c *Compaction) Validate() error {
	var negative error
	if min(c.SummarizedMessages, c.InputTokens, c.OutputTokens, c.SummaryTokens) < 0 {
		negative = errors.New("a count is negative")
	}
	return compactionTable.validate(c, missingIf(c.MessageID == "" && c.Error == "", semconv.MessageIDKey), negative)
}

var compactionTable = newTable(func(t *builder, c *Compaction) {
	t.session(&c.SessionID, semconv.GenAIConversationIDKey)
	t.add(semconv.MessageIDKey, &c.MessageID)
	t.add(semconv.MessageCreatedAtKey, &c.MessageCreatedAt)
	t.add(semconv.PartIDKey, &c.PartID)
	t.add(semconv.CompactionSummaryKey, &c.Summary)
	t.add(semconv.CompactionTailStartIDKey, &c.TailStartID)
	t.add(semconv.ErrorKey, &c.Error)
	t.add(semconv.ErrorTypeKey, &c.ErrorType)
	t.add(semconv.SummarizedMessageCountKey, &c.SummarizedMessages, always)
	t.add(semconv.CompactionInputTokensKey, &c.InputTokens, always)
	t.add(semconv.CompactionOutputTokensKey, &c.OutputTokens, always)
	t.add(semconv.CompactionSummaryTokensKey, &c.SummaryTokens)
	t.add(semconv.CompactionAutoKey, &c.Auto, always)
	t.add(semconv.SessionIDFloorKey, &c.SessionID, alias, always)
	t.constant(semconv.GenAIConversationCompactedKey.Bool(true))
})
