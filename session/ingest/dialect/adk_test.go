package dialect

import (
	"encoding/json"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// The spans are as google-adk 1.0 to 2.x for Python (June 2025 to September 2026)
// and ADK for Go 0.1.0, 1.0.0 and 2.2.0 emit them.
func TestADK(t *testing.T) {
	const scope = "gcp.vertex.agent"
	python := map[string]any{"telemetry.sdk.language": "python"}
	weather := json.RawMessage(`{"city":"Oslo"}`)
	compacts := true
	tests := map[string]struct {
		span frameworkSpan
		want []fact.Fact
	}{
		"invocation, Python": {
			frameworkSpan{scope: scope, version: "1.18.0", name: "invocation", root: true, resource: python},
			[]fact.Fact{{Kind: fact.Turn, SessionAttrs: &fact.SessionAttrs{Client: "google-adk 1.18.0"}}},
		},
		"agent, Go": {
			frameworkSpan{scope: scope, version: "2.2.0", name: "invoke_agent root_agent", root: true,
				attrs: map[string]any{
					"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "root_agent",
					"gen_ai.agent.description":       "",
					"gen_ai.conversation.id":         "s1",
					"gcp.vertex.agent.invocation_id": "e-1",
				}},
			[]fact.Fact{{Kind: fact.Turn, Session: "s1", SessionKey: "gen_ai.conversation.id", TurnID: "e-1",
				Agent: "root_agent", SessionAttrs: &fact.SessionAttrs{Client: "google-adk 2.2.0"}}},
		},
		"agent in an agent, Go": {
			frameworkSpan{scope: scope, name: "invoke_agent helper", attrs: map[string]any{
				"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper",
				"gcp.vertex.agent.invocation_id": "e-1",
			}},
			[]fact.Fact{{Kind: fact.Turn, TurnID: "e-1", Agent: "helper"}},
		},
		"agent, Python 1.4 and Java": {
			frameworkSpan{scope: scope, name: "agent_run [helper]"},
			[]fact.Fact{{Kind: fact.Turn, Agent: "helper"}},
		},
		"call_llm, Python": {
			frameworkSpan{scope: scope, name: "call_llm", resource: python, attrs: map[string]any{
				"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini-2.5-flash",
				"gcp.vertex.agent.invocation_id": "e-1",
				"gcp.vertex.agent.session_id":    "s1", "gcp.vertex.agent.event_id": "ev-1",
				"gcp.vertex.agent.llm_request": `{"model": "gemini-2.5-flash", "config": {"system_instruction": "Be brief.", "temperature": 0.2, "labels": {"adk_agent_name": "root_agent"},
					"tools": [{"function_declarations": [{"name": "get_weather", "description": "tells"}]}, {"google_search": {}}]},
					"contents": [{"role": "user", "parts": [{"text": "weather in Oslo?"}]}]}`,
				"gcp.vertex.agent.llm_response": `{"model_version":"gemini-2.5-flash-001",` +
					`"content":{"parts":[{"text":"Hm.","thought":true},{"function_call":{"name":"get_weather",` +
					`"args":{"city":"Oslo"}}}],"role":"model"},"finish_reason":"STOP",` +
					`"usage_metadata":{"prompt_token_count":100,"cached_content_token_count":40,` +
					`"candidates_token_count":10,"thoughts_token_count":30,"total_token_count":140}}`,
				"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10,
				"gen_ai.response.finish_reasons": []any{"stop"},
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Session: "s1", SessionKey: "gcp.vertex.agent.session_id", TurnID: "e-1",
				RequestID: "call_llm:0909090909090909", RequiresTurn: true, Agent: "root_agent",
				Model:         &session.Model{ProviderID: "gcp.vertex.agent", ModelID: "gemini-2.5-flash"},
				ResponseModel: "gemini-2.5-flash-001", Temperature: new(0.2),
				SystemPrompt: "Be brief.",
				ToolCatalog: `[{"name":"get_weather","description":"tells"},{"name":"google_search",` +
					`"type":"google_search"}]`,
				Input: []fact.Message{userSays("weather in Oslo?")},
				Output: []fact.Part{{Kind: fact.PartReasoning, Text: "Hm."},
					{Kind: fact.PartCall, Name: "get_weather", Input: weather}}, Finish: "stop",
				Usage: &fact.Usage{Tokens: session.Usage{Input: 60, CacheRead: 40, Output: 10, Reasoning: 30},
					Basis: fact.Inclusive},
			}},
		},
		"generate_content in call_llm, Python": {
			frameworkSpan{scope: scope, name: "generate_content gemini-2.5-flash", resource: python,
				attrs: map[string]any{
					"gen_ai.operation.name": "generate_content", "gen_ai.system": "gemini",
					"gen_ai.request.model": "gemini-2.5-flash",
					"gen_ai.agent.name":    "root_agent", "gen_ai.conversation.id": "s1",
					"gcp.vertex.agent.event_id": "ev-1", "gcp.vertex.agent.invocation_id": "e-1",
					"gen_ai.usage.input_tokens":            100,
					"gen_ai.usage.output_tokens":           40,
					"gen_ai.usage.reasoning.output_tokens": 30, "gen_ai.usage.cache_read.input_tokens": 40,
					"gen_ai.response.finish_reasons": []any{"stop"},
				}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Session: "s1", SessionKey: "gen_ai.conversation.id", TurnID: "e-1",
				RequestID: "call_llm:0102030405060708", RequiresTurn: true, Agent: "root_agent",
				Model: &session.Model{ProviderID: "gemini", ModelID: "gemini-2.5-flash"}, Finish: "stop",
				Usage: &fact.Usage{Tokens: session.Usage{Input: 60, CacheRead: 40, Output: 10, Reasoning: 30},
					Basis: fact.Inclusive},
			}},
		},
		"call_llm, content withheld": {
			frameworkSpan{scope: scope, name: "call_llm", resource: python, attrs: map[string]any{
				"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini-2.5-flash",
				"gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.llm_response": "{}",
				"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3,
				"gen_ai.usage.experimental.reasoning_tokens": 2,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, RequestID: "call_llm:0909090909090909", RequiresTurn: true,
				Model: &session.Model{ProviderID: "gcp.vertex.agent", ModelID: "gemini-2.5-flash"},
				Usage: &fact.Usage{Tokens: session.Usage{Input: 7, Output: 3, Reasoning: 2}, Basis: fact.Inclusive},
			}},
		},
		"call_llm, cut short": {
			frameworkSpan{scope: scope, name: "call_llm", resource: python, attrs: map[string]any{
				"gen_ai.request.model": "gemini-2.5-flash",
				"gcp.vertex.agent.llm_request": `{"model": "gemini-2.5-flash", "contents": [{"role": "user", ` +
					`"parts": [{"text": "weather in Oslo?"}]}, {"role": "mod`,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, RequestID: "call_llm:0909090909090909", RequiresTurn: true,
				Model:    &session.Model{ModelID: "gemini-2.5-flash"},
				Input:    []fact.Message{userSays("weather in Oslo?")},
				Problems: []string{"llm_request is no JSON: it may have been cut before export"},
			}},
		},
		"call_llm that was interrupted": {
			frameworkSpan{scope: scope, name: "call_llm", resource: python, attrs: map[string]any{
				"gen_ai.request.model": "gemini-live", "gcp.vertex.agent.llm_response": `{"interrupted":true,` +
					`"partial":true}`,
			}},
			[]fact.Fact{{Kind: fact.ModelCall, RequestID: "call_llm:0909090909090909", RequiresTurn: true,
				Aborted: true,
				Model:   &session.Model{ModelID: "gemini-live"}}},
		},
		"call_llm that fails": {
			frameworkSpan{scope: scope, name: "call_llm", resource: python, attrs: map[string]any{
				"gen_ai.request.model":          "m",
				"gcp.vertex.agent.llm_response": `{"error_code":"RESOURCE_EXHAUSTED","error_message":"quota"}`,
			}},
			[]fact.Fact{{Kind: fact.ModelCall, RequestID: "call_llm:0909090909090909", RequiresTurn: true, Failed: true,
				ErrorType: "RESOURCE_EXHAUSTED", Error: "quota", Model: &session.Model{ModelID: "m"}}},
		},
		"call_llm, Go 0.1": {
			frameworkSpan{scope: scope, name: "call_llm", root: true, attrs: map[string]any{
				"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini-2.5-flash",
				"gcp.vertex.agent.invocation_id": "e-1", "gcp.vertex.agent.session_id": "s1",
				"gcp.vertex.agent.llm_request": `{"config":{"systemInstruction":{"parts":[{"text":"Be brief."}],` +
					`"role":"user"},"tools":[{"functionDeclarations":[{"name":"get_weather"}]}]},` +
					`"content":[{"parts":[{"text":"hi"}],"role":"user"}],"model":"gemini-2.5-flash"}`,
				"gcp.vertex.agent.llm_response": `{"Content":{"parts":[{"text":"Hello."}],"role":"model"},` +
					`"UsageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"toolUsePromptTokenCount":1},` +
					`"Partial":false,"Interrupted":false,"ErrorCode":"","FinishReason":"STOP"}`,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Session: "s1", SessionKey: "gcp.vertex.agent.session_id", TurnID: "e-1",
				RequestID:    "call_llm:0909090909090909",
				Model:        &session.Model{ProviderID: "gcp.vertex.agent", ModelID: "gemini-2.5-flash"},
				SystemPrompt: "Be brief.",
				ToolCatalog:  `[{"name":"get_weather"}]`,
				Input:        []fact.Message{userSays("hi")}, Output: says("Hello."), Finish: "STOP",
				Usage: &fact.Usage{Tokens: session.Usage{Input: 10, Output: 4}, Basis: fact.Inclusive},
			}},
		},
		"generate_content, Go, without tokens": {
			frameworkSpan{scope: scope, name: "generate_content mock", attrs: map[string]any{
				"gen_ai.operation.name": "generate_content", "gen_ai.request.model": "mock",
				"gcp.vertex.agent.event_id":      "ev",
				"gcp.vertex.agent.invocation_id": "e-1",
				"gen_ai.response.finish_reasons": []any{""},
			}},
			[]fact.Fact{{Kind: fact.ModelCall, TurnID: "e-1", RequiresTurn: true,
				Model: &session.Model{ModelID: "mock"}}},
		},
		"tool": {
			frameworkSpan{scope: scope, name: "execute_tool get_weather", resource: python, attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
				"gen_ai.tool.type":    "FunctionTool",
				"gen_ai.tool.call.id": "adk-1", "gen_ai.agent.name": "root_agent",
				"gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.llm_response": "{}",
				"gcp.vertex.agent.tool_call_args": `{"city":"Oslo"}`,
				"gcp.vertex.agent.tool_response":  `{"result":"rain"}`, "gcp.vertex.agent.event_id": "ev-2",
			}},
			[]fact.Fact{{
				Kind: fact.ToolCall, CallID: "adk-1", RequiresTurn: true, Agent: "root_agent",
				Tool: &fact.Tool{Name: "get_weather", Input: weather, Output: json.RawMessage(`{"result":"rain"}`),
					Succeeded: true},
			}},
		},
		"tool, nothing reported": {
			frameworkSpan{scope: scope, name: "execute_tool get_weather", resource: python, attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
				"gen_ai.tool.call.id":             "<not specified>",
				"gcp.vertex.agent.tool_call_args": map[string]any{},
				"gcp.vertex.agent.tool_response":  `{"result": "<not specified>"}`,
			}},
			[]fact.Fact{{Kind: fact.ToolCall, RequiresTurn: true, Tool: &fact.Tool{Name: "get_weather"}}},
		},
		"tool that raises": {
			frameworkSpan{scope: scope, name: "execute_tool get_weather", resource: python,
				failed: "ValueError: no such city",
				attrs: map[string]any{
					"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
					"error.type":                      "ValueError",
					"gcp.vertex.agent.tool_call_args": `{"city":"Oslo"}`,
				}},
			[]fact.Fact{{Kind: fact.ToolCall, RequiresTurn: true, Failed: true, Error: "ValueError: no such city",
				ErrorType: "ValueError", Tool: &fact.Tool{Name: "get_weather", Input: weather}}},
		},
		"tool that answers an error": {
			frameworkSpan{scope: scope, name: "execute_tool get_weather", attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
				"gcp.vertex.agent.tool_response": `{"error":"no such city"}`,
			}},
			[]fact.Fact{{Kind: fact.ToolCall, RequiresTurn: true, Failed: true, Error: "no such city",
				Tool: &fact.Tool{Name: "get_weather"}}},
		},
		"tool that waits for a person": {
			frameworkSpan{scope: scope, name: "execute_tool pay",
				failed: `error tool "pay" requires confirmation, please approve or reject`, attrs: map[string]any{
					"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "adk-2",
					"gcp.vertex.agent.tool_call_args": `{"eur":5}`,
					"gcp.vertex.agent.tool_response": `{"error":"error tool \"pay\" requires confirmation,` +
						` please approve or reject"}`,
				}},
			[]fact.Fact{
				{Kind: fact.Permission, CallID: "adk-2", RequiresTurn: true,
					Decision: &fact.Decision{ToolName: "pay", Action: "ask", Outcome: "pending"}},
				{Kind: fact.ToolCall, CallID: "adk-2", RequiresTurn: true,
					Tool: &fact.Tool{Name: "pay", Input: json.RawMessage(`{"eur":5}`)}},
			},
		},
		"tool that a person refused": {
			frameworkSpan{scope: scope, name: "execute_tool pay", resource: python, attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "adk-2",
				"gcp.vertex.agent.tool_response": `{"error": "This tool call is rejected."}`,
			}},
			[]fact.Fact{
				{Kind: fact.Permission, CallID: "adk-2", RequiresTurn: true, Decision: &fact.Decision{
					ToolName: "pay", Action: "deny", Outcome: "denied", Reply: "reject", Source: "user",
					Reason: "This tool call is rejected.",
				}},
				{Kind: fact.ToolCall, CallID: "adk-2", RequiresTurn: true, Tool: &fact.Tool{Name: "pay", Denied: true}},
			},
		},
		"merged tools": {
			frameworkSpan{scope: scope, name: "execute_tool (merged)", attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)",
				"gcp.vertex.agent.tool_call_args": "N/A", "gcp.vertex.agent.tool_response": "{}",
			}},
			[]fact.Fact{{Kind: fact.Step, RequiresTurn: true}},
		},
		"workflow": {
			frameworkSpan{scope: scope, name: "invoke_workflow flow", root: true, failed: "boom", attrs: map[string]any{
				"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "flow",
				"gen_ai.conversation.id": "s1",
			}},
			[]fact.Fact{{Kind: fact.Turn, Session: "s1", SessionKey: "gen_ai.conversation.id", Failed: true,
				Error: "boom"}},
		},
		"workflow in a workflow": {
			frameworkSpan{scope: scope, name: "invoke_workflow flow",
				attrs: map[string]any{"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.nested": true}},
			[]fact.Fact{{Kind: fact.Step, RequiresTurn: true}},
		},
		"node": {
			frameworkSpan{scope: scope, name: "invoke_node n",
				attrs: map[string]any{"gen_ai.operation.name": "invoke_node", "gen_ai.node.name": "n"}},
			[]fact.Fact{{Kind: fact.Step, RequiresTurn: true}},
		},
		"compaction": {
			frameworkSpan{scope: scope, name: "compact_events", attrs: map[string]any{
				"gen_ai.operation.name": "compact_events", "gen_ai.compaction.trigger": "token_threshold",
				"gen_ai.compaction.event_count": 12,
			}},
			[]fact.Fact{{Kind: fact.Compaction, RequiresTurn: true,
				Compacted: &fact.Compacted{Auto: &compacts, Trigger: "token_threshold", SummarizedMessages: 12}}},
		},
		"another instrumentation in its place": {
			frameworkSpan{scope: "opentelemetry.instrumentation.google_genai", name: "generate_content gemini",
				resource: python,
				attrs: map[string]any{
					"gen_ai.operation.name": "generate_content", "gen_ai.request.model": "gemini",
					"gen_ai.agent.name":         "a",
					"gen_ai.conversation.id":    "s1",
					"gcp.vertex.agent.event_id": "ev", "gcp.vertex.agent.invocation_id": "e-1",
					"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"hi"}]}]`,
				}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Session: "s1", SessionKey: "gen_ai.conversation.id", TurnID: "e-1",
				RequestID: "call_llm:0102030405060708", Agent: "a",
				Model: &session.Model{ModelID: "gemini"}, Input: []fact.Message{userSays("hi")},
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { want(t, tt.span.facts(t, "adk"), tt.want...) })
	}
}

func TestADKRecord(t *testing.T) {
	system := &session.Model{ProviderID: "gcp.gemini"}
	content := func(role string, part map[string]any) map[string]any {
		return map[string]any{"content": map[string]any{"role": role, "parts": []any{part}}}
	}
	tests := map[string]struct {
		event string
		attrs map[string]any
		body  any
		want  []fact.Fact
	}{
		"system": {"gen_ai.system.message", nil, map[string]any{"content": "Be brief."},
			[]fact.Fact{{Kind: fact.ModelCall, Model: system, SystemPrompt: "Be brief."}}},
		"system withheld": {"gen_ai.system.message", nil, map[string]any{"content": "<elided>"}, nil},
		"user": {
			"gen_ai.user.message", map[string]any{"user.id": "u1"}, content("user", map[string]any{"text": "hello"}),
			[]fact.Fact{{Kind: fact.ModelCall, Model: system, Input: []fact.Message{userSays("hello")},
				SessionAttrs: &fact.SessionAttrs{UserID: "u1"}}},
		},
		"user withheld": {"gen_ai.user.message", nil, map[string]any{"content": "<elided>"}, nil},
		"what the model answered": {"gen_ai.user.message", nil,
			content("model", map[string]any{"functionCall": map[string]any{"name": "some_tool",
				"args": map[string]any{"arg1": "val1"}}}), nil},
		"nothing":         {"gen_ai.user.message", nil, map[string]any{"content": nil}, nil},
		"no map":          {"gen_ai.choice", nil, "<elided>", nil},
		"choice withheld": {"gen_ai.choice", nil, map[string]any{"index": 0, "content": "<elided>"}, nil},
		"choice withheld, ended": {"gen_ai.choice", nil, map[string]any{"index": 0, "content": "<elided>",
			"finish_reason": "STOP"}, []fact.Fact{{Kind: fact.ModelCall, Model: system, Finish: "STOP"}}},
		"what a tool answered": {
			"gen_ai.user.message", nil, content("user",
				map[string]any{"functionResponse": map[string]any{"name": "some_tool",
					"response": map[string]any{"result": "x"}}}),
			[]fact.Fact{{Kind: fact.ModelCall, Model: system, Input: []fact.Message{
				{Role: "tool", Parts: []fact.Part{{Kind: fact.PartResult, Name: "some_tool",
					Output: json.RawMessage(`{"result":"x"}`)}}},
			}}},
		},
		"choice": {
			"gen_ai.choice", nil, map[string]any{"index": 0, "finish_reason": "STOP",
				"content": map[string]any{"role": "model", "parts": []any{map[string]any{"text": "text response"}}}},
			[]fact.Fact{{Kind: fact.ModelCall, Model: system, Output: says("text response"), Finish: "STOP"}},
		},
		"details": {
			"gen_ai.client.inference.operation.details",
			map[string]any{
				"gcp.vertex.agent.invocation_id": "e-1", "gen_ai.agent.name": "a", "gen_ai.usage.input_tokens": 3,
				"gen_ai.input.messages": []any{map[string]any{"role": "user",
					"parts": []any{map[string]any{"type": "text", "content": "hi"}}}},
			},
			nil,
			[]fact.Fact{{
				Kind: fact.ModelCall, TurnID: "e-1", Agent: "a", Model: system, Input: []fact.Message{userSays("hi")},
				Usage: &fact.Usage{Tokens: session.Usage{Input: 3}, Basis: fact.Inclusive},
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			attrs := map[string]any{"gen_ai.system": "gcp.gemini"}
			for k, v := range tt.attrs {
				attrs[k] = v
			}
			want(t, frameworkRecord(t, "adk", "gcp.vertex.agent", tt.event, attrs, tt.body), tt.want...)
		})
	}
}
