package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/spans"
)

// Format is the wire format of a provider: how it is asked, and how it answers.
type Format struct {
	Name, Title string
	// KeyEnv is the variable of the environment in which programs of the provider look for the key of the API.
	KeyEnv string

	path string // of the resource below an endpoint
	// request makes the body of a request: the bundle, and what came since.
	request func(b *Bundle, since []entry) any
	// reply reads what a provider answered, and the error that reading ended with.
	reply func(text []byte, readErr error) (*reply, error)
	// header is what every request has, by name.
	header map[string]string
	// authorize puts the key of the API into a request.
	authorize func(h http.Header, key string)
}

// Formats are all formats, the default first.
func Formats() []*Format {
	return []*Format{openAIChat, openAIResponses, anthropicMessages, aiSDK}
}

// FormatOf returns the format with the name, or nil.
func FormatOf(name string) *Format {
	all := Formats()
	i := slices.IndexFunc(all, func(f *Format) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// reply is what a provider answered to one request.
type reply struct {
	blocks []block
	// usage is nil where the provider reports none. usageRaw is what it reported, basis how it counts.
	usage     *session.Usage
	usageRaw  json.RawMessage
	basis     string
	stop      string
	id, model string
}

func (b *Bundle) conversation(since []entry) []entry {
	return slices.Concat(b.context, since)
}

// effort is the model's variant where it is one of the words by which providers take how much to reason.
func (b *Bundle) effort() string {
	if slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}, b.Model.Variant) {
		return b.Model.Variant
	}
	return ""
}

// schema is the schema of a tool's input; any object where it is not known.
func (t *Tool) schema() json.RawMessage {
	if len(t.InputSchema) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return t.InputSchema
}

// empty is the error of a reply that reports nothing.
func (r *reply) empty() error {
	for i := range r.blocks {
		if b := &r.blocks[i]; b.kind != textBlock || b.text != "" {
			return nil
		}
	}
	if r.stop != "" {
		return fmt.Errorf("the answer is empty: neither text nor a call, and the reason to stop is %q", r.stop)
	}
	return errors.New("the answer is empty: neither text nor a call")
}

func bearer(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// object is a JSON object of a request, with its members in their order. What is nil or an empty text is left out.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, m := range o {
		if v := reflect.ValueOf(m.value); !v.IsValid() || v.IsZero() && v.Kind() != reflect.Bool {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + m.name + `":`)
		if err := document.EncodeJSON(&b, "", m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// textObject is a piece of content that is text.
func textObject(kind, text string) object { return object{{"type", kind}, {"text", &text}} }

// toolsOf makes a tool of each that the model could call.
func (b *Bundle) toolsOf(tool func(t *Tool) object) (all []object) {
	for i := range b.Tools {
		all = append(all, tool(&b.Tools[i]))
	}
	return all
}

// decodes returns what reads a reply that is one JSON document with the member, which has a list. It is given the error
// that reading ended with.
func decodes(api *modelapi.API, member string) func([]byte, error) (*reply, error) {
	return func(text []byte, err error) (*reply, error) {
		text = bytes.TrimSpace(text)
		switch {
		case err != nil:
			return nil, err
		case len(text) == 0:
			return nil, errors.New("the reply is empty")
		case !json.Valid(text):
			return nil, fmt.Errorf("the reply is not JSON: it begins with %q; check that --endpoint is that of the API",
				document.Head(string(text), 60))
		}
		a := &modelapi.Answer{Budget: len(text)}
		api.Decode(a).Body(text)
		list := gjson.GetBytes(text, member)
		switch {
		case a.Err != nil: // with status 200, as some proxies have it
			return nil, a.Err
		case !list.IsArray() || api == modelapi.Chat && len(list.Array()) == 0:
			return nil, errors.New("it has no " + member)
		}
		out := replyOf(a, api)
		return out, out.empty()
	}
}

// replyOf returns what an answer came to. What the provider executed is not part of it.
func replyOf(a *modelapi.Answer, api *modelapi.API) *reply {
	out := &reply{stop: a.Stop, id: a.ID, model: a.Model}
	called := false
	for i, b := range a.Blocks {
		text := b.Content()
		switch {
		case b.Kind == modelapi.Call:
			if !b.Server {
				called = true
				out.blocks = append(out.blocks, block{kind: callBlock, id: b.ID, name: b.Name, input: b.Input()})
			}
		case b.Kind == modelapi.Text && text != "":
			out.blocks = append(out.blocks, block{kind: textBlock, text: text})
		case b.Kind == modelapi.Reasoning && api == modelapi.Anthropic:
			meta, _ := json.Marshal(struct {
				Signature    string `json:"signature,omitempty"`
				RedactedData string `json:"redactedData,omitempty"`
			}{b.Signature, b.Redacted}) // strings always encode
			out.blocks = append(out.blocks, block{kind: reasoningBlock, text: text,
				meta: map[string]json.RawMessage{"anthropic": meta}})
		case b.Kind == modelapi.Reasoning && i > 0 && api == modelapi.Responses && len(out.blocks) > 0 &&
			a.Blocks[i-1].Kind == modelapi.Reasoning && a.Blocks[i-1].SameItem(b):
			out.blocks[len(out.blocks)-1].text += text
		case b.Kind == modelapi.Reasoning && text != "":
			out.blocks = append(out.blocks, block{kind: reasoningBlock, text: text})
		}
	}
	if api == modelapi.Responses && (out.stop == "" || out.stop == "completed") { // which has no other word for it
		if out.stop = "stop"; called {
			out.stop = "tool-calls"
		}
	}
	out.count(a.Usage)
	return out
}

func (r *reply) count(u *modelapi.Usage) {
	if u == nil || u.Input+u.Output+u.Reasoning+u.CacheRead+u.CacheWrite == 0 {
		return
	}
	tokens := spans.Tokens{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
	}
	if r.usageRaw, r.basis = u.Raw, semconv.BasisExclusive; u.Basis == modelapi.Inclusive {
		tokens, r.basis = tokens.Disjoint(), semconv.BasisInclusive
	}
	r.usage = (*session.Usage)(&tokens)
}

func events(text []byte) (all []json.RawMessage) {
	s := modelapi.StreamOf("text/event-stream", len(text))
	emit := func(_ string, data []byte) {
		if len(data) > 0 && string(data) != "[DONE]" {
			all = append(all, bytes.Clone(data))
		}
	}
	s.Feed(text, emit)
	s.End(emit)
	return all
}

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
