package otlpfile_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// receiver stores what a collector's OTLP receiver decodes.
type receiver struct {
	ptraceotlp.UnimplementedGRPCServer
	traces chan ptrace.Traces
	logs   chan plog.Logs
}

type logReceiver struct {
	plogotlp.UnimplementedGRPCServer
	logs chan plog.Logs
}

func (r *receiver) Export(_ context.Context, q ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	td := ptrace.NewTraces()
	q.Traces().CopyTo(td)
	r.traces <- td
	return ptraceotlp.NewExportResponse(), nil
}

func (r *logReceiver) Export(_ context.Context, q plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	ld := plog.NewLogs()
	q.Logs().CopyTo(ld)
	r.logs <- ld
	return plogotlp.NewExportResponse(), nil
}

// listen returns a receiver, and SDK exporters that send to it.
func listen(t *testing.T) (*receiver, sdktrace.SpanExporter, sdklog.Exporter) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testscale.Must(t, err)
	r := &receiver{traces: make(chan ptrace.Traces, 1), logs: make(chan plog.Logs, 1)}
	server := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, r)
	plogotlp.RegisterGRPCServer(server, &logReceiver{logs: r.logs})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	spans, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(l.Addr().String()))
	testscale.Must(t, err)
	logs, err := otlploggrpc.New(t.Context(), otlploggrpc.WithInsecure(), otlploggrpc.WithEndpoint(l.Addr().String()))
	testscale.Must(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		if err := spans.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := logs.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r, spans, logs
}

// capture stores what a provider exports.
type capture struct {
	spans   []sdktrace.ReadOnlySpan
	records []sdklog.Record
}

func (c *capture) ExportSpans(_ context.Context, all []sdktrace.ReadOnlySpan) error {
	c.spans = append(c.spans, all...)
	return nil
}
func (c *capture) Shutdown(context.Context) error { return nil }

type captureLogs struct{ *capture }

func (c captureLogs) Export(_ context.Context, all []sdklog.Record) error {
	for _, r := range all {
		c.records = append(c.records, r.Clone())
	}
	return nil
}
func (captureLogs) ForceFlush(context.Context) error { return nil }

func value(r *rand.Rand, depth int) attribute.Value {
	text := func() string {
		return []string{"", "a", "two words", "ünïcödé 日本", `{"json":[1,2]}`, string(make([]byte, 300))}[r.IntN(6)]
	}
	switch n := r.IntN(13); {
	case n == 0:
		return attribute.BoolValue(r.IntN(2) == 0)
	case n == 1:
		return attribute.Int64Value(r.Int64() - r.Int64())
	case n == 2:
		return attribute.Float64Value([]float64{0, -1.5, math.MaxFloat64, math.Inf(1)}[r.IntN(4)])
	case n == 3:
		return attribute.BoolSliceValue(make([]bool, r.IntN(3)))
	case n == 4:
		return attribute.Int64SliceValue([]int64{1, math.MinInt64, 3}[:r.IntN(4)])
	case n == 5:
		return attribute.Float64SliceValue([]float64{1, 2.5}[:r.IntN(3)])
	case n == 6:
		return attribute.StringSliceValue([]string{text(), text()}[:r.IntN(3)])
	case n == 7:
		return attribute.ByteSliceValue([]byte{0, 0xff, 3}[:r.IntN(4)])
	case n == 8 && depth < 3:
		return attribute.SliceValue(value(r, depth+1), value(r, depth+1), attribute.Value{})
	case n == 9 && depth < 3:
		return attribute.MapValue(attribute.KeyValue{Key: "x", Value: value(r, depth+1)},
			attribute.KeyValue{Key: "y", Value: value(r, depth+1)})
	}
	return attribute.StringValue(text())
}

func attrs(r *rand.Rand, maximum int) []attribute.KeyValue {
	var all []attribute.KeyValue
	for i := range r.IntN(maximum + 1) {
		all = append(all, attribute.KeyValue{Key: attribute.Key(fmt.Sprintf("key.%d", i)), Value: value(r, 0)})
	}
	return all
}

// record creates spans with everything that a span can have.
func record(r *rand.Rand, tp trace.TracerProvider) {
	state, _ := trace.ParseTraceState("vendor=1,other=x")
	ctx := context.Background()
	if r.IntN(2) == 0 {
		ctx = trace.ContextWithRemoteSpanContext(ctx,
			trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, byte(r.IntN(9))},
				SpanID: trace.SpanID{7}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true}))
	}
	for range 1 + r.IntN(6) {
		tracer := tp.Tracer([]string{"a", "b"}[r.IntN(2)], trace.WithInstrumentationVersion("v1"),
			trace.WithSchemaURL("https://example.com/schema"),
			trace.WithInstrumentationAttributes(attribute.String("scope", "yes")))
		opts := []trace.SpanStartOption{trace.WithAttributes(attrs(r, 12)...),
			trace.WithSpanKind(trace.SpanKind(r.IntN(7)))}
		if r.IntN(2) == 0 {
			opts = append(opts, trace.WithTimestamp(time.Unix(0, r.Int64N(1<<60))))
		}
		var span trace.Span
		inner, span := tracer.Start(ctx, fmt.Sprint("span ", r.IntN(9)), opts...)
		for range r.IntN(5) {
			span.AddEvent("event", trace.WithAttributes(attrs(r, 8)...))
			span.AddLink(trace.Link{SpanContext: trace.SpanContextFromContext(ctx), Attributes: attrs(r, 8)})
			span.AddLink(trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{9},
				SpanID:     trace.SpanID{9},
				TraceFlags: 1, Remote: true}), Attributes: attrs(r, 2)})
		}
		span.SetStatus(codes.Code(r.IntN(3)), "what went wrong")
		if r.IntN(2) == 0 {
			ctx = inner
		}
		span.End()
	}
}

func tracesJSON(t *testing.T, td ptrace.Traces) string {
	t.Helper()
	b, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	testscale.Must(t, err)
	return string(b)
}

func logsJSON(t *testing.T, ld plog.Logs) string {
	t.Helper()
	b, err := (&plog.JSONMarshaler{}).MarshalLogs(ld)
	testscale.Must(t, err)
	return string(b)
}

// TestTraces checks that converted spans equal those that an OTLP exporter sends, also
// after a conversion back.
func TestTraces(t *testing.T) {
	r, otlp, _ := listen(t)
	for seed := range 200 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		c := &capture{}
		limits := sdktrace.NewSpanLimits()
		limits.AttributeCountLimit, limits.EventCountLimit, limits.LinkCountLimit = 8, 3, 3
		limits.AttributePerEventCountLimit, limits.AttributePerLinkCountLimit = 4, 4
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(c), sdktrace.WithRawSpanLimits(limits),
			sdktrace.WithResource(resource.NewWithAttributes("https://example.com/resource", attrs(rnd, 4)...)))
		record(rnd, tp)
		testscale.Must(t, otlp.ExportSpans(t.Context(), c.spans))
		want := tracesJSON(t, <-r.traces)
		td := otlpfile.Traces(c.spans)
		if d := cmp.Diff(want, tracesJSON(t, td)); d != "" {
			t.Fatalf("seed %d: converted (-OTLP +got):\n%s", seed, d)
		}
		testscale.Must(t, otlp.ExportSpans(t.Context(), otlpfile.Spans(td)))
		if d := cmp.Diff(want, tracesJSON(t, <-r.traces)); d != "" {
			t.Fatalf("seed %d: converted back and sent (-OTLP +got):\n%s", seed, d)
		}
	}
}

// TestLogs is TestTraces for log records.
func TestLogs(t *testing.T) {
	r, _, otlp := listen(t)
	for seed := range 200 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 2))
		c := captureLogs{&capture{}}
		lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(c)),
			sdklog.WithAttributeCountLimit(8),
			sdklog.WithResource(resource.NewWithAttributes("https://example.com/resource", attrs(rnd, 4)...)))
		for range 1 + rnd.IntN(5) {
			logger := lp.Logger([]string{"a", "b"}[rnd.IntN(2)], log.WithInstrumentationVersion("v1"),
				log.WithSchemaURL("https://example.com/schema"),
				log.WithInstrumentationAttributes(attribute.String("scope", "yes")))
			var rec log.Record
			rec.SetEventName([]string{"", "agenttrace.part"}[rnd.IntN(2)])
			rec.SetSeverity(log.Severity(rnd.IntN(28)))
			rec.SetSeverityText("INFO")
			if rnd.IntN(2) == 0 {
				rec.SetTimestamp(time.Unix(0, rnd.Int64N(1<<60)))
			}
			if rnd.IntN(3) > 0 {
				rec.SetBody(value(rnd, 0))
			}
			rec.AddAttributes(attrs(rnd, 12)...)
			ctx := t.Context()
			if rnd.IntN(2) == 0 {
				ctx = trace.ContextWithSpanContext(ctx,
					trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
						TraceFlags: 1}))
			}
			logger.Emit(ctx, rec)
		}
		testscale.Must(t, otlp.Export(t.Context(), c.records))
		sent := <-r.logs
		ld := otlpfile.Logs(c.records)
		if d := cmp.Diff(logsJSON(t, sent), logsJSON(t, ld)); d != "" {
			t.Fatalf("seed %d: converted (-OTLP +got):\n%s", seed, d)
		}
		testscale.Must(t, otlp.Export(t.Context(), otlpfile.Records(ld)))
		again := <-r.logs
		for _, ld := range []plog.Logs{sent, again} { // the SDK does not restore the dropped counts
			for _, rl := range ld.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, rec := range sl.LogRecords().All() {
						rec.SetDroppedAttributesCount(0)
					}
				}
			}
		}
		if d := cmp.Diff(logsJSON(t, sent), logsJSON(t, again)); d != "" {
			t.Fatalf("seed %d: converted back and sent (-OTLP +got):\n%s", seed, d)
		}
	}
}

func TestNothing(t *testing.T) {
	if n := otlpfile.Traces([]sdktrace.ReadOnlySpan{nil}).ResourceSpans().Len(); n != 0 {
		t.Errorf("%d resources of no span", n)
	}
	if all := otlpfile.Spans(ptrace.NewTraces()); len(all) != 0 {
		t.Errorf("%d spans of nothing", len(all))
	}
	if all := otlpfile.Records(otlpfile.Logs(nil)); len(all) != 0 {
		t.Errorf("%d records of nothing", len(all))
	}
}
