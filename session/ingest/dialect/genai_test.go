package dialect

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// capturedGenAI returns the facts of the spans of a capture, as if their resource
// reported nothing.
func capturedGenAI(t *testing.T, path string) []fact.Fact {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("../testdata/captures", path))
	if err != nil {
		t.Fatal(err)
	}
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body)
	if err != nil {
		t.Fatal(err)
	}
	var out Emitter
	keys := NewKeys(nil)
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				s := NewSpan(span, ss.Scope(), pcommon.NewResource())
				if !isGenAI(&s) {
					t.Errorf("span %s is not recognized", span.Name())
				}
				out.OpenSpan(&genAI, &s, keys)
				readGenAI(&s, &out)
			}
		}
	}
	return out.All
}

func TestGenAICapture(t *testing.T) {
	facts := capturedGenAI(t, "vercel-ai-sdk-v7/toolerror/001-traces.json")
	var kinds []fact.Kind
	for i := range facts {
		kinds = append(kinds, facts[i].Kind)
		facts[i].TraceID, facts[i].Start, facts[i].End = "", 0, 0
	}
	if diff := cmp.Diff([]fact.Kind{fact.ModelCall, fact.ToolCall, fact.ToolCall, fact.Step, fact.ModelCall, fact.Step,
		fact.Turn}, kinds); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	model := &session.Model{ProviderID: "mock-provider", ModelID: "mock-model-id"}
	asked := []fact.Message{message("user", textPart("Weather in Paris and remove /etc/hosts"))}
	weather, remove := callPart("call_1", "get_weather", `{"city":"Paris"}`),
		callPart("call_2", "delete_file", `{"path":"/etc/hosts"}`)
	answer := []fact.Part{reasoningPart("The delete failed; report it."),
		textPart("12C and rain. I could not delete /etc/hosts.")}
	catalog := `[{"type":"function","name":"get_weather",` +
		`"inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",` +
		`"properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},` +
		`"description":"Current weather"},` +
		`{"type":"function","name":"delete_file","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#",` +
		`"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false},` +
		`"description":"Deletes a file"}]`
	want := []fact.Fact{
		{
			Kind: fact.ModelCall, Dialect: "gen-ai", SpanID: "9e719451182a008f", ParentID: "773b6652c1d2ce1d",
			Name: "chat mock-model-id", Model: model,
			Input: asked, Output: []fact.Part{textPart("Let me check."), weather, remove},
			SystemPrompt: "You are a weather agent.", ToolCatalog: catalog,
			Usage: &fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 56, Output: 33, CacheRead: 64},
				Raw: json.RawMessage(
					`{"ai.usage.inputTokenDetails.noCacheTokens":56,"ai.usage.outputTokenDetails.reasoningTokens":0,` +
						`"ai.usage.outputTokenDetails.textTokens":33,"gen_ai.usage.cache_creation.input_tokens":0,` +
						`"gen_ai.usage.cache_read.input_tokens":64,"gen_ai.usage.input_tokens":120,` +
						`"gen_ai.usage.output_tokens":33}`)},
			ResponseID: "resp_06e4x7", ResponseModel: "mock-model-2026", Finish: "tool-calls",
		},
		{
			Kind: fact.ToolCall, Dialect: "gen-ai", SpanID: "fba138fb4364d741", ParentID: "773b6652c1d2ce1d",
			Name: "execute_tool get_weather", CallID: "call_1",
			Tool: &fact.Tool{Name: "get_weather", Input: json.RawMessage(`{"city":"Paris"}`),
				Output: json.RawMessage(`{"city":"Paris","tempC":12,"sky":"rain"}`)},
		},
		{
			Kind: fact.ToolCall, Dialect: "gen-ai", SpanID: "cdaa2aea4f470783", ParentID: "773b6652c1d2ce1d",
			Name: "execute_tool delete_file", CallID: "call_2",
			Tool:   &fact.Tool{Name: "delete_file", Input: json.RawMessage(`{"path":"/etc/hosts"}`)},
			Failed: true, Error: "EACCES: permission denied, unlink /etc/hosts", ErrorType: "Error",
		},
		{
			Kind: fact.Turn, Dialect: "gen-ai", SpanID: "e13c2a4e1882fc28", Name: "invoke_agent mock-model-id",
			Agent: "weather-agent", Model: model,
			Session: "sess_42", SessionKey: "ai.settings.context.sessionId", SessionRank: 3,
			Input: asked, Output: append(answer[:2:2], weather, remove,
				resultPart("call_1", "", `{"city":"Paris","tempC":12,"sky":"rain"}`)),
			SystemPrompt: "You are a weather agent.",
			Usage: &fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 108, Output: 62, Reasoning: 12,
				CacheRead: 192},
				Raw: json.RawMessage(
					`{"ai.usage.inputTokenDetails.noCacheTokens":108,` +
						`"ai.usage.outputTokenDetails.reasoningTokens":12,` +
						`"ai.usage.outputTokenDetails.textTokens":62,"gen_ai.usage.cache_creation.input_tokens":0,` +
						`"gen_ai.usage.cache_read.input_tokens":192,"gen_ai.usage.input_tokens":300,` +
						`"gen_ai.usage.output_tokens":74}`)},
			Finish: "stop",
		},
	}
	if diff := cmp.Diff(want, []fact.Fact{facts[0], facts[1], facts[2], facts[6]}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	step := fact.Fact{Kind: fact.Step, Dialect: "gen-ai", SpanID: "773b6652c1d2ce1d", ParentID: "e13c2a4e1882fc28",
		Name: "step 1", RequiresTurn: true,
		Session: "sess_42", SessionKey: "ai.settings.context.sessionId", SessionRank: 3}
	if diff := cmp.Diff(step, facts[3]); diff != "" {
		t.Errorf("step: -want +got:\n%s", diff)
	}
	second := facts[4]
	if diff := cmp.Diff(answer, second.Output); diff != "" {
		t.Errorf("answer: -want +got:\n%s", diff)
	}
	results := []fact.Message{asked[0], message("assistant", textPart("Let me check."), weather, remove),
		message("tool", resultPart("call_1", "", `{"city":"Paris","tempC":12,"sky":"rain"}`),
			resultPart("call_2", "", `"Error: EACCES: permission denied, unlink /etc/hosts"`))}
	if diff := cmp.Diff(results, second.Input); diff != "" || second.History != 0 {
		t.Errorf("history %d, -want +got:\n%s", second.History, diff)
	}
}

func TestGenAICapturesAreSpansOfTheConventions(t *testing.T) {
	for _, path := range []string{"text", "stream", "session"} {
		for _, f := range capturedGenAI(t, "vercel-ai-sdk-v7/"+path+"/001-traces.json") {
			if f.Problems != nil || f.Failed {
				t.Errorf("%s: %s: %v, failed %v", path, f.Name, f.Problems, f.Failed)
			}
			if f.Kind == fact.ModelCall && (len(f.Input) == 0 || len(f.Output) == 0 || f.Usage == nil ||
				f.Finish == "") {
				t.Errorf("%s: %s lacks something", path, f.Name)
			}
		}
	}
}

// event is an event of a span.
type event struct {
	name  string
	attrs map[string]any
}

// genAISpanFacts returns the facts of a span.
func genAISpanFacts(t *testing.T, name string, kind ptrace.SpanKind, attrs map[string]any,
	events ...event) (facts []fact.Fact, recognized bool) {
	t.Helper()
	span := ptrace.NewSpan()
	span.SetName(name)
	span.SetKind(kind)
	if err := span.Attributes().FromRaw(attrs); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		added := span.Events().AppendEmpty()
		added.SetName(e.name)
		if err := added.Attributes().FromRaw(e.attrs); err != nil {
			t.Fatal(err)
		}
	}
	s := NewSpan(span, pcommon.NewInstrumentationScope(), pcommon.NewResource())
	var out Emitter
	out.OpenSpan(&genAI, &s, NewKeys(nil))
	readGenAI(&s, &out)
	return out.All, isGenAI(&s)
}

func TestGenAISpans(t *testing.T) {
	type attrs = map[string]any
	talk := func(f fact.Fact) fact.Fact {
		f.Kind, f.Dialect = fact.ModelCall, "gen-ai"
		f.Input = []fact.Message{message("user", textPart("Hi"))}
		f.Output = []fact.Part{textPart("Hello")}
		return f
	}
	tests := []struct {
		name   string
		span   string
		kind   ptrace.SpanKind
		attrs  attrs
		events []event
		want   []fact.Fact
	}{
		{name: "structured content", span: "chat m", attrs: attrs{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "p", "gen_ai.request.model": "m",
			"gen_ai.request.temperature": 0.5,
			"gen_ai.input.messages": []any{
				attrs{"role": "user", "parts": []any{attrs{"type": "text", "content": "Hi"}}}},
			"gen_ai.output.messages": []any{attrs{"role": "assistant",
				"parts": []any{attrs{"type": "text", "content": "Hello"}}, "finish_reason": "stop"}},
			"gen_ai.system_instructions": []any{attrs{"type": "text", "content": "Be brief."}},
			"gen_ai.tool.definitions":    []any{`{"name":"a"}`, attrs{"name": "b"}},
			"gen_ai.request.max_tokens":  100, "gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "USD",
			"gen_ai.conversation.id": "c1",
		}, want: []fact.Fact{talk(fact.Fact{Name: "chat m", Model: &session.Model{ProviderID: "p", ModelID: "m"},
			Temperature: new(0.5), CostUSD: new(0.25),
			SystemPrompt: "Be brief.", ToolCatalog: `[{"name":"a"},{"name":"b"}]`, Finish: "stop", Session: "c1",
			SessionKey: "gen_ai.conversation.id", SessionRank: 1,
			Extra: json.RawMessage(`{"gen_ai.request.max_tokens":100}`),
			Usage: nil})}},
		{name: "events of single messages", span: "chat m", attrs: attrs{"gen_ai.operation.name": "chat",
			"gen_ai.system": "openai", "gen_ai.response.finish_reasons": []any{"stop"}}, events: []event{
			{"gen_ai.system.message", attrs{"content": "Be brief."}},
			{"gen_ai.user.message", attrs{"gen_ai.event.content": `{"role":"user","content":"Weather?"}`}},
			{"gen_ai.assistant.message",
				attrs{"tool_calls": `[{"id":"call_1","type":"function","function":{"name":"get_weather",` +
					`"arguments":"{}"}}]`}},
			{"gen_ai.tool.message", attrs{"id": "call_1", "content": "sunny"}},
			{"gen_ai.choice", attrs{"index": 0, "finish_reason": "stop", "message": `{"content":"Sunny."}`}},
		}, want: []fact.Fact{{Kind: fact.ModelCall, Dialect: "gen-ai", Name: "chat m",
			Model: &session.Model{ProviderID: "openai"}, SystemPrompt: "Be brief.", Finish: "stop",
			Input: []fact.Message{message("user", textPart("Weather?")),
				message("assistant", callPart("call_1", "get_weather", `{}`)),
				message("tool", resultPart("call_1", "", `"sunny"`))},
			Output: []fact.Part{textPart("Sunny.")}}}},
		{name: "events of Strands", span: "chat", attrs: attrs{"gen_ai.operation.name": "chat"}, events: []event{
			{"gen_ai.user.message", attrs{"content": `[{"text":"Hi"}]`}},
			{"gen_ai.choice", attrs{"finish_reason": "end_turn", "message": `[{"text":"Hello"}]`}},
		}, want: []fact.Fact{talk(fact.Fact{Name: "chat", Finish: "end_turn"})}},
		{name: "details as an event", span: "chat", attrs: attrs{"gen_ai.operation.name": "chat"}, events: []event{
			{"gen_ai.client.inference.operation.details",
				attrs{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]`}},
			{"gen_ai.client.inference.operation.details",
				attrs{"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"Hello"}]}]`}},
		}, want: []fact.Fact{talk(fact.Fact{Name: "chat"})}},
		{name: "events of whole contents", span: "chat", attrs: attrs{"gen_ai.operation.name": "chat"}, events: []event{
			{"gen_ai.content.prompt", attrs{"gen_ai.prompt": `[{"role":"user","content":"Hi"}]`}},
			{"gen_ai.content.completion", attrs{"gen_ai.completion": `[{"role":"assistant","content":"Hello"}]`}},
		}, want: []fact.Fact{talk(fact.Fact{Name: "chat"})}},
		{name: "flat attributes, old usage", span: "openai.chat", attrs: attrs{
			"gen_ai.system": "OpenAI", "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": 10,
			"gen_ai.usage.completion_tokens": 2,
			"gen_ai.prompt.0.role":           "system", "gen_ai.prompt.0.content": "Be brief.",
			"gen_ai.prompt.1.role":     "user",
			"gen_ai.prompt.1.content":  "Hi",
			"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Hello",
			"gen_ai.completion.0.finish_reason": "stop",
		},
			want: []fact.Fact{
				talk(fact.Fact{Name: "openai.chat", Model: &session.Model{ProviderID: "OpenAI", ModelID: "m"},
					SystemPrompt: "Be brief.", Finish: "stop",
					Usage: &fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 10, Output: 2},
						Raw: json.RawMessage(
							`{"gen_ai.usage.completion_tokens":2,"gen_ai.usage.prompt_tokens":10}`)}})}},
		{name: "no content, no operation", span: "llm", attrs: attrs{"gen_ai.request.model": "m",
			"gen_ai.usage.input_tokens": "0", "gen_ai.usage.reasoning_tokens": 3, "gen_ai.usage.output_tokens": 5,
			"gen_ai.response.finish_reasons": `["stop"]`},
			want: []fact.Fact{{Kind: fact.ModelCall, Dialect: "gen-ai", Name: "llm",
				Model:  &session.Model{ModelID: "m"},
				Finish: "stop",
				Usage: &fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Output: 2, Reasoning: 3},
					Raw: json.RawMessage(
						`{"gen_ai.usage.input_tokens":0,"gen_ai.usage.output_tokens":5,` +
							`"gen_ai.usage.reasoning_tokens":3}`),
					Counter: "@", Stated: &fact.Stated{Input: new(int64), Output: new(int64(5)), Reasoning: 3}}}}},
		{name: "Pydantic AI's agent", span: "agent run", attrs: attrs{"gen_ai.agent.name": "a",
			"pydantic_ai.all_messages": `[{"role":"system","parts":[{"type":"text","content":"Be brief."}]},` +
				`{"role":"user","parts":[{"type":"text","content":"Hi"}]},{"role":"assistant",` +
				`"parts":[{"type":"text","content":"Hello"}]}]`},
			want: []fact.Fact{func() fact.Fact {
				f := talk(fact.Fact{Name: "agent run", Agent: "a", SystemPrompt: "Be brief."})
				f.Kind = fact.Turn
				return f
			}()}},
		{name: "cut content", span: "chat", attrs: attrs{"gen_ai.operation.name": "chat",
			"gen_ai.input.messages":  `[{"role":"user","content":"Hi`,
			"gen_ai.output.messages": `[{"role":"assistant","content":"Hello"}]`},
			want: []fact.Fact{talk(fact.Fact{Name: "chat", Problems: []string{"the input messages could not be read " +
				"whole"}})}},
		{name: "compacted", span: "chat",
			attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.conversation.compacted": true,
				"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"compaction","content":"So far."},` +
					`{"type":"text","content":"Go on"}]}]`},
			want: []fact.Fact{{Kind: fact.Compaction, Dialect: "gen-ai", Name: "chat",
				Compacted: &fact.Compacted{Summary: "So far."}},
				{Kind: fact.ModelCall, Dialect: "gen-ai", Name: "chat",
					Input: []fact.Message{message("user", fact.Part{Kind: fact.PartCompaction, Text: "So far."},
						textPart("Go on"))}}}},
		{name: "error type without a status", span: "chat", attrs: attrs{"gen_ai.operation.name": "chat",
			"error.type": "AbortError"}, events: []event{{"exception", attrs{"exception.message": "stopped"}}},
			want: []fact.Fact{{Kind: fact.ModelCall, Dialect: "gen-ai", Name: "chat", Failed: true, Aborted: true,
				ErrorType: "AbortError", Error: "stopped"}}},
		{name: "an exception that was handled", span: "chat", attrs: attrs{"gen_ai.operation.name": "chat"},
			events: []event{{"exception", attrs{"exception.message": "retried"}}},
			want:   []fact.Fact{{Kind: fact.ModelCall, Dialect: "gen-ai", Name: "chat"}}},
		{name: "tool, older keys", span: "execute_tool ls", attrs: attrs{"gen_ai.operation.name": "execute_tool",
			"gen_ai.tool.call_id": "c", "gen_ai.tool.input": `{"d":1}`, "gen_ai.tool.output": "a.go"},
			want: []fact.Fact{{Kind: fact.ToolCall, Dialect: "gen-ai", Name: "execute_tool ls", CallID: "c",
				Tool: &fact.Tool{Name: "ls", Input: json.RawMessage(`{"d":1}`), Output: json.RawMessage(`"a.go"`)}}}},
		{name: "tool of MCP that fails", span: "tools/call ls", kind: ptrace.SpanKindClient,
			attrs: attrs{"mcp.method.name": "tools/call", "gen_ai.tool.name": "ls", "gen_ai.tool.call.id": "c",
				"gen_ai.tool.call.result": `{"isError":true,"content":[{"type":"text","text":"no such directory"}]}`},
			want: []fact.Fact{{Kind: fact.ToolCall, Dialect: "gen-ai", Name: "tools/call ls", CallID: "c",
				Tool: &fact.Tool{Name: "ls"}, Failed: true, Error: "no such directory"}}},
		{name: "tool of MCP without an id", span: "tools/call ls", kind: ptrace.SpanKindClient,
			attrs: attrs{"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool",
				"gen_ai.tool.name": "ls"},
			want: []fact.Fact{{Kind: fact.Step, Dialect: "gen-ai", Name: "tools/call ls"}}},
		{name: "MCP reported by the tool's span", span: "execute_tool ls", kind: ptrace.SpanKindInternal,
			attrs: attrs{"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool",
				"gen_ai.tool.name": "ls"},
			want: []fact.Fact{{Kind: fact.ToolCall, Dialect: "gen-ai", Name: "execute_tool ls",
				Tool: &fact.Tool{Name: "ls"}}}},
		{name: "tool of Strands", span: "execute_tool ls",
			attrs: attrs{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ls", "gen_ai.tool.call.id": "c"},
			events: []event{
				{"gen_ai.tool.message", attrs{"role": "tool", "content": `{"d":1}`, "id": "c"}},
				{"gen_ai.choice", attrs{"message": `[{"text":"a.go"}]`, "id": "c"}}},
			want: []fact.Fact{{Kind: fact.ToolCall, Dialect: "gen-ai", Name: "execute_tool ls", CallID: "c",
				Tool: &fact.Tool{Name: "ls", Input: json.RawMessage(`{"d":1}`), Output: json.RawMessage(`"a.go"`)}}}},
		{name: "memory", span: "search_memory", attrs: attrs{"gen_ai.operation.name": "search_memory"},
			want: []fact.Fact{{Kind: fact.Step, Dialect: "gen-ai", Name: "search_memory"}}},
		{name: "unknown operation", span: "ponder", attrs: attrs{"gen_ai.operation.name": "ponder"},
			want: []fact.Fact{{Kind: fact.Step, Dialect: "gen-ai", Name: "ponder"}}},
		{name: "unknown operation that calls a model", span: "ponder",
			attrs: attrs{"gen_ai.operation.name": "ponder", "gen_ai.request.model": "m", "gen_ai.response.id": "r"},
			want: []fact.Fact{{Kind: fact.ModelCall, Dialect: "gen-ai", Name: "ponder",
				Model:      &session.Model{ModelID: "m"},
				ResponseID: "r"}}},
		{name: "workflow", span: "invoke_workflow w", attrs: attrs{"gen_ai.operation.name": "invoke_workflow",
			"gen_ai.workflow.name": "w"},
			want: []fact.Fact{{Kind: fact.Turn, Dialect: "gen-ai", Name: "invoke_workflow w", Agent: "w"}}},
		{name: "creating an agent", span: "create_agent",
			attrs: attrs{"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "a"}},
		{name: "a single attribute", span: "POST", kind: ptrace.SpanKindClient,
			attrs: attrs{"gen_ai.system": "openai", "http.request.method": "POST"}},
		{name: "a single count", span: "GET", attrs: attrs{"gen_ai.usage.input_tokens": 7}},
		{name: "MCP beside calls", span: "initialize", kind: ptrace.SpanKindClient,
			attrs: attrs{"mcp.method.name": "initialize"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, recognized := genAISpanFacts(t, tt.span, tt.kind, tt.attrs, tt.events...)
			if recognized != (tt.want != nil) {
				t.Errorf("recognized: %v", recognized)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestGenAIRecords(t *testing.T) {
	type attrs = map[string]any
	tests := []struct {
		name  string
		event string
		attrs attrs
		body  any
		want  []fact.Fact
	}{
		{"details", "gen_ai.client.inference.operation.details",
			attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r",
				"gen_ai.usage.output_tokens": 3,
				"gen_ai.input.messages": []any{
					attrs{"role": "user", "parts": []any{attrs{"type": "text", "content": "Hi"}}}},
				"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"Hello"}],` +
					`"finish_reason":"stop"}]`}, "done",
			[]fact.Fact{{Kind: fact.ModelCall, Model: &session.Model{ModelID: "m"}, ResponseID: "r", Finish: "stop",
				Input: []fact.Message{message("user", textPart("Hi"))}, Output: []fact.Part{textPart("Hello")},
				Usage: &fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Output: 3},
					Raw:     json.RawMessage(`{"gen_ai.usage.output_tokens":3}`),
					Counter: "@", Stated: &fact.Stated{Output: new(int64(3))}}}}},
		{"details in the body", "gen_ai.client.inference.operation.details", attrs{"gen_ai.request.model": "m"},
			attrs{
				"gen_ai.input.messages": []any{
					attrs{"role": "user", "parts": []any{attrs{"type": "text", "content": "Hi"}}}}},
			[]fact.Fact{{Kind: fact.ModelCall, Model: &session.Model{ModelID: "m"},
				Input: []fact.Message{message("user", textPart("Hi"))}}}},
		{"system", "gen_ai.system.message", nil, attrs{"content": "Be brief."},
			[]fact.Fact{{Kind: fact.ModelCall, SystemPrompt: "Be brief."}}},
		{"user", "gen_ai.user.message", attrs{"gen_ai.system": "openai"}, attrs{"content": "Hi"},
			[]fact.Fact{{Kind: fact.ModelCall, Model: &session.Model{ProviderID: "openai"},
				Input: []fact.Message{message("user", textPart("Hi"))}}}},
		{"tool", "gen_ai.tool.message", nil, attrs{"id": "call_1", "content": "sunny"},
			[]fact.Fact{
				{Kind: fact.ModelCall, Input: []fact.Message{message("tool", resultPart("call_1", "", `"sunny"`))}}}},
		{"choice", "gen_ai.choice", nil, attrs{"index": 0, "finish_reason": "tool_calls",
			"message": attrs{"role": "assistant",
				"tool_calls": []any{attrs{"id": "call_1", "type": "function",
					"function": attrs{"name": "ls", "arguments": "{}"}}}}},
			[]fact.Fact{{Kind: fact.ModelCall, Finish: "tool_calls",
				Output: []fact.Part{callPart("call_1", "ls", `{}`)}}}},
		{"exception", "gen_ai.client.operation.exception",
			attrs{"exception.type": "RateLimitError", "exception.message": "slow down"}, nil,
			[]fact.Fact{{Kind: fact.ModelCall, Failed: true, Error: "slow down", ErrorType: "RateLimitError"}}},
		{"evaluation", "gen_ai.evaluation.result", attrs{"gen_ai.evaluation.name": "x"}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lr := plog.NewLogRecord()
			lr.SetEventName(tt.event)
			if err := lr.Attributes().FromRaw(tt.attrs); err != nil {
				t.Fatal(err)
			}
			if err := lr.Body().FromRaw(tt.body); err != nil {
				t.Fatal(err)
			}
			r := NewRecord(lr, pcommon.NewInstrumentationScope(), pcommon.NewResource())
			var out Emitter
			out.OpenRecord(&genAI, &r, NewKeys(nil))
			readGenAIRecord(&r, &out)
			for i := range tt.want {
				tt.want[i].Dialect, tt.want[i].Name = "gen-ai", tt.event
			}
			if isGenAIRecord(&r) != (tt.want != nil) {
				t.Error("recognized:", tt.want == nil)
			}
			if diff := cmp.Diff(tt.want, out.All); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFlatMessages(t *testing.T) {
	m := pcommon.NewMap()
	err := m.FromRaw(map[string]any{
		"gen_ai.prompt.10.role": "user", "gen_ai.prompt.10.content": `[{"type":"text","text":"And Rome?"}]`,
		"gen_ai.prompt.2.role": "assistant", "gen_ai.prompt.2.tool_calls.0.id": "call_1",
		"gen_ai.prompt.2.tool_calls.0.name":      "get_weather",
		"gen_ai.prompt.2.tool_calls.0.arguments": `{"city":"Paris"}`,
		"gen_ai.prompt.3.role":                   "tool", "gen_ai.prompt.3.tool_call_id": "call_1",
		"gen_ai.prompt.3.content": `{"tempC":12}`,
		"gen_ai.prompt.x.role":    "user", "gen_ai.prompt.1": "odd",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := FlatMessages(attrsOf(m), "gen_ai.prompt.")
	want := []fact.Message{message("assistant", callPart("call_1", "get_weather", `{"city":"Paris"}`)),
		message("tool", resultPart("call_1", "", `{"tempC":12}`)), message("user", textPart("And Rome?"))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCatalog(t *testing.T) {
	for raw, want := range map[string]string{
		`[{"name":"a"}]`:               `[{"name":"a"}]`,
		`["{\"name\":\"a\"}","b"]`:     `[{"name":"a"},{"name":"b"}]`,
		`{"a":{"description":"x"}}`:    `[{"description":"x","name":"a"}]`,
		`{"name":"a","parameters":{}}`: `[{"name":"a","parameters":{}}]`,
		`"[{\"name\":\"a\"}]"`:         `[{"name":"a"}]`,
		`[]`:                           ``, ``: ``, `"cut [{"`: ``, `"[{\"name\":"`: ``, `7`: ``,
		`{"tools":[{"name":"a"}]}`: `[{"name":"a"}]`,
	} {
		if got := Catalog(json.RawMessage(raw)); got != want {
			t.Errorf("Catalog(%s) = %s, want %s", raw, got, want)
		}
	}
}
