package agenttrace_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// TestNilIsSafe calls every exported method of every handle on nil, and every
// method of what that returns.
func TestNilIsSafe(t *testing.T) {
	called := 0
	var call func(v reflect.Value)
	seen := map[reflect.Type]bool{}
	call = func(v reflect.Value) {
		if seen[v.Type()] {
			return
		}
		seen[v.Type()] = true
		for i := range v.NumMethod() {
			name := v.Type().Method(i).Name
			args := make([]reflect.Value, v.Method(i).Type().NumIn())
			for j := range args {
				in := v.Method(i).Type().In(j)
				args[j] = reflect.Zero(in)
				if in == reflect.TypeFor[context.Context]() {
					args[j] = reflect.ValueOf(t.Context())
				}
			}
			t.Run(v.Type().Elem().Name()+"."+name, func(t *testing.T) {
				called++
				for _, out := range v.Method(i).Call(args) {
					switch {
					case out.Type() == reflect.TypeFor[context.Context]():
						if out.IsNil() {
							t.Error("returned a nil context")
						}
					case out.Kind() == reflect.Pointer:
						if !out.IsNil() {
							t.Errorf("returned a %v from nil", out.Type())
						}
						call(out)
					case out.Type() == reflect.TypeFor[agenttrace.Decision]():
						if out.Interface().(agenttrace.Decision).Allowed() {
							t.Error("nil allows a tool call")
						}
					}
				}
			})
		}
	}
	for _, handle := range []any{
		(*agenttrace.Tracer)(nil), (*agenttrace.Session)(nil), (*agenttrace.Run)(nil), (*agenttrace.Turn)(nil),
		(*agenttrace.ModelCall)(nil),
		(*agenttrace.ToolCall)(nil), (*agenttrace.Compaction)(nil), (*agenttrace.TextStream)(nil),
	} {
		call(reflect.ValueOf(handle))
	}
	if called < 60 {
		t.Errorf("called %d methods, expected more", called)
	}
	ctx := context.Background()
	if agenttrace.SessionFromContext(ctx) != nil || agenttrace.RunFromContext(ctx) != nil ||
		agenttrace.TurnFromContext(ctx) != nil || agenttrace.ToolFromContext(ctx) != nil {
		t.Error("an empty context knows of work")
	}
	if _, tool := agenttrace.StartTool(ctx, agenttrace.ToolOptions{Name: "bash"}); tool.Authorize(ctx, "ls").Allowed() {
		t.Error("a tool call outside any turn is allowed")
	}
	if d := (agenttrace.Decision{}); d.Allowed() || d.Err() == nil {
		t.Error("the zero decision allows")
	}
}

// TestOffKeepsWorking runs an agent's whole life with nothing recorded.
func TestOffKeepsWorking(t *testing.T) {
	ctx := context.Background()
	sess := agenttrace.New(agenttrace.Options{TracerProvider: off()}).NewSession(ctx,
		agenttrace.SessionOptions{Agent: "a"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	turnCtx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "x"}, agenttrace.TurnOptions{})
	if agenttrace.TurnFromContext(turnCtx) != turn || agenttrace.SessionFromContext(turnCtx) != sess {
		t.Error("the context does not know where it is")
	}
	turn.End(agenttrace.TurnResult{})
	if _, _, err := run.ContinueTurn(ctx, agenttrace.TurnOptions{}); err != nil {
		t.Error(err)
	}
	if err := sess.Rewind(ctx, turn.UserMessageID()); err != nil {
		t.Error(err)
	}
	if err := sess.Unrewind(ctx); err != nil {
		t.Error(err)
	}
	if child, err := sess.Fork(ctx, turn.AssistantMessageID(), agenttrace.ForkOptions{}); err != nil ||
		child.ID() == "" {
		t.Error(err)
	}
	// A rule added on the way counts from then on.
	_, tool := agenttrace.StartTool(turnCtx, agenttrace.ToolOptions{Name: "bash", Input: 1})
	if tool.Authorize(ctx, "ls").Allowed() {
		t.Error("allowed without a rule")
	}
	sess.AddRule(ctx, rule("bash", "ls", allow, ""))
	_, tool = agenttrace.StartTool(turnCtx, agenttrace.ToolOptions{Name: "bash", Input: 1})
	if d := tool.Authorize(ctx, "ls"); !d.Allowed() {
		t.Errorf("denied in spite of a rule: %v", d.Err())
	}
	tool.End("x")
	run.End(nil)
	if _, err := agenttrace.New(agenttrace.Options{}).ResumeSession(ctx, sess.State()); err != nil {
		t.Error(err)
	}
}
