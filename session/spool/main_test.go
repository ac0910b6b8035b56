package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

func TestMain(m *testing.M) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		handled.Lock()
		defer handled.Unlock()
		handled.errs = append(handled.errs, err)
	}))
	goleak.VerifyTestMain(m)
}

// handled has the errors that the error handler got.
var handled struct {
	sync.Mutex
	errs []error
}

// errorsSince returns the errors since it was last called.
func errorsSince() []error {
	handled.Lock()
	defer handled.Unlock()
	all := handled.errs
	handled.errs = nil
	return all
}

var service = resource.NewSchemaless(attribute.String("service.name", "coder"))

// spansOf makes spans that are named so, with some text in them.
func spansOf(names ...string) []sdktrace.ReadOnlySpan {
	var stubs tracetest.SpanStubs
	for _, name := range names {
		stubs = append(stubs, tracetest.SpanStub{Name: name, Resource: service,
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1},
				SpanID:     trace.SpanID{2},
				TraceFlags: 1}),
			StartTime: time.Unix(1795000000, 0), EndTime: time.Unix(1795000001, 0),
			Attributes: []attribute.KeyValue{attribute.String("text", "of "+name),
				attribute.ByteSlice("bytes", []byte("\x00\x00\x00\x0a\n"))}})
	}
	return stubs.Snapshots()
}

// recordsOf makes log records with such bodies.
func recordsOf(bodies ...string) []sdklog.Record {
	c := &capture{}
	lp := sdklog.NewLoggerProvider(sdklog.WithResource(service), sdklog.WithProcessor(sdklog.NewSimpleProcessor(c)))
	for _, body := range bodies {
		var r log.Record
		r.SetBody(attribute.StringValue(body))
		r.SetTimestamp(time.Unix(1795000000, 0))
		lp.Logger("test").Emit(context.Background(), r)
	}
	return c.records
}

type capture struct{ records []sdklog.Record }

func (c *capture) Export(_ context.Context, all []sdklog.Record) error {
	for _, r := range all {
		c.records = append(c.records, r.Clone())
	}
	return nil
}
func (*capture) ForceFlush(context.Context) error { return nil }
func (*capture) Shutdown(context.Context) error   { return nil }

// network is a collector at the end of an exporter, and that exporter.
type network struct {
	mu    sync.Mutex
	names []string // of what arrived
	calls int
	// fail, if set, decides about an export.
	fail func(names []string) error
	down bool
}

func (n *network) take(names []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	if n.fail != nil {
		if err := n.fail(names); err != nil {
			return err
		}
	}
	n.names = append(n.names, names...)
	return nil
}

func (n *network) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	var names []string
	for _, s := range spans {
		names = append(names, s.Name())
	}
	return n.take(names)
}

func (n *network) Shutdown(context.Context) error {
	n.down = true
	return nil
}

type logNetwork struct{ *network }

func (n logNetwork) Export(_ context.Context, records []sdklog.Record) error {
	var names []string
	for _, r := range records {
		names = append(names, r.Body().AsString())
	}
	return n.take(names)
}
func (logNetwork) ForceFlush(context.Context) error { return nil }

var errNetwork = errors.New("connection refused")

func unreachable([]string) error { return errNetwork }

// sink collects what is drained.
func (n *network) sink() Sink {
	return Sink{
		Traces: func(_ context.Context, td ptrace.Traces) error { return n.take(namesOf(td, plog.NewLogs())) },
		Logs:   func(_ context.Context, ld plog.Logs) error { return n.take(namesOf(ptrace.NewTraces(), ld)) },
	}
}

func namesOf(td ptrace.Traces, ld plog.Logs) []string {
	var names []string
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				names = append(names, s.Name())
			}
		}
	}
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				names = append(names, r.Body().AsString())
			}
		}
	}
	return names
}

// open opens an exporter that is closed with the test.
func open(t testing.TB, root string, o Options) *Exporter {
	t.Helper()
	e, err := Open(root, o)
	testscale.Must(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

// die ends an exporter as the death of its process would: nothing is flushed.
func die(t testing.TB, e *Exporter) {
	t.Helper()
	e.writer.mu.Lock()
	defer e.writer.mu.Unlock()
	e.writer.closed.Store(true)
}

func export(t testing.TB, e *Exporter, names ...string) {
	t.Helper()
	testscale.Must(t, e.SpanExporter().ExportSpans(context.Background(), spansOf(names...)))
}

// spooled reads all that is in a spool: the names, and what is damaged.
func spooled(t testing.TB, root string) (names []string, damages []error) {
	t.Helper()
	files, err := Files(root)
	testscale.Must(t, err)
	for _, path := range files {
		b := testscale.ReadFile(t, path)
		more, bad := read(bytes.NewReader(b))
		names, damages = append(names, more...), append(damages, bad...)
	}
	return names, damages
}

func read(r io.Reader) (names []string, damages []error) {
	for body, err := range otlpfile.Read(r, otlpfile.Options{}) {
		if err != nil {
			damages = append(damages, err)
			continue
		}
		names = append(names, namesOf(body.Traces, body.Logs)...)
	}
	return names, damages
}

// fileBytes is a spool file with a record of each name.
func fileBytes(t testing.TB, names ...string) (all []byte) {
	t.Helper()
	root := t.TempDir()
	e := open(t, root, Options{})
	for _, name := range names {
		export(t, e, name)
	}
	die(t, e)
	files, err := Files(root)
	if err != nil || len(files) != len(names) {
		t.Fatalf("files %q, %v", files, err)
	}
	for _, path := range files {
		b := testscale.ReadFile(t, path)
		all = append(all, b...)
	}
	return all
}

// write makes a spool with one file.
func write(t testing.TB, content []byte) (root, path string) {
	t.Helper()
	root = t.TempDir()
	path = filepath.Join(root, "20260101T000000.000-1-00000000-00000001.pb")
	testscale.WriteFile(t, path, content)
	return root, path
}

func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return all
}

func sorted(all []string) string {
	all = slices.Clone(all)
	slices.Sort(all)
	return strings.Join(all, " ")
}
