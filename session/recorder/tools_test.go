package recorder_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestToolsAreShownWithTheirResultsAndTheTimeThatTheyRan stores a call that is announced a minute before it runs for a
// second, and one whose result comes after its turn, whatever order the spans arrive in.
func TestToolsAreShownWithTheirResultsAndTheTimeThatTheyRan(t *testing.T) {
	now := time.UnixMilli(1795198540000)
	exporter := tracetest.NewInMemoryExporter()
	tracer := agenttrace.New(agenttrace.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), Now: func() time.Time { return now },
	})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{ID: "ses_1", Agent: "coder"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", Input: "ls", Inferred: true})
	now = now.Add(time.Minute)
	_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash", Input: "ls"})
	now = now.Add(time.Second)
	tool.End("a.go")
	turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_2", Name: "slow", Input: "ls"})
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	now = now.Add(time.Second)
	turn.Tool("call_2").End("b.go")

	for _, order := range []string{"as they ended", "last first"} {
		spans := exporter.GetSpans().Snapshots()
		if order == "last first" {
			slices.Reverse(spans)
		}
		rec := open(t, recorder.Options{})
		if err := errors.Join(rec.SpanExporter().ExportSpans(t.Context(), spans),
			rec.ForceFlush(t.Context())); err != nil {
			t.Fatal(err)
		}
		got, err := document.Load(t.Context(), rec.Reader(), "ses_1")
		if err != nil {
			t.Fatal(err)
		}
		var calls []*document.ToolCall
		for c := range got.ToolCalls() {
			calls = append(calls, c)
		}
		if len(calls) != 2 {
			t.Fatalf("%s: the session has %d calls, want 2", order, len(calls))
		}
		for i, want := range []struct {
			output string
			ms     int64
		}{{`"a.go"`, 1000}, {`"b.go"`, 1000}} {
			if c := calls[i]; string(c.Output) != want.output || c.DurationMS == nil || *c.DurationMS != want.ms {
				t.Errorf("%s: call %s has output %s, duration %v; want %+v", order, c.CallID, c.Output, c.DurationMS,
					want)
			}
		}
		stats, err := rec.Reader().Stats(t.Context(), store.StatsQuery{By: []store.StatsBy{store.StatsByTool}})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range stats.Groups {
			if g.MedianMS == nil || *g.MedianMS != 1000 {
				t.Errorf("%s: stats of %s: median %v ms, want 1000", order, g.Key, g.MedianMS)
			}
		}
		if err := rec.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

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
		if err := rec.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		doc, err := document.Load(t.Context(), rec.Reader(), "ses_1")
		if err != nil {
			t.Fatal(err)
		}
		check(t, rec.Reader())
		if err := rec.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		for _, row := range rows(t, rec.Path()) {
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
