package replay

import (
	"encoding/json"

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

type responsesRequest struct {
	Model           string            `json:"model"`
	Instructions    string            `json:"instructions,omitempty"`
	Input           []responsesItem   `json:"input"`
	Tools           []responsesTool   `json:"tools,omitempty"`
	Temperature     *float64          `json:"temperature,omitempty"`
	TopP            *float64          `json:"top_p,omitempty"`
	MaxOutputTokens *int64            `json:"max_output_tokens,omitempty"`
	Reasoning       map[string]string `json:"reasoning,omitempty"`
	Store           bool              `json:"store"`
}

// responsesItem is a message, a call, or the output of a call.
type responsesItem struct {
	Type      string             `json:"type"`
	Role      string             `json:"role,omitempty"`
	Content   []responsesContent `json:"content,omitempty"`
	CallID    string             `json:"call_id,omitempty"`
	Name      string             `json:"name,omitempty"`
	Arguments *string            `json:"arguments,omitempty"`
	Output    *string            `json:"output,omitempty"`
}

type responsesContent struct {
	Type     string  `json:"type"`
	Text     *string `json:"text,omitempty"`
	ImageURL string  `json:"image_url,omitempty"`
	Filename string  `json:"filename,omitempty"`
	FileData string  `json:"file_data,omitempty"`
	FileURL  string  `json:"file_url,omitempty"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	// Strict would be true by default, and refuse most schemas.
	Strict bool `json:"strict"`
}

func responsesRequestOf(b *Bundle, since []entry) any {
	p := &b.Parameters
	r := responsesRequest{
		Model: b.Model.ModelID, Instructions: b.SystemPrompt, Input: []responsesItem{},
		Temperature: p.Temperature, TopP: p.TopP, MaxOutputTokens: p.MaxTokens,
	}
	if effort := b.effort(); effort != "" {
		r.Reasoning = map[string]string{"effort": effort}
	}
	for _, e := range b.conversation(since) {
		r.Input = append(r.Input, responsesItems(&e)...)
	}
	for i := range b.Tools {
		t := &b.Tools[i]
		r.Tools = append(r.Tools, responsesTool{Type: "function", Name: t.Name, Description: t.Description,
			Parameters: t.schema()})
	}
	return r
}

func responsesItems(e *entry) []responsesItem {
	var all []responsesItem
	message := responsesItem{Type: "message", Role: e.role}
	kind := "input_text"
	if e.role == session.RoleAssistant {
		kind = "output_text"
	}
	flush := func() {
		if len(message.Content) > 0 {
			all = append(all, message)
			message.Content = nil
		}
	}
	for i := range e.blocks {
		switch b := &e.blocks[i]; b.kind {
		case textBlock:
			message.Content = append(message.Content, responsesContent{Type: kind, Text: &b.text})
		case fileBlock:
			if e.role != session.RoleAssistant {
				message.Content = append(message.Content, responsesFile(&b.file))
			}
		case callBlock:
			flush()
			all = append(all, responsesItem{Type: "function_call", CallID: b.id, Name: b.name,
				Arguments: new(plainText(b.inputOf()))})
		case resultBlock:
			all = append(all, responsesItem{Type: "function_call_output", CallID: b.id, Output: new(b.outcome())})
		}
	}
	flush()
	return all
}

func responsesFile(f *file) responsesContent {
	here := f.content != ""
	switch {
	case f.image() && (here || f.remote()):
		return responsesContent{Type: "input_image", ImageURL: f.url}
	case f.recording(): // which the provider takes as no file
	case here:
		return responsesContent{Type: "input_file", Filename: f.filename(), FileData: f.url}
	case f.remote():
		return responsesContent{Type: "input_file", FileURL: f.url}
	}
	return responsesContent{Type: "input_text", Text: new(f.placeholder())}
}
