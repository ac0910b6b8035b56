package dialect

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// FlatMessages reads messages that are spread over attributes, as OpenLLMetry
// writes them: prefix.N.role, prefix.N.content, prefix.N.tool_calls.K.name and so
// on. The prefix ends in a dot, and is "gen_ai.prompt." or "gen_ai.completion.";
// messages of the latter are the assistant's where they do not say. finish is the
// last finish reason that is in them.
func FlatMessages(a Attrs, prefix string) (messages []fact.Message, finish string) {
	flat := map[int]object{}
	calls := map[int]map[int]object{}
	for key := range a.All() {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		n, rest, ok := cutIndex(rest)
		if !ok {
			continue
		}
		raw := a.JSON(key)
		if raw == nil {
			continue
		}
		if flat[n] == nil {
			flat[n] = object{}
		}
		if rest, ok := strings.CutPrefix(rest, "tool_calls."); ok {
			if k, field, ok := cutIndex(rest); ok {
				if calls[n] == nil {
					calls[n] = map[int]object{}
				}
				if calls[n][k] == nil {
					calls[n][k] = object{}
				}
				calls[n][k][strings.TrimPrefix(field, "function.")] = raw
			}
			continue
		}
		if field, ok := strings.CutPrefix(rest, "function_call."); ok {
			if calls[n] == nil {
				calls[n] = map[int]object{}
			}
			if calls[n][0] == nil {
				calls[n][0] = object{}
			}
			calls[n][0][field] = raw
			continue
		}
		if rest == "content" {
			raw, _ = json.Marshal(a.Str(key)) // also what happens to be JSON, unless it is parts
		}
		flat[n][rest] = raw
	}
	r := reader{role: "user"}
	if prefix == "gen_ai.completion." {
		r.role = "assistant"
	}
	for _, n := range slices.Sorted(maps.Keys(flat)) {
		o := flat[n]
		if of := calls[n]; of != nil {
			var list []object
			for _, k := range slices.Sorted(maps.Keys(of)) {
				list = append(list, of[k])
			}
			o["tool_calls"], _ = json.Marshal(list)
		}
		messages = append(messages, r.message(o)...)
	}
	return messages, r.finish
}

// cutIndex splits "N.rest".
func cutIndex(s string) (n int, rest string, ok bool) {
	digits, rest, ok := strings.Cut(s, ".")
	if !ok {
		return 0, "", false
	}
	n, err := strconv.Atoi(digits)
	return n, rest, err == nil && n >= 0
}

func sortedKeys(o object) []string { return slices.Sorted(maps.Keys(o)) }
