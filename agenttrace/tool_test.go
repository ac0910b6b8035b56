package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/spans"
)

type loud struct{}

func (loud) MarshalJSON() ([]byte, error) { panic("loud") }

func TestToolCallEnds(t *testing.T) {
	for _, test := range []struct {
		name     string
		input    any
		end      func(*ToolCall)
		want     spans.ToolCall
		handled  int
		isFailed bool
	}{
		{"value", map[string]int{"n": 1}, func(c *ToolCall) { c.End([]string{"<a>"}) },
			spans.ToolCall{State: "output-available", Input: `{"n":1}`, Output: `["<a>"]`}, 0, false},
		{"text", "in", func(c *ToolCall) { c.EndText("a\"b\n") },
			spans.ToolCall{State: "output-available", Input: `"in"`, Output: `"a\"b\n"`}, 0, false},
		{"raw JSON", json.RawMessage(`{"a": 1}`), func(c *ToolCall) { c.EndRaw(json.RawMessage(`[1]`)) },
			spans.ToolCall{State: "output-available", Input: `{"a": 1}`, Output: `[1]`}, 0, false},
		{"raw text that is not JSON", json.RawMessage(`{"a": `), func(c *ToolCall) { c.End(json.RawMessage("\xff")) },
			spans.ToolCall{State: "output-available", Input: `"{\"a\": "`, Output: "\"\uFFFD\""}, 0, false},
		{"invalid UTF-8 in raw JSON", json.RawMessage("\"\xff\""), func(c *ToolCall) { c.End(nil) },
			spans.ToolCall{State: "output-available", Input: "\"\uFFFD\"", Output: `null`}, 0, false},
		{"values that JSON cannot hold", math.NaN(), func(c *ToolCall) { c.End(loud{}) },
			spans.ToolCall{State: "output-available", Input: `"NaN"`, Output: `"agenttrace_test.loud"`}, 2, false},
		{"failure", 1, func(c *ToolCall) { c.Fail(errors.New("exit status 1")) },
			spans.ToolCall{State: "output-error", Input: `1`, Error: "exit status 1", ErrorType: "_OTHER"}, 0, true},
		{"cancelled", 1, func(c *ToolCall) { c.Fail(fmt.Errorf("run: %w", context.Canceled)) },
			spans.ToolCall{State: "input-available", Input: `1`}, 0, false},
		{"no error", 1, func(c *ToolCall) { c.Fail(nil) },
			spans.ToolCall{State: "output-available", Input: `1`, Output: `null`}, 0, false},
		{"streamed input", nil, func(c *ToolCall) {
			c.InputDelta(`{"cmd":`)
			c.InputDelta(`"ls"}`)
			c.SetInput(nil)
			c.End("ok")
		}, spans.ToolCall{State: "output-available", Input: `{"cmd":"ls"}`, Output: `"ok"`}, 0, false},
		{"streamed input replaced", nil, func(c *ToolCall) {
			c.InputDelta(`{"cmd`)
			c.SetInput(map[string]string{"cmd": "ls"})
			c.InputDelta("ignored")
			c.End("ok")
		}, spans.ToolCall{State: "output-available", Input: `{"cmd":"ls"}`, Output: `"ok"`}, 0, false},
		{"input never whole", nil, func(c *ToolCall) {
			c.InputDelta(`{"cmd`)
			c.Fail(errors.New("invalid input"))
		}, spans.ToolCall{State: "output-error", Input: `"{\"cmd"`, Error: "invalid input", ErrorType: "_OTHER"}, 0,
			true},
		{"truncated", 1, func(c *ToolCall) {
			c.EndTruncated("head", Truncated{Path: "/tmp/out", Size: 1 << 20, SHA256: "9f"})
		}, spans.ToolCall{State: "output-available", Input: `1`, Output: `"head"`, Truncated: true,
			OutputPath: "/tmp/out", OutputSize: 1 << 20, OutputSHA256: "9f"}, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			errs := errorsOf(func() {
				_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash", Input: test.input, ProviderExecuted: true})
				test.end(tool)
				tool.Abort()
			})
			if len(errs) != test.handled {
				t.Errorf("%d errors reported (%v), want %d", len(errs), errs, test.handled)
			}
			h.end(turn)
			got := one(t, h.rec.All().ToolCalls())
			if got.State != test.want.State || got.Input != test.want.Input || got.Output != test.want.Output ||
				got.Error != test.want.Error || got.ErrorType != test.want.ErrorType ||
				got.Truncated != test.want.Truncated || got.OutputPath != test.want.OutputPath ||
				got.OutputSize != test.want.OutputSize || got.OutputSHA256 != test.want.OutputSHA256 {
				t.Errorf("tool call = %+v\nwant %+v", got, test.want)
			}
			if got.CallID == "" || got.Type != "extension" || !utf8.ValidString(got.Input+got.Output) {
				t.Errorf("tool call = %+v", got)
			}
			if s := h.rec.All().Named("tool.call")[0]; (s.Status == codes.Error) != test.isFailed {
				t.Errorf("status = %v", s.Status)
			}
			part := one(t, one(t, h.rec.All().Turns()).Assistant.Parts)
			if part.Data != nil || part.ToolState != test.want.State || part.ToolCallID != got.CallID ||
				part.ID != got.PartID {
				t.Errorf("stub = %+v", part)
			}
		})
	}
}

func TestRawInputAndOutputAreTakenOnTrust(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	raw := json.RawMessage(`{"a":1}`)
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "ended", Name: "bash", RawInput: raw})
	raw[2] = 'b' // it was copied
	tool.EndRaw(json.RawMessage(`{"cut`))
	_, open := turn.StartTool(ctx, ToolOptions{ID: "open", Name: "bash", RawInput: json.RawMessage(`{"cut`)})
	_, waits := turn.StartTool(ctx, ToolOptions{ID: "waits", Name: "bash", RawInput: json.RawMessage(`{"cut`)})
	_ = open
	waits.AwaitApproval("")
	h.end(turn)
	calls := h.rec.All().ToolCalls()
	if calls[0].Input != `{"a":1}` || calls[0].Output != `{"cut` {
		t.Errorf("ended call = %+v", calls[0])
	}
	parts := one(t, h.rec.All().Turns()).Assistant.Parts
	if want := `{"type":"tool-bash","toolCallId":"open","state":"input-available","input":"{\"cut"}`; string(
		parts[1].Data) != want {
		t.Errorf("open call = %s, want %s", parts[1].Data, want)
	}
	if _, err := json.Marshal(h.sess.State()); err != nil {
		t.Errorf("state: %v", err)
	}
}

func TestInvalidUTF8NeverReachesASpan(t *testing.T) {
	const bad = "a\xffb"
	h := newHarness(t, Options{}, SessionOptions{Agent: bad, Title: bad, UserID: bad,
		Metadata: map[string]any{bad: bad}, Rules: []Rule{{Permission: bad, Pattern: bad, Action: "allow"}}})
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{Text: bad, Metadata: map[string]any{bad: bad}},
		TurnOptions{SystemPrompt: bad, Model: Model{Provider: "p", ID: "m"}, Tools: []Tool{{Name: bad}}})
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	s := call.StreamText()
	s.WriteString(bad)
	call.End(ModelResult{StopReason: bad, ResponseID: bad, RawUsage: json.RawMessage(bad)}, nil)
	ctx, tool := turn.StartTool(ctx, ToolOptions{ID: bad, Name: bad, Input: bad})
	tool.Authorize(ctx, bad)
	turn.Data(bad, bad, bad)
	turn.Fail(errors.New(bad))
	_, c := h.run.StartCompaction(h.ctx, CompactionOptions{TailStartID: bad})
	c.End(CompactionResult{Summary: bad})
	h.run.End(errors.New(bad))
	h.check()
	for _, s := range h.rec.All() {
		if !utf8.ValidString(s.StatusText) || !utf8.ValidString(s.Name) {
			t.Errorf("span %q has status %q", s.Name, s.StatusText)
		}
		for _, kv := range s.Attributes {
			if !utf8.ValidString(kv.Value.String()) {
				t.Errorf("%s: %s = %q", s.Name, kv.Key, kv.Value.String())
			}
			for _, text := range kv.Value.AsStringSlice() {
				if !utf8.ValidString(text) {
					t.Errorf("%s: %s has %q", s.Name, kv.Key, text)
				}
			}
		}
	}
}

// TestManyGoroutinesInOneTurn is for the race detector.
func TestManyGoroutinesInOneTurn(t *testing.T) {
	h := newHarness(t, Options{
		Rules:    []Rule{{Permission: "bash", Pattern: "*", Action: ActionAsk}},
		Watchdog: func(context.Context, ToolRequest) Verdict { return Allow() },
		Approver: func(_ context.Context, q Question) (Answer, error) { return Answer{Reply: ReplyAlways}, nil },
	}, SessionOptions{})
	ctx, turn := h.turn("go")
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				ctx, call := turn.StartModelCall(ctx, ModelCallOptions{})
				s := call.StreamText()
				s.WriteString("x")
				ctx, tool := turn.StartTool(ctx, ToolOptions{ID: fmt.Sprintf("c%d_%d", w, i), Name: "bash", Input: i})
				if tool.Authorize(ctx, "ls").Allowed() {
					child := h.tracer.NewSession(ctx, SessionOptions{Agent: "sub"})
					_, run := child.StartRun(ctx, RunOptions{})
					run.End(nil)
					tool.End(i)
				}
				s.Close()
				call.End(ModelResult{Usage: ExclusiveUsage{Input: 1}}, nil)
				h.sess.SetMetadata(ctx, map[string]any{"w": w})
				turn.SetModel(benchModel)
				_ = h.sess.State()
			}
		})
	}
	wg.Wait()
	h.end(turn)
	got := one(t, h.rec.All().Turns())
	if n := len(h.rec.All().ToolCalls()); n != workers*each || got.ModelCalls != workers*each ||
		got.Usage.Tokens.Input != workers*each {
		t.Errorf("%d tool calls, %d model calls, %d tokens, want %d of each", n, got.ModelCalls, got.Usage.Tokens.Input,
			workers*each)
	}
	seen := map[int64]bool{}
	for i, p := range got.Assistant.Parts {
		if p.Index != int64(i) || seen[p.Index] {
			t.Fatalf("part %d has index %d", i, p.Index)
		}
		seen[p.Index] = true
	}
}

// TestACallInferredFromAnAnswerIsOnePartWhenTheAgentReportsItToo begins a call twice: as
// what an answer requested, and as what the agent runs.
func TestACallInferredFromAnAnswerIsOnePartWhenTheAgentReportsItToo(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	o := ToolOptions{ID: "call_1", Name: "bash", Input: json.RawMessage(`{"cmd":"ls"}`), Inferred: true}
	_, inferred := turn.StartTool(ctx, o)
	_, alone := turn.StartTool(ctx, ToolOptions{ID: "call_2", Name: "bash", Inferred: true})
	h.clock.Advance(time.Minute)
	o.Inferred = false
	toolCtx, reported := turn.StartTool(ctx, o)
	if ToolFromContext(toolCtx) != reported {
		t.Error("the context does not carry the call")
	}
	reported.EndText("a.go")
	handled := errorsOf(func() { inferred.EndText("a.go, as the next request has it") })
	alone.EndText("b.go")
	h.end(turn)
	if len(handled) > 0 {
		t.Errorf("reported to otel.Handle: %v", handled)
	}
	calls := h.rec.All().ToolCalls()
	if len(calls) != 2 {
		t.Fatalf("have %d calls, want 2", len(calls))
	}
	if c := calls[0]; c.Inferred || c.Output != `"a.go"` || *c.DurationMS > 1000 {
		t.Errorf("the reported call = %+v, %d ms", c, *c.DurationMS)
	}
	if c := calls[1]; !c.Inferred || *c.DurationMS < 60_000 {
		t.Errorf("the other call = %+v, %d ms", c, *c.DurationMS)
	}
}

// TestTheErrorOfAToolOfMCPIsAFailure ends calls with the result as its client has it.
func TestTheErrorOfAToolOfMCPIsAFailure(t *testing.T) {
	type result struct {
		Content []map[string]string `json:"content"`
		IsError bool                `json:"isError,omitempty"`
	}
	failed := result{[]map[string]string{{"type": "text", "text": "no such station"}}, true}
	text := `{"isError": true, "content": [{"type":"text","text":"no such station"}]}`
	for name, end := range map[string]func(*ToolCall){
		"value": func(c *ToolCall) { c.End(failed) },
		"bytes": func(c *ToolCall) { c.End([]byte(text)) },
		"text":  func(c *ToolCall) { c.End(text) },
		"raw":   func(c *ToolCall) { c.EndRaw(json.RawMessage(text)) },
		"fine": func(c *ToolCall) {
			failed := failed
			failed.IsError = false
			c.End(failed)
		},
		"of another kind": func(c *ToolCall) { c.End(map[string]any{"isError": true, "count": 3}) },
	} {
		h, ctx, turn := begin(t, Options{})
		_, tool := turn.StartTool(ctx, ToolOptions{ID: "c", Name: "get_weather", Input: 1})
		end(tool)
		h.end(turn)
		c := one(t, h.rec.All().ToolCalls())
		fails := c.State == "output-error" && c.Error == "no such station" && c.ErrorType == "tool_error"
		if fails == (name == "fine" || name == "of another kind") {
			t.Errorf("%s: call = %+v", name, c)
		}
	}
}
