package spool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.opentelemetry.io/collector/pdata/ptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/spool"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// away is the OTLP exporter of a collector that is not there.
type away struct{}

func (away) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("connection refused")
}
func (away) Shutdown(context.Context) error { return nil }

// An agent that cannot reach its collector ends with nothing lost.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	exp, err := spool.Open(dir, spool.Options{Spans: away{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exp.SpanExporter()))
	_, span := provider.Tracer("agent").Start(ctx, "work")
	span.End()
	err = errors.Join(provider.Shutdown(ctx), exp.Close(ctx))
	s := exp.Stats()
	fmt.Println(s.Spooled.Spans, "spooled,", s.Lost.Spans, "lost,", err)
	// Output: 1 spooled, 0 lost, <nil>
}

// What agents have spooled goes into a session store.
func ExampleDrain() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "sessions.db"), sqlite.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ingester := ingest.New(store, ingest.Options{})
	report, err := spool.Drain(ctx, filepath.Join(dir, "spool"),
		spool.Sink{Traces: func(ctx context.Context, td ptrace.Traces) error {
			_, err := ingester.Traces(ctx, td)
			return err
		}})
	fmt.Println(report.Spans, "spans,", errors.Join(err, store.Close()))
	// Output: 0 spans, <nil>
}
