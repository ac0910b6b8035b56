package collector

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/spans"
)

// secretKinds are forms in which secrets turn up in a text, one for each way in which they are found: by themselves, by
// a name before or after them, in JSON, between escapes, over several lines, on a command line. The corpus of package
// redact has the others. A core is 40 letters and digits that nothing else has.
var secretKinds = []struct {
	name string
	text func(core string) string
}{
	{"token of GitHub", func(c string) string { return "ghp_" + c[:36] }},
	{"private key", func(c string) string {
		return "-----BEGIN PRIV" + "ATE KEY-----\nMIIEvQ" + c + "\n-----END PRIV" + "ATE KEY-----"
	}},
	{"password in a URL", func(c string) string { return "postgres://app:" + c + "@db.example.com/main" }},
	{"header", func(c string) string { return "Authorization: Bearer " + c }},
	{"password on a command line", func(c string) string { return "mysql -u root -p" + c + " shop" }},
	{"JSON in JSON", func(c string) string { return `{"arguments":"{\"api_key\":\"` + c + `\"}"}` }},
	{"coloured name", func(c string) string { return "a.env:\x1b[01;31m\x1b[KDB_PASS\x1b[m\x1b[K=" + c }},
	{"name and value", func(c string) string { return "- name: DB_PASSWORD\n  value: " + c }},
	{"value and name", func(c string) string { return `{"value":"` + c + `","name":"DB_PASSWORD"}` }},
	{"prose", func(c string) string { return "The password is " + c }},
}

// plant is a secret in a place.
type plant struct {
	place, kind string
	// core must not be found where telemetry ends up, canary, which is beside
	// it, must be.
	core, canary string
}

// corpus is telemetry with a secret of each kind in each place.
type corpus struct {
	traces ptrace.Traces
	logs   plog.Logs
	plants []plant
	n      int64
}

const plantedAt = 1_795_198_540_000 // Unix milliseconds

// text plants a secret of every kind in a text of its own and hands each to put.
func (c *corpus) text(place string, put func(n int64, text string)) {
	for _, kind := range secretKinds {
		p := c.plant(place, kind.name)
		put(c.n, p.canary+" before\n"+kind.text(p.core)+"\nafter "+p.canary)
	}
}

// plant makes a secret and notes where it goes.
func (c *corpus) plant(place, kind string) plant {
	c.n++
	sum := sha256.Sum256([]byte(place + "/" + kind))
	core := strings.NewReplacer("-", "7", "_", "q").Replace(base64.RawURLEncoding.EncodeToString(sum[:]))[:37] + "aZ3"
	p := plant{place, kind, core, fmt.Sprintf("canary%04d", c.n)}
	c.plants = append(c.plants, p)
	return p
}

func (c *corpus) span(library, name string, kvs []attribute.KeyValue) ptrace.Span {
	ss := c.traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName(library)
	s := ss.Spans().AppendEmpty()
	s.SetName(name)
	s.SetTraceID(pcommon.TraceID{1, byte(c.n >> 8), byte(c.n)})
	s.SetSpanID(pcommon.SpanID{2, byte(c.n >> 8), byte(c.n)})
	s.SetStartTimestamp(pcommon.Timestamp((plantedAt + c.n*10) * 1e6))
	s.SetEndTimestamp(pcommon.Timestamp((plantedAt + c.n*10 + 5) * 1e6))
	otlpfile.PutAttributes(s.Attributes(), kvs)
	return s
}

func (c *corpus) own(r spans.SpanData) ptrace.Span {
	return c.span(semconv.ScopeName, r.Kind(), r.Append(nil))
}

func (c *corpus) record(library, event string, kvs []attribute.KeyValue) plog.LogRecord {
	sl := c.logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	sl.Scope().SetName(library)
	r := sl.LogRecords().AppendEmpty()
	r.SetEventName(event)
	r.SetTimestamp(pcommon.Timestamp((plantedAt + c.n*10) * 1e6))
	otlpfile.PutAttributes(r.Attributes(), kvs)
	return r
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// newCorpus plants a secret of each kind in each place.
func newCorpus() *corpus {
	c := &corpus{traces: ptrace.NewTraces(), logs: plog.NewLogs()}
	const sessionID = "ses_planted"
	id := func(prefix string, n int64) string { return fmt.Sprintf("%s%026d", prefix, n) }
	turn := func(change func(t *spans.Turn)) func(int64) ptrace.Span {
		return func(n int64) ptrace.Span {
			t := &spans.Turn{
				SessionID: sessionID, Agent: "coder", EndReason: semconv.EndFinish,
				User: spans.Message{ID: id(spans.PrefixMessage, 2*n), CreatedAt: plantedAt + n*10, Parts: []spans.Part{
					{ID: id(spans.PrefixPart, 4*n), Type: "text", Data: []byte(`{"type":"text","text":"hello"}`)}}},
				Assistant: spans.Message{ID: id(spans.PrefixMessage, 2*n+1), CreatedAt: plantedAt + n*10 + 1,
					Parts: []spans.Part{
						{ID: id(spans.PrefixPart, 4*n+1), Type: "text",
							Data: []byte(`{"type":"text","text":"hello"}`)}}},
			}
			change(t)
			return c.own(t)
		}
	}
	part := func(data any) []byte { return []byte(toJSON(data)) }
	type object = map[string]any

	c.text("prompt", func(n int64, s string) {
		turn(func(t *spans.Turn) { t.User.Parts[0].Data = part(object{"type": "text", "text": s}) })(n)
	})
	c.text("URL of a file", func(n int64, s string) {
		turn(func(t *spans.Turn) {
			t.User.Parts[0].Type = "file"
			t.User.Parts[0].Data = part(object{"type": "file", "mediaType": "text/plain",
				"url":      "https://example.com/?q=" + s,
				"filename": s})
		})(n)
	})
	c.text("answer", func(n int64, s string) {
		turn(func(t *spans.Turn) { t.Assistant.Parts[0].Data = part(object{"type": "text", "text": s}) })(n)
	})
	c.text("reasoning", func(n int64, s string) {
		turn(func(t *spans.Turn) {
			t.Assistant.Parts[0].Type, t.Assistant.Parts[0].Data = "reasoning",
				part(object{"type": "reasoning", "text": s})
		})(n)
	})
	c.text("data part", func(n int64, s string) {
		turn(func(t *spans.Turn) {
			t.Assistant.Parts[0].Type, t.Assistant.Parts[0].Data = "data-note",
				part(object{"type": "data-note", "data": object{"deep": []string{s}}})
		})(n)
	})
	c.text("part cut short", func(n int64, s string) {
		span := turn(func(t *spans.Turn) { t.User.Parts[0].Data = part(object{"type": "text", "text": s}) })(n)
		parts, _ := span.Attributes().Get(string(semconv.UserMessagePartsKey))
		whole := parts.Slice().At(0).Str()
		parts.Slice().At(0).SetStr(whole[:len(whole)-len(`"}}`)])
	})
	c.text("system prompt", func(n int64, s string) {
		sum := sha256.Sum256([]byte(s))
		turn(func(t *spans.Turn) { t.SystemPrompt, t.SystemPromptDigest = s, fmt.Sprintf("%x", sum) })(n)
	})
	c.text("tool catalog", func(n int64, s string) {
		turn(func(t *spans.Turn) { t.ToolCatalog = toJSON([]object{{"name": "bash", "description": s}}) })(n)
	})
	c.text("metadata of messages", func(n int64, s string) {
		turn(func(t *spans.Turn) {
			t.User.Metadata, t.Assistant.Metadata = part(object{"note": s}), part(object{"note": s})
		})(n)
	})
	c.text("counts in the provider's words", func(n int64, s string) {
		turn(func(t *spans.Turn) { t.Usage = spans.Usage{Raw: part(object{"input_tokens": 1, "note": s})} })(n)
	})
	c.text("error of a turn", func(n int64, s string) {
		turn(func(t *spans.Turn) { t.Error, t.EndReason = s, semconv.EndError })(n)
	})
	c.text("message of a status", func(n int64, s string) {
		span := turn(func(t *spans.Turn) { t.EndReason = semconv.EndError })(n)
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(s)
	})

	tool := func(n int64) *spans.ToolCall {
		return &spans.ToolCall{SessionID: sessionID, ToolID: "bash", CallID: fmt.Sprint("call_", n),
			MessageID: id(spans.PrefixMessage, 2*n+1),
			PartID:    id(spans.PrefixPart, 4*n), State: "output-available", Input: "{}", Output: "{}"}
	}
	c.text("tool input, an object", func(n int64, s string) {
		t := tool(n)
		t.Input = toJSON(object{"command": s, "env": []string{s}})
		c.own(t)
	})
	c.text("tool input, a string", func(n int64, s string) {
		t := tool(n)
		t.Input = toJSON(s)
		c.own(t)
	})
	c.text("tool input, no JSON", func(n int64, s string) {
		t := tool(n)
		t.Input = s
		c.own(t)
	})
	c.text("tool output", func(n int64, s string) {
		t := tool(n)
		t.Output = toJSON(object{"stdout": s, "exit": 0})
		c.own(t)
	})
	c.text("error of a tool, and what it had printed", func(n int64, s string) {
		t := tool(n)
		t.State, t.Error, t.Output = "output-error", s, toJSON(s)
		c.own(t)
	})
	c.text("stack trace", func(n int64, s string) {
		t := tool(n)
		t.State, t.Error = "output-error", "panic: "+s+"\ngoroutine 1 [running]:\nmain.connect("+s+
			")\n\t/src/main.go:12"
		span := c.own(t)
		e := span.Events().AppendEmpty()
		e.SetName("exception")
		e.Attributes().PutStr("exception.stacktrace", t.Error)
	})
	for _, key := range []string{"password", "X-Api-Key", "accessToken"} {
		p := c.plant("tool input under "+key, "key")
		t := tool(c.n)
		t.Input = toJSON(object{"headers": object{key: p.core}, "list": object{key: []string{p.core}},
			"note": p.canary})
		c.own(t)
	}
	c.text("permission", func(n int64, s string) {
		c.own(&spans.Permission{SessionID: sessionID, ID: id(spans.PrefixPermission, n), ToolID: "bash", Pattern: s,
			Reason: s,
			Action: semconv.ActionAsk, Source: semconv.SourceSession, Outcome: semconv.OutcomeAllowed})
	})
	c.text("summary", func(n int64, s string) {
		c.own(&spans.Compaction{SessionID: sessionID, MessageID: id(spans.PrefixMessage, 2*n),
			MessageCreatedAt: plantedAt + n, PartID: id(spans.PrefixPart, 4*n), Summary: s})
	})
	c.text("session", func(n int64, s string) {
		c.own(&spans.Run{SessionID: fmt.Sprint("ses_run_", n), Agent: "coder", Title: s, WorkspaceRoot: "/srv/" + s,
			Error:       s,
			Outcome:     semconv.EndError,
			Metadata:    part(object{"note": s}),
			Permissions: part([]object{{"permission": "bash", "pattern": s, "action": "allow"}})})
	})
	c.text("model call", func(n int64, s string) {
		c.span(semconv.ScopeName, semconv.OperationChat+" gpt-5-mini",
			(&spans.ModelCall{SessionID: sessionID, MessageID: id(spans.PrefixMessage, 2*n),
				Model: spans.Model{ProviderID: "openai", ModelID: "gpt-5-mini"}, Error: s}).Append(nil))
	})

	// What the SDK reports while things go on.
	c.text("live part", func(n int64, s string) {
		e := &spans.Event{Name: semconv.EventPart, SessionID: sessionID, MessageID: id(spans.PrefixMessage, 2*n),
			Role: "assistant", MessageCreatedAt: plantedAt + n,
			Parts: []spans.Part{{ID: id(spans.PrefixPart, 4*n), Type: "text",
				Data: part(object{"type": "text", "text": s, "state": "streaming"})}}}
		c.record(semconv.ScopeName, e.Name, e.Append(nil))
	})
	c.text("status", func(n int64, s string) {
		e := &spans.Event{Name: semconv.EventStatus, SessionID: fmt.Sprint("ses_status_", n),
			Status:  semconv.StatusRetrying,
			Attempt: 1, Detail: s}
		c.record(semconv.ScopeName, e.Name, e.Append(nil))
	})

	// Agents without the SDK.
	foreign := func(n int64) attribute.KeyValue {
		return attribute.String("gen_ai.conversation.id", fmt.Sprint("foreign_", n))
	}
	c.text("messages by the conventions", func(n int64, s string) {
		said := func(role string, parts ...object) string { return toJSON([]object{{"role": role, "parts": parts}}) }
		c.span("genai", "chat gpt-5-mini", []attribute.KeyValue{
			foreign(n), attribute.String("gen_ai.operation.name", "chat"),
			attribute.String("gen_ai.provider.name", "openai"),
			attribute.String("gen_ai.request.model", "gpt-5-mini"),
			attribute.String("gen_ai.system_instructions", toJSON([]object{{"type": "text", "content": s}})),
			attribute.String("gen_ai.input.messages", said("user", object{"type": "text", "content": s})),
			attribute.String("gen_ai.output.messages", said("assistant", object{"type": "reasoning", "content": s},
				object{"type": "text", "content": s},
				object{"type": "tool_call", "id": fmt.Sprint("call_f", n), "name": "bash",
					"arguments": object{"command": s}})),
			attribute.String("gen_ai.tool.definitions",
				toJSON([]object{{"type": "function", "name": "bash", "description": s}})),
		})
	})
	c.text("tool by the conventions", func(n int64, s string) {
		span := c.span("genai", "execute_tool bash", []attribute.KeyValue{
			foreign(n), attribute.String("gen_ai.operation.name", "execute_tool"),
			attribute.String("gen_ai.tool.name", "bash"),
			attribute.String("gen_ai.tool.call.id", fmt.Sprint("call_t", n)),
			attribute.String("gen_ai.tool.call.arguments", toJSON(object{"command": s})),
			attribute.String("gen_ai.tool.call.result", s),
		})
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(s)
		e := span.Events().AppendEmpty()
		e.SetName("exception")
		e.Attributes().PutStr("exception.message", s)
		e.Attributes().PutStr("exception.stacktrace", "Traceback:\n  connect()\n"+s)
	})
	c.text("OpenInference", func(n int64, s string) {
		c.span("openinference.instrumentation.openai", "ChatCompletion", []attribute.KeyValue{
			attribute.String("session.id", fmt.Sprint("foreign_", n)),
			attribute.String("openinference.span.kind", "LLM"),
			attribute.String("llm.model_name", "gpt-5-mini"),
			attribute.String("llm.input_messages.0.message.role", "user"),
			attribute.String("llm.input_messages.0.message.content", s),
			attribute.String("llm.output_messages.0.message.role", "assistant"),
			attribute.String("llm.output_messages.0.message.content", s),
			attribute.String("llm.invocation_parameters", toJSON(object{"note": s})),
			attribute.String("metadata", toJSON(object{"note": s})),
		})
	})
	c.text("record of Claude Code", func(n int64, s string) {
		for event, key := range map[string]string{"user_prompt": "prompt", "tool_result": "tool_input",
			"assistant_response": "response"} {
			r := c.record("com.anthropic.claude_code.events", "claude_code."+event, []attribute.KeyValue{
				attribute.String("session.id", fmt.Sprint("foreign_", n)), attribute.String("event.name", event),
				attribute.String("prompt.id", fmt.Sprint("prompt_", n)),
				attribute.String("tool_name", "Bash"), attribute.String("tool_use_id", fmt.Sprint("toolu_", n)),
				attribute.String("success", "true"),
			})
			r.Attributes().PutStr(key,
				map[bool]string{true: toJSON(object{"command": s}), false: s}[event == "tool_result"])
			r.Attributes().PutInt("prompt_length", int64(len(s)))
			r.Body().SetStr("claude_code." + event + " " + s)
		}
	})

	// Spans of no session reach the second place only.
	c.text("span of no session", func(n int64, s string) {
		span := c.span("http", "GET /?"+s, []attribute.KeyValue{
			attribute.String("url.full", "https://example.com/"+s),
			attribute.StringSlice("http.request.header.authorization", []string{"Basic " + s}),
			attribute.String("db.query.text", s), attribute.StringSlice("process.command_args", []string{"run", s}),
		})
		span.Attributes().PutEmptyMap("nested").PutEmptySlice("list").AppendEmpty().SetStr(s)
		span.Attributes().PutEmptyBytes("bytes").FromRaw([]byte(s))
		span.Links().AppendEmpty().Attributes().PutStr("note", s)
	})
	return c
}
