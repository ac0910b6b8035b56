package ingest_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestNoiseDoesNotAllocate: a span of which no dialect knows anything costs no
// memory, whether or not it names a session.
func TestNoiseDoesNotAllocate(t *testing.T) {
	noise := func(n int) ptrace.Traces {
		td := ptrace.NewTraces()
		for _, r := range readCapture(t, "testdata/captures/codex-cli-0.169.0/exec-shell") {
			if r.isLogs {
				continue
			}
			testscale.EachSpan(r.traces, func(s ptrace.Span, scope pcommon.InstrumentationScope,
				resource pcommon.Resource) {
				known := dialect.NewSpan(s, scope, resource)
				if dialect.OfSpan(&known) != nil {
					return
				}
				ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
				for range n {
					sp := ss.Spans().AppendEmpty()
					s.CopyTo(sp)
					sp.SetTraceID(pcommon.TraceID{1})
					sp.Attributes().PutStr("session.id", "s1")
				}
			})
		}
		for _, name := range []string{"GET", "POST /api/chat", "SELECT agents", "redis.get"} {
			ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
			for range n {
				sp := ss.Spans().AppendEmpty()
				sp.SetName(name)
				sp.SetTraceID(pcommon.TraceID{1})
				sp.Attributes().PutStr("http.request.method", "GET")
				sp.Attributes().PutStr("server.address", "example.com")
				sp.Attributes().PutInt("http.response.status_code", 200)
				sp.Attributes().PutStr("session.id", "s1")
			}
		}
		return td
	}
	in := ingest.New(nothing{}, ingest.Options{})
	count := func(td ptrace.Traces) float64 {
		return testing.AllocsPerRun(20, func() {
			r, err := in.Traces(t.Context(), td)
			if err != nil || r.Accepted != 0 {
				t.Fatalf("placed %d: %v", r.Accepted, err)
			}
		})
	}
	few, many := noise(1), noise(20)
	if x, y := count(few), count(many); y > x+1 {
		t.Errorf("%d spans cost %v allocations, %d cost %v", few.SpanCount(), x, many.SpanCount(), y)
	}
}

type nothing struct{}

func (nothing) Apply(context.Context, *store.Batch) (store.Result, error) { return store.Result{}, nil }
