package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
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

// file calls fn with the file of the path. What is no regular file (a device, a FIFO) is
// written to as it is, and never replaced.
func (o output) file(path string, json bool, fn func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return writeSpecial(path, info, json, fn)
	}
	return o.place(path, false, func(temporary string) error {
		f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // prompts are sensitive
		if err != nil {
			return err
		}
		err = into(f, path, false, fn) // which is no terminal
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
}

// writeSpecial writes to a device or a FIFO, which is there whatever is written to it: no
// --force is needed. Opening a FIFO waits until somebody reads it.
func writeSpecial(path string, info fs.FileInfo, json bool, fn func(io.Writer) error) error {
	if info.Mode()&fs.ModeSocket != 0 {
		return usagef("write %s: it is a socket; name a file, or pipe standard output to a program that connects to it",
			path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return unwritten(path, err)
	}
	err = into(f, path, json, fn)
	if closeErr := f.Close(); err == nil {
		err = unwritten(path, closeErr)
	}
	return err
}

var descriptorPath = regexp.MustCompile(`^/dev/(stdin|stdout|stderr)$|^/(?:dev|proc/self|proc/thread-self|proc/` +
	strconv.Itoa(os.Getpid()) + `)/fd/(\d+)$`)

// descriptor returns the number of the descriptor of this process that a path names, such as /dev/stdout, /dev/fd/3 and
// /proc/self/fd/3, also by way of symbolic links. Opening such a path opens its file another time: what is there would
// be replaced or overwritten, though the shell has it open already.
func descriptor(path string) (n int, ok bool) {
	const maxLinks = 40 // as Linux has it
	for range maxLinks {
		if path == "" {
			break
		}
		if found := descriptorPath.FindStringSubmatch(filepath.ToSlash(filepath.Clean(path))); found != nil {
			if found[1] != "" {
				return slices.Index([]string{"stdin", "stdout", "stderr"}, found[1]), true
			}
			n, err := strconv.Atoi(found[2])
			return n, err == nil
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return 0, false
}

// openDescriptor returns the file of a descriptor that the process was started with.
func openDescriptor(n int) (*os.File, error) {
	if !inheritedDescriptor(n) {
		return nil, syscall.EBADF // closed, or opened by this process, such as the store's
	}
	f := os.NewFile(uintptr(n), fmt.Sprintf("/dev/fd/%d", n))
	if f == nil {
		return nil, fs.ErrInvalid
	}
	_, err := f.Stat()
	return f, err
}

// target is the path of the file that is made or replaced: that to which a symbolic link leads, so that the link stays
// a link. A link that leads nowhere, or in a circle, is refused: what it would make is not what the path names.
func target(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		to, _ := os.Readlink(path)
		err = usagef("write %s: it is a link to %s, which is not there; name another file, or remove the link", path, to)
	} else if err != nil {
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
		err = unwritten(named, err)
		if failure, ok := errors.AsType[*writeError](err); ok {
			failure.lasting = true // nor is there room for another file
		}
		return err
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
	// A device that has taken the place of the file meanwhile is not replaced either: a rename over /dev/null would
	// make it a file for every program.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return usagef("write %s: it is not a regular file any more; name another", named)
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
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ENOTDIR):
		return "", unwritten(named, err) // before anything is made of it
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", usagef("write %s: there is no directory %s; create it first", named, dir)
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
	_, err := os.Lstat(path + "-wal")
	if err == nil {
		if _, err := os.Lstat(path); err == nil {
			_ = formats.SettleStore(path) // of what is not a database the log stays
		}
		_, err = os.Lstat(path + "-wal")
	}
	return err == nil
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

// obstacle is a reason for which nothing can be written, and what the user can do.
type obstacle struct {
	is             error
	reason, remedy string
	// lasting is as in writeError. usage makes it a mistake in the command line.
	lasting, usage bool
}

const (
	makeRoom     = "make room, or write to another file system"
	otherPlace   = "write to another directory"
	ownDirectory = "name a directory that you may write to"
	raiseLimit   = "raise the limit on the size of files (ulimit -f), or write to another file system"
	checkLimits  = "check free space, quota and the limit on the size of files (ulimit -f), or write elsewhere"
)

// obstacles are compared in order: [fs.ErrPermission] and [fs.ErrNotExist] match several system errors, and come last.
var obstacles = []obstacle{
	{is: syscall.ENOSPC, reason: "no space left on device", remedy: makeRoom, lasting: true},
	{is: syscall.EDQUOT, reason: "disk quota exceeded", remedy: makeRoom, lasting: true},
	{is: syscall.EROFS, reason: "read-only file system", remedy: otherPlace, lasting: true},
	{is: syscall.EFBIG, reason: "file too large", remedy: raiseLimit},
	{is: syscall.EIO, reason: "input/output error", remedy: "check the disk, or write to another"},
	{is: syscall.ENAMETOOLONG, reason: "file name too long", remedy: "name a shorter one", usage: true},
	{is: syscall.ENOTDIR, reason: "a parent directory of it is a file", remedy: otherPlace, usage: true},
	{is: syscall.ELOOP, reason: "too many symbolic links", remedy: "name another file, or remove the link",
		usage: true},
	{is: syscall.EISDIR, reason: "it is a directory", remedy: "name a file", usage: true},
	{is: syscall.EBADF, reason: "bad file descriptor", remedy: "name a descriptor that is open for writing",
		usage: true},
	{is: syscall.ETXTBSY, reason: "a program runs from it", remedy: "name another file"},
	{is: fs.ErrPermission, reason: "permission denied", remedy: ownDirectory},
	{is: fs.ErrNotExist, reason: "there is no such file or directory", remedy: "create its directory first",
		usage: true},
}

// sqliteObstacles are for SQLite's codes, which hide the error of the system.
var sqliteObstacles = map[sqlite.ResultCode]obstacle{
	sqlite.ResultFull:     obstacles[0],
	sqlite.ResultIOErr:    {reason: "disk I/O error", remedy: checkLimits},
	sqlite.ResultCantOpen: {reason: "it cannot be created", remedy: ownDirectory},
	sqlite.ResultReadOnly: {reason: "it cannot be changed", remedy: ownDirectory},
	sqlite.ResultPerm:     {reason: "permission denied", remedy: ownDirectory},
}

// readingError is a failure to read what is to be written.
type readingError struct{ error }

func (e readingError) Unwrap() error { return e.error }

// unwritten explains why the file that the user named was not written. Errors that have
// nothing to do with the file system only get the path.
func unwritten(path string, err error) error {
	switch {
	case err == nil, is[*writeError](err), is[usageError](err), is[readingError](err):
		return err
	case errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("write %s: %w", path, err) // nobody wants more
	}
	for _, o := range obstacles {
		if errors.Is(err, o.is) {
			return o.at(path, err)
		}
	}
	if o, ok := sqliteObstacles[sqlite.ErrCode(err).ToPrimary()]; ok {
		return o.at(path, err)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return obstacle{reason: errno.Error(), remedy: "write to another file"}.at(path, err)
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func (o obstacle) at(path string, err error) error {
	if o.usage {
		return usagef("write %s: %s; %s", path, o.reason, o.remedy)
	}
	return &writeError{path: path, reason: o.reason, remedy: o.remedy, err: err, lasting: o.lasting}
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
