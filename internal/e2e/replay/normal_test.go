//go:build e2e

package replay_test

import (
	"encoding/json"
	"slices"
	"strings"
)

// normals leave of a request what both sides must say alike. Each difference that is
// passed over has its reason beside it.
var normals = map[string]func(map[string]any) any{
	"openai-chat":      normalChat,
	"openai-responses": normalResponses,
	"anthropic":        normalAnthropic,
}

// normal is what a request says in the terms of no format.
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

// parsed is what JSON in a string means: the SDK and we space and order it each in
// our own way.
func parsed(v any) any {
	var x any
	if json.Unmarshal([]byte(text(v)), &x) != nil {
		return v
	}
	return x
}

// arguments are those of a call. Of an input that is no object we make one; the SDK
// leaves an empty one to Chat Completions, and what there is to Responses, which is
// then no JSON.
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

// settings picks settings by name; those that are absent stay away. Of the settings
// that only one side has, none changes what the model is told: tool_choice is "auto",
// which is the default; store and strict are given by us, because the default of the
// Responses API is another than that of the SDK's own; a limit of tokens that nobody
// asked for is the SDK's own guess by model, and ours another.
func settings(r object, names ...string) object {
	s := object{}
	for _, name := range names {
		if v, ok := r[name]; ok {
			s[name] = v
		}
	}
	return s
}

// told leaves out what the system says without a word, which the SDK sends too.
func told(system []string) []string {
	return slices.DeleteFunc(system, func(s string) bool { return s == "" })
}

// isSystem: the SDK calls the role developer for models that it knows to reason. The
// API takes system for the same.
func isSystem(role any) bool { return role == "system" || role == "developer" }

// tools are those of both spellings. A tool whose schema is not known takes any
// object.
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
	n := normal{Model: r["model"], Tools: tools(r), Settings: settings(r, "top_p", "frequency_penalty", "presence_penalty", "seed", "stop", "temperature")}
	for _, v := range list(r["messages"]) {
		m := v.(object)
		var calls []any
		for _, c := range list(m["tool_calls"]) {
			f := c.(object)["function"].(object)
			calls = append(calls, object{"id": c.(object)["id"], "name": f["name"], "arguments": arguments(f["arguments"])})
		}
		switch {
		case isSystem(m["role"]):
			n.System = append(n.System, text(m["content"]))
		case m["role"] == "tool":
			n.Messages = append(n.Messages, object{"result": m["tool_call_id"], "content": parsed(m["content"])})
		case m["role"] == "assistant" && text(m["content"]) == "" && calls == nil:
			// The SDK sends an answer without a word as an empty text; we leave it out.
		default:
			if all, ok := m["content"].([]any); ok && len(all) == 0 {
				m["content"] = "" // a question without a word is an empty list to the SDK
			}
			n.Messages = append(n.Messages, object{"role": m["role"], "content": m["content"], "calls": calls})
		}
	}
	n.System = told(n.System)
	return n
}

func normalResponses(r object) any {
	n := normal{Model: r["model"], Tools: tools(r), Settings: settings(r, "top_p", "temperature", "store")}
	// Our system prompt stands in instructions, that of the SDK first in the input. To
	// the API both are the first message of the system.
	if s := text(r["instructions"]); s != "" {
		n.System = append(n.System, s)
	}
	for _, v := range list(r["input"]) {
		item := v.(object)
		switch item["type"] {
		case "function_call":
			n.Messages = append(n.Messages, object{"call": item["call_id"], "name": item["name"], "arguments": arguments(item["arguments"])})
			continue
		case "function_call_output":
			n.Messages = append(n.Messages, object{"result": item["call_id"], "content": parsed(item["output"])})
			continue
		}
		// A message is one with or without its type.
		if isSystem(item["role"]) {
			said := text(item["content"])
			for _, c := range list(item["content"]) { // ours is in pieces
				said += text(c.(object)["text"])
			}
			n.System = append(n.System, said)
			continue
		}
		content := list(item["content"])
		if len(content) == 0 { // a question without a word, as the SDK has it
			content = []any{object{"type": "input_text", "text": ""}}
		}
		// The SDK makes a message of each text of an answer, we one of those that stand
		// together.
		if last := len(n.Messages) - 1; last >= 0 && item["role"] == "assistant" {
			if before := n.Messages[last].(object); before["role"] == "assistant" {
				before["content"] = append(list(before["content"]), content...)
				continue
			}
		}
		n.Messages = append(n.Messages, object{"role": item["role"], "content": slices.Clone(content)})
	}
	n.System = told(n.System)
	return n
}

func normalAnthropic(r object) any {
	n := normal{Model: r["model"], Tools: tools(r), Settings: settings(r, "top_k", "stop_sequences", "temperature")}
	// We give the system prompt as one text, the SDK as blocks; and system messages in
	// the midst of a conversation, which the SDK sends where they are as a beta of the
	// API, are part of ours.
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
				// The API refuses a text of blanks. It refuses a conversation that begins
				// with the assistant too, which is why ours has a line before.
				if strings.TrimSpace(text(c["text"])) == "" || text(c["text"]) == "[the conversation begins here]" {
					continue
				}
			case "tool_result":
				c["content"] = parsed(c["content"])
			case "tool_use":
				// The API wants an object, and the SDK sends what there is.
				if in, ok := c["input"].(object); !ok {
					c["input"] = object{"input": c["input"]}
				} else {
					c["input"] = in
				}
			}
			content = append(content, c)
		}
		// Where a system message or an empty text stood between, ours join.
		if last := len(n.Messages) - 1; last >= 0 && n.Messages[last].(object)["role"] == m["role"] {
			before := n.Messages[last].(object)
			before["content"] = append(before["content"].([]any), content...)
		} else if len(content) > 0 {
			n.Messages = append(n.Messages, object{"role": m["role"], "content": content})
		}
	}
	n.System = []string{strings.Join(told(n.System), "\n\n")}
	return n
}
