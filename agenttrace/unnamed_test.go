package agenttrace_test

import (
	"encoding/json"
	"testing"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
)

// TestACallWithoutItsIDIsTheInferredOne has layers that know the name and the input of a call.
func TestACallWithoutItsIDIsTheInferredOne(t *testing.T) {
	for _, c := range []struct {
		name string
		o    agenttrace.ToolOptions
		want string
	}{
		{"input in another order", agenttrace.ToolOptions{Name: "ls", Input: map[string]any{"b": 2, "a": 1.0}},
			"call_1"},
		{"raw input", agenttrace.ToolOptions{Name: "ls", RawInput: json.RawMessage(`{"b":2, "a":1}`)}, "call_1"},
		{"text", agenttrace.ToolOptions{Name: "sh", Input: "make test"}, "call_2"},
		{"another tool", agenttrace.ToolOptions{Name: "rm", Input: map[string]any{"a": 1, "b": 2}}, ""},
		{"other input", agenttrace.ToolOptions{Name: "ls", Input: map[string]any{"a": 1}}, ""},
		{"no input", agenttrace.ToolOptions{Name: "ls"}, ""},
		{"inferred, too", agenttrace.ToolOptions{Name: "sh", Input: "make test", Inferred: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := agenttracetest.NewRecorder()
			ctx, run := agenttrace.New(agenttrace.Options{TracerProvider: rec}).
				NewSession(t.Context(), agenttrace.SessionOptions{}).StartRun(t.Context(), agenttrace.RunOptions{})
			ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "?"}, agenttrace.TurnOptions{})
			turn.StartTool(ctx, agenttrace.ToolOptions{
				ID: "call_1", Name: "ls", Input: json.RawMessage(`{"a":1,"b":2}`), Inferred: true,
			})
			turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_2", Name: "sh", Input: "make test", Inferred: true})
			_, first := turn.StartTool(ctx, c.o)
			_, second := turn.StartTool(ctx, c.o)
			if got := first.ID(); c.want != "" && got != c.want ||
				c.want == "" && (got == "call_1" || got == "call_2") {
				t.Errorf("the call is %q, want %q", got, c.want)
			}
			if second.ID() == first.ID() {
				t.Errorf("two calls are both %q", first.ID())
			}
		})
	}
}
