package recorder_test

import (
	"errors"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestALimitOnAttributesKeepsTheMessagesAndIsSeen checks that the SDK's limit on
// attributes does not drop the conversation, and that the rows report the loss.
func TestALimitOnAttributesKeepsTheMessagesAndIsSeen(t *testing.T) {
	for _, env := range []string{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", ""} {
		t.Run(env, func(t *testing.T) {
			options := []sdktrace.TracerProviderOption(nil)
			if env != "" {
				t.Setenv(env, "12")
			} else {
				limits := sdktrace.NewSpanLimits()
				limits.AttributeCountLimit = 12
				options = append(options, sdktrace.WithRawSpanLimits(limits))
			}
			rec := open(t, recorder.Options{})
			tp := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(rec.SpanExporter()))...)
			tracer := agenttrace.New(agenttrace.Options{TracerProvider: tp})
			sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{ID: "ses_1", Agent: "coder", Title: "Fix",
				WorkspaceRoot: "/w", UserID: "u", Mode: "m", Metadata: map[string]any{"a": 1}})
			ctx, run := sess.StartRun(t.Context(),
				agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5"}})
			temperature := 0.5
			ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "do the tests pass?",
				Metadata: map[string]any{"client": "cli"}},
				agenttrace.TurnOptions{SystemPrompt: "prompt", Tools: []agenttrace.Tool{{Name: "bash"}},
					Temperature: &temperature})
			_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
			call.Text("They do not.")
			call.End(agenttrace.ModelResult{StopReason: "stop",
				Usage: agenttrace.InclusiveUsage{Input: 7, Output: 3, CacheRead: 1, Reasoning: 1}}, nil)
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "c1", Name: "bash",
				Input: map[string]any{"command": "go test"}, Kind: agenttrace.ToolExecute})
			tool.Fail(errors.New("exit 1"))
			turn.Fail(errors.New("disk full"))
			run.End(nil)

			got := storetest.Transcript(t, rec.Reader(), "ses_1")
			var parts []string
			for _, m := range got.Messages {
				for _, p := range m.Parts {
					parts = append(parts, m.Message.Role+" "+p.DataJSON)
				}
			}
			all := strings.Join(parts, "\n")
			for _, want := range []string{`user {"type":"text","text":"do the tests pass?"}`, "They do not.",
				`"input":{"command":"go test"}`, `"errorText":"exit 1"`} {
				if !strings.Contains(all, want) {
					t.Errorf("the session lacks %s in\n%s", want, all)
				}
			}
			last := got.Messages[len(got.Messages)-1].Message.MetadataJSON
			if !strings.Contains(last, "disk full") ||
				!strings.Contains(last, "attributes were dropped before export") {
				t.Errorf("the answer is %s", last)
			}
		})
	}
}
