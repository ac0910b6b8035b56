package jsonl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// tempPrefix begins the names of files in the making. No session's file begins with a dot.
const tempPrefix = ".agenttrace-"

// Directory keeps one file per session equal to a store. The store's outbox has the sessions that changed until their
// files are written, so neither a crash nor a failed write loses one.
type Directory struct {
	path   string
	quiet  time.Duration
	outbox store.Store
	read   func(ctx context.Context, id string) (*codec.Session, error)
	report func(Result)

	// failing has the last error of each session, and of all of them under no id.
	failing map[string]string
}

// Result is what came of writing the file of a session, or of all sessions if ID is empty.
type Result struct {
	ID, File string
	Err      error
	// Written is false for a file that was removed with its session.
	Written bool
	// News is set if Err is not the error of the time before, so that a lasting failure is logged once.
	News bool
}

// NewDirectory returns what writes the files of sessions to the directory at path, which it creates, when they have
// been unchanged for the quiet period. read reads a session whole. report is called after each file.
func NewDirectory(path string, quiet time.Duration, outbox store.Store,
	read func(ctx context.Context, id string) (*codec.Session, error), report func(Result)) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create jsonl directory %s: %w; make its parent writable or name another", path, err)
	}
	// What a crash left half written is of no use: its session is still due.
	unfinished, err := fs.Glob(os.DirFS(path), tempPrefix+"*")
	for _, name := range unfinished {
		if failed := os.Remove(filepath.Join(path, name)); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("remove unfinished files in %s: %w", path, err)
	}
	return &Directory{path: path, quiet: quiet, outbox: outbox, read: read, report: report,
		failing: make(map[string]string)}, nil
}

// Run writes the files of sessions that are due, until ctx ends. It looks at the outbox once per quiet period, because
// commands, the retention and other collectors change sessions too, and when the next session has been quiet for
// long enough.
func (d *Directory) Run(ctx context.Context) {
	for wait := time.Duration(0); ; { // what the last process left is looked at first
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			wait = max(d.write(ctx, d.quiet), d.quiet/10) // so that many sessions share a look
		}
	}
}

// Flush writes every file that is due after Run has returned, quiet or not, for as long as ctx allows.
func (d *Directory) Flush(ctx context.Context) {
	if d != nil {
		d.write(ctx, 0)
	}
}

// write writes the files of all sessions that have been quiet for the period.
// It returns how long to wait until the next look.
func (d *Directory) write(ctx context.Context, quiet time.Duration) (next time.Duration) {
	ready := make(map[string]int64)
	next = max(d.quiet, time.Second)
	now := time.Now()
	due, err := d.outbox.Outbox(ctx)
	for id, touched := range due {
		if wait := time.UnixMilli(touched).Add(quiet).Sub(now); quiet > 0 && wait > 0 {
			// A clock that was set back must not put a file off for long.
			next = min(next, wait, quiet)
			continue
		}
		ready[id] = touched
	}
	maps.DeleteFunc(d.failing, func(id, _ string) bool { return id != "" && due[id] == 0 })
	if err != nil || len(due) == 0 {
		d.tried(Result{File: d.path, Err: err})
	}
	failed := err != nil
	for id, touched := range ready {
		r := Result{ID: id, File: filepath.Join(d.path, codec.FileName(id)+".jsonl")}
		if ctx.Err() == nil {
			r.Written, r.Err = d.export(ctx, id, r.File, touched)
		}
		if ctx.Err() != nil {
			return next // the session is not to blame
		}
		failed = failed || r.Err != nil
		if common, ok := errors.AsType[*commonError](r.Err); ok {
			d.tried(Result{File: d.path, Err: common})
			break // the other sessions would fail as this one did
		}
		d.tried(Result{File: d.path})
		d.tried(r)
	}
	if failed {
		return max(next, time.Second) // the sessions stay due: the next look finds them
	}
	return next
}

// commonError is a failure of what every session needs: the store, or the directory.
type commonError struct{ error }

func (e *commonError) Unwrap() error { return e.error }

// tried reports a result.
func (d *Directory) tried(r Result) {
	before, failed := d.failing[r.ID]
	if r.Err == nil {
		r.News = failed
		delete(d.failing, r.ID)
	} else {
		r.News = r.Err.Error() != before
		d.failing[r.ID] = r.Err.Error()
	}
	d.report(r)
}

// Remedy is what can be done about a failure.
const Remedy = "see that the store is available, that agenttrace store check finds nothing wrong with the session, and " +
	"that the collector can write to jsonl::directory, where there is room"

// export replaces the file of one session and notes that in the store.
func (d *Directory) export(ctx context.Context, id, name string, touched int64) (written bool, err error) {
	s, err := d.read(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		// Deleted since, or reported under another id now that its own is known.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, reasonOf(err)
		}
	case errors.Is(err, store.ErrUnavailable):
		return false, &commonError{err}
	case err != nil:
		return false, fmt.Errorf("the session cannot be read: %w", err)
	default:
		if err := replaceFile(name, s); err != nil {
			return false, err
		}
		written = true
	}
	if err := d.outbox.Exported(ctx, id, touched); err != nil {
		return written, &commonError{err}
	}
	return written, nil
}

// reasonOf is an error of the file system without the name of the file: that of a temporary file differs each time.
func reasonOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// replaceFile writes a session to a file (0600) so that its name always leads to a whole one. The error is
// a [commonError] where no file at all can be made.
func replaceFile(name string, s *codec.Session) (err error) {
	dir := filepath.Dir(name)
	temp, err := os.CreateTemp(dir, tempPrefix+"*")
	if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(dir, 0o700) == nil { // somebody removed it
		temp, err = os.CreateTemp(dir, tempPrefix+"*")
	}
	if err != nil {
		return &commonError{reasonOf(err)}
	}
	if err = NewEncoder(temp).Encode(s); err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return reasonOf(err)
	}
	return nil
}
