package dialect

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// nested is a value that was spread over attributes: members are of type nested or [json.RawMessage].
type nested map[string]any

// MarshalJSON writes an array of the members whose names are numbers, if there are any.
func (n nested) MarshalJSON() ([]byte, error) {
	byNumber := map[int]any{}
	for name, value := range n {
		if i, err := strconv.Atoi(name); err == nil && i >= 0 {
			byNumber[i] = value
		}
	}
	if len(byNumber) == 0 {
		return json.Marshal(map[string]any(n))
	}
	list := make([]any, 0, len(byNumber))
	for _, i := range slices.Sorted(maps.Keys(byNumber)) {
		list = append(list, byNumber[i])
	}
	return json.Marshal(list)
}

// unflatten returns the objects that are spread over attributes, with the path to each member in the key:
// prefix.N.tool_calls.K.name. leaf returns what such an attribute, whose field is what follows N, is in the object, or
// nil.
func unflatten(a Attrs, prefix string, leaf func(field string, v pcommon.Value) json.RawMessage) []object {
	all := nested{}
	for key, v := range a.All() {
		path, ok := strings.CutPrefix(key, prefix)
		n, field, numbered := strings.Cut(path, ".")
		if _, err := strconv.ParseUint(n, 10, 31); !ok || !numbered || err != nil {
			continue
		}
		raw := leaf(field, v)
		for in := all; raw != nil; {
			name, rest, more := strings.Cut(path, ".")
			below, is := in[name].(nested)
			if !more {
				if in[name] == nil {
					in[name] = raw
				}
				break
			}
			if !is {
				below = nested{}
				in[name] = below
			}
			in, path = below, rest
		}
	}
	raw, _ := json.Marshal(all)
	return objectsOf(raw)
}

// FlatMessages reads messages that are spread over attributes, as OpenLLMetry writes them: prefix.N.role,
// prefix.N.content, prefix.N.tool_calls.K.name and so on. The prefix ends in a dot, and is "gen_ai.prompt." or
// "gen_ai.completion."; messages of the latter are by default the assistant's. finish is the last finish reason that is
// in them.
func FlatMessages(a Attrs, prefix string) (messages []fact.Message, finish string) {
	r := reader{role: "user"}
	if prefix == "gen_ai.completion." {
		r.role = "assistant"
	}
	for _, o := range unflatten(a, prefix, func(field string, v pcommon.Value) json.RawMessage {
		if field == "content" && v.Type() != pcommon.ValueTypeEmpty {
			return quoted(Text(v.AsString())) // also what happens to be JSON, unless it is parts
		}
		return valueJSON(v)
	}) {
		if r.isAlternative(o) {
			continue
		}
		messages = append(messages, r.message(o)...)
	}
	return messages, r.finish
}

// flatConversation reads the messages of OpenInference that are below a prefix, which ends in a dot. Their members are
// objects with one member each, "tool_call" for example, whose values are texts. Those that are empty or "null" are not
// there.
func flatConversation(a Attrs, prefix string) (messages []fact.Message) {
	r := reader{role: "user"}
	for _, in := range unflatten(a, prefix, func(field string, v pcommon.Value) json.RawMessage {
		switch s := Text(v.AsString()); {
		case s == "", s == "null" && field != "message.role" && field != "message.content":
			return nil
		case strings.HasSuffix(field, "arguments"), strings.HasSuffix(field, "arguments_json"):
			return TextJSON(s) // some encode them twice
		default:
			return quoted(s)
		}
	}) {
		o := in.inner("message")
		if o == nil {
			continue
		}
		delete(o, "id")
		var calls, parts []object
		for _, call := range objectsOf(o["tool_calls"]) {
			if call = call.inner("tool_call"); call.has("id") || call.inner("function").has("name") {
				calls = append(calls, call)
			}
		}
		content := o.str("content") // of a tool
		for _, c := range objectsOf(o["contents"]) {
			if part := flatPart(c.inner("message_content")); part != nil {
				parts = append(parts, part)
				content = cmp.Or(content, part.str("text"))
			}
		}
		if o.has("tool_call_id") && calls == nil {
			o["role"] = quoted("tool") // Anthropic's results are in messages of the user
		}
		switch isTool := normalRole(o.str("role")) == "tool"; {
		case isTool && content != "":
			o["content"] = TextJSON(content)
		case isTool:
			delete(o, "content")
		case parts != nil:
			o["content"], _ = json.Marshal(parts)
		}
		o["tool_calls"], _ = json.Marshal(calls)
		if name := o.str("function_call_name"); name != "" {
			o["function_call"] = encode(object{"name": quoted(name), "arguments": o["function_call_arguments_json"]})
		}
		messages = append(messages, r.message(o)...)
	}
	return messages
}

// flatPart returns a part of a content, nil for none. The calls among them are in the message's tool_calls as well,
// where alone they have their arguments.
func flatPart(content object) object {
	for _, kind := range []string{"image", "audio", "video"} {
		file := content.inner(kind).inner(kind)
		if url := cmp.Or(file.str("url"), content.str(kind)); url != "" {
			return object{"type": quoted(kind), "url": quoted(url), "mime_type": file["mime_type"]}
		}
	}
	kind := shapes()[content.str("type")]
	if !content.has("text") || slices.Contains([]string{"call", "provider_call", "result"}, kind) {
		return nil
	}
	if kind != "reasoning" {
		kind = "text"
	}
	return object{"type": quoted(kind), "text": content["text"]}
}

// flatCatalog returns the tools that a model was offered: those of OpenInference, which are JSON texts, or of
// OpenLLMetry.
func flatCatalog(a Attrs) string {
	var tools []json.RawMessage
	asText := func(_ string, v pcommon.Value) json.RawMessage { return quoted(Text(v.AsString())) }
	for _, o := range unflatten(a, "llm.tools.", asText) {
		tools = append(tools, o.inner("tool")["json_schema"])
	}
	asJSON := func(_ string, v pcommon.Value) json.RawMessage { return valueJSON(v) }
	for _, o := range unflatten(a, "llm.request.functions.", asJSON) {
		if o.has("name") {
			tools = append(tools, encode(o))
		}
	}
	raw, _ := json.Marshal(tools)
	return Catalog(raw)
}
