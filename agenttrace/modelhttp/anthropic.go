package modelhttp

import (
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// anthropicAPI is the Messages API, also on Vertex AI and Bedrock.
var anthropicAPI = api{request: anthropicRequest, answer: func(a *answer) decoder { return &anthropicAnswer{a} }}

type anthropicBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	// ToolUseID, IsError and Content are those of a result.
	ToolUseID string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
	Content   json.RawMessage `json:"content"`
	Source    struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
		FileID    string `json:"file_id"`
	} `json:"source"`
	Title string `json:"title"`
}

func anthropicRequest(t *target, body []byte) *request {
	var in struct {
		Model       string          `json:"model"`
		System      json.RawMessage `json:"system"`
		Temperature *float64        `json:"temperature"`
		Output      struct {
			Effort string          `json:"effort"`
			Format json.RawMessage `json:"format"`
		} `json:"output_config"`
		Limit json.RawMessage `json:"max_tokens"`
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if unmarshal(body, &in) != nil || len(in.Messages) == 0 {
		return nil
	}
	r := &request{model: agenttrace.Model{ID: in.Model, Variant: in.Output.Effort}, temperature: in.Temperature}
	r.system, _ = anthropicText(in.System)
	r.form = in.Output.Format
	r.setLimit(in.Limit)
	for _, tool := range in.Tools {
		r.tools = append(r.tools, agenttrace.Tool{
			Name: tool.Name, Description: tool.Description, Parameters: tool.InputSchema,
		})
	}
	for _, m := range in.Messages {
		r.next()
		from := user
		switch m.Role {
		case "assistant":
			from = assistant
		case "system":
			continue
		}
		var blocks []anthropicBlock
		text, isText := stringOr(m.Content, &blocks)
		if isText {
			r.addText(from, text)
		}
		for i := range blocks {
			anthropicItem(r, from, &blocks[i])
		}
	}
	return r
}

// anthropicText returns a text, or the texts of a list of blocks. ok is false if the list
// has anything else.
func anthropicText(raw json.RawMessage) (text string, ok bool) {
	var blocks []anthropicBlock
	if text, ok = stringOr(raw, &blocks); ok {
		return text, true
	}
	ok = blocks != nil
	var texts []string
	for i := range blocks {
		if blocks[i].Type != "text" {
			ok = false
			continue
		}
		texts = append(texts, blocks[i].Text)
	}
	return strings.Join(texts, "\n\n"), ok
}

func anthropicItem(r *request, from role, b *anthropicBlock) {
	switch b.Type {
	case "text":
		r.addText(from, b.Text)
	case "image", "document":
		f := file{mediaType: b.Source.MediaType, name: b.Title, url: b.Source.URL}
		if b.Source.FileID != "" {
			f.url = "file:" + b.Source.FileID
		} else if b.Source.Data != "" {
			f = inline(b.Source.MediaType, b.Title, b.Source.Data)
		}
		r.add(from, item{kind: fileItem, file: f})
	case "tool_use":
		r.add(from, item{kind: callItem, id: b.ID, name: b.Name, value: b.Input})
	case "tool_result":
		r.add(from, item{kind: resultItem, id: b.ToolUseID, value: anthropicOutput(b.Content), failed: b.IsError})
	}
}

func anthropicOutput(content json.RawMessage) json.RawMessage {
	if text, ok := anthropicText(content); ok {
		return output(text)
	}
	return content
}

type anthropicAnswer struct{ a *answer }

type anthropicMessage struct {
	ID         string            `json:"id"`
	Model      string            `json:"model"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      json.RawMessage   `json:"usage"`
}

type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (d *anthropicAnswer) body(data []byte) {
	var m struct {
		anthropicMessage
		Error *anthropicError `json:"error"`
	}
	if unmarshal(data, &m) != nil {
		return
	}
	if m.Error != nil {
		d.a.fail(m.Error.Type, m.Error.Message)
		return
	}
	d.begin(&m.anthropicMessage)
	for i, raw := range m.Content {
		d.start(i, raw)
		d.a.closeAt(i)
	}
	d.a.stop = m.StopReason
	d.end()
}

func (d *anthropicAnswer) begin(m *anthropicMessage) {
	d.a.id, d.a.model = m.ID, m.Model
	d.a.count(m.Usage)
}

func (d *anthropicAnswer) event(_ string, data []byte) {
	var e struct {
		Type    string            `json:"type"`
		Index   int               `json:"index"`
		Message *anthropicMessage `json:"message"`
		Block   json.RawMessage   `json:"content_block"`
		Delta   struct {
			Type        string `json:"type"`
			Text        string `json:"text"`
			Thinking    string `json:"thinking"`
			PartialJSON string `json:"partial_json"`
			StopReason  string `json:"stop_reason"`
		} `json:"delta"`
		Usage json.RawMessage `json:"usage"`
		Error *anthropicError `json:"error"`
	}
	if d.a.unmarshal(data, &e) != nil {
		return
	}
	if e.Error != nil {
		d.a.fail(e.Error.Type, e.Error.Message)
	}
	switch e.Type {
	case "message_start":
		if e.Message != nil {
			d.begin(e.Message)
		}
	case "content_block_start":
		d.start(e.Index, e.Block)
	case "content_block_delta":
		switch e.Delta.Type {
		case "text_delta":
			d.a.text(d.a.block(e.Index, textBlock), []byte(e.Delta.Text))
		case "thinking_delta":
			d.a.text(d.a.block(e.Index, reasoningBlock), []byte(e.Delta.Thinking))
		case "input_json_delta":
			d.a.arguments(d.a.block(e.Index, callBlock), []byte(e.Delta.PartialJSON))
		}
	case "content_block_stop":
		d.a.closeAt(e.Index)
	case "message_delta":
		if e.Delta.StopReason != "" {
			d.a.stop = e.Delta.StopReason
		}
		d.a.count(e.Usage)
	case "message_stop":
		d.end()
		d.a.complete = true
	}
}

// start begins a block. In a stream its content is empty, and follows.
func (d *anthropicAnswer) start(index int, raw json.RawMessage) {
	var b anthropicBlock
	if unmarshal(raw, &b) != nil {
		return
	}
	switch {
	case b.Type == "text":
		d.a.text(d.a.block(index, textBlock), []byte(b.Text))
	case b.Type == "thinking":
		d.a.text(d.a.block(index, reasoningBlock), []byte(b.Thinking))
	case b.Type == "tool_use", b.Type == "server_tool_use", b.Type == "mcp_tool_use":
		c := d.a.block(index, callBlock)
		c.id, c.name, c.server = b.ID, b.Name, b.Type != "tool_use"
		if s := string(b.Input); s != "{}" && s != "null" {
			d.a.arguments(c, b.Input)
			d.a.effects++ // this is not one of the event's texts
		}
	case b.ToolUseID != "": // the result of a tool that Anthropic executes
		var e struct {
			ErrorCode string `json:"error_code"`
		}
		_, _ = stringOr(b.Content, &e) // results are lists, errors are objects
		d.a.served(b.ToolUseID, anthropicOutput(b.Content), b.IsError || e.ErrorCode != "")
	}
}

func (d *anthropicAnswer) end() {
	d.a.ended = true
	d.a.paused = d.a.stop == "pause_turn"
	raw, err := json.Marshal(d.a.counts)
	if err != nil || d.a.counts == nil {
		return
	}
	var u struct {
		Input   *int64 `json:"input_tokens"`
		Output  int64  `json:"output_tokens"`
		Read    int64  `json:"cache_read_input_tokens"`
		Write   int64  `json:"cache_creation_input_tokens"`
		Details struct {
			Thinking int64 `json:"thinking_tokens"`
		} `json:"output_tokens_details"`
		// A compaction is not in the counts above.
		Iterations []struct {
			Type   string `json:"type"`
			Input  int64  `json:"input_tokens"`
			Output int64  `json:"output_tokens"`
			Read   int64  `json:"cache_read_input_tokens"`
			Write  int64  `json:"cache_creation_input_tokens"`
		} `json:"iterations"`
	}
	if unmarshal(raw, &u) != nil || u.Input == nil {
		return
	}
	thinking := min(u.Details.Thinking, u.Output)
	sum := agenttrace.ExclusiveUsage{
		Input: *u.Input, Output: u.Output - thinking, Reasoning: thinking, CacheRead: u.Read, CacheWrite: u.Write,
	}
	for _, i := range u.Iterations {
		if i.Type == "compaction" {
			sum.Input, sum.Output = sum.Input+i.Input, sum.Output+i.Output
			sum.CacheRead, sum.CacheWrite = sum.CacheRead+i.Read, sum.CacheWrite+i.Write
		}
	}
	d.a.usage, d.a.rawUsage = sum, raw
}
