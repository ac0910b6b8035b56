package ingest_test

import (
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// BenchmarkRedaction is BenchmarkIngest on telemetry without secrets, with and
// without a redactor as the exporter has it by default: the difference is what
// looking for secrets costs.
func BenchmarkRedaction(b *testing.B) {
	redactor, err := redact.New(redact.Config{MaxBytes: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	bodies, spanCount, payload := requests(400, 10)
	for _, to := range []struct {
		name string
		open func(b *testing.B) store.Writer
	}{
		{"decode", func(*testing.B) store.Writer { return nothing{} }},
		{"sqlite", func(b *testing.B) store.Writer {
			s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "sessions.db"), sqlitestore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Close() })
			return s
		}},
	} {
		for _, with := range []struct {
			name     string
			redactor *redact.Redactor
		}{{"off", nil}, {"on", redactor}} {
			b.Run(to.name+"/"+with.name, func(b *testing.B) {
				var cpu float64
				b.SetBytes(payload)
				b.ReportAllocs()
				for range b.N {
					b.StopTimer()
					in := ingest.New(to.open(b), ingest.Options{Redactor: with.redactor})
					unmarshaler := ptrace.ProtoUnmarshaler{}
					b.StartTimer()
					begin := cpuSeconds()
					for _, body := range bodies {
						td, err := unmarshaler.UnmarshalTraces(body)
						if err != nil {
							b.Fatal(err)
						}
						if _, err := in.Traces(b.Context(), td); err != nil {
							b.Fatal(err)
						}
					}
					cpu += cpuSeconds() - begin
				}
				b.ReportMetric(float64(spanCount)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
				b.ReportMetric(cpu/float64(b.N)/float64(spanCount)*1e5, "CPU-s/100k")
			})
		}
	}
}
