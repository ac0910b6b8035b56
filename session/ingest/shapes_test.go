package ingest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// A played call is of a tool; its error is set where it fails.
type playedCall struct{ id, name, input, output, err string }

// A playedStep is one call of a model: what it answers, that it fails, or, where nothing is set, that a person stops
// it.
type playedStep struct {
	text  string
	calls []playedCall
	fail  string
}

// play is what a program does, whose telemetry has many shapes: in each of them it has to come to the same session.
var play = []struct {
	asked string
	steps []playedStep
}{
	{"Hello", []playedStep{{text: "Hi there."}}},
	{"Oslo and Rome?", []playedStep{{text: "Let me look.", calls: []playedCall{
		{"c1", "weather", `{"city":"Oslo"}`, "rain", ""}, {"c2", "weather", `{"city":"Rome"}`, "sun", ""}}},
		{text: "Oslo rain, Rome sun."}}},
	{"Book a table", []playedStep{{calls: []playedCall{{"c3", "book", `{"n":2}`, "", "no tables left"}}},
		{text: "Sorry, none left."}}},
	{"Sum up", []playedStep{{fail: "overloaded"}}},
	{"Sum up again", []playedStep{{calls: []playedCall{{"c4", "read", `{"path":"a"}`, "AAA", ""}}},
		{calls: []playedCall{{"c5", "read", `{"path":"a"}`, "BBB", ""}}}, {text: "A, then B."}}},
	{"Hello", []playedStep{{text: "Hi again."}}},
	{`{"a": 1}`, []playedStep{{text: `{"b": 2}`}}},
	{"Stop me", []playedStep{{}}},
	{"Пиши по-русски", []playedStep{{text: "Хорошо."}}},
	{"Bye", []playedStep{{text: "Bye."}}},
}

// said is one message of the history that requests repeat.
type said struct {
	role, text string
	calls      []playedCall // of an answer; of a message of a tool the one that it answers
}

// shape writes the attributes of spans as an instrumentation has them.
type shape struct {
	scope, session string
	// root, model and tool are the names and attributes of the spans of a turn, a model call and a tool call.
	root  func(asked, answer string) (string, attrs)
	model func(history []said, answer *said) (string, attrs)
	tool  func(c playedCall) (string, attrs)
}

// attrs are lines of attributes, in the form of parseText.
type attrs []string

func (a *attrs) set(key string, value any) {
	switch v := value.(type) {
	case string:
		*a = append(*a, fmt.Sprintf("  %s = %s", key, quoteJSON(v)))
	case json.RawMessage:
		*a = append(*a, fmt.Sprintf("  %s := %s", key, v))
	default:
		*a = append(*a, fmt.Sprintf("  %s := %s", key, quoteJSON(v)))
	}
}

func quoteJSON(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func of(pairs ...any) (a attrs) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			a.set(pairs[i].(string), pairs[i+1])
		}
	}
	return a
}

type object = map[string]any

// genAIMessages are messages as the conventions for generative AI have them.
func genAIMessages(all []said) (messages []object) {
	for _, m := range all {
		parts := []object{}
		if m.text != "" && m.role != "tool" {
			parts = append(parts, object{"type": "text", "content": m.text})
		}
		for _, c := range m.calls {
			if m.role == "tool" {
				parts = append(parts, object{"type": "tool_call_response", "id": c.id, "response": c.output + c.err})
			} else {
				parts = append(parts, object{"type": "tool_call", "id": c.id, "name": c.name,
					"arguments": json.RawMessage(c.input)})
			}
		}
		messages = append(messages, object{"role": m.role, "parts": parts})
	}
	return messages
}

// chatMessages are messages as OpenAI's interface has them.
func chatMessages(all []said) (messages []object) {
	for _, m := range all {
		o := object{"role": m.role, "content": m.text}
		var calls []object
		for _, c := range m.calls {
			if m.role == "tool" {
				o["tool_call_id"], o["content"] = c.id, c.output+c.err
			} else {
				calls = append(calls, object{"id": c.id, "type": "function",
					"function": object{"name": c.name, "arguments": c.input}})
			}
		}
		if calls != nil {
			o["tool_calls"] = calls
		}
		messages = append(messages, o)
	}
	return messages
}

// flat sets messages as attributes of their own below a prefix, and the names of a message's members as given.
func (a *attrs) flat(prefix string, all []said, role, content, calls, id, name, input, resultID string) {
	for i, m := range all {
		at := fmt.Sprintf("%s.%d.", prefix, i)
		a.set(at+role, m.role)
		if m.text != "" {
			a.set(at+content, m.text)
		}
		for k, c := range m.calls {
			if m.role == "tool" {
				a.set(at+content, c.output+c.err)
				a.set(at+resultID, c.id)
				continue
			}
			call := fmt.Sprintf("%s%s.%d.", at, calls, k)
			a.set(call+id, c.id)
			a.set(call+name, c.name)
			a.set(call+input, c.input)
		}
	}
}

func genAI(withRoot bool) shape {
	return shape{scope: "app", session: "gen_ai.conversation.id",
		root: func(asked, answer string) (string, attrs) {
			a := of("gen_ai.operation.name", "invoke_agent", "gen_ai.agent.name", "bot")
			if withRoot {
				a.set("gen_ai.input.messages", genAIMessages([]said{{role: "user", text: asked}}))
				if answer != "" {
					a.set("gen_ai.output.messages", genAIMessages([]said{{role: "assistant", text: answer}}))
				}
			}
			return "invoke_agent bot", a
		},
		model: func(history []said, answer *said) (string, attrs) {
			a := of("gen_ai.operation.name", "chat", "gen_ai.request.model", "m",
				"gen_ai.input.messages", genAIMessages(history))
			if answer != nil {
				a.set("gen_ai.output.messages", genAIMessages([]said{*answer}))
			}
			return "chat m", a
		},
		tool: func(c playedCall) (string, attrs) {
			return "execute_tool " + c.name, of("gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", c.name,
				"gen_ai.tool.call.id", c.id, "gen_ai.tool.call.arguments", json.RawMessage(c.input),
				"gen_ai.tool.call.result", c.output)
		}}
}

var openInference = shape{scope: "openinference.instrumentation.openai", session: "session.id",
	root: func(string, string) (string, attrs) { return "Agent", of("openinference.span.kind", "AGENT") },
	model: func(history []said, answer *said) (string, attrs) {
		a := of("openinference.span.kind", "LLM", "llm.model_name", "m")
		const call = "tool_call.function."
		a.flat("llm.input_messages", history, "message.role", "message.content", "message.tool_calls", "tool_call.id",
			call+"name", call+"arguments", "message.tool_call_id")
		if answer != nil {
			a.flat("llm.output_messages", []said{*answer}, "message.role", "message.content", "message.tool_calls",
				"tool_call.id", call+"name", call+"arguments", "message.tool_call_id")
		}
		return "ChatCompletion", a
	},
	tool: func(c playedCall) (string, attrs) {
		return c.name, of("openinference.span.kind", "TOOL", "tool.name", c.name, "input.value", json.RawMessage(c.input),
			"output.value", c.output)
	}}

var openLLMetry = shape{scope: "opentelemetry.instrumentation.openai.v1",
	session: "traceloop.association.properties.session_id",
	root: func(string, string) (string, attrs) {
		return "bot.workflow", of("traceloop.span.kind", "workflow", "traceloop.entity.name", "bot")
	},
	model: func(history []said, answer *said) (string, attrs) {
		a := of("gen_ai.system", "openai", "llm.request.type", "chat", "gen_ai.request.model", "m")
		a.flat("gen_ai.prompt", history, "role", "content", "tool_calls", "id", "name", "arguments", "tool_call_id")
		if answer != nil {
			a.flat("gen_ai.completion", []said{*answer}, "role", "content", "tool_calls", "id", "name", "arguments", "")
		}
		return "openai.chat", a
	},
	tool: func(c playedCall) (string, attrs) {
		return c.name + ".tool", of("traceloop.span.kind", "tool", "traceloop.entity.name", c.name,
			"traceloop.entity.input", object{"args": []any{}, "kwargs": json.RawMessage(c.input)},
			"traceloop.entity.output", c.output)
	}}

var langfuse = shape{scope: "langfuse-sdk", session: "session.id",
	root: func(asked, answer string) (string, attrs) {
		return "bot", of("langfuse.observation.type", "agent", "langfuse.observation.input", asked,
			"langfuse.observation.output", answer)
	},
	model: func(history []said, answer *said) (string, attrs) {
		a := of("langfuse.observation.type", "generation", "langfuse.observation.model.name", "m",
			"langfuse.observation.input", chatMessages(history))
		if answer != nil {
			a.set("langfuse.observation.output", chatMessages([]said{*answer})[0])
		}
		return "OpenAI-generation", a
	},
	tool: func(c playedCall) (string, attrs) {
		return c.name, of("langfuse.observation.type", "tool", "langfuse.observation.input", json.RawMessage(c.input),
			"langfuse.observation.output", c.output)
	}}

// played writes the telemetry of the play: place names the trace and the parent of what is at the top of the turn n.
func (s *shape) played(roots bool, place func(n int) (trace, parent int)) string {
	var b strings.Builder
	fmt.Fprintf(&b, "scope %s\n", quoteJSON(s.scope))
	var history []said
	at, id := 0, 0
	span := func(trace, parent, took int, failed, name string, a attrs) int {
		id++
		fmt.Fprintf(&b, "span %s trace=%d id=%d", quoteJSON(name), trace, id)
		if parent > 0 {
			fmt.Fprintf(&b, " parent=%d", parent)
		}
		fmt.Fprintf(&b, " at=%dms for=%dms", at, took)
		if failed != "" {
			fmt.Fprintf(&b, " status=error %s", quoteJSON(failed))
		}
		a.set(s.session, "s")
		b.WriteString("\n" + strings.Join(a, "\n") + "\n")
		return id
	}
	for n, turn := range play {
		trace, parent := place(n)
		last := turn.steps[len(turn.steps)-1]
		if roots {
			name, a := s.root(turn.asked, last.text)
			parent = span(trace, parent, 900, last.fail, name, a)
		}
		history = append(history, said{role: "user", text: turn.asked})
		for _, step := range turn.steps {
			var answer *said
			if step.text != "" || step.calls != nil {
				answer = &said{"assistant", step.text, step.calls}
			}
			name, a := s.model(slices.Clone(history), answer)
			at += 10
			span(trace, parent, 100, step.fail, name, a)
			if answer != nil {
				history = append(history, *answer)
			}
			at += 100
			for _, c := range step.calls {
				name, a := s.tool(c)
				span(trace, parent, 20, c.err, name, a)
				history = append(history, said{role: "tool", calls: []playedCall{c}})
			}
			at += 40
		}
		at = (n + 1) * 2000
	}
	return b.String()
}

// TestEveryShapeIsTheSameSession: what a program did is read alike from whatever instrumentation reports it, with spans
// of turns and without, in traces of their own and in one, also after turns that failed or were stopped.
func TestEveryShapeIsTheSameSession(t *testing.T) {
	var want []string
	for _, turn := range play {
		want = append(want, "user "+turn.asked)
		for _, step := range turn.steps {
			if step.text != "" {
				want = append(want, "text "+step.text)
			}
			for _, c := range step.calls {
				want = append(want, fmt.Sprintf("call %s %s %s %s", c.id, c.name, c.input, c.output+c.err))
			}
			if step.fail != "" {
				want = append(want, "error "+step.fail)
			}
		}
	}
	apart := func(n int) (trace, parent int) { return n + 1, 0 }
	one := func(int) (trace, parent int) { return 1, 0 }
	below := func(n int) (trace, parent int) { return n + 1, 900 + n } // a span of a server, which is not sent
	for _, x := range []struct {
		name  string
		shape shape
		roots bool
		place func(n int) (trace, parent int)
	}{
		{"conventions, roots", genAI(false), true, apart}, {"conventions, roots with messages", genAI(true), true, apart},
		{"conventions, calls below a server", genAI(false), false, below},
		{"conventions, one trace", genAI(false), true, one},
		{"OpenInference, roots", openInference, true, apart}, {"OpenInference, one trace", openInference, true, one},
		{"OpenInference, calls below a server", openInference, false, below},
		{"OpenLLMetry, roots", openLLMetry, true, apart},
		{"OpenLLMetry, calls below a server", openLLMetry, false, below},
		{"Langfuse", langfuse, true, apart},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			all := parsed(t, x.shape.played(x.roots, x.place))
			s := openStore(t)
			deliver(t, s, join(all))
			sessions := rowsOf(t, s)
			if len(sessions) != 1 {
				t.Fatalf("%d sessions", len(sessions))
			}
			if d := differ(strings.Join(want, "\n"), strings.Join(linesOf(t, sessions[0]), "\n")); d != "" {
				t.Errorf("the session differs (-played +session):\n%s", d)
			}
			testOrderWith(t, s, ingest.Options{}, all, testscale.Rounds(1, 4))
		})
	}
}

// linesOf are the lines of a session: what was asked, answered, called, and what failed.
func linesOf(t *testing.T, x *session.Transcript) (lines []string) {
	t.Helper()
	for _, m := range x.Messages {
		var asked []string
		for _, p := range m.Parts {
			var part session.UIPart
			testscale.Must(t, json.Unmarshal([]byte(p.DataJSON), &part))
			switch {
			case p.Type == "text" && m.Message.Role == session.RoleUser:
				asked = append(asked, session.Deref(part.Text))
			case p.Type == "text":
				lines = append(lines, "text "+session.Deref(part.Text))
			case p.Type == "data-error":
				var data struct{ Text string }
				testscale.Must(t, json.Unmarshal(part.Data, &data))
				lines = append(lines, "error "+data.Text)
			case p.ToolCallID != nil:
				var output string
				_ = json.Unmarshal(part.Output, &output)
				lines = append(lines, fmt.Sprintf("call %s %s %s %s", *p.ToolCallID, strings.TrimPrefix(p.Type, "tool-"),
					part.Input, output+session.Deref(part.ErrorText)))
			}
		}
		if m.Message.Role == session.RoleUser {
			lines = append(lines, "user "+strings.Join(asked, " | "))
		}
	}
	return lines
}
