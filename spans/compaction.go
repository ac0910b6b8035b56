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
	dst = append(dst, semconv.SessionIDKey.String(c.SessionID))
	dst = appendString(dst, semconv.MessageIDKey, c.MessageID)
	dst = appendInt(dst, semconv.MessageCreatedAtKey, c.MessageCreatedAt)
	dst = appendString(dst, semconv.PartIDKey, c.PartID)
	dst = appendString(dst, semconv.CompactionSummaryKey, c.Summary)
	dst = appendString(dst, semconv.CompactionTailStartIDKey, c.TailStartID)
	dst = appendString(dst, semconv.ErrorKey, c.Error)
	dst = appendString(dst, semconv.ErrorTypeKey, c.ErrorType)
	dst = append(dst,
		semconv.SummarizedMessageCountKey.Int64(c.SummarizedMessages),
		semconv.CompactionInputTokensKey.Int64(c.InputTokens),
		semconv.CompactionOutputTokensKey.Int64(c.OutputTokens))
	dst = appendInt(dst, semconv.CompactionSummaryTokensKey, c.SummaryTokens)
	return append(dst,
		semconv.CompactionAutoKey.Bool(c.Auto),
		semconv.SessionIDFloorKey.String(c.SessionID),
		semconv.GenAIConversationCompactedKey.Bool(true))
}

// Set implements [SpanData].
func (c *Compaction) Set(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&c.SessionID, v)
	case semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey:
		return true, setStringIfUnset(&c.SessionID, v)
	case semconv.GenAIConversationCompactedKey:
		return true, nil
	case semconv.SummarizedMessageCountKey:
		return true, setInt(&c.SummarizedMessages, v)
	case semconv.CompactionInputTokensKey:
		return true, setInt(&c.InputTokens, v)
	case semconv.CompactionOutputTokensKey:
		return true, setInt(&c.OutputTokens, v)
	case semconv.MessageIDKey:
		return true, setString(&c.MessageID, v)
	case semconv.MessageCreatedAtKey:
		return true, setInt(&c.MessageCreatedAt, v)
	case semconv.PartIDKey:
		return true, setString(&c.PartID, v)
	case semconv.CompactionSummaryKey:
		return true, setString(&c.Summary, v)
	case semconv.CompactionSummaryTokensKey:
		return true, setInt(&c.SummaryTokens, v)
	case semconv.CompactionAutoKey:
		return true, setBool(&c.Auto, v)
	case semconv.CompactionTailStartIDKey:
		return true, setString(&c.TailStartID, v)
	case semconv.ErrorKey:
		return true, setString(&c.Error, v)
	case semconv.ErrorTypeKey:
		return true, setString(&c.ErrorType, v)
	}
	return false, nil
}

// Validate implements [SpanData].
func (c *Compaction) Validate() error {
	var errs []error
	if c.SessionID == "" {
		errs = append(errs, missing(semconv.SessionIDKey))
	}
	if c.MessageID == "" && c.Error == "" {
		errs = append(errs, missing(semconv.MessageIDKey))
	}
	if c.SummarizedMessages < 0 || c.InputTokens < 0 || c.OutputTokens < 0 || c.SummaryTokens < 0 {
		errs = append(errs, errors.New("a count is negative"))
	}
	return errors.Join(errs...)
}
