package dialect

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// capturedBy reads the bodies of a capture in their order and gives the facts of
// the spans and records that the dialect recognizes, and how many it does not.
func capturedBy(t *testing.T, dialect, dir string) (facts []fact.Fact, rest int) {
	t.Helper()
	bodies, err := filepath.Glob(filepath.Join("../testdata/captures", dir, "*.json"))
	if err != nil || len(bodies) == 0 {
		t.Fatalf("no bodies in %s: %v", dir, err)
	}
	add := func(r read) {
		if r.dialect == dialect {
			facts = append(facts, r.facts...)
		} else if rest++; r.dialect != "" {
			t.Errorf("a span or record of %s is read by %q", dir, r.dialect)
		}
	}
	for _, name := range bodies {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body); err == nil {
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						add(readSpan(s, ss.Scope(), rs.Resource()))
					}
				}
			}
		}
		if ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(body); err == nil {
			for _, rl := range ld.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, r := range sl.LogRecords().All() {
						add(readRecord(r, sl.Scope(), rl.Resource()))
					}
				}
			}
		}
	}
	return facts, rest
}

// ofKind returns the facts of a kind, as lines.
func ofKind(t *testing.T, facts []fact.Fact, kind fact.Kind) []string {
	t.Helper()
	var all []fact.Fact
	for _, f := range facts {
		if f.Kind == kind {
			f.Usage, f.Service = withoutRaw(f.Usage), ""
			all = append(all, f)
		}
	}
	return strings.Split(strings.TrimSuffix(lines(t, all), "\n"), "\n")
}

func withoutRaw(u *fact.Usage) *fact.Usage {
	if u == nil {
		return nil
	}
	return &fact.Usage{Tokens: u.Tokens, Basis: u.Basis, Proof: u.Proof}
}

const (
	mockModel   = `"model":{"provider_id":"mock-provider","model_id":"mock-model-id"}`
	weatherTalk = `{"role":"user","parts":[{"kind":"text","text":"Weather in Paris and remove /etc/hosts"}]}`
	weatherCall = `{"kind":"text","text":"Let me check."},{"kind":"call","call":"call_1","name":"get_weather",` +
		`"input":{"city":"Paris"}},{"kind":"call","call":"call_2","name":"delete_file","input":{"path":"/etc/hosts"}}`
	weatherDone = `{"kind":"reasoning","text":"The delete failed; report it."},{"kind":"text",` +
		`"text":"12C and rain. I could not delete /etc/hosts."}`
)

func TestAISDK6Capture(t *testing.T) {
	facts, rest := capturedBy(t, "ai-sdk", "vercel-ai-sdk-v6/toolerror")
	if len(facts) != 5 || rest != 0 {
		t.Errorf("%d facts, %d not read", len(facts), rest)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"turn","dialect":"","name":"ai.generateText","agent":"weather-agent",` + mockModel + `,"input":[` +
			weatherTalk + `],"output":[` + weatherDone +
			`],"system_prompt_digest":"yes","usage":{"tokens":{"input":108,"output":62,"reasoning":12,` +
			`"cache_read":192,"cache_write":0},"basis":"inclusive"},"finish":"stop","session_attrs":{"user_id":"u_1"}}`,
	}, ofKind(t, facts, fact.Turn)); diff != "" {
		t.Error("turn (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
			`"agent":"weather-agent",` + mockModel + `,"input":[` + weatherTalk + `],"output":[` + weatherCall +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":56,"output":33,` +
			`"reasoning":0,"cache_read":64,"cache_write":0},"basis":"inclusive"},"response_id":"resp_zvhqct",` +
			`"response_model":"mock-model-2026","finish":"tool-calls","session_attrs":{"user_id":"u_1"},` +
			`"extra":{"ai.response.timestamp":"2026-11-20T18:15:30.692Z"}}`,
		`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
			`"agent":"weather-agent",` + mockModel + `,"input":[` + weatherTalk + `,{"role":"assistant","parts":[` +
			weatherCall + `]},{"role":"tool","parts":[{"kind":"result","call":"call_1","name":"get_weather",` +
			`"output":{"city":"Paris","tempC":12,"sky":"rain"}},{"kind":"result","call":"call_2",` +
			`"name":"delete_file","error":"EACCES: permission denied, unlink /etc/hosts"}]}],"output":[` + weatherDone +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":52,"output":29,` +
			`"reasoning":12,"cache_read":128,"cache_write":0},"basis":"inclusive"},"response_id":"resp_evnhmt",` +
			`"response_model":"mock-model-2026","finish":"stop","session_attrs":{"user_id":"u_1"},` +
			`"extra":{"ai.response.timestamp":"2026-11-20T18:15:30.692Z"}}`,
	}, ofKind(t, facts, fact.ModelCall)); diff != "" {
		t.Error("calls of the model (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"tool_call","dialect":"","name":"ai.toolCall","call":"call_1","agent":"weather-agent",` +
			`"tool":{"name":"get_weather","input":{"city":"Paris"},"output":{"city":"Paris","tempC":12,"sky":"rain"},` +
			`"succeeded":true},"session_attrs":{"user_id":"u_1"}}`,
		`{"kind":"tool_call","dialect":"","name":"ai.toolCall","call":"call_2","agent":"weather-agent","failed":true,` +
			`"error":"EACCES: permission denied, unlink /etc/hosts","error_type":"Error",` +
			`"tool":{"name":"delete_file","input":{"path":"/etc/hosts"}},"session_attrs":{"user_id":"u_1"}}`,
	}, ofKind(t, facts, fact.ToolCall)); diff != "" {
		t.Error("calls of tools (-want +got):", diff)
	}
	for _, f := range facts {
		if f.Session != "sess_42" || f.SessionKey != "ai.telemetry.metadata.sessionId" {
			t.Errorf("%s: session %q of %q", f.Name, f.Session, f.SessionKey)
		}
		if f.Kind == fact.ModelCall {
			if f.SystemPrompt != "You are a weather agent." {
				t.Errorf("system prompt %q", f.SystemPrompt)
			}
			var tools []struct{ Name, Description string }
			if err := json.Unmarshal([]byte(f.ToolCatalog), &tools); err != nil || len(tools) != 2 ||
				tools[1].Name != "delete_file" || tools[1].Description != "Deletes a file" {
				t.Errorf("catalog %s: %v", f.ToolCatalog, err)
			}
		}
	}
	facts, _ = capturedBy(t, "ai-sdk", "vercel-ai-sdk-v6/stream")
	want := `{"kind":"turn","dialect":"","name":"ai.streamText","agent":"weather-agent",` + mockModel +
		`,"input":[{"role":"user","parts":[{"kind":"text","text":"Stream hello"}]}],"output":[{"kind":"reasoning",` +
		`"text":"User wants a greeting."},{"kind":"text","text":"Hello there from a stream "}],` +
		`"usage":{"tokens":{"input":21,"output":9,"reasoning":5,"cache_read":0,"cache_write":0},"basis":"inclusive"},` +
		`"finish":"stop","session_attrs":{"user_id":"u_1"}}`
	if diff := cmp.Diff([]string{want}, ofKind(t, facts, fact.Turn)); diff != "" {
		t.Error("stream (-want +got):", diff)
	}
	facts, _ = capturedBy(t, "ai-sdk", "vercel-ai-sdk-v6/text")
	want = `{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
		`"agent":"weather-agent",` + mockModel + `,"input":[{"role":"user","parts":[{"kind":"text",` +
		`"text":"Say hello"}]}],"output":[{"kind":"text","text":"Hello from a mock model."}],` +
		`"system_prompt_digest":"yes","usage":{"tokens":{"input":11,"output":6,"reasoning":0,"cache_read":0,` +
		`"cache_write":0},"basis":"inclusive"},"temperature":0.2,"response_id":"resp_md0tu6",` +
		`"response_model":"mock-model-2026","finish":"stop","session_attrs":{"user_id":"u_1"},` +
		`"extra":{"ai.response.timestamp":"2026-11-20T18:15:29.777Z","ai.settings.maxOutputTokens":64}}`
	if diff := cmp.Diff([]string{want}, ofKind(t, facts, fact.ModelCall)); diff != "" {
		t.Error("text (-want +got):", diff)
	}
}

func TestAISDK7Capture(t *testing.T) {
	facts, rest := capturedBy(t, "ai-sdk", "vercel-ai-sdk-v7/toolerror")
	if len(facts) != 7 || rest != 0 {
		t.Errorf("%d facts, %d not read", len(facts), rest)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"model_call","dialect":"","name":"chat mock-model-id","requires_turn":true,` + mockModel +
			`,"input":[` +
			weatherTalk + `],"output":[` + weatherCall +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":56,"output":33,` +
			`"reasoning":0,"cache_read":64,"cache_write":0},"basis":"inclusive"},"response_id":"resp_06e4x7",` +
			`"response_model":"mock-model-2026","finish":"tool-calls"}`,
		`{"kind":"model_call","dialect":"","name":"chat mock-model-id","requires_turn":true,` + mockModel +
			`,"input":[` +
			weatherTalk + `,{"role":"assistant","parts":[` + weatherCall +
			`]},{"role":"tool","parts":[{"kind":"result","call":"call_1","output":{"city":"Paris","tempC":12,` +
			`"sky":"rain"}},{"kind":"result","call":"call_2","output":"Error: EACCES: permission denied,` +
			` unlink /etc/hosts"}]}],"output":[` + weatherDone + `],"system_prompt_digest":"yes",` +
			`"tool_catalog_digest":"yes","usage":{"tokens":{"input":52,"output":29,"reasoning":12,"cache_read":128,` +
			`"cache_write":0},"basis":"inclusive"},"response_id":"resp_4mey5s","response_model":"mock-model-2026",` +
			`"finish":"stop"}`,
	}, ofKind(t, facts, fact.ModelCall)); diff != "" {
		t.Error("calls of the model (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"tool_call","dialect":"","name":"execute_tool get_weather","call":"call_1","requires_turn":true,` +
			`"tool":{"name":"get_weather","input":{"city":"Paris"},"output":{"city":"Paris","tempC":12,"sky":"rain"},` +
			`"succeeded":true}}`,
		`{"kind":"tool_call","dialect":"","name":"execute_tool delete_file","call":"call_2","requires_turn":true,` +
			`"failed":true,"error":"EACCES: permission denied, unlink /etc/hosts","error_type":"Error",` +
			`"tool":{"name":"delete_file","input":{"path":"/etc/hosts"}}}`,
	}, ofKind(t, facts, fact.ToolCall)); diff != "" {
		t.Error("calls of tools (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"step","dialect":"","name":"step 1","requires_turn":true,"session_attrs":{"user_id":"u_1"}}`,
		`{"kind":"step","dialect":"","name":"step 2","requires_turn":true,"session_attrs":{"user_id":"u_1"}}`,
	}, ofKind(t, facts, fact.Step)); diff != "" {
		t.Error("steps (-want +got):", diff)
	}
	// The turn's usage is the sum of its steps', and that of the agent.
	turn := facts[len(facts)-1]
	if turn.Kind != fact.Turn || turn.Agent != "weather-agent" || turn.Session != "sess_42" ||
		turn.Usage.Tokens != (session.Usage{Input: 108, Output: 62, Reasoning: 12, CacheRead: 192}) {
		t.Error(lines(t, facts[len(facts)-1:]))
	}
	// Each turn is a trace, whose history was reported before.
	facts, _ = capturedBy(t, "ai-sdk", "vercel-ai-sdk-v7/session")
	var histories []int
	for _, f := range facts {
		if f.Kind == fact.Turn {
			histories = append(histories, f.History)
			if len(f.Input) != 1 || f.Finish != "stop" || f.Session != "sess_42" {
				t.Error(lines(t, []fact.Fact{f}))
			}
		}
	}
	if diff := cmp.Diff([]int{0, 2, 4}, histories); diff != "" {
		t.Error("histories (-want +got):", diff)
	}
}

// TestAISDKSpans reads spans as the versions of the SDK write them.
func TestAISDKSpans(t *testing.T) {
	for _, test := range []struct {
		name, scope, span string
		attrs             map[string]any
		more              func(ptrace.Span)
		want              string
	}{
		{
			"a model call of version 4", "ai", "ai.generateText.doGenerate",
			map[string]any{
				"operation.name": "ai.generateText.doGenerate", "ai.operationId": "ai.generateText.doGenerate",
				"ai.model.provider": "openai.chat", "ai.model.id": "gpt-4o",
				"ai.prompt.format":   "messages",
				"ai.prompt.messages": `[{"role":"user","content":[{"type":"text","text":"Weather?"}]}]`,
				"ai.prompt.tools": []any{`{"type":"function","name":"get_weather",` +
					`"parameters":{"type":"object"}}`},
				"ai.response.finishReason": "tool-calls",
				"ai.response.toolCalls": `[{"toolCallType":"function","toolCallId":"c","toolName":"get_weather",` +
					`"args":"{\"city\":\"Oslo\"}"}]`,
				"ai.usage.promptTokens": 40, "ai.usage.completionTokens": 8, "gen_ai.usage.input_tokens": 40,
				"gen_ai.usage.output_tokens": 8,
				"ai.settings.temperature":    0, "ai.settings.maxTokens": 100, "ai.telemetry.metadata.plan": "pro",
				"ai.response.id": "r",
			}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
				`"model":{"provider_id":"openai.chat","model_id":"gpt-4o"},"input":[{"role":"user",` +
				`"parts":[{"kind":"text","text":"Weather?"}]}],"output":[{"kind":"call","call":"c",` +
				`"name":"get_weather","input":{"city":"Oslo"}}],"tool_catalog_digest":"yes",` +
				`"usage":{"tokens":{"input":40,"output":8,"reasoning":0,"cache_read":0,"cache_write":0},` +
				`"basis":"inclusive"},"temperature":0,"response_id":"r","finish":"tool-calls",` +
				`"extra":{"ai.settings.maxTokens":100,"ai.telemetry.metadata.plan":"pro"}}`,
		},
		{
			"a root of version 5, which counts its last step only", "ai", "ai.generateText",
			map[string]any{
				"ai.operationId": "ai.generateText", "ai.telemetry.functionId": "bot",
				"ai.prompt":                `{"system":"Be terse.","prompt":"Weather?"}`,
				"ai.response.finishReason": "stop", "ai.response.text": "Rain.", "ai.usage.promptTokens": 60,
				"ai.usage.completionTokens": 5,
			}, nil,
			`{"kind":"turn","dialect":"","name":"ai.generateText","agent":"bot","input":[{"role":"user",` +
				`"parts":[{"kind":"text","text":"Weather?"}]}],"output":[{"kind":"text","text":"Rain."}],` +
				`"system_prompt_digest":"yes","finish":"stop"}`,
		},
		{
			"a root of a stream of version 5, which counts all", "ai", "ai.streamText",
			map[string]any{"ai.operationId": "ai.streamText", "ai.usage.inputTokens": 90, "ai.usage.outputTokens": 9,
				"ai.usage.cachedInputTokens": 30, "ai.usage.reasoningTokens": 4}, nil,
			`{"kind":"turn","dialect":"","name":"ai.streamText","usage":{"tokens":{"input":60,"output":5,` +
				`"reasoning":4,"cache_read":30,"cache_write":0},"basis":"inclusive"}}`,
		},
		{
			"an object, whose root counts its only call", "ai", "ai.generateObject",
			map[string]any{"ai.operationId": "ai.generateObject", "ai.response.object": `{"ok":true}`,
				"ai.response.finishReason": "stop", "ai.schema.name": "answer", "ai.usage.promptTokens": 7,
				"ai.usage.completionTokens": 3}, nil,
			`{"kind":"turn","dialect":"","name":"ai.generateObject","output":[{"kind":"text",` +
				`"text":"{\"ok\":true}"}],"usage":{"tokens":{"input":7,"output":3,"reasoning":0,"cache_read":0,` +
				`"cache_write":0},"basis":"inclusive"},"finish":"stop","extra":{"ai.schema.name":"answer"}}`,
		},
		{
			"the old spans of version 7", "ai", "ai.streamText.doStream",
			map[string]any{
				"ai.operationId": "ai.streamText.doStream", "ai.settings.context.userId": "u",
				"ai.settings.context.sessionId": "s",
				"ai.settings.context.tier":      2,
				"ai.response.finishReason":      "stop", "ai.response.text": "Hi",
				"ai.response.files":     `[{"type":"file","mediaType":"image/png","data":"iVBORw0KGgo="}]`,
				"ai.response.toolCalls": `[{"toolCallId":"c","toolName":"find","input":{"q":1}}]`,
			}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","requires_turn":true,` +
				`"output":[{"kind":"text","text":"Hi"},{"kind":"call","call":"c","name":"find","input":{"q":1}},` +
				`{"kind":"file","media_type":"image/png","url":"data:image/png;base64,iVBORw0KGgo="}],` +
				`"finish":"stop","session_attrs":{"user_id":"u"},"extra":{"ai.settings.context.tier":2}}`,
		},
		{
			"a provider whose input excludes the cache", "ai", "ai.generateText.doGenerate",
			map[string]any{"ai.operationId": "ai.generateText.doGenerate", "ai.usage.inputTokens": 50,
				"ai.usage.outputTokens": 9, "ai.usage.inputTokenDetails.noCacheTokens": 50,
				"ai.usage.inputTokenDetails.cacheReadTokens": 40}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
				`"usage":{"tokens":{"input":10,"output":9,"reasoning":0,"cache_read":40,"cache_write":0},` +
				`"basis":"inclusive","proof":1}}`,
		},
		{
			"counts that are none", "ai", "ai.generateText.doGenerate",
			map[string]any{"ai.operationId": "ai.generateText.doGenerate", "ai.usage.promptTokens": math.NaN(),
				"ai.usage.completionTokens": nil, "ai.response.finishReason": nil, "ai.response.text": 12}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
				`"output":[{"kind":"text","text":"12"}]}`,
		},
		{
			"a span that was renamed", "mine", "weather-agent ai.toolCall",
			map[string]any{"operation.name": "ai.toolCall weather-agent", "ai.toolCall.name": "f",
				"ai.toolCall.id":    "c",
				"ai.toolCall.input": `"{\"a\":1}"`, "ai.toolCall.output": `"done"`}, nil,
			`{"kind":"tool_call","dialect":"","name":"weather-agent ai.toolCall","call":"c","tool":{"name":"f",` +
				`"input":{"a":1},"output":"done","succeeded":true}}`,
		},
		{
			"a tool without content", "ai", "ai.toolCall",
			map[string]any{"ai.operationId": "ai.toolCall", "ai.toolCall.name": "f", "ai.toolCall.id": "c"}, nil,
			`{"kind":"tool_call","dialect":"","name":"ai.toolCall","call":"c","tool":{"name":"f","succeeded":true}}`,
		},
		{
			"a tool that was left", "ai", "ai.toolCall",
			map[string]any{"ai.operationId": "ai.toolCall", "ai.toolCall.name": "f", "ai.toolCall.id": "c",
				"ai.toolCall.args": `{}`}, nil,
			`{"kind":"tool_call","dialect":"","name":"ai.toolCall","call":"c","tool":{"name":"f","input":{}}}`,
		},
		{
			"an aborted call", "ai", "ai.generateText.doGenerate",
			map[string]any{"ai.operationId": "ai.generateText.doGenerate"},
			func(s ptrace.Span) { failWith(s, "AbortError", "This operation was aborted") },
			`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
				`"aborted":true,"failed":true,"error":"This operation was aborted","error_type":"AbortError"}`,
		},
		{
			"a call that the provider failed", "ai", "ai.streamText.doStream",
			map[string]any{"ai.operationId": "ai.streamText.doStream", "ai.response.finishReason": "error",
				"ai.response.text": "Par"}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","requires_turn":true,` +
				`"output":[{"kind":"text","text":"Par"}],"finish":"error","failed":true}`,
		},
		{
			"an aborted stream, of which only the root is left", "ai", "ai.streamText",
			map[string]any{"ai.operationId": "ai.streamText", "ai.prompt": `{"prompt":"Count"}`}, nil,
			`{"kind":"turn","dialect":"","name":"ai.streamText","input":[{"role":"user","parts":[{"kind":"text",` +
				`"text":"Count"}]}],"unfinished":true}`,
		},
		{
			"texts that were cut", "ai", "ai.generateText.doGenerate",
			map[string]any{
				"ai.operationId":        "ai.generateText.doGenerate",
				"ai.prompt.messages":    `[{"role":"user","content":[{"type":"text","text":"Weather in Par`,
				"ai.response.toolCalls": `[{"toolCallId":"c","toolName":"f","input":{}},{"toolCallId":"d","too`,
			}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.generateText.doGenerate","requires_turn":true,` +
				`"input":[{"role":"user","parts":[{"kind":"text","text":"Weather in Par"}]}],` +
				`"output":[{"kind":"call","call":"c","name":"f","input":{}}],` +
				`"problems":["the prompt could not be read whole","the tool calls could not be read whole"]}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, got := spanWith(t, test.scope, test.span, test.attrs, test.more)
			if got.dialect != "ai-sdk" {
				t.Errorf("read by %q", got.dialect)
			}
			f := one(t, got.facts)
			f.Usage = withoutRaw(f.Usage)
			if diff := cmp.Diff(test.want+"\n", lines(t, []fact.Fact{f})); diff != "" {
				t.Error("(-want +got):", diff)
			}
		})
	}
}

// failWith gives a span the error that JavaScript's SDK records.
func failWith(s ptrace.Span, kind, message string) {
	s.Status().SetCode(ptrace.StatusCodeError)
	s.Status().SetMessage(message)
	e := s.Events().AppendEmpty()
	e.SetName("exception")
	e.Attributes().PutStr("exception.type", kind)
	e.Attributes().PutStr("exception.message", message)
}

// What is no part of a session is not read, and not left to other dialects.
func TestAISDKOthers(t *testing.T) {
	if _, got := spanOf(t, "ai", "ai.embed.doEmbed", map[string]any{"ai.operationId": "ai.embed.doEmbed",
		"gen_ai.request.model": "m"}); got.dialect != "ai-sdk" || got.facts != nil {
		t.Errorf("read by %q: %s", got.dialect, lines(t, got.facts))
	}
	if _, got := spanOf(t, "web", "GET /", map[string]any{"ai.team": "blue"}); got.dialect != "" {
		t.Errorf("read by %q", got.dialect)
	}
}

// Whatever a value is, and wherever it is cut, its span is read into valid JSON.
func TestOddValues(t *testing.T) {
	for _, body := range []string{
		"vercel-ai-sdk-v6/toolerror/001-traces.json", "vercel-ai-sdk-v7/toolerror/001-traces.json",
		"openinference-vercel-2.8.1-on-ai-v6/multistep/006-traces.json", "opencode-1.18.33/serve-bash/010-traces.json",
	} {
		raw, err := os.ReadFile(filepath.Join("../testdata/captures", body))
		if err != nil {
			t.Fatal(err)
		}
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw)
		if err != nil {
			t.Fatal(err)
		}
		rs := td.ResourceSpans().At(0)
		ss := rs.ScopeSpans().At(0)
		for _, s := range ss.Spans().All() {
			if readSpan(s, ss.Scope(), rs.Resource()).facts == nil {
				continue
			}
			for key, value := range s.Attributes().All() {
				whole := value.AsString()
				if len(whole) > 2000 {
					continue // some 100 kB of tools, each cut of which is read again
				}
				for _, odd := range []any{nil, true, 1.5, -3, "", "null", "[]", "{", []byte{0, 255}, []any{nil, 1, "x"},
					map[string]any{"role": 1}, whole[:len(whole)/2], whole[:len(whole)*9/10], "\xff\x00"} {
					other := ptrace.NewSpan()
					s.CopyTo(other)
					v, _ := other.Attributes().Get(key)
					if err := v.FromRaw(odd); err != nil {
						t.Fatal(err)
					}
					for _, f := range readSpan(other, ss.Scope(), rs.Resource()).facts {
						if _, err := json.Marshal(f); err != nil {
							t.Errorf("%s of %s as %v: %v", key, s.Name(), odd, err)
						}
						if f.ToolCatalog != "" && !json.Valid([]byte(f.ToolCatalog)) {
							t.Errorf("%s of %s as %v: catalog %s", key, s.Name(), odd, f.ToolCatalog)
						}
					}
				}
			}
		}
	}
}
