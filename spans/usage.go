package spans

import (
	"encoding/json"
	"errors"

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
	return Tokens{t.Input + o.Input, t.Output + o.Output, t.Reasoning + o.Reasoning, t.CacheRead + o.CacheRead,
		t.CacheWrite + o.CacheWrite}
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

func (u *Usage) append(dst []attribute.KeyValue) []attribute.KeyValue {
	if t := u.Tokens; t != nil {
		dst = append(dst,
			semconv.UsageInputKey.Int64(t.Input),
			semconv.UsageOutputKey.Int64(t.Output),
			semconv.UsageReasoningKey.Int64(t.Reasoning),
			semconv.UsageCacheReadKey.Int64(t.CacheRead),
			semconv.UsageCacheWriteKey.Int64(t.CacheWrite))
	}
	dst = appendString(dst, semconv.UsageBasisKey, u.Basis)
	if u.CostUSD != nil {
		dst = append(dst, semconv.CostUSDKey.Float64(*u.CostUSD))
	}
	return appendString(dst, semconv.UsageRawKey, string(u.Raw))
}

// appendMirror appends the same counts under the keys of the GenAI conventions.
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

// set decodes the keys of append. It ignores those of appendMirror, which have the same
// counts with less precision.
func (u *Usage) set(key string, v Value) (known bool, err error) {
	bucket := func(field func(*Tokens) *int64) error {
		n, err := v.Int()
		if err != nil {
			return err
		}
		if u.Tokens == nil {
			u.Tokens = new(Tokens)
		}
		if n < 0 {
			return errors.New("want a count, have a negative number")
		}
		*field(u.Tokens) = n
		return nil
	}
	switch attribute.Key(key) {
	case semconv.UsageInputKey:
		return true, bucket(func(t *Tokens) *int64 { return &t.Input })
	case semconv.UsageOutputKey:
		return true, bucket(func(t *Tokens) *int64 { return &t.Output })
	case semconv.UsageReasoningKey:
		return true, bucket(func(t *Tokens) *int64 { return &t.Reasoning })
	case semconv.UsageCacheReadKey:
		return true, bucket(func(t *Tokens) *int64 { return &t.CacheRead })
	case semconv.UsageCacheWriteKey:
		return true, bucket(func(t *Tokens) *int64 { return &t.CacheWrite })
	case semconv.UsageBasisKey:
		return true, setString(&u.Basis, v)
	case semconv.UsageRawKey:
		return true, setJSON(&u.Raw, v, '{')
	case semconv.CostUSDKey:
		return true, setDoublePtr(&u.CostUSD, v)
	case semconv.GenAIUsageInputTokensKey, semconv.GenAIUsageOutputTokensKey, semconv.GenAIUsageCacheReadKey,
		semconv.GenAIUsageCacheWriteKey, semconv.GenAIUsageReasoningKey, semconv.TokensKey:
		return true, nil
	}
	return false, nil
}

func (u *Usage) validate() []error {
	var errs []error
	if u.Basis != "" && u.Basis != semconv.BasisInclusive && u.Basis != semconv.BasisExclusive {
		errs = append(errs, invalid(semconv.UsageBasisKey, u.Basis))
	}
	return errs
}
