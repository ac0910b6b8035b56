package spool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// BenchmarkExport spools one span with a result of some size. The floor converts it to OTLP in protobuf and appends
// that to a file, with nothing that a spool adds.
func BenchmarkExport(b *testing.B) {
	for _, size := range []int{500, 10_000, 100_000, 1_000_000} {
		span := tracetest.SpanStub{Name: "tool.call", Resource: service, SpanContext: spansOf("")[0].SpanContext(),
			Attributes: []attribute.KeyValue{
				attribute.String("session.id", "ses_0123456789abcdef"),
				attribute.String("gen_ai.tool.call.id", "call_1"),
				attribute.String("gen_ai.tool.call.result", strings.Repeat("0123456789abcdefghij", size/20)),
			}}
		spans := []sdktrace.ReadOnlySpan{span.Snapshot()}
		run := func(name string, export func() error) {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := export(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		f, err := create(filepath.Join(b.TempDir(), "floor"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		written := 0
		run("floor", func() error {
			body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(otlpfile.Traces(spans))
			if err == nil {
				_, err = f.Write(body)
			}
			if written += len(body); written > 8<<20 {
				written, err = 0, f.Truncate(0)
			}
			return err
		})
		for _, o := range []struct {
			name string
			Options
		}{
			{"never", Options{Sync: SyncNever}}, {"interval", Options{}},
			{"full", Options{Sync: SyncNever, MaxTotalBytes: 32 << 20}},
			{"every", Options{Sync: SyncEvery}},
		} {
			e := open(b, b.TempDir(), o.Options)
			run(o.name, func() error { return e.SpanExporter().ExportSpans(context.Background(), spans) })
			if err := e.Close(context.Background()); err != nil && o.MaxTotalBytes == 0 {
				b.Log(err)
			}
			_ = os.RemoveAll(filepath.Dir(e.Dir()))
		}
	}
}
