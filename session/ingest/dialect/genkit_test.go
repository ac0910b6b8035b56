package dialect

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/ingest/internal/spantext"
)

// genkitFacts reads the spans of td in their order.
func genkitFacts(t *testing.T, td ptrace.Traces) []fact.Fact {
	t.Helper()
	var facts Emitter
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				span := NewSpan(s, ss.Scope(), rs.Resource())
				if !genkit.Spans(&span) {
					t.Errorf("span %q is not recognized", s.Name())
					continue
				}
				facts.OpenSpan(&genkit, &span, NewKeys(nil))
				genkit.ReadSpan(&span, &facts)
			}
		}
	}
	return facts.All
}

// TestGenkitCapture reads what Genkit for Go sent of a flow with a tool.
func TestGenkitCapture(t *testing.T) {
	raw, err := os.ReadFile("../testdata/captures/genkit-go-1.4.0/get_weather/001-traces.json")
	if err != nil {
		t.Fatal(err)
	}
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw)
	if err != nil {
		t.Fatal(err)
	}
	model := &session.Model{ProviderID: "fake", ModelID: "model"}
	user := fact.Message{Role: "user", Parts: []fact.Part{{Kind: fact.PartText, Text: "Weather in Paris?"}}}
	answer := []fact.Part{{Kind: fact.PartText, Text: "12C and rain."}}
	call := []fact.Part{{Kind: fact.PartText, Text: "Let me check."},
		{Kind: fact.PartCall, CallID: "call_1", Name: "get_weather", Input: json.RawMessage(`{"city":"Paris"}`)}}
	result := []fact.Part{{Kind: fact.PartResult, CallID: "call_1", Name: "get_weather",
		Output: json.RawMessage(`{"city":"Paris","tempC":12}`)}}
	want := []fact.Fact{
		{Kind: fact.ModelCall, RequiresTurn: true, Agent: "weatherFlow", Model: model, Input: []fact.Message{user},
			Output: call, Finish: "stop",
			SystemPrompt: "You are a weather agent.", Usage: &fact.Usage{Basis: fact.Inclusive,
				Tokens:  session.Usage{Input: 56, Output: 20, CacheRead: 64},
				Counter: "fake", Stated: &fact.Stated{Input: new(int64(120)), Output: new(int64(20)), CacheRead: 64}}},
		{Kind: fact.ToolCall, RequiresTurn: true, Agent: "weatherFlow", Tool: &fact.Tool{
			Name: "get_weather", Input: json.RawMessage(`{"city":"Paris"}`),
			Output: json.RawMessage(`{"city":"Paris","tempC":12}`), Succeeded: true,
		}},
		{Kind: fact.ModelCall, RequiresTurn: true, Agent: "weatherFlow", Model: model, Output: answer, Finish: "stop",
			SystemPrompt: "You are a weather agent.",
			Input:        []fact.Message{user, {Role: "assistant", Parts: call}, {Role: "tool", Parts: result}},
			Usage: &fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 180, Output: 21, Reasoning: 9},
				Counter: "fake", Stated: &fact.Stated{Input: new(int64(180)), Output: new(int64(30)), Reasoning: 9}}},
		{Kind: fact.Step},
		{Kind: fact.Step},
		{Kind: fact.Turn, Agent: "weatherFlow", Input: []fact.Message{user}, Output: answer},
	}
	got := genkitFacts(t, td)
	for i := range got {
		f := &got[i]
		if f.TraceID != "8ff58c7cea490a8e561bb2719ca7ed90" || f.SpanID == "" || f.Start == 0 || f.Dialect != "genkit" {
			t.Errorf("fact %d lacks its identity: %+v", i, f)
		}
		if f.Kind == fact.ModelCall {
			var tools []struct{ Name string }
			if err := json.Unmarshal([]byte(f.ToolCatalog), &tools); err != nil || len(tools) != 2 ||
				tools[0].Name != "get_weather" {
				t.Errorf("catalog %q: %v", f.ToolCatalog, err)
			}
			if len(f.Usage.Raw) == 0 {
				t.Error("the usage lacks what the source stated")
			}
			f.Usage.Raw, f.ToolCatalog = nil, ""
		}
		f.TraceID, f.SpanID, f.ParentID, f.Start, f.End, f.Name, f.Dialect = "", "", "", 0, 0, "", ""
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestGenkit reads single spans. The facts are written as their kind and what of
// their fields is set, in JSON.
func TestGenkit(t *testing.T) {
	for name, tt := range map[string]struct {
		span string
		want string
	}{
		"flow within a flow": {`span inner
	genkit:type = "action"
	genkit:metadata:subtype = "flow"
	genkit:path = "/{outer,t:flow}/{inner,t:flow}"
	genkit:input = "\"go\""`,
			`{"kind":"step"}`},
		"flow that a tool calls": {`span inner parent=7
	genkit:type = "action"
	genkit:metadata:subtype = "flow"
	genkit:name = "inner"
	genkit:path = "/{outer,t:flow}/{generate,t:util}/{review,t:action,s:tool}/{inner,t:flow}"
	genkit:input = "\"go\""`,
			`{"kind":"turn","agent":"inner","input":[{"role":"user","parts":[{"kind":"text","text":"go"}]}]}`},
		"generate that a tool of JavaScript calls": {`span generate parent=7
	genkit:type = "util"
	genkit:path = "/{outer,t:flow}/{generate,t:util}/{review,t:action}/{generate,t:util}"
	genkit:input := {"messages":[{"role":"user","content":[{"text":"review"}]}]}
	genkit:output := {"message":{"role":"model","content":[{"text":"fine"}]},"finishReason":"stop"}`,
			`{"kind":"turn","input":[{"role":"user","parts":[{"kind":"text","text":"review"}]}],` +
				`"output":[{"kind":"text","text":"fine"}],"finish":"stop"}`},
		"generate at the root": {`span generate
	genkit:type = "util"
	genkit:isRoot = true
	genkit:path = "/{generate,t:util}"
	genkit:input := {"messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
			`{"kind":"turn","input":[{"role":"user","parts":[{"kind":"text","text":"hi"}]}]}`},
		"flow of an old version": {`span f
	genkit:type = "flow"
	genkit:metadata:subtype = "flow"
	genkit:name = "f"
	genkit:path = "/f"
	genkit:isRoot = "true"
	genkit:input := {"question":"Why?","lang":"en"}
	genkit:output := {"answer":"Because."}`,
			`{"kind":"turn","agent":"f","input":[{"role":"user","parts":[{"kind":"text","text":"Why?"}]}],` +
				`"output":[{"kind":"text","text":"Because."}]}`},
		"flow of objects": {`span f
	genkit:type = "action"
	genkit:metadata:subtype = "flow"
	genkit:path = "/{f,t:flow}"
	genkit:input := {"days":3}
	genkit:output := {"menu":["soup"]}`,
			`{"kind":"turn","agent":"f","extra":{"input":{"days":3},"output":{"menu":["soup"]}}}`},
		"flow that failed": {`span f status=error "no more tokens"
	genkit:type = "action"
	genkit:metadata:subtype = "flow"
	genkit:path = "/{f,t:flow}"
	genkit:state = "error"
	genkit:input = "\"go\""`,
			`{"kind":"turn","agent":"f","input":[{"role":"user","parts":[{"kind":"text","text":"go"}]}],` +
				`"failed":true,"error":"no more tokens"}`},
		"flow above one that failed": {`span f
	genkit:type = "action"
	genkit:metadata:subtype = "flow"
	genkit:path = "/{f,t:flow}"
	genkit:state = "error"
	genkit:error = "it broke"`,
			`{"kind":"turn","agent":"f","failed":true,"error":"it broke"}`},
		"input cut off": {`span f
	genkit:type = "action"
	genkit:metadata:subtype = "flow"
	genkit:path = "/{f,t:flow}"
	genkit:input = "{\"question\":\"Wh"`,
			`{"kind":"turn","agent":"f","problems":["genkit:input is no JSON: it may have been cut before export"],` +
				`"extra":{"input":"{\"question\":\"Wh"}}`},
		"send of a chat": {`span send
	genkit:type = "helper"
	genkit:sessionId = "s1"
	genkit:threadName = "main"
	genkit:path = "/{send,t:helper}"
	genkit:input := {"prompt":"hello"}`,
			`{"kind":"turn","session":"s1","session_key":"genkit:sessionId","session_rank":1000,` +
				`"input":[{"role":"user","parts":[{"kind":"text","text":"hello"}]}]}`},
		"another thread": {`span send
	genkit:type = "helper"
	genkit:sessionId = "s1"
	genkit:threadName = "jokes"
	genkit:path = "/{flow,t:flow}/{send,t:helper}"`,
			`{"kind":"step","session":"s1/jokes","session_key":"genkit:sessionId","session_rank":1000}`},
		"a key of the user's": {`span send
	genkit:type = "helper"
	genkit:sessionId = "s1"
	session.id = "mine"
	genkit:path = "/{flow,t:flow}/{send,t:helper}"`,
			`{"kind":"step","session":"mine","session_key":"session.id"}`},
		"agent": {`span a
	genkit:type = "action"
	genkit:metadata:subtype = "agent"
	genkit:init := {"sessionId":"s2"}
	genkit:path = "/{a,t:action,s:agent}"`,
			`{"kind":"step","session":"s2","session_key":"genkit:init","session_rank":1000}`},
		"turn of an agent": {`span runTurn-1 parent=7
	genkit:type = "flowStep"
	genkit:name = "runTurn-1"
	genkit:path = "/{a,t:action}/{runTurn-1,t:flowStep}"
	genkit:input := {"message":{"role":"user","content":[{"text":"hi"}]}}`,
			`{"kind":"turn","input":[{"role":"user","parts":[{"kind":"text","text":"hi"}]}]}`},
		"step of a flow": {`span s parent=7
	genkit:type = "flowStep"
	genkit:path = "/{f,t:flow}/{s,t:flowStep}"`,
			`{"kind":"step"}`},
		"retriever": {`span r
	genkit:type = "action"
	genkit:metadata:subtype = "retriever"
	genkit:path = "/{r,t:action}"`,
			`{"kind":"step"}`},
		"feedback": {`span user-feedback
	genkit:metadata:subtype = "userFeedback"`,
			``},
		"prompt": {`span p
	genkit:type = "dotprompt"
	genkit:name = "p"
	genkit:path = "/{p,t:dotprompt}"
	genkit:output := {"message":{"role":"model","content":[{"text":"done"}]}}`,
			`{"kind":"turn","output":[{"kind":"text","text":"done"}]}`},
		"model of an old version": {`span m
	genkit:type = "action"
	genkit:metadata:subtype = "model"
	genkit:name = "googleai/models/gemini"
	genkit:input := {"messages":[{"role":"user","content":[{"text":"hi"}]}],"config":{"temperature":0.5,"version":"gemini-001","apiKey":"secret"}}
	genkit:output := {"candidates":[{"index":0,"message":{"role":"model","content":[{"text":"ho"}]},"finishReason":"length"}],"usage":{"inputTokens":5,"outputTokens":2,"thoughtsTokens":7}}`,
			`{"kind":"model_call","model":{"provider_id":"googleai","model_id":"models/gemini"},"temperature":0.5,"response_model":"gemini-001","finish":"length",
			"input":[{"role":"user","parts":[{"kind":"text","text":"hi"}]}],"output":[{"kind":"text","text":"ho"}],
			"usage":{"tokens":{"input":5,"output":2,"reasoning":7,"cache_read":0,"cache_write":0},"basis":"inclusive","raw":{"inputTokens":5,"outputTokens":2,"thoughtsTokens":7}}}`},
		"model that failed": {`span m status=error "overloaded"
	genkit:type = "action"
	genkit:metadata:subtype = "model"
	genkit:name = "m"
	genkit:state = "error"`,
			`{"kind":"model_call","model":{"model_id":"m"},"failed":true,"error":"overloaded"}`},
		"tool that failed": {`span t status=error "no such city"
	genkit:type = "action"
	genkit:metadata:subtype = "tool"
	genkit:name = "t"
	genkit:state = "error"
	genkit:input := {"city":"X"}`,
			`{"kind":"tool_call","tool":{"name":"t","input":{"city":"X"}},"failed":true,"error":"no such city"}`},
		"tool with text": {`span t
	genkit:type = "action"
	genkit:metadata:subtype = "tool"
	genkit:name = "t"
	genkit:state = "success"
	genkit:output = "sunny"`,
			`{"kind":"tool_call","tool":{"name":"t","output":"sunny","succeeded":true}}`},
		"tool with content": {`span t
	genkit:type = "action"
	genkit:metadata:subtype = "tool.v2"
	genkit:name = "t"
	genkit:state = "success"
	genkit:output := {"output":1,"content":[{"media":{"url":"data:,"}}]}`,
			`{"kind":"tool_call","tool":{"name":"t","output":{"output":1,"content":[{"media":{"url":"data:,"}}]},` +
				`"succeeded":true}}`},
		"tool interrupted, reported": {`span t
	genkit:type = "action"
	genkit:metadata:subtype = "tool"
	genkit:name = "t"
	genkit:state = "success"
	genkit:metadata:interrupt := {"reason":"costs money"}`,
			`{"kind":"tool_call","tool":{"name":"t"}}{"kind":"permission","decision":{"tool":"t","action":"ask",` +
				`"outcome":"pending","source":"interrupt","reason":"costs money"}}`},
		"tool interrupted, as an error": {`span t status=error "tool execution interrupted"
	genkit:type = "action"
	genkit:metadata:subtype = "tool.v2"
	genkit:name = "t"
	genkit:state = "error"`,
			`{"kind":"tool_call","tool":{"name":"t"}}{"kind":"permission","decision":{"tool":"t","action":"ask",` +
				`"outcome":"pending","source":"interrupt"}}`},
		"tool that was allowed": {`span t
	genkit:type = "action"
	genkit:metadata:subtype = "tool.v2"
	genkit:name = "t"
	genkit:state = "success"
	genkit:metadata:resumed := {"toolApproved":true}
	genkit:output := {"output":"ok"}`,
			`{"kind":"tool_call","tool":{"name":"t","output":"ok","succeeded":true}}{"kind":"permission",` +
				`"decision":{"tool":"t","action":"ask","outcome":"allowed","reply":"once","source":"resumed"}}`},
		"nothing at all": {`span x`, `{"kind":"step"}`},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := spantext.Parse(tt.span, "genkit-tracer")
			if err != nil {
				t.Fatal(err)
			}
			facts := genkitFacts(t, spantext.Join(requests...))
			var got, want []map[string]any
			for _, f := range facts {
				raw, err := json.Marshal(f)
				if err != nil {
					t.Fatal(err)
				}
				var m map[string]any
				if err := json.Unmarshal(raw, &m); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"dialect", "trace", "span", "parent", "start", "end", "name"} {
					delete(m, key)
				}
				got = append(got, m)
			}
			for d := json.NewDecoder(strings.NewReader(tt.want)); d.More(); {
				var m map[string]any
				if err := d.Decode(&m); err != nil {
					t.Fatal(err)
				}
				want = append(want, m)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestGenkitUsage: usage is read as each provider counts.
func TestGenkitUsage(t *testing.T) {
	for _, tt := range []struct {
		provider, raw string
		want          *fact.Usage
	}{
		{"openai", `{"inputTokens":100,"outputTokens":50,"totalTokens":150,"thoughtsTokens":20,` +
			`"cachedContentTokens":60}`,
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 40, Output: 30, Reasoning: 20,
				CacheRead: 60}}},
		{"googleai", `{"inputTokens":100,"outputTokens":50,"totalTokens":170,"thoughtsTokens":20,` +
			`"cachedContentTokens":60}`,
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 40, Output: 50, Reasoning: 20,
				CacheRead: 60}}},
		{"googleai", `{"inputTokens":100,"outputTokens":50,"totalTokens":150,"thoughtsTokens":20}`,
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 100, Output: 30, Reasoning: 20}}},
		{"vertexai", `{"inputTokens":100,"outputTokens":50,"thoughtsTokens":20}`,
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 100, Output: 50, Reasoning: 20}}},
		{"anthropic", `{"inputTokens":100,"outputTokens":50,"cachedContentTokens":60}`,
			&fact.Usage{Basis: fact.Mixed, Tokens: session.Usage{Input: 100, Output: 50, CacheRead: 60}}},
		{"anthropic", `{"inputTokens":100,"outputTokens":50}`,
			&fact.Usage{Basis: fact.Mixed, Tokens: session.Usage{Input: 100, Output: 50}}},
		{"other", `{"inputTokens":10,"outputTokens":5,"cachedContentTokens":60}`,
			&fact.Usage{Basis: fact.Inclusive, Capped: true, Tokens: session.Usage{Output: 5, CacheRead: 10},
				Counter: "other",
				Stated:  &fact.Stated{Input: new(int64(10)), Output: new(int64(5)), CacheRead: 60},
				Proof:   fact.CacheApart}},
		{"openai", `{"inputTokens":-10,"outputTokens":5e300}`, &fact.Usage{Basis: fact.Inclusive}},
		{"other", `{"inputCharacters":10}`, nil},
		{"other", `"many"`, nil},
		{"other", ``, nil},
	} {
		got := genkitUsage(tt.provider, json.RawMessage(tt.raw))
		if got != nil {
			if string(got.Raw) != tt.raw {
				t.Errorf("%s: raw %s", tt.raw, got.Raw)
			}
			got.Raw = nil
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s of %s: %s", tt.raw, tt.provider, d)
		}
	}
}
