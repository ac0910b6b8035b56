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

type chatRequest struct {
	Model               string          `json:"model"`
	Messages            []chatMessage   `json:"messages"`
	Tools               []chatTool      `json:"tools,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	TopP                *float64        `json:"top_p,omitempty"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens,omitempty"`
	FrequencyPenalty    *float64        `json:"frequency_penalty,omitempty"`
	PresencePenalty     *float64        `json:"presence_penalty,omitempty"`
	Seed                *int64          `json:"seed,omitempty"`
	Stop                json.RawMessage `json:"stop,omitempty"`
	ReasoningEffort     string          `json:"reasoning_effort,omitempty"`
}

type chatMessage struct {
	Role string `json:"role"`
	// Content is a string, a list of chatContent, or, where a model only called
	// tools, null.
	Content    any        `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatContent struct {
	Type     string            `json:"type"`
	Text     *string           `json:"text,omitempty"`
	ImageURL map[string]string `json:"image_url,omitempty"`
	File     *chatFile         `json:"file,omitempty"`
	Audio    map[string]string `json:"input_audio,omitempty"`
}

type chatFile struct {
	Filename string `json:"filename"`
	FileData string `json:"file_data"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name string `json:"name"`
	// Arguments is the JSON of the input, in a string.
	Arguments string `json:"arguments"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatToolSpec `json:"function"`
}

type chatToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

func chatRequestOf(b *Bundle, since []entry) any {
	p := &b.Parameters
	r := chatRequest{
		Model: b.Model.ModelID, Messages: []chatMessage{}, Temperature: p.Temperature, TopP: p.TopP,
		MaxCompletionTokens: p.MaxTokens,
		FrequencyPenalty:    p.FrequencyPenalty, PresencePenalty: p.PresencePenalty, Seed: p.Seed, Stop: p.Stop,
		ReasoningEffort: b.effort(),
	}
	if b.SystemPrompt != "" {
		r.Messages = append(r.Messages, chatMessage{Role: "system", Content: b.SystemPrompt})
	}
	for _, e := range b.conversation(since) {
		r.Messages = append(r.Messages, chatMessages(&e)...)
	}
	for i := range b.Tools {
		t := &b.Tools[i]
		r.Tools = append(r.Tools, chatTool{"function", chatToolSpec{t.Name, t.Description, t.schema()}})
	}
	return r
}

func chatMessages(e *entry) []chatMessage {
	switch e.role {
	case roleTool:
		var all []chatMessage
		for i := range e.blocks {
			all = append(all, chatMessage{Role: "tool", ToolCallID: e.blocks[i].id, Content: e.blocks[i].outcome()})
		}
		return all
	case session.RoleAssistant:
		m := chatMessage{Role: "assistant"}
		if text := textOf(e.blocks); text != "" {
			m.Content = text
		}
		for i := range e.blocks {
			if c := &e.blocks[i]; c.kind == callBlock {
				m.ToolCalls = append(m.ToolCalls, chatCall{c.id, "function",
					chatFunction{c.name, plainText(c.inputOf())}})
			}
		}
		if m.Content == nil && m.ToolCalls == nil {
			return nil // reasoning alone, which is not sent back
		}
		return []chatMessage{m}
	case session.RoleSystem:
		if text := textOf(e.blocks); text != "" {
			return []chatMessage{{Role: e.role, Content: text}}
		}
		return nil
	}
	var content []chatContent
	for i := range e.blocks {
		if c := chatContentOf(&e.blocks[i]); c != nil {
			content = append(content, *c)
		}
	}
	switch {
	case len(content) == 0:
		return nil
	case len(content) == 1 && content[0].Text != nil:
		return []chatMessage{{Role: e.role, Content: *content[0].Text}}
	}
	return []chatMessage{{Role: e.role, Content: content}}
}

func chatContentOf(b *block) *chatContent {
	switch b.kind {
	case textBlock:
		return &chatContent{Type: "text", Text: &b.text}
	case fileBlock:
	default:
		return nil
	}
	f := &b.file
	here := f.content != ""
	switch {
	case f.image() && (here || f.remote()):
		return &chatContent{Type: "image_url", ImageURL: map[string]string{"url": f.url}}
	case here && (f.mediaType == "audio/wav" || f.mediaType == "audio/x-wav"):
		return &chatContent{Type: "input_audio", Audio: map[string]string{"data": f.content, "format": "wav"}}
	case here && (f.mediaType == "audio/mpeg" || f.mediaType == "audio/mp3"):
		return &chatContent{Type: "input_audio", Audio: map[string]string{"data": f.content, "format": "mp3"}}
	case here && f.pdf():
		return &chatContent{Type: "file", File: &chatFile{f.filename(), f.url}}
	}
	// The provider takes no other files; it reports to send what is text as text.
	if text, ok := f.text(); ok {
		return &chatContent{Type: "text", Text: &text}
	}
	return &chatContent{Type: "text", Text: new(f.placeholder())}
}
