package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

// maxQuiet is how long shutdown waits without an export that succeeds, if its context has no deadline.
var maxQuiet = 2500 * time.Millisecond

// delivery counts what ends and what an endpoint accepts, because the SDK reports neither what its queues drop nor,
// when a provider shuts down, what could not be sent.
type delivery struct {
	what, endpoint string
	ended, sent    atomic.Int64
	ending         atomic.Bool
	quiet          atomic.Pointer[time.Timer]
	stopped        context.Context
	stop           context.CancelCauseFunc

	mu  sync.Mutex
	err error // of the last export that failed
}

func newDelivery(what string) *delivery {
	d := &delivery{what: what}
	d.stopped, d.stop = context.WithCancelCause(context.Background())
	return d
}

// export sends n items, or counts them as lost. The SDK's processors export with a context that shutdown does not
// end, so that stop has to.
func (d *delivery) export(ctx context.Context, n int, send func(context.Context) error) error {
	err := context.Cause(d.stopped)
	if err == nil {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(d.stopped, func() { cancel(context.Cause(d.stopped)) })()
		for err = send(ctx); unreachable(err) && waited(ctx, retry.InitialInterval); err = send(ctx) {
		}
	}
	if lost := rejected(err, n); lost < n {
		d.sent.Add(int64(n - lost))
		if timer := d.quiet.Load(); timer != nil {
			timer.Reset(maxQuiet)
		}
	}
	if err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	cause := context.Cause(d.stopped)
	if cause == nil || d.err == nil {
		d.err = err
	}
	if cause != nil && !errors.Is(d.err, cause) {
		d.err = fmt.Errorf("%w: %w", cause, d.err)
	}
	if d.ending.Load() {
		return nil // the error of shutdown has it
	}
	return err
}

// waited reports whether the time passed before ctx ended. An error that was there then says more than that of ctx.
func waited(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// unreachable reports whether there is no connection, as while a collector is restarted: the exporters by HTTP repeat
// a request only if there is an answer.
func unreachable(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// partialSuccess is the text of the error with which exporters report that a collector rejected a part of a request.
// The error's type is internal to each of them.
var partialSuccess = lazy.Regexp(`OTLP partial success: .*\((\d+) [a-z ]+ rejected\)`)

// rejected returns how many of n items an export did not deliver.
func rejected(err error, n int) int {
	if err == nil {
		return 0
	}
	if m := partialSuccess().FindStringSubmatch(err.Error()); m != nil {
		part, _ := strconv.Atoi(m[1])
		return min(part, n)
	}
	return n
}

// shutdown shuts a provider down. The error counts what was lost since its start.
func (d *delivery) shutdown(ctx context.Context, provider func(context.Context) error) error {
	d.ending.Store(true)
	if _, limited := ctx.Deadline(); !limited {
		timer := time.AfterFunc(maxQuiet, func() { d.stop(fmt.Errorf("no answer within %v", maxQuiet)) })
		defer timer.Stop()
		d.quiet.Store(timer)
	}
	defer context.AfterFunc(ctx, func() { d.stop(context.Cause(ctx)) })()
	err := provider(context.WithoutCancel(ctx)) // returns when exports do, which stop ends
	d.mu.Lock()
	defer d.mu.Unlock()
	lost := d.ended.Load() - d.sent.Load()
	if lost <= 0 {
		return err
	}
	if d.err == nil && d.what == "spans" {
		return errors.Join(err, fmt.Errorf("%d of %d spans are lost: they came faster than %s accepted them; raise "+
			"OTEL_BSP_MAX_QUEUE_SIZE", lost, d.ended.Load(), d.endpoint))
	} else if d.err == nil {
		return err // live events that the queue dropped are repeated by later ones
	}
	return fmt.Errorf("%d of %d %s are lost: %s did not accept them: %w; start \"agenttrace collect\" there or set "+
		"OTEL_EXPORTER_OTLP_ENDPOINT", lost, d.ended.Load(), d.what, d.endpoint, d.err)
}

// spanExporter and spanProcessor count what an exporter delivers, and what its provider is given.
type spanExporter struct {
	sdktrace.SpanExporter
	*delivery
}

func (e spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return e.export(ctx, len(spans), func(ctx context.Context) error { return e.SpanExporter.ExportSpans(ctx, spans) })
}

type spanProcessor struct {
	sdktrace.SpanProcessor
	*delivery
}

func (p spanProcessor) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		p.ended.Add(1)
	}
	p.SpanProcessor.OnEnd(s)
}

// logExporter and logProcessor do so for live events.
type logExporter struct {
	sdklog.Exporter
	*delivery
}

func (e logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	return e.export(ctx, len(records), func(ctx context.Context) error { return e.Exporter.Export(ctx, records) })
}

type logProcessor struct {
	sdklog.Processor
	*delivery
}

func (p logProcessor) OnEmit(ctx context.Context, r *sdklog.Record) error {
	p.ended.Add(1)
	return p.Processor.OnEmit(ctx, r)
}
