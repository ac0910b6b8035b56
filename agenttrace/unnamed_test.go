package agenttrace_test

import (
	"encoding/json"
	"testing"

	. "github.com/agenttrace/agenttrace/agenttrace"
)

// TestACallWithoutItsIDIsTheInferredOne has layers that know the name and the input of a call.
func TestACallWithoutItsIDIsTheInferredOne(t *testing.T) {
	for _, c := range []struct {
		name string
		o    ToolOptions
		want string
	}{
		{"input in another order", ToolOptions{Name: "ls", Input: map[string]any{"b": 2, "a": 1.0}}, "call_1"},
		{"raw input", ToolOptions{Name: "ls", RawInput: json.RawMessage(`{"b":2, "a":1}`)}, "call_1"},
		{"text", ToolOptions{Name: "sh", Input: "make test"}, "call_2"},
		{"another tool", ToolOptions{Name: "rm", Input: map[string]any{"a": 1, "b": 2}}, ""},
		{"other input", ToolOptions{Name: "ls", Input: map[string]any{"a": 1}}, "call_1"},
		{"no input", ToolOptions{Name: "ls"}, ""},
		{"inferred, too", ToolOptions{Name: "sh", Input: "make test", Inferred: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, ctx, turn := begin(t, Options{})
			turn.StartTool(ctx, ToolOptions{
				ID: "call_1", Name: "ls", Input: json.RawMessage(`{"a":1,"b":2}`), Inferred: true,
			})
			turn.StartTool(ctx, ToolOptions{ID: "call_2", Name: "sh", Input: "make test", Inferred: true})
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
