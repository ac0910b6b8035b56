package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/spans"
)

// play calls models (upper case) and tools (lower case), each with its place as
// input, and data parts ("!").
func play(ctx context.Context, turn *Turn, calls string) {
	for i, c := range strings.Split(calls, "") {
		switch {
		case c == "!":
			turn.Data("state", "", i)
		case c == strings.ToUpper(c):
			_, call := turn.StartModelCall(ctx, ModelCallOptions{Model: Model{ID: c}})
			call.End(ModelResult{}, nil)
		default:
			_, tool := turn.StartTool(ctx, ToolOptions{ID: fmt.Sprint("call_", i), Name: c, Input: i / 4})
			tool.End(nil)
		}
	}
}

func TestLoopsAreWarnedOfOnce(t *testing.T) {
	for _, test := range []struct {
		name, calls string
		loop        LoopDetection
		// want are the warnings: pattern, times in a row, size of the window.
		want []string
	}{
		{"none", "AbAcAdAe", LoopDetection{}, nil},
		{"one call", "aaaaaaaa", LoopDetection{}, []string{"TOOL_CALL:a 3 3"}},
		{"two, entered anywhere", "AbAbAbAbAbA", LoopDetection{}, []string{"LLM_CALL:A -> TOOL_CALL:b 3 6"}},
		{"the shortest", "xAbbbAbb", LoopDetection{}, []string{"TOOL_CALL:b 3 5"}},
		{"three with a beginning", "xyzabcabcabc", LoopDetection{},
			[]string{"TOOL_CALL:a -> TOOL_CALL:b -> TOOL_CALL:c 3 12"}},
		{"too long for the window", "abcdeabcdeabcde", LoopDetection{}, nil},
		{"in a longer window", "abcdeabcdeabcde", LoopDetection{Window: 15},
			[]string{"TOOL_CALL:a -> TOOL_CALL:b -> TOOL_CALL:c -> TOOL_CALL:d -> TOOL_CALL:e 3 15"}},
		{"twice is enough", "abab", LoopDetection{Repetitions: 2}, []string{"TOOL_CALL:a -> TOOL_CALL:b 2 4"}},
		{"bounds", "abcabcaa", LoopDetection{Window: 1, Repetitions: 1}, []string{"TOOL_CALL:a 2 4"}},
		{"states", "!!!", LoopDetection{}, []string{"STATE_UPDATE 3 3"}},
		{"another, and the first again", "aaabbbaaa", LoopDetection{}, []string{"TOOL_CALL:a 3 3", "TOOL_CALL:b 3 6"}},
		{"other input", "aaaaaaaaaaaa", LoopDetection{Arguments: true},
			[]string{"TOOL_CALL:a(5feceb66) 3 3", "TOOL_CALL:a(6b86b273) 3 7", "TOOL_CALL:a(d4735e3a) 3 11"}},
		{"other input, less in a row", "aaaaaaaa", LoopDetection{Arguments: true, Repetitions: 5}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{LoopDetection: &test.loop})
			play(ctx, turn, test.calls)
			if err := turn.Err(); err != nil {
				t.Errorf("err = %v, though nothing is to stop", err)
			}
			h.end(turn)
			var got []string
			span := h.rec.All().Named("session.turn")[0]
			warnings := span.LoopWarnings()
			for _, w := range warnings {
				got = append(got, fmt.Sprintf("%s %d %d", w.Pattern, w.Repetitions, w.WindowSize))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			var parts, want []string
			ids := map[string]bool{}
			for _, p := range span.Record.(*spans.Turn).Assistant.Parts {
				ids[p.ID] = true
				if p.Type == "data-loop-warning" {
					parts = append(parts, string(p.Data))
				}
			}
			for _, s := range h.rec.All() {
				ids[s.SpanContext.SpanID().String()] = true
			}
			for i := range warnings {
				w := &warnings[i]
				data, _ := json.Marshal(w)
				want = append(want, `{"type":"data-loop-warning","data":`+strings.ReplaceAll(string(data), `\u003e`, ">")+`}`)
				if len(w.Evidence) != int(w.Repetitions)*len(strings.Split(w.Pattern, " -> ")) {
					t.Errorf("evidence = %q", w.Evidence)
				}
				for _, id := range w.Evidence {
					if !ids[id] {
						t.Errorf("evidence %q is neither a part nor a span", id)
					}
				}
			}
			if diff := cmp.Diff(want, parts); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoopsAndLimitsStopTheAgentThatAsks(t *testing.T) {
	for _, test := range []struct {
		name, calls string
		options     Options
		want        string
		class       string
	}{
		{"loop", "xaaa", Options{LoopDetection: &LoopDetection{StopOnLoop: true}},
			"loop detected: TOOL_CALL:a, 3 times in a row", "loop_detected"},
		{"model calls", "ABC", Options{Limits: Limits{MaxModelCalls: 2}},
			"limit passed: MaxModelCalls is 2, have 3", "limit_exceeded"},
		{"tool calls", "abABc", Options{Limits: Limits{MaxToolCalls: 2}},
			"limit passed: MaxToolCalls is 2, have 3", "limit_exceeded"},
		{"events", "aB!", Options{Limits: Limits{MaxEvents: 2}}, "limit passed: MaxEvents is " +
			"2, have 3", "limit_exceeded"},
		{"time", "a", Options{Limits: Limits{MaxDuration: time.Hour}},
			"limit passed: MaxDuration is 1h0m0s, have 1h0m0", "limit_exceeded"},
		{"the first counts", "aaaaaaa", Options{LoopDetection: &LoopDetection{StopOnLoop: true},
			Limits: Limits{MaxToolCalls: 4}}, "loop detected", "loop_detected"},
	} {
		for _, recorded := range []bool{true, false} {
			t.Run(fmt.Sprint(test.name, " ", recorded), func(t *testing.T) {
				if !recorded {
					test.options.TracerProvider = off()
				}
				h, ctx, turn := begin(t, test.options)
				play(ctx, turn, test.calls[:len(test.calls)-1])
				if err := turn.Err(); err != nil && test.name != "the first counts" {
					t.Errorf("err = %v too early", err)
				}
				if test.name == "time" {
					h.clock.Advance(time.Hour)
				}
				play(ctx, turn, test.calls[len(test.calls)-1:])
				err := turn.Err()
				var loop *LoopError
				var limit *LimitError
				if err == nil || !strings.HasPrefix(err.Error(), test.want) ||
					errors.As(err, &loop) == errors.As(err, &limit) {
					t.Fatalf("err = %v, want %s", err, test.want)
				}
				turn.Fail(err)
				h.run.End(err)
				if !recorded {
					return
				}
				h.check()
				if got := one(t, h.rec.All().Turns()); got.ErrorType != test.class || got.Error != err.Error() {
					t.Errorf("turn failed with %q (%s)", got.Error, got.ErrorType)
				}
				_, again := h.sess.StartRun(context.Background(), RunOptions{})
				if err := again.Err(); err != nil {
					t.Errorf("the next run: %v", err)
				}
			})
		}
	}
	if err := (*Turn)(nil).Err(); err != nil {
		t.Error(err)
	}
}

// TestContextOfAnUnrecordedCallMayBeUsedOn starts tool calls in the context of
// one that has ended, with spans that cannot be compared.
func TestContextOfAnUnrecordedCallMayBeUsedOn(t *testing.T) {
	_, ctx, turn := begin(t, Options{TracerProvider: off(), Rules: []Rule{rule("*", "", allow, "")}})
	for range 3 {
		var tool *ToolCall
		ctx, tool = turn.StartTool(ctx, ToolOptions{Name: "ls"})
		if d := tool.Authorize(ctx, "x"); !d.Allowed() {
			t.Error(d.Err())
		}
		tool.End("y")
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		t.Error("a span is recorded")
	}
}

// TestAChatIsNoLoop has turns of one run in which a model answers and calls nothing.
func TestAChatIsNoLoop(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		o := Options{LoopDetection: &LoopDetection{StopOnLoop: true}}
		if !recorded {
			o.TracerProvider = off()
		}
		h := newHarness(t, o, SessionOptions{})
		for _, calls := range []string{"A", "A", "A", "A", "AbAbA", "AbA", "aaa", "A", "aaa", "A"} {
			ctx, turn := h.turn("go on")
			if err := turn.Err(); err != nil {
				t.Errorf("a turn begins with %v", err)
			}
			play(ctx, turn, calls)
			if err := turn.Err(); (err != nil) != (calls == "aaa") {
				t.Errorf("%s: err = %v", calls, err)
			}
			turn.End(TurnResult{})
		}
		ctx, turn := h.turn("go on")
		for range 4 {
			play(ctx, turn, "Ab")
			turn.Data("steering", "", map[string]string{"text": "and this"})
		}
		if err := turn.Err(); err != nil {
			t.Errorf("with what its user writes: %v", err)
		}
		h.end(turn)
	}
}
