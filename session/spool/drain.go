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
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// Sink accepts what is drained: a client of a collector, or a store behind ingest.Ingester. If a function returns nil,
// its argument is stored or sent, and is deleted here. It must be harmless to send something more than once, as in a
// session store. What is meant for a nil function stays in the spool.
type Sink struct {
	Traces func(context.Context, ptrace.Traces) error
	Logs   func(context.Context, plog.Logs) error
}

// Report is the result of [Drain].
type Report struct {
	Count       // accepted by the sink
	Kept  Count // not accepted, as far as the files were read
	Files int   // sent completely and deleted
	// Damages wrap the name of a file and what is wrong with it. The files are kept in the directory "damaged".
	Damages []error
}

// patience is how many requests in a row may fail, each of which may be refused, before the sink counts as unavailable.
const patience = 3

// Drain sends what is in the spool at root to a sink, oldest first, and deletes what the sink accepts. One process at a
// time does so; Drain waits for another one until ctx ends.
//
// It returns an error if something stays that the sink did not accept, also when ctx was canceled; the next call
// continues there. If it is killed, the next one sends a request again. Damaged requests are reported and skipped. A
// root that does not exist is an empty spool.
func Drain(ctx context.Context, root string, to Sink) (Report, error) {
	d := drainer{sink: to, root: root, budget: -1, waits: true}
	err := d.run(ctx)
	return d.report, err
}

// drainer sends files to a sink.
type drainer struct {
	sink     Sink
	root     string
	waits    bool  // for another process that sends files
	budget   int   // how many bytes may still be sent; a negative one is not limited
	failures int   // requests in a row that the sink did not accept
	err      error // the last reason
	stopped  bool
	report   Report
}

func (d *drainer) run(ctx context.Context) error {
	files, err := filesOf(d.root)
	if err != nil || len(files) == 0 {
		return err
	}
	lock, held := flock.New(filepath.Join(d.root, lockName), flock.SetPermissions(0o600)), false
	if d.waits {
		held, err = lock.TryLockContext(ctx, 10*time.Millisecond)
	} else {
		held, err = lock.TryLock()
	}
	if err != nil || !held {
		return err
	}
	for _, path := range files {
		d.err = cmp.Or(d.drainFile(ctx, path), d.err)
	}
	d.err = cmp.Or(d.err, lock.Unlock())
	switch {
	case d.err != nil && d.report.Kept != Count{}:
		return fmt.Errorf("drain spool %s: %v stay, if not more: %w", d.root, d.report.Kept, d.err)
	case d.err != nil:
		return fmt.Errorf("drain spool %s: %w", d.root, d.err)
	}
	return nil
}

// drainFile sends the requests of a file, and deletes the file if the sink accepted all of them.
func (d *drainer) drainFile(ctx context.Context, path string) error {
	if d.stopped {
		return nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	kept, damaged, err := d.sendFile(ctx, f)
	_ = f.Close()
	switch {
	case err != nil || kept:
		return err
	case damaged:
		dir := filepath.Join(d.root, damagedName)
		to := filepath.Join(dir, filepath.Base(path))
		return errors.Join(os.MkdirAll(dir, 0o700), os.Rename(path, to))
	}
	d.report.Files++
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { // it was dropped, too
		return err
	}
	return nil
}

// sendFile sends the requests of a file. It reports whether one was not accepted, and whether there is damage.
func (d *drainer) sendFile(ctx context.Context, f *os.File) (kept, damaged bool, _ error) {
	for body, err := range otlpfile.Read(f, otlpfile.Options{}) {
		if _, ok := errors.AsType[*otlpfile.DamagedError](err); ok || errors.Is(err, otlpfile.ErrFormat) {
			d.report.Damages = append(d.report.Damages, fmt.Errorf("%s: %w", f.Name(), err))
			damaged = true
		} else if err != nil {
			return kept, damaged, err
		} else if kept = !d.send(ctx, body) || kept; d.stopped {
			break
		}
	}
	return kept, damaged, nil
}

// send passes a request to the sink, and reports whether that accepted it.
func (d *drainer) send(ctx context.Context, b otlpfile.Body) bool {
	n := count(b)
	var deliver func() error
	switch {
	case n == Count{}:
		return true
	case n.Spans > 0 && d.sink.Traces != nil:
		deliver = func() error { return d.sink.Traces(ctx, b.Traces) }
	case n.Records > 0 && d.sink.Logs != nil:
		deliver = func() error { return d.sink.Logs(ctx, b.Logs) }
	}
	err := ctx.Err()
	d.stopped = err != nil || d.budget == 0
	if !d.stopped && deliver != nil {
		if d.budget > 0 {
			size := (&ptrace.ProtoMarshaler{}).TracesSize(b.Traces) + (&plog.ProtoMarshaler{}).LogsSize(b.Logs)
			d.budget = max(0, d.budget-size)
		}
		if err = deliver(); err == nil {
			d.failures = 0
			d.report.Count = d.report.plus(n)
			return true
		}
		d.failures++
		d.stopped = d.failures == patience || ctx.Err() != nil
	}
	d.err = cmp.Or(err, d.err)
	d.report.Kept = d.report.Kept.plus(n)
	return false
}

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

	suffix      = ".pb"  // of files, which import reads as OTLP
	newPrefix   = "new-" // of files that are being written
	lockName    = "lock" // of the file that is locked by the process that sends files
	damagedName = "damaged"
)

// writer writes requests to the spool, a file each.
type writer struct {
	root    string
	name    string // begins those of the files of this process
	o       Options
	open    func(name string, flag int) (file, error)
	dropped func(Count)
	closed  atomic.Bool // is set with mu

	mu        sync.Mutex // guards the fields below
	number    int
	unchecked int64 // bytes that were written since the size of the spool was
}

func openWriter(root string, o Options) (*writer, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("create spool %s: %w", root, err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := fmt.Sprintf("%s-%d-%x", time.Now().UTC().Format("20060102T150405.000"), os.Getpid(), random)
	return &writer{root: root, name: name, o: o, open: openFile, unchecked: o.MaxTotalBytes}, nil
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
	begun := filepath.Join(w.root, newPrefix+w.name)
	f, err := w.open(begun, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return fmt.Errorf("create spool file: %w", err)
	}
	w.number++
	name := filepath.Join(w.root, fmt.Sprintf("%s-%08d%s", w.name, w.number, suffix))
	if _, err = f.Write(body); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(begun, name)
	}
	if err == nil {
		err = syncDir(w.root)
	}
	if err != nil {
		_, _ = os.Remove(begun), os.Remove(name)
		return fmt.Errorf("spool to %s: %w", name, err)
	}
	w.unchecked += int64(len(body))
	return nil
}

func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed.Store(true)
}

// bound makes room for so many bytes: it drops the oldest files. The spool is looked at each time that a sixteenth of
// it was written. It returns what the error handler is to get. The caller holds mu.
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

// drop removes a file, and counts its content, except that of a damaged file, which was sent.
func (w *writer) drop(path string) (n Count, ok bool) {
	d := drainer{budget: -1} // without a sink everything is kept, and counted
	if f, err := os.Open(path); err == nil && filepath.Base(filepath.Dir(path)) != damagedName {
		_, _, _ = d.sendFile(context.Background(), f)
		_ = f.Close()
	}
	return d.report.Kept, os.Remove(path) == nil
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

// Files lists the files of the spool at root, oldest first, and then those that are damaged.
func Files(root string) ([]string, error) {
	files, err := filesOf(root)
	damaged, damagedErr := filesOf(filepath.Join(root, damagedName))
	return append(files, damaged...), errors.Join(err, damagedErr)
}

// filesOf lists the files in a directory, oldest first. If it does not exist, there are none. It removes what a process
// was writing when it was killed.
func filesOf(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Type().IsRegular() && strings.HasSuffix(path, suffix) {
			all = append(all, path)
		} else if strings.HasPrefix(e.Name(), newPrefix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
				_ = os.Remove(path)
			}
		}
	}
	return all, nil
}
