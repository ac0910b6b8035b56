package replay

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/session"
)

// anthropicMessages is Anthropic's Messages.
var anthropicMessages = &Format{
	Name: "anthropic", Title: "Anthropic Messages", KeyEnv: "ANTHROPIC_API_KEY",
	path: "/messages", request: anthropicRequestOf, reply: decodes(modelapi.Anthropic, "content"),
	header:    map[string]string{"Anthropic-Version": "2023-06-01"},
	authorize: func(h http.Header, key string) { h.Set("X-Api-Key", key) },
}

// defaultMaxTokens is asked for where no source reported the limit, for the provider wants one.
const defaultMaxTokens = 8192

// noQuestion is before an answer that the conversation begins with, for the provider wants it to begin with the user.
const noQuestion = "[the conversation begins here]"

func anthropicRequestOf(b *Bundle, since []entry) any {
	p := &b.Parameters
	limit := cmp.Or(session.Deref(p.MaxTokens), defaultMaxTokens)
	var config object
	switch effort := b.effort(); effort {
	case "low", "medium", "high", "xhigh", "max": // the provider's words
		config = object{{"effort", effort}}
	}
	system, messages, last := b.SystemPrompt, []object{}, ""
	add := func(role string, content []object) {
		switch {
		case len(content) == 0:
			return
		case role == last: // roles alternate: outputs of tools and the user's next message are one
			m := messages[len(messages)-1]
			m[1].value = append(m[1].value.([]object), content...)
			return
		case last == "" && role == session.RoleAssistant:
			messages = append(messages, object{
				{"role", session.RoleUser}, {"content", []object{textObject("text", noQuestion)}},
			})
		}
		messages, last = append(messages, object{{"role", role}, {"content", content}}), role
	}
	for _, e := range b.conversation(since) {
		content, results := anthropicContents(&e)
		if e.role == session.RoleSystem {
			if len(content) > 0 {
				system = strings.TrimPrefix(system+"\n\n"+textOf(e.blocks), "\n\n")
			}
			continue
		}
		add(e.role, content)
		add(session.RoleUser, results)
	}
	tools := b.toolsOf(func(t *Tool) object {
		return object{{"name", t.Name}, {"description", t.Description}, {"input_schema", t.schema()}}
	})
	return object{
		{"model", &b.Model.ModelID}, {"max_tokens", &limit}, {"system", system}, {"messages", messages},
		{"tools", tools}, {"temperature", p.Temperature}, {"top_p", p.TopP}, {"top_k", p.TopK},
		{"stop_sequences", p.Stop}, {"output_config", config},
	}
}

func anthropicContents(e *entry) (all, results []object) {
	// Calls stand last, for their results must follow at once; but thinking stays where it was.
	var calls []object
	for i := range e.blocks {
		switch b := &e.blocks[i]; b.kind {
		case textBlock:
			if strings.TrimSpace(b.text) != "" { // the provider takes no empty text
				all = append(all, textObject("text", b.text))
			}
		case reasoningBlock:
			// Thinking without its signature would be refused.
			signature := gjson.GetBytes(b.meta["anthropic"], "signature").String()
			hidden := gjson.GetBytes(b.meta["anthropic"], "redactedData").String()
			if signature != "" || hidden != "" {
				all, calls = append(all, calls...), nil
			}
			switch {
			case signature != "":
				all = append(all, object{{"type", "thinking"}, {"thinking", &b.text}, {"signature", signature}})
			case hidden != "":
				all = append(all, object{{"type", "redacted_thinking"}, {"data", hidden}})
			}
		case fileBlock:
			if e.role != session.RoleAssistant {
				all = append(all, anthropicFile(&b.file))
			}
		case callBlock:
			calls = append(calls, object{
				{"type", "tool_use"}, {"id", anthropicID(b.id)}, {"name", b.name}, {"input", objectOf(b.input)},
			})
			if b.result != nil {
				result := object{
					{"type", "tool_result"}, {"tool_use_id", anthropicID(b.id)}, {"content", new(b.result.String())},
				}
				if b.result.failed {
					result = append(result, member{"is_error", true})
				}
				results = append(results, result)
			}
		}
	}
	return append(all, calls...), results
}

// anthropicID is the id of a call with the characters that the provider takes.
func anthropicID(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, id)
}

func anthropicFile(f *file) object {
	kind, title := "document", f.name
	if f.image() {
		kind, title = "image", ""
	}
	here := f.content != ""
	var source object
	switch text, ok := f.text(); {
	case here && (f.image() || f.pdf()):
		source = object{{"type", "base64"}, {"media_type", f.mediaType}, {"data", f.content}}
	case f.remote() && (f.image() || f.pdf()):
		source = object{{"type", "url"}, {"url", f.url}}
	case ok && strings.TrimSpace(text) != "":
		source = object{{"type", "text"}, {"media_type", "text/plain"}, {"data", text}}
	default:
		return textObject("text", f.placeholder())
	}
	return object{{"type", kind}, {"source", source}, {"title", title}}
}
