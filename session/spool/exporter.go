// Package spool keeps on disk what an agent could not send, through kill -9, and sends it when the collector is
// there again.
//
// An [Exporter] wraps the OTLP exporters that an agent would use anyway:
//
//	client, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure())
//	if err != nil {
//		return err
//	}
//	exp, err := spool.Open(filepath.Join(stateDir, "spool"), spool.Options{Spans: client})
//	if err != nil {
//		return err
//	}
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exp.SpanExporter()))
//	defer func() { err = errors.Join(err, provider.Shutdown(ctx), exp.Close(ctx)) }()
//
// Every batch is sent at once, in requests that package setup limits by bytes. A request that fails is written to a
// file. After the next one that succeeds, the files are sent too, and those of other processes. Without a wrapped
// exporter everything goes to the files. "agenttrace import" reads them, and [Drain] does in a program:
//
//	report, err := spool.Drain(ctx, dir, spool.Sink{Traces: func(ctx context.Context, td ptrace.Traces) error {
//		_, err := ingester.Traces(ctx, td)
//		return err
//	}})
//
// # Guarantees
//
// An export that returns nil was sent, or is in a file that was synced to the disk. What is neither is counted in the
// error of the export, of ForceFlush and of Close. A file is deleted when everything in it was accepted. After a crash
// a part of it is sent twice, which is harmless for a session store. Requests that were truncated or changed on the
// disk are reported and skipped; all others are read.
//
// Several processes may use one spool. One at a time sends files, with a lock that ends with the process. Spans
// contain prompts: directories have mode 0700 and files 0600. Do not put a spool on a network file system, where
// locks may not work.
//
// Spans that wait in the SDK's batch processor are in memory and are lost with the process. sdktrace.WithSyncer
// exports every span as it ends instead.
//
// FORMAT.md describes the files.
package spool

import (
	"cmp"
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

	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// Options configure an [Exporter]. The zero value spools everything, within 512 MiB.
type Options struct {
	// Spans and Logs send to a collector, as the OTLP exporters of OpenTelemetry do. What they fail to send is
	// spooled. If one is nil, everything of its kind is spooled, for others to drain or to import. All requests are
	// limited by bytes, as package setup does it. The exporter owns them: Close shuts them down.
	Spans sdktrace.SpanExporter
	Logs  sdklog.Exporter

	// MaxTotalBytes limits the whole spool, with the files of all processes; 0 means 512 MiB. Beyond it the oldest
	// files are dropped and counted.
	MaxTotalBytes int64
}

// Count is a number of spans and of log records.
type Count struct{ Spans, Records int64 }

func (c Count) String() string { return fmt.Sprintf("%d spans and %d log records", c.Spans, c.Records) }

func (c Count) plus(n Count) Count  { return Count{c.Spans + n.Spans, c.Records + n.Records} }
func (c Count) minus(n Count) Count { return Count{c.Spans - n.Spans, c.Records - n.Records} }

func count(b otlpfile.Body) Count {
	return Count{int64(b.Traces.SpanCount()), int64(b.Logs.LogRecordCount())}
}

// Stats counts since [Open].
type Stats struct {
	// Sent went to the collector at once, Spooled to the disk. Drained were sent from there, those of this process and
	// of earlier ones. Dropped made room for later ones. Lost could be neither sent nor spooled.
	Sent, Spooled, Drained, Dropped, Lost Count
}

// LostError counts what is neither delivered nor spooled.
type LostError struct {
	Count         // neither sent nor spooled
	Dropped Count // spooled, and then dropped because of the limit
	Err     error // the most recent reason: why it was not sent, and why not spooled
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("export: %v are neither delivered nor spooled", e.Count)
	if e.Dropped != (Count{}) {
		text += fmt.Sprintf(", %v were dropped from the spool, which is full", e.Dropped)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *LostError) Unwrap() error { return e.Err }

const (
	// sendLimit is how long a request may take before it is spooled instead: a program that ends waits for it once.
	sendLimit   = 2500 * time.Millisecond
	drainAtOnce = 4 << 20 // bytes of spooled requests that an export sends, since the SDK's queue fills meanwhile
	// After a failure, exports go to the disk at once for a time that doubles from firstWait to longestWait.
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// Exporter sends what the SDK exports to a collector, keeps on disk what cannot be sent, and sends it later. It is
// safe for concurrent use. It starts no goroutine.
type Exporter struct {
	o        Options
	sink     Sink // sends with the exporters of o
	shutdown []func(context.Context) error
	closing  sync.Once
	writer   *writer

	mu sync.Mutex // guards the fields below
	// ForceFlush has reported what reported has of stats. lostErr is the last error since then.
	stats, reported Stats
	lostErr         error
	// wait is the length of the pause after a failure, and next its end. Exports send what is spooled after drainNext.
	wait            time.Duration
	next, drainNext time.Time
}

// Open returns an exporter that spools in the directory root, which it creates if necessary. Any number of processes
// may spool in one root. What is in it is sent after the first export that succeeds.
func Open(root string, o Options) (*Exporter, error) {
	o.MaxTotalBytes = cmp.Or(o.MaxTotalBytes, 512<<20)
	w, err := openWriter(root, o)
	if err != nil {
		return nil, err
	}
	e := &Exporter{o: o, writer: w}
	w.dropped = func(n Count) { e.count(&e.stats.Dropped, n) }
	if o.Spans != nil {
		e.o.Spans, e.shutdown = setup.BoundSpans(o.Spans), append(e.shutdown, o.Spans.Shutdown)
		e.sink.Traces = func(ctx context.Context, td ptrace.Traces) error {
			return within(ctx, func(ctx context.Context) error { return e.o.Spans.ExportSpans(ctx, otlpfile.Spans(td)) })
		}
	}
	if o.Logs != nil {
		e.o.Logs, e.shutdown = setup.BoundLogs(o.Logs), append(e.shutdown, o.Logs.Shutdown)
		e.sink.Logs = func(ctx context.Context, ld plog.Logs) error {
			return within(ctx, func(ctx context.Context) error { return e.o.Logs.Export(ctx, otlpfile.Records(ld)) })
		}
	}
	return e, nil
}

// Dir returns the directory of the spool.
func (e *Exporter) Dir() string { return e.writer.root }

// Stats returns the counts so far.
func (e *Exporter) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// SpanExporter returns an exporter for a tracer provider. ExportSpans returns nil if every span was sent or is
// spooled, and otherwise a [*LostError]. It spools also after its context has ended. Shutdown reports as
// ForceFlush does, sends nothing, and leaves the Exporter open.
func (e *Exporter) SpanExporter() sdktrace.SpanExporter { return spanExporter{e} }

// LogExporter returns an exporter for a logger provider, with the same guarantees as that for spans.
func (e *Exporter) LogExporter() sdklog.Exporter { return logExporter{e} }

type spanExporter struct{ *Exporter }

func (e spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var errs []error
	for piece := range setup.SplitSpans(spans) {
		errs = append(errs, e.export(ctx, e.o.Spans != nil, Count{Spans: int64(len(piece))},
			func(ctx context.Context) error { return e.o.Spans.ExportSpans(ctx, piece) },
			func() ([]byte, error) { return (&ptrace.ProtoMarshaler{}).MarshalTraces(otlpfile.Traces(piece)) }))
	}
	return errors.Join(errs...)
}

func (e spanExporter) Shutdown(context.Context) error { return e.settle() }

type logExporter struct{ *Exporter }

func (e logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	var errs []error
	for piece := range setup.SplitRecords(records) {
		errs = append(errs, e.export(ctx, e.o.Logs != nil, Count{Records: int64(len(piece))},
			func(ctx context.Context) error { return e.o.Logs.Export(ctx, piece) },
			func() ([]byte, error) { return (&plog.ProtoMarshaler{}).MarshalLogs(otlpfile.Logs(piece)) }))
	}
	return errors.Join(errs...)
}

func (e logExporter) Shutdown(context.Context) error { return e.settle() }

// within sends a request in the time that it may take.
func within(ctx context.Context, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	return send(ctx)
}

// export tries to send a request of n items if there is an exporter for it, and otherwise spools it.
func (e *Exporter) export(
	ctx context.Context, try bool, n Count, send func(context.Context) error, encode func() ([]byte, error),
) error {
	e.mu.Lock()
	try = try && !time.Now().Before(e.next)
	e.mu.Unlock()
	var sendErr error
	if e.writer.closed.Load() {
		return ErrClosed
	} else if try {
		sendErr = within(ctx, send)
		if e.answered(sendErr); sendErr == nil {
			e.count(&e.stats.Sent, n)
			e.drain(ctx, drainAtOnce)
			return nil
		}
	}
	body, err := encode()
	if err == nil {
		err = e.writer.append(body)
	}
	if err == nil {
		e.count(&e.stats.Spooled, n)
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Lost = e.stats.Lost.plus(n)
	e.lostErr = errors.Join(sendErr, err)
	return &LostError{Count: n, Err: e.lostErr}
}

func (e *Exporter) count(sum *Count, n Count) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*sum = sum.plus(n)
}

// answered ends the pause after a failure, or begins a longer one.
func (e *Exporter) answered(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.wait, e.next = 0, time.Time{}
		return
	}
	e.wait = min(max(firstWait, 2*e.wait), longestWait)
	e.next = time.Now().Add(e.wait)
}

// drain sends what is spooled, unless another process does: everything, or if budget is positive so many bytes, unless
// it is too early. What remains is tried again later.
func (e *Exporter) drain(ctx context.Context, budget int) {
	if len(e.shutdown) == 0 || e.writer.closed.Load() {
		return
	}
	d := drainer{root: e.writer.root, sink: e.sink, budget: budget}
	now := time.Now()
	e.mu.Lock()
	if now.Before(e.next) {
		d.failures = patience - 1 // one try shows whether it answers again
	}
	early := budget > 0 && now.Before(e.drainNext)
	e.mu.Unlock()
	if early {
		return
	}
	err := d.run(ctx)
	for _, damage := range d.report.Damages {
		otel.Handle(fmt.Errorf("drain spool: %w", damage))
	}
	e.count(&e.stats.Drained, d.report.Count)
	if d.failures == patience {
		e.answered(err)
	} else if d.report.Count != (Count{}) {
		e.answered(nil)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drainNext = (time.Time{}); err != nil && d.budget != 0 {
		e.drainNext = time.Now().Add(longestWait) // a request that is always refused is not tried with every export
	}
}

// ForceFlush sends what is spooled, as far as the collector accepts it. It returns nil if everything that was exported
// is delivered or on the disk. Otherwise the error is a [*LostError] that counts what is neither since the last call.
// It does not see what a provider has not exported yet: flush the provider first.
func (e *Exporter) ForceFlush(ctx context.Context) error {
	e.drain(ctx, -1)
	return e.settle()
}

// settle returns what was lost and not reported yet.
func (e *Exporter) settle() error {
	if e.writer.closed.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := &LostError{e.stats.Lost.minus(e.reported.Lost), e.stats.Dropped.minus(e.reported.Dropped), e.lostErr}
	e.reported, e.lostErr = e.stats, nil
	if lost.Count == (Count{}) && lost.Dropped == (Count{}) {
		return nil
	}
	return lost
}

// Close flushes as ForceFlush does, but sends nothing in the pause after a failure, shuts the exporters of its options
// down, and ends the spool of this process; the next one sends what is in it. Shut the providers down first. Later
// calls do nothing.
func (e *Exporter) Close(ctx context.Context) (err error) {
	e.closing.Do(func() {
		e.mu.Lock()
		paused := time.Now().Before(e.next)
		e.mu.Unlock()
		if !paused {
			e.drain(ctx, -1)
		}
		err = e.settle()
		e.writer.close()
		for _, shutdown := range e.shutdown {
			err = errors.Join(err, shutdown(ctx))
		}
	})
	return err
}
