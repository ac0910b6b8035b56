package sessionexporter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	fileSuffix = ".jsonl"
	// tempPrefix begins the names of files in the making. No session's file
	// begins with a dot.
	tempPrefix = ".agenttrace-"
)

// files keeps one JSONL file per session equal to the store. The store remembers
// which sessions changed until their files are written, so neither a crash nor a
// failed write loses one.
//
// One goroutine owns the files. It sleeps until rows are written and then until
// the next session has been quiet for long enough.
type files struct {
	directory string
	quiet     time.Duration
	store     sessionStore
	logger    *zap.Logger
	telemetry *metrics

	kick   chan struct{} // holds one token when rows were written since the last look
	cancel context.CancelFunc
	done   sync.WaitGroup

	// failing has the last error that was logged for each session, and for all of them
	// under no id, so that a lasting failure is logged once. It belongs to the goroutine.
	failing map[string]string
}

func newFiles(c JSONLConfig, s sessionStore, logger *zap.Logger, t *metrics) (*files, error) {
	if err := os.MkdirAll(c.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("create jsonl directory %s: %w; make its parent writable or name another",
			c.Directory, err)
	}
	// What a crash left half written is of no use: its session is still due.
	left, err := filepath.Glob(filepath.Join(globQuote(c.Directory), tempPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("look for unfinished files in %s: %w", c.Directory, err)
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove unfinished file: %w", err)
		}
	}
	return &files{
		directory: c.Directory, quiet: c.QuietPeriod, store: s, logger: logger, telemetry: t,
		kick: make(chan struct{}, 1), failing: make(map[string]string),
	}, nil
}

// globQuote escapes what filepath.Glob would expand.
func globQuote(path string) string {
	if os.PathSeparator == '\\' {
		return path // Windows knows no escape, and its names hold no '*' or '?'
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (f *files) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.done.Go(func() { f.follow(ctx) })
}

// wake reports that rows were written. It never blocks.
func (f *files) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// stop ends the goroutine and writes every file that is due, quiet or not, for
// as long as ctx allows.
func (f *files) stop(ctx context.Context) {
	f.cancel()
	f.done.Wait()
	f.write(ctx, 0)
}

func (f *files) follow(ctx context.Context) {
	timer := time.NewTimer(0) // what the last process left is looked at first
	defer timer.Stop()
	armed := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.kick:
			// What has just changed is not due before the period is over, and
			// an armed timer goes off no later than that.
			if !armed {
				timer.Reset(f.quiet)
				armed = true
			}
		case <-timer.C:
			next := f.write(ctx, f.quiet)
			if armed = next >= 0; armed {
				timer.Reset(max(next, f.quiet/10)) // so that many sessions share a look
			}
		}
	}
}

// write writes the files of all sessions that have been quiet for the period.
// It returns how long to wait for the next, negative when none is due.
func (f *files) write(ctx context.Context, quiet time.Duration) (next time.Duration) {
	type session struct {
		id      string
		touched int64
	}
	var ready []session
	due := make(map[string]bool)
	next = -1
	now := time.Now()
	err := f.store.Outbox(ctx, func(id string, touched int64) {
		due[id] = true
		if wait := time.UnixMilli(touched).Add(quiet).Sub(now); quiet > 0 && wait > 0 {
			// A clock that was set back must not put a file off for long.
			if wait = min(wait, quiet); next < 0 || wait < next {
				next = wait
			}
			return
		}
		ready = append(ready, session{id, touched})
	})
	maps.DeleteFunc(f.failing, func(id, _ string) bool { return id != "" && !due[id] })
	if err != nil || len(due) == 0 {
		f.tried("", f.directory, err)
	}
	failed := err != nil
	for _, d := range ready {
		if ctx.Err() != nil {
			return next
		}
		name := filepath.Join(f.directory, codec.FileName(d.id)+fileSuffix)
		err := f.export(ctx, d.id, name, d.touched)
		if ctx.Err() != nil {
			return next // the session is not to blame
		}
		if err != nil {
			f.telemetry.jsonlFailures.Add(ctx, 1)
			failed = true
		}
		if common, ok := errors.AsType[*commonError](err); ok {
			f.tried("", f.directory, common)
			break // the other sessions would fail as this one did
		}
		f.tried("", f.directory, nil)
		f.tried(d.id, name, err)
	}
	if retry := max(f.quiet, time.Second); failed && (next < 0 || next > retry) {
		return retry // the sessions stay due: the next look finds them
	}
	return next
}

// commonError is a failure of what every session needs: the store, or the directory.
type commonError struct{ error }

func (e *commonError) Unwrap() error { return e.error }

// tried logs the outcome for a session, or for all of them where id is "": each failure once,
// and once when it is over.
func (f *files) tried(id, name string, err error) {
	before, failed := f.failing[id]
	now := ""
	if err != nil {
		now = err.Error()
	}
	// The collector samples what it logs by the message: each session has its own.
	subject := "session files"
	if id != "" {
		subject = fmt.Sprintf("the file of session %q", shortened(id))
	}
	switch {
	case err == nil && failed:
		delete(f.failing, id)
		f.logger.Info("Writing "+subject+" succeeded again.", zap.String("file", name))
	case err != nil && now != before:
		f.failing[id] = now
		f.logger.Warn("Writing "+subject+" failed, will be tried again.",
			zap.String("file", name), zap.Error(err), zap.String("remedy", remedy(err)))
	}
}

// shortened is an id as a log shows it, which may be longer than a line.
func shortened(id string) string {
	const longest = 80
	if len(id) > longest {
		return id[:longest] + "…"
	}
	return id
}

// remedy is what can be done about a failure.
func remedy(err error) string {
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return "make the store available: see its own error"
	case errors.Is(err, errUnreadable):
		return "run agenttrace check on the session"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room on the file system of jsonl::directory"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return "let the collector write to jsonl::directory and the files in it"
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrExist):
		return "move away what has the name of the file"
	default:
		return "see that the collector can write to jsonl::directory"
	}
}

// errUnreadable is for a session that cannot be read whole.
var errUnreadable = errors.New("the session cannot be read")

// export replaces the file of one session and notes that in the store.
func (f *files) export(ctx context.Context, id, name string, touched int64) error {
	var damaged error
	s, err := sqlitefile.Read(ctx, f.store, id, func(p codec.Problem) {
		damaged = errors.Join(damaged, errors.New(p.String()))
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		// Deleted since, or reported under another id now that its own is known.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return reasonOf(err)
		}
		return f.exported(ctx, id, touched)
	case errors.Is(err, store.ErrUnavailable):
		return &commonError{err}
	}
	if err = errors.Join(err, damaged); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err := replaceFile(name, func(w *bufio.Writer) error { return jsonl.NewEncoder(w).Encode(s) }); err != nil {
		return err
	}
	f.telemetry.jsonlFiles.Add(ctx, 1)
	return f.exported(ctx, id, touched)
}

// exported notes in the store that the file of a session has all that it had when it was touched.
func (f *files) exported(ctx context.Context, id string, touched int64) error {
	if err := f.store.Exported(ctx, id, touched); err != nil {
		return &commonError{err}
	}
	return nil
}

// reasonOf is an error of the file system without the name of the file: that of a temporary
// file differs each time.
func reasonOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// replaceFile writes a file (0600) so that its name always leads to a whole one. The error is
// a [commonError] where no file at all can be made.
func replaceFile(name string, write func(*bufio.Writer) error) (err error) {
	dir := filepath.Dir(name)
	temp, err := os.CreateTemp(dir, tempPrefix+"*")
	if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(dir, 0o700) == nil { // somebody removed it
		temp, err = os.CreateTemp(dir, tempPrefix+"*")
	}
	if err != nil {
		return &commonError{reasonOf(err)}
	}
	defer func() {
		if err != nil {
			_ = temp.Close() // may be closed already
			_ = os.Remove(temp.Name())
			err = reasonOf(err)
		}
	}()
	w := bufio.NewWriter(temp)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), name)
}
