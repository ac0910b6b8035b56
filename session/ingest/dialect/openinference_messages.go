package dialect

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// flatMessage is a message of OpenInference, whose members are attributes of their
// own. Members that are empty or "null" are not there.
type flatMessage struct {
	role, content      string
	callID, name       string
	function, argument string
	contents, calls    map[int]map[string]string
}

// flatConversation reads the messages that are below a prefix, which ends in a
// dot, in the order of their numbers.
func flatConversation(a Attrs, prefix string) []fact.Message {
	flat := map[int]*flatMessage{}
	for key := range a.All() {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		n, field, ok := cutIndex(rest)
		if !ok {
			continue
		}
		if field, ok = strings.CutPrefix(field, "message."); !ok {
			continue
		}
		value := a.Str(key)
		if value == "" {
			continue
		}
		if flat[n] == nil {
			flat[n] = new(flatMessage)
		}
		flat[n].set(field, value)
	}
	var messages []fact.Message
	for _, n := range slices.Sorted(maps.Keys(flat)) {
		messages = append(messages, flat[n].message())
	}
	return messages
}

func (m *flatMessage) set(field, value string) {
	switch field {
	case "role":
		m.role = value
		return
	case "content":
		m.content = value
		return
	}
	if value == "null" {
		return
	}
	switch field {
	case "tool_call_id":
		m.callID = value
	case "name":
		m.name = value
	case "function_call_name":
		m.function = value
	case "function_call_arguments_json":
		m.argument = value
	default:
		if rest, ok := strings.CutPrefix(field, "contents."); ok {
			setFlat(&m.contents, rest, "message_content.", value)
		} else if rest, ok := strings.CutPrefix(field, "tool_calls."); ok {
			setFlat(&m.calls, rest, "tool_call.", value)
		}
	}
}

func setFlat(all *map[int]map[string]string, rest, prefix, value string) {
	n, field, ok := cutIndex(rest)
	if field, cut := strings.CutPrefix(field, prefix); ok && cut {
		if *all == nil {
			*all = map[int]map[string]string{}
		}
		if (*all)[n] == nil {
			(*all)[n] = map[string]string{}
		}
		(*all)[n][field] = value
	}
}

func (m *flatMessage) message() fact.Message {
	role := normalRole(m.role)
	if role == "" {
		role = "user"
		if len(m.calls) > 0 || m.function != "" {
			role = "assistant"
		}
	}
	if m.callID != "" && len(m.calls) == 0 {
		role = "tool" // Anthropic's results are in messages of the user
	}
	out := fact.Message{Role: role}
	if role == "tool" {
		p := fact.Part{Kind: fact.PartResult, CallID: m.callID, Name: m.name}
		content := m.content
		for _, n := range slices.Sorted(maps.Keys(m.contents)) {
			if content == "" {
				content = m.contents[n]["text"]
			}
		}
		if content != "" {
			setResult(&p, TextJSON(content), false)
		}
		out.Parts = append(out.Parts, p)
		return out
	}
	for _, n := range slices.Sorted(maps.Keys(m.contents)) {
		out.Parts = appendFlatContent(out.Parts, m.contents[n])
	}
	if len(out.Parts) == 0 && m.content != "" {
		content, _ := json.Marshal(m.content)
		out.Parts = appendBody(out.Parts, content, role)
	}
	for _, n := range slices.Sorted(maps.Keys(m.calls)) {
		call := m.calls[n]
		if id, name := call["id"], call["function.name"]; id != "" || name != "" {
			out.Parts = append(out.Parts, fact.Part{Kind: fact.PartCall, CallID: id, Name: name, Input: flatInput(call["function.arguments"])})
		}
	}
	if m.function != "" {
		out.Parts = append(out.Parts, fact.Part{Kind: fact.PartCall, Name: m.function, Input: flatInput(m.argument)})
	}
	return out
}

// appendFlatContent reads a part of a content. The calls among them are in the
// message's tool_calls as well, where alone they have their arguments.
func appendFlatContent(parts []fact.Part, content map[string]string) []fact.Part {
	url := content["image.image.url"]
	if url == "" {
		url = content["image"]
	}
	if url != "" {
		o := object{"type": json.RawMessage(`"image"`)}
		o["url"], _ = json.Marshal(url)
		raw, _ := json.Marshal(o)
		return appendFile(parts, o, raw)
	}
	switch shapes[content["type"]] {
	case shapeReasoning:
		return appendText(parts, fact.PartReasoning, content["text"])
	case shapeCall, shapeProviderCall, shapeResult:
		return parts
	}
	return appendText(parts, fact.PartText, content["text"])
}

// flatInput reads a call's arguments, which some encode twice.
func flatInput(arguments string) json.RawMessage {
	if arguments == "" {
		return nil
	}
	return unwrapped(TextJSON(arguments))
}

// flatTools returns the tools that a model was offered, as a list of JSON texts.
func flatTools(a Attrs) json.RawMessage {
	tools := map[int]string{}
	for key := range a.All() {
		if rest, ok := strings.CutPrefix(key, "llm.tools."); ok {
			if n, field, ok := cutIndex(rest); ok && field == "tool.json_schema" {
				tools[n] = a.Str(key)
			}
		}
	}
	var list []string
	for _, n := range slices.Sorted(maps.Keys(tools)) {
		list = append(list, tools[n])
	}
	raw, _ := json.Marshal(list)
	return raw
}
