package sqlstore

import (
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

func TestRank(t *testing.T) {
	for _, test := range []struct {
		n, percent int
		want       int64
	}{{1, 50, 1}, {1, 95, 1}, {2, 50, 1}, {3, 50, 2}, {20, 95, 19}, {21, 95, 20}, {100, 95, 95}} {
		sorted := make([]int64, test.n)
		for i := range sorted {
			sorted[i] = int64(i + 1)
		}
		if got := rank(sorted, test.percent); *got != test.want {
			t.Errorf("%d%% of 1..%d is %d, want %d", test.percent, test.n, *got, test.want)
		}
	}
}
