package sqlstore

import (
	"math/rand/v2"
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
)

// TestNeedle: what may not have the text has it in no way of writing it.
func TestNeedle(t *testing.T) {
	for _, test := range []struct {
		text, raw string
		want      bool
	}{
		{"go test", `{"c":"GO TEST ./..."}`, true},
		{"go test", `{"c":"go  test"}`, false},
		{"zig", `gigaZIg`, true},
		{"zig", `zi`, false},
		{"zz", `zxzxzZ`, true},
		{`"`, `any\"thing`, true},
		{`"`, `anything`, false},
		{"日本", `{}`, false},
		{"日本", `\u65E5\u672c`, true},
		{"É😀", `\u00e9\ud83d\uDE00`, true},
		{"É😀", `\u00e9\ud83d`, false},
		{"\n", `\n`, true},
		{"\n", `n`, false},
		{"é\ufffd", "\u00c9\xff", true},
		{"é\ufffd", `É\ud800x`, true},
		{"b/c", `b\/c`, true},
	} {
		n, _ := newNeedle(store.SearchQuery{Text: test.text})
		if got := n.mayBeIn([]byte(test.raw)); got != test.want {
			t.Errorf("%q in %s: %v, want %v", test.text, test.raw, got, test.want)
		}
	}
}

func TestRanks(t *testing.T) {
	for _, test := range []struct {
		n           int
		median, p95 int64
	}{{1, 1, 1}, {2, 1, 2}, {3, 2, 3}, {20, 10, 19}, {21, 11, 20}, {100, 50, 95}, {1000, 500, 950}} {
		values := make([]int64, test.n)
		for i, n := range rand.Perm(test.n) {
			values[i] = int64(n + 1)
		}
		if median, p95 := ranks(values); *median != test.median || *p95 != test.p95 {
			t.Errorf("of 1..%d: median %d, 95%% %d, want %d, %d", test.n, *median, *p95, test.median, test.p95)
		}
	}
}
