// Package testscale has what tests of many packages share: how much they do, ports for servers that are configured with
// one before they listen, and the secrets of the corpus of package redact. A newcomer's `go test ./...` runs few rounds
// of the suites that deliver, generate or kill at random; with the build tag long, as in `make long`, they run all of
// them:
//
//	for seed := range testscale.Rounds(8, 40) {
package testscale

import "testing"

// Rounds returns few, or with the build tag long many.
func Rounds(few, many int) int {
	if Long {
		return many
	}
	return few
}

// Linear fails the test if the processor time of work grows faster than its size. It compares two sizes in one process
// instead of asking a clock, so that a busy machine does not fail it: work that grows with the square takes 256 times
// as much for sixteen times the size, and 80 times as much is taken for that.
func Linear(t *testing.T, size int, work func(size int)) {
	t.Helper()
	least := func(size int) float64 {
		best := 0.0
		for i := range 3 {
			before := CPUSeconds()
			work(size)
			if took := CPUSeconds() - before; i == 0 || took < best {
				best = took
			}
		}
		return best
	}
	small, large := least(size), least(16*size)
	const noise = 0.02 // a collection of garbage, or the clock's own step
	if large > 80*max(small, noise/16) {
		t.Errorf("size %d takes %.3f s of the processor, size %d takes %.3f s: more than in proportion",
			size, small, 16*size, large)
	}
}
