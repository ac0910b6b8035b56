package replay

import (
	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/session"
)

// openAIResponses is OpenAI's Responses. Nothing is left with the provider: the
// request holds the whole conversation.
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
	var content []object
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
				{"type", "function_call"}, {"call_id", b.id}, {"name", b.name}, {"arguments", plainText(b.inputOf())},
			})
		case resultBlock:
			all = append(all, object{
				{"type", "function_call_output"}, {"call_id", b.id}, {"output", new(b.outcome())},
			})
		}
	}
	flush()
	return all
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
