package ingest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// unknownSpan is a span of a client that no dialect knows. Parent is the index of the
// span above, from 1; 0 is none.
type unknownSpan struct {
	name   string
	parent int
	attrs  map[string]any
	events []unknownEvent
	failed string
}

type unknownEvent struct {
	name  string
	attrs map[string]any
}

func tracesOf(t *testing.T, all []unknownSpan) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName("nobody-knows")
	ss.Scope().SetVersion("1.2.3")
	for i, u := range all {
		s := ss.Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{7})
		s.SetSpanID(pcommon.SpanID{byte(i + 1)})
		if u.parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{byte(u.parent)})
		}
		s.SetName(u.name)
		at := 1795198540000 + int64(i)*10
		s.SetStartTimestamp(pcommon.Timestamp(at * 1e6))
		end := at + 5
		if u.parent == 0 || i == 0 {
			end = at + 1000
		}
		s.SetEndTimestamp(pcommon.Timestamp(end * 1e6))
		if err := s.Attributes().FromRaw(u.attrs); err != nil {
			t.Fatal(err)
		}
		for _, e := range u.events {
			event := s.Events().AppendEmpty()
			event.SetName(e.name)
			event.SetTimestamp(pcommon.Timestamp(at * 1e6))
			if err := event.Attributes().FromRaw(e.attrs); err != nil {
				t.Fatal(err)
			}
		}
		if u.failed != "" {
			s.Status().SetCode(ptrace.StatusCodeError)
			s.Status().SetMessage(u.failed)
		}
	}
	return td
}

// briefly writes every session with what a person looks for.
func briefly(t *testing.T, all []request) string {
	t.Helper()
	s := openStore(t)
	deliver(t, s, all)
	check(t, s)
	var b strings.Builder
	for id := range sessionsOf(t, s) {
		tr, err := s.Transcript(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		row := tr.Session
		fmt.Fprintf(&b, "%s %d/%d %s\n", row.ID, row.PromptTokens, row.CompletionTokens, dialectOf(row.MetadataJSON))
		for _, m := range tr.Messages {
			for _, p := range m.Parts {
				var data struct {
					Text, ErrorText, Type string
					Input, Output         json.RawMessage
					Data                  json.RawMessage
				}
				if err := json.Unmarshal([]byte(p.DataJSON), &data); err != nil {
					t.Fatal(err)
				}
				switch {
				case p.Type == "step-start":
				case p.ToolCallID != nil:
					fmt.Fprintf(&b, "%s %s %s -> %s%s\n", m.Message.Role, p.Type, data.Input, data.Output,
						data.ErrorText)
				default:
					fmt.Fprintf(&b, "%s %s: %s%s\n", m.Message.Role, p.Type, data.Text, data.Data)
				}
			}
		}
	}
	return b.String()
}

func dialectOf(metadata string) string {
	var m struct{ Agenttrace struct{ Dialect string } }
	_ = json.Unmarshal([]byte(metadata), &m)
	return m.Agenttrace.Dialect
}

const talk = `[{"role":"system","content":"Be terse."},{"role":"user","content":"Weather in Oslo?"}]`
const talkWithTool = `[{"role":"system","content":"Be terse."},{"role":"user","content":"Weather in Oslo?"},` +
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather",` +
	`"arguments":"{\"city\":\"Oslo\"}"}}]},` +
	`{"role":"tool","tool_call_id":"c1","content":"4 C"}]`

// A client that nobody has tried is read by what its attributes are called, whatever
// is before, in any casing, and by the shapes of their values.
func TestUnknownClientsAreRead(t *testing.T) {
	const want = "s-1 30/12 generic\nuser text: Weather in Oslo?\nassistant tool-weather {\"city\":\"Oslo\"} -> \"4 " +
		"C\"\nassistant text: It is 4 C.\n"
	const plain = "s-1 30/12 generic\nuser text: Weather in Oslo?\nassistant text: It is 4 C.\n"
	for name, tt := range map[string]struct {
		spans []unknownSpan
		want  string
	}{
		"vendor's prefix": {want: want, spans: []unknownSpan{
			{name: "handle", attrs: map[string]any{"acme.session_id": "s-1", "acme.question": "Weather in Oslo?",
				"acme.answer": "It is 4 C."}},
			{name: "llm", parent: 1, attrs: map[string]any{"acme.session_id": "s-1", "acme.llm.model": "m",
				"acme.llm.prompt": talk,
				"acme.llm.completion": `{"role":"assistant","content":null,"tool_calls":[{"id":"c1",` +
					`"function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]}`,
				"acme.llm.tokens.input": 10, "acme.llm.tokens.output": 4}},
			{name: "tool", parent: 1,
				attrs: map[string]any{"acme.tool.name": "weather", "acme.tool.args": `{"city":"Oslo"}`,
					"acme.tool.result": "4 C"}},
			{name: "llm", parent: 1, attrs: map[string]any{"acme.llm.model": "m", "acme.llm.prompt": talkWithTool,
				"acme.llm.completion":   "It is 4 C.",
				"acme.llm.tokens.input": 20, "acme.llm.tokens.output": 8}},
		}},
		"camel case, no prefix": {want: want, spans: []unknownSpan{
			{name: "ask", attrs: map[string]any{"conversationId": "s-1", "userPrompt": "Weather in Oslo?",
				"assistantResponse": "It is 4 C."}},
			{name: "invoke model", parent: 1, attrs: map[string]any{"modelName": "m", "inputMessages": talk,
				"promptTokens":     10,
				"completionTokens": 4, "finishReason": "tool_calls",
				"outputMessages": `[{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"weather",` +
					`"arguments":"{\"city\":\"Oslo\"}"}}]}]`}},
			{name: "run tool", parent: 1, attrs: map[string]any{"toolName": "weather", "toolCallId": "c1",
				"toolInput": `{"city":"Oslo"}`, "toolOutput": "4 C"}},
			{name: "invoke model", parent: 1, attrs: map[string]any{"modelName": "m", "inputMessages": talkWithTool,
				"promptTokens": 20, "completionTokens": 8,
				"outputMessages": `[{"role":"assistant","content":"It is 4 C."}]`}},
		}},
		"kinds and objects": {want: want, spans: []unknownSpan{
			{name: "crew", attrs: map[string]any{"x.span.type": "AGENT", "x.thread_id": "s-1",
				"x.inputs": `{"query":"Weather in Oslo?"}`, "x.outputs": `{"output":"It is 4 C."}`}},
			{name: "step", parent: 1, attrs: map[string]any{"x.span.type": "CHAIN", "x.inputs": `{"a":1}`,
				"x.outputs": `{"b":2}`}},
			{name: "model", parent: 2, attrs: map[string]any{"x.span.type": "CHAT_MODEL",
				"x.inputs": `{"messages":` + talk + `,"tools":[]}`, "x.model": "m",
				"x.outputs": `{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant",` +
					`"tool_calls":[{"id":"c1","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]}}]}`,
				"x.usage": `{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}`}},
			{name: "weather", parent: 2, attrs: map[string]any{"x.span.type": "TOOL", "x.inputs": `{"city":"Oslo"}`,
				"x.outputs": `"4 C"`}},
			{name: "model", parent: 2, attrs: map[string]any{"x.span.type": "CHAT_MODEL",
				"x.inputs": `{"messages":` + talkWithTool + `}`, "x.model": "m",
				"x.outputs": `{"choices":[{"finish_reason":"stop","message":{"role":"assistant",` +
					`"content":"It is 4 C."}}]}`,
				"x.usage": `{"prompt_tokens":20,"completion_tokens":8,"total_tokens":28}`}},
		}},
		"below an HTTP span": {want: plain, spans: []unknownSpan{
			{name: "POST /chat", attrs: map[string]any{"http.request.method": "POST", "url.path": "/chat",
				"http.response.status_code": 200}},
			{name: "bot", parent: 1, attrs: map[string]any{"session.id": "s-1", "bot.question": "Weather in Oslo?",
				"bot.answer": "It is 4 C.", "bot.input_tokens": 30, "bot.output_tokens": 12}},
		}},
		"maps and lists": {want: plain, spans: []unknownSpan{
			{name: "agent run", attrs: map[string]any{"chat_id": "s-1",
				"run.input": map[string]any{
					"messages": []any{map[string]any{"role": "user", "content": "Weather in Oslo?"}}},
				"run.output": map[string]any{
					"messages": []any{map[string]any{"role": "assistant", "content": "It is 4 C."}}},
				"run.usage": map[string]any{"input_tokens": 30, "output_tokens": 12}, "run.model_id": "m"}},
		}},
		"events": {want: plain, spans: []unknownSpan{
			{name: "turn", attrs: map[string]any{"thread_id": "s-1", "model": "m", "usage.prompt_tokens": "30",
				"usage.completion_tokens": "12"},
				events: []unknownEvent{
					{"message", map[string]any{"role": "user", "content": "Weather in Oslo?"}},
					{"message", map[string]any{"role": "assistant", "content": "It is 4 C."}},
				}},
		}},
		"events named by their speaker": {want: plain, spans: []unknownSpan{
			{name: "turn", attrs: map[string]any{"thread_id": "s-1", "tokens.prompt": 30, "tokens.completion": 12,
				"llm_model": "m"},
				events: []unknownEvent{
					{"user.message", map[string]any{"content": "Weather in Oslo?"}},
					{"assistant.message", map[string]any{"content": "It is 4 C."}},
				}},
		}},
		"spread over attributes": {want: plain, spans: []unknownSpan{
			{name: "generate", attrs: map[string]any{"session.id": "s-1", "foo.prompt.0.role": "system",
				"foo.prompt.0.content": "Be terse.", "foo.prompt.1.role": "user",
				"foo.prompt.1.content": "Weather in Oslo?", "foo.completion": "It is 4 C.", "foo.model": "m",
				"foo.prompt_tokens": 30, "foo.completion_tokens": 12}},
		}},
		"a convention's family without its kinds": {want: plain, spans: []unknownSpan{
			{name: "llm.call", attrs: map[string]any{"session.id": "s-1", "llm.prompts": talk,
				"llm.completions":  "It is 4 C.",
				"llm.model":        "m",
				"llm.input_tokens": 30, "llm.output_tokens": 12}},
		}},
		"MLflow's names": {want: plain, spans: []unknownSpan{
			{name: "predict", attrs: map[string]any{"mlflow.spanType": `"AGENT"`, "mlflow.trace.session_id": "s-1",
				"mlflow.spanInputs":  `{"question":"Weather in Oslo?"}`,
				"mlflow.spanOutputs": `"It is 4 C."`}},
			{name: "Completions", parent: 1, attrs: map[string]any{"mlflow.spanType": `"CHAT_MODEL"`,
				"mlflow.spanInputs": `{"model":"m","messages":` + talk + `}`,
				"mlflow.spanOutputs": `{"choices":[{"message":{"role":"assistant","content":"It is 4 C."},` +
					`"finish_reason":"stop"}]}`,
				"mlflow.chat.tokenUsage": `{"input_tokens":30,"output_tokens":12,"total_tokens":42}`}},
		}},
		"Braintrust's names": {want: plain, spans: []unknownSpan{
			{name: "agent",
				attrs: map[string]any{"braintrust.input_json": `[{"role":"user","content":"Weather in Oslo?"}]`,
					"braintrust.output_json":         `{"role":"assistant","content":"It is 4 C."}`,
					"braintrust.metadata.session_id": "s-1", "braintrust.metrics": `{"prompt_tokens":30,` +
						`"completion_tokens":12}`}},
		}},
		"request and response of a provider": {want: plain, spans: []unknownSpan{
			{name: "POST model", attrs: map[string]any{"proxy.session-id": "s-1",
				"proxy.request.body": `{"model":"m","messages":` + talk + `}`,
				"proxy.response.body": `{"id":"r1","model":"m-1","choices":[{"message":{"role":"assistant",` +
					`"content":"It is 4 C."},"finish_reason":"stop"}],"usage":{"prompt_tokens":30,` +
					`"completion_tokens":12}}`}},
		}},
		"one span": {want: plain, spans: []unknownSpan{
			{name: "completion", attrs: map[string]any{"SessionID": "s-1", "Prompt": "Weather in Oslo?",
				"Completion": "It is 4 C.", "Model": "m",
				"Usage": `{"prompt_tokens":30,"completion_tokens":12}`}},
		}},
		"input and output, nothing else": {want: "s-1 0/0 generic\nuser text: Weather in Oslo?\nassistant text: It " +
			"is 4 C.\n",
			spans: []unknownSpan{
				{name: "run", attrs: map[string]any{"session_id": "s-1", "input": "Weather in Oslo?",
					"output": "It is 4 C."}},
			}},
		"failed": {want: "s-1 0/0 generic\nuser text: Weather in Oslo?\nassistant data-error: {\"text\":\"500 out of " +
			"tokens\"}\n", spans: []unknownSpan{
			{name: "run", attrs: map[string]any{"session_id": "s-1", "prompt": "Weather in Oslo?"},
				failed: "500 out of tokens"},
		}},
		"tool without its name": {spans: []unknownSpan{
			{name: "agent", attrs: map[string]any{"conversation_id": "s-1", "query": "Weather in Oslo?",
				"response": "It is 4 C.", "agent_name": "scout", "input_tokens": 30, "output_tokens": 12}},
			{name: "tool.weather", parent: 1, attrs: map[string]any{"input": `{"city":"Oslo"}`, "output": "4 C"}},
		}, want: want},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, briefly(t, []request{{traces: tracesOf(t, tt.spans)}})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Records of a client that nobody has tried are read as its spans are.
func TestRecordsOfUnknownClientsAreRead(t *testing.T) {
	const want = "s-1 0/0 generic\nuser text: Weather in Oslo?\nassistant text: It is 4 C.\n"
	for name, records := range map[string][]func(plog.LogRecord){
		"role and content": {
			func(r plog.LogRecord) {
				r.Attributes().PutStr("role", "user")
				r.Attributes().PutStr("content", "Weather in Oslo?")
			},
			func(r plog.LogRecord) {
				r.Attributes().PutStr("role", "assistant")
				r.Attributes().PutStr("content", "It is 4 C.")
			},
		},
		"role and body": {
			func(r plog.LogRecord) {
				r.Attributes().PutStr("message.role", "human")
				r.Body().SetStr("Weather in Oslo?")
			},
			func(r plog.LogRecord) {
				r.Attributes().PutStr("message.role", "ai")
				r.Body().SetStr("It is 4 C.")
			},
		},
		"body that is a message": {
			func(r plog.LogRecord) {
				_ = r.Body().SetEmptyMap().FromRaw(map[string]any{"role": "user", "content": "Weather in Oslo?"})
			},
			func(r plog.LogRecord) {
				_ = r.Body().SetEmptyMap().FromRaw(map[string]any{"role": "assistant", "content": "It is 4 C."})
			},
		},
		"named attributes": {
			func(r plog.LogRecord) { r.Attributes().PutStr("acme.user_prompt", "Weather in Oslo?") },
			func(r plog.LogRecord) { r.Attributes().PutStr("acme.assistant_response", "It is 4 C.") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ld := plog.NewLogs()
			sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
			for i, set := range records {
				r := sl.LogRecords().AppendEmpty()
				r.SetTimestamp(pcommon.Timestamp((1795198540000 + int64(i)*100) * 1e6))
				r.Attributes().PutStr("session.id", "s-1")
				set(r)
			}
			if d := cmp.Diff(want, briefly(t, []request{{logs: ld, isLogs: true}})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Programs that are no agents make no sessions, whatever words their attributes end
// with.
func TestOrdinaryTelemetryMakesNoSessions(t *testing.T) {
	td := tracesOf(t, []unknownSpan{
		{name: "GET /search", attrs: map[string]any{"http.request.method": "GET", "url.query": "q=shoes",
			"url.full": "https://x/search?q=shoes", "user_agent.original": "curl",
			"session.id": "rum-1", "client.address": "10.0.0.1", "http.request.body.size": 12,
			"network.protocol.version": "1.1"}},
		{name: "SELECT products", parent: 1, attrs: map[string]any{"db.system.name": "postgresql",
			"db.query.text": "SELECT 1", "db.operation.name": "SELECT", "db.response.returned_rows": 3,
			"thread.id": 12, "thread.name": "main", "code.function.name": "query"}},
		{name: "orders process", parent: 1,
			attrs: map[string]any{"messaging.system": "kafka", "messaging.message.id": "m1",
				"messaging.message.conversation_id": "c1",
				"messaging.destination.name":        "orders", "messaging.operation.type": "process",
				"messaging.client.id": "c"}},
		{name: "Catalog/Get", parent: 1, attrs: map[string]any{"rpc.system": "grpc", "rpc.method": "Get",
			"rpc.request.metadata.x": "1", "rpc.message.type": "SENT", "server.port": 443}},
		{name: "handler", parent: 1, attrs: map[string]any{"k8s.pod.name": "p", "faas.invocation_id": "1",
			"aws.request_id": "r", "exception.message": "boom", "app.order.id": "o1",
			"app.user.id": "u1", "request_id": "r1", "request.size": 12, "response.status": "ok", "enduser.id": "u"}},
		{name: "search", parent: 1, attrs: map[string]any{"search.query": "shoes", "search.count": 10,
			"type": "product",
			"kind": "internal", "component": "search", "model": ""}},
		{name: "render", parent: 1, attrs: map[string]any{"car.model": "Volvo 240", "content": "<html>",
			"message": "rendered", "text": "hello", "role": "admin", "output.format": "html"}},
		{name: "login", attrs: map[string]any{"session.id": "web-2", "user.id": "u1", "browser.platform": "mac",
			"event.name": "click"}},
		{name: "job", attrs: map[string]any{"sessionId": "web-3", "job.id": "1", "operation": "update",
			"status": "done"}},
	})
	ld := plog.NewLogs()
	sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	for _, attrs := range []map[string]any{
		{"http.request.method": "GET", "message": "done"},
		{"session.id": "web-4", "message": "user clicked", "level": "info"},
		{"role": "admin", "user.id": "u"}, {"query": "SELECT 1", "result": "ok"},
		{"logger.name": "x", "input": "a", "output": "b"},
		{"event.name": "page_view", "session.id": "rum"}, {"content": "text", "type": "html"},
	} {
		r := sl.LogRecords().AppendEmpty()
		r.SetTimestamp(1795198540000 * 1e6)
		r.Body().SetStr("an ordinary line about a user and an answer")
		if err := r.Attributes().FromRaw(attrs); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t)
	report := deliver(t, s, []request{{traces: td}, {logs: ld, isLogs: true}})
	if rows := sessionsOf(t, s); len(rows) != 0 || report.Accepted != 0 {
		t.Errorf("%d spans and records were taken for an agent's: %v", report.Accepted, rows)
	}
}

// A span that names a conversation and an agent and reports nothing else makes its session
// visible.
func TestUnknownSessionWithoutContentIsVisible(t *testing.T) {
	got := briefly(t, []request{{traces: tracesOf(t, []unknownSpan{
		{name: "agent", attrs: map[string]any{"conversation_id": "s-1", "agent.name": "scout"}},
	})}})
	if want := "s-1 0/0 generic\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A session that was read generically is read by its dialect when its telemetry comes
// again after an upgrade, whichever came first, and keeps nothing of the first reading.
func TestLaterReadingReplacesTheGenericOne(t *testing.T) {
	all := readCapture(t, "testdata/captures/langfuse-js-5.11.1/chat")
	s := openStore(t)
	deliver(t, s, all)
	want := dump(t, s.Path())

	// Before the upgrade the client's own attribute of its kind was not known.
	before := readCapture(t, "testdata/captures/langfuse-js-5.11.1/chat")
	for _, r := range before {
		eachSpan(r.traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
			if v, ok := s.Attributes().Get("langfuse.observation.type"); ok {
				kind := v.Str()
				s.Attributes().Remove("langfuse.observation.type")
				s.Attributes().PutStr("x.span.type", kind+strings.Repeat(" ", 2000)) // longer data counted for more
				s.Attributes().PutStr("x.kind", kind)
			}
		})
	}
	for name, order := range map[string][]request{"upgrade": append(before, all...),
		"older telemetry comes later": append(all, before...)} {
		s := openStore(t)
		report := deliver(t, s, order)
		if report.Dialects["generic"] == 0 || report.Dialects["langfuse"] == 0 {
			t.Fatalf("%s: read by %v, want both", name, report.Dialects)
		}
		if got := dump(t, s.Path()); got != want {
			t.Errorf("%s (-read once +read twice):\n%s", name,
				cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
	}
}

// A sub-agent of VoltAgent or of Langfuse is a session of its own, and what it was asked
// is no turn of its parent.
func TestSubAgentsOfVoltAgentAndLangfuseAreChildSessions(t *testing.T) {
	volt := func(name string, extra map[string]any) map[string]any {
		attrs := map[string]any{"conversation.id": "s-1", "operation.id": "op-" + name, "entity.type": "agent",
			"entity.id": name, "entity.name": name}
		for k, v := range extra {
			attrs[k] = v
		}
		return attrs
	}
	fuse := func(kind string, extra map[string]any) map[string]any {
		attrs := map[string]any{"session.id": "s-1", "langfuse.observation.type": kind}
		for k, v := range extra {
			attrs["langfuse.observation."+k] = v
		}
		return attrs
	}
	for name, all := range map[string][]unknownSpan{
		"VoltAgent, in a tool": {
			{name: "Lead", attrs: volt("Lead", map[string]any{"input": "Plan a trip.", "output": "Go to Oslo."})},
			{name: "tool.execution:delegate_task", parent: 1,
				attrs: volt("Lead", map[string]any{"span.type": "tool", "tool.name": "delegate_task",
					"tool.call.id": "c1",
					"input":        `{"task":"Find a city"}`, "output": `"Oslo"`})},
			{name: "Scout", parent: 2,
				attrs: volt("Scout", map[string]any{"input": "Find a city", "output": "Oslo it is."})},
			{name: "llm:generateText", parent: 3, attrs: volt("Scout",
				map[string]any{"span.type": "llm", "llm.model": "m",
					"llm.messages": `[{"role":"user","content":"Find a city"}]`})},
		},
		"VoltAgent, below the turn": {
			{name: "Lead", attrs: volt("Lead", map[string]any{"input": "Plan a trip.", "output": "Go to Oslo."})},
			{name: "Scout", parent: 1,
				attrs: volt("Scout", map[string]any{"input": "Find a city", "output": "Oslo it is."})},
		},
		"Langfuse": {
			{name: "Lead", attrs: fuse("agent", map[string]any{"input": "Plan a trip.", "output": "Go to Oslo."})},
			{name: "delegate", parent: 1, attrs: fuse("tool",
				map[string]any{"input": `{"task":"Find a city"}`, "output": `"Oslo"`})},
			{name: "Scout", parent: 2,
				attrs: fuse("agent", map[string]any{"input": "Find a city", "output": "Oslo it is."})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			deliver(t, s, []request{{traces: tracesOf(t, all)}})
			check(t, s)
			children := 0
			for id := range sessionsOf(t, s) {
				tr, err := s.Transcript(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				want := "Plan a trip."
				if tr.Session.ParentID != nil {
					want = "Find a city"
					children++
					if tr.Session.Agent != "Scout" || *tr.Session.ParentID != "s-1" {
						t.Errorf("the child is %s's, of %s", tr.Session.Agent, *tr.Session.ParentID)
					}
				}
				users := 0
				for _, m := range tr.Messages {
					if m.Message.Role == "user" {
						users++
						if !strings.Contains(m.Parts[0].DataJSON, want) {
							t.Errorf("session %s was asked %s, want %s", id, m.Parts[0].DataJSON, want)
						}
					}
				}
				if users != 1 {
					t.Errorf("session %s has %d messages of the user, want 1", id, users)
				}
			}
			if children != 1 {
				t.Errorf("%d child sessions, want 1", children)
			}
		})
	}
}
