package cli

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// terminal states how to print to standard output: as wide as the terminal, or as COLUMNS says, else 100; in color on a
// terminal unless NO_COLOR is set, CLICOLOR is 0 or TERM is dumb, elsewhere only with CLICOLOR_FORCE.
func terminal(cmd *cobra.Command) render.Options {
	out := cmd.OutOrStdout()
	return render.Options{Whole: !isTerminal(out), Width: columns(out, 100), Location: time.Local, Color: colored(out),
		Now: time.Now()}
}

// columns is as many as COLUMNS says or the terminal has that w is; if it is none, otherwise.
func columns(w io.Writer, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(f.Fd()) {
		if n, _, err := term.GetSize(f.Fd()); err == nil && n > 0 {
			return n
		}
	}
	return otherwise
}

func colored(w io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return isTerminal(w) && os.Getenv("CLICOLOR") != "0" && os.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

func note(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), format, args...)
	return err
}

//go:embed words.tmpl
var wordsFile string

var phrases = document.NewPhrases(wordsFile, nil)

func counted(n int, what string) string { return document.Plural(n, what, what+"s") }

func either(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// answer prints what a command did: as JSON, or as a message for a person.
func answer(cmd *cobra.Command, asJSON bool, v any, format string, args ...any) error {
	if asJSON {
		return writeJSON(cmd, v)
	}
	return note(cmd, format, args...)
}

func writeJSON(cmd *cobra.Command, v any) error { return document.EncodeJSON(jsonOutput(cmd), "  ", v) }

// jsonOutput is where JSON goes. JSON escapes what is below a space, and a terminal also obeys DEL and the controls
// from U+0080 to U+009F: on their way to one these become escapes of JSON too, which changes no value.
func jsonOutput(cmd *cobra.Command) io.Writer { return forJSON(cmd.OutOrStdout()) }

// forJSON is w for JSON: see [jsonOutput].
func forJSON(w io.Writer) io.Writer {
	if isTerminal(w) {
		return &controlEscaper{w: w}
	}
	return w
}

type controlEscaper struct {
	w       io.Writer
	pending []byte // the head of a character that a write ended in
	buf     []byte
}

func (e *controlEscaper) Write(b []byte) (int, error) {
	text := append(e.pending, b...)
	e.buf, e.pending = e.buf[:0], nil
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			e.pending = text
			break
		}
		r, size := utf8.DecodeRune(text)
		if r >= 0x7f && r < 0xa0 {
			e.buf = fmt.Appendf(e.buf, `\u%04x`, r)
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
