package recorder_test

import (
	"context"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// TestContentThatIsCapturedForOtherToolsIsStoredOnce runs an agent whose model calls repeat
// the turn, and reads every row.
func TestContentThatIsCapturedForOtherToolsIsStoredOnce(t *testing.T) {
	stored := func(capture bool) (found int, tokens int64) {
		rec := open(t, recorder.Options{})
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(rec.SpanExporter()))
		tracer := agenttrace.New(agenttrace.Options{TracerProvider: tp, CaptureContent: capture})
		sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{ID: "ses_1", Agent: "coder"})
		ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{Model: agenttrace.Model{Provider: "p", ID: "m"}})
		ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "zebra"},
			agenttrace.TurnOptions{SystemPrompt: "zebra 2",
				Tools: []agenttrace.Tool{{Name: "zebra_3"}}})
		for range 3 {
			_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
			call.Text("zebra 4")
			call.End(agenttrace.ModelResult{Usage: agenttrace.InclusiveUsage{Input: 10, CacheWrite: 4, Output: 5}}, nil)
		}
		turn.End(agenttrace.TurnResult{})
		run.End(nil)
		testscale.Must(t, rec.ForceFlush(t.Context()))
		doc, err := document.Load(t.Context(), rec.Reader(), "ses_1")
		testscale.Must(t, err)
		check(t, rec.Reader())
		testscale.Must(t, rec.Close(context.WithoutCancel(t.Context())))
		for _, row := range rows(t, rec.Reader().Name()) {
			found += strings.Count(row, "zebra")
		}
		return found, doc.Totals.Usage.Total()
	}
	want, tokens := stored(false)
	if got, sum := stored(true); got != want || sum != tokens || tokens != 45 {
		t.Errorf("the content is stored %d times, want %d; %d tokens, without content %d, want 45", got, want, sum,
			tokens)
	}
}
