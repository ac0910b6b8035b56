package ingest

import (
	"bytes"
	"strings"
	"testing"
)

func TestIsPlain(t *testing.T) {
	for data, want := range map[string]bool{
		`{"type":"text","text":""}`:                      true,
		`{"type":"text","text":"a"}`:                     true,
		`{"type":"text","text":"a\"b\\"}`:                true,
		`{"type":"text","text":"\\\""}`:                  true,
		`{"type":"text","text":"a","state":"done"}`:      false,
		`{"type":"text","text":"a","type":"file"}`:       false,
		`{"type":"text","text":"a\\","type":"\"}"}`:      false,
		`{"type":"text","text":"a" }`:                    false,
		`{"type":"text","text":"a`:                       false,
		`{"type":"text"}`:                                false,
		`{"type":"reasoning","text":"a"}`:                false,
		`{"type":"text","text":"a","text":5,"x":"y\"}"}`: false,
	} {
		if got := isPlain("text", []byte(data)); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
}

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
