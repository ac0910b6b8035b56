package redact

import (
	"math/rand/v2"
	"testing"
)

func TestFitCutsTheLongestFirstAndNoMoreThanNeeded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	total := func(lengths []int, limit int) (n int) {
		for _, l := range lengths {
			n += min(l, limit)
		}
		return n
	}
	for range 2000 {
		lengths := make([]int, 1+r.IntN(20))
		for i := range lengths {
			lengths[i] = r.IntN(1 << (4 + r.IntN(16)))
		}
		have := total(lengths, 1<<30)
		excess := r.IntN(have+2) - 1
		limit := Fit(lengths, excess)
		if limit > MinLimit && have-total(lengths, limit) < excess {
			t.Fatalf("Fit(%v, %d) = %d cuts %d", lengths, excess, limit, have-total(lengths, limit))
		}
		if excess > 0 && limit > MinLimit && have-total(lengths, limit+1) >= excess {
			t.Fatalf("Fit(%v, %d) = %d, and one more would do", lengths, excess, limit)
		}
	}
	if got := Fit(nil, 10); got != MinLimit {
		t.Errorf("Fit of nothing = %d", got)
	}
}
