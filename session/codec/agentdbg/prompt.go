package agentdbg

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// said is one thing that a prompt says.
type said struct {
	role string
	text string
	// opaque is what is said when it is no text.
	opaque json.RawMessage
}

func (s said) part() rows.Object {
	if s.opaque != nil {
		return dataPart("data-prompt", s.opaque)
	}
	return textPart("text", s.text)
}

// readPrompt takes a prompt apart: a text, a list of messages in the manner of
// OpenAI or LangChain, bare or as the "messages" of an object, or a list of
// texts. whole says that the prompt is the one thing said.
func readPrompt(prompt json.RawMessage) (all []said, whole bool) {
	if prompt == nil || string(prompt) == "null" {
		return nil, false
	}
	if s, ok := rows.Text(prompt); ok {
		return []said{{session.RoleUser, s, nil}}, true
	}
	list := prompt
	if o, err := rows.Parse(prompt); err == nil {
		list = o.Get("messages")
	}
	for _, v := range rows.Elements(list) {
		if s, ok := rows.Text(v); ok {
			all = append(all, said{session.RoleUser, s, nil})
			continue
		}
		o, err := rows.Parse(v)
		if err != nil {
			continue
		}
		role := o.Text("role")
		if role == "" {
			role = o.Text("type")
		}
		if role = canonicalRole(role); role != "" {
			if text, ok := contentText(o.Get("content")); ok {
				all = append(all, said{role, text, nil})
			} else if role == session.RoleUser {
				all = append(all, said{role, "", orNull(o.Get("content"))})
			}
		}
	}
	if all == nil {
		return []said{{session.RoleUser, "", prompt}}, true
	}
	return all, false
}

// canonicalRole translates the roles of OpenAI and the types of LangChain. What a
// tool said is on record as its result.
func canonicalRole(role string) string {
	switch role {
	case "user", "human":
		return session.RoleUser
	case "system", "developer":
		return session.RoleSystem
	case "assistant", "ai", "model":
		return session.RoleAssistant
	}
	return ""
}

// contentText returns the text of a message's content, a string or blocks of
// which some are texts.
func contentText(content json.RawMessage) (string, bool) {
	if s, ok := rows.Text(content); ok {
		return s, true
	}
	var texts []string
	for _, p := range contentParts(content) {
		if p.Text("type") == "text" {
			texts = append(texts, p.Text("text"))
		}
	}
	return strings.Join(texts, "\n"), texts != nil
}

// contentParts returns the text and reasoning parts that content blocks are.
func contentParts(content json.RawMessage) (parts []rows.Object) {
	for _, v := range rows.Elements(content) {
		if s, ok := rows.Text(v); ok {
			parts = append(parts, textPart("text", s))
			continue
		}
		block, err := rows.Parse(v)
		if err != nil {
			continue
		}
		switch block.Text("type") {
		case "text", "output_text", "input_text":
			parts = append(parts, textPart("text", block.Text("text")))
		case "reasoning", "thinking":
			text := block.Text("text")
			if text == "" {
				text = block.Text("thinking")
			}
			parts = append(parts, textPart("reasoning", text))
		case "file":
			if url, mediaType := block.Text("url"), block.Text("mediaType"); url != "" {
				var file rows.Object
				file.Set("type", "file")
				file.Set("mediaType", mediaType)
				file.Set("url", url)
				parts = append(parts, file)
			}
		}
	}
	return parts
}

// responseParts returns the parts that a response is. Of a response that is in
// no known form, the whole is a data part.
func responseParts(response json.RawMessage) []rows.Object {
	if response == nil || string(response) == "null" {
		return nil
	}
	if parts := knownResponse(response, 0); parts != nil {
		return parts
	}
	return []rows.Object{dataPart("data-response", response)}
}

func knownResponse(response json.RawMessage, depth int) []rows.Object {
	const maximum = 4 // that choices, message and content nest
	if s, ok := rows.Text(response); ok {
		return []rows.Object{textPart("text", s)}
	}
	if parts := contentParts(response); parts != nil || depth == maximum {
		return parts
	}
	o, err := rows.Parse(response)
	if err != nil {
		return nil
	}
	var parts []rows.Object
	for _, key := range []string{"reasoning_content", "reasoning", "thinking"} {
		if s := o.Text(key); s != "" {
			parts = append(parts, textPart("reasoning", s))
			break
		}
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

// overlap returns how many of what a prompt says as the user was said before: the
// longest beginning of asked that is an end of known. So neither a prompt that
// repeats the whole history nor one that lost its start says anything twice.
func overlap(known, asked []said) int {
	equal := func(a, b said) bool { return a.text == b.text && string(a.opaque) == string(b.opaque) }
	for n := min(len(known), len(asked)); n > 0; n-- {
		if slices.EqualFunc(known[len(known)-n:], asked[:n], equal) {
			return n
		}
	}
	return 0
}
