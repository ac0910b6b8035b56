package recorder

import (
	"context"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// SpanExporter returns an exporter for a tracer provider. Its Shutdown stores the waiting
// deliveries and leaves the recorder open.
//
// ExportSpans returns nil when the rows of all spans are committed, and otherwise a [*NotStoredError] that reports
// whether the spans wait or are lost. If its context is canceled, it stops waiting for the store and the spans wait.
func (r *Recorder) SpanExporter() sdktrace.SpanExporter { return exporter{r} }

// LogExporter returns an exporter for a logger provider, with the same guarantees as that for spans.
func (r *Recorder) LogExporter() sdklog.Exporter { return exporter{r} }

type exporter struct{ *Recorder }

func (e exporter) Shutdown(ctx context.Context) error { return e.ForceFlush(ctx) }

func (e exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return e.export(ctx, tracesOf(otlpfile.Traces(spans)))
}

func (e exporter) Export(ctx context.Context, records []sdklog.Record) error {
	return e.export(ctx, logsOf(otlpfile.Logs(records)))
}
