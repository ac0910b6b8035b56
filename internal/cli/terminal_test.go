package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestControlEscaper writes JSON with characters that a terminal obeys, in pieces
// of every size: none of them arrives, and the value is the same.
func TestControlEscaper(t *testing.T) {
	const value = "a\u009b2J\x7fb\u0085 – ü 界 \u00a0"
	var text bytes.Buffer
	testscale.Must(t, json.NewEncoder(&text).Encode(value))
	for size := 1; size <= text.Len(); size++ {
		var out bytes.Buffer
		e := &controlEscaper{w: &out}
		for rest := text.Bytes(); len(rest) > 0; {
			n := min(size, len(rest))
			if got, err := e.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("Write of %d bytes = %d, %v", n, got, err)
			}
			rest = rest[n:]
		}
		var got string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != value {
			t.Errorf("in pieces of %d: %q, %v, want %q", size, got, err, value)
		}
		for _, r := range out.String() {
			if r >= 0x7f && r < 0xa0 {
				t.Errorf("in pieces of %d: %U arrives", size, r)
			}
		}
	}
}
