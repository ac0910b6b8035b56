package cli

import (
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/term"

	"github.com/agenttrace/agenttrace/session/inspect"
)

// pipeWidth is how wide output is that nobody's window bounds.
const pipeWidth = 120

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// options say how to print to stdout.
func (p *program) options() inspect.Options {
	return inspect.Options{Width: p.width(), Color: p.colored(), Location: time.Local, Now: p.now()}
}

func (p *program) width() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := p.stdout.(*os.File); ok && term.IsTerminal(f.Fd()) {
		if w, _, err := term.GetSize(f.Fd()); err == nil && w > 0 {
			return w
		}
		return 80
	}
	return pipeWidth
}

func (p *program) colored() bool {
	switch p.color {
	case "always":
		return true
	case "never":
		return false
	}
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return isTerminal(p.stdout) && os.Getenv("TERM") != "dumb" && os.Getenv("CLICOLOR") != "0"
}

// rows is where JSON goes. JSON escapes what is below a space, and a terminal
// also heeds DEL and the controls from U+0080 to U+009F: on their way to one
// these become escapes of JSON too, which changes no value.
func (p *program) rows() io.Writer {
	if isTerminal(p.stdout) {
		return &controlEscaper{w: p.stdout}
	}
	return p.stdout
}

type controlEscaper struct {
	w       io.Writer
	pending []byte // the head of a character that a write ended in
	buf     []byte
}

func (e *controlEscaper) Write(b []byte) (int, error) {
	text := b
	if len(e.pending) > 0 {
		text = append(e.pending, b...)
	}
	e.buf, e.pending = e.buf[:0], nil
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			e.pending = append([]byte(nil), text...)
			break
		}
		r, size := utf8.DecodeRune(text)
		if r == 0x7f || r >= 0x80 && r < 0xa0 {
			e.buf = append(e.buf, `\u00`...)
			e.buf = append(e.buf, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		} else {
			e.buf = append(e.buf, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := e.w.Write(e.buf); err != nil {
		return 0, err
	}
	return len(b), nil
}
