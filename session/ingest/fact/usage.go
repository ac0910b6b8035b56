package fact

import "github.com/agenttrace/agenttrace/session"

// Bases of a count of tokens.
const (
	Inclusive = "inclusive" // input includes the cache, output the reasoning
	Exclusive = "exclusive" // every bucket stands for itself
	Mixed     = "mixed"     // input excludes the cache, output includes the reasoning
)

// Apart is a set of tokens that a source counts separately, where others include them.
type Apart uint8

const (
	// CacheApart means that the input excludes the cache.
	CacheApart Apart = 1 << iota
	// ReasoningApart means that the output excludes the reasoning.
	ReasoningApart
)

// Stated are counts of tokens as a source states them. Input and Output are nil where it does not.
type Stated struct {
	Input      *int64 `json:"input,omitempty"`
	Output     *int64 `json:"output,omitempty"`
	CacheRead  int64  `json:"cache_read,omitempty"`
	CacheWrite int64  `json:"cache_write,omitempty"`
	Reasoning  int64  `json:"reasoning,omitempty"`
}

// Usage returns the disjoint counts of a source that counts these tokens apart. Of a part
// that is stated to be more than what includes it, as much is counted as there is.
func (s *Stated) Usage(apart Apart) Usage {
	u := Usage{Basis: Inclusive, Tokens: session.Usage{Reasoning: s.Reasoning, CacheRead: s.CacheRead,
		CacheWrite: s.CacheWrite}}
	n := &u.Tokens
	if s.Input != nil {
		n.Input = *s.Input
		if apart&CacheApart == 0 {
			u.Capped = n.CacheRead+n.CacheWrite > n.Input
			n.CacheRead = min(n.CacheRead, n.Input)
			n.CacheWrite = min(n.CacheWrite, n.Input-n.CacheRead)
			n.Input -= n.CacheRead + n.CacheWrite
		}
	}
	if s.Output != nil {
		n.Output = *s.Output
		if apart&ReasoningApart == 0 {
			u.Capped = u.Capped || n.Reasoning > n.Output
			n.Reasoning = min(n.Reasoning, n.Output)
			n.Output -= n.Reasoning
		}
	}
	switch {
	case apart == CacheApart|ReasoningApart:
		u.Basis = Exclusive
	case apart&CacheApart != 0:
		u.Basis = Mixed
	}
	return u
}

// Proof is what the counts, with the total that the source states for them, prove. A part that is more than the tokens
// that should include it is counted apart. So it is where the total can be the sum of nothing else: in a total of input
// and cache the input has no cache. A total of input and output proves nothing, because some sources leave the cache
// out of it that they count apart.
func (s *Stated) Proof(total *int64) Apart {
	proof, sums := CacheApart|ReasoningApart, 0
	cache := s.CacheRead + s.CacheWrite
	if total != nil && s.Input != nil && s.Output != nil {
		base := *s.Input + *s.Output
		for apart, sum := range []int64{base, base + cache, base + s.Reasoning, base + cache + s.Reasoning} {
			if sum == *total {
				proof &= Apart(apart)
				sums++
			}
		}
	}
	if sums == 0 {
		proof = 0
	}
	if s.Input != nil && cache > *s.Input {
		proof |= CacheApart
	}
	if s.Output != nil && s.Reasoning > *s.Output {
		proof |= ReasoningApart
	}
	return proof
}

// Recount returns the usage of a source that counts these tokens apart. It is the same
// where it is known how the source counts.
func (u *Usage) Recount(apart Apart) *Usage {
	if u.Stated == nil {
		return u
	}
	counted := u.Stated.Usage(apart)
	again := *u
	again.Tokens, again.Basis, again.Capped = counted.Tokens, counted.Basis, counted.Capped
	return &again
}
