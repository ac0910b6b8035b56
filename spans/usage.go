package spans

import (
	"encoding/json"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Tokens counts tokens in five disjoint buckets.
type Tokens struct {
	Input, Output, Reasoning, CacheRead, CacheWrite int64
}

// Total is the sum of the buckets.
func (t Tokens) Total() int64 {
	return t.Input + t.Output + t.Reasoning + t.CacheRead + t.CacheWrite
}

// Add returns the bucket-wise sum.
func (t Tokens) Add(o Tokens) Tokens {
	return Tokens{
		t.Input + o.Input, t.Output + o.Output, t.Reasoning + o.Reasoning,
		t.CacheRead + o.CacheRead, t.CacheWrite + o.CacheWrite,
	}
}

// Disjoint makes the buckets of an inclusive count disjoint: it subtracts cache reads and
// writes from input, and reasoning from output. A count that is less than the ones it
// should include was exclusive after all, as with some providers, and stays. No bucket
// becomes negative.
func (t Tokens) Disjoint() Tokens {
	t = t.atLeastZero()
	if cached := t.CacheRead + t.CacheWrite; t.Input >= cached {
		t.Input -= cached
	}
	if t.Output >= t.Reasoning {
		t.Output -= t.Reasoning
	}
	return t
}

func (t Tokens) atLeastZero() Tokens {
	return Tokens{max(0, t.Input), max(0, t.Output), max(0, t.Reasoning), max(0, t.CacheRead), max(0, t.CacheWrite)}
}

// Usage is the consumption of a turn or a model call.
type Usage struct {
	// Tokens is nil if the source did not count.
	Tokens *Tokens
	// Basis is how the provider counted: inclusive or exclusive.
	Basis string
	// Raw is the provider's own counts, a JSON object, or nil.
	Raw json.RawMessage
	// CostUSD is nil if no source reported a cost.
	CostUSD *float64
}

func (b *builder) usage(u *Usage) {
	var t Tokens
	for _, count := range []struct {
		key   attribute.Key
		field uintptr
	}{
		{semconv.UsageInputKey, unsafe.Offsetof(t.Input)},
		{semconv.UsageOutputKey, unsafe.Offsetof(t.Output)},
		{semconv.UsageReasoningKey, unsafe.Offsetof(t.Reasoning)},
		{semconv.UsageCacheReadKey, unsafe.Offsetof(t.CacheRead)},
		{semconv.UsageCacheWriteKey, unsafe.Offsetof(t.CacheWrite)},
	} {
		tokens := b.offset(&u.Tokens)
		b.rows = append(b.rows, row{key: count.key, kind: bucket, offset: tokens, bucket: count.field})
	}
	b.add(semconv.UsageBasisKey, &u.Basis, enum)
	b.add(semconv.CostUSDKey, &u.CostUSD)
	b.add(semconv.UsageRawKey, &u.Raw)
	b.ignore(semconv.GenAIUsageInputTokensKey, semconv.GenAIUsageOutputTokensKey, semconv.GenAIUsageCacheReadKey,
		semconv.GenAIUsageCacheWriteKey, semconv.GenAIUsageReasoningKey, semconv.TokensKey)
}

// appendMirror appends the same counts under the keys of the GenAI conventions. They are
// not read, because they have less precision.
func (u *Usage) appendMirror(dst []attribute.KeyValue) []attribute.KeyValue {
	t := u.Tokens
	if t == nil {
		return dst
	}
	dst = append(dst,
		semconv.GenAIUsageInputTokensKey.Int64(t.Input+t.CacheRead+t.CacheWrite),
		semconv.GenAIUsageOutputTokensKey.Int64(t.Output+t.Reasoning))
	dst = appendInt(dst, semconv.GenAIUsageCacheReadKey, t.CacheRead)
	dst = appendInt(dst, semconv.GenAIUsageCacheWriteKey, t.CacheWrite)
	return appendInt(dst, semconv.GenAIUsageReasoningKey, t.Reasoning)
}

func appendInt(dst []attribute.KeyValue, key attribute.Key, n int64) []attribute.KeyValue {
	if n == 0 {
		return dst
	}
	return append(dst, key.Int64(n))
}
