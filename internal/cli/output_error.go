package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/document"
)

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

// obstacles are compared in order: [fs.ErrPermission] and [fs.ErrNotExist] match several system
// errors, and come last.
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

// into calls fn with w, which messages call path.
func into(w io.Writer, path string, fn func(io.Writer) error) error {
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
