package agenttrace_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// TestASideCallDoesNotChangeItsTurn has calls besides the step that answers: they cost tokens, and nothing else. A model
// that answers instead is the turn's.
func TestASideCallDoesNotChangeItsTurn(t *testing.T) {
	small, hot := Model{Provider: "openai", ID: "gpt-5-nano"}, 1.5
	length := ModelResult{StopReason: "length", Usage: InclusiveUsage{Input: 10, Output: 2}}
	answers := func(write func(*ModelCall)) func(h *harness, turn *Turn) {
		return func(h *harness, turn *Turn) {
			_, call := turn.StartModelCall(h.ctx, ModelCallOptions{Model: small})
			write(call)
			call.End(length, nil)
		}
	}
	for name, test := range map[string]struct {
		call        func(h *harness, turn *Turn)
		model, stop string
		tokens      int64
	}{
		"other model": {func(h *harness, turn *Turn) {
			_, call := turn.StartModelCall(h.ctx, ModelCallOptions{Model: small, Temperature: &hot})
			call.End(length, nil)
		}, benchModel.ID, "stop", 24},
		"in a tool": {func(h *harness, turn *Turn) {
			ctx, tool := turn.StartTool(h.ctx, ToolOptions{Name: "summarize", Input: map[string]any{}})
			_, call := turn.StartModelCall(ctx, ModelCallOptions{Model: small})
			call.Text("It is short.")
			call.End(length, nil)
			tool.End("short")
		}, benchModel.ID, "stop", 24},
		"still going on": {func(h *harness, turn *Turn) {
			_, call := turn.StartModelCall(h.ctx, ModelCallOptions{Model: small})
			t.Cleanup(func() { call.End(length, nil) })
		}, benchModel.ID, "stop", 12},
		"declared": {func(h *harness, turn *Turn) {
			ctx, call := turn.StartModelCall(h.ctx, ModelCallOptions{Side: true, UsageElsewhere: true})
			if ModelCallFromContext(ctx) != call || ModelCallFromContext(h.ctx) != nil {
				t.Error("the context does not carry the call")
			}
			call.Text("A title")
			call.StreamText().WriteString("A title")
			call.End(length, nil)
		}, benchModel.ID, "stop", 24},
		"text":      {answers(func(c *ModelCall) { c.Text("Done.") }), small.ID, "length", 24},
		"reasoning": {answers(func(c *ModelCall) { c.StreamReasoning().Close() }), small.ID, "length", 24},
		"stream":    {answers(func(c *ModelCall) { c.StreamText().WriteString("Done.") }), small.ID, "length", 24},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.Text("Done.")
			call.End(ModelResult{StopReason: "stop", Usage: InclusiveUsage{Input: 10, Output: 2}}, nil)
			test.call(h, turn)
			h.end(turn)
			got := one(t, h.rec.All().Turns())
			if got.Model.ModelID != test.model || got.StopReason != test.stop || got.Temperature != nil ||
				got.ModelCalls != 2 || got.Usage.Tokens.Total() != test.tokens {
				t.Errorf("turn has model %+v, stop reason %q, temperature %v, %d calls, %+v", got.Model, got.StopReason,
					got.Temperature, got.ModelCalls, got.Usage.Tokens)
			}
			for _, p := range got.Assistant.Parts {
				if p.Type == "text" && !strings.Contains(string(p.Data), "Done.") {
					t.Errorf("the answer has %s of a call beside it", p.Data)
				}
			}
			if st := h.sess.State(); st.Model.ID != test.model {
				t.Errorf("the session's model is %+v", st.Model)
			}
			for _, e := range h.rec.Events() {
				if test.model == benchModel.ID && e.Record.Role == "assistant" && len(e.Record.Parts) == 0 &&
					!strings.Contains(string(e.Record.MessageMetadata), `"model_id":"`+benchModel.ID) {
					t.Errorf("an event has %s", e.Record.MessageMetadata)
				}
			}
			for i, span := range h.rec.All().Named("chat " + benchModel.ID) {
				mirrored := slices.ContainsFunc(span.Attributes, func(kv attribute.KeyValue) bool {
					return kv.Key == semconv.GenAIUsageInputTokensKey
				})
				if mirrored != (i == 0) { // the second one's is reported elsewhere
					t.Errorf("call %d has gen_ai.usage.input_tokens: %v", i, mirrored)
				}
			}
		})
	}
	t.Run("none was named before", func(t *testing.T) {
		h := newHarness(t, Options{}, SessionOptions{})
		ctx, run := h.tracer.NewSession(h.ctx, SessionOptions{Agent: "other"}).StartRun(h.ctx, RunOptions{})
		ctx, turn := run.StartTurn(ctx, UserMessage{Text: "go"}, TurnOptions{})
		_, call := turn.StartModelCall(ctx, ModelCallOptions{Model: small})
		call.End(ModelResult{StopReason: "tool_calls"}, nil)
		turn.End(TurnResult{})
		if got := one(t, h.rec.All().Turns()); got.Model.ModelID != small.ID || got.StopReason != "tool_calls" {
			t.Errorf("turn has model %+v and stop reason %q", got.Model, got.StopReason)
		}
	})
}

func TestThoughtsAreTakenOutOfAnOutputOnlyWhereItHasThem(t *testing.T) {
	gemini := json.RawMessage(
		`{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":50,"thoughtsTokenCount":20,` +
			`"toolUsePromptTokenCount":5,"totalTokenCount":175}`)
	for name, tt := range map[string]struct {
		usage Usage
		raw   json.RawMessage
		want  spans.Tokens
	}{
		"gemini": {GeminiUsage{Prompt: 100, Cached: 60, ToolUsePrompt: 5, Candidates: 50,
			Thoughts: 20}, gemini, spans.Tokens{Input: 45, Output: 50, Reasoning: 20, CacheRead: 60}},
		"gemini without counts": {GeminiUsage{}, nil, spans.Tokens{}},
		"gemini, negative": {GeminiUsage{Prompt: -1, Cached: -1, Candidates: -5, Thoughts: -1,
			ToolUsePrompt: -1}, nil, spans.Tokens{}},
		"openai": {InclusiveUsage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 60},
			json.RawMessage(`{"total_tokens":150}`), spans.Tokens{Input: 40, Output: 30, Reasoning: 20, CacheRead: 60}},
		"more thoughts than output": {InclusiveUsage{Input: 100, Output: 5, Reasoning: 20, CacheRead: 60},
			nil, spans.Tokens{Input: 40, Output: 5, Reasoning: 20, CacheRead: 60}},
		"more cache than input": {InclusiveUsage{Input: 7, Output: 50, CacheRead: 60, CacheWrite: 3}, nil,
			spans.Tokens{Input: 7, Output: 50, CacheRead: 60, CacheWrite: 3}},
	} {
		h, ctx, turn := begin(t, Options{})
		_, call := turn.StartModelCall(ctx, ModelCallOptions{})
		call.End(ModelResult{Usage: tt.usage, RawUsage: tt.raw}, nil)
		h.end(turn)
		if got := one(t, h.rec.All().Turns()); got.Usage.Tokens == nil || *got.Usage.Tokens != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got.Usage.Tokens, tt.want)
		}
	}
}
