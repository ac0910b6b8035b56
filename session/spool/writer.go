package spool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// Sync is when files are synced to the disk. The death of the process loses nothing with any of them.
type Sync int

const (
	// SyncInterval syncs within Options.SyncInterval after a write: a power failure loses what was written since then.
	SyncInterval Sync = iota
	// SyncEvery syncs before an export returns: a power failure loses nothing.
	SyncEvery
	// SyncNever leaves it to the operating system, which may take half a minute.
	SyncNever
)

// ErrClosed is returned by exports after Close.
var ErrClosed = errors.New("spool is closed")

// file is what a writer needs of a file. Tests replace it by one that fails.
type file interface {
	io.WriteCloser
	Sync() error
	Truncate(int64) error
}

func create(name string) (file, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

const (
	// MaxRecord is the maximum size of a request in a file, in bytes.
	MaxRecord = 64 << 20

	prefix      = "p-"   // of directories of processes
	suffix      = ".pb"  // of files, which import reads as OTLP
	restName    = "rest" // of what is left of a file, before it replaces the file
	lockName    = "lock"
	damagedName = "damaged"
)

// writer appends requests to the files of this process.
type writer struct {
	root, dir string
	o         Options
	lock      *flock.Flock
	create    func(name string) (file, error)
	closed    atomic.Bool // is set with mu

	mu      sync.Mutex // guards the fields below
	f       file       // nil if the next request begins a file
	name    string
	number  int
	size    int64
	count   Count
	buf     []byte
	timer   *time.Timer      // set if a sync is due
	syncErr error            // the last one of a sync, if sync has not returned it
	counts  map[string]Count // of finished files that this process did not begin to send
	sending string           // the file that is being sent, which must not be dropped
	dropped func(Count)      // is called with the content of files that were dropped
	full    error            // reports that they were; the error handler gets it without mu
}

func openWriter(root string, o Options) (*writer, error) {
	w := &writer{root: root, o: o, create: create, counts: make(map[string]Count)}
	err := os.MkdirAll(root, 0o700)
	if err == nil {
		w.dir, w.lock, err = makeDir(root)
	}
	if err == nil && o.Sync != SyncNever {
		if err = errors.Join(syncDir(root), syncDir(w.dir)); err != nil {
			err = errors.Join(err, release(w.dir, w.lock))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create spool %s: %w", root, err)
	}
	return w, nil
}

// append writes a request of n items. If it returns nil, the request survives the process; if it returns an error, the
// request is not in a file.
func (w *writer) append(n Count, body []byte) error {
	w.mu.Lock()
	err := w.appendLocked(n, body)
	full := w.full
	w.full = nil
	w.mu.Unlock()
	if full != nil {
		otel.Handle(full)
	}
	return err
}

func (w *writer) appendLocked(n Count, body []byte) (err error) {
	if w.closed.Load() {
		return ErrClosed
	} else if len(body) > MaxRecord {
		return fmt.Errorf("spool %d bytes: a record may have %d", len(body), MaxRecord)
	}
	w.buf = otlpfile.AppendFrame(w.buf[:0], body)
	if w.f != nil && w.size+int64(len(w.buf)) > w.o.MaxFileBytes {
		w.seal()
	}
	if w.f == nil {
		w.bound()
		w.number++
		w.name, w.size = filepath.Join(w.dir, fmt.Sprintf("%08d%s", w.number, suffix)), 0
		f, err := w.create(w.name)
		if err != nil {
			return fmt.Errorf("create spool file: %w", err)
		}
		w.f, w.count = f, Count{}
	}
	if _, err = w.f.Write(w.buf); err == nil && w.o.Sync == SyncEvery {
		if err = w.f.Sync(); err == nil && w.size == 0 {
			err = syncDir(w.dir)
		}
	}
	if err != nil {
		// Readers skip what cannot be removed. After a sync that failed the content of the file is unknown.
		_ = w.f.Truncate(w.size)
		w.seal()
		if w.size == 0 {
			_ = os.Remove(w.name)
		}
		return fmt.Errorf("spool to %s: %w", w.name, err)
	}
	w.size += int64(len(w.buf))
	w.count = w.count.plus(n)
	if cap(w.buf) > 4<<20 {
		w.buf = nil
	}
	if w.o.Sync == SyncInterval && w.timer == nil {
		w.timer = time.AfterFunc(w.o.SyncInterval, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.syncFile()
		})
	}
	return nil
}

// seal syncs the file and closes it, so the next request begins another.
func (w *writer) seal() {
	w.syncFile()
	w.abandon()
}

func (w *writer) abandon() {
	if w.f == nil {
		return
	}
	_ = w.f.Close()
	if w.f = nil; w.size > 0 {
		w.counts[w.name] = w.count
	}
}

// syncFile syncs the file if that is due.
func (w *writer) syncFile() {
	if w.timer == nil {
		return
	}
	w.timer.Stop()
	if w.timer = nil; w.f == nil {
		return
	}
	if err := w.f.Sync(); err != nil {
		w.syncErr = fmt.Errorf("sync spool file %s: %w", w.name, err)
		w.abandon()
	} else if err := syncDir(w.dir); err != nil {
		w.syncErr = fmt.Errorf("sync spool %s: %w", w.dir, err)
	}
}

// sync syncs the file, and returns what went wrong in syncing since the last call.
func (w *writer) sync() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.syncFile()
	err, w.syncErr = w.syncErr, nil
	return err
}

func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Swap(true) {
		return nil
	}
	w.seal()
	return errors.Join(w.syncErr, release(w.dir, w.lock))
}

// sealed closes the file that is being written, and lists those of this process, oldest first.
func (w *writer) sealed() ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seal()
	return filesOf(w.dir)
}

// hold protects the file that is being sent from being dropped. "" means none.
func (w *writer) hold(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending = path
	delete(w.counts, path)
}

// bound drops the oldest files of dead processes and of this one until there is room for another.
func (w *writer) bound() {
	type candidate struct {
		path string
		fs.FileInfo
	}
	var total int64
	var all []candidate
	paths, _ := Files(w.root) // files that cannot be listed cannot be dropped either
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
			all = append(all, candidate{path, info})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return a.ModTime().Compare(b.ModTime()) })
	room := w.o.MaxTotalBytes - w.o.MaxFileBytes
	files, dropped := 0, Count{}
	for _, c := range all {
		if total <= room {
			break
		}
		if n, ok := w.drop(c.path); ok {
			total -= c.Size()
			files++
			dropped = dropped.plus(n)
		}
	}
	if files > 0 {
		w.dropped(dropped)
		w.full = fmt.Errorf("spool %s is full at %d bytes: dropped the oldest %d files with %v",
			w.root, w.o.MaxTotalBytes, files, dropped)
	}
}

// drop removes a file unless it is in use, and counts its content, except that of a damaged file, which was sent.
func (w *writer) drop(path string) (n Count, ok bool) {
	dir := filepath.Dir(path)
	if path == w.sending {
		return n, false
	}
	if dir != w.dir && filepath.Base(dir) != damagedName {
		l, held, err := lockDir(dir)
		if err != nil || !held {
			return n, false
		}
		defer func() { _ = release(dir, l) }()
	}
	n, known := w.counts[path]
	if delete(w.counts, path); !known && filepath.Base(dir) != damagedName {
		n = contents(path)
	}
	return n, os.Remove(path) == nil
}

func contents(path string) Count {
	d := drainer{budget: -1} // without a sink everything is kept, and counted
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		_, _ = d.sendFile(context.Background(), f)
	}
	return d.report.Kept
}

// makeDir makes a directory for this process in root and locks it.
func makeDir(root string) (dir string, l *flock.Flock, err error) {
	for {
		var random [4]byte
		_, _ = rand.Read(random[:]) // never fails
		started := time.Now().UTC().Format("20060102T150405.000")
		dir = filepath.Join(root, fmt.Sprintf("%s%s-%d-%x", prefix, started, os.Getpid(), random))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", nil, err
		}
		// Until it is locked, another process may take the directory for that of a dead one, and lock or remove it.
		l, held, err := lockDir(dir)
		if held || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return dir, l, err
		}
	}
}

// lockDir locks the directory of a process unless a living process holds its lock. The lock that it returns is on the
// file that is in the directory now.
func lockDir(dir string) (l *flock.Flock, held bool, err error) {
	l = flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	if held, err = l.TryLock(); err != nil || !held {
		return nil, false, err
	}
	locked, err := l.Stat()
	there, thereErr := os.Stat(l.Path())
	if err = errors.Join(err, thereErr); err == nil && os.SameFile(locked, there) {
		return l, true, nil
	}
	return nil, false, errors.Join(err, l.Unlock())
}

// release unlocks the directory of a process, and removes it if it has no files.
func release(dir string, l *flock.Flock) error {
	files, err := filesOf(dir)
	if err != nil || len(files) > 0 {
		return errors.Join(err, l.Unlock())
	}
	_ = os.Remove(filepath.Join(dir, restName)) // of a process that was killed
	// Where an open file can be removed it must be removed before it is unlocked, so that the next process makes
	// another. A directory that remains is empty.
	_ = os.Remove(l.Path())
	err = l.Unlock()
	if runtime.GOOS == "windows" {
		_ = os.Remove(l.Path())
	}
	_ = os.Remove(dir)
	return err
}

// syncDir makes names in a directory survive a power failure.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it cannot sync directories
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Files lists the files of the spool at root, those of living processes too, oldest first.
func Files(root string) (all []string, err error) {
	dirs, err := dirsOf(root)
	for _, dir := range append(dirs, filepath.Join(root, damagedName)) {
		files, listErr := filesOf(dir)
		all, err = append(all, files...), errors.Join(err, listErr)
	}
	return all, err
}

// Contains reports whether path is, by its name, a file of a process's directory in a spool. The last request in such
// a file may be incomplete, if the process was killed while it wrote it: no export succeeded for it.
func Contains(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && strings.HasPrefix(filepath.Base(filepath.Dir(path)), prefix) && strings.HasSuffix(path, suffix)
}

// dirsOf lists the directories of processes in a spool, oldest first.
func dirsOf(root string) ([]string, error) {
	return list(root, func(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), prefix) })
}

// filesOf lists the files in the directory of a process, oldest first.
func filesOf(dir string) ([]string, error) {
	return list(dir, func(e fs.DirEntry) bool { return e.Type().IsRegular() && strings.HasSuffix(e.Name(), suffix) })
}

// list returns the paths of entries of a directory in the order of their names. If it does not exist, there are none.
func list(dir string, is func(fs.DirEntry) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	var all []string
	for _, e := range entries {
		if is(e) {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all, nil
}
