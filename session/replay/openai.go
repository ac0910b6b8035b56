package replay

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/session"
)

// openAIChat is OpenAI's Chat Completions, which many servers speak.
var openAIChat = &Format{
	Name: "openai-chat", Title: "OpenAI Chat Completions, and servers that speak it", KeyEnv: "OPENAI_API_KEY",
	path: "/chat/completions", request: chatRequestOf, reply: decodes(modelapi.Chat, "choices"), authorize: bearer,
}

func chatRequestOf(b *Bundle, since []entry) any {
	p := &b.Parameters
	messages := []object{}
	if b.SystemPrompt != "" {
		messages = append(messages, object{{"role", "system"}, {"content", b.SystemPrompt}})
	}
	for _, e := range b.conversation(since) {
		messages = append(messages, chatMessages(&e)...)
	}
	tools := b.toolsOf(func(t *Tool) object {
		return object{{"type", "function"}, {"function", object{
			{"name", t.Name}, {"description", t.Description}, {"parameters", t.schema()},
		}}}
	})
	return object{
		{"model", &b.Model.ModelID}, {"messages", messages}, {"tools", tools}, {"temperature", p.Temperature},
		{"top_p", p.TopP}, {"max_completion_tokens", p.MaxTokens}, {"frequency_penalty", p.FrequencyPenalty},
		{"presence_penalty", p.PresencePenalty}, {"seed", p.Seed}, {"stop", p.Stop}, {"reasoning_effort", b.effort()},
	}
}

func chatMessages(e *entry) []object {
	switch e.role {
	case session.RoleAssistant:
		content := any(json.RawMessage("null")) // where a model only called tools
		text := textOf(e.blocks)
		if text != "" {
			content = text
		}
		var calls, results []object
		for c := range callsOf([]entry{*e}) {
			// The arguments are the JSON of the input, in a string.
			calls = append(calls, object{{"id", c.id}, {"type", "function"}, {"function", object{
				{"name", c.name}, {"arguments", plainText(objectOf(c.input))},
			}}})
			if c.result != nil {
				results = append(results, object{
					{"role", "tool"}, {"content", new(c.result.String())}, {"tool_call_id", c.id},
				})
			}
		}
		if text == "" && calls == nil {
			return nil // reasoning alone, which is not sent back
		}
		return append([]object{{{"role", "assistant"}, {"content", content}, {"tool_calls", calls}}}, results...)
	case session.RoleSystem:
		if text := textOf(e.blocks); text != "" {
			return []object{{{"role", e.role}, {"content", text}}}
		}
		return nil
	}
	var content []object
	for i := range e.blocks {
		switch b := &e.blocks[i]; b.kind {
		case textBlock:
			content = append(content, textObject("text", b.text))
		case fileBlock:
			content = append(content, chatFile(&b.file))
		}
	}
	if len(content) == 0 {
		return nil
	}
	if last := content[0][1]; len(content) == 1 && last.name == "text" {
		return []object{{{"role", e.role}, {"content", last.value}}}
	}
	return []object{{{"role", e.role}, {"content", content}}}
}

func chatFile(f *file) object {
	here := f.content != ""
	format := map[string]string{
		"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3",
	}[f.mediaType]
	switch {
	case f.image() && (here || f.remote()):
		return object{{"type", "image_url"}, {"image_url", object{{"url", f.url}}}}
	case here && format != "":
		return object{{"type", "input_audio"}, {"input_audio", object{{"data", f.content}, {"format", format}}}}
	case here && f.pdf():
		return object{{"type", "file"}, {"file", object{{"filename", f.filename()}, {"file_data", f.url}}}}
	}
	// The provider takes no other files; it reports to send what is text as text.
	if text, ok := f.text(); ok {
		return textObject("text", text)
	}
	return textObject("text", f.placeholder())
}

// openAIResponses is OpenAI's Responses. Nothing is left with the provider: the request holds the whole conversation.
var openAIResponses = &Format{
	Name: "openai-responses", Title: "OpenAI Responses", KeyEnv: "OPENAI_API_KEY",
	path: "/responses", request: responsesRequestOf, reply: decodes(modelapi.Responses, "output"),
	authorize: bearer,
}

func responsesRequestOf(b *Bundle, since []entry) any {
	p := &b.Parameters
	var reasoning object
	if effort := b.effort(); effort != "" {
		reasoning = object{{"effort", effort}}
	}
	input := []object{}
	for _, e := range b.conversation(since) {
		input = append(input, responsesItems(&e)...)
	}
	// Strict would be true by default, and refuse most schemas.
	tools := b.toolsOf(func(t *Tool) object {
		return object{
			{"type", "function"}, {"name", t.Name}, {"description", t.Description}, {"parameters", t.schema()},
			{"strict", false},
		}
	})
	return object{
		{"model", &b.Model.ModelID}, {"instructions", b.SystemPrompt}, {"input", input}, {"tools", tools},
		{"temperature", p.Temperature}, {"top_p", p.TopP}, {"max_output_tokens", p.MaxTokens},
		{"reasoning", reasoning}, {"store", false},
	}
}

// responsesItems are messages, calls, and the outputs of calls.
func responsesItems(e *entry) (all []object) {
	var content, outputs []object
	kind := "input_text"
	if e.role == session.RoleAssistant {
		kind = "output_text"
	}
	flush := func() {
		if len(content) > 0 {
			all = append(all, object{{"type", "message"}, {"role", e.role}, {"content", content}})
			content = nil
		}
	}
	for i := range e.blocks {
		switch b := &e.blocks[i]; b.kind {
		case textBlock:
			content = append(content, textObject(kind, b.text))
		case fileBlock:
			if e.role != session.RoleAssistant {
				content = append(content, responsesFile(&b.file))
			}
		case callBlock:
			flush()
			all = append(all, object{
				{"type", "function_call"}, {"call_id", b.id}, {"name", b.name},
				{"arguments", plainText(objectOf(b.input))},
			})
			if b.result != nil {
				outputs = append(outputs, object{
					{"type", "function_call_output"}, {"call_id", b.id}, {"output", new(b.result.String())},
				})
			}
		}
	}
	flush()
	return append(all, outputs...)
}

func responsesFile(f *file) object {
	here := f.content != ""
	switch {
	case f.image() && (here || f.remote()):
		return object{{"type", "input_image"}, {"image_url", f.url}}
	case f.recording(): // which the provider takes as no file
	case here:
		return object{{"type", "input_file"}, {"filename", f.filename()}, {"file_data", f.url}}
	case f.remote():
		return object{{"type", "input_file"}, {"file_url", f.url}}
	}
	return textObject("input_text", f.placeholder())
}
