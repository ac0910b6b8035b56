package ingest_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// damaged is a scenario of which spans are lost, attributes are lost or spoiled, times are unset, and some spans are
// built in two versions. No id is spoiled, for things that lose theirs are other things.
func damaged(r *rand.Rand, scenario []ptrace.Span) []ptrace.Span {
	var keys []string
	for _, a := range testscale.Attributes() {
		if !strings.HasSuffix(string(a.Key), "id") {
			keys = append(keys, string(a.Key))
		}
	}
	spoil := func(s ptrace.Span) {
		for range r.IntN(4) {
			key := keys[r.IntN(len(keys))]
			v, has := s.Attributes().Get(key)
			switch {
			case !has:
			case r.IntN(2) == 0:
				s.Attributes().Remove(key)
			case v.Type() == pcommon.ValueTypeStr:
				v.SetStr(v.Str()[:r.IntN(len(v.Str())+1)])
			case v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() > 0:
				if e := v.Slice().At(r.IntN(v.Slice().Len())); r.IntN(2) == 0 && e.Type() == pcommon.ValueTypeStr {
					// cut by a limit, behind the id
					e.SetStr(e.Str()[:max(min(len(e.Str()), 50), len(e.Str())-r.IntN(60))])
				}
			default:
				badValues[r.IntN(len(badValues))].set(v)
			}
		}
		switch r.IntN(12) {
		case 0:
			s.SetStartTimestamp(0)
		case 1:
			s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(r.IntN(100))*1e6)
		case 2:
			s.SetEndTimestamp(0)
		}
	}
	var all []ptrace.Span
	for _, s := range scenario {
		if r.IntN(6) == 0 {
			continue
		}
		for range 1 + r.IntN(8)/7 {
			version := ptrace.NewSpan()
			s.CopyTo(version)
			if r.IntN(3) == 0 {
				spoil(version)
			}
			all = append(all, version)
		}
	}
	return all
}

// TestOrderOfDamagedScenarios: also what arrives broken and in pieces makes valid
// sessions, and the same ones in any order.
func TestOrderOfDamagedScenarios(t *testing.T) {
	rounds := testscale.Rounds(6, 20)
	scenario := whole().spans
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		all := damaged(r, scenario)
		once, refused := storeOf(t, traces(all...))
		var requests []ptrace.Traces
		for rest := shuffled(r, all); len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(10))
			requests, rest = append(requests, traces(rest[:n]...)), rest[n:]
		}
		again, refusedAgain := storeOf(t, append(requests, requests[r.IntN(len(requests))])...)
		if refused+refusedAgain != 0 {
			t.Errorf("seed %d: %d and %d changes refused", seed, refused, refusedAgain)
		}
		if once != again {
			t.Fatalf("seed %d: tables differ (-in one request +in another order):\n%s", seed,
				differ(once, again))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
