package agenttrace_test

import (
	"context"
	"reflect"
	"testing"

	"go.opentelemetry.io/otel/trace"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
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
					case out.Type() == reflect.TypeFor[Decision]():
						if out.Interface().(Decision).Allowed() {
							t.Error("nil allows a tool call")
						}
					}
				}
			})
		}
	}
	for _, handle := range []any{
		(*Tracer)(nil), (*Session)(nil), (*Run)(nil), (*Turn)(nil),
		(*ModelCall)(nil),
		(*ToolCall)(nil), (*Compaction)(nil), (*TextStream)(nil),
	} {
		call(reflect.ValueOf(handle))
	}
	if called < 60 {
		t.Errorf("called %d methods, expected more", called)
	}
	ctx := context.Background()
	if s, err := new(Tracer).ResumeSession(ctx, State{ID: "s", Agent: "a"}); s != nil || err != nil ||
		new(Tracer).NewSession(ctx, SessionOptions{}) != nil {
		t.Error("the zero tracer makes a session")
	}
	if SessionFromContext(ctx) != nil || RunFromContext(ctx) != nil ||
		TurnFromContext(ctx) != nil || ToolFromContext(ctx) != nil {
		t.Error("an empty context knows of work")
	}
	if _, tool := StartTool(ctx, ToolOptions{Name: "bash"}); tool.Authorize(ctx, "ls").Allowed() {
		t.Error("a tool call outside any turn is allowed")
	}
	if d := (Decision{}); d.Allowed() || d.Err() == nil {
		t.Error("the zero decision allows")
	}
}

// TestOffKeepsWorking runs an agent's whole life with nothing recorded.
func TestOffKeepsWorking(t *testing.T) {
	ctx := context.Background()
	sess := New(Options{TracerProvider: off()}).NewSession(ctx, SessionOptions{Agent: "a"})
	ctx, run := sess.StartRun(ctx, RunOptions{})
	turnCtx, turn := run.StartTurn(ctx, UserMessage{Text: "x"}, TurnOptions{})
	if TurnFromContext(turnCtx) != turn || SessionFromContext(turnCtx) != sess {
		t.Error("the context does not know where it is")
	}
	turn.End(TurnResult{})
	if _, _, err := run.ContinueTurn(ctx, TurnOptions{}); err != nil {
		t.Error(err)
	}
	if err := sess.Rewind(ctx, turn.UserMessageID()); err != nil {
		t.Error(err)
	}
	if err := sess.Unrewind(ctx); err != nil {
		t.Error(err)
	}
	if child, err := sess.Fork(ctx, turn.AssistantMessageID(), ForkOptions{}); err != nil || child.ID() == "" {
		t.Error(err)
	}
	// A rule added on the way counts from then on.
	_, tool := StartTool(turnCtx, ToolOptions{Name: "bash", Input: 1})
	if tool.Authorize(ctx, "ls").Allowed() {
		t.Error("allowed without a rule")
	}
	sess.AddRule(ctx, rule("bash", "ls", allow, ""))
	_, tool = StartTool(turnCtx, ToolOptions{Name: "bash", Input: 1})
	if d := tool.Authorize(ctx, "ls"); !d.Allowed() {
		t.Errorf("denied in spite of a rule: %v", d.Err())
	}
	tool.End("x")
	run.End(nil)
	if _, err := New(Options{}).ResumeSession(ctx, sess.State()); err != nil {
		t.Error(err)
	}
}

// TestANilContextFailsNoAgent gives every method that takes a context a nil one, as an agent does whose tests have no
// tracing.
func TestANilContextFailsNoAgent(t *testing.T) {
	var none context.Context
	for name, provider := range map[string]trace.TracerProvider{"off": off(), "on": agenttracetest.NewRecorder()} {
		t.Run(name, func(t *testing.T) {
			tracer := New(Options{TracerProvider: provider, LoggerProvider: agenttracetest.NewRecorder(), Rules: []Rule{
				rule("*", "*", allow, "")}})
			sess := tracer.NewSession(none, SessionOptions{Agent: "a"})
			_, run := sess.StartRun(none, RunOptions{})
			ctx, turn := run.StartTurn(none, UserMessage{Text: "x"}, TurnOptions{})
			_, tool := turn.StartTool(none, ToolOptions{Name: "bash", Input: 1})
			_, compaction := run.StartCompaction(none, CompactionOptions{})
			Score(none, ScoreOptions{})
			Score(ctx, ScoreOptions{Name: "good", Label: "yes"})
			for _, handle := range []any{tracer, sess, run, turn, tool, compaction} {
				v := reflect.ValueOf(handle)
				for i := range v.NumMethod() {
					args := make([]reflect.Value, v.Method(i).Type().NumIn())
					for j := range args {
						args[j] = reflect.Zero(v.Method(i).Type().In(j))
					}
					v.Method(i).Call(args)
				}
			}
		})
	}
}
