package modelhttp

import (
	"encoding/json"
	"slices"

	"github.com/agenttrace/agenttrace/agenttrace"
)

func withMember(values map[string]any, name string, value any) map[string]any {
	out := make(map[string]any, len(values)+1)
	for k, v := range values {
		out[k] = v
	}
	out[name] = value
	return out
}

// userItems returns the texts and files of the user after the assistant's last message.
func userItems(messages []message) (out []item) {
	for _, m := range messages {
		if m.role == assistant {
			out = nil
			continue
		}
		for _, i := range m.items {
			if i.kind == textItem || i.kind == fileItem {
				out = append(out, i)
			}
		}
	}
	return out
}

// lastUserText returns the index of the last message in which the user writes, or the first.
func lastUserText(messages []message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].role == user && !slices.ContainsFunc(messages[i].items, func(i item) bool {
			return i.kind == resultItem
		}) {
			return i
		}
	}
	return 0
}

func orObject(input json.RawMessage) json.RawMessage {
	if len(input) == 0 {
		return json.RawMessage("{}")
	}
	return input
}

// addUsage adds the usage of an interrupted answer to that of the rest.
func addUsage(a, b agenttrace.Usage) agenttrace.Usage {
	x, ok := a.(agenttrace.GeminiUsage)
	y, both := b.(agenttrace.GeminiUsage)
	switch {
	case !ok:
		return b
	case !both:
		return a
	}
	return agenttrace.GeminiUsage{
		Prompt: x.Prompt + y.Prompt, Cached: x.Cached + y.Cached, ToolUsePrompt: x.ToolUsePrompt + y.ToolUsePrompt,
		Candidates: x.Candidates + y.Candidates, Thoughts: x.Thoughts + y.Thoughts,
	}
}
