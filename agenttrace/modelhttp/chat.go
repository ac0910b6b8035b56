package modelhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// chatAPI is OpenAI's chat completions API, also on Azure and on compatible servers.
var chatAPI = api{request: chatRequest, answer: func(a *answer) decoder { return &chatAnswer{a} }}

type chatCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	Custom *struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"custom"`
}

type chatPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
	Audio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
	File struct {
		Filename string `json:"filename"`
		FileID   string `json:"file_id"`
		FileData string `json:"file_data"`
	} `json:"file"`
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	Calls     []chatCall      `json:"tool_calls"`
	CallID    string          `json:"tool_call_id"`
	Name      string          `json:"name"`
	Reasoning string          `json:"reasoning_content"` // of compatible servers, as is the next
	Thought   string          `json:"reasoning"`
}

func chatRequest(t *target, body []byte) *request {
	var in struct {
		Model       string   `json:"model"`
		Temperature *float64 `json:"temperature"`
		Effort      string   `json:"reasoning_effort"`
		Tools       []struct {
			Function *chatTool `json:"function"`
			Custom   *chatTool `json:"custom"`
		} `json:"tools"`
		Messages []chatMessage   `json:"messages"`
		Limit    json.RawMessage `json:"max_completion_tokens"`
		OldLimit json.RawMessage `json:"max_tokens"`
		Format   json.RawMessage `json:"response_format"`
	}
	if unmarshal(body, &in) != nil || len(in.Messages) == 0 {
		return nil
	}
	r := &request{model: agenttrace.Model{ID: in.Model, Variant: in.Effort}, temperature: in.Temperature, form: in.Format}
	r.setLimit(in.Limit, in.OldLimit)
	for _, tool := range in.Tools {
		if f := cmp.Or(tool.Function, tool.Custom); f != nil {
			r.tools = append(r.tools, agenttrace.Tool{
				Name: f.Name, Description: f.Description, Parameters: f.Parameters,
			})
		}
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		r.next()
		switch m.Role {
		case "system", "developer":
			if len(r.messages) == 0 {
				r.addSystem(chatText(m.Content))
			}
		case "tool", "function":
			r.add(user, item{kind: resultItem, id: m.CallID, name: m.Name, value: chatOutput(m.Content)})
		case "assistant":
			r.addText(assistant, cmp.Or(chatText(m.Content), m.Refusal))
			for i := range m.Calls {
				c := &m.Calls[i]
				if c.Custom != nil {
					r.add(assistant, item{kind: callItem, id: c.ID, name: c.Custom.Name, value: quote(c.Custom.Input)})
					continue
				}
				r.add(assistant, item{
					kind: callItem, id: c.ID, name: c.Function.Name, value: input(c.Function.Arguments),
				})
			}
		default:
			chatUser(r, m.Content)
		}
	}
	return r
}

type chatTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// chatText returns the text of a content, which is a text or a list of parts.
func chatText(raw json.RawMessage) string {
	text, ok := stringOr(raw, nil)
	if ok {
		return text
	}
	var parts []chatPart
	_ = unmarshal(raw, &parts) // of a value that is neither nothing is known
	var b strings.Builder
	for i := range parts {
		b.WriteString(cmp.Or(parts[i].Text, parts[i].Refusal))
	}
	return b.String()
}

// chatOutput returns the output of a tool: a text, or all parts if there are others than texts.
func chatOutput(raw json.RawMessage) json.RawMessage {
	var parts []chatPart
	if text, ok := stringOr(raw, &parts); ok {
		return output(text)
	}
	for i := range parts {
		if parts[i].Type != "text" && parts[i].Type != "" {
			return raw
		}
	}
	return output(chatText(raw))
}

func chatUser(r *request, raw json.RawMessage) {
	var parts []chatPart
	if text, ok := stringOr(raw, &parts); ok {
		r.addText(user, text)
		return
	}
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case "text":
			r.addText(user, p.Text)
		case "image_url":
			r.add(user, item{kind: fileItem, file: linked("image/*", "", p.ImageURL.URL)})
		case "input_audio":
			r.add(user, item{kind: fileItem, file: inline("audio/"+p.Audio.Format, "", p.Audio.Data)})
		case "file":
			f := linked("application/octet-stream", p.File.Filename, p.File.FileData)
			if p.File.FileID != "" {
				f.url = "file:" + p.File.FileID
			}
			r.add(user, item{kind: fileItem, file: f})
		}
	}
}

type chatAnswer struct{ a *answer }

type chatChunk struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Index   int          `json:"index"`
		Delta   *chatMessage `json:"delta"`
		Message *chatMessage `json:"message"`
		Finish  string       `json:"finish_reason"`
	} `json:"choices"`
	Usage counts          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func (d *chatAnswer) body(data []byte) {
	if d.chunk(data) && d.a.err == nil {
		d.a.ended = true
	}
	d.a.closeAll()
}

func (d *chatAnswer) event(_ string, data []byte) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		d.a.ended, d.a.complete = true, true
		d.a.closeAll()
		return
	}
	d.chunk(data)
}

// settle implements [settler].
func (d *chatAnswer) settle(data []byte) {
	var c chatChunk
	if unmarshal(data, &c) == nil {
		d.usage(c.Usage.RawMessage)
	}
}

// chunk takes a piece of a stream, or a body, which differ in the name of the message.
func (d *chatAnswer) chunk(data []byte) bool {
	var c chatChunk
	if d.a.unmarshal(data, &c) != nil {
		return false
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		d.a.fail(openAIError(c.Error))
	}
	d.a.id, d.a.model = cmp.Or(c.ID, d.a.id), cmp.Or(c.Model, d.a.model)
	for i := range c.Choices {
		choice := &c.Choices[i]
		m := choice.Delta
		if m == nil {
			m = choice.Message
		}
		if m == nil {
			m = new(chatMessage)
		}
		if choice.Index != 0 {
			d.other(choice.Index, m)
			continue
		}
		d.first(m)
		if choice.Finish != "" {
			d.a.stop, d.a.ended = choice.Finish, true
			d.a.closeAll()
		}
	}
	d.usage(c.Usage.RawMessage)
	return len(c.Choices) > 0
}

// Blocks of the first choice, by key; calls follow by their index.
const (
	chatReasoning = iota
	chatContent
	chatCalls
)

// write appends reasoning, which the text ends.
func (d *chatAnswer) write(reasoning, text []byte) {
	if len(reasoning) > 0 {
		d.a.text(d.a.block(chatReasoning, reasoningBlock), reasoning)
	}
	if len(text) > 0 {
		d.a.close(d.a.block(chatReasoning, reasoningBlock))
		d.a.text(d.a.block(chatContent, textBlock), text)
	}
}

func (d *chatAnswer) first(m *chatMessage) {
	if len(m.Content) > 0 && m.Content[0] == '[' {
		d.a.effects++ // its text may be that of several parts
	}
	d.write([]byte(cmp.Or(m.Reasoning, m.Thought)), []byte(cmp.Or(chatText(m.Content), m.Refusal)))
	for i := range m.Calls {
		c := &m.Calls[i]
		index := c.Index
		if index == 0 && i > 0 { // a body does not number its calls
			index = i
		}
		b := d.a.block(chatCalls+index, callBlock)
		if b.id != "" && c.ID != "" && b.id != c.ID { // nor do the streams of some servers
			b = d.a.block(chatCalls+len(d.a.blocks)+index, callBlock)
		}
		b.id = cmp.Or(c.ID, b.id)
		b.name = cmp.Or(c.Function.Name, b.name)
		d.a.arguments(b, []byte(c.Function.Arguments))
		if c.Custom != nil {
			b.isText, b.name = true, cmp.Or(c.Custom.Name, b.name)
			d.a.arguments(b, []byte(c.Custom.Input))
		}
	}
}

func (d *chatAnswer) other(index int, m *chatMessage) {
	c := d.a.choice(index)
	c.write(d.a, cmp.Or(chatText(m.Content), m.Refusal))
	for i := range m.Calls {
		if call := &m.Calls[i]; c != nil && call.ID != "" {
			c.content.call(call.ID, call.Function.Name)
		}
	}
}

func (d *chatAnswer) usage(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	var u struct {
		Prompt     *int64 `json:"prompt_tokens"`
		Completion int64  `json:"completion_tokens"`
		In         struct {
			Cached  int64 `json:"cached_tokens"`
			Written int64 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		Out struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if unmarshal(raw, &u) != nil || u.Prompt == nil {
		return
	}
	d.a.rawUsage = bytes.Clone(raw)
	d.a.usage = agenttrace.InclusiveUsage{
		Input: *u.Prompt, Output: u.Completion, Reasoning: u.Out.Reasoning,
		CacheRead: u.In.Cached, CacheWrite: u.In.Written,
	}
}

// openAIError returns the kind and the text of an error, which is an object or a text.
func openAIError(raw json.RawMessage) (kind, text string) {
	var e struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Status  string          `json:"status"`
		Message string          `json:"message"`
	}
	text, ok := stringOr(raw, &e)
	if ok {
		return "", text
	}
	code, _ := stringOr(e.Code, nil)
	return cmp.Or(e.Type, code, e.Status), e.Message
}
