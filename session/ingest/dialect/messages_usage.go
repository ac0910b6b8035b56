package dialect

import (
	"encoding/json"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// InclusiveUsage makes a usage of counts as the GenAI conventions have them: input
// includes what was read from and written to the cache, output includes the
// reasoning. How a source counts is known from its dialect, its version and the
// provider, and is never concluded from one count: of a part that is stated to be more
// than the whole, as much is counted as there is. A count that the source did not
// state is nil; the usage is nil when all are. Raw is kept as it is.
func InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	return usageOf(0, input, output, cacheRead, cacheWrite, reasoning, raw)
}

// AssumedUsage is for sources of which it is not known how they count. They are assumed to
// be inclusive unless a count of the session proves that they are not. All counts of one
// counter are read alike; what they state is kept for that. See [fact.Usage].
func AssumedUsage(counter string, input, output, cacheRead, cacheWrite, reasoning, total *int64, raw json.RawMessage) *fact.Usage {
	u := InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	if u == nil {
		return nil
	}
	u.Stated, u.Counter = statedOf(input, output, cacheRead, cacheWrite, reasoning), counter
	if total != nil {
		total = counted(total)
	}
	u.Proof = u.Stated.Proof(total)
	return u
}

// counterOf is who counts the tokens in the spans of a scope.
func counterOf(scope pcommon.InstrumentationScope) string {
	return Text(scope.Name()) + "@" + Text(scope.Version())
}

// TotaledUsage is InclusiveUsage where the source may state a total too. That tells
// whether the output includes the reasoning: Gemini's does not, and its total is
// the sum of prompt, candidates and thoughts.
func TotaledUsage(input, output, cacheRead, cacheWrite, reasoning, total *int64, raw json.RawMessage) *fact.Usage {
	return InclusiveUsage(input, withThoughts(input, output, reasoning, total), cacheRead, cacheWrite, reasoning, raw)
}

// withThoughts returns the output with the reasoning in it, also where the total
// proves that it is beside it.
func withThoughts(input, output, reasoning, total *int64) *int64 {
	if output == nil || total == nil || *counted(reasoning) == 0 || *total != *counted(input)+*counted(output)+*counted(reasoning) {
		return output
	}
	sum := *counted(output) + *counted(reasoning)
	return &sum
}

// MixedUsage is InclusiveUsage for counts whose input excludes the cache, such as
// Anthropic's.
func MixedUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	return usageOf(fact.CacheApart, input, output, cacheRead, cacheWrite, reasoning, raw)
}

// ExclusiveUsage is InclusiveUsage for counts that each stand for themselves.
func ExclusiveUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	return usageOf(fact.CacheApart|fact.ReasoningApart, input, output, cacheRead, cacheWrite, reasoning, raw)
}

func usageOf(apart fact.Apart, input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	if input == nil && output == nil && cacheRead == nil && cacheWrite == nil && reasoning == nil {
		return nil
	}
	u := statedOf(input, output, cacheRead, cacheWrite, reasoning).Usage(apart)
	u.Raw = raw
	return &u
}

func statedOf(input, output, cacheRead, cacheWrite, reasoning *int64) *fact.Stated {
	s := fact.Stated{CacheRead: *counted(cacheRead), CacheWrite: *counted(cacheWrite), Reasoning: *counted(reasoning)}
	if input != nil {
		s.Input = counted(input)
	}
	if output != nil {
		s.Output = counted(output)
	}
	return &s
}

// counted returns a count that may be absent, and is never negative nor so large
// that a sum of some overflows.
func counted(n *int64) *int64 {
	var c int64
	if n != nil {
		c = min(max(0, *n), 1<<50)
	}
	return &c
}
