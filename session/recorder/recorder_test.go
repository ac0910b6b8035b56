package recorder_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/log/noop"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestSameRows runs agents with an SDK that exports to a collector and to a recorder, in
// batches of different sizes. The rows are the same.
func TestSameRows(t *testing.T) {
	viaCollector := filepath.Join(t.TempDir(), "sessions.db")
	c, err := collector.Start(t.Context(), collector.Options{Store: viaCollector})
	testscale.Must(t, err)
	spans, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(c.Endpoint()))
	testscale.Must(t, err)
	logs, err := otlploggrpc.New(t.Context(), otlploggrpc.WithInsecure(), otlploggrpc.WithEndpoint(c.Endpoint()))
	testscale.Must(t, err)
	rec := open(t, recorder.Options{})
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans, sdktrace.WithBlocking()),
		sdktrace.WithBatcher(rec.SpanExporter(), sdktrace.WithBlocking(), sdktrace.WithMaxExportBatchSize(7)))
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(logs)),
		sdklog.WithProcessor(sdklog.NewSimpleProcessor(rec.LogExporter())))
	for seed := range 40 {
		agent(t.Context(), rand.New(rand.NewPCG(uint64(seed), 3)), tp, lp)
	}
	// Traces and log records of other agents, as they were captured.
	captures, err := filepath.Glob("../ingest/testdata/captures/*/*/*.json")
	if err != nil || len(captures) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, name := range captures {
		b := testscale.ReadFile(t, name)
		if td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(b); err == nil && td.SpanCount() > 0 {
			all := otlpfile.Spans(td)
			testscale.Must(t, errors.Join(spans.ExportSpans(t.Context(), all),
				rec.SpanExporter().ExportSpans(t.Context(), all)))
		}
		if ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(b); err == nil && ld.LogRecordCount() > 0 {
			all := otlpfile.Records(ld)
			testscale.Must(t, errors.Join(logs.Export(t.Context(), all),
				rec.LogExporter().Export(t.Context(), all)))
		}
	}
	testscale.Must(t, errors.Join(tp.Shutdown(t.Context()), lp.Shutdown(t.Context()), c.Shutdown(t.Context())))
	if n := check(t, rec.Reader()); n < 40 {
		t.Errorf("%d sessions of 40 agents and more", n)
	}
	testscale.Must(t, rec.Close(t.Context())) // which reports what is not stored
	want, got := rows(t, viaCollector), rows(t, rec.Reader().Name())
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("rows of %d and %d (-collector +recorder):\n%.5000s", len(want), len(got), d)
	}
	if all := strings.Join(got, "\n"); strings.Contains(all, "sk-ant-REDACTED") {
		t.Error("a secret is in the store")
	}
}

// TestLocked checks that the error names the process that has the store, and the remedy.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	c, err := collector.Start(t.Context(), collector.Options{Store: path})
	testscale.Must(t, err)
	_, err = recorder.Open(t.Context(), path, recorder.Options{})
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) ||
		!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "export to it by OTLP") {
		t.Errorf("recorder on the store of a collector: %v", err)
	}
	testscale.Must(t, c.Shutdown(t.Context()))
	rec, err := recorder.Open(t.Context(), path, recorder.Options{})
	testscale.Must(t, err)
	testscale.Must(t, rec.Close(t.Context()))
}

// TestPending checks that spans that cannot be stored now wait, are counted in the errors, and are stored later.
func TestPending(t *testing.T) {
	rec := open(t, recorder.Options{})
	tp := sdktrace.NewTracerProvider()
	c := &capture{}
	tp.RegisterSpanProcessor(sdktrace.NewSimpleSpanProcessor(c))
	agent(t.Context(), rand.New(rand.NewPCG(1, 1)), tp, noop.NewLoggerProvider())
	exp := rec.SpanExporter()

	move := func(from, to string) {
		t.Helper()
		testscale.Must(t, os.Rename(from, to))
	}
	away := rec.Reader().Name() + ".away"
	move(rec.Reader().Name(), away) // the store detects that its file is gone
	err := exp.ExportSpans(t.Context(), c.spans[:3])
	var e *recorder.NotStoredError
	if !errors.As(err, &e) || !errors.Is(err, store.ErrUnavailable) || e.Pending != 3 || e.Lost != 0 {
		t.Fatalf("export without a file: %v", err)
	}
	err = rec.ForceFlush(t.Context())
	if !errors.As(err, &e) || e.Pending != 3 || !errors.Is(err, store.ErrUnavailable) ||
		!strings.Contains(err.Error(), "3 wait for the store") {
		t.Fatalf("flush without a file: %v", err)
	}
	move(away, rec.Reader().Name())
	testscale.Must(t, exp.ExportSpans(t.Context(), c.spans[3:]))
	testscale.Must(t, rec.ForceFlush(t.Context()))
	check(t, rec.Reader())

	// A canceled context loses nothing either.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := exp.ExportSpans(ctx, c.spans[:1]); err != nil && (!errors.As(err, &e) || e.Pending != 1) {
		t.Errorf("export in a context that has ended: %v", err)
	}
	testscale.Must(t, exp.Shutdown(t.Context()))

	// Spans that still wait at Close are lost and reported.
	move(rec.Reader().Name(), away)
	exp = rec.SpanExporter()
	_ = exp.ExportSpans(t.Context(), c.spans[:2])
	if err := rec.Close(t.Context()); !errors.As(err, &e) || e.Lost != 2 || e.Pending != 0 {
		t.Errorf("close without a file: %v", err)
	}
	if err := rec.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := exp.ExportSpans(t.Context(), c.spans[:2]); !errors.Is(err, recorder.ErrClosed) {
		t.Errorf("export after close: %v", err)
	}
}

// TestPendingBound checks that no more than the limit waits, and that the oldest are lost.
func TestPendingBound(t *testing.T) {
	c := &capture{}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(c))
	agent(t.Context(), rand.New(rand.NewPCG(1, 1)), tp, noop.NewLoggerProvider())
	size := (&ptrace.ProtoMarshaler{}).TracesSize(otlpfile.Traces(c.spans[:1]))
	for _, tt := range []struct {
		maximum       int
		pending, lost int64
	}{{-1, 0, 5}, {1, 0, 5}, {2*size + 1, 2, 3}} {
		rec := open(t, recorder.Options{MaxPendingBytes: tt.maximum})
		testscale.Must(t, os.Rename(rec.Reader().Name(), rec.Reader().Name()+".away"))
		for range 5 {
			if err := rec.SpanExporter().ExportSpans(t.Context(), c.spans[:1]); err == nil {
				t.Error("an export to a store without a file succeeded")
			}
		}
		var e *recorder.NotStoredError
		if err := rec.ForceFlush(t.Context()); !errors.As(err, &e) || e.Lost != tt.lost ||
			e.Pending != tt.pending {
			t.Errorf("%d bytes may wait: %v", tt.maximum, err)
		}
		err := rec.ForceFlush(t.Context())
		if tt.pending == 0 && err != nil || tt.pending > 0 && (!errors.As(err, &e) || e.Lost != 0) {
			t.Errorf("what was reported is reported again: %v", err)
		}
	}
}

// capture stores spans.
type capture struct{ spans []sdktrace.ReadOnlySpan }

func (c *capture) ExportSpans(_ context.Context, all []sdktrace.ReadOnlySpan) error {
	c.spans = append(c.spans, all...)
	return nil
}
func (*capture) Shutdown(context.Context) error { return nil }
