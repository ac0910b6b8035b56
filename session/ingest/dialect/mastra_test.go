package dialect

import (
	"encoding/json"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// The spans are as @mastra/otel-exporter 1.4.0 with @mastra/observability 1.17.9
// emits them, where they do not state otherwise: "1.0" had no spans of an inference,
// and "0.3", under the scope @mastra/otel, other keys.
func TestMastra(t *testing.T) {
	const scope = "@mastra/otel-exporter"
	framework := map[string]any{"service.name": "app", "service.version": "1.71.0"}
	weather := json.RawMessage(`{"city":"Oslo"}`)
	tests := map[string]struct {
		span frameworkSpan
		want []fact.Fact
	}{
		"agent": {
			frameworkSpan{scope: scope, version: "1.4.0", name: "invoke_agent Weather Agent", root: true, ok: true,
				resource: framework, attrs: map[string]any{
					"gen_ai.operation.name": "invoke_agent", "mastra.span.type": "agent_run",
					"gen_ai.agent.id":         "weather-agent",
					"gen_ai.agent.name":       "Weather Agent",
					"mastra.agent_run.input":  `[{"role":"user","content":"weather in Oslo?"}]`,
					"mastra.agent_run.output": `{"text":"It rains.","files":[]}`, "mastra.agent_run.max_steps": 5,
					"gen_ai.tool.definitions":    `["get_weather","book"]`,
					"gen_ai.system_instructions": "You know the weather.",
					"gen_ai.conversation.id":     "thread-1", "mastra.metadata.threadId": "thread-1",
					"mastra.metadata.resourceId": "user-1", "mastra.metadata.runId": "run-1",
					"mastra.metadata.plan": "pro", "mastra.tags": `["a"]`,
				}},
			[]fact.Fact{{
				Kind: fact.Turn, Session: "thread-1", SessionKey: "gen_ai.conversation.id", TurnID: "run-1",
				Agent:        "Weather Agent",
				SystemPrompt: "You know the weather.", ToolCatalog: `[{"name":"get_weather"},{"name":"book"}]`,
				Input: []fact.Message{userSays("weather in Oslo?")}, Output: says("It rains."),
				SessionAttrs: &fact.SessionAttrs{UserID: "user-1", Client: "mastra 1.71.0"},
			}},
		},
		"agent in a tool": {
			frameworkSpan{scope: scope, name: "invoke_agent Helper", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "invoke_agent", "mastra.span.type": "agent_run", "gen_ai.agent.name": "Helper",
				"mastra.agent_run.input": "find it", "mastra.metadata.runId": "run-2",
			}},
			[]fact.Fact{{Kind: fact.Turn, Agent: "Helper", Input: []fact.Message{userSays("find it")}}},
		},
		"generation around inferences": {
			frameworkSpan{scope: scope, name: "model_generation gpt-5", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "model_generation", "mastra.span.type": "model_generation",
				"mastra.model_generation.output": `{"text":"It rains."}`,
			}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"step": {
			frameworkSpan{scope: scope, name: "agent_step Weather Agent", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "agent_step", "mastra.span.type": "model_step",
				"mastra.model_step.step_index":   0,
				"mastra.model_step.is_continued": true,
			}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"step that calls": {
			frameworkSpan{scope: scope, name: "agent_step Weather Agent", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "agent_step", "mastra.span.type": "model_step",
				"mastra.model_step.output": `{"text":"Let me look.","toolCalls":[{"toolCallId":"call_1",` +
					`"toolName":"get_weather","args":{"city":"Oslo"}},` +
					`{"toolCallId":"call_2","toolName":"get_weather","args":{"city":"Oslo"}}]}`,
			}},
			[]fact.Fact{{Kind: fact.Step}, {Kind: fact.ModelCall, RequiresTurn: true, Output: []fact.Part{
				{Kind: fact.PartText, Text: "Let me look."},
				{Kind: fact.PartCall, CallID: "call_1", Name: "get_weather",
					Input: weather},
				{Kind: fact.PartCall, CallID: "call_2", Name: "get_weather", Input: weather},
			}}},
		},
		"step that calls, 1.0": {
			frameworkSpan{scope: scope, name: "step 0", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "model_step", "mastra.span.type": "model_step",
				"mastra.model_step.output": `{"text":"","toolCalls":[{"toolCallId":"call_1","toolName":"get_weather",` +
					`"args":{"city":"Oslo"}}]}`,
			}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"inference": {
			frameworkSpan{scope: scope, name: "chat gpt-5", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "chat", "mastra.span.type": "model_inference", "gen_ai.request.model": "gpt-5",
				"gen_ai.provider.name": "openai.responses",
				"gen_ai.agent.id":      "weather-agent", "gen_ai.agent.name": "Weather Agent",
				"gen_ai.input.messages": `[{"role":"user","content":"weather in Oslo?"}]`,
				"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text",` +
					`"content":"It rains."}]}]`,
				"gen_ai.response.finish_reasons": `["stop"]`, "gen_ai.usage.input_tokens": 100,
				"gen_ai.usage.output_tokens":           20,
				"gen_ai.usage.reasoning_tokens":        8,
				"gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.cache_creation.input_tokens": 10,
				"mastra.completion_start_time": "2026-11-20T10:00:00.000Z",
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, RequiresTurn: true, Agent: "Weather Agent",
				Model: &session.Model{ProviderID: "openai", ModelID: "gpt-5"},
				Input: []fact.Message{userSays("weather in Oslo?")}, Output: says("It rains."), Finish: "stop",
				Usage: &fact.Usage{Tokens: session.Usage{Input: 30, CacheRead: 60, CacheWrite: 10, Output: 12,
					Reasoning: 8},
					Basis: fact.Inclusive},
			}},
		},
		"inference that only calls, output as it is": {
			frameworkSpan{scope: scope, name: "chat gpt-5", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "chat", "mastra.span.type": "model_inference", "gen_ai.request.model": "gpt-5",
				"gen_ai.output.messages": `{"toolCalls":[{"type":"tool-call",` +
					`"payload":{"toolCallId":"call_1","toolName":"get_weather","args":{"city":"Oslo"}}}],` +
					`"reasoningText":"Hm."}`,
				"gen_ai.response.finish_reasons": `["tool-calls"]`,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, RequiresTurn: true, Model: &session.Model{ModelID: "gpt-5"}, Finish: "tool-calls",
				Output: []fact.Part{{Kind: fact.PartReasoning, Text: "Hm."},
					{Kind: fact.PartCall, CallID: "call_1", Name: "get_weather", Input: weather}},
			}},
		},
		"inference after a refusal": {
			frameworkSpan{scope: scope, name: "chat gpt-5", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "chat", "mastra.span.type": "model_inference", "gen_ai.request.model": "gpt-5",
				"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"book it"}]},` +
					`{"role":"assistant","parts":[{"type":"tool_call","id":"call_2","name":"book",` +
					`"arguments":"{}"}]},{"role":"tool","parts":[{"type":"tool_call_response","id":"call_2",` +
					`"name":"book","response":"\"Tool call was not approved by the user\""}]}]`,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, RequiresTurn: true, Model: &session.Model{ModelID: "gpt-5"},
				Input: []fact.Message{
					userSays("book it"),
					{Role: "assistant", Parts: []fact.Part{{Kind: fact.PartCall, CallID: "call_2", Name: "book",
						Input: json.RawMessage(`{}`)}}},
					{Role: "tool",
						Parts: []fact.Part{{Kind: fact.PartResult, CallID: "call_2", Name: "book", Denied: true,
							Error: mastraRefusal}}},
				},
			}},
		},
		"generation, 1.0": {
			frameworkSpan{scope: scope, name: "chat gpt-4o", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "chat", "mastra.span.type": "model_generation",
				"gen_ai.request.model":      "gpt-4o",
				"gen_ai.provider.name":      "openai",
				"gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 9,
				"gen_ai.usage.cached_input_tokens": 20,
				"gen_ai.usage.cache_write_tokens":  5,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, RequiresTurn: true,
				Model: &session.Model{ProviderID: "openai", ModelID: "gpt-4o"},
				Usage: &fact.Usage{Tokens: session.Usage{Input: 25, CacheRead: 20, CacheWrite: 5, Output: 9},
					Basis: fact.Inclusive},
			}},
		},
		"step, 1.0": {
			frameworkSpan{scope: scope, name: "step 0", ok: true,
				attrs: map[string]any{"gen_ai.operation.name": "model_step", "mastra.span.type": "model_step"}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"generation, 0.3": {
			frameworkSpan{scope: "@mastra/otel", version: "1.0.0", name: "chat gpt-4o", attrs: map[string]any{
				"gen_ai.operation.name": "chat", "span.kind": "client", "mastra.span.type": "llm_generation",
				"mastra.span_id":       "x",
				"input":                `{"messages":[{"role":"user","content":"hi"}]}`,
				"gen_ai.prompt":        `{"messages":[{"role":"user","content":"hi"}]}`,
				"output":               `{"text":"Hello.","toolCalls":[]}`,
				"gen_ai.completion":    `{"text":"Hello.","toolCalls":[]}`,
				"gen_ai.request.model": "gpt-4o", "gen_ai.system": "openai.chat", "gen_ai.usage.input_tokens": 5,
				"gen_ai.usage.output_tokens": 2, "gen_ai.usage.total_tokens": 7,
				"gen_ai.response.finish_reasons": "stop", "threadId": "thread-1",
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Session: "thread-1", SessionKey: "threadId", RequiresTurn: true,
				Model: &session.Model{ProviderID: "openai", ModelID: "gpt-4o"},
				Input: []fact.Message{userSays("hi")}, Output: says("Hello."), Finish: "stop",
				Usage: &fact.Usage{Tokens: session.Usage{Input: 5, Output: 2}, Basis: fact.Inclusive},
			}},
		},
		"agent, 0.3": {
			frameworkSpan{scope: "@mastra/otel", name: "agent.weather", root: true, attrs: map[string]any{
				"gen_ai.operation.name": "agent.run", "mastra.span.type": "agent_run", "input": "hi",
				"output":                `{"text":"Hello."}`,
				"agent.available_tools": `["get_weather"]`,
			}},
			[]fact.Fact{{
				Kind: fact.Turn, Agent: "weather", Input: []fact.Message{userSays("hi")}, Output: says("Hello."),
				ToolCatalog: `[{"name":"get_weather"}]`,
			}},
		},
		"tool": {
			frameworkSpan{scope: scope, name: "execute_tool get_weather", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "mastra.span.type": "tool_call",
				"gen_ai.tool.name":           "get_weather",
				"gen_ai.tool.call.id":        "call_1",
				"gen_ai.tool.call.arguments": `{"city":"Oslo"}`, "gen_ai.tool.call.result": `{"sky":"rain"}`,
				"gen_ai.tool.type": "tool",
			}},
			[]fact.Fact{{
				Kind: fact.ToolCall, CallID: "call_1", Tool: &fact.Tool{Name: "get_weather", Input: weather,
					Output: json.RawMessage(`{"sky":"rain"}`), Succeeded: true},
			}},
		},
		"tool that fails": {
			frameworkSpan{scope: scope, name: "execute_tool get_weather", failed: "no such city", attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "mastra.span.type": "mcp_tool_call",
				"gen_ai.tool.name": "get_weather",
				"error.type":       "TOOL_EXECUTION_FAILED", "error.message": "no such city",
			}},
			[]fact.Fact{{Kind: fact.ToolCall, Failed: true, Error: "no such city", ErrorType: "TOOL_EXECUTION_FAILED",
				Tool: &fact.Tool{Name: "get_weather"}}},
		},
		"tool of the client": {
			frameworkSpan{scope: scope, name: "client_tool_call getLocation", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "client_tool_call", "mastra.span.type": "client_tool_call",
				"mastra.client_tool_call.input": `{"precise":true}`, "mastra.metadata.toolCallId": "call_3",
			}},
			[]fact.Fact{{Kind: fact.ToolCall, CallID: "call_3",
				Tool: &fact.Tool{Name: "getLocation", Input: json.RawMessage(`{"precise":true}`)}}},
		},
		"tool whose result was cut": {
			frameworkSpan{scope: scope, name: "execute_tool read", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "mastra.span.type": "tool_call", "gen_ai.tool.name": "read",
				"gen_ai.tool.call.result": `{"text":"127.0`,
			}},
			[]fact.Fact{{
				Kind: fact.ToolCall, Problems: []string{"the tool's output is no JSON: it may have been cut before " +
					"export"},
				Tool: &fact.Tool{Name: "read", Output: json.RawMessage(`"{\"text\":\"127.0"`), Succeeded: true,
					Truncated: true},
			}},
		},
		"declined tool": {
			frameworkSpan{scope: scope, name: "execute_tool book", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "execute_tool", "mastra.span.type": "tool_call", "gen_ai.tool.name": "book",
				"gen_ai.tool.call.id":     "call_2",
				"gen_ai.tool.call.result": mastraRefusal,
			}},
			[]fact.Fact{
				{Kind: fact.Permission, CallID: "call_2", Decision: &fact.Decision{ToolName: "book", Action: "deny",
					Outcome: "denied", Reply: "reject", Source: "user", Reason: mastraRefusal}},
				{Kind: fact.ToolCall, CallID: "call_2", Tool: &fact.Tool{Name: "book", Denied: true}},
			},
		},
		"approval": {
			frameworkSpan{scope: scope, name: "chunk tool-call-approval", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "model_chunk", "mastra.span.type": "model_chunk",
				"mastra.model_chunk.output": `{"toolCallId":"call_2","toolName":"book","args":{"room":7},` +
					`"resumeSchema":"{}"}`,
			}},
			[]fact.Fact{
				{Kind: fact.ToolCall, CallID: "call_2",
					Tool: &fact.Tool{Name: "book", Input: json.RawMessage(`{"room":7}`)}},
				{Kind: fact.Permission, CallID: "call_2", Decision: &fact.Decision{ToolName: "book", Action: "ask",
					Outcome: "pending"}},
			},
		},
		"chunk": {
			frameworkSpan{scope: scope, name: "chunk text", ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "model_chunk", "mastra.span.type": "model_chunk",
				"mastra.model_chunk.output": `{"text":"It "}`,
			}},
			nil,
		},
		"workflow": {
			frameworkSpan{scope: scope, name: "invoke_workflow trip", root: true, ok: true, attrs: map[string]any{
				"gen_ai.operation.name": "invoke_workflow", "mastra.span.type": "workflow_run",
				"mastra.workflow_run.input": `{"from":"Oslo","to":"Bergen"}`,
			}},
			[]fact.Fact{{Kind: fact.Turn}},
		},
		"workflow in an agent": {
			frameworkSpan{scope: scope, name: "invoke_workflow trip", ok: true,
				attrs: map[string]any{"gen_ai.operation.name": "invoke_workflow", "mastra.span.type": "workflow_run"}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"workflow's step": {
			frameworkSpan{scope: scope, name: "workflow_step fetch", ok: true,
				attrs: map[string]any{"gen_ai.operation.name": "workflow_step", "mastra.span.type": "workflow_step"}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"memory": {
			frameworkSpan{scope: scope, name: "memory recall", ok: true,
				attrs: map[string]any{"gen_ai.operation.name": "memory_operation",
					"mastra.span.type": "memory_operation"}},
			[]fact.Fact{{Kind: fact.Step}},
		},
		"scorer": {
			frameworkSpan{scope: scope, name: "scorer_run toxicity", root: true, ok: true,
				attrs: map[string]any{"gen_ai.operation.name": "scorer_run", "mastra.span.type": "scorer_run"}},
			[]fact.Fact{{Kind: fact.Turn, Purpose: "scoring"}},
		},
		"empty values": {
			frameworkSpan{scope: scope, name: "chat", attrs: map[string]any{
				"gen_ai.operation.name": "chat", "mastra.span.type": "model_inference", "gen_ai.input.messages": nil,
				"gen_ai.output.messages": "", "gen_ai.response.finish_reasons": "[]",
			}},
			[]fact.Fact{{Kind: fact.ModelCall, RequiresTurn: true}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { want(t, tt.span.facts(t, "mastra"), tt.want...) })
	}
}
