package dialect

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// InclusiveUsage makes a usage of counts as the GenAI conventions have them: input
// includes what was read from and written to the cache, output includes the
// reasoning. Where a count is less than what it should include, it cannot include
// it and stands for itself; the basis then says so. A count that the source did
// not state is nil; the usage is nil when all are. Raw is kept as it is.
func InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	if *counted(input) < *counted(cacheRead)+*counted(cacheWrite) && input != nil {
		if output != nil && *counted(output) < *counted(reasoning) {
			return ExclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
		}
		return MixedUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	}
	u := ExclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	if u == nil {
		return nil
	}
	u.Basis = fact.Inclusive
	u.Tokens.Input = max(0, u.Tokens.Input-u.Tokens.CacheRead-u.Tokens.CacheWrite)
	if u.Tokens.Output >= u.Tokens.Reasoning {
		u.Tokens.Output -= u.Tokens.Reasoning
	}
	return u
}

// TotaledUsage is InclusiveUsage where the source may state a total too. That tells
// whether the output includes the reasoning: Gemini's does not, and its total is
// the sum of prompt, candidates and thoughts.
func TotaledUsage(input, output, cacheRead, cacheWrite, reasoning, total *int64, raw json.RawMessage) *fact.Usage {
	u := InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	thoughts := *counted(reasoning)
	if u == nil || output == nil || total == nil || thoughts == 0 || u.Tokens.Output != *counted(output)-thoughts {
		return u
	}
	if sum := u.Tokens; *total == sum.Input+sum.Output+sum.Reasoning+sum.CacheRead+sum.CacheWrite+thoughts {
		u.Tokens.Output += thoughts
	}
	return u
}

// MixedUsage is InclusiveUsage for counts whose input excludes the cache, such as
// Anthropic's.
func MixedUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	u := ExclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	if u == nil {
		return nil
	}
	u.Basis = fact.Mixed
	if u.Tokens.Output >= u.Tokens.Reasoning {
		u.Tokens.Output -= u.Tokens.Reasoning
	}
	return u
}

// ExclusiveUsage is InclusiveUsage for counts that each stand for themselves.
func ExclusiveUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	if input == nil && output == nil && cacheRead == nil && cacheWrite == nil && reasoning == nil {
		return nil
	}
	return &fact.Usage{
		Tokens: session.Usage{
			Input: *counted(input), Output: *counted(output), Reasoning: *counted(reasoning), CacheRead: *counted(cacheRead), CacheWrite: *counted(cacheWrite),
		},
		Basis: fact.Exclusive,
		Raw:   raw,
	}
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
