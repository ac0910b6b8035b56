package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/spans"
)

type loud struct{}

func (loud) MarshalJSON() ([]byte, error) { panic("loud") }

func TestToolCallEnds(t *testing.T) {
	available := func(input, output string) spans.ToolCall {
		return spans.ToolCall{State: "output-available", Input: input, Output: output}
	}
	failed := func(input, text, class string) spans.ToolCall {
		return spans.ToolCall{State: "output-error", Input: input, Error: text, ErrorType: class}
	}
	end := func(v any) func(*ToolCall) { return func(c *ToolCall) { c.End(v) } }
	// What a client of MCP has when a tool failed.
	const mcp = `{"isError": true, "content": [{"type":"text","text":"no such station"}]}`
	noStation := failed("1", "no such station", "tool_error")
	for _, test := range []struct {
		name  string
		input any
		end   func(*ToolCall)
		want  spans.ToolCall
	}{
		{"value", map[string]int{"n": 1}, end([]string{"<a>"}), available(`{"n":1}`, `["<a>"]`)},
		{"text", "in", func(c *ToolCall) { c.EndText("a\"b\n") }, available(`"in"`, `"a\"b\n"`)},
		{"raw JSON", json.RawMessage(`{"a": 1}`), func(c *ToolCall) { c.EndRaw(json.RawMessage(`[1]`)) },
			available(`{"a": 1}`, `[1]`)},
		{"raw text that is not JSON", json.RawMessage(`{"a": `), end(json.RawMessage("\xff")),
			available(`"{\"a\": "`, "\"\uFFFD\"")},
		{"invalid UTF-8 in raw JSON", json.RawMessage("\"\xff\""), end(nil), available("\"\uFFFD\"", `null`)},
		{"values that JSON cannot hold", math.NaN(), end(loud{}),
			available(`"encode float64: json: unsupported value: NaN"`, `"agenttrace_test.loud"`)},
		{"failure", 1, func(c *ToolCall) { c.Fail(errors.New("exit status 1")) }, failed("1", "exit status 1", "_OTHER")},
		{"cancelled", 1, func(c *ToolCall) { c.Fail(fmt.Errorf("run: %w", context.Canceled)) },
			spans.ToolCall{State: "input-available", Input: `1`}},
		{"no error", 1, func(c *ToolCall) { c.Fail(nil) }, available("1", "null")},
		{"an error as output", 1, end(&fs.PathError{Op: "open", Path: "a", Err: errors.New("boom")}),
			failed("1", "open a: boom", "io/fs.PathError")},
		{"an error with JSON as output", 1, end(exit{2}),
			failed("1", "exit", "github.com/agenttrace/agenttrace/agenttrace_test.exit")},
		{"errors as output", 1, end(errors.Join(errors.New("disk\nfull (one)"), errors.New("other"))),
			failed("1", "disk\nfull (one)\nother", "_OTHER")},
		{"MCP error", 1, end(map[string]any{"isError": true, "content": []any{
			map[string]any{"type": "text", "text": "no such station"}}}), noStation},
		{"MCP error in bytes", 1, end([]byte(mcp)), noStation},
		{"MCP error in text", 1, end(mcp), noStation},
		{"raw MCP error", 1, func(c *ToolCall) { c.EndRaw(json.RawMessage(mcp)) }, noStation},
		{"MCP without error", 1, end(map[string]any{"content": []any{}, "isError": false}),
			available("1", `{"content":[],"isError":false}`)},
		{"isError of another kind", 1, end(map[string]any{"isError": true, "n": 3}), available("1", `{"isError":true,"n":3}`)},
		{"streamed input", nil, func(c *ToolCall) {
			c.InputDelta(`{"cmd":`)
			c.InputDelta(`"ls"}`)
			c.SetInput(nil)
			c.End("ok")
		}, available(`{"cmd":"ls"}`, `"ok"`)},
		{"streamed input replaced", nil, func(c *ToolCall) {
			c.InputDelta(`{"cmd`)
			c.SetInput(map[string]string{"cmd": "ls"})
			c.InputDelta("ignored")
			c.End("ok")
		}, available(`{"cmd":"ls"}`, `"ok"`)},
		{"input never whole", nil, func(c *ToolCall) {
			c.InputDelta(`{"cmd`)
			c.Fail(errors.New("invalid input"))
		}, failed(`"{\"cmd"`, "invalid input", "_OTHER")},
		{"truncated", 1, func(c *ToolCall) {
			c.EndTruncated("head", Truncated{Path: "/tmp/out", Size: 1 << 20, SHA256: "9f"})
		}, spans.ToolCall{State: "output-available", Input: `1`, Output: `"head"`, Truncated: true,
			OutputPath: "/tmp/out", OutputSize: 1 << 20, OutputSHA256: "9f"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			errs := errorsOf(func() {
				_, tool := turn.StartTool(ctx, ToolOptions{Name: "bash", Input: test.input, ProviderExecuted: true})
				test.end(tool)
				tool.Abort()
			})
			if (len(errs) == 2) != (test.name == "values that JSON cannot hold") || len(errs)%2 != 0 {
				t.Errorf("errors reported: %v", errs)
			}
			h.end(turn)
			got := one(t, h.rec.All().ToolCalls())
			if diff := cmp.Diff(&test.want, got, cmpopts.IgnoreFields(spans.ToolCall{}, "SessionID", "MessageID", "PartID",
				"PartIndex", "CallID", "ToolID", "Type", "StartedAt", "DurationMS", "ProviderExecuted")); diff != "" {
				t.Errorf("tool call (-want +got):\n%s", diff)
			}
			if got.CallID == "" || got.Type != "extension" || !utf8.ValidString(got.Input+got.Output) {
				t.Errorf("tool call = %+v", got)
			}
			if s := h.rec.All().Named("tool.call")[0]; (s.Status == codes.Error) != (test.want.State == "output-error") {
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

func TestRawInputAndOutputAreJSON(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	raw := json.RawMessage(`{"a":1}`)
	_, tool := turn.StartTool(ctx, ToolOptions{ID: "ended", Name: "bash", RawInput: raw})
	raw[2] = 'b' // it was copied
	tool.EndRaw(json.RawMessage(`{"cut`))
	_, waits := turn.StartTool(ctx, ToolOptions{ID: "waits", Name: "bash", RawInput: json.RawMessage(`{"cut`)})
	waits.AwaitApproval("")
	h.end(turn)
	calls := h.rec.All().ToolCalls()
	if calls[0].Input != `{"a":1}` || calls[0].Output != `"{\"cut"` || calls[1].Input != `"{\"cut"` {
		t.Errorf("calls = %+v, %+v", calls[0], calls[1])
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

// TestManyGoroutinesInOneTurn is also for the race detector. In the second turn the run ends while others still record.
func TestManyGoroutinesInOneTurn(t *testing.T) {
	for _, endEarly := range []bool{false, true} {
		h, ctx, turn := begin(t, Options{
			Rules:         []Rule{rule("bash", "*", ask, manifest)},
			Watchdog:      func(context.Context, ToolRequest) Verdict { return Allow() },
			Approver:      answering(Answer{Reply: ReplyAlways}),
			Live:          LiveOptions{MinInterval: -1},
			LoopDetection: &LoopDetection{},
		})
		const workers, each = 8, 6 // fewer events than are queued
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					ctx, call := turn.StartModelCall(ctx, ModelCallOptions{})
					s := call.StreamText()
					s.WriteString("word ")
					ctx, tool := turn.StartTool(ctx, ToolOptions{ID: fmt.Sprintf("c%d_%d", w, i), Name: "bash"})
					tool.InputDelta("1")
					tool.SetInput(nil)
					tool.AwaitInput("?")
					if tool.Authorize(ctx, "ls").Allowed() {
						_, run := h.tracer.NewSession(ctx, SessionOptions{Agent: "sub"}).StartRun(ctx, RunOptions{})
						run.End(nil)
						tool.End(i)
					}
					s.Close()
					call.End(ModelResult{Usage: ExclusiveUsage{Input: 1}}, nil)
					h.sess.SetMetadata(ctx, map[string]any{"w": w})
					h.sess.SetTitle(ctx, fmt.Sprint(w))
					turn.SetModel(benchModel)
					_, _ = h.sess.State(), turn.Err()
				}
				if w == 7 && endEarly {
					h.run.End(nil)
				}
			})
		}
		errorsOf(wg.Wait)
		if !endEarly && h.tracer.Dropped() != 0 {
			t.Errorf("%d dropped", h.tracer.Dropped())
		}
		if st := h.sess.Status(); endEarly && (st.State != StatusIdle || h.sess.Busy()) {
			t.Errorf("status = %+v", st)
		}
		h.end(turn)
		last := time.Time{}
		for _, e := range h.rec.Events().Session(h.sess.ID()) {
			if !e.Time.After(last) {
				t.Fatalf("two events at %v", last)
			}
			last = e.Time
		}
		got := one(t, h.rec.Session(h.sess.ID()).Turns())
		if n := len(h.rec.All().ToolCalls()); !endEarly && (n != workers*each || got.ModelCalls != workers*each ||
			got.Usage.Tokens.Input != workers*each) {
			t.Errorf("%d tool calls, %d model calls, %d tokens, want %d of each", n, got.ModelCalls,
				got.Usage.Tokens.Input, workers*each)
		}
		for i, p := range got.Assistant.Parts {
			if p.Index != int64(i) {
				t.Fatalf("part %d has index %d", i, p.Index)
			}
		}
	}
}

// asksTheTurn is a span processor that logs into the turn of each span that starts, as an slog handler does.
type asksTheTurn struct{}

func (asksTheTurn) OnStart(ctx context.Context, span sdktrace.ReadWriteSpan) {
	turn := TurnFromContext(ctx)
	turn.Data("log", "", span.Name())
	span.SetAttributes(attribute.String("message", turn.AssistantMessageID()))
	turn.PendingTools()
	turn.Tool("c")
}
func (asksTheTurn) OnEnd(sdktrace.ReadOnlySpan)      {}
func (asksTheTurn) Shutdown(context.Context) error   { return nil }
func (asksTheTurn) ForceFlush(context.Context) error { return nil }

func TestSpanProcessorMayAskTheTurn(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(asksTheTurn{}))
	h, ctx, turn := begin(t, Options{TracerProvider: provider})
	call, model := turn.StartModelCall(ctx, ModelCallOptions{})
	model.End(ModelResult{}, nil)
	_, c := turn.StartTool(call, ToolOptions{Name: "bash", ID: "c"})
	c.Authorize(ctx, "ls")
	c.EndText("done")
	_, compaction := h.run.StartCompaction(ctx, CompactionOptions{})
	compaction.End(CompactionResult{})
	_, child := h.tracer.NewSession(ctx, SessionOptions{}).StartRun(ctx, RunOptions{})
	child.End(nil)
	turn.End(TurnResult{})
	h.run.End(nil)
}
