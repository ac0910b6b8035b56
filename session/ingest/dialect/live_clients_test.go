package dialect

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// TestLiveClients has spans as programs on clients sent them, one for each way of writing
// something down that only one client has.
func TestLiveClients(t *testing.T) {
	openAIAgents, langChain := "@arizeai/openinference-instrumentation-openai-agents",
		"@arizeai/openinference-instrumentation-langchain"
	tide := json.RawMessage(`{"port":"Oslo"}`)
	for name, tt := range map[string]struct {
		dialect string
		span    frameworkSpan
		want    func(f *fact.Fact) any
		value   any
	}{
		"LangWatch states of which type a conversation is": {
			"generic", frameworkSpan{scope: "my-app", name: "chat", attrs: map[string]any{
				"langwatch.span.type": "llm", "gen_ai.request.model": "pilot", "langwatch.thread.id": "s",
				"langwatch.input":  `{"type":"chat_messages","value":[{"role":"user","content":"Hello"}]}`,
				"langwatch.output": `{"type":"chat_messages","value":[{"role":"assistant","content":"Hi."}]}`,
			}},
			func(f *fact.Fact) any { return f.Output }, says("Hi."),
		},
		"LangWatch states of which type a tool's input is": {
			"generic", frameworkSpan{scope: "my-app", name: "get_tide", attrs: map[string]any{
				"langwatch.span.type": "tool", "langwatch.thread.id": "s",
				"langwatch.input":  `{"type":"json","value":{"port":"Oslo"}}`,
				"langwatch.output": `{"type":"json","value":7}`,
			}},
			func(f *fact.Fact) any { return f.Tool },
			&fact.Tool{Name: "get_tide", Input: tide, Output: json.RawMessage("7"), Succeeded: true},
		},
		"Laminar reports a tool's error by the exception alone": {
			"generic", frameworkSpan{scope: "lmnr.tracer", name: "get_tide", exception: "no such port",
				attrs: map[string]any{
					"lmnr.span.type": "TOOL", "lmnr.span.input": `{"port":"Oslo"}`,
				}},
			func(f *fact.Fact) any { return f.Error }, "no such port",
		},
		"Laminar has an exception that was handled": {
			"generic", frameworkSpan{scope: "lmnr.tracer", name: "get_tide", exception: "no such port",
				attrs: map[string]any{
					"lmnr.span.type": "TOOL", "lmnr.span.input": `{"port":"Oslo"}`, "lmnr.span.output": "7",
				}},
			func(f *fact.Fact) any { return f.Failed }, false,
		},
		"OpenLIT does not name the call that a tool's message answers": {
			"gen-ai", frameworkSpan{scope: "@openlit/instrumentation-openai", name: "chat pilot", attrs: map[string]any{
				"gen_ai.operation.name": "chat", "gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"Tide?"}]},
{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"get_tide","arguments":{}},{"type":"tool_call","id":"c2","name":"get_tide","arguments":{}}]},
{"role":"tool","parts":[{"type":"text","content":"{\"n\":1}"}]},{"role":"tool","parts":[{"type":"text","content":"{\"n\":2}"}]}]`,
			}},
			func(f *fact.Fact) any { return []any{f.Input[2].Parts, f.Input[3].Parts} },
			[]any{
				[]fact.Part{{Kind: fact.PartResult, CallID: "c1", Output: json.RawMessage(`{"n":1}`)}},
				[]fact.Part{{Kind: fact.PartResult, CallID: "c2", Output: json.RawMessage(`{"n":2}`)}},
			},
		},
		"a handoff of OpenAI's agents is no call of its own": {
			"openinference", frameworkSpan{scope: openAIAgents, name: "handoff to Scout", ok: true,
				attrs: map[string]any{
					"openinference.span.kind": "TOOL", "tool.name": "handoff_to_Scout",
					"input.value": `{"from_agent":"Ferris"}`,
				}},
			func(f *fact.Fact) any { return f.Kind }, fact.Step,
		},
		"LangChain names the agent in the metadata": {
			"openinference", frameworkSpan{scope: langChain, name: "ChatOpenAI", attrs: map[string]any{
				"openinference.span.kind": "LLM", "metadata": `{"lc_agent_name":"Scout"}`, "llm.model_name": "pilot",
			}},
			func(f *fact.Fact) any { return f.Agent }, "Scout",
		},
		"a tool of LangGraph answers with a command": {
			"openinference", frameworkSpan{scope: langChain, name: "transfer", ok: true, attrs: map[string]any{
				"openinference.span.kind": "TOOL", "tool.name": "transfer", "input.value": `{}`,
				"output.value": `{"output":{"lg_name":"Command","update":{"messages":[` +
					`{"lc":1,"type":"constructor","id":["langchain_core","messages","HumanMessage"],` +
					`"kwargs":{"content":"Where?"}},` +
					`{"lc":1,"type":"constructor","id":["langchain_core","messages","ToolMessage"],` +
					`"kwargs":{"content":"Transferred","tool_call_id":"c1"}}` +
					`]},"goto":["scout"]}}`,
			}},
			func(f *fact.Fact) any { return string(f.Tool.Output) + f.CallID }, `"Transferred"c1`,
		},
		"LangSmith has the arguments of a call with options": {
			"langsmith", frameworkSpan{scope: "langsmith", name: "ChatOpenAI", attrs: map[string]any{
				"langsmith.span.kind": "llm",
				"gen_ai.prompt": `{"args":[{"model":"pilot","messages":[{"role":"user","content":"Hello"}]},` +
					`{"signal":{}}]}`,
			}},
			func(f *fact.Fact) any { return []any{f.Input, f.Problems} },
			[]any{[]fact.Message{userSays("Hello")}, []string(nil)},
		},
		"a prompt of Genkit that looks like JSON is whole": {
			"genkit", frameworkSpan{scope: "genkit-tracer", name: "f", root: true, attrs: map[string]any{
				"genkit:type": "action", "genkit:metadata:subtype": "flow", "genkit:input": `"{\"port\":\"Vaasa\"}"`,
				"genkit:output": `"Noted."`,
			}},
			func(f *fact.Fact) any { return f.Problems }, []string(nil),
		},
		"OpenLIT passes on what Anthropic counts": {
			"gen-ai", frameworkSpan{scope: "@openlit/instrumentation-anthropic", name: "chat claude",
				attrs: map[string]any{
					"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic",
					"gen_ai.usage.input_tokens":            101,
					"gen_ai.usage.cache_read.input_tokens": 21, "gen_ai.usage.output_tokens": 14,
				}},
			func(f *fact.Fact) any { return []any{f.Usage.Basis, f.Usage.Tokens.Input} }, []any{fact.Mixed, int64(101)},
		},
		"VoltAgent has the agent above as a sub-agent's entity": {
			"voltagent", frameworkSpan{scope: "@voltagent/core", name: "subagent:Scout", attrs: map[string]any{
				"entity.type": "agent", "entity.name": "Ferris", "subagent.name": "Scout", "input": "Scan Oslo",
				"output": "Calm.",
			}},
			func(f *fact.Fact) any { return f.Agent }, "Scout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := tt.span.facts(t, tt.dialect)
			if len(facts) != 1 {
				t.Fatalf("%d facts, want one", len(facts))
			}
			if d := cmp.Diff(tt.value, tt.want(&facts[0])); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
