package spool

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// counting is an exporter that notes how large its requests are.
type counting struct{ spans, bytes []int }

func (c *counting) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	n := 0
	for _, s := range spans {
		for _, kv := range s.Attributes() {
			n += len(kv.Value.String())
		}
	}
	c.spans, c.bytes = append(c.spans, len(spans)), append(c.bytes, n)
	return nil
}

func (c *counting) Shutdown(context.Context) error { return nil }

// TestRequestBytes: a batch of large spans goes out in several requests, each below
// what receivers take, and one that is larger by itself goes alone.
func TestRequestBytes(t *testing.T) {
	var stubs tracetest.SpanStubs
	for _, size := range []int{1, 1, 1, 1, 20, 1, 1} { // MiB
		stubs = append(stubs, tracetest.SpanStub{Name: "tool.call", Attributes: []attribute.KeyValue{
			attribute.String("gen_ai.tool.call.result", strings.Repeat("x", size<<19)),
			attribute.StringSlice("parts", []string{strings.Repeat("y", size<<19)}),
		}})
	}
	c := new(counting)
	e, err := Open(t.TempDir(), Options{Spans: c})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SpanExporter().ExportSpans(t.Context(), stubs.Snapshots()); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []int{2, 2, 1, 2}; !slices.Equal(c.spans, want) {
		t.Errorf("requests of %v spans and %v bytes, want %v", c.spans, c.bytes, want)
	}
}
