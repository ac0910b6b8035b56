//go:build e2e

package npm_test

import (
	"encoding/json"
	"slices"
	"strings"
)

// normals has a function per format that reduces a request to what both sides must have
// in common. Each ignored difference has its reason beside it.
var normals = map[string]func(map[string]any) any{
	"openai-chat":      normalChat,
	"openai-responses": normalResponses,
	"anthropic":        normalAnthropic,
}

// normal is a request in terms that all formats share.
type normal struct {
	Model    any
	System   []string
	Messages []any
	Tools    []any
	Settings map[string]any
}

type object = map[string]any

func list(v any) []any {
	all, _ := v.([]any)
	return all
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// parsed decodes JSON in a string, because the SDK and we space and order it differently.
func parsed(v any) any {
	var x any
	if json.Unmarshal([]byte(text(v)), &x) != nil {
		return v
	}
	return x
}

// arguments returns those of a call. We convert an input that is not an object to one. The SDK sends an empty object to
// Chat Completions and the unchanged input to Responses, where it is then not JSON.
func arguments(v any) any {
	in, ok := parsed(v).(object)
	if !ok {
		return object{}
	}
	if _, ok := in["input"]; ok && len(in) == 1 {
		return object{}
	}
	return in
}

// settings returns settings by name; absent ones stay absent. Settings that only one side has do not change the model's
// input. tool_choice is "auto", which is the default. We set store and strict, because the defaults of the Responses
// API differ from those of the SDK. The SDK and we choose different token limits where none was requested.
func settings(r object, names ...string) object {
	s := object{}
	for _, name := range names {
		if v, ok := r[name]; ok {
			s[name] = v
		}
	}
	return s
}

// notEmpty drops empty system messages, which the SDK sends too.
func notEmpty(system []string) []string {
	return slices.DeleteFunc(system, func(s string) bool { return s == "" })
}

// isSystem also accepts the role developer, which the SDK uses for models that it knows
// to reason. The API treats both alike.
func isSystem(role any) bool { return role == "system" || role == "developer" }

// tools reads both forms. A tool without a known schema accepts any object.
func tools(r object) (all []any) {
	for _, v := range list(r["tools"]) {
		t := v.(object)
		if f, ok := t["function"].(object); ok {
			t = f
		}
		schema := t["parameters"]
		if schema == nil {
			schema = t["input_schema"]
		}
		all = append(all, object{"name": t["name"], "description": t["description"], "schema": schema})
	}
	return all
}

func normalChat(r object) any {
	n := normal{Model: r["model"], Tools: tools(r),
		Settings: settings(r, "top_p", "frequency_penalty", "presence_penalty",
			"seed", "stop", "temperature")}
	for _, v := range list(r["messages"]) {
		m := v.(object)
		var calls []any
		for _, c := range list(m["tool_calls"]) {
			f := c.(object)["function"].(object)
			calls = append(calls,
				object{"id": c.(object)["id"], "name": f["name"], "arguments": arguments(f["arguments"])})
		}
		switch {
		case isSystem(m["role"]):
			n.System = append(n.System, text(m["content"]))
		case m["role"] == "tool":
			n.Messages = append(n.Messages, object{"result": m["tool_call_id"], "content": parsed(m["content"])})
		case m["role"] == "assistant" && text(m["content"]) == "" && calls == nil:
			// The SDK sends an answer without text as an empty text; we omit it.
		default:
			if all, ok := m["content"].([]any); ok && len(all) == 0 {
				m["content"] = "" // the SDK sends a question without text as an empty list
			}
			n.Messages = append(n.Messages, object{"role": m["role"], "content": m["content"], "calls": calls})
		}
	}
	n.System = notEmpty(n.System)
	return n
}

func normalResponses(r object) any {
	n := normal{Model: r["model"], Tools: tools(r), Settings: settings(r, "top_p", "temperature", "store")}
	// Our system prompt is in instructions, the SDK's is the first message of the input.
	// The API treats both as the first system message.
	if s := text(r["instructions"]); s != "" {
		n.System = append(n.System, s)
	}
	for _, v := range list(r["input"]) {
		item := v.(object)
		switch item["type"] {
		case "function_call":
			n.Messages = append(n.Messages, object{"call": item["call_id"], "name": item["name"],
				"arguments": arguments(item["arguments"])})
			continue
		case "function_call_output":
			n.Messages = append(n.Messages, object{"result": item["call_id"], "content": parsed(item["output"])})
			continue
		}
		// A message may have a type or not.
		if isSystem(item["role"]) {
			said := text(item["content"])
			for _, c := range list(item["content"]) { // ours is in several pieces
				said += text(c.(object)["text"])
			}
			n.System = append(n.System, said)
			continue
		}
		content := list(item["content"])
		if len(content) == 0 { // a question without text, as the SDK sends it
			content = []any{object{"type": "input_text", "text": ""}}
		}
		// The SDK sends each text of an answer as a message, we send adjacent ones as one.
		if last := len(n.Messages) - 1; last >= 0 && item["role"] == "assistant" {
			if before := n.Messages[last].(object); before["role"] == "assistant" {
				before["content"] = append(list(before["content"]), content...)
				continue
			}
		}
		n.Messages = append(n.Messages, object{"role": item["role"], "content": slices.Clone(content)})
	}
	n.System = notEmpty(n.System)
	return n
}

func normalAnthropic(r object) any {
	n := normal{Model: r["model"], Tools: tools(r), Settings: settings(r, "top_k", "stop_sequences", "temperature")}
	// We send the system prompt as one text, the SDK as blocks. System messages in the middle of a conversation are
	// part of our prompt; the SDK sends them in place, which is a beta of the API.
	if s := text(r["system"]); s != "" {
		n.System = append(n.System, s)
	}
	for _, c := range list(r["system"]) {
		n.System = append(n.System, text(c.(object)["text"]))
	}
	for _, v := range list(r["messages"]) {
		m := v.(object)
		if m["role"] == "system" {
			for _, c := range list(m["content"]) {
				n.System = append(n.System, text(c.(object)["text"]))
			}
			continue
		}
		var content []any
		for _, v := range list(m["content"]) {
			c := v.(object)
			switch c["type"] {
			case "text":
				// The API refuses a text of white space only. It also refuses a
				// conversation that begins with the assistant, so ours has a line before.
				if strings.TrimSpace(text(c["text"])) == "" || text(c["text"]) == "[the conversation begins here]" {
					continue
				}
			case "tool_result":
				c["content"] = parsed(c["content"])
			case "tool_use":
				// The API requires an object; the SDK sends the input unchanged.
				if in, ok := c["input"].(object); !ok {
					c["input"] = object{"input": c["input"]}
				} else {
					c["input"] = in
				}
			}
			content = append(content, c)
		}
		// If a system message or an empty text was between them, ours join.
		if last := len(n.Messages) - 1; last >= 0 && n.Messages[last].(object)["role"] == m["role"] {
			before := n.Messages[last].(object)
			before["content"] = append(before["content"].([]any), content...)
		} else if len(content) > 0 {
			n.Messages = append(n.Messages, object{"role": m["role"], "content": content})
		}
	}
	n.System = []string{strings.Join(notEmpty(n.System), "\n\n")}
	return n
}
