package recorder

import (
	"context"
	"sync/atomic"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// SpanExporter returns an exporter for a tracer provider. Its Shutdown stores the waiting
// deliveries and leaves the recorder open.
//
// ExportSpans returns nil when the rows of all spans are committed, and otherwise a [*NotStoredError] that reports
// whether the spans wait or are lost. If its context is canceled, it stops waiting for the store and the spans wait.
func (r *Recorder) SpanExporter() sdktrace.SpanExporter { return &spanExporter{exporter{recorder: r}} }

// LogExporter returns an exporter for a logger provider, with the same guarantees as that for spans.
func (r *Recorder) LogExporter() sdklog.Exporter { return &logExporter{exporter{recorder: r}} }

// exporter is what both exporters have in common.
type exporter struct {
	recorder *Recorder
	stopped  atomic.Bool
}

func (e *exporter) ForceFlush(ctx context.Context) error {
	if e.stopped.Load() {
		return nil
	}
	return e.recorder.ForceFlush(ctx)
}

func (e *exporter) Shutdown(ctx context.Context) error {
	if e.stopped.Swap(true) {
		return nil
	}
	return e.recorder.ForceFlush(ctx)
}

type spanExporter struct{ exporter }

func (e *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if e.stopped.Load() {
		return ErrClosed
	}
	return e.recorder.export(ctx, tracesOf(otlpfile.Traces(spans)))
}

type logExporter struct{ exporter }

func (e *logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	if e.stopped.Load() {
		return sdklog.ErrExporterShutdown
	}
	return e.recorder.export(ctx, logsOf(otlpfile.Logs(records)))
}
