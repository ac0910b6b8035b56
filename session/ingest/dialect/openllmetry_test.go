package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// frameworkSpan is a span as a framework's client emits it. Its parent is the span
// 0102030405060708 unless it is a root.
type frameworkSpan struct {
	scope, version string
	name           string
	root           bool
	failed         string // the status's message, where it is an error
	exception      string // an event's message
	ok             bool
	attrs          map[string]any
	resource       map[string]any
}

// facts reads the span by the dialect that the table finds, which must be the one
// of the name.
func (fs frameworkSpan) facts(t *testing.T, dialect string) []fact.Fact {
	t.Helper()
	s := ptrace.NewSpan()
	s.SetName(fs.name)
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{9, 9, 9, 9, 9, 9, 9, 9})
	if !fs.root {
		s.SetParentSpanID(pcommon.SpanID{1, 2, 3, 4, 5, 6, 7, 8})
	}
	s.SetStartTimestamp(1_780_000_000_000_000_000)
	s.SetEndTimestamp(1_780_000_001_000_000_000)
	if fs.ok {
		s.Status().SetCode(ptrace.StatusCodeOk)
	}
	if fs.failed != "" {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Status().SetMessage(fs.failed)
	}
	if fs.exception != "" {
		e := s.Events().AppendEmpty()
		e.SetName("exception")
		e.Attributes().PutStr("exception.message", fs.exception)
	}
	if err := s.Attributes().FromRaw(fs.attrs); err != nil {
		t.Fatal(err)
	}
	scope, resource := pcommon.NewInstrumentationScope(), pcommon.NewResource()
	scope.SetName(fs.scope)
	scope.SetVersion(fs.version)
	if err := resource.Attributes().FromRaw(fs.resource); err != nil {
		t.Fatal(err)
	}
	span := NewSpan(s, scope, resource)
	d := OfSpan(&span)
	if d == nil || d.Name != dialect {
		t.Fatalf("the span is read by %v, want %s", d, dialect)
	}
	var out Emitter
	out.OpenSpan(d, &span, NewKeys(nil))
	d.ReadSpan(&span, &out)
	return out.All
}

// frameworkRecord reads a record that is in span 9999999999999999.
func frameworkRecord(t *testing.T, dialect, scope, event string, attrs map[string]any, body any) []fact.Fact {
	t.Helper()
	r := plog.NewLogRecord()
	r.SetEventName(event)
	r.SetTimestamp(1_780_000_000_000_000_000)
	r.SetTraceID(pcommon.TraceID{1})
	r.SetSpanID(pcommon.SpanID{9, 9, 9, 9, 9, 9, 9, 9})
	if err := r.Attributes().FromRaw(attrs); err != nil {
		t.Fatal(err)
	}
	if err := r.Body().FromRaw(body); err != nil {
		t.Fatal(err)
	}
	in := pcommon.NewInstrumentationScope()
	in.SetName(scope)
	rec := NewRecord(r, in, pcommon.NewResource())
	d := OfRecord(&rec)
	if d == nil || d.Name != dialect {
		t.Fatalf("the record is read by %v, want %s", d, dialect)
	}
	var out Emitter
	out.OpenRecord(d, &rec, NewKeys(nil))
	d.ReadRecord(&rec, &out)
	return out.All
}

// want compares what the facts report, without their identity and what is only kept.
func want(t *testing.T, got []fact.Fact, want ...fact.Fact) {
	t.Helper()
	for i := range got {
		f := &got[i]
		f.Dialect, f.TraceID, f.SpanID, f.ParentID, f.Start, f.End, f.Name, f.SessionRank, f.Service, f.Extra = "", "",
			"",
			"", 0, 0, "", 0, "", nil
		if f.Usage != nil {
			f.Usage.Raw = nil
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("facts differ (-want +got):\n%s", diff)
	}
}

func userSays(s string) fact.Message {
	return fact.Message{Role: "user", Parts: []fact.Part{{Kind: fact.PartText, Text: s}}}
}

func says(s string) []fact.Part { return []fact.Part{{Kind: fact.PartText, Text: s}} }

// The spans are as traceloop-sdk 0.62.1 and opentelemetry-instrumentation-* of it
// for Python (June 2026), those of 0.44 (August 2025), and @traceloop/node-server-sdk
// 0.27 for JavaScript emit them.
func TestOpenLLMetry(t *testing.T) {
	weather := json.RawMessage(`{"city":"Oslo"}`)
	tests := map[string]struct {
		span frameworkSpan
		want []fact.Fact
	}{
		"workflow, Python": {
			frameworkSpan{scope: "traceloop.tracer", name: "trip.workflow", root: true, attrs: map[string]any{
				"traceloop.span.kind": "workflow", "traceloop.workflow.name": "trip", "traceloop.entity.name": "trip",
				"traceloop.association.properties.session_id": "s1", "traceloop.association.properties.user_id": "u1",
				"traceloop.entity.input":  `{"args": ["plan a trip"], "kwargs": {}}`,
				"traceloop.entity.output": `"Go north."`,
			}},
			[]fact.Fact{{
				Kind: fact.Turn, Session: "s1", SessionKey: "traceloop.association.properties.session_id",
				Input: []fact.Message{userSays("plan a trip")}, Output: says("Go north."),
				SessionAttrs: &fact.SessionAttrs{UserID: "u1"},
			}},
		},
		"agent, a method": {
			frameworkSpan{scope: "traceloop.tracer", name: "researcher.agent", attrs: map[string]any{
				"traceloop.span.kind": "agent", "traceloop.entity.name": "researcher", "gen_ai.agent.name": "planner",
				"traceloop.entity.input": `{"args": ["Researcher", "find the fjord"], "kwargs": {}}`,
			}},
			[]fact.Fact{{Kind: fact.Turn, Agent: "researcher", Input: []fact.Message{userSays("find the fjord")}}},
		},
		"agent, JavaScript, one object": {
			frameworkSpan{scope: "@traceloop/node-server-sdk", name: "helper.agent", root: true, attrs: map[string]any{
				"traceloop.span.kind": "agent", "traceloop.entity.name": "helper", "traceloop.workflow.name": "helper",
				"traceloop.entity.path":   "",
				"gen_ai.agent.name":       "helper",
				"traceloop.entity.input":  `{"args":[],"kwargs":{"question":"why?","verbose":true}}`,
				"traceloop.entity.output": `{"answer":"because"}`,
			}},
			[]fact.Fact{{Kind: fact.Turn, Agent: "helper", Input: []fact.Message{userSays("why?")},
				Output: says("because")}},
		},
		"LangGraph": {
			frameworkSpan{scope: "opentelemetry.instrumentation.langchain", name: "LangGraph.workflow", root: true,
				attrs: map[string]any{
					"traceloop.span.kind": "workflow", "traceloop.entity.name": "LangGraph",
					"traceloop.workflow.name": "LangGraph",
					"traceloop.entity.path":   "",
					"gen_ai.provider.name":    "langgraph", "gen_ai.operation.name": "invoke_agent",
					"gen_ai.agent.name":      "LangGraph",
					"gen_ai.conversation.id": "thread-7",
					"traceloop.entity.input": `{"inputs": {"messages": [{"lc": 1, "type": "constructor", "id": ` +
						`["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "weather?", ` +
						`"type": "human"}}]}, "tags": [], "metadata": {}, "kwargs": {"name": "LangGraph"}}`,
					"traceloop.entity.output": `{"outputs": {"messages": [{"lc": 1, "type": "constructor", "id": ` +
						`["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "weather?", ` +
						`"type": "human"}}, {"lc": 1, "type": "constructor", "id": ["langchain", "schema", ` +
						`"messages", "AIMessage"], "kwargs": {"content": "Rain.", "type": "ai"}}]}, "kwargs": ` +
						`{"tags": []}}`,
				}},
			[]fact.Fact{{
				Kind: fact.Turn, Session: "thread-7", SessionKey: "gen_ai.conversation.id",
				Input: []fact.Message{userSays("weather?")}, Output: says("Rain."),
			}},
		},
		"task": {
			frameworkSpan{scope: "@traceloop/node-server-sdk", name: "fetch.task", attrs: map[string]any{
				"traceloop.span.kind": "task", "traceloop.entity.name": "fetch", "traceloop.workflow.name": "trip",
				"gen_ai.agent.name": "helper",
			}},
			[]fact.Fact{{Kind: fact.Step, Agent: "helper", RequiresTurn: true}},
		},
		"handoff of OpenAI's agents": {
			frameworkSpan{scope: "opentelemetry.instrumentation.openai_agents", name: "a → b.handoff",
				attrs: map[string]any{
					"traceloop.span.kind": "handoff", "gen_ai.operation.name": "handoff", "gen_ai.agent.name": "a",
				}},
			[]fact.Fact{{Kind: fact.Step, Agent: "a"}},
		},
		"tool, Python": {
			frameworkSpan{scope: "traceloop.tracer", name: "get_weather.tool", attrs: map[string]any{
				"traceloop.span.kind": "tool", "traceloop.entity.name": "get_weather",
				"gen_ai.tool.name":        "get_weather",
				"traceloop.workflow.name": "trip",
				"traceloop.entity.input":  `{"args": [], "kwargs": {"city":"Oslo"}}`,
				"traceloop.entity.output": `"rain"`,
			}},
			[]fact.Fact{{Kind: fact.ToolCall, Tool: &fact.Tool{Name: "get_weather", Input: weather,
				Output: json.RawMessage(`"rain"`), Succeeded: true}}},
		},
		"tool that fails": {
			frameworkSpan{scope: "traceloop.tracer", name: "get_weather.tool", failed: "no such city",
				attrs: map[string]any{
					"traceloop.span.kind": "tool", "traceloop.entity.name": "get_weather",
					"traceloop.entity.input": `{"args": ["Atlantis"], "kwargs": {}}`,
				}},
			[]fact.Fact{{Kind: fact.ToolCall, Failed: true, Error: "no such city",
				Tool: &fact.Tool{Name: "get_weather", Input: json.RawMessage(`"Atlantis"`)}}},
		},
		"tool of LangChain": {
			frameworkSpan{scope: "opentelemetry.instrumentation.langchain", name: "execute_tool get_weather",
				attrs: map[string]any{
					"traceloop.span.kind": "tool", "traceloop.entity.name": "get_weather",
					"gen_ai.operation.name": "execute_tool",
					"gen_ai.tool.name":      "get_weather",
					"gen_ai.tool.type":      "function", "gen_ai.provider.name": "langgraph",
					"gen_ai.tool.call.arguments": `{"input_str": "{'city': 'Oslo'}", "tags": [], "metadata": {}, ` +
						`"inputs": {"city":"Oslo"}, "kwargs": {"color": "green"}}`,
					"gen_ai.tool.call.result": `{"output": {"lc": 1, "type": "constructor", "id": ["langchain", ` +
						`"schema", "messages", "ToolMessage"], "kwargs": {"content": "rain", "type": "tool", "name": ` +
						`"get_weather", "tool_call_id": "call_1", "status": "success"}}, "kwargs": {}}`,
				}},
			[]fact.Fact{{Kind: fact.ToolCall, CallID: "call_1",
				Tool: &fact.Tool{Name: "get_weather", Input: weather, Output: json.RawMessage(`"rain"`),
					Succeeded: true}}},
		},
		"tool whose values were cut": {
			frameworkSpan{scope: "traceloop.tracer", name: "read.tool", attrs: map[string]any{
				"traceloop.span.kind": "tool", "traceloop.entity.name": "read",
				"traceloop.entity.input":  `{"args": ["/etc/ho`,
				"traceloop.entity.output": `"127.0.0.1 loc`,
			}},
			[]fact.Fact{{
				Kind: fact.ToolCall,
				Tool: &fact.Tool{Name: "read", Input: json.RawMessage(`"{\"args\": [\"/etc/ho"`),
					Output: json.RawMessage(`"\"127.0.0.1 loc"`), Succeeded: true, Truncated: true},
				Problems: []string{"the tool's input is no JSON: it may have been cut before export",
					"the tool's output is no JSON: it may have been cut before export"},
			}},
		},
		"model call, messages spread": {
			frameworkSpan{scope: "opentelemetry.instrumentation.openai.v1", name: "openai.chat", attrs: map[string]any{
				"llm.request.type": "chat", "gen_ai.system": "OpenAI", "gen_ai.request.model": "gpt-4o",
				"gen_ai.response.model": "gpt-4o-2024-08-06",
				"gen_ai.prompt.0.role":  "system", "gen_ai.prompt.0.content": "Be brief.",
				"gen_ai.prompt.1.role":     "user",
				"gen_ai.prompt.1.content":  "weather in Oslo?",
				"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.finish_reason": "tool_calls",
				"gen_ai.completion.0.tool_calls.0.id": "call_1", "gen_ai.completion.0.tool_calls.0.name": "get_weather",
				"gen_ai.completion.0.tool_calls.0.arguments": `{"city":"Oslo"}`,
				"llm.request.functions.0.name":               "get_weather",
				"llm.request.functions.0.description":        "tells the weather",
				"llm.request.functions.0.parameters":         `{"type":"object"}`,
				"gen_ai.usage.prompt_tokens":                 30, "gen_ai.usage.completion_tokens": 12,
				"llm.usage.total_tokens":               42,
				"gen_ai.usage.cache_read_input_tokens": 10,
				"llm.usage.reasoning_tokens":           2, "gen_ai.response.id": "chatcmpl-1",
				"llm.is_streaming":           false,
				"gen_ai.request.temperature": 0.5,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Model: &session.Model{ProviderID: "openai", ModelID: "gpt-4o"},
				ResponseModel: "gpt-4o-2024-08-06", ResponseID: "chatcmpl-1",
				SystemPrompt: "Be brief.", Input: []fact.Message{userSays("weather in Oslo?")},
				Output: []fact.Part{{Kind: fact.PartCall, CallID: "call_1", Name: "get_weather", Input: weather}},
				Finish: "tool_calls", Temperature: new(0.5),
				ToolCatalog: `[{"description":"tells the weather","name":"get_weather",` +
					`"parameters":{"type":"object"}}]`,
				Usage: &fact.Usage{Tokens: session.Usage{Input: 20, CacheRead: 10, Output: 10, Reasoning: 2},
					Basis: fact.Inclusive},
			}},
		},
		"model call, thinking of Anthropic": {
			frameworkSpan{scope: "opentelemetry.instrumentation.anthropic", name: "anthropic.chat",
				attrs: map[string]any{
					"llm.request.type": "completion", "gen_ai.system": "Anthropic",
					"gen_ai.request.model": "claude-sonnet-4-5",
					"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "hi",
					"gen_ai.completion.0.role":    "thinking",
					"gen_ai.completion.0.content": "Hm.",
					"gen_ai.completion.1.role":    "assistant", "gen_ai.completion.1.content": "Hello.",
					"gen_ai.usage.prompt_tokens": 1000, "gen_ai.usage.completion_tokens": 5,
					"gen_ai.usage.cache_read_input_tokens": 900, "gen_ai.usage.cache_creation_input_tokens": 50,
				}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Model: &session.Model{ProviderID: "anthropic", ModelID: "claude-sonnet-4-5"},
				Input:  []fact.Message{userSays("hi")},
				Output: []fact.Part{{Kind: fact.PartReasoning, Text: "Hm."}, {Kind: fact.PartText, Text: "Hello."}},
				Usage: &fact.Usage{Tokens: session.Usage{Input: 50, CacheRead: 900, CacheWrite: 50, Output: 5},
					Basis: fact.Inclusive},
			}},
		},
		"model call, new messages": {
			frameworkSpan{scope: "@traceloop/instrumentation-openai", name: "chat gpt-5", attrs: map[string]any{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
				"traceloop.workflow.name": "trip", "gen_ai.agent.name": "helper",
				"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"hi"}]}]`,
				"gen_ai.output.messages": `[{"role":"assistant","finish_reason":"stop",` +
					`"parts":[{"type":"text","content":"Hello."}]}]`,
				"gen_ai.response.finish_reasons": []any{"stop"}, "gen_ai.usage.input_tokens": 8,
				"gen_ai.usage.output_tokens": 3,
				"gen_ai.usage.total_tokens":  11,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Agent: "helper", Model: &session.Model{ProviderID: "openai", ModelID: "gpt-5"},
				Input:  []fact.Message{userSays("hi")},
				Output: says("Hello."), Finish: "stop", Usage: &fact.Usage{Tokens: session.Usage{Input: 8, Output: 3},
					Basis: fact.Inclusive},
			}},
		},
		"model call, streamed without tokens": {
			frameworkSpan{scope: "@traceloop/instrumentation-openai", name: "chat fake-model", attrs: map[string]any{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "fake-model",
				"gen_ai.output.messages": `[{"role":"assistant","finish_reason":"stop","parts":[{"type":"text",` +
					`"content":"Hel`,
			}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Model: &session.Model{ProviderID: "openai", ModelID: "fake-model"},
				Output:   says("Hel"),
				Finish:   "stop",
				Problems: []string{"the output messages could not be read whole"},
			}},
		},
		"model call by Bedrock": {
			frameworkSpan{scope: "opentelemetry.instrumentation.bedrock", name: "bedrock.converse",
				attrs: map[string]any{
					"gen_ai.operation.name": "chat", "gen_ai.provider.name": "aws.bedrock",
					"gen_ai.request.model":      "anthropic.claude",
					"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 5,
					"gen_ai.usage.cache_read.input_tokens": 40,
				}},
			[]fact.Fact{{
				Kind: fact.ModelCall, Model: &session.Model{ProviderID: "aws.bedrock", ModelID: "anthropic.claude"},
				Usage: &fact.Usage{Tokens: session.Usage{Input: 100, CacheRead: 40, Output: 5}, Basis: fact.Mixed},
			}},
		},
		"model call of an unknown model that fails": {
			frameworkSpan{scope: "opentelemetry.instrumentation.langchain", name: "ChatX.chat", failed: "429",
				attrs: map[string]any{
					"gen_ai.operation.name": "chat", "gen_ai.request.model": "unknown",
					"gen_ai.response.model":   "unknown",
					"traceloop.workflow.name": "LangGraph", "error.type": "RateLimitError",
				}},
			[]fact.Fact{{Kind: fact.ModelCall, Failed: true, Error: "429", ErrorType: "RateLimitError"}},
		},
		"AI SDK through Traceloop": {
			frameworkSpan{scope: "ai", name: "chat gpt-4o", root: true, attrs: map[string]any{
				"ai.operationId": "ai.generateText", "gen_ai.operation.name": "chat", "traceloop.workflow.name": "trip",
				"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"hi"}]}]`,
			}},
			[]fact.Fact{{Kind: fact.Turn, Input: []fact.Message{userSays("hi")}}},
		},
		"vector database": {
			frameworkSpan{scope: "opentelemetry.instrumentation.chromadb", name: "chroma.query",
				attrs: map[string]any{"traceloop.workflow.name": "trip", "db.system": "chroma"}},
			[]fact.Fact{{Kind: fact.Step}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { want(t, tt.span.facts(t, "openllmetry"), tt.want...) })
	}
}

// Events instead of attributes, as use_legacy_attributes=False has them emitted.
func TestOpenLLMetryRecord(t *testing.T) {
	got := frameworkRecord(t, "openllmetry", "opentelemetry.instrumentation.openai.v1", "gen_ai.choice",
		map[string]any{"gen_ai.system": "openai"},
		map[string]any{"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": "Hello."}})
	want(t, got, fact.Fact{Kind: fact.ModelCall, Model: &session.Model{ProviderID: "openai"}, Output: says("Hello."),
		Finish: "stop"})
}

func TestOpenLLMetryLeavesOthers(t *testing.T) {
	for _, scope := range []string{"opentelemetry.instrumentation.openai_v2",
		"opentelemetry.instrumentation.google_genai",
		"my.app"} {
		if openLLMetryScope(scope) {
			t.Errorf("scope %s is taken for OpenLLMetry's", scope)
		}
	}
	s := ptrace.NewSpan()
	s.Attributes().PutStr("http.method", "GET")
	scope := pcommon.NewInstrumentationScope()
	scope.SetName("opentelemetry.instrumentation.requests")
	if span := NewSpan(s, scope, pcommon.NewResource()); isOpenLLMetry(&span) {
		t.Error("a span of HTTP is taken for OpenLLMetry's")
	}
}

// No key may have a value of a type, or a text, that breaks a reader.
func TestFrameworksOddValues(t *testing.T) {
	keys := []string{
		"traceloop.span.kind", "traceloop.entity.input", "traceloop.entity.output", "traceloop.entity.name",
		"gen_ai.operation.name", "gen_ai.prompt.0.content",
		"gen_ai.prompt.99999999999999999999.role", "gen_ai.completion.0.tool_calls.0.arguments",
		"llm.request.functions.7.name", "llm.request.functions.-1.name",
		"traceloop.association.properties.user_id", "mastra.span.type", "mastra.agent_run.input",
		"mastra.agent_run.output", "mastra.model_chunk.output",
		"gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.input.messages", "gen_ai.output.messages",
		"gen_ai.usage.input_tokens",
		"gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response", "gcp.vertex.agent.tool_call_args",
		"gcp.vertex.agent.tool_response", "gen_ai.tool.definitions",
	}
	values := []any{
		nil, "", "\x00\xff", `{"args":[`, `{"args":{},"kwargs":[]}`, `{"inputs":null}`, `{"output":null,"kwargs":null}`,
		`{"output":{"lc":1,"kwargs":7},"kwargs":{}}`, "[null]", "[[]]",
		"null", "{}", "[]", `"x"`, int64(-1), 1.5, true, []any{nil, "a", int64(1)}, map[string]any{"a": nil},
		[]byte{1, 2},
		strings.Repeat("[", 2000),
		`{"contents":7,"config":{"tools":[{"function_declarations":7},null],"system_instruction":[]}}`,
		`{"content":[],"usage_metadata":{"prompt_token_count":"x"},"error_code":3}`,
	}
	kinds := []map[string]any{
		{"traceloop.span.kind": "workflow"}, {"traceloop.span.kind": "tool"},
		{"traceloop.x": 1, "gen_ai.operation.name": "chat"},
		{"mastra.span.type": "agent_run"}, {"mastra.span.type": "model_inference", "gen_ai.operation.name": "chat"},
		{"mastra.span.type": "tool_call"},
		{"mastra.span.type": "model_chunk"}, {"mastra.span.type": "client_tool_call"},
		{"gcp.vertex.agent.event_id": "e", "gen_ai.operation.name": "generate_content"},
		{"gcp.vertex.agent.event_id": "e", "gen_ai.operation.name": "execute_tool"},
	}
	for _, kind := range kinds {
		for _, key := range keys {
			for _, value := range values {
				s := ptrace.NewSpan()
				if err := s.Attributes().FromRaw(kind); err != nil {
					t.Fatal(err)
				}
				if _, set := kind[key]; !set {
					if err := s.Attributes().PutEmpty(key).FromRaw(value); err != nil {
						t.Fatal(err)
					}
				}
				span := NewSpan(s, pcommon.NewInstrumentationScope(), pcommon.NewResource())
				for _, d := range []*Dialect{&openLLMetry, &mastra, &adk} {
					var out Emitter
					out.OpenSpan(d, &span, NewKeys(nil))
					d.ReadSpan(&span, &out)
					for _, f := range out.All {
						if _, err := json.Marshal(f); err != nil {
							t.Errorf("%s: %v with %s = %#v: %v", d.Name, kind, key, value, err)
						}
					}
				}
			}
		}
	}
}
