package adktrace_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

// TestAModelThatRefuses fails the turn, and leaves nothing open.
func TestAModelThatRefuses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"code":400,"message":"no"}}`, http.StatusBadRequest)
	}))
	defer server.Close()
	for _, stream := range []bool{false, true} {
		rec := agenttracetest.NewRecorder()
		err := weather(&e2e.Console{
			Context: t.Context(), Script: &e2e.Weather, URL: server.URL, HTTP: server.Client(),
			Tracer: agenttrace.New(agenttrace.Options{TracerProvider: rec}), Stream: stream,
		})
		if err == nil {
			t.Error("the model did not refuse")
		}
		turns, calls := rec.All().Turns(), rec.All().ModelCalls()
		if len(turns) != 1 || turns[0].EndReason != "error" || len(calls) != 1 || calls[0].Error == "" {
			t.Errorf("streamed %v: have %d turns and %d calls, want one of each that failed", stream, len(turns),
				len(calls))
		}
		if open := rec.Open(); len(open) > 0 {
			t.Errorf("open: %v", open)
		}
	}
}

// TestACallIsInTheTraceOfADKsOwnSpans: by that a collector knows that the two report the same.
func TestACallIsInTheTraceOfADKsOwnSpans(t *testing.T) {
	server := httptest.NewServer(&e2e.Server{API: e2e.Named("gemini"), Script: &e2e.Weather})
	defer server.Close()
	rec := agenttracetest.NewRecorder()
	defer otel.SetTracerProvider(otel.GetTracerProvider())
	otel.SetTracerProvider(rec)
	_ = weather(&e2e.Console{
		Context: t.Context(), Script: &e2e.Weather, URL: server.URL, HTTP: server.Client(),
		Tracer: agenttrace.New(agenttrace.Options{TracerProvider: rec}),
	})
	calls, own := 0, make(map[string]bool)
	for _, s := range rec.All() {
		id := s.SpanContext.TraceID().String()
		own[id] = own[id] || strings.HasPrefix(s.Name, "invoke_agent")
	}
	for _, s := range rec.All().Named("chat gemini-x") {
		if calls++; !own[s.SpanContext.TraceID().String()] {
			t.Errorf("%s is in a trace without spans of ADK's", s.SpanContext.SpanID())
		}
	}
	if calls == 0 {
		t.Error("no calls")
	}
}
