package ingest

import (
	"bytes"
	"strings"
	"testing"
)

func TestTooDeep(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, c := range []struct {
		raw  []byte
		want bool
	}{
		{nil, false},
		{nested(maxDepth), false},
		{nested(maxDepth + 1), true},
		{bytes.Repeat(nested(2), maxDepth), false},
		{[]byte(`"` + strings.Repeat("[", maxDepth+1) + `"`), false},
		{append([]byte(`"\"`+strings.Repeat("{", maxDepth)+`",`), nested(maxDepth+1)...), true},
	} {
		if got := TooDeep(c.raw); got != c.want {
			t.Errorf("%.30s…: %v", c.raw, got)
		}
	}
}
