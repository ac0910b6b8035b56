package agenttrace_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	. "github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
)

// talk has two model calls with a tool call between them, which fails or is denied too.
func talk(h *harness) {
	ctx, turn := h.run.StartTurn(h.ctx, UserMessage{Text: "what is here?"}, TurnOptions{
		SystemPrompt: "Be careful.", Tools: []Tool{{Name: "bash", Description: "Run it"}},
	})
	usage := InclusiveUsage{Input: 100, CacheRead: 60, CacheWrite: 30, Output: 20, Reasoning: 5}
	_, call := turn.StartModelCall(ctx, ModelCallOptions{})
	h.clock.Advance(400 * time.Millisecond)
	stream := call.StreamText()
	_, _ = stream.WriteString("Let me ")
	h.clock.Advance(600 * time.Millisecond)
	_, _ = stream.WriteString("look.")
	_ = stream.Close()
	toolCtx, tool := turn.StartTool(ctx,
		ToolOptions{ID: "call_1", Name: "bash", Input: json.RawMessage(`{"cmd":"ls"}`)})
	call.End(ModelResult{StopReason: "tool_calls", Usage: usage, ResponseModel: "gpt-5-mini-2026"}, nil)
	tool.Authorize(toolCtx, "ls")
	h.clock.Advance(2 * time.Second)
	tool.End("a.go with sk-ant-api03-" + strings.Repeat("aB3", 20))
	_, denied := turn.StartTool(ctx, ToolOptions{ID: "call_2", Name: "rm", Input: 1})
	denied.Authorize(ctx, "/")
	_, second := turn.StartModelCall(ctx, ModelCallOptions{})
	second.Text("A file.")
	second.End(ModelResult{StopReason: "stop", Usage: usage}, nil)
	_, third := turn.StartModelCall(ctx, ModelCallOptions{})
	third.End(ModelResult{}, errors.New("overloaded"))
	turn.End(TurnResult{})
	h.run.End(nil)
}

var talkRules = []Rule{rule("bash", "*", allow, manifest), rule("rm", "*", deny, manifest)}

// TestUsageIsReportedOncePerTokenToWhoeverSumsOverSpans sums the usage of the GenAI
// conventions over all spans, as backends do, by the names of either version of them.
func TestUsageIsReportedOncePerTokenToWhoeverSumsOverSpans(t *testing.T) {
	for optIn, cacheWrite := range map[string]string{
		"": "gen_ai.usage.cache_creation.input_tokens", "http": "gen_ai.usage.cache_creation.input_tokens",
		"http, gen_ai_latest_experimental": "gen_ai.usage.cache_write.input_tokens",
	} {
		t.Setenv("OTEL_SEMCONV_STABILITY_OPT_IN", optIn)
		h := newHarness(t, Options{Rules: talkRules}, SessionOptions{})
		talk(h)
		h.check()
		got := map[string]int64{}
		for _, span := range h.rec.All() {
			for _, kv := range span.Attributes {
				if strings.HasPrefix(string(kv.Key), "gen_ai.usage.") {
					got[string(kv.Key)] += kv.Value.AsInt64()
				}
			}
		}
		want := map[string]int64{
			"gen_ai.usage.input_tokens": 200, "gen_ai.usage.output_tokens": 40, cacheWrite: 60,
			"gen_ai.usage.cache_read.input_tokens": 120, "gen_ai.usage.reasoning.output_tokens": 10,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("opt-in %q: (-want +have)\n%s", optIn, diff)
		}
		if turn := one(t, h.rec.All().Turns()); turn.Usage.Tokens.Total() != 240 {
			t.Errorf("the turn has %+v", turn.Usage.Tokens)
		}
	}
}

func TestContentIsOnTheSpansOfModelCallsWhereItIsAskedFor(t *testing.T) {
	for _, test := range []struct {
		name    string
		env     string
		option  bool
		capture bool
	}{{"not by default", "", false, false}, {"not if refused", "false", false, false},
		{"by the variable", "True", false, true}, {"by the option", "", true, true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", test.env)
			h := newHarness(t, Options{Rules: talkRules, CaptureContent: test.option}, SessionOptions{})
			talk(h)
			h.check()
			keys := []attribute.Key{semconv.GenAISystemInstructionsKey, semconv.GenAIToolDefinitionsKey,
				semconv.GenAIInputMessagesKey, semconv.GenAIOutputMessagesKey}
			var got []string
			for _, span := range h.rec.All() {
				for _, key := range keys {
					i := slices.IndexFunc(span.Attributes, func(kv attribute.KeyValue) bool { return kv.Key == key })
					if i < 0 {
						continue
					}
					text := span.Attributes[i].Value.AsString()
					if !json.Valid([]byte(text)) {
						t.Errorf("%s is no JSON: %s", key, text)
					}
					got = append(got, fmt.Sprintf("%s %s %s", span.Name, key, text))
				}
			}
			if !test.capture {
				if len(got) > 0 {
					t.Errorf("spans have content: %s", got)
				}
				return
			}
			const (
				chat   = "chat gpt-5-mini gen_ai."
				prompt = chat + `system_instructions [{"type":"text","content":"Be careful."}]`
				tools  = chat + `tool.definitions [{"type":"function","name":"bash","description":"Run it",` +
					`"parameters":{}}]`
				user  = `{"role":"user","parts":[{"type":"text","content":"what is here?"}]}`
				asked = `{"role":"assistant","parts":[{"type":"text","content":"Let me look."},` +
					`{"type":"tool_call","id":"call_1","name":"bash","arguments":{"cmd":"ls"}}]}`
				results = `{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1",` +
					`"response":"a.go with [redacted:anthropic-key]"}]},` +
					`{"role":"assistant","parts":[{"type":"tool_call","id":"call_2","name":"rm","arguments":1}]},` +
					`{"role":"tool","parts":[{"type":"tool_call_response","id":"call_2",` +
					`"response":"permission denied: the manifest denies rm *"}]}`
				answer = `{"role":"assistant","parts":[{"type":"text","content":"A file."}]}`
			)
			want := []string{
				prompt, tools, chat + "input.messages [" + user + "]", chat + "output.messages [" + asked + "]",
				prompt, tools, chat + "input.messages [" + user + "," + asked + "," + results + "]",
				chat + "output.messages [" + answer + "]", prompt, tools,
				chat + "input.messages [" + user + "," + asked + "," + results + "," + answer + "]",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("content (-want +have):\n%s", diff)
			}
		})
	}
}

// TestCapturedContentIsBounded has a turn that is much longer than what a span may have.
func TestCapturedContentIsBounded(t *testing.T) {
	h, ctx, turn := begin(t, Options{CaptureContent: true, MaxPartBytes: 2000})
	for i := range 30 {
		_, call := turn.StartModelCall(ctx, ModelCallOptions{})
		call.Text(fmt.Sprint("answer ", i, strings.Repeat(" x", 100)))
		_, tool := turn.StartTool(ctx, ToolOptions{ID: fmt.Sprint(i), Name: "bash", Input: i})
		call.End(ModelResult{}, nil)
		tool.End(strings.Repeat("y", 300))
	}
	h.end(turn)
	calls := h.rec.All().ModelCalls()
	last := calls[len(calls)-1].InputMessages
	if len(last) > 2000 || !strings.Contains(last, "answer 28 ") || strings.Contains(last, "answer 2 ") {
		t.Errorf("%d bytes: %s", len(last), last)
	}
}

// TestMetricsOfTheGenAIConventions reads the metrics of a run by their names in either
// version of the conventions.
func TestMetricsOfTheGenAIConventions(t *testing.T) {
	model := "gen_ai.operation.name=chat gen_ai.provider.name=openai gen_ai.request.model=gpt-5-mini"
	answered := model + " gen_ai.response.model=gpt-5-mini-2026"
	common := map[string]string{
		"gen_ai.execute_tool.duration s gen_ai.operation.name=execute_tool gen_ai.tool.name=bash " +
			"gen_ai.tool.type=function": "1 of 2.0",
		"gen_ai.invoke_agent.duration s gen_ai.agent.name=coder gen_ai.operation.name=invoke_agent": "1 of 3.0",
		"gen_ai.invoke_agent.inference_calls {inference_call} gen_ai.agent.name=coder":              "1 of 3",
		"gen_ai.invoke_agent.tool_calls {tool_call} gen_ai.agent.name=coder":                        "1 of 1",
		"agenttrace.permission.denials {call} action=deny gen_ai.tool.name=rm source=manifest":      "1",
		"agenttrace.loop.warnings {warning} gen_ai.agent.name=coder":                                "1",
	}
	for optIn, own := range map[string]map[string]string{
		"": {
			"gen_ai.client.operation.duration s " + answered:                              "1 of 1.0",
			"gen_ai.client.operation.duration s " + model:                                 "1 of 0.0",
			"gen_ai.client.operation.duration s error.type=_OTHER " + model:               "1 of 0.0",
			"gen_ai.client.operation.time_to_first_chunk s " + answered:                   "1 of 0.4",
			"gen_ai.client.token.usage {token} " + answered + " gen_ai.token.type=input":  "1 of 100",
			"gen_ai.client.token.usage {token} " + answered + " gen_ai.token.type=output": "1 of 20",
			"gen_ai.client.token.usage {token} " + model + " gen_ai.token.type=input":     "1 of 100",
			"gen_ai.client.token.usage {token} " + model + " gen_ai.token.type=output":    "1 of 20",
		},
		"gen_ai_latest_experimental": {
			"gen_ai.client.inference.duration s " + answered:                "1 of 1.0",
			"gen_ai.client.inference.duration s " + model:                   "1 of 0.0",
			"gen_ai.client.inference.duration s error.type=_OTHER " + model: "1 of 0.0",
			"gen_ai.client.inference.time_to_first_chunk s " + answered:     "1 of 0.4",
		},
	} {
		t.Setenv("OTEL_SEMCONV_STABILITY_OPT_IN", optIn)
		want := map[string]string{}
		for _, m := range []map[string]string{common, own} {
			for k, v := range m {
				want[k] = v
			}
		}
		if optIn != "" {
			for kind, n := range map[string]string{"input": "100", "output": "20", "cache_read.input": "60",
				"cache_write.input": "30", "reasoning.output": "5"} {
				name := "gen_ai.client.inference.usage." + kind + "_tokens {token} "
				want[name+answered+" gen_ai.token.modality=text"], want[name+model+" gen_ai.token.modality=text"] = n, n
			}
		}
		reader := sdkmetric.NewManualReader()
		h := newHarness(t, Options{
			Rules: talkRules, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
			LoopDetection: &LoopDetection{Window: 4, Repetitions: 2},
		}, SessionOptions{})
		talk(h)
		h.check()
		if diff := cmp.Diff(want, measured(t, reader)); diff != "" {
			t.Errorf("opt-in %q: (-want +have)\n%s", optIn, diff)
		}
	}
}

// measured returns what was measured by name, unit and attributes.
func measured(t *testing.T, reader sdkmetric.Reader) map[string]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	testscale.Must(t, reader.Collect(t.Context(), &all))
	got := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != semconv.ScopeName || scope.Scope.SchemaURL != semconv.SchemaURL {
			t.Errorf("scope = %+v", scope.Scope)
		}
		for _, m := range scope.Metrics {
			key := func(set attribute.Set) string {
				text := m.Name + " " + m.Unit
				for _, kv := range set.ToSlice() {
					text += " " + string(kv.Key) + "=" + kv.Value.String()
				}
				return text
			}
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					got[key(p.Attributes)] = fmt.Sprintf("%d of %.1f", p.Count, p.Sum)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					got[key(p.Attributes)] = fmt.Sprintf("%d of %d", p.Count, p.Sum)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					got[key(p.Attributes)] = fmt.Sprint(p.Value)
				}
			}
		}
	}
	return got
}
