package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/spans"
)

// TestACallThatSeveralLayersReportIsOnePart reports a call as the layers of an agent do:
// as its answer is read, by the loop, around the tool, and by a program that has the result.
func TestACallThatSeveralLayersReportIsOnePart(t *testing.T) {
	input := json.RawMessage(`{"cmd":"ls"}`)
	o := ToolOptions{ID: "call_1", Name: "bash", Input: input}
	announced := o
	announced.Inferred = true
	start := func(o ToolOptions) func(context.Context, *Turn) *ToolCall {
		return func(ctx context.Context, turn *Turn) *ToolCall {
			_, c := turn.StartTool(ctx, o)
			return c
		}
	}
	lookup := func(_ context.Context, turn *Turn) *ToolCall { return turn.Tool("call_1") }
	end := func(c *ToolCall) { c.EndText("a.go") }
	type layer = func(context.Context, *Turn) *ToolCall
	for _, test := range []struct {
		name   string
		layers []layer
	}{
		{"nested", []layer{start(o), start(o), start(o)}},
		{"announced first", []layer{start(announced), start(o), lookup}},
		{"announced last, as of an answer that streams", []layer{start(o), start(announced)}},
		{"input once it has streamed", []layer{start(ToolOptions{ID: "call_1", Name: "bash"}), start(o)}},
	} {
		for _, sequence := range []string{"open", "ended"} {
			t.Run(test.name+"/"+sequence, func(t *testing.T) {
				h := newHarness(t, Options{Limits: Limits{MaxToolCalls: 1}}, SessionOptions{})
				ctx, turn := h.turn("go")
				_, call := turn.StartModelCall(ctx, ModelCallOptions{})
				call.End(ModelResult{}, nil)
				handled := errorsOf(func() {
					var calls []*ToolCall
					for _, begin := range test.layers {
						c := begin(ctx, turn)
						if ended := sequence == "ended" && !(test.name == "announced first" && len(calls) == 0); ended {
							c.SetInput(input)
							end(c)
						} else {
							defer end(c)
						}
						calls = append(calls, c)
					}
					for _, c := range calls {
						if c.ID() != "call_1" || c.Name() != "bash" || c.PartID() != calls[0].PartID() ||
							!c.SpanContext().Equal(calls[0].SpanContext()) {
							t.Errorf("a layer has call %s of %s, part %s", c.ID(), c.Name(), c.PartID())
						}
					}
				})
				turn.End(TurnResult{})
				if err := turn.Err(); err != nil {
					t.Errorf("the limits counted more than one call: %v", err)
				}
				h.run.End(nil)
				h.check()
				got := one(t, h.rec.All().ToolCalls())
				if got.Input != `{"cmd":"ls"}` || got.Output != `"a.go"` || got.State != "output-available" ||
					got.Inferred {
					t.Errorf("call = %+v", got)
				}
				if parts := one(t, h.rec.All().Turns()).Assistant.Parts; len(parts) != 1 {
					t.Errorf("parts = %+v", parts)
				}
				if len(handled) > 0 {
					t.Errorf("reported to otel.Handle: %v", handled)
				}
			})
		}
	}
}

// TestAnIDThatAnotherAnswerUsesAgainIsAnotherCall has a server that counts the calls of
// each answer from 0.
func TestAnIDThatAnotherAnswerUsesAgainIsAnotherCall(t *testing.T) {
	for _, inferred := range []bool{false, true} {
		h, ctx, turn := begin(t, Options{})
		for _, output := range []string{"first", "second", "third"} {
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.End(ModelResult{}, nil)
			_, tool := turn.StartTool(ctx, ToolOptions{ID: "call_0", Name: "bash", Input: 1, Inferred: inferred})
			tool.EndText(output)
		}
		h.end(turn)
		if calls := h.rec.All().ToolCalls(); len(calls) != 3 || calls[2].Output != `"third"` {
			t.Errorf("inferred %v: have %d calls: %+v", inferred, len(calls), calls)
		}
	}
}

func TestLayersThatReportACallAtTheSameTimeReportOne(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.End(ModelResult{}, nil)
	ids := []string{"a", "b", "c", "d"}
	var wg sync.WaitGroup
	for i := range 8 {
		for _, id := range ids {
			wg.Go(func() {
				o := ToolOptions{ID: id, Name: "bash", Input: id, Inferred: i%4 == 0}
				toolCtx, tool := turn.StartTool(ctx, o)
				if ToolFromContext(toolCtx).ID() != id {
					t.Error("the context does not carry the call")
				}
				if !o.Inferred {
					tool.Executing()
					tool.End(id)
				}
				turn.Tool(id).SetInput(id)
			})
		}
	}
	wg.Wait()
	h.end(turn)
	if calls := h.rec.All().ToolCalls(); len(calls) != len(ids) {
		t.Errorf("have %d calls, want %d", len(calls), len(ids))
	}
	if turn.Tool("none") != nil || turn.Tool("") != nil || (*Turn)(nil).Tool("a") != nil {
		t.Error("a call that does not exist was found")
	}
}

// TestTheDurationOfAToolIsThatOfItsExecution has calls that are announced half a minute
// before the tool runs for a second.
func TestTheDurationOfAToolIsThatOfItsExecution(t *testing.T) {
	ask := Options{Rules: []Rule{{Permission: "*", Pattern: "*", Action: ActionAsk}}}
	for _, test := range []struct {
		name string
		run  func(ctx context.Context, turn *Turn, wait func()) *ToolCall
	}{
		{"announced by an answer", func(ctx context.Context, turn *Turn, wait func()) *ToolCall {
			turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1, Inferred: true})
			wait()
			_, c := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
			return c
		}},
		{"begun by the loop, run by a pool", func(ctx context.Context, turn *Turn, wait func()) *ToolCall {
			turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
			wait()
			turn.Tool("c").Executing()
			return turn.Tool("c")
		}},
		{"input that streams", func(ctx context.Context, turn *Turn, wait func()) *ToolCall {
			_, c := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash"})
			c.InputDelta(`{"cmd":`)
			wait()
			c.InputDelta(`1}`)
			c.SetInput(nil)
			return c
		}},
		{"a person who thinks about it", func(ctx context.Context, turn *Turn, wait func()) *ToolCall {
			_, c := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
			if !c.Authorize(ctx, "ls").Allowed() {
				t.Error("denied")
			}
			return c
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h *harness
			wait := func() { h.clock.Advance(30 * time.Second) }
			o := ask
			o.Approver = func(context.Context, Question) (Answer, error) {
				wait()
				return Answer{Reply: ReplyOnce}, nil
			}
			h = newHarness(t, o, SessionOptions{})
			ctx, turn := h.turn("go")
			c := test.run(ctx, turn, wait)
			h.clock.Advance(time.Second)
			c.End("done")
			h.end(turn)
			got, span := one(t, h.rec.All().ToolCalls()), one(t, h.rec.All().Named("tool.call"))
			if *got.DurationMS < 1000 || *got.DurationMS > 1100 {
				t.Errorf("duration = %d ms, want that of the execution", *got.DurationMS)
			}
			if d := span.End.Sub(span.Start); d < 31*time.Second {
				t.Errorf("the span lasts %v, want it to begin when the call was announced", d)
			}
			if started := time.UnixMilli(got.StartedAt); started.Sub(span.Start) < 30*time.Second ||
				span.End.Sub(started) > 1100*time.Millisecond {
				t.Errorf("started at %v in a span from %v to %v", started, span.Start, span.End)
			}
		})
	}
}

// TestAResultThatComesAfterItsTurnIsKept has callbacks that read the stream of a tool and
// report what it put out when the turn has ended.
func TestAResultThatComesAfterItsTurnIsKept(t *testing.T) {
	failure := errors.New("exit status 1")
	for _, test := range []struct {
		name    string
		grace   time.Duration
		end     func(*Turn)
		after   time.Duration
		state   string
		dropped int64
	}{
		{"soon", 0, func(t *Turn) { t.End(TurnResult{}) }, time.Second, "output-available", 0},
		{"of a turn that failed", 0, func(t *Turn) { t.Fail(failure) }, time.Second, "output-available", 0},
		{"too late", 0, func(t *Turn) { t.End(TurnResult{}) }, time.Minute, "input-available", 1},
		{"never", -1, func(t *Turn) { t.End(TurnResult{}) }, 0, "input-available", 0},
		{"of an aborted turn", 0, (*Turn).Abort, 0, "input-available", 0},
		{"in a longer time", time.Hour, func(t *Turn) { t.End(TurnResult{}) }, time.Minute, "output-available", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{ResultGrace: test.grace})
			_, c := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "bash", Input: 1})
			test.end(turn)
			h.run.End(nil)
			h.clock.Advance(test.after)
			errorsOf(func() {
				turn.Tool("c").EndText("late")
				c.Abort()
			})
			if got := h.tracer.Dropped(); got != test.dropped {
				t.Errorf("%d dropped, want %d", got, test.dropped)
			}
			if err := h.rec.Err(); err != nil {
				t.Error(err)
			}
			calls := h.rec.All().ToolCalls()
			last := calls[len(calls)-1]
			if last.State != test.state || last.PartID != c.PartID() || last.Input != "1" {
				t.Errorf("the call is %+v, want %s", last, test.state)
			}
			if open := h.rec.Open(); len(open) > 0 {
				t.Errorf("spans left open: %q", open)
			}
			if test.state == "output-available" {
				all := h.rec.All().Named("tool.call")
				if len(all) != 2 || all[1].Parent.SpanID() != turn.SpanContext().SpanID() ||
					!all[1].Start.Equal(all[0].Start) {
					t.Errorf("spans of the call = %+v", all)
				}
			}
		})
	}
}

func TestDoneEndsAToolAsItsFunctionReturns(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	run := func(id string, f func(*ToolCall) error) {
		defer func() { _ = recover() }()
		_ = func() (err error) {
			_, tool := turn.StartTool(ctx, ToolOptions{ID: id, Name: "bash", Input: 1})
			defer tool.Done(&err)
			return f(tool)
		}()
	}
	run("ended", func(c *ToolCall) error { c.End("x"); return nil })
	run("without a result", func(*ToolCall) error { return nil })
	run("failed", func(*ToolCall) error { return errors.New("exit status 1") })
	run("aborted", func(*ToolCall) error { return context.Canceled })
	run("panicked", func(*ToolCall) error { panic("boom") })
	(*ToolCall)(nil).Done(nil)
	h.end(turn)
	got := map[string]*spans.ToolCall{}
	for _, c := range h.rec.All().ToolCalls() {
		got[c.CallID] = c
	}
	for id, want := range map[string][3]string{
		"ended": {"output-available", `"x"`, ""}, "without a result": {"output-available", "null", ""},
		"failed": {"output-error", "", "exit status 1"}, "aborted": {"input-available", "", ""},
		"panicked": {"output-error", "", "panic: boom"},
	} {
		if c := got[id]; c.State != want[0] || c.Output != want[1] || c.Error != want[2] {
			t.Errorf("%s: %s, output %s, error %q; want %q", id, c.State, c.Output, c.Error, want)
		}
	}
}
