package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

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
