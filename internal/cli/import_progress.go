package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
)

// progress is a line on a terminal that states how far reading has come. What else
// is written there goes through it.
type progress struct {
	w           io.Writer
	width       int
	total, read int64
	begun       int64 // the sizes of the inputs that were begun
	name        string
	sessions    int // that were stored
	uncounted   bool
	drawn       time.Time
	shown       bool
}

func newProgress(w io.Writer, inputs []importer.Input) *progress {
	p := &progress{w: w, width: 80}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
			p.width = width
		}
	}
	for _, in := range inputs {
		if in.Size == 0 && in.Err == nil {
			p.total = 0 // nobody knows when standard input ends
			return p
		}
		p.total += in.Size
	}
	return p
}

// Begin implements [importer.Progress].
func (p *progress) Begin(in importer.Input) {
	p.name = in.Name
	// Of what is read by its path nothing was counted.
	p.read = max(p.read, p.begun)
	p.begun += in.Size
	p.uncounted = true
}

// Reader counts what is read of r.
func (p *progress) Reader(r io.Reader) io.Reader {
	p.uncounted = false
	return progressReader{p, r}
}

type progressReader struct {
	*progress
	io.Reader
}

func (r progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.read += int64(n)
	r.redraw()
	return n, err
}

// Stored reports that a session was stored.
func (p *progress) Stored() {
	p.sessions++
	p.redraw()
}

// redraw draws the line unless it was just drawn.
func (p *progress) redraw() {
	if now := time.Now(); now.Sub(p.drawn) > 100*time.Millisecond {
		p.drawn, p.shown = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.line())
	}
}

// Uncounted reports that the rest is read in a way that nobody counts.
func (p *progress) Uncounted() { p.uncounted = true }

// line is the line in the width of the terminal: a bar, how much was read, and of
// what.
func (p *progress) line() string {
	mb := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	text := mb(p.read)
	if p.total > 0 {
		const cells = 20
		done := min(p.read, p.total)
		n := int(done * cells / p.total)
		text = fmt.Sprintf("[%s%s] %3d%% of %s", strings.Repeat("=", n), strings.Repeat(" ", cells-n), done*100/p.total,
			mb(p.total))
	}
	if p.uncounted {
		text = "reading"
	}
	if p.sessions > 0 {
		text += "  " + counted(p.sessions, "session")
	}
	text += "  " + document.Flat(p.name)
	if runes := []rune(text); len(runes) >= p.width {
		text = string(runes[:max(p.width-1, 0)])
	}
	return text
}

func (p *progress) clear() {
	if p != nil && p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// Write writes a message where the line was.
func (p *progress) Write(b []byte) (int, error) {
	p.clear()
	return p.w.Write(b)
}
