package spool

import (
	"cmp"
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

// ErrClosed is returned by exports after Close.
var ErrClosed = errors.New("spool is closed")

// file is what a writer needs of a file. Tests replace it by one that fails.
type file interface {
	io.WriteCloser
	Sync() error
}

func openFile(name string, flag int) (file, error) { return os.OpenFile(name, flag, 0o600) }

const (
	// MaxRecord is the maximum size of a request in a file, in bytes.
	MaxRecord = 64 << 20

	prefix      = "p-"  // of directories of processes
	suffix      = ".pb" // of files, which import reads as OTLP
	newName     = "new" // of a file that is being written
	lockName    = "lock"
	damagedName = "damaged"
)

// writer writes requests to the directory of this process, a file each.
type writer struct {
	root, dir string
	o         Options
	lock      *flock.Flock
	open      func(name string, flag int) (file, error)
	dropped   func(Count)
	closed    atomic.Bool // is set with mu

	mu        sync.Mutex // guards the fields below
	number    int
	unchecked int64  // bytes that were written since the size of the spool was
	sending   string // the file that is being sent, which must not be dropped
}

func openWriter(root string, o Options) (*writer, error) {
	w := &writer{root: root, o: o, open: openFile, unchecked: o.MaxTotalBytes}
	err := os.MkdirAll(root, 0o700)
	if err == nil {
		w.dir, w.lock, err = makeDir(root)
	}
	if err == nil {
		if err = errors.Join(syncDir(root), syncDir(w.dir)); err != nil {
			err = errors.Join(err, release(w.dir, w.lock))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create spool %s: %w", root, err)
	}
	return w, nil
}

// append writes a request. If it returns nil, the request is on the disk; if it returns an error, it is not in a file.
func (w *writer) append(body []byte) error {
	if len(body) > MaxRecord {
		return fmt.Errorf("spool %d bytes: a record may have %d", len(body), MaxRecord)
	}
	body = otlpfile.Frame(body)
	w.mu.Lock()
	full := w.bound(int64(len(body)))
	err := w.write(body)
	w.mu.Unlock()
	if full != nil {
		otel.Handle(full) // without mu, because the handler may export
	}
	return err
}

// write makes a file, which has its name when it is whole. The caller holds mu.
func (w *writer) write(body []byte) error {
	if w.closed.Load() {
		return ErrClosed
	}
	f, err := w.open(filepath.Join(w.dir, newName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return fmt.Errorf("create spool file: %w", err)
	}
	w.number++
	name := filepath.Join(w.dir, fmt.Sprintf("%08d%s", w.number, suffix))
	if _, err = f.Write(body); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(filepath.Join(w.dir, newName), name)
	}
	if err == nil {
		err = syncDir(w.dir)
	}
	if err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("spool to %s: %w", name, err)
	}
	w.unchecked += int64(len(body))
	return nil
}

func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Swap(true) {
		return nil
	}
	return release(w.dir, w.lock)
}

// hold protects the file that is being sent from being dropped. "" means none.
func (w *writer) hold(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending = path
}

// bound makes room for so many bytes: it drops the oldest files of dead processes and of this one. The spool is looked
// at each time that a sixteenth of it was written. It returns what the error handler is to get. The caller holds mu.
func (w *writer) bound(size int64) error {
	step := w.o.MaxTotalBytes / 16
	if w.unchecked+size < step {
		return nil
	}
	type candidate struct {
		path string
		fs.FileInfo
	}
	total := max(size, step)
	var all []candidate
	paths, _ := Files(w.root) // files that cannot be listed cannot be dropped either
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
			all = append(all, candidate{path, info})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.path, b.path))
	})
	files, dropped := 0, Count{}
	for _, c := range all {
		if total <= w.o.MaxTotalBytes {
			break
		}
		if n, ok := w.drop(c.path); ok {
			total -= c.Size()
			files++
			dropped = dropped.plus(n)
		}
	}
	if w.unchecked = 0; files == 0 {
		return nil
	}
	w.dropped(dropped)
	return fmt.Errorf("spool %s is full at %d bytes: dropped the oldest %d files with %v",
		w.root, w.o.MaxTotalBytes, files, dropped)
}

// drop removes a file unless it is in use, and counts its content, except that of a damaged file, which was sent.
func (w *writer) drop(path string) (n Count, ok bool) {
	dir := filepath.Dir(path)
	if path == w.sending {
		return n, false
	}
	if filepath.Base(dir) == damagedName {
		return n, os.Remove(path) == nil
	}
	if dir != w.dir {
		l, held, err := lockDir(dir)
		if err != nil || !held {
			return n, false
		}
		defer func() { _ = release(dir, l) }()
	}
	d := drainer{budget: -1} // without a sink everything is kept, and counted
	if f, err := os.Open(path); err == nil {
		_, _, _ = d.sendFile(context.Background(), f)
		_ = f.Close()
	}
	return d.report.Kept, os.Remove(path) == nil
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
	_ = os.Remove(filepath.Join(dir, newName)) // of a process that was killed
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
