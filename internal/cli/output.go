package cli

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// output is where a command writes what it makes: standard output, or a file that appears only when it is whole and
// replaces a file only with --force. A device, a FIFO and a descriptor such as /dev/stdout are written to as they are.
type output struct {
	Output string
	Force  bool
	// source is the path of the store that is read, which is never replaced.
	source string
}

// write calls fn with standard output, where the path is none or "-", or with the
// file. json reports that what is written is JSON.
func (o output) write(cmd *cobra.Command, path string, json bool, fn func(io.Writer) error) error {
	if path == "" || path == "-" {
		return into(cmd.OutOrStdout(), "standard output", json, fn)
	}
	switch n, isStream := descriptor(path); {
	case !isStream:
		return o.file(path, json, fn)
	case n == 1:
		return into(cmd.OutOrStdout(), path, json, fn)
	case n == 2:
		return into(cmd.ErrOrStderr(), path, json, fn)
	default:
		f, err := openDescriptor(n)
		if err != nil {
			return usagef("write %s: %w; name a descriptor that is open for writing", path, err)
		}
		return into(f, path, json, fn)
	}
}

// file calls fn with the file of the path. What is no regular file (a device, a FIFO) is written to as it is, needs no
// --force and is never replaced. Opening a FIFO waits until somebody reads it.
func (o output) file(path string, json bool, fn func(io.Writer) error) error {
	open := func(path string, flags int, json bool) error {
		f, err := os.OpenFile(path, flags|os.O_WRONLY, 0o600) // prompts are sensitive
		if err != nil {
			return err
		}
		if err = into(f, path, json, fn); err == nil && flags != 0 {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	info, err := os.Stat(path)
	switch {
	case err != nil, info.Mode().IsRegular(), info.IsDir():
		return o.place(path, false, func(temporary string) error {
			return open(temporary, os.O_CREATE|os.O_EXCL, false) // which is no terminal
		})
	case info.Mode()&fs.ModeSocket != 0:
		return usagef("write %s: it is a socket; name a file, or pipe standard output to a program that connects to it",
			path)
	}
	return unwritten(path, open(path, 0, json))
}

var descriptorPath = regexp.MustCompile(`^/dev/(stdin|stdout|stderr)$|^/(?:dev|proc/self)/fd/(\d+)$`)

// descriptor returns the number of the descriptor of this process that a path names, such as /dev/stdout, /dev/fd/3 and
// /proc/self/fd/3. Opening such a path opens its file another time: what is there would be replaced or overwritten,
// though the shell has it open already.
func descriptor(path string) (n int, ok bool) {
	found := descriptorPath.FindStringSubmatch(path)
	if found == nil {
		return 0, false
	}
	if n = slices.Index([]string{"stdin", "stdout", "stderr"}, found[1]); n >= 0 {
		return n, true
	}
	n, err := strconv.Atoi(found[2])
	return n, err == nil
}

// openDescriptor returns the file of a descriptor that the process was started with.
func openDescriptor(n int) (*os.File, error) {
	if !inheritedDescriptor(n) {
		return nil, syscall.EBADF // closed, or opened by this process, such as the store's
	}
	return os.NewFile(uintptr(n), fmt.Sprintf("/dev/fd/%d", n)), nil
}

// target is the path of the file that is made or replaced: that to which a symbolic link leads, so that the link stays
// a link. A link that leads nowhere, or in a circle, is refused: what it would make is not what the path names.
func target(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		err = usagef("write %s: it is a link that leads nowhere: %w; name another file, or remove the link", path, err)
	}
	return resolved, err
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
		return unwritten(named, hidden(scratch, named, err))
	}
	if !o.Force {
		// A link, unlike a rename, does not replace what appeared meanwhile. Where
		// the file system has no links, the look from before must do.
		switch err := os.Link(temporary, path); {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrExist):
			return existing(named)
		}
	}
	return unwritten(named, os.Rename(temporary, path))
}

func existing(path string) error {
	return usagef("write %s: it exists; choose another name or add --force", path)
}

// available returns the path of the file that is to be made or replaced, if it can be.
func (o output) available(named string, isDatabase bool) (string, error) {
	if o.isSource(named) {
		return "", usagef("write %s: it is the store that is read; choose another name", named)
	}
	path, err := target(named)
	if err != nil {
		return "", err
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return "", usagef("write %s: it is a directory; name a file", named)
	case err == nil && !info.Mode().IsRegular():
		return "", usagef("write %s: it is not a regular file, and this format is a database or several files; name a file",
			named)
	case err == nil && !o.Force:
		return "", existing(named)
	}
	if isDatabase && hasLog(path) {
		return "", usagef("write %s: a program has the database open, or left its log there; choose another name", named)
	}
	return path, nil
}

// isSource reports whether the path is that of the store that is read, or of one of the files that belong to it.
func (o output) isSource(path string) bool {
	at, err := os.Stat(path)
	if err != nil || o.source == "" {
		return false
	}
	source := o.source
	if resolved, err := filepath.EvalSymlinks(source); err == nil {
		source = resolved
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".lock"} {
		if of, err := os.Stat(source + suffix); err == nil && os.SameFile(at, of) {
			return true
		}
	}
	return false
}

// hidden is err with the path that the user named in place of those of temporary files in the directory scratch.
func hidden(scratch, named string, err error) error {
	below := regexp.MustCompile(regexp.QuoteMeta(scratch) + `[^\s:;,"]*`)
	text := below.ReplaceAllLiteralString(err.Error(), named)
	if text == err.Error() {
		return err
	}
	return renamedError{text, err}
}

type renamedError struct {
	text string
	error
}

func (e renamedError) Error() string { return e.text }
func (e renamedError) Unwrap() error { return e.error }

// hasLog reports whether the database at path has a log that another program needs.
func hasLog(path string) bool {
	_, missing := os.Lstat(path + "-wal")
	if _, err := os.Lstat(path); err == nil && missing == nil {
		_ = formats.SettleStore(path) // of what is not a database the log stays
		_, missing = os.Lstat(path + "-wal")
	}
	return missing == nil
}

// writeError is a failure to write a file. Its path is the one that the user gave: a file is
// written under a temporary name first, which is of no use to anybody.
type writeError struct {
	path, reason, remedy string
	err                  error
	// lasting is set when the next file written there would fail too.
	lasting bool
}

func (e *writeError) Error() string {
	return fmt.Sprintf("write %s: %s; %s", document.Sanitize(e.path), e.reason, e.remedy)
}

func (e *writeError) Unwrap() error { return e.err }

const (
	makeRoom     = "make room, or write to another file system"
	otherPlace   = "write to another directory"
	ownDirectory = "name a directory that you may write to"
	raiseLimit   = "raise the limit on the size of files (ulimit -f), or write to another file system"
	checkLimits  = "check free space, quota and the limit on the size of files (ulimit -f), or write elsewhere"
)

// remedies are what the user can do about an error of the system.
var remedies = map[syscall.Errno]string{
	syscall.ENOSPC: makeRoom, syscall.EDQUOT: makeRoom, syscall.EFBIG: raiseLimit, syscall.EIO: checkLimits,
	syscall.EROFS: otherPlace, syscall.EACCES: ownDirectory, syscall.EPERM: ownDirectory,
}

// misnamed are those of errors that are mistakes in the command line.
var misnamed = map[syscall.Errno]string{
	syscall.ENAMETOOLONG: "name a shorter one", syscall.ENOTDIR: otherPlace, syscall.ELOOP: "name another file",
	syscall.EBADF: "name a descriptor that is open for writing", syscall.ENOENT: "create its directory first",
}

// sqliteErrors are the errors of the system that SQLite's codes hide.
var sqliteErrors = map[sqlite.ResultCode]syscall.Errno{
	sqlite.ResultFull: syscall.ENOSPC, sqlite.ResultIOErr: syscall.EIO, sqlite.ResultPerm: syscall.EACCES,
	sqlite.ResultCantOpen: syscall.EACCES, sqlite.ResultReadOnly: syscall.EACCES,
}

// readingError is a failure to read what is to be written.
type readingError struct{ error }

func (e readingError) Unwrap() error { return e.error }

// unwritten explains why the file that the user named was not written. Errors that have
// nothing to do with the file system only get the path.
func unwritten(path string, err error) error {
	if err == nil || is[*writeError](err) || is[usageError](err) || is[readingError](err) {
		return err
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		errno, ok = sqliteErrors[sqlite.ErrCode(err).ToPrimary()]
	}
	remedy, mistake := misnamed[errno]
	switch {
	case !ok, errno == syscall.EPIPE: // nobody wants more
		return fmt.Errorf("write %s: %w", path, err)
	case mistake:
		return usagef("write %s: %w; %s", path, errno, remedy)
	}
	return &writeError{path, errno.Error(), cmp.Or(remedies[errno], "write to another file"), err,
		!slices.Contains([]syscall.Errno{syscall.EFBIG, syscall.EIO, syscall.ETXTBSY}, errno)}
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
func makeDirectory(path string) error {
	err := os.MkdirAll(path, 0o700)
	if info, statErr := os.Stat(filepath.Clean(path)); err != nil && statErr == nil && !info.IsDir() {
		return usagef("write %s: it is not a directory; name another", path)
	}
	return unwritten(path, err)
}

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
