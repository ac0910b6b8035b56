package collector_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// BenchmarkSenderBesideAChain stores one trace whose spans are each the child of the one before, in one request and in
// several that arrive in the reverse order. Another sender exports one span after the other at the same time, and its
// longest wait is reported.
func BenchmarkSenderBesideAChain(b *testing.B) {
	for _, n := range []int{2000, 8000, 20000} {
		for _, requests := range []int{1, 20} {
			b.Run(fmt.Sprintf("spans=%d/requests=%d", n, requests), func(b *testing.B) {
				var longest time.Duration
				var cpu float64
				for i := range b.N {
					path := filepath.Join(b.TempDir(), fmt.Sprint(i), "s.db")
					endpoint, stop := startPipeline(b, fmt.Sprintf("session: {path: %q}", path))
					bodies := chain(b, "chain", 2, n, requests)
					send(b, endpoint, chain(b, "warm", 1, 1, 1), 1)
					var end atomic.Bool
					done := make(chan time.Duration)
					go func() {
						var longest time.Duration
						for k := uint64(100); !end.Load(); k++ {
							begin := time.Now()
							send(b, endpoint, chain(b, "other", k, 1, 1), 1)
							longest = max(longest, time.Since(begin))
						}
						done <- longest
					}()
					begin := testscale.CPUSeconds()
					send(b, endpoint, bodies, 1)
					cpu += testscale.CPUSeconds() - begin
					end.Store(true)
					longest = max(longest, <-done)
					stop()
				}
				b.ReportMetric(longest.Seconds(), "longest-wait-s")
				b.ReportMetric(cpu/float64(b.N), "CPU-s")
			})
		}
	}
}

// chain returns requests with n model calls of a conversation, each the child of the one before it. The last of them is
// in the first request.
func chain(b *testing.B, conversation string, trace uint64, n, requests int) (bodies [][]byte) {
	b.Helper()
	const begin = pcommon.Timestamp(1_760_000_000_000_000_000)
	for last := n; last > 0; {
		first := max(0, last-(n+requests-1)/requests)
		td := ptrace.NewTraces()
		all := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		for i := first; i < last; i++ {
			s := all.AppendEmpty()
			s.SetName("chat m")
			s.Attributes().PutStr("gen_ai.operation.name", "chat")
			s.Attributes().PutStr("gen_ai.conversation.id", conversation)
			s.Attributes().PutStr("gen_ai.request.model", "m")
			s.Attributes().PutStr("gen_ai.response.id", fmt.Sprint("r", trace, "-", i))
			id := pcommon.TraceID{}
			binary.BigEndian.PutUint64(id[:], trace)
			s.SetTraceID(id)
			s.SetSpanID(pcommon.SpanID(binary.BigEndian.AppendUint64(nil, uint64(i+1))))
			if i > 0 {
				s.SetParentSpanID(pcommon.SpanID(binary.BigEndian.AppendUint64(nil, uint64(i))))
			}
			s.SetStartTimestamp(begin + pcommon.Timestamp(i)*1e6)
			s.SetEndTimestamp(begin + pcommon.Timestamp(2*n-i)*1e6)
		}
		body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		if err != nil {
			b.Fatal(err)
		}
		bodies, last = append(bodies, body), first
	}
	return bodies
}
