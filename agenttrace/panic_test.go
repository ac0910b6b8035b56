package agenttrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// exceptions returns the exception events on spans of a name.
func exceptions(rec *agenttracetest.Recorder, name string) (all []spans.Exception) {
	for _, s := range rec.All().Named(name) {
		for _, e := range s.Events {
			if e.Name == semconv.SpanEventException {
				var x spans.Exception
				_ = spans.Decode(&x, e.Attributes)
				all = append(all, x)
			}
		}
	}
	return all
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
	var empty []string
	var nobody *DeniedError
	for name, test := range map[string]struct {
		explode func()
		text    string
	}{
		"text":  {func() { explode("boom") }, "panic: boom"},
		"error": {func() { explode(errors.New("no such row")) }, "panic: no such row"},
		"cancelled": { // which is no abort
			func() { explode(fmt.Errorf("custom: %w", context.Canceled)) }, "panic: custom: context canceled"},
		"runtime":          {func() { _ = empty[len("abc")] }, "panic: runtime error: index out of range [3] with length 0"},
		"nil pointer":      {func() { explode(nobody) }, "panic: "},
		"struct":           {func() { explode(struct{ A int }{7}) }, "panic: a struct { A int }"},
		"of nil":           {func() { panic(nil) }, "panic: panic called with nil argument"}, //nolint:govet // the case
		"secret in a text": {func() { explode("token " + secret) }, "panic: token "},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, Options{}, SessionOptions{})
			agent := func() (err error) {
				defer h.run.Done(&err)
				ctx, turn := h.turn("go")
				defer turn.Done(&err)
				turn.StartTool(ctx, ToolOptions{Name: "bash", Input: map[string]any{"command": "x"}})
				test.explode()
				return nil
			}
			want, got := panicking(test.explode), panicking(func() { _ = agent() })
			if fmt.Sprintf("%T %[1]v", got) != fmt.Sprintf("%T %[1]v", want) {
				t.Errorf("panic goes on with %T %[1]v, want %T %[2]v", got, want)
			}
			h.check()
			turn, run := one(t, h.rec.All().Turns()), one(t, h.rec.All().Runs())
			if turn.EndReason != semconv.EndError || !strings.HasPrefix(turn.Error, test.text) ||
				turn.ErrorType != semconv.ErrorTypePanic {
				t.Errorf("turn ended by %s with %q (%s)", turn.EndReason, turn.Error, turn.ErrorType)
			}
			if run.Outcome != semconv.EndError || !strings.HasPrefix(run.Error, test.text) {
				t.Errorf("run ended by %s with %q", run.Outcome, run.Error)
			}
			tool := one(t, h.rec.All().ToolCalls("bash"))
			if tool.State != "output-error" || !strings.Contains(tool.Error, test.text) {
				t.Errorf("tool call ended in %s with %q", tool.State, tool.Error)
			}
			for _, span := range []string{semconv.SpanSessionTurn, semconv.SpanSessionRun} {
				x := one(t, exceptions(h.rec, span))
				if !strings.HasPrefix(x.Message, test.text) || !strings.Contains(x.Stack, "agenttrace_test.TestAPanic") {
					t.Errorf("%s has exception %q with stack\n%s", span, x.Message, x.Stack)
				}
			}
			if st := h.sess.Status(); st.State != StatusError || !strings.HasPrefix(st.Detail, test.text) {
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

// TestHowATurnEndsThatIsDeferred has the ways in which agents end a turn and its run, with a panic and without.
func TestHowATurnEndsThatIsDeferred(t *testing.T) {
	failure := errors.New("disk full")
	for name, test := range map[string]struct {
		agent             func(h *harness, run *Run, turn *Turn)
		panics            bool
		reason, err, runs string // of the turn, and the outcome of the run
	}{
		"deferred End": {func(_ *harness, run *Run, turn *Turn) {
			defer run.End(nil)
			defer turn.End(TurnResult{StopReason: "stop"})
			explode("boom")
		}, true, "error", "panic", "error"},
		"safe net": {func(_ *harness, run *Run, turn *Turn) {
			defer run.Abort()
			defer turn.Abort()
			explode("boom")
		}, true, "error", "panic", "error"},
		"run only": {func(_ *harness, run *Run, _ *Turn) {
			defer run.Done(nil)
			explode("boom")
		}, true, "error", "panic", "error"},
		// An agent that recovers reports how its turn ended.
		"recovered as an error": {func(_ *harness, _ *Run, turn *Turn) {
			defer func() { turn.Fail(fmt.Errorf("tool broke: %v", recover())) }()
			explode("boom")
		}, false, "error", "tool broke: boom", "finish"},
		"recovered and ended": {func(_ *harness, run *Run, turn *Turn) {
			defer func() { _ = recover(); turn.End(TurnResult{}); run.End(nil) }()
			explode("boom")
		}, false, "finish", "", "finish"},
		// One that is asked what went wrong works in a deferred function.
		"agent in a deferred function": {func(h *harness, run *Run, turn *Turn) {
			turn.End(TurnResult{})
			defer func() {
				defer func() { _ = recover() }()
				defer run.End(nil)
				ctx, turn := h.turn("what went wrong?")
				_, call := turn.StartModelCall(ctx, ModelCallOptions{})
				call.End(ModelResult{}, nil)
				_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash"})
				tool.End("")
				turn.End(TurnResult{})
			}()
			explode("boom")
		}, true, "finish", "", "finish"},
		"error and no panic": {func(_ *harness, run *Run, turn *Turn) {
			err := failure
			defer run.Done(nil)
			defer turn.Done(&err)
		}, false, "error", "disk full", "finish"},
		"nothing": {func(_ *harness, run *Run, turn *Turn) {
			defer run.Done(nil)
			defer turn.Done(nil)
		}, false, "finish", "", "finish"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _, turn := begin(t, Options{})
			var got any
			var agent sync.WaitGroup
			agent.Go(func() { got = panicking(func() { test.agent(h, h.run, turn) }) })
			agent.Wait()
			h.run.End(nil)
			if (got == "boom") != test.panics {
				t.Errorf("panic goes on with %v", got)
			}
			h.check()
			turns, runs := h.rec.All().Turns(), h.rec.All().Runs()
			last, run := turns[len(turns)-1], runs[len(runs)-1]
			if last.EndReason != test.reason || !strings.HasPrefix(last.Error, test.err) ||
				(last.ErrorType == semconv.ErrorTypePanic) != strings.HasPrefix(test.err, "panic") {
				t.Errorf("turn ended by %s with %q (%s)", last.EndReason, last.Error, last.ErrorType)
			}
			if run.Outcome != test.runs || (run.ErrorType == semconv.ErrorTypePanic) != (test.runs == "error") {
				t.Errorf("run ended by %s with %q", run.Outcome, run.Error)
			}
			for _, c := range h.rec.All().ToolCalls() {
				if c.State != "output-available" {
					t.Errorf("tool call ended in %s with %q", c.State, c.Error)
				}
			}
			if !strings.HasPrefix(test.err, "panic") {
				return
			}
			if x := one(t, exceptions(h.rec, semconv.SpanSessionTurn)); !strings.Contains(x.Stack, "agenttrace_test.explode") {
				t.Errorf("stack of the turn: %q", x.Stack)
			}
		})
	}
}

func TestAToolThatPanicsInItsGoroutineHasFailed(t *testing.T) {
	for name, call := range map[string]func(tool *ToolCall){
		"abort": func(tool *ToolCall) { defer tool.Abort(); tool.End(explode("boom")) },
		"done":  func(tool *ToolCall) { defer tool.Done(nil); explode("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash", Input: map[string]any{}})
			var done sync.WaitGroup
			var got any
			done.Go(func() { got = panicking(func() { call(tool) }) })
			done.Wait()
			h.end(turn)
			if got != "boom" {
				t.Errorf("panic goes on with %v", got)
			}
			c := one(t, h.rec.All().ToolCalls("bash"))
			if c.State != "output-error" || !strings.HasPrefix(c.Error, "panic") ||
				c.ErrorType != semconv.ErrorTypePanic {
				t.Errorf("tool call ended in %s with %q (%s)", c.State, c.Error, c.ErrorType)
			}
			if texts := exceptions(h.rec, semconv.SpanToolCall); len(texts) != 1 {
				t.Errorf("exceptions %q", texts)
			}
			if got := one(t, h.rec.All().Turns()); got.EndReason != semconv.EndFinish {
				t.Errorf("turn ended by %s", got.EndReason) // it went on without the call
			}
		})
	}
}

func TestASubAgentThatPanicsFailsTheCallThatStartedIt(t *testing.T) {
	h := newHarness(t, Options{}, SessionOptions{})
	got := panicking(func() {
		defer h.run.Done(nil)
		ctx, turn := h.turn("go")
		defer turn.Done(nil)
		//nolint:staticcheck // the call is open when explode panics
		ctx, tool := turn.StartTool(ctx, ToolOptions{Name: "agent", Input: map[string]any{}})
		child := h.tracer.NewSession(ctx, SessionOptions{Agent: "helper"})
		ctx, run := child.StartRun(ctx, RunOptions{})
		defer run.Done(nil)
		_, inner := run.StartTurn(ctx, UserMessage{Text: "help"}, TurnOptions{})
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
	h := newHarness(t, Options{}, SessionOptions{})
	_ = panicking(func() {
		defer h.run.Done(nil)
		ctx, turn := h.turn("go")
		turn.StartModelCall(ctx, ModelCallOptions{})
		h.run.StartCompaction(ctx, CompactionOptions{})
		explode("boom")
	})
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
	h, ctx, turn := begin(t, Options{})
	var err *badError
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.End(ModelResult{}, err)
	_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash", Input: map[string]any{}})
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
	var turn *Turn
	var run *Run
	var tool *ToolCall
	var call *ModelCall
	var comp *Compaction
	got := panicking(func() {
		defer run.Done(nil)
		defer run.Abort()
		defer turn.Done(nil)
		defer turn.End(TurnResult{})
		defer tool.Abort()
		defer call.End(ModelResult{}, nil)
		defer comp.Fail(nil)
		explode("boom")
	})
	if got != "boom" {
		t.Errorf("panic goes on with %v", got)
	}
}
