package replay

import (
	"encoding/json"
	"net/http"
	"strings"

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

// defaultMaxTokens is asked for where no source reported the limit, for the provider
// wants one.
const defaultMaxTokens = 8192

// noQuestion is before an answer that the conversation begins with, for the
// provider wants it to begin with the user.
const noQuestion = "[the conversation begins here]"

type anthropicRequest struct {
	Model         string             `json:"model"`
	MaxTokens     int64              `json:"max_tokens"`
	System        string             `json:"system,omitempty"`
	Messages      []anthropicMessage `json:"messages"`
	Tools         []anthropicTool    `json:"tools,omitempty"`
	Temperature   *float64           `json:"temperature,omitempty"`
	TopP          *float64           `json:"top_p,omitempty"`
	TopK          *float64           `json:"top_k,omitempty"`
	StopSequences json.RawMessage    `json:"stop_sequences,omitempty"`
	OutputConfig  map[string]string  `json:"output_config,omitempty"`
}

type anthropicMessage struct {
	Role    string             `json:"role"`
	Content []anthropicContent `json:"content"`
}

type anthropicContent struct {
	Type string  `json:"type"`
	Text *string `json:"text,omitempty"`

	Thinking  *string `json:"thinking,omitempty"`
	Signature string  `json:"signature,omitempty"`
	Data      string  `json:"data,omitempty"` // of thinking that the provider hides

	Source *anthropicSource `json:"source,omitempty"`
	Title  string           `json:"title,omitempty"`

	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`

	ToolUseID string  `json:"tool_use_id,omitempty"`
	Content   *string `json:"content,omitempty"`
	IsError   bool    `json:"is_error,omitempty"`
}

type anthropicSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

func anthropicRequestOf(b *Bundle, since []entry) any {
	p := &b.Parameters
	r := anthropicRequest{
		Model: b.Model.ModelID, MaxTokens: defaultMaxTokens, System: b.SystemPrompt, Messages: []anthropicMessage{},
		Temperature: p.Temperature, TopP: p.TopP, TopK: p.TopK, StopSequences: p.Stop,
	}
	if p.MaxTokens != nil {
		r.MaxTokens = *p.MaxTokens
	}
	switch effort := b.effort(); effort {
	case "low", "medium", "high", "xhigh", "max": // the provider's words
		r.OutputConfig = map[string]string{"effort": effort}
	}
	for _, e := range b.conversation(since) {
		content := anthropicContents(&e)
		if len(content) == 0 {
			continue
		}
		if e.role == session.RoleSystem {
			if r.System != "" {
				r.System += "\n\n"
			}
			r.System += textOf(e.blocks)
			continue
		}
		role := e.role
		if role == roleTool {
			role = session.RoleUser
		}
		// Roles alternate: outputs of tools and the user's next message are one.
		if last := len(r.Messages) - 1; last >= 0 && r.Messages[last].Role == role {
			r.Messages[last].Content = append(r.Messages[last].Content, content...)
			continue
		}
		if len(r.Messages) == 0 && role == session.RoleAssistant {
			r.Messages = append(r.Messages, anthropicMessage{session.RoleUser,
				[]anthropicContent{{Type: "text", Text: new(noQuestion)}}})
		}
		r.Messages = append(r.Messages, anthropicMessage{role, content})
	}
	for i := range b.Tools {
		t := &b.Tools[i]
		r.Tools = append(r.Tools, anthropicTool{t.Name, t.Description, t.schema()})
	}
	return r
}

func anthropicContents(e *entry) []anthropicContent {
	// Calls stand last, for their results must follow at once; but thinking stays
	// where it was.
	var all, calls []anthropicContent
	for i := range e.blocks {
		switch b := &e.blocks[i]; b.kind {
		case textBlock:
			if strings.TrimSpace(b.text) != "" { // the provider takes no empty text
				all = append(all, anthropicContent{Type: "text", Text: &b.text})
			}
		case reasoningBlock:
			// Thinking without its signature would be refused.
			var meta struct {
				Signature    string `json:"signature"`
				RedactedData string `json:"redactedData"`
			}
			_ = json.Unmarshal(b.meta["anthropic"], &meta) // what cannot be read has none
			if meta.Signature != "" || meta.RedactedData != "" {
				all, calls = append(all, calls...), nil
			}
			switch {
			case meta.Signature != "":
				all = append(all, anthropicContent{Type: "thinking", Thinking: &b.text, Signature: meta.Signature})
			case meta.RedactedData != "":
				all = append(all, anthropicContent{Type: "redacted_thinking", Data: meta.RedactedData})
			}
		case fileBlock:
			if e.role != session.RoleAssistant {
				all = append(all, anthropicFile(&b.file))
			}
		case callBlock:
			calls = append(calls, anthropicContent{Type: "tool_use", ID: anthropicID(b.id), Name: b.name,
				Input: b.inputOf()})
		case resultBlock:
			all = append(all, anthropicContent{Type: "tool_result", ToolUseID: anthropicID(b.id),
				Content: new(b.outcome()), IsError: b.failed})
		}
	}
	return append(all, calls...)
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

func anthropicFile(f *file) anthropicContent {
	kind, title := "document", f.name
	if f.image() {
		kind, title = "image", ""
	}
	here := f.content != ""
	switch {
	case here && (f.image() || f.pdf()):
		return anthropicContent{Type: kind, Title: title,
			Source: &anthropicSource{Type: "base64", MediaType: f.mediaType, Data: f.content}}
	case f.remote() && (f.image() || f.pdf()):
		return anthropicContent{Type: kind, Title: title, Source: &anthropicSource{Type: "url", URL: f.url}}
	}
	if text, ok := f.text(); ok && strings.TrimSpace(text) != "" {
		return anthropicContent{Type: kind, Title: title,
			Source: &anthropicSource{Type: "text", MediaType: "text/plain", Data: text}}
	}
	return anthropicContent{Type: "text", Text: new(f.placeholder())}
}
