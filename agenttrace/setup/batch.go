package setup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The SDK's batch processors count spans and log records, and those of agents are large: 80 tool results of 1 MiB make
// one request of 80 MiB. Receivers limit requests by bytes, to 4 MiB by default, and refuse a larger one for good, with
// everything in it. So a batch is sent as several requests. A span or record that is larger by itself is sent alone and
// unchanged. If it is refused, it is sent once more with its longest values truncated, and [otel.Handle] gets an error:
// the rest of the session does not depend on it.

// MaxRequestBytes is the maximum size of a request. It is below the 4 MiB that OTLP receivers accept by default, because
// the computed size is an estimate.
const MaxRequestBytes = 3 << 20

// BoundSpans returns an exporter that splits batches by [MaxRequestBytes] and passes the pieces to another exporter. If
// a piece is refused, ExportSpans continues with the next until its context ends, and returns the joined errors. Shutdown
// shuts the other exporter down. [Init] has it around its own.
func BoundSpans(to sdktrace.SpanExporter) sdktrace.SpanExporter { return boundedSpans{to} }

// BoundLogs is BoundSpans for log records.
func BoundLogs(to sdklog.Exporter) sdklog.Exporter { return boundedLogs{to} }

type boundedSpans struct{ sdktrace.SpanExporter }

func (e boundedSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return exportPieces(ctx, SplitSpans(spans), e.SpanExporter.ExportSpans,
		func(s sdktrace.ReadOnlySpan) (sdktrace.ReadOnlySpan, string) {
			size := spanSize(s)
			if size <= MaxRequestBytes {
				return nil, ""
			}
			shorter, limit := shortenSpan(s, size-MaxRequestBytes*9/10)
			sc := s.SpanContext()
			return shorter, fmt.Sprintf("span %s %s of trace %s has about %d bytes; sent with its values cut to %d",
				s.Name(), sc.SpanID(), sc.TraceID(), size, limit)
		})
}

type boundedLogs struct{ sdklog.Exporter }

func (e boundedLogs) Export(ctx context.Context, records []sdklog.Record) error {
	return exportPieces(ctx, SplitRecords(records), e.Exporter.Export, func(r sdklog.Record) (sdklog.Record, string) {
		size := recordSize(&r)
		if size <= MaxRequestBytes {
			return r, ""
		}
		shorter, limit := shortenRecord(&r, size-MaxRequestBytes*9/10)
		return shorter, fmt.Sprintf("log record %s of trace %s has about %d bytes; sent with its values cut to %d",
			r.EventName(), r.TraceID(), size, limit)
	})
}

// exportPieces sends pieces. shorten returns a shorter version of a single refused item that is
// too large, and a message to report; the message is "" if the item is not too large.
func exportPieces[T any](
	ctx context.Context, pieces iter.Seq[[]T], send func(context.Context, []T) error, shorten func(T) (T, string),
) error {
	var errs []error
	unsent := 0
	for piece := range pieces {
		if ctx.Err() != nil {
			unsent += len(piece)
			continue
		}
		err := send(ctx, piece)
		if err != nil && len(piece) == 1 && ctx.Err() == nil {
			if shorter, what := shorten(piece[0]); what != "" {
				if again := send(ctx, []T{shorter}); again == nil {
					otel.Handle(fmt.Errorf("%s: %w", what, err))
					continue
				}
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if unsent > 0 {
		errs = append(errs, fmt.Errorf("export: %w with %d spans or log records left", ctx.Err(), unsent))
	}
	return errors.Join(errs...)
}

// SplitSpans returns spans in pieces of at most [MaxRequestBytes] of OTLP, by estimate. A larger span is a piece of its
// own.
func SplitSpans(spans []sdktrace.ReadOnlySpan) iter.Seq[[]sdktrace.ReadOnlySpan] {
	return split(spans, spanSize, func(s sdktrace.ReadOnlySpan) *resource.Resource { return s.Resource() })
}

// SplitRecords is SplitSpans for log records.
func SplitRecords(records []sdklog.Record) iter.Seq[[]sdklog.Record] {
	return split(records, func(r sdklog.Record) int { return recordSize(&r) },
		func(r sdklog.Record) *resource.Resource { return r.Resource() })
}

func split[T any](all []T, size func(T) int, of func(T) *resource.Resource) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		from, sum := 0, 0
		var seen []*resource.Resource // a request has each once
		for i, item := range all {
			n, res := size(item), of(item)
			if !slices.Contains(seen, res) {
				n += resourceSize(res)
			}
			if sum+n > MaxRequestBytes && i > from {
				if !yield(all[from:i]) {
					return
				}
				from, sum, seen = i, 0, seen[:0]
				n = size(item) + resourceSize(res)
			}
			sum += n
			if !slices.Contains(seen, res) {
				seen = append(seen, res)
			}
		}
		if from < len(all) {
			yield(all[from:])
		}
	}
}

// fixed is the approximate size of an item without its texts.
const fixed = 256

func resourceSize(r *resource.Resource) int {
	if r == nil {
		return fixed
	}
	return fixed + len(r.SchemaURL()) + attributesSize(r.Attributes())
}

func spanSize(s sdktrace.ReadOnlySpan) int {
	n := fixed + len(s.Name()) + len(s.Status().Description) + len(s.SpanContext().TraceState().String())
	n += attributesSize(s.Attributes())
	for _, e := range s.Events() {
		n += fixed + len(e.Name) + attributesSize(e.Attributes)
	}
	for _, l := range s.Links() {
		n += fixed + attributesSize(l.Attributes)
	}
	return n
}

func recordSize(r *sdklog.Record) int {
	n := fixed + len(r.EventName()) + len(r.SeverityText()) + valueSize(r.Body())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		n += len(kv.Key) + 16 + valueSize(kv.Value)
		return true
	})
	return n
}

func attributesSize(all []attribute.KeyValue) int {
	n := 0
	for _, kv := range all {
		n += len(kv.Key) + 16 + valueSize(kv.Value)
	}
	return n
}

func valueSize(v attribute.Value) int {
	n := 0
	switch v.Type() {
	case attribute.STRING:
		return len(v.AsString())
	case attribute.STRINGSLICE:
		for _, s := range v.AsStringSlice() {
			n += len(s) + 12
		}
	case attribute.BOOLSLICE:
		return 12 * len(v.AsBoolSlice())
	case attribute.INT64SLICE:
		return 16 * len(v.AsInt64Slice())
	case attribute.FLOAT64SLICE:
		return 16 * len(v.AsFloat64Slice())
	case attribute.BYTESLICE:
		return len(v.AsByteSlice())
	case attribute.SLICE:
		for _, e := range v.AsSlice() {
			n += 12 + valueSize(e)
		}
	case attribute.MAP:
		return attributesSize(v.AsMap())
	}
	return n
}
