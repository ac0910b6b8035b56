//go:build long

package otlpfile

import (
	"io"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestLongLine reads a line of 100 MB.
func TestLongLine(t *testing.T) {
	const size = 100 << 20
	before, after, _ := strings.Cut(span("@"), "@")
	r := io.MultiReader(strings.NewReader(span("a")+"\n"+before), io.LimitReader(repeated('x'), size),
		strings.NewReader(after+"\n"+span("b")))
	n, long := 0, 0
	for b, err := range Read(r, Options{}) {
		testscale.Must(t, err)
		n++
		long = max(long, len(b.Traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Name()))
	}
	if n != 3 || long != size {
		t.Errorf("%d bodies, the longest name %d", n, long)
	}
}

type repeated byte

func (c repeated) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}
