package dialect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// The exporter sends one span a request, the root last, the first call of a tool in
// a trace of its own, and the error of a tool on whatever ends after it.
func TestOpenInferenceCapture(t *testing.T) {
	facts, rest := capturedBy(t, "openinference", "openinference-vercel-2.8.1-on-ai-v6/multistep")
	if len(facts) != 7 || rest != 0 {
		t.Errorf("%d facts, %d not read", len(facts), rest)
	}
	const (
		user  = `{"role":"user","parts":[{"kind":"text","text":"Compare Paris and Oslo then delete /tmp/x"}]}`
		first = `{"kind":"text","text":"Checking Paris "},{"kind":"call","call":"call_a","name":"get_weather",` +
			`"input":{"city":"Paris"}}`
		firstIn = `,{"role":"assistant","parts":[` + first +
			`]},{"role":"tool","parts":[{"kind":"result","call":"call_a","name":"get_weather",` +
			`"output":{"city":"Paris","tempC":12,"sky":"rain"}}]}`
		second = `{"kind":"call","call":"call_b","name":"get_weather","input":{"city":"Oslo"}},{"kind":"call",` +
			`"call":"call_c","name":"delete_file","input":{"path":"/tmp/x"}}`
		secondIn = `,{"role":"assistant","parts":[` + second +
			`]},{"role":"tool","parts":[{"kind":"result","call":"call_b","name":"get_weather",` +
			`"output":{"city":"Oslo","tempC":12,"sky":"rain"}},{"kind":"result","call":"call_c","name":"delete_file",` +
			`"error":"EACCES: permission denied, unlink /tmp/x"}]}`
		answer = `{"kind":"reasoning","text":"Done."},{"kind":"text","text":"Paris 12C, Oslo 12C; delete failed. "}`
		head   = `{"kind":"model_call","dialect":"","name":"ai.streamText.doStream weather-agent",` +
			`"requires_turn":true,"agent":"weather-agent",` + mockModel
		blame = `"otel.status_description":"EACCES: permission denied, unlink /tmp/x"`
		tail  = `,"response_id":"resp_s","response_model":"mock-model-2026",`
		stamp = `"ai.response.timestamp":"2026-11-20T18:27:38.970Z"`
	)
	if diff := cmp.Diff([]string{
		head + `,"input":[` + user + `],"output":[` + first +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":100,"output":20,` +
			`"reasoning":0,"cache_read":0,"cache_write":0},"basis":"inclusive"}` + tail + `"finish":"tool-calls",` +
			`"session_attrs":{"user_id":"u_1"},"extra":{"ai.response.msToFinish":92.92696000000001,` +
			`"ai.response.msToFirstChunk":20.44470299999989,` + stamp + `}}`,
		head + `,"input":[` + user + firstIn + `],"output":[` + second +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":50,"output":25,` +
			`"reasoning":0,"cache_read":100,"cache_write":0},"basis":"inclusive"}` + tail +
			`"finish":"tool-calls","session_attrs":{"user_id":"u_1"},` +
			`"extra":{"ai.response.msToFinish":51.64526799999999,"ai.response.msToFirstChunk":12.018956000000117,` +
			stamp + `,` + blame + `}}`,
		head + `,"input":[` + user + firstIn + secondIn + `],"output":[` + answer +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":70,"output":22,` +
			`"reasoning":8,"cache_read":150,"cache_write":0},"basis":"inclusive"}` + tail +
			`"finish":"stop","session_attrs":{"user_id":"u_1"},"extra":{"ai.response.msToFinish":250.9092979999998,` +
			`"ai.response.msToFirstChunk":8.572775999999976,` + stamp + `,` + blame + `}}`,
	}, ofKind(t, facts, fact.ModelCall)); diff != "" {
		t.Error("calls of the model (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"turn","dialect":"","name":"ai.streamText weather-agent","agent":"weather-agent",` + mockModel +
			`,"input":[` + user + `],"output":[` + answer +
			`],"system_prompt_digest":"yes","usage":{"tokens":{"input":220,"output":67,"reasoning":8,` +
			`"cache_read":250,"cache_write":0},"basis":"inclusive"},"finish":"stop",` +
			`"session_attrs":{"user_id":"u_1"},"extra":{` + blame + `}}`,
	}, ofKind(t, facts, fact.Turn)); diff != "" {
		t.Error("turn (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"tool_call","dialect":"","name":"ai.toolCall weather-agent","call":"call_a","agent":"weather-agent",` +
			`"tool":{"name":"get_weather","input":{"city":"Paris"},"output":{"city":"Paris","tempC":12,"sky":"rain"},` +
			`"succeeded":true},"session_attrs":{"user_id":"u_1"}}`,
		`{"kind":"tool_call","dialect":"","name":"ai.toolCall weather-agent","call":"call_b","agent":"weather-agent",` +
			`"tool":{"name":"get_weather","input":{"city":"Oslo"},"output":{"city":"Oslo","tempC":12,"sky":"rain"},` +
			`"succeeded":true},"session_attrs":{"user_id":"u_1"}}`,
		`{"kind":"tool_call","dialect":"","name":"ai.toolCall weather-agent","call":"call_c","agent":"weather-agent",` +
			`"failed":true,"error":"EACCES: permission denied, unlink /tmp/x","error_type":"Error",` +
			`"tool":{"name":"delete_file","input":{"path":"/tmp/x"}},"session_attrs":{"user_id":"u_1"}}`,
	}, ofKind(t, facts, fact.ToolCall)); diff != "" {
		t.Error("calls of tools (-want +got):", diff)
	}
	if f := facts[0]; f.ParentID != "" || f.TraceID == facts[1].TraceID || f.RequiresTurn {
		t.Errorf("the first tool is not alone: parent %q, rooted %v", f.ParentID, f.RequiresTurn)
	}
	for _, f := range facts {
		if f.Session != "sess_42" || f.Dialect != "openinference" {
			t.Errorf("%s: session %q, dialect %q", f.Name, f.Session, f.Dialect)
		}
	}
}

// TestOpenInferenceSpans reads spans of frameworks that have nothing but
// OpenInference.
func TestOpenInferenceSpans(t *testing.T) {
	empty := pcommon.NewValueEmpty().AsRaw()
	for _, test := range []struct {
		name  string
		attrs map[string]any
		more  func(ptrace.Span)
		want  string
	}{
		{
			"a model call",
			map[string]any{
				"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o-2024", "llm.provider": "openai",
				"llm.system":                        "openai",
				"llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "Be terse.",
				"llm.input_messages.1.message.role":                                       "user",
				"llm.input_messages.1.message.contents.0.message_content.type":            "text",
				"llm.input_messages.1.message.contents.0.message_content.text":            "What is it?",
				"llm.input_messages.1.message.contents.1.message_content.type":            "image",
				"llm.input_messages.1.message.contents.1.message_content.image.image.url": "https://x.test/a.png",
				"llm.input_messages.1.message.tool_calls.0.tool_call.id":                  "null",
				"llm.input_messages.1.message.tool_calls.0.tool_call.function.name":       empty,
				"llm.input_messages.10.message.role":                                      "tool",
				"llm.input_messages.10.message.tool_call_id":                              "c1",
				"llm.input_messages.10.message.content":                                   `{"ok":true}`,
				"llm.input_messages.2.message.role":                                       "assistant",
				"llm.input_messages.2.message.content":                                    empty,
				"llm.input_messages.2.message.tool_calls.0.tool_call.id":                  "c1",
				"llm.input_messages.2.message.tool_calls.0.tool_call.function.name":       "look",
				"llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments":  `"{\"at\":\"a.png\"}"`,
				"llm.output_messages.0.message.role":                                      "assistant",
				"llm.output_messages.0.message.content":                                   "A cat.",
				"output.value":                                                            `{"choices":[{"message":{"role":"assistant","content":"A cat."},"finish_reason":"stop"}]}`,
				"llm.token_count.prompt":                                                  100,
				"llm.token_count.completion":                                              20.0,
				"llm.token_count.total":                                                   "120",
				"llm.token_count.prompt_details.cache_read":                               60,
				"llm.token_count.prompt_details.cache_write":                              10,
				"llm.token_count.completion_details.reasoning":                            5,
				"llm.cost.prompt": 0.25, "llm.cost.completion": 0.5,
				"llm.invocation_parameters":    `{"temperature":0.5,"max_tokens":10}`,
				"llm.tools.1.tool.json_schema": `{"name":"b"}`,
				"llm.tools.0.tool.json_schema": `{"name":"a"}`,
				"metadata":                     `{"plan":"pro"}`, "user.id": "u", "session.id": "s",
				"graph.node.id": "agent",
			}, nil,
			`{"kind":"model_call","dialect":"","name":"span","model":{"provider_id":"openai",` +
				`"model_id":"gpt-4o-2024"},"input":[{"role":"user","parts":[{"kind":"text","text":"What is it?"},` +
				`{"kind":"file","media_type":"image/*","url":"https://x.test/a.png"}]},{"role":"assistant",` +
				`"parts":[{"kind":"call","call":"c1","name":"look","input":{"at":"a.png"}}]},{"role":"tool",` +
				`"parts":[{"kind":"result","call":"c1","output":{"ok":true}}]}],"output":[{"kind":"text",` +
				`"text":"A cat."}],"system_prompt_digest":"yes","tool_catalog_digest":"yes",` +
				`"usage":{"tokens":{"input":30,"output":15,"reasoning":5,"cache_read":60,"cache_write":10},` +
				`"basis":"inclusive","raw":{"llm.token_count.completion":20,` +
				`"llm.token_count.completion_details.reasoning":5,"llm.token_count.prompt":100,` +
				`"llm.token_count.prompt_details.cache_read":60,"llm.token_count.prompt_details.cache_write":10,` +
				`"llm.token_count.total":120}},"cost_usd":0.75,"temperature":0.5,"finish":"stop",` +
				`"session_attrs":{"user_id":"u"},"extra":{"graph.node.id":"agent","metadata":{"plan":"pro"}}}`,
		},
		{
			"an agent",
			map[string]any{"openinference.span.kind": "AGENT", "agent.name": "planner", "input.value": "Plan it",
				"input.mime_type": "text/plain", "output.value": `{"plan":[1,2]}`,
				"output.mime_type": "application/json"}, nil,
			`{"kind":"turn","dialect":"","name":"span","agent":"planner","input":[{"role":"user",` +
				`"parts":[{"kind":"text","text":"Plan it"}]}],"output":[{"kind":"text","text":"{\"plan\":[1,2]}"}]}`,
		},
		{
			"a chain that is the root",
			map[string]any{"openinference.span.kind": "CHAIN", "input.value": `{"messages":[{"role":"user",` +
				`"content":"Hi"}]}`,
				"output.value": `{"messages":[{"type":"human","content":"Hi"},{"type":"ai","content":"Hello"}]}`},
			func(s ptrace.Span) { s.SetParentSpanID(pcommon.SpanID{}) },
			`{"kind":"turn","dialect":"","name":"span","input":[{"role":"user","parts":[{"kind":"text",` +
				`"text":"Hi"}]}],"output":[{"kind":"text","text":"Hello"}]}`,
		},
		{
			"a chain below another",
			map[string]any{"openinference.span.kind": "chain", "input.value": "Hi"}, nil,
			`{"kind":"step","dialect":"","name":"span"}`,
		},
		{
			"a tool",
			map[string]any{"openinference.span.kind": "TOOL", "tool.name": "look", "tool.id": "null",
				"tool_call.id":    "c",
				"tool.parameters": `{"at":{"type":"string"}}`, "input.value": `{"at":"x"}`,
				"output.value": "nothing there"}, nil,
			`{"kind":"tool_call","dialect":"","name":"span","call":"c","tool":{"name":"look","input":{"at":"x"},` +
				`"output":"nothing there","succeeded":true}}`,
		},
		{
			"a tool of LangChain, whose answer names the call",
			map[string]any{"openinference.span.kind": "TOOL", "tool.name": "look", "input.value": "{'at': 'x'}",
				"output.value": `{"output":{"type":"tool","content":"nothing","tool_call_id":"c9","status":"success"}}`}, nil,
			`{"kind":"tool_call","dialect":"","name":"span","call":"c9","tool":{"name":"look","input":"{'at': 'x'}",` +
				`"output":"nothing","succeeded":true}}`,
		},
		{
			"a tool that failed",
			map[string]any{"openinference.span.kind": "TOOL"},
			func(s ptrace.Span) { failWith(s, "ValueError", "no such place") },
			`{"kind":"tool_call","dialect":"","name":"span","failed":true,"error":"no such place",` +
				`"error_type":"ValueError","tool":{"name":"span"}}`,
		},
		{
			"a tool of the AI SDK that got the error of another",
			map[string]any{
				"openinference.span.kind": "TOOL", "gen_ai.operation.name": "execute_tool",
				"gen_ai.tool.name":           "weather",
				"gen_ai.tool.call.id":        "c",
				"gen_ai.tool.call.arguments": `{"city":"Oslo"}`, "gen_ai.tool.call.result": `{"sky":"clear"}`,
				"input.value": `{"city":"Oslo"}`, "output.value": `{"sky":"clear"}`,
			},
			func(s ptrace.Span) {
				s.Status().SetCode(ptrace.StatusCodeError)
				s.Status().SetMessage("no zone Mars")
			},
			`{"kind":"tool_call","dialect":"","name":"span","call":"c","tool":{"name":"weather",` +
				`"input":{"city":"Oslo"},"output":{"sky":"clear"},"succeeded":true},` +
				`"extra":{"otel.status_description":"no zone Mars"}}`,
		},
		{
			"a model call that failed itself",
			map[string]any{"openinference.span.kind": "LLM", "llm.output_messages.0.message.content": "Par",
				"llm.finish_reason": "stop"},
			func(s ptrace.Span) { failWith(s, "TimeoutError", "too slow") },
			`{"kind":"model_call","dialect":"","name":"span","output":[{"kind":"text","text":"Par"}],"finish":"stop",` +
				`"failed":true,"error":"too slow","error_type":"TimeoutError"}`,
		},
		{
			"a retriever", map[string]any{"openinference.span.kind": "RETRIEVER", "input.value": "q"}, nil,
			`{"kind":"step","dialect":"","name":"span"}`,
		},
		{
			"a model call without a kind", map[string]any{"llm.model_name": "m", "input.value": "Hi",
				"output.value": empty},
			nil,
			`{"kind":"model_call","dialect":"","name":"span","model":{"model_id":"m"},"input":[{"role":"user",` +
				`"parts":[{"kind":"text","text":"Hi"}]}]}`,
		},
		{
			"a function call of old",
			map[string]any{"openinference.span.kind": "LLM", "llm.output_messages.0.message.function_call_name": "f",
				"llm.output_messages.0.message.function_call_arguments_json": `{"a":`}, nil,
			`{"kind":"model_call","dialect":"","name":"span","output":[{"kind":"call","name":"f","input":"{\"a\":"}]}`,
		},
		{
			"GenAI attributes, which report more",
			map[string]any{"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat",
				"gen_ai.request.model":      "m",
				"gen_ai.usage.input_tokens": 5, "llm.token_count.prompt": 500, "llm.model_name": "n",
				"llm.output_messages.0.message.content": "Hi"}, nil,
			`{"kind":"model_call","dialect":"","name":"span","model":{"model_id":"m"},"output":[{"kind":"text",` +
				`"text":"Hi"}],"usage":{"tokens":{"input":5,"output":0,"reasoning":0,"cache_read":0,"cache_write":0},` +
				`"basis":"inclusive","raw":{"gen_ai.usage.input_tokens":5},` +
				`"stated":{"input":5},"counter":"openinference.instrumentation.x@"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, got := spanWith(t, "openinference.instrumentation.x", "span", test.attrs, test.more)
			if got.dialect != "openinference" {
				t.Errorf("read by %q", got.dialect)
			}
			if diff := cmp.Diff(test.want+"\n", lines(t, []fact.Fact{one(t, got.facts)})); diff != "" {
				t.Error("(-want +got):", diff)
			}
		})
	}
}

// The root of a call over several steps has the tokens of the last one in version
// 5 of the AI SDK, and the exporter copies them.
func TestOpenInferenceRootOfVersion5(t *testing.T) {
	_, got := spanOf(t, "ai", "ai.generateText", map[string]any{
		"openinference.span.kind": "AGENT", "ai.operationId": "ai.generateText", "ai.usage.promptTokens": 9,
		"llm.token_count.prompt": 9, "llm.token_count.completion": 1,
	})
	if f := one(t, got.facts); f.Kind != fact.Turn || f.Usage != nil {
		t.Error(lines(t, got.facts))
	}
}
