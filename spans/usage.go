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

// Disjoint makes the buckets of an inclusive count disjoint: it subtracts cache reads and writes from input, and
// reasoning from output. A count that is less than the ones it should include was exclusive after all, as with some
// providers, and stays. No bucket becomes negative.
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

// CacheCreationKey is the name of [semconv.GenAIUsageCacheWriteKey] in the last release of the GenAI conventions.
const CacheCreationKey = attribute.Key("gen_ai.usage.cache_creation.input_tokens")

func (u *Usage) visit(c *coder) {
	var t Tokens
	if u.Tokens != nil {
		t = *u.Tokens
	}
	if u.Tokens != nil || c.decoding {
		known := c.known
		c.total(semconv.UsageInputKey, &t.Input)
		c.total(semconv.UsageOutputKey, &t.Output)
		c.total(semconv.UsageReasoningKey, &t.Reasoning)
		c.total(semconv.UsageCacheReadKey, &t.CacheRead)
		c.total(semconv.UsageCacheWriteKey, &t.CacheWrite)
		if c.known && !known && c.err == nil {
			if u.Tokens == nil {
				u.Tokens = new(Tokens)
			}
			if t.atLeastZero() == t {
				*u.Tokens = t
			} else {
				c.err = errors.New("want a count, have a negative number")
			}
		}
	}
	c.text(semconv.UsageBasisKey, &u.Basis)
	c.double(semconv.CostUSDKey, &u.CostUSD)
	c.json(semconv.UsageRawKey, &u.Raw, '{')
}

// visitMirror is about the same counts under the keys of the GenAI conventions. They are not read:
// they have less precision.
func (u *Usage) visitMirror(c *coder) {
	if c.decoding {
		c.ignored(semconv.GenAIUsageInputTokensKey, semconv.GenAIUsageOutputTokensKey, semconv.GenAIUsageCacheReadKey,
			semconv.GenAIUsageCacheWriteKey, CacheCreationKey, semconv.GenAIUsageReasoningKey,
			semconv.TokensKey)
	} else if t := u.Tokens; t != nil {
		input, output := t.Input+t.CacheRead+t.CacheWrite, t.Output+t.Reasoning
		c.total(semconv.GenAIUsageInputTokensKey, &input)
		c.total(semconv.GenAIUsageOutputTokensKey, &output)
		c.count(semconv.GenAIUsageCacheReadKey, &t.CacheRead)
		c.count(semconv.GenAIUsageCacheWriteKey, &t.CacheWrite)
		c.count(semconv.GenAIUsageReasoningKey, &t.Reasoning)
	}
}

func (u *Usage) validate() error {
	return oneOf(semconv.UsageBasisKey, u.Basis, semconv.BasisInclusive, semconv.BasisExclusive)
}
