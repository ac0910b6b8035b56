package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/importer"
)

// TestProgress has a line that fits the terminal, and makes room for messages.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, []importer.Input{{Name: "a", Size: 3_000_000}, {Name: "gone", Err: errors.New("gone")},
		{Name: "b", Size: 1_000_000}})
	at := importer.Progress{Name: "a\x1b[31m.json", Counted: true, Read: 1_000_000}
	if got, want := p.line(at), "[=====               ]  25% of 4.0 MB  a"; !strings.HasPrefix(got, want) ||
		strings.ContainsRune(got, '\x1b') {
		t.Errorf("line %q, want %q", got, want)
	}
	p.width = 20
	if got := p.line(at); len(got) != 19 {
		t.Errorf("line %q is %d wide", got, len(got))
	}
	p.width = 80
	if p.show(at); out.Len() == 0 {
		t.Error("nothing is drawn")
	}
	out.Reset()
	_, _ = io.WriteString(p, "agenttrace: trouble\n")
	p.clear()
	if got, want := out.String(), "\r\x1b[Kagenttrace: trouble\n"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}

	// What has no known size has no share.
	p = newProgress(&out, []importer.Input{{Name: "standard input"}, {Name: "b", Size: 10}})
	at = importer.Progress{Name: "standard input", Counted: true, Read: 2_500_000}
	if got, want := p.line(at), "2.5 MB  standard input"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}

	// Of what is read by its path, only the sessions are counted.
	at.Sessions, at.Counted = 2, false
	if got, want := p.line(at), "reading  2 sessions  standard input"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
}
