package spool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"go.opentelemetry.io/otel"
)

// Sync is when what was written is forced to the disk. The death of the process
// takes nothing, whatever it is.
type Sync int

const (
	// SyncInterval syncs at most Options.SyncInterval after something was written:
	// a power failure takes what was written in that time.
	SyncInterval Sync = iota
	// SyncEvery syncs before an export returns: a power failure takes nothing.
	SyncEvery
	// SyncNever leaves it to the operating system, which may take half a minute.
	SyncNever
)

// ErrClosed is returned by exports after Close.
var ErrClosed = errors.New("spool is closed")

// file is what a writer needs of a file. Tests put faulty ones in its place.
type file interface {
	Write([]byte) (int, error)
	Sync() error
	Truncate(int64) error
	Close() error
}

func create(name string) (file, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

const (
	// suffix is one that import takes for telemetry.
	suffix   = ".pb"
	lockName = "lock"
	// prefix is that of the directory of a process.
	prefix = "p-"
	// damagedName is the directory of files that were sent but for what is damaged
	// in them.
	damagedName = "damaged"
)

// writer appends records to the files of this process.
type writer struct {
	root, dir string
	o         Options
	lock      *flock.Flock
	create    func(name string) (file, error)

	mu     sync.Mutex // guards what follows
	closed bool
	f      file // nil when the next record begins a file
	name   string
	number int
	id     fileID
	seq    uint32
	size   int64
	buf    []byte
	// dirty says that something was written since the last sync, and timer, when
	// not nil, that a sync is due.
	dirty   bool
	timer   *time.Timer
	syncErr error
	// sending is the file that is being sent, and is not dropped meanwhile.
	sending string
	dropped tally
	// say is what the user is to be told once mu is free.
	say error
}

// tally counts spans and log records.
type tally struct{ spans, records int64 }

func (t *tally) add(k kind, n int64) {
	if k == kindLogs {
		t.records += n
	} else {
		t.spans += n
	}
}

// openWriter makes a directory for this process in root and locks it.
func openWriter(root string, o Options) (*writer, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("create spool %s: %w", root, err)
	}
	w := &writer{root: root, o: o, create: create}
	// Somebody who drains may take a directory that is not locked yet for one of a
	// dead process, and remove it.
	for try := 0; ; try++ {
		var random [4]byte
		_, _ = rand.Read(random[:]) // it never fails
		w.dir = filepath.Join(root, fmt.Sprintf("%s%s-%d-%x", prefix, time.Now().UTC().Format("20060102T150405.000"), os.Getpid(), random))
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			return nil, fmt.Errorf("create spool %s: %w", root, err)
		}
		l, held, err := lockDir(w.dir)
		if err == nil && held {
			w.lock = l
			break
		}
		if try == 10 {
			return nil, fmt.Errorf("lock spool %s: %w", w.dir, errors.Join(err, errors.New("others keep removing it")))
		}
	}
	if o.Sync != SyncNever {
		if err := errors.Join(syncDir(root), syncDir(w.dir)); err != nil {
			_ = w.lock.Unlock()
			return nil, fmt.Errorf("create spool %s: %w", root, err)
		}
	}
	return w, nil
}

func newID() (id fileID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// lockDir takes the lock of a directory unless a living process has it. What is
// locked is sure to be the file that stands there.
func lockDir(dir string) (l *flock.Flock, held bool, err error) {
	l = flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	if held, err = l.TryLock(); err != nil || !held {
		return nil, false, err
	}
	mine, err := l.Stat()
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Stat(l.Path()); err == nil && os.SameFile(mine, there) {
			return l, true, nil
		}
	}
	_ = l.Unlock()
	return nil, false, err
}

// syncDir makes names in a directory survive a power failure.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // which has no such thing
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// append writes a record. When it returns nil, the record is there whatever
// happens to the process; when it returns an error, it is not.
func (w *writer) append(k kind, items int, body []byte) error {
	w.mu.Lock()
	err := w.appendHeld(k, items, body)
	say := w.say
	w.say = nil
	w.mu.Unlock()
	if say != nil {
		otel.Handle(say) // which may be anyone's code
	}
	return err
}

// appendHeld is append for a caller that holds mu.
func (w *writer) appendHeld(k kind, items int, body []byte) error {
	if w.closed {
		return ErrClosed
	}
	f := frame{kind: k, items: uint32(items), body: body}
	if f.size() > MaxRecord {
		return fmt.Errorf("spool %d bytes: a record may have %d", len(body), MaxRecord)
	}
	if w.f != nil && w.size+int64(f.size()) > w.o.MaxFileBytes && w.seq > 1 {
		w.seal()
	}
	if w.f == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if err := w.write(f); err != nil {
		return fmt.Errorf("spool to %s: %w", w.name, err)
	}
	return nil
}

// begin begins a file. The caller holds mu.
func (w *writer) begin() error {
	w.bound()
	w.number++
	name := filepath.Join(w.dir, fmt.Sprintf("%08d%s", w.number, suffix))
	f, err := w.create(name)
	if err != nil {
		return fmt.Errorf("create spool file: %w", err)
	}
	w.f, w.name, w.seq, w.size, w.id = f, name, 0, 0, newID()
	if err = w.write(frame{kind: kindHeader, body: headerBody}); err == nil && w.o.Sync == SyncEvery {
		err = syncDir(w.dir)
	}
	if err != nil {
		w.abandon()
		_ = os.Remove(name) // nothing is in it
		return fmt.Errorf("begin spool file %s: %w", name, err)
	}
	return nil
}

// write appends a record to the file. Of one that cannot be written, or synced
// where it must be, nothing stays: if it cannot be taken back, the file ends with
// it, and a reader passes over it.
func (w *writer) write(f frame) error {
	f.id, f.seq = w.id, w.seq
	w.buf = appendFrame(w.buf[:0], f)
	_, err := w.f.Write(w.buf)
	if err == nil && w.o.Sync == SyncEvery && f.kind != kindHeader {
		if err = w.f.Sync(); err != nil {
			// What a file holds after a sync that failed, nobody knows.
			_ = w.f.Truncate(w.size)
			w.abandon()
			return err
		}
	}
	if err != nil {
		if w.f.Truncate(w.size) != nil {
			w.abandon()
		}
		return err
	}
	w.seq++
	w.size += int64(len(w.buf))
	if cap(w.buf) > 4<<20 {
		w.buf = nil
	}
	if w.o.Sync == SyncInterval {
		w.dirty = true
		if w.timer == nil {
			w.timer = time.AfterFunc(w.o.SyncInterval, w.syncDue)
		}
	}
	return nil
}

// abandon lets the next record begin a file.
func (w *writer) abandon() {
	if w.f != nil {
		_ = w.f.Close()
		w.f = nil
	}
}

// seal ends the file, so that the next record begins another. The caller holds mu.
func (w *writer) seal() {
	if w.f == nil {
		return
	}
	w.noteSync(w.syncFile())
	w.abandon()
}

// noteSync keeps the last error of a sync for whoever asks.
func (w *writer) noteSync(err error) {
	if err != nil {
		w.syncErr = err
	}
}

// syncFile syncs what was written. The caller holds mu.
func (w *writer) syncFile() error {
	if w.f == nil || !w.dirty {
		return nil
	}
	w.dirty = false
	if err := w.f.Sync(); err != nil {
		w.abandon() // as in write; what is in it is likely to be there
		return fmt.Errorf("sync spool file %s: %w", w.name, err)
	}
	if err := syncDir(w.dir); err != nil {
		return fmt.Errorf("sync spool %s: %w", w.dir, err)
	}
	return nil
}

// syncDue is what the timer calls.
func (w *writer) syncDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.timer = nil
	w.noteSync(w.syncFile())
}

// sync syncs now, and returns what went wrong in syncing since it was last called.
func (w *writer) sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteSync(w.syncFile())
	err := w.syncErr
	w.syncErr = nil
	return err
}

// close ends the writing. The directory goes when nothing is in it.
func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.seal()
	err := w.syncErr
	if files, listErr := filesOf(w.dir); listErr == nil && len(files) == 0 {
		removeDir(w.dir, w.lock)
		return err
	}
	return errors.Join(err, w.lock.Unlock())
}

// sealed ends the file that is being written, and lists all that this process
// has written, oldest first.
func (w *writer) sealed() ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seal()
	return filesOf(w.dir)
}

// begins says that a file of this process is being sent, or "" that none is.
func (w *writer) begins(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending = name
}

// filesOf lists the files of a process's directory, oldest first. One that is not
// there has none.
func filesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	var all []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), suffix) {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(all)
	return all, nil
}

// dirsOf lists the directories of processes in a spool, oldest first.
func dirsOf(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			all = append(all, filepath.Join(root, e.Name()))
		}
	}
	slices.Sort(all)
	return all, nil
}

// Files lists the files of the spool at root, of living processes too, oldest
// first: to be read with [Read] while nobody drains it. A directory that is no
// spool has none.
func Files(root string) ([]string, error) {
	dirs, err := dirsOf(root)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, dir := range append(dirs, filepath.Join(root, damagedName)) {
		files, err := filesOf(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	return all, nil
}

// removeDir removes the directory of a process, of which the caller has the lock,
// which goes with it.
func removeDir(dir string, l *flock.Flock) {
	// Where an open file can be removed it must go before its lock does: whoever
	// comes next then makes another. A directory that stays behind is empty.
	_ = os.Remove(l.Path())
	_ = l.Unlock()
	if runtime.GOOS == "windows" {
		_ = os.Remove(l.Path())
	}
	_ = os.Remove(dir)
}
