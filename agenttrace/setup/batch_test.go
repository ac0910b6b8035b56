package setup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// refusing is a receiver that accepts requests of at most a number of bytes.
type refusing struct {
	maximum int
	sizes   []int
	spans   []sdktrace.ReadOnlySpan
}

func (r *refusing) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	size := (&ptrace.ProtoMarshaler{}).TracesSize(otlpfile.Traces(spans))
	if size > r.maximum {
		return fmt.Errorf("received message larger than max (%d vs. %d)", size, r.maximum)
	}
	r.sizes = append(r.sizes, size)
	r.spans = append(r.spans, spans...)
	return nil
}

func (r *refusing) Shutdown(context.Context) error { return nil }

// TestRequestsStayBelowWhatReceiversTake checks that the estimated size is never less
// than the encoded size, for any attributes.
func TestRequestsStayBelowWhatReceiversTake(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	text := func() string { return strings.Repeat("é", r.IntN(1<<r.IntN(14))) }
	value := func() attribute.Value {
		switch r.IntN(9) {
		case 0:
			return attribute.Int64Value(-r.Int64())
		case 1:
			return attribute.Float64SliceValue(make([]float64, r.IntN(2000)))
		case 2:
			all := make([]int64, r.IntN(2000))
			for i := range all {
				all[i] = -1
			}
			return attribute.Int64SliceValue(all)
		case 3:
			return attribute.BoolSliceValue(make([]bool, r.IntN(2000)))
		case 4:
			return attribute.StringSliceValue(make([]string, r.IntN(20000)))
		case 5:
			return attribute.StringSliceValue([]string{text(), text()})
		case 6:
			return attribute.MapValue(attribute.String("k", text()), attribute.Int("n", -1))
		case 7:
			return attribute.SliceValue(attribute.StringValue(text()), attribute.BoolValue(true))
		}
		return attribute.StringValue(text())
	}
	var stubs tracetest.SpanStubs
	for i := range 1000 {
		s := tracetest.SpanStub{Name: text(), Resource: resource.NewSchemaless(attribute.String("r", text()),
			attribute.Int("i", i/7))}
		for k := range r.IntN(30) {
			s.Attributes = append(s.Attributes, attribute.KeyValue{Key: attribute.Key(fmt.Sprint("key", k)),
				Value: value()})
		}
		for range r.IntN(3) {
			s.Events = append(s.Events,
				sdktrace.Event{Name: "e", Attributes: []attribute.KeyValue{{Key: "x", Value: value()}},
					Time: time.Now()})
		}
		stubs = append(stubs, s)
	}
	to := &refusing{maximum: setup.MaxRequestBytes}
	testscale.Must(t, setup.BoundSpans(to).ExportSpans(t.Context(), stubs.Snapshots()))
	if len(to.spans) != 1000 || len(to.sizes) < 2 {
		t.Errorf("%d spans in %d requests", len(to.spans), len(to.sizes))
	}
	for i, s := range to.spans {
		if s.Name() != stubs[i].Name {
			t.Fatalf("span %d is another", i)
		}
	}
}

// errorsOf returns the errors that otel.Handle gets while f runs.
func errorsOf(f func()) (errs []error) {
	var mu sync.Mutex
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { mu.Lock(); errs = append(errs, err); mu.Unlock() }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	f()
	return errs
}

// TestASpanTooLargeForItsReceiverIsCutAndCostsNoOther also checks that parts stay JSON.
func TestASpanTooLargeForItsReceiverIsCutAndCostsNoOther(t *testing.T) {
	part := func(n int) string {
		return `{"id":"prt_1","data":{"type":"text","text":"` + strings.Repeat("word ", n/5) + `"}}`
	}
	stubs := tracetest.SpanStubs{
		{Name: "before", Attributes: []attribute.KeyValue{attribute.String("a", "b")}},
		{Name: "turn", Attributes: []attribute.KeyValue{
			attribute.String("session.id", "ses_1"), attribute.StringSlice("parts",
				[]string{part(5 << 20), part(40), part(3 << 20)}),
			attribute.String("output", `"`+strings.Repeat("x", 100<<10)+`"`),
		}, Events: []sdktrace.Event{{Name: "exception",
			Attributes: []attribute.KeyValue{attribute.String("exception.stacktrace", strings.Repeat("s", 1<<20))}}}},
		{Name: "after"},
	}
	to := &refusing{maximum: 4 << 20}
	errs := errorsOf(func() {
		if err := setup.BoundSpans(to).ExportSpans(t.Context(), stubs.Snapshots()); err != nil {
			t.Error(err)
		}
	})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "turn") {
		t.Errorf("reported: %v", errs)
	}
	if len(to.spans) != 3 {
		t.Fatalf("%d spans arrived", len(to.spans))
	}
	for _, kv := range to.spans[1].Attributes() {
		for _, s := range append(kv.Value.AsStringSlice(), kv.Value.AsString()) {
			if s != "" && kv.Key != "session.id" && !json.Valid([]byte(s)) {
				t.Errorf("%s is no JSON any more: %.80s", kv.Key, s)
			}
		}
		switch kv.Key {
		case "session.id":
			if kv.Value.AsString() != "ses_1" {
				t.Errorf("session.id = %q", kv.Value.AsString())
			}
		case "parts":
			if all := kv.Value.AsStringSlice(); all[1] != part(40) || len(all[0]) < 400<<10 {
				t.Errorf("parts of %d, %d and %d bytes", len(all[0]), len(all[1]), len(all[2]))
			}
		case "output":
			if len(kv.Value.AsString()) != 100<<10+2 {
				t.Error("a short value was cut, too")
			}
		}
	}
	// A span that the receiver accepts is not truncated, whatever its size.
	to = &refusing{maximum: 64 << 20}
	if err := setup.BoundSpans(to).ExportSpans(t.Context(), stubs.Snapshots()); err != nil ||
		len(to.spans[1].Events()[0].Attributes[0].Value.AsString()) != 1<<20 {
		t.Errorf("error %v", err)
	}
}

// down is a receiver that cannot be reached.
type down struct{ asked int }

func (d *down) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	d.asked++
	return errors.New("connection refused")
}
func (d *down) Shutdown(context.Context) error { return nil }

func TestAnExportEndsWithItsContext(t *testing.T) {
	stubs := tracetest.SpanStubs{}
	for range 5 {
		stubs = append(stubs,
			tracetest.SpanStub{Attributes: []attribute.KeyValue{attribute.String("a", strings.Repeat("x", 2<<20))}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := new(down)
	err := setup.BoundSpans(d).ExportSpans(ctx, stubs.Snapshots())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "5 spans") || d.asked != 0 {
		t.Errorf("asked %d times, error %v", d.asked, err)
	}
	if err := setup.BoundSpans(d).ExportSpans(t.Context(), stubs.Snapshots()); err == nil || d.asked != 5 {
		t.Errorf("asked %d times, error %v", d.asked, err)
	}
}

// logSizes records the sizes of requests and refuses those of more than 4 MiB.
type logSizes struct{ records []sdklog.Record }

func (l *logSizes) Export(_ context.Context, records []sdklog.Record) error {
	size := 0
	for i := range records {
		records[i].WalkAttributes(func(kv attribute.KeyValue) bool { size += len(kv.Value.String()); return true })
		if !utf8.ValidString(records[i].EventName() + records[i].Body().AsString()) {
			return errors.New("string field contains invalid UTF-8")
		}
	}
	if size > 4<<20 {
		return errors.New("too large")
	}
	for _, r := range records {
		l.records = append(l.records, r.Clone())
	}
	return nil
}
func (*logSizes) Shutdown(context.Context) error   { return nil }
func (*logSizes) ForceFlush(context.Context) error { return nil }

// keepRecords is a processor that stores emitted records.
type keepRecords struct{ records []sdklog.Record }

func (k *keepRecords) OnEmit(_ context.Context, r *sdklog.Record) error {
	k.records = append(k.records, r.Clone())
	return nil
}
func (*keepRecords) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*keepRecords) Shutdown(context.Context) error                         { return nil }
func (*keepRecords) ForceFlush(context.Context) error                       { return nil }

func TestLogRecordsAreBoundedLikewise(t *testing.T) {
	kept := new(keepRecords)
	logger := sdklog.NewLoggerProvider(sdklog.WithProcessor(kept)).Logger("agent")
	for _, size := range []int{1 << 20, 2 << 20, 2 << 20, 9 << 20, 10} {
		var r log.Record
		r.SetEventName("agenttrace.part")
		r.SetBody(attribute.StringValue("\xff"[size>>21&1:])) // not of the two of 2 MiB
		r.AddAttributes(attribute.String("parts", strings.Repeat("x", size)))
		logger.Emit(t.Context(), r)
	}
	all, to := kept.records, new(logSizes)
	errs := errorsOf(func() {
		if err := setup.BoundLogs(to).Export(t.Context(), all); err != nil {
			t.Error(err)
		}
	})
	if len(to.records) != 5 || len(errs) != 3 {
		t.Errorf("%d records arrived, reported %v", len(to.records), errs)
	}
}

// grpcReceiver is an OTLP receiver with the limit of gRPC: 4 MiB.
type grpcReceiver struct {
	ptraceotlp.UnimplementedGRPCServer
	mu    sync.Mutex
	spans int
	tools int
}

func (r *grpcReceiver) Export(_ context.Context, req ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.Traces().ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				r.spans++
				if v, ok := s.Attributes().Get("gen_ai.tool.call.result"); ok && len(v.Str()) > 1<<20-100 {
					r.tools++
				}
			}
		}
	}
	return ptraceotlp.NewExportResponse(), nil
}

// TestATurnOfEightyLargeResultsArrives uses the exporter of docs/instrument.md and a receiver with the
// default limit, beside a span of other instrumentation with what a client of the server sent.
func TestATurnOfEightyLargeResultsArrives(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	testscale.Must(t, err)
	r, server := new(grpcReceiver), grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, r)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(listener.Addr().String()))
	testscale.Must(t, err)
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(setup.BoundSpans(client), sdktrace.WithBlocking()))
	ctx, run := agenttrace.New(agenttrace.Options{TracerProvider: tp}).NewSession(t.Context(),
		agenttrace.SessionOptions{ID: "s\xff", Agent: "coder"}).StartRun(t.Context(), agenttrace.RunOptions{})
	_, request := tp.Tracer("http").Start(ctx, "GET \xff", trace.WithAttributes(
		attribute.Map("\xff", attribute.String("user_agent", "\xff"))))
	request.AddEvent("\xff")
	request.SetStatus(codes.Error, "\xff")
	request.End()
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	large := strings.Repeat("word ", 1<<20/5-10)
	for range 80 {
		_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "read", Input: map[string]any{}})
		tool.End(large)
	}
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	if err := tp.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if r.spans != 83 || r.tools != 80 {
		t.Errorf("%d spans and %d results arrived, want 83 and 80", r.spans, r.tools)
	}
}
