package fact

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
)

// TestProofOfACount: what a count proves of how its source counts.
func TestProofOfACount(t *testing.T) {
	n := func(i int64) *int64 { return &i }
	const none, both = Apart(0), CacheApart | ReasoningApart
	for _, test := range []struct {
		name   string
		stated Stated
		total  *int64
		want   Apart
	}{
		{"no total", Stated{Input: n(100), Output: n(30), CacheRead: 20, Reasoning: 7}, nil, none},
		{"input and output", Stated{Input: n(100), Output: n(30), CacheRead: 20, Reasoning: 7}, n(130), none},
		{"input, output and cache", Stated{Input: n(100), Output: n(30), CacheRead: 20, CacheWrite: 5, Reasoning: 7},
			n(155),
			CacheApart},
		{"input, output and reasoning", Stated{Input: n(100), Output: n(30), CacheRead: 20, Reasoning: 7}, n(137),
			ReasoningApart},
		{"all", Stated{Input: n(100), Output: n(30), CacheRead: 20, Reasoning: 7}, n(157), both},
		{"cache or reasoning", Stated{Input: n(100), Output: n(30), CacheRead: 20, Reasoning: 20}, n(150), none},
		{"no cache and no reasoning", Stated{Input: n(100), Output: n(30)}, n(130), none},
		{"some other total", Stated{Input: n(100), Output: n(30), CacheRead: 20, Reasoning: 7}, n(140), none},
		{"more cache than input", Stated{Input: n(10), Output: n(30), CacheRead: 8, CacheWrite: 3}, n(40), CacheApart},
		{"more reasoning than output", Stated{Input: n(10), Output: n(3), Reasoning: 8}, nil, ReasoningApart},
		{"no input", Stated{Output: n(3), CacheRead: 8}, n(11), none},
		{"no output", Stated{Input: n(3), Reasoning: 8}, n(11), none},
	} {
		if got := test.stated.Proof(test.total); got != test.want {
			t.Errorf("%s: %b, want %b", test.name, got, test.want)
		}
	}
}

// TestRecount: a usage of which nobody knows how it was counted is what was proven since, any other stays as it is.
func TestRecount(t *testing.T) {
	input, output := int64(100), int64(30)
	stated := Stated{Input: &input, Output: &output, CacheRead: 20, Reasoning: 7}
	tokens := func(in, out int64) session.Usage {
		return session.Usage{Input: in, Output: out, CacheRead: 20, Reasoning: 7}
	}
	u := stated.Usage(0)
	u.Stated = &stated
	for apart, want := range map[Apart]Usage{
		0:                           {Basis: Inclusive, Tokens: tokens(80, 23)},
		CacheApart:                  {Basis: Mixed, Tokens: tokens(100, 23)},
		ReasoningApart:              {Basis: Inclusive, Tokens: tokens(80, 30)},
		CacheApart | ReasoningApart: {Basis: Exclusive, Tokens: tokens(100, 30)},
	} {
		want.Stated = &stated
		if d := cmp.Diff(&want, u.Recount(apart)); d != "" {
			t.Errorf("%b: (-want +got):\n%s", apart, d)
		}
	}
	known := stated.Usage(0)
	if again := known.Recount(CacheApart); again != &known {
		t.Errorf("a known usage was counted again: %+v", again)
	}
}
