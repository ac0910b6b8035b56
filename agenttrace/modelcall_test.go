package agenttrace_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

func TestASideCallDoesNotChangeItsTurn(t *testing.T) {
	small, hot := Model{Provider: "openai", ID: "gpt-5-nano"}, 1.5
	usage := InclusiveUsage{Input: 10, Output: 2}
	for name, side := range map[string]func(h *harness, turn *Turn){
		"other model": func(h *harness, turn *Turn) {
			_, call := turn.StartModelCall(h.ctx, ModelCallOptions{Model: small, Temperature: &hot})
			call.End(ModelResult{StopReason: "length", Usage: usage}, nil)
		},
		"in a tool": func(h *harness, turn *Turn) {
			ctx, tool := turn.StartTool(h.ctx, ToolOptions{Name: "summarize", Input: map[string]any{}})
			_, call := turn.StartModelCall(ctx, ModelCallOptions{Model: small})
			call.Text("It is short.")
			call.End(ModelResult{StopReason: "length", Usage: usage}, nil)
			tool.End("short")
		},
		"still going on": func(h *harness, turn *Turn) {
			_, call := turn.StartModelCall(h.ctx, ModelCallOptions{Model: small})
			t.Cleanup(func() { call.End(ModelResult{StopReason: "length"}, nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.Text("Done.")
			call.End(ModelResult{StopReason: "stop", Usage: usage}, nil)
			side(h, turn)
			h.end(turn)
			got := one(t, h.rec.All().Turns())
			if got.Model.ModelID != benchModel.ID || got.StopReason != "stop" || got.Temperature != nil ||
				got.ModelCalls != 2 {
				t.Errorf("turn has model %+v, stop reason %q, temperature %v, %d calls", got.Model, got.StopReason,
					got.Temperature, got.ModelCalls)
			}
			if name != "still going on" && got.Usage.Tokens.Total() != 24 {
				t.Errorf("usage = %+v", got.Usage.Tokens) // a side call costs tokens too
			}
			if st := h.sess.State(); st.Model != benchModel {
				t.Errorf("the session's model is %+v", st.Model)
			}
			for _, e := range h.rec.Events() {
				if e.Record.Role == "assistant" && cmp.Diff(string(e.Record.MessageMetadata),
					`{"agenttrace":{"turn_index":0},"model":{"provider_id":"openai","model_id":"gpt-5-mini"}}`) != "" &&
					len(e.Record.Parts) == 0 {
					t.Errorf("an event has %s", e.Record.MessageMetadata)
				}
			}
		})
	}
}

func TestAModelThatAnswersInsteadIsTheTurns(t *testing.T) {
	big := Model{Provider: "openai", ID: "gpt-5"}
	for name, write := range map[string]func(*ModelCall){
		"text":      func(c *ModelCall) { c.Text("Done.") },
		"reasoning": func(c *ModelCall) { c.StreamReasoning().Close() },
		"stream":    func(c *ModelCall) { c.StreamText().WriteString("Done.") },
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx, turn := begin(t, Options{})
			_, call := turn.StartModelCall(ctx, ModelCallOptions{})
			call.Text("I try.")
			call.End(ModelResult{StopReason: "length"}, nil)
			_, call = turn.StartModelCall(ctx, ModelCallOptions{Model: big})
			write(call)
			call.End(ModelResult{StopReason: "stop"}, nil)
			h.end(turn)
			if got := one(t, h.rec.All().Turns()); got.Model.ModelID != "gpt-5" || got.StopReason != "stop" {
				t.Errorf("turn has model %+v and stop reason %q", got.Model, got.StopReason)
			}
		})
	}
	t.Run("none was named before", func(t *testing.T) {
		h := newHarness(t, Options{}, SessionOptions{})
		ctx, run := h.tracer.NewSession(h.ctx, SessionOptions{Agent: "other"}).StartRun(h.ctx, RunOptions{})
		ctx, turn := run.StartTurn(ctx, UserMessage{Text: "go"}, TurnOptions{})
		_, call := turn.StartModelCall(ctx, ModelCallOptions{Model: big})
		call.End(ModelResult{StopReason: "tool_calls"}, nil)
		turn.End(TurnResult{})
		if got := one(t, h.rec.All().Turns()); got.Model.ModelID != "gpt-5" || got.StopReason != "tool_calls" {
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
		"gemini as inclusive": {InclusiveUsage{Input: 105, Output: 50, Reasoning: 20, CacheRead: 60}, gemini,
			spans.Tokens{Input: 45, Output: 50, Reasoning: 20, CacheRead: 60}},
		"gemini, tools left out": {InclusiveUsage{Input: 100, Output: 50, Reasoning: 20, CacheRead: 60},
			gemini, spans.Tokens{Input: 40, Output: 50, Reasoning: 20, CacheRead: 60}},
		"gemini, summed before": {InclusiveUsage{Input: 105, Output: 70, Reasoning: 20, CacheRead: 60},
			gemini, spans.Tokens{Input: 45, Output: 50, Reasoning: 20, CacheRead: 60}},
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

// TestASideCallIsNoStepOfItsTurn makes one between two steps. Its usage counts.
func TestASideCallIsNoStepOfItsTurn(t *testing.T) {
	h, ctx, turn := begin(t, Options{})
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	call.Text("hello")
	call.End(ModelResult{StopReason: "stop", Usage: InclusiveUsage{Input: 3, Output: 1}}, nil)
	sideCtx, side := turn.StartModelCall(ctx, ModelCallOptions{Side: true, UsageElsewhere: true})
	if ModelCallFromContext(sideCtx) != side || ModelCallFromContext(ctx) != nil {
		t.Error("the context does not carry the call")
	}
	side.End(ModelResult{StopReason: "length", Usage: InclusiveUsage{Input: 5, Output: 2}}, nil)
	h.end(turn)
	got := one(t, h.rec.All().Turns())
	if len(got.Assistant.Parts) != 1 || got.StopReason != "stop" ||
		*got.Usage.Tokens != (spans.Tokens{Input: 8, Output: 3}) {
		t.Errorf("turn: %d parts, %s, %+v", len(got.Assistant.Parts), got.StopReason, *got.Usage.Tokens)
	}
	for i, span := range h.rec.All().Named("chat " + benchModel.ID) {
		mirrored := false
		for _, kv := range span.Attributes {
			mirrored = mirrored || kv.Key == semconv.GenAIUsageInputTokensKey
		}
		if mirrored != (i == 0) {
			t.Errorf("call %d has gen_ai.usage.input_tokens: %v", i, mirrored)
		}
	}
}
