package agentdbg

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// said is a message of a prompt.
type said struct {
	role  string
	parts []rows.Object
}

// text joins the texts of the message.
func (s said) text() string {
	var texts []string
	for _, p := range s.parts {
		if p.Text("type") == "text" {
			texts = append(texts, p.Text("text"))
		}
	}
	return strings.Join(texts, "\n")
}

func (s said) equal(other said) bool {
	same := func(a, b rows.Object) bool { return string(a.JSON()) == string(b.JSON()) }
	return slices.EqualFunc(s.parts, other.parts, same)
}

// readPrompt returns the messages of a prompt: a text, a list of messages in the manner of
// OpenAI or LangChain, bare or as the "messages" of an object, or a list of texts.
// Anything else is one message with the prompt as data.
func readPrompt(prompt json.RawMessage) (all []said) {
	if prompt == nil || string(prompt) == "null" {
		return nil
	}
	if s, ok := rows.Text(prompt); ok {
		return []said{{session.RoleUser, []rows.Object{rows.TextPart("text", s)}}}
	}
	list := prompt
	if o, err := rows.Parse(prompt); err == nil {
		list = o.Get("messages")
	}
	for _, v := range rows.Elements(list) {
		if s, ok := rows.Text(v); ok {
			all = append(all, said{session.RoleUser, []rows.Object{rows.TextPart("text", s)}})
			continue
		}
		o, _ := rows.Parse(v) // what is not an object has no role
		role := roles[cmp.Or(o.Text("role"), o.Text("type"))]
		parts := contentParts(o.Get("content"))
		if s, ok := rows.Text(o.Get("content")); ok {
			parts = []rows.Object{rows.TextPart("text", s)}
		}
		if parts == nil && role == session.RoleUser {
			parts = []rows.Object{rows.DataPart(dataPrompt, rows.OrNull(o.Get("content")))}
		}
		if role != "" && parts != nil {
			all = append(all, said{role, parts})
		}
	}
	if all == nil {
		return []said{{session.RoleUser, []rows.Object{rows.DataPart(dataPrompt, prompt)}}}
	}
	return all
}

// roles are those of OpenAI and the types of LangChain. The message of a tool is left out,
// because its result is an event of its own.
var roles = map[string]string{
	"user": session.RoleUser, "human": session.RoleUser,
	"system": session.RoleSystem, "developer": session.RoleSystem,
	"assistant": session.RoleAssistant, "ai": session.RoleAssistant, "model": session.RoleAssistant,
}

// Types of the parts for a message of a prompt, and for a response, in no known form.
const (
	dataPrompt   = "data-prompt"
	dataResponse = "data-response"
)

// contentParts returns the text, reasoning and file parts of content blocks.
func contentParts(content json.RawMessage) (parts []rows.Object) {
	for _, v := range rows.Elements(content) {
		if s, ok := rows.Text(v); ok {
			parts = append(parts, rows.TextPart("text", s))
			continue
		}
		block, _ := rows.Parse(v) // what is not an object has no type
		switch block.Text("type") {
		case dataPrompt, dataResponse:
			parts = append(parts, rows.DataPart(block.Text("type"), rows.OrNull(block.Get("data"))))
		case "text", "output_text", "input_text":
			parts = append(parts, rows.TextPart("text", block.Text("text")))
		case "reasoning", "thinking":
			parts = append(parts, rows.TextPart("reasoning", cmp.Or(block.Text("text"), block.Text("thinking"))))
		case "file":
			if url := block.Text("url"); url != "" {
				parts = append(parts, rows.Of("type", "file", "mediaType", block.Text("mediaType"), "url", url))
			}
		}
	}
	return parts
}

// responseParts returns the parts of a response. A response in no known form is a data
// part.
func responseParts(response json.RawMessage) []rows.Object {
	if response == nil || string(response) == "null" {
		return nil
	}
	if parts := knownResponse(response, 0); parts != nil {
		return parts
	}
	return []rows.Object{rows.DataPart(dataResponse, response)}
}

func knownResponse(response json.RawMessage, depth int) []rows.Object {
	const maximum = 4 // that choices, message and content nest
	if s, ok := rows.Text(response); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	if parts := contentParts(response); parts != nil || depth == maximum {
		return parts
	}
	var parts []rows.Object
	for _, message := range rows.Elements(response) {
		parts = append(parts, knownResponse(message, depth+1)...)
	}
	o, err := rows.Parse(response)
	if err != nil {
		return parts
	}
	if s := cmp.Or(o.Text("reasoning_content"), o.Text("reasoning"), o.Text("thinking")); s != "" {
		parts = append(parts, rows.TextPart("reasoning", s))
	}
	for _, key := range []string{"content", "text"} {
		if inner := knownResponse(o.Get(key), depth+1); inner != nil {
			return append(parts, inner...)
		}
	}
	inner := o.Get("message")
	if choices := rows.Elements(o.Get("choices")); len(choices) > 0 {
		inner = choices[0]
	}
	if inner != nil {
		parts = append(parts, knownResponse(inner, depth+1)...)
	}
	return parts
}

// overlap returns how many of a prompt's user messages are known: the longest beginning of
// asked that is an end of known. So neither a prompt that repeats the whole history nor
// one that lost its start repeats a message.
func overlap(known, asked []said) int {
	for n := min(len(known), len(asked)); n > 0; n-- {
		if slices.EqualFunc(known[len(known)-n:], asked[:n], said.equal) {
			return n
		}
	}
	return 0
}
