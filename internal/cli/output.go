package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// output is where a command writes what it makes: standard output, or a file that appears only when it is whole and
// replaces a file only with --force. A device and a FIFO are written to as they are.
type output struct {
	Output string
	Force  bool
	// source is the path of the store that is read, which is never replaced.
	source string
}

// isStandard reports whether a path is that of standard output. Opening /dev/stdout would open its file another time:
// what is there would be replaced or overwritten, though the shell has it open already.
func isStandard(path string) bool { return path == "" || path == "-" || path == "/dev/stdout" }

// write calls fn with standard output, or with the file of the path. json reports that what is written is JSON.
func (o output) write(cmd *cobra.Command, path string, json bool, fn func(io.Writer) error) error {
	if isStandard(path) {
		return into(cmd.OutOrStdout(), "standard output", json, fn)
	}
	return o.file(path, json, fn)
}

// file calls fn with the file of the path. What is no regular file (a device, a FIFO) is written to as it is, needs no
// --force and is never replaced. Opening a FIFO waits until somebody reads it.
func (o output) file(path string, json bool, fn func(io.Writer) error) error {
	open := func(at string, flags int, json bool) error {
		f, err := os.OpenFile(at, flags|os.O_WRONLY, 0o600) // prompts are sensitive
		if err != nil {
			return err
		}
		if err = into(f, path, json, fn); err == nil && flags != 0 {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return unwritten(path, open(path, 0, json))
	}
	return o.place(path, false, func(temporary string) error {
		return open(temporary, os.O_CREATE|os.O_EXCL, false) // which is no terminal
	})
}

// place has fn write a file, which may be a database, under a name that nothing has, and gives it its own when
// it is whole. The file that a symbolic link leads to is replaced, and not the link.
func (o output) place(named string, isDatabase bool, fn func(temporary string) error) error {
	path, err := o.available(named, isDatabase)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(path), ".agenttrace-*") // however long the name of the file is
	if err != nil {
		return unwritten(named, err)
	}
	defer os.RemoveAll(scratch)
	// The name keeps its end, by which a format may go.
	temporary := filepath.Join(scratch, "new"+filepath.Ext(path))
	if err := fn(temporary); err != nil {
		return unwritten(named, err)
	}
	if path, err = o.available(named, isDatabase); err != nil { // it has appeared meanwhile
		return err
	}
	return unwritten(named, os.Rename(temporary, path))
}

// available returns the path of the file that is to be made or replaced, if it can be. It is that to which a symbolic
// link leads, so that the link stays a link. A link that leads nowhere, or in a circle, is refused: what it would make
// is not what the path names.
func (o output) available(named string, isDatabase bool) (path string, err error) {
	path = named
	if _, err := os.Lstat(named); err == nil {
		if path, err = filepath.EvalSymlinks(named); err != nil {
			return "", usagef("write %s: it is a link that leads nowhere: %w; name another file, or remove the link", named, err)
		}
	}
	switch info, err := os.Stat(path); {
	case err != nil:
	case o.isSource(info):
		return "", usagef("write %s: it is the store that is read; choose another name", named)
	case !info.Mode().IsRegular():
		return "", usagef("write %s: it is not a regular file, and this output needs one; name a file", named)
	case !o.Force:
		return "", usagef("write %s: it exists; choose another name or add --force", named)
	}
	if isDatabase {
		_ = formats.SettleStore(path) // of what is not a database the log stays
		if _, err := os.Lstat(path + "-wal"); err == nil {
			return "", usagef("write %s: a program has the database open, or left its log there; choose another name", named)
		}
	}
	return path, nil
}

// isSource reports whether a file is the store that is read, or one of the files that belong to it.
func (o output) isSource(file fs.FileInfo) bool {
	source := o.source
	if resolved, err := filepath.EvalSymlinks(source); err == nil {
		source = resolved
	}
	suffixes := []string{"", "-wal", "-shm", "-journal", ".lock"}
	return source != "" && slices.ContainsFunc(suffixes, func(suffix string) bool {
		of, err := os.Stat(source + suffix)
		return err == nil && os.SameFile(file, of)
	})
}

// writeError is a failure of the system, or of SQLite, to write a file. Its path is the one that the user gave: a file
// is written under a temporary name first, which is of no use to anybody.
type writeError struct {
	path, reason string
	err          error
}

func (e *writeError) Error() string {
	return fmt.Sprintf("write %s: %s; make room, check its directory, quota and the limit on the size of files "+
		"(ulimit -f), or write elsewhere", document.Sanitize(e.path), e.reason)
}

func (e *writeError) Unwrap() error { return e.err }

// readingError is a failure to read what is to be written.
type readingError struct{ error }

func (e readingError) Unwrap() error { return e.error }

// unwritten explains why the file that the user named was not written. Errors that have
// nothing to do with the file system only get the path.
func unwritten(path string, err error) error {
	if err == nil || is[*writeError](err) || is[usageError](err) || is[readingError](err) {
		return err
	}
	errno, isSystem := errors.AsType[syscall.Errno](err)
	code := sqlite.ErrCode(err).ToPrimary()
	switch {
	case errno == syscall.EPIPE: // nobody wants more
	case isSystem:
		return &writeError{path, errno.Error(), err}
	case slices.Contains([]sqlite.ResultCode{sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultPerm,
		sqlite.ResultCantOpen, sqlite.ResultReadOnly}, code):
		return &writeError{path, code.Message(), err}
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// sink remembers the first error of a writer: encoders may wrap it, or report another.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (n int, err error) {
	n, err = s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// into calls fn with w, which messages call path. json is as for write.
func into(w io.Writer, path string, json bool, fn func(io.Writer) error) error {
	if json {
		w = forJSON(w)
	}
	s := &sink{w: w}
	err := fn(s)
	if s.err != nil {
		return unwritten(path, s.err)
	}
	return err
}

// makeDirectory makes a directory to write into, private to the user, and those above it.
func makeDirectory(path string) error { return unwritten(path, os.MkdirAll(path, 0o700)) }

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

// printTable prints rows of cells, the first of them the heads of the columns, aligned to the left.
func printTable(cmd *cobra.Command, rows [][]string) error {
	return render.Table(cmd.OutOrStdout(), len(rows[0]), rows, terminal(cmd))
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

func writeJSON(cmd *cobra.Command, v any) error {
	return document.EncodeJSON(forJSON(cmd.OutOrStdout()), "  ", v)
}

// forJSON is w for JSON. JSON escapes what is below a space, and a terminal also obeys DEL and the controls from U+0080
// to U+009F: on their way to one these become escapes of JSON too, which changes no value.
func forJSON(w io.Writer) io.Writer {
	if isTerminal(w) {
		return &controlEscaper{w: w}
	}
	return w
}

type controlEscaper struct {
	w    io.Writer
	head bool // the last byte may be the first of a control's two, and was not written
}

const controlHead = 0xc2

func (e *controlEscaper) Write(b []byte) (int, error) {
	var out []byte
	for _, c := range b {
		isHigh := e.head && c >= 0x80 && c < 0xa0
		if e.head && !isHigh {
			out = append(out, controlHead)
		}
		if isHigh || c == 0x7f {
			out = fmt.Appendf(out, `\u%04x`, c)
		} else if c != controlHead {
			out = append(out, c)
		}
		e.head = c == controlHead
	}
	if _, err := e.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
