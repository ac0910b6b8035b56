package spool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/session/otlpbatch"
	"github.com/agenttrace/agenttrace/session/sdkdata"
)

// Options configure an [Exporter]. The zero value spools everything, within 512
// MiB, and syncs every second.
type Options struct {
	// Spans and Logs send to a collector, as the OTLP exporters of OpenTelemetry
	// do. What they fail to send is spooled. Without one, all of its kind is
	// spooled, for others to drain or to import. Requests are bounded by bytes as
	// package otlpbatch has it, also those of what was spooled.
	//
	// The exporter owns them: Close shuts them down.
	Spans sdktrace.SpanExporter
	Logs  sdklog.Exporter

	// Sync is when files are synced, SyncInterval how often, which is a second when
	// 0.
	Sync         Sync
	SyncInterval time.Duration

	// MaxFileBytes is where a file ends and the next begins: 8 MiB when 0.
	// MaxTotalBytes bounds the whole spool, those of all processes: 512 MiB when 0.
	// It must be at least four times the former, which is less when 0 to fit. What
	// exceeds it is dropped, the oldest first, and counted; what living processes
	// have spooled only they can drop, so that several of them can exceed it by
	// what they spool.
	MaxFileBytes, MaxTotalBytes int64
}

func (o *Options) complete() error {
	if o.SyncInterval <= 0 {
		o.SyncInterval = time.Second
	}
	if o.MaxTotalBytes == 0 {
		o.MaxTotalBytes = max(512<<20, 4*o.MaxFileBytes)
	}
	if o.MaxFileBytes == 0 {
		o.MaxFileBytes = min(8<<20, o.MaxTotalBytes/4)
	}
	if o.MaxFileBytes < 1 || o.MaxTotalBytes < 4*o.MaxFileBytes {
		return fmt.Errorf("spool may have %d bytes in files of %d: raise MaxTotalBytes to four files or more", o.MaxTotalBytes, o.MaxFileBytes)
	}
	return nil
}

// Stats counts spans and log records since [Open].
type Stats struct {
	// Sent went to the collector at once, Spooled to the disk. Drained were sent
	// from there, this process's and those that earlier ones left.
	SentSpans, SentRecords       int64
	SpooledSpans, SpooledRecords int64
	DrainedSpans, DrainedRecords int64
	// Dropped made room for later ones, and Lost could be neither sent nor spooled.
	DroppedSpans, DroppedRecords int64
	LostSpans, LostRecords       int64
}

// LostError counts what is neither delivered nor spooled.
type LostError struct {
	// Spans and Records were neither sent nor spooled, DroppedSpans and
	// DroppedRecords were spooled and then dropped for the limit.
	Spans, Records               int64
	DroppedSpans, DroppedRecords int64
	// Err is the last reason: why it was not sent, and why not spooled.
	Err error
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("export: %d spans and %d log records are neither delivered nor spooled", e.Spans, e.Records)
	if e.DroppedSpans+e.DroppedRecords > 0 {
		text += fmt.Sprintf(", %d spans and %d log records were dropped from the spool, which is full", e.DroppedSpans, e.DroppedRecords)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *LostError) Unwrap() error { return e.Err }

const (
	// drainAtOnce is how many bytes an export sends of what was spooled, when it
	// went through itself: the SDK's queue fills meanwhile.
	drainAtOnce = 4 << 20
	// While the collector does not answer, exports go to the disk at once, and one
	// tries it after a time that doubles from firstWait to longestWait.
	firstWait   = time.Second
	longestWait = 30 * time.Second
	// targetRecord is the size above which a batch becomes several records: an
	// OTLP receiver takes 4 MiB unless told otherwise.
	targetRecord = 3 << 20
)

// Exporter sends to a collector what the SDK exports, keeps on disk what cannot
// be sent, and sends it later. It is safe for concurrent use.
//
// It starts no goroutine; a timer syncs files with SyncInterval, until Close.
type Exporter struct {
	o      Options
	writer *writer

	// draining is held by whoever drains, and guards done: what was sent of files
	// that are still there.
	draining sync.Mutex
	done     map[fileID]map[uint32]bool

	mu     sync.Mutex // guards what follows
	closed bool
	stats  Stats
	// unsaid is what no ForceFlush has reported; reportedDrops what of the writer's it
	// has.
	unreported    LostError
	reportedDrops tally
	// left says that something may be in the spool to be sent, from drainNext on.
	left      bool
	drainNext time.Time
	// wait and next are of the pause after a failure.
	wait time.Duration
	next time.Time
}

// Open makes an exporter that spools in a directory of its own in root, which is
// made (0700) if need be. Any number of processes may spool in one root. What
// dead ones left there is sent after the first export that goes through.
func Open(root string, o Options) (*Exporter, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	w, err := openWriter(root, o)
	if err != nil {
		return nil, err
	}
	if o.Spans != nil {
		o.Spans = otlpbatch.Spans(o.Spans)
	}
	if o.Logs != nil {
		o.Logs = otlpbatch.Logs(o.Logs)
	}
	return &Exporter{o: o, writer: w, left: true, done: make(map[fileID]map[uint32]bool)}, nil
}

// Dir returns the directory of this process in the root.
func (e *Exporter) Dir() string { return e.writer.dir }

// Stats returns what happened so far.
func (e *Exporter) Stats() Stats {
	e.writer.mu.Lock()
	dropped := e.writer.dropped
	e.writer.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.DroppedSpans, s.DroppedRecords = dropped.spans, dropped.records
	return s
}

// SpanExporter returns an exporter for a tracer provider. ExportSpans returns nil
// when every span was sent or is spooled, and else a [*LostError]. It spools also
// when its context has ended. Shutdown syncs and reports as ForceFlush does, sends
// nothing, and leaves the Exporter open.
func (e *Exporter) SpanExporter() sdktrace.SpanExporter { return spanExporter{e} }

// LogExporter returns an exporter for a logger provider, with the promises of
// that for spans.
func (e *Exporter) LogExporter() sdklog.Exporter { return logExporter{e} }

type spanExporter struct{ e *Exporter }

func (s spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var errs []error
	for piece := range otlpbatch.SplitSpans(spans, otlpbatch.DefaultMaxBytes) {
		errs = append(errs, s.exportSome(ctx, piece))
	}
	return errors.Join(errs...)
}

func (s spanExporter) exportSome(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	send := func(ctx context.Context) error { return s.e.o.Spans.ExportSpans(ctx, spans) }
	if s.e.o.Spans == nil {
		send = nil
	}
	return s.e.export(ctx, kindTraces, len(spans), send, func(from, to int) ([]byte, int, error) {
		td := sdkdata.Traces(spans[from:to])
		body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		return body, td.SpanCount(), err
	})
}

func (s spanExporter) Shutdown(context.Context) error { return s.e.settle() }

type logExporter struct{ e *Exporter }

func (l logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	var errs []error
	for piece := range otlpbatch.SplitRecords(records, otlpbatch.DefaultMaxBytes) {
		errs = append(errs, l.exportSome(ctx, piece))
	}
	return errors.Join(errs...)
}

func (l logExporter) exportSome(ctx context.Context, records []sdklog.Record) error {
	send := func(ctx context.Context) error { return l.e.o.Logs.Export(ctx, records) }
	if l.e.o.Logs == nil {
		send = nil
	}
	return l.e.export(ctx, kindLogs, len(records), send, func(from, to int) ([]byte, int, error) {
		body, err := (&plog.ProtoMarshaler{}).MarshalLogs(sdkdata.Logs(records[from:to]))
		return body, to - from, err
	})
}

func (l logExporter) ForceFlush(ctx context.Context) error { return l.e.ForceFlush(ctx) }
func (l logExporter) Shutdown(context.Context) error       { return l.e.settle() }

// export sends n items, or spools what encode makes of them.
func (e *Exporter) export(ctx context.Context, k kind, n int, send func(context.Context) error, encode func(from, to int) ([]byte, int, error)) error {
	if n == 0 {
		return nil
	}
	e.mu.Lock()
	closed, try := e.closed, send != nil && !time.Now().Before(e.next)
	e.mu.Unlock()
	if closed {
		return ErrClosed
	}
	var sendErr error
	if try {
		if sendErr = send(ctx); sendErr == nil {
			e.answered()
			e.count(k, int64(n), &e.stats.SentSpans, &e.stats.SentRecords)
			e.drainSome(ctx)
			return nil
		}
		e.failed()
	}
	spooled, err := e.spool(k, 0, n, encode)
	e.count(k, int64(spooled), &e.stats.SpooledSpans, &e.stats.SpooledRecords)
	if err == nil {
		return nil
	}
	err = errors.Join(sendErr, err)
	e.count(k, int64(n-spooled), &e.stats.LostSpans, &e.stats.LostRecords)
	e.count(k, int64(n-spooled), &e.unreported.Spans, &e.unreported.Records)
	e.mu.Lock()
	e.unreported.Err = err
	e.mu.Unlock()
	lost := &LostError{Err: err}
	if k == kindLogs {
		lost.Records = int64(n - spooled)
	} else {
		lost.Spans = int64(n - spooled)
	}
	return lost
}

// spool writes items as one record, or as several where one would be too large.
// It returns how many it wrote.
func (e *Exporter) spool(k kind, from, to int, encode func(from, to int) ([]byte, int, error)) (int, error) {
	body, items, err := encode(from, to)
	if err != nil {
		return 0, fmt.Errorf("encode: %w", err)
	}
	if len(body) > targetRecord && to-from > 1 {
		middle := (from + to) / 2
		first, err := e.spool(k, from, middle, encode)
		second, otherErr := e.spool(k, middle, to, encode)
		return first + second, errors.Join(err, otherErr)
	}
	if items > 0 {
		if err := e.writer.append(k, items, body); err != nil {
			return 0, err
		}
	}
	return to - from, nil
}

func (e *Exporter) count(k kind, n int64, spans, records *int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k == kindLogs {
		*records += n
	} else {
		*spans += n
	}
}

// answered says that the collector took something.
func (e *Exporter) answered() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wait, e.next = 0, time.Time{}
}

// failed says that it did not.
func (e *Exporter) failed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pause()
	e.left = true
}

// pause lets exports go to the disk for a while. The caller holds mu.
func (e *Exporter) pause() {
	e.wait = min(max(firstWait, 2*e.wait), longestWait)
	e.next = time.Now().Add(e.wait)
}

// drainSome sends a part of what is spooled, if something is.
func (e *Exporter) drainSome(ctx context.Context) {
	e.mu.Lock()
	left := e.left && !time.Now().Before(e.drainNext)
	e.mu.Unlock()
	if left {
		_ = e.drain(ctx, drainAtOnce) // what stays is tried again
	}
}

// drain sends what this process and dead ones have spooled.
func (e *Exporter) drain(ctx context.Context, budget int) error {
	if e.o.Spans == nil && e.o.Logs == nil || !e.draining.TryLock() {
		return nil
	}
	defer e.draining.Unlock()
	d := drainer{root: e.writer.root, budget: budget, last: budget < 0, done: e.done}
	if e.o.Spans != nil {
		d.sink.Traces = func(ctx context.Context, td ptrace.Traces) error {
			return e.o.Spans.ExportSpans(ctx, sdkdata.Spans(td))
		}
	}
	if e.o.Logs != nil {
		d.sink.Logs = func(ctx context.Context, ld plog.Logs) error { return e.o.Logs.Export(ctx, sdkdata.Records(ld)) }
	}
	e.mu.Lock()
	e.left = false // unless something fails from here on
	if time.Now().Before(e.next) {
		d.failures = patience - 1 // one try tells whether it answers again
	}
	e.mu.Unlock()
	err := d.drainDead(ctx)
	if !d.stopped {
		var files []string
		if files, err = e.writer.sealed(); err == nil {
			d.drainFiles(ctx, files, e.writer.begins)
			err = d.result()
		}
	}
	for _, damage := range d.report.Damages {
		if piece, ok := errors.AsType[*DamagedError](damage); ok && !piece.Tail {
			otel.Handle(fmt.Errorf("drain spool: %w", damage))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.DrainedSpans += d.report.Spans
	e.stats.DrainedRecords += d.report.LogRecords
	if err != nil || d.stopped {
		e.left = true
	}
	if e.drainNext = (time.Time{}); err != nil && !errors.Is(err, errBudget) {
		e.drainNext = time.Now().Add(longestWait) // what is never taken is not tried with every export
	}
	switch {
	case d.failures == patience:
		e.pause()
	case d.report.Spans+d.report.LogRecords > 0:
		e.wait, e.next = 0, time.Time{}
	}
	return err
}

// ForceFlush sends what is spooled, as far as the collector takes it, and syncs
// what stays. It returns nil when all that was exported is delivered or on the
// disk, and else an error: a [*LostError] that counts what is neither since it
// was last called, or that of a sync that failed. What a provider has not
// exported yet it does not see: flush the provider before.
func (e *Exporter) ForceFlush(ctx context.Context) error {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return nil
	}
	_ = e.drain(ctx, -1) // what is not sent is on the disk
	return e.settle()
}

// settle syncs, and returns what was lost and not reported yet.
func (e *Exporter) settle() error {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return nil
	}
	return errors.Join(e.lost(), e.writer.sync())
}

// lost returns what was not reported yet, or nil.
func (e *Exporter) lost() error {
	e.writer.mu.Lock()
	dropped := e.writer.dropped
	e.writer.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.unreported
	l.DroppedSpans, l.DroppedRecords = dropped.spans-e.reportedDrops.spans, dropped.records-e.reportedDrops.records
	e.unreported, e.reportedDrops = LostError{}, dropped
	if l.Spans+l.Records+l.DroppedSpans+l.DroppedRecords == 0 {
		return nil
	}
	return &l
}

// Close flushes as ForceFlush does, shuts the exporters of its options down, and
// ends the spool of this process; what is in it is sent by the next. Shut the
// providers down before. Calls after the first do nothing.
func (e *Exporter) Close(ctx context.Context) error {
	err := e.ForceFlush(ctx)
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	if e.o.Spans != nil {
		err = errors.Join(err, e.o.Spans.Shutdown(ctx))
	}
	if e.o.Logs != nil {
		err = errors.Join(err, e.o.Logs.Shutdown(ctx))
	}
	return errors.Join(err, e.writer.close())
}
