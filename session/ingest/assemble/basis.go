package assemble

import (
	"slices"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// Of some sources it is not known whether the input that they state includes the cache. All
// that one of them counts in a session is read alike: as if nothing was counted apart, until
// any count of the session proves otherwise. Two things prove it:
//
//   - the count itself: a cache that is more than the input cannot be a part of it. See
//     [fact.Stated.Proof];
//   - a second report of the same call, by a source of which it is known how it counts: the
//     framework states an input of 104 and a cache of 24, the provider's library an input
//     of 128 that includes them.
//
// A turn is a part of the session only. What its facts prove goes into their
// attributions, from which the store puts together what the turns are assembled with. It
// does not depend on that: two passes settle it.

// counterOf names who counted the tokens that a fact states, "" where it is known how.
func counterOf(f *fact.Fact) string {
	if f.Usage == nil || f.Usage.Stated == nil {
		return ""
	}
	return f.Dialect + " " + f.Usage.Counter
}

// recount returns the fact with its usage as it is known now that it was counted.
func (a *assembly) recount(f *fact.Fact) *fact.Fact {
	apart := a.apart[counterOf(f)]
	if apart == 0 {
		return f
	}
	again := *f
	again.Usage = f.Usage.Recount(apart)
	return &again
}

// apartOf returns what is proven of those who count, by their names.
func apartOf(proofs []store.UsageProof) map[string]fact.Apart {
	apart := make(map[string]fact.Apart, len(proofs))
	for _, p := range proofs {
		apart[p.Counter] |= fact.Apart(p.Proof)
	}
	return apart
}

// prove notes what the counts of a call prove of each other.
func (c *call) prove() {
	for _, n := range c.nodes {
		if n.Usage == nil || n.Usage.Stated == nil {
			continue
		}
		s := n.Usage.Stated
		cache := s.CacheRead + s.CacheWrite
		if s.Input == nil || cache == 0 {
			continue
		}
		if slices.ContainsFunc(c.nodes, func(o *node) bool {
			return o.Usage != nil && o.Usage.Stated == nil && inputOf(o.Usage) == *s.Input+cache
		}) {
			n.proof |= fact.CacheApart
		}
	}
}

// inputOf counts the tokens that a model was given, with those from the cache.
func inputOf(u *fact.Usage) int64 { return u.Tokens.Input + u.Tokens.CacheRead + u.Tokens.CacheWrite }

// agreeOnOutput reports whether two counts may be of one call: the model's answer has as
// many tokens, with the reasoning. Where it is not known whether that is counted apart, it
// may be either way, whatever has been proven since.
func agreeOnOutput(x, y *fact.Usage) bool {
	xs, ys := outputsOf(x), outputsOf(y)
	return slices.ContainsFunc(xs[:], func(n int64) bool { return slices.Contains(ys[:], n) })
}

func outputsOf(u *fact.Usage) [2]int64 {
	if s := u.Stated; s != nil {
		within, apart := s.Usage(0).Tokens, s.Usage(fact.ReasoningApart).Tokens
		return [2]int64{within.Output + within.Reasoning, apart.Output + apart.Reasoning}
	}
	all := u.Tokens.Output + u.Tokens.Reasoning
	return [2]int64{all, all}
}

// usageProof is what the node contributes to what is known of who counts its tokens.
func (n *node) usageProof() store.UsageProof {
	counter := counterOf(n.Fact)
	if counter == "" {
		return store.UsageProof{}
	}
	return store.UsageProof{Counter: counter, Proof: int64(n.Usage.Proof | n.proof)}
}
