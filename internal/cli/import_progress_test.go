package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestProgress has a line that fits the terminal, and makes room for messages.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, []input{{name: "a", size: 3_000_000}, {name: "gone", err: errors.New("gone")}, {name: "b", size: 1_000_000}})
	p.begin(input{name: "a\x1b[31m.json"})
	_ = p.reader(strings.NewReader(""))
	p.read = 1_000_000
	if got, want := p.line(), "[=====               ]  25% of 4.0 MB  a"; !strings.HasPrefix(got, want) || strings.ContainsRune(got, '\x1b') {
		t.Errorf("line %q, want %q", got, want)
	}
	p.width = 20
	if got := p.line(); len(got) != 19 {
		t.Errorf("line %q is %d wide", got, len(got))
	}
	p.width = 80
	if _, err := io.Copy(io.Discard, p.reader(strings.NewReader("text"))); err != nil || p.read != 1_000_004 {
		t.Errorf("read %d: %v", p.read, err)
	}
	if out.Len() == 0 {
		t.Error("nothing is drawn")
	}
	out.Reset()
	_, _ = io.WriteString(p, "agenttrace: trouble\n")
	p.clear()
	if got, want := out.String(), "\r\x1b[Kagenttrace: trouble\n"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}

	// What has no known size has no share.
	p = newProgress(&out, []input{{name: "standard input"}, {name: "b", size: 10}})
	p.begin(input{name: "standard input"})
	_ = p.reader(strings.NewReader(""))
	p.read = 2_500_000
	if got, want := p.line(), "2.5 MB  standard input"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}

	// Of what is read by its path, only the sessions are counted.
	p.sessions = 2
	p.unread()
	if got, want := p.line(), "reading  2 sessions  standard input"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}

	var none *progress
	none.unread()
	none.stored()
	none.begin(input{})
	none.clear()
	if r := strings.NewReader(""); none.reader(r) != r {
		t.Error("no progress wraps the reader")
	}
}
