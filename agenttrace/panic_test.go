package agenttrace_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// exceptions returns the texts and stacks of the exception events on spans of a
// name.
func exceptions(rec *agenttracetest.Recorder, name string) (texts, stacks, types []string) {
	for _, s := range rec.All() {
		if s.Name != name {
			continue
		}
		for _, e := range s.Events {
			if e.Name != semconv.SpanEventException {
				continue
			}
			var x spans.Exception
			_ = spans.Decode(&x, e.Attributes)
			texts, stacks, types = append(texts, x.Message), append(stacks, x.Stack), append(types, x.Type)
		}
	}
	return texts, stacks, types
}

// panicking runs f and returns what it panicked with, or nil.
func panicking(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// explode is the function that a stack must name.
func explode(v any) string { panic(v) }

func TestAPanicIsAFailedTurnNotASuccessfulOne(t *testing.T) {
	secret := "ghp_" + strings.Repeat("a1B2", 9)
	custom := fmt.Errorf("custom: %w", context.Canceled)
	var nobody *agenttrace.DeniedError
	for name, tt := range map[string]struct {
		value any
		text  string
	}{
		"text":             {"boom", "panic: boom"},
		"error":            {errors.New("no such row"), "panic: no such row"},
		"cancelled":        {custom, "panic: custom: context canceled"}, // which is no abort
		"runtime":          {nil, "panic: runtime error: index out of range [3] with length 0"},
		"nil pointer":      {nobody, "panic: "},
		"struct":           {struct{ A int }{7}, "panic: {7}"},
		"of nil":           {"nil", "panic: panic called with nil argument"},
		"secret in a text": {"token " + secret, "panic: token "},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
			agent := func() (err error) {
				run := h.run
				defer run.Done(&err)
				ctx, turn := run.StartTurn(h.ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
				defer turn.Done(&err)
				_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
				call.Text("I run it.")
				call.End(agenttrace.ModelResult{StopReason: "tool_use"}, nil)
				_, tool := turn.StartTool(ctx,
					agenttrace.ToolOptions{Name: "bash", Input: map[string]any{"command": "x"}})
				switch name {
				case "runtime":
					var empty []string
					i := 3
					tool.End(empty[i])
				case "of nil":
					panic(nil) //nolint:govet // the case
				}
				tool.End(explode(tt.value))
				return nil
			}
			got := panicking(func() { _ = agent() })
			switch name {
			case "runtime":
				if _, ok := got.(runtime.Error); !ok {
					t.Errorf("panic goes on with %T", got)
				}
			case "of nil":
				if _, ok := got.(*runtime.PanicNilError); !ok {
					t.Errorf("panic goes on with %T", got)
				}
			default:
				if got != tt.value {
					t.Errorf("panic goes on with %v, want %v", got, tt.value)
				}
			}
			h.check()
			turn := one(t, h.rec.All().Turns())
			if turn.EndReason != semconv.EndError || !strings.HasPrefix(turn.Error, tt.text) ||
				turn.ErrorType != semconv.ErrorTypePanic {
				t.Errorf("turn ended by %s with %q (%s)", turn.EndReason, turn.Error, turn.ErrorType)
			}
			run := one(t, h.rec.All().Runs())
			if run.Outcome != semconv.EndError || !strings.HasPrefix(run.Error, tt.text) {
				t.Errorf("run ended by %s with %q", run.Outcome, run.Error)
			}
			tool := one(t, h.rec.All().ToolCalls("bash"))
			if tool.State != "output-error" || !strings.Contains(tool.Error, tt.text) {
				t.Errorf("tool call ended in %s with %q", tool.State, tool.Error)
			}
			for _, span := range []string{semconv.SpanSessionTurn, semconv.SpanSessionRun} {
				texts, stacks, types := exceptions(h.rec, span)
				if len(texts) != 1 || len(stacks) != 1 || len(types) != 1 {
					t.Fatalf("%s has exceptions %q", span, texts)
				}
				if !strings.HasPrefix(texts[0], tt.text) || !strings.Contains(stacks[0], "agenttrace_test.TestAPanic") {
					t.Errorf("%s has exception %q with stack\n%s", span, texts[0], stacks[0])
				}
			}
			if st := h.sess.Status(); st.State != agenttrace.StatusError || !strings.HasPrefix(st.Detail, tt.text) {
				t.Errorf("status = %+v", st)
			}
			for _, s := range h.rec.All() {
				if strings.Contains(fmt.Sprint(s.Events, s.Attributes, s.StatusText), secret) {
					t.Errorf("span %s has the secret of the panic", s.Name)
				}
			}
		})
	}
}

func TestAPanicIsNoSuccessHoweverATurnIsDeferred(t *testing.T) {
	for name, agent := range map[string]func(h *harness, run *agenttrace.Run, turn *agenttrace.Turn){
		"deferred closures with an error": func(_ *harness, run *agenttrace.Run, turn *agenttrace.Turn) {
			var err error
			defer func() { run.End(err) }()
			defer func() { turn.Fail(err) }()
			explode("boom")
		},
		"deferred End": func(_ *harness, run *agenttrace.Run, turn *agenttrace.Turn) {
			defer run.End(nil)
			defer turn.End(agenttrace.TurnResult{StopReason: "stop"})
			explode("boom")
		},
		"deferred Fail": func(_ *harness, run *agenttrace.Run, turn *agenttrace.Turn) {
			defer run.End(nil)
			defer turn.Fail(nil)
			explode("boom")
		},
		"safe net": func(_ *harness, run *agenttrace.Run, turn *agenttrace.Turn) {
			defer run.Abort()
			defer turn.Abort()
			explode("boom")
		},
		"closure around End": func(_ *harness, run *agenttrace.Run, turn *agenttrace.Turn) {
			defer func() {
				turn.End(agenttrace.TurnResult{})
				run.End(nil)
			}()
			explode("boom")
		},
		"helper around Abort": func(_ *harness, run *agenttrace.Run, turn *agenttrace.Turn) {
			end := func() { turn.Abort(); run.Abort() }
			defer func() { end() }()
			explode("boom")
		},
		"run only": func(_ *harness, run *agenttrace.Run, _ *agenttrace.Turn) {
			defer run.Done(nil)
			explode("boom")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
			_, turn := h.turn("go")
			if got := panicking(func() { agent(h, h.run, turn) }); got != "boom" {
				t.Errorf("panic goes on with %v", got)
			}
			h.check()
			got, run := one(t, h.rec.All().Turns()), one(t, h.rec.All().Runs())
			if got.EndReason != semconv.EndError || got.ErrorType != semconv.ErrorTypePanic ||
				!strings.HasPrefix(got.Error, "panic") {
				t.Errorf("turn ended by %s with %q", got.EndReason, got.Error)
			}
			if run.Outcome != semconv.EndError || run.ErrorType != semconv.ErrorTypePanic {
				t.Errorf("run ended by %s with %q", run.Outcome, run.Error)
			}
			_, stacks, _ := exceptions(h.rec, semconv.SpanSessionTurn)
			if len(stacks) != 1 || !strings.Contains(stacks[0], "agenttrace_test.explode") {
				t.Errorf("stacks of the turn: %q", stacks)
			}
		})
	}
}

func TestWhatIsNoPanicIsNotRecordedAsOne(t *testing.T) {
	// An agent that recovers reports how its turn ended.
	t.Run("recovered as an error", func(t *testing.T) {
		h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
		_, turn := h.turn("go")
		func() {
			defer func() { turn.Fail(fmt.Errorf("tool broke: %v", recover())) }()
			explode("boom")
		}()
		if got := one(t, h.rec.All().Turns()); got.Error != "tool broke: boom" {
			t.Errorf("turn ended with %q", got.Error)
		}
	})
	t.Run("recovered before", func(t *testing.T) {
		h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
		_, turn := h.turn("go")
		func() {
			defer func() { turn.End(agenttrace.TurnResult{}) }()
			defer func() { _ = recover() }()
			explode("boom")
		}()
		if got := one(t, h.rec.All().Turns()); got.EndReason != semconv.EndFinish {
			t.Errorf("turn ended by %s with %q", got.EndReason, got.Error)
		}
	})
	// One that is asked what went wrong works in a deferred function.
	t.Run("agent in a deferred function", func(t *testing.T) {
		h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
		_ = panicking(func() {
			defer func() {
				ctx, turn := h.turn("what went wrong?")
				_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
				call.End(agenttrace.ModelResult{}, nil)
				_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "bash"})
				tool.End("")
				turn.End(agenttrace.TurnResult{})
			}()
			explode("boom")
		})
		if got := one(t, h.rec.All().Turns()); got.EndReason != semconv.EndFinish {
			t.Errorf("turn ended by %s with %q", got.EndReason, got.Error)
		}
		if got := one(t, h.rec.All().ToolCalls("bash")); got.State != "output-available" {
			t.Errorf("tool call ended in %s with %q", got.State, got.Error)
		}
	})
	t.Run("error and no panic", func(t *testing.T) {
		h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
		_, turn := h.turn("go")
		func() (err error) {
			defer turn.Done(&err)
			return errors.New("disk full")
		}()
		if got := one(t, h.rec.All().Turns()); got.Error != "disk full" || got.EndReason != semconv.EndError {
			t.Errorf("turn ended by %s with %q", got.EndReason, got.Error)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
		_, turn := h.turn("go")
		func() (err error) {
			defer h.run.Done(&err)
			defer turn.Done(&err)
			return nil
		}()
		if got := one(t, h.rec.All().Turns()); got.EndReason != semconv.EndFinish {
			t.Errorf("turn ended by %s with %q", got.EndReason, got.Error)
		}
	})
}

func TestAGoroutineThatExitsAbortsItsTurn(t *testing.T) {
	h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
	_, turn := h.turn("go")
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		defer h.run.Done(nil)
		defer turn.Done(nil)
		runtime.Goexit()
	}()
	done.Wait()
	if got := one(t, h.rec.All().Turns()); got.EndReason != semconv.EndAbort {
		t.Errorf("turn ended by %s with %q", got.EndReason, got.Error)
	}
	if got := one(t, h.rec.All().Runs()); got.Outcome != semconv.EndAbort {
		t.Errorf("run ended by %s with %q", got.Outcome, got.Error)
	}
}

func TestAToolThatPanicsInItsGoroutineHasFailed(t *testing.T) {
	for name, call := range map[string]func(tool *agenttrace.ToolCall){
		"abort": func(tool *agenttrace.ToolCall) { defer tool.Abort(); tool.End(explode("boom")) },
		"fail":  func(tool *agenttrace.ToolCall) { defer tool.Fail(nil); explode("boom") },
		"end":   func(tool *agenttrace.ToolCall) { defer tool.End(nil); explode("boom") },
		"text":  func(tool *agenttrace.ToolCall) { defer tool.EndText("fine"); explode("boom") },
		"raw":   func(tool *agenttrace.ToolCall) { defer tool.EndRaw(nil); explode("boom") },
		"closure": func(tool *agenttrace.ToolCall) {
			out := ""
			defer func() { tool.End(out) }()
			out = explode("boom")
		},
		"head": func(tool *agenttrace.ToolCall) {
			defer tool.EndTruncated("head", agenttrace.Truncated{Size: 9})
			explode("boom")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
			ctx, turn := h.turn("go")
			_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "bash", Input: map[string]any{}})
			var done sync.WaitGroup
			var got any
			done.Go(func() { got = panicking(func() { call(tool) }) })
			done.Wait()
			turn.End(agenttrace.TurnResult{})
			h.run.End(nil)
			h.check()
			if got != "boom" {
				t.Errorf("panic goes on with %v", got)
			}
			c := one(t, h.rec.All().ToolCalls("bash"))
			if c.State != "output-error" || !strings.HasPrefix(c.Error, "panic") ||
				c.ErrorType != semconv.ErrorTypePanic {
				t.Errorf("tool call ended in %s with %q (%s)", c.State, c.Error, c.ErrorType)
			}
			if texts, _, _ := exceptions(h.rec, semconv.SpanToolCall); len(texts) != 1 {
				t.Errorf("exceptions %q", texts)
			}
			if got := one(t, h.rec.All().Turns()); got.EndReason != semconv.EndFinish {
				t.Errorf("turn ended by %s", got.EndReason) // it went on without the call
			}
		})
	}
}

func TestASubAgentThatPanicsFailsTheCallThatStartedIt(t *testing.T) {
	h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
	got := panicking(func() {
		defer h.run.Done(nil)
		ctx, turn := h.turn("go")
		defer turn.Done(nil)
		//nolint:staticcheck // the call is open when explode panics
		ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "agent", Input: map[string]any{}})
		child := h.tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "helper"})
		ctx, run := child.StartRun(ctx, agenttrace.RunOptions{})
		defer run.Done(nil)
		_, inner := run.StartTurn(ctx, agenttrace.UserMessage{Text: "help"}, agenttrace.TurnOptions{})
		defer inner.Done(nil)
		tool.End(explode("boom"))
	})
	if got != "boom" {
		t.Errorf("panic goes on with %v", got)
	}
	h.check()
	for _, turn := range h.rec.All().Turns() {
		if turn.EndReason != semconv.EndError || turn.Error != "panic: boom" {
			t.Errorf("turn ended by %s with %q", turn.EndReason, turn.Error)
		}
	}
	if c := one(t, h.rec.All().ToolCalls("agent")); c.State != "output-error" ||
		!strings.Contains(c.Error, "panic: boom") {
		t.Errorf("call ended in %s with %q", c.State, c.Error)
	}
}

func TestAModelCallThatPanicsHasFailed(t *testing.T) {
	h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
	ctx, turn := h.turn("go")
	_ = panicking(func() {
		_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
		defer call.End(agenttrace.ModelResult{}, nil)
		explode("boom")
	})
	_ = panicking(func() {
		_, c := h.run.StartCompaction(ctx, agenttrace.CompactionOptions{})
		defer c.End(agenttrace.CompactionResult{Summary: "short"})
		explode("boom")
	})
	turn.End(agenttrace.TurnResult{})
	h.run.End(nil)
	h.check()
	for _, s := range h.rec.All() {
		if (strings.HasPrefix(s.Name, "chat") || s.Name == semconv.SpanCompactionRun) &&
			(s.Status != codes.Error || s.StatusText != "panic: boom") {
			t.Errorf("%s ended with %v %q", s.Name, s.Status, s.StatusText)
		}
	}
}

// badError is an error whose nil pointer cannot be asked.
type badError struct{ text string }

func (e *badError) Error() string   { return e.text }
func (e *badError) Is(error) bool   { return e.text == "" }
func (e *badError) Unwrap() []error { return []error{errors.New(e.text)} }

func TestANilErrorInAnInterfaceDoesNotCrashTheAgent(t *testing.T) {
	h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
	ctx, turn := h.turn("go")
	var err *badError
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.End(agenttrace.ModelResult{}, err)
	_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "bash", Input: map[string]any{}})
	tool.Fail(err)
	turn.Retrying(1, err)
	turn.Fail(err)
	h.run.End(err)
	h.check()
	want := "nil *agenttrace_test.badError"
	if got := one(t, h.rec.All().Turns()); got.Error != want {
		t.Errorf("turn ended with %q", got.Error)
	}
	if got := one(t, h.rec.All().ToolCalls("bash")); got.Error != want {
		t.Errorf("call ended with %q", got.Error)
	}
}

// Where nothing is recorded nothing touches a panic.
func TestAPanicPassesAnAgentThatRecordsNothing(t *testing.T) {
	var turn *agenttrace.Turn
	var run *agenttrace.Run
	var tool *agenttrace.ToolCall
	var call *agenttrace.ModelCall
	var comp *agenttrace.Compaction
	got := panicking(func() {
		defer run.Done(nil)
		defer run.Abort()
		defer turn.Done(nil)
		defer turn.End(agenttrace.TurnResult{})
		defer tool.Abort()
		defer call.End(agenttrace.ModelResult{}, nil)
		defer comp.Fail(nil)
		explode("boom")
	})
	if got != "boom" {
		t.Errorf("panic goes on with %v", got)
	}
}

// TestAnInferredTurnDoesNotFailWithThePanicThatItIsReadIn has an answer read in a deferred function, as an agent does
// that has the model explain what went wrong.
func TestAnInferredTurnDoesNotFailWithThePanicThatItIsReadIn(t *testing.T) {
	for _, inferred := range []bool{false, true} {
		h := newHarness(t, agenttrace.Options{}, agenttrace.SessionOptions{})
		ctx, run := h.sess.StartRun(h.ctx, agenttrace.RunOptions{Inferred: inferred})
		_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
		panicking(func() {
			defer func() {
				turn.End(agenttrace.TurnResult{})
				run.End(nil)
			}()
			explode("boom")
		})
		want := semconv.EndError
		if inferred {
			want = semconv.EndFinish
		}
		if turns := h.rec.All().Turns(); len(turns) != 1 || turns[0].EndReason != want {
			t.Errorf("inferred %v: the turn is %+v, want it to end with %s", inferred, turns, want)
		}
	}
}
