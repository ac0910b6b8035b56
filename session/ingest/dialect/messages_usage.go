package dialect

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// InclusiveUsage makes a usage of counts as the GenAI conventions have them: input
// includes what was read from and written to the cache, output includes the
// reasoning. How a source counts is known from its dialect, its version and the
// provider, and is never told from one count: of a part that is said to be more
// than the whole, as much is counted as there is. A count that the source did not
// state is nil; the usage is nil when all are. Raw is kept as it is.
func InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	u := ExclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	if u == nil {
		return nil
	}
	u.Basis = fact.Inclusive
	n := &u.Tokens
	if input != nil {
		u.Capped = n.CacheRead+n.CacheWrite > n.Input
		n.CacheRead = min(n.CacheRead, n.Input)
		n.CacheWrite = min(n.CacheWrite, n.Input-n.CacheRead)
		n.Input -= n.CacheRead + n.CacheWrite
	}
	if output != nil {
		u.Capped = u.Capped || n.Reasoning > n.Output
		n.Reasoning = min(n.Reasoning, n.Output)
		n.Output -= n.Reasoning
	}
	return u
}

// AssumedUsage is for sources of which nothing tells how they count: it takes the
// counts for inclusive, unless the input is less than the cache that it should
// include. What was stated is kept, so that all calls of a turn can be read alike.
func AssumedUsage(input, output, cacheRead, cacheWrite, reasoning *int64, raw json.RawMessage) *fact.Usage {
	cached := *counted(cacheRead) + *counted(cacheWrite)
	if input == nil || cached == 0 {
		return InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	}
	var u *fact.Usage
	if *counted(input) < cached {
		u = MixedUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	} else {
		u = InclusiveUsage(input, output, cacheRead, cacheWrite, reasoning, raw)
	}
	u.StatedInput = counted(input)
	return u
}

// TotaledUsage is InclusiveUsage where the source may state a total too. That tells
// whether the output includes the reasoning: Gemini's does not, and its total is
// the sum of prompt, candidates and thoughts.
func TotaledUsage(input, output, cacheRead, cacheWrite, reasoning, total *int64, raw json.RawMessage) *fact.Usage {
	return InclusiveUsage(input, withThoughts(input, output, reasoning, total), cacheRead, cacheWrite, reasoning, raw)
}

// withThoughts returns the output with the reasoning in it, also where the total
// proves that it stands beside it.
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
