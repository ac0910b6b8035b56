package importer

import (
	"io"
	"strings"
	"testing"
)

// TestStreamIsBounded: what a program sends for ever does not fill the memory.
func TestStreamIsBounded(t *testing.T) {
	b := &bounded{strings.NewReader(strings.Repeat("x", 100)), 10}
	text, err := io.ReadAll(b)
	if len(text) != 10 || err == nil || !strings.Contains(err.Error(), "save it in a file") {
		t.Errorf("read %d bytes, error %v", len(text), err)
	}
}
