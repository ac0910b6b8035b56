package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Sink takes what is drained: a client of a collector, or a store behind
// ingest.Ingester. Nil from either function means that the thing is stored or
// sent, and it is then deleted here. What is sent more than once must do no harm,
// as in a session store.
//
// What a nil function would take stays in the spool.
type Sink struct {
	Traces func(context.Context, ptrace.Traces) error
	Logs   func(context.Context, plog.Logs) error
}

// Report says what [Drain] did.
type Report struct {
	// Spans and LogRecords were taken by the sink.
	Spans, LogRecords int64
	// KeptSpans and KeptRecords were not and stay, as far as the files were read.
	KeptSpans, KeptRecords int64
	// Files were sent whole and are deleted.
	Files int
	// Living is how many directories belong to processes that live, which were
	// left alone.
	Living int
	// Damages are the pieces that could not be read, wrapped with the name of their
	// file. The files that have any but at their tail are kept in "damaged".
	Damages []error
}

// patience is how many records in a row may fail before the sink is taken to be
// away. One that is refused does not keep those behind it from being sent.
const patience = 3

// Drain sends what processes that are dead have left in the spool at root, oldest
// first, to a sink, and deletes what the sink took. Any number of processes may
// drain at once; a directory is drained by one of them.
//
// It returns an error when something stays that the sink did not take; draining
// again goes on there. When it is killed, some of what was taken is sent again by
// the next one. Pieces that cannot be read are reported, and passed over.
//
// Edge cases: a root that does not exist is an empty spool; canceling ctx ends it
// after the record at hand, with an error if something is left.
func Drain(ctx context.Context, root string, to Sink) (Report, error) {
	d := drainer{sink: to, root: root, budget: -1, last: true, done: make(map[fileID]map[uint32]bool)}
	err := d.drainDead(ctx)
	return d.report, err
}

// drainer sends files to a sink.
type drainer struct {
	sink   Sink
	root   string
	report Report
	// budget is how many bytes may be sent yet; negative is any number.
	budget int
	// done are the records that were sent of files that are not deleted yet, by the
	// file's id and their number. last says that nobody goes on from there: what is
	// left of a file is then written anew, instead of at its end only.
	done map[fileID]map[uint32]bool
	last bool
	// failures counts records in a row that the sink did not take; err is why the
	// last was not.
	failures int
	err      error
	stopped  bool
}

// errBudget says that there is more than was to be sent.
var errBudget = errors.New("more is left to send")

// result is the error for what stays.
func (d *drainer) result() error {
	switch {
	case d.report.KeptSpans+d.report.KeptRecords > 0 && d.err != nil:
		return fmt.Errorf("drain spool %s: %d spans and %d log records stay, if not more: %w", d.root, d.report.KeptSpans, d.report.KeptRecords, d.err)
	case d.err != nil:
		return fmt.Errorf("drain spool %s: %w", d.root, d.err)
	}
	return nil
}

// drainDead sends what dead processes left.
func (d *drainer) drainDead(ctx context.Context) error {
	dirs, err := dirsOf(d.root)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if d.stopped {
			break
		}
		if err := d.drainDir(ctx, dir); err != nil {
			d.err = err
		}
	}
	return d.result()
}

// fresh is how long a directory with nothing in it is taken for one whose process is
// about to lock it. One that has a lock is of a process that lives, or is dead: a
// process whose directory goes before it holds the lock makes another.
const fresh = time.Minute

// drainDir sends what is in the directory of another process unless that lives.
func (d *drainer) drainDir(ctx context.Context, dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return nil // somebody else was faster
	} else if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && time.Since(info.ModTime()) < fresh {
		return nil
	}
	l, held, err := lockDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("lock %s: %w", dir, err)
	case !held:
		d.report.Living++
		return nil
	}
	sweep(dir)
	files, err := filesOf(dir)
	if err == nil {
		d.drainFiles(ctx, files, nil)
		files, err = filesOf(dir)
	}
	if err == nil && len(files) == 0 {
		removeDir(dir, l)
		return nil
	}
	return errors.Join(err, l.Unlock())
}

// temporarySuffix is that of a file that is being rewritten.
const temporarySuffix = ".new"

// sweep removes what a drain that was killed has left half written.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "*"+suffix+temporarySuffix))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// drainFiles sends files, telling begins, if not nil, of each.
func (d *drainer) drainFiles(ctx context.Context, files []string, begins func(string)) {
	for _, path := range files {
		if d.stopped {
			return
		}
		if begins != nil {
			begins(path)
		}
		if err := d.drainFile(ctx, path); err != nil {
			d.err = err
		}
	}
	if begins != nil {
		begins("")
	}
}

// drainFile sends a file and deletes it, or what of it was sent.
func (d *drainer) drainFile(ctx context.Context, path string) error {
	id, sent, left, damaged, err := d.sendFile(ctx, path)
	if !left && err == nil {
		defer delete(d.done, id)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read spool: %w", err)
	case left && (len(sent) == 0 || damaged || d.stopped && !d.last):
		// A damaged file must stay as it is, and is sent again as a whole.
		return nil
	case left:
		if err := rewrite(path, sent); err != nil {
			return err
		}
		delete(d.done, id)
		return nil
	case damaged:
		return d.quarantine(path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("delete what was sent: %w", err)
	}
	d.report.Files++
	return nil
}

// sendFile sends the records of a file. It returns the numbers of those that were
// sent, now or before, and whether there are others, and damage but for the tail.
func (d *drainer) sendFile(ctx context.Context, path string) (id fileID, sent map[uint32]bool, left, damaged bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return id, nil, false, false, err
	}
	defer f.Close()
	for fr, err := range frames(f) {
		if err == nil {
			if id = fr.id; d.done[id] == nil {
				d.done[id] = make(map[uint32]bool)
			}
			sent = d.done[id]
			if sent[fr.seq] {
				continue
			}
			err = d.send(ctx, fr)
		}
		damage, isDamage := errors.AsType[*DamagedError](err)
		switch {
		case err == nil:
			sent[fr.seq] = true
		case errors.Is(err, errNotSent):
			left = true
			if d.stopped {
				return id, sent, left, damaged, nil
			}
		case isDamage:
			d.report.Damages = append(d.report.Damages, fmt.Errorf("%s: %w", path, damage))
			damaged = damaged || !damage.Tail
		default:
			return id, nil, false, false, fmt.Errorf("%s: %w", path, err)
		}
	}
	return id, sent, left, damaged, nil
}

var errNotSent = errors.New("not sent")

// send hands a record to the sink.
func (d *drainer) send(ctx context.Context, f positionedFrame) error {
	keep := func(err error) error {
		if err != nil {
			d.err = err
		}
		d.report.kept(f, 1)
		return errNotSent
	}
	if err := ctx.Err(); err != nil {
		d.stopped = true
		return keep(err)
	}
	if d.budget == 0 {
		d.stopped = true
		return keep(errBudget)
	}
	rec, err := f.decode()
	if err != nil {
		return err
	}
	switch {
	case f.kind == kindTraces && d.sink.Traces != nil:
		err = d.sink.Traces(ctx, rec.Traces)
	case f.kind == kindLogs && d.sink.Logs != nil:
		err = d.sink.Logs(ctx, rec.Logs)
	default:
		return keep(nil)
	}
	if d.budget > 0 {
		d.budget = max(0, d.budget-f.size())
	}
	if err != nil {
		d.failures++
		d.stopped = d.failures == patience || ctx.Err() != nil
		return keep(err)
	}
	d.failures = 0
	d.report.sent(f)
	return nil
}

func (r *Report) sent(f positionedFrame) { addTo(&r.Spans, &r.LogRecords, f, 1) }

func (r *Report) kept(f positionedFrame, sign int64) { addTo(&r.KeptSpans, &r.KeptRecords, f, sign) }

func addTo(spans, records *int64, f positionedFrame, sign int64) {
	if f.kind == kindLogs {
		*records += sign * int64(f.items)
	} else {
		*spans += sign * int64(f.items)
	}
}

// rewrite leaves in a file what was not sent. If that cannot be done the file
// stays, and all of it is sent again.
func rewrite(path string, sent map[uint32]bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write what was not sent: %w", err)
		}
	}()
	temporary := path + temporarySuffix
	if err := copyRest(temporary, path, sent); err != nil {
		_ = os.Remove(temporary)
		return err
	}
	return os.Rename(temporary, path)
}

// copyRest writes to a new file what was not sent of another. It passes over a
// tail; files with other damage are not rewritten.
func copyRest(to, from string, sent map[uint32]bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	id, seq := newID(), uint32(0)
	buf := appendFrame(nil, frame{kind: kindHeader, id: id, body: headerBody})
	for fr, readErr := range frames(in) {
		if errors.As(readErr, new(*DamagedError)) || readErr == nil && sent[fr.seq] {
			continue
		}
		if err = readErr; err != nil {
			break
		}
		seq++
		buf = appendFrame(buf, frame{kind: fr.kind, id: id, seq: seq, items: fr.items, body: fr.body})
		if _, err = out.Write(buf); err != nil {
			break
		}
		buf = buf[:0]
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// quarantine keeps a file for people to look at.
func (d *drainer) quarantine(path string) error {
	dir := filepath.Join(d.root, damagedName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep damaged file: %w", err)
	}
	if err := os.Rename(path, filepath.Join(dir, filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path))); err != nil {
		return fmt.Errorf("keep damaged file: %w", err)
	}
	return nil
}
