package modelhttp

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// converseAPI is Bedrock's Converse. InvokeModel takes and returns the format of the model:
// Nova's is nearly that of Converse.
var (
	converseAPI = api{request: converseRequest, answer: func(a *answer) decoder { return &converseAnswer{a} }}
	invokeAPI   = api{request: invokeRequest}
)

// invokeRequest finds out which format the body has, and makes it that of the target.
func invokeRequest(t *target, body []byte) *request {
	var in struct {
		Anthropic string `json:"anthropic_version"`
		Messages  []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Inference json.RawMessage `json:"inferenceConfig"`
	}
	err := unmarshal(body, &in)
	// Content that is a text does not decode into a list; the formats differ in that.
	var content []map[string]json.RawMessage
	if err == nil && in.Anthropic == "" && len(in.Messages) > 0 {
		err = unmarshal(in.Messages[0].Content, &content)
	}
	switch {
	case in.Anthropic != "":
		t.api = &anthropicAPI
	case len(in.Inference) > 0, err == nil && len(content) > 0 && content[0]["type"] == nil:
		t.api = &converseAPI
	default:
		t.api = &chatAPI
	}
	return t.api.request(t, body)
}

type converseBlock struct {
	Text    *string `json:"text"`
	ToolUse *struct {
		ID    string          `json:"toolUseId"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
		Type  string          `json:"type"`
	} `json:"toolUse"`
	Result *struct {
		ID      string          `json:"toolUseId"`
		Status  string          `json:"status"`
		Content json.RawMessage `json:"content"`
	} `json:"toolResult"`
	Reasoning *struct {
		Text struct {
			Text string `json:"text"`
		} `json:"reasoningText"`
	} `json:"reasoningContent"`
	Image    *converseFile `json:"image"`
	Document *converseFile `json:"document"`
	Video    *converseFile `json:"video"`
}

type converseFile struct {
	Format string `json:"format"`
	Name   string `json:"name"`
	Source struct {
		Bytes string `json:"bytes"`
		S3    struct {
			URI string `json:"uri"`
		} `json:"s3Location"`
	} `json:"source"`
}

func (f *converseFile) file(kind string) file {
	if f.Source.S3.URI != "" {
		return file{mediaType: kind + f.Format, name: f.Name, url: f.Source.S3.URI}
	}
	return inline(kind+f.Format, f.Name, f.Source.Bytes)
}

func converseRequest(t *target, body []byte) *request {
	var in struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content []converseBlock `json:"content"`
		} `json:"messages"`
		System []struct {
			Text string `json:"text"`
		} `json:"system"`
		Tools struct {
			Tools []struct {
				Spec *struct {
					Name        string `json:"name"`
					Description string `json:"description"`
					Schema      struct {
						JSON json.RawMessage `json:"json"`
					} `json:"inputSchema"`
				} `json:"toolSpec"`
			} `json:"tools"`
		} `json:"toolConfig"`
		Inference struct {
			Temperature *float64        `json:"temperature"`
			Limit       json.RawMessage `json:"maxTokens"`
		} `json:"inferenceConfig"`
	}
	if unmarshal(body, &in) != nil || len(in.Messages) == 0 {
		return nil
	}
	r := &request{temperature: in.Inference.Temperature}
	r.setLimit(in.Inference.Limit)
	for _, s := range in.System {
		if s.Text != "" {
			r.addSystem(s.Text)
		}
	}
	for _, tool := range in.Tools.Tools {
		if s := tool.Spec; s != nil {
			r.tools = append(r.tools, agenttrace.Tool{
				Name: s.Name, Description: s.Description, Parameters: s.Schema.JSON,
			})
		}
	}
	for _, m := range in.Messages {
		r.next()
		from := user
		if m.Role == "assistant" {
			from = assistant
		}
		for i := range m.Content {
			converseItem(r, from, &m.Content[i])
		}
	}
	return r
}

func converseItem(r *request, from role, b *converseBlock) {
	switch {
	case b.Text != nil:
		r.addText(from, *b.Text)
	case b.ToolUse != nil:
		r.add(from, item{kind: callItem, id: b.ToolUse.ID, name: b.ToolUse.Name, value: b.ToolUse.Input})
	case b.Result != nil:
		r.add(from, item{
			kind: resultItem, id: b.Result.ID, value: converseOutput(b.Result.Content),
			failed: b.Result.Status == "error",
		})
	case b.Image != nil:
		r.add(from, item{kind: fileItem, file: b.Image.file("image/")})
	case b.Document != nil:
		r.add(from, item{kind: fileItem, file: b.Document.file("application/")})
	case b.Video != nil:
		r.add(from, item{kind: fileItem, file: b.Video.file("video/")})
	}
}

// converseOutput returns an output: the one JSON value, the texts, or the list.
// converseOutput returns the output of a tool: a JSON value, texts, or all blocks if there are images or documents.
func converseOutput(raw json.RawMessage) json.RawMessage {
	var content []struct {
		Text *string         `json:"text"`
		JSON json.RawMessage `json:"json"`
	}
	if unmarshal(raw, &content) != nil {
		return raw
	}
	for _, c := range content {
		if c.Text == nil && c.JSON == nil {
			return raw
		}
	}
	if len(content) == 1 && len(content[0].JSON) > 0 {
		return content[0].JSON
	}
	var text strings.Builder
	for _, c := range content {
		if c.Text != nil {
			text.WriteString(*c.Text)
		} else {
			text.Write(c.JSON)
		}
	}
	return output(text.String())
}

type converseAnswer struct{ a *answer }

func (d *converseAnswer) body(data []byte) {
	var m struct {
		Output struct {
			Message struct {
				Content []converseBlock `json:"content"`
			} `json:"message"`
		} `json:"output"`
		Stop  string          `json:"stopReason"`
		Usage json.RawMessage `json:"usage"`
	}
	if unmarshal(data, &m) != nil {
		return
	}
	for i := range m.Output.Message.Content {
		switch b := &m.Output.Message.Content[i]; {
		case b.Text != nil:
			d.a.whole(d.a.block(i, textBlock), *b.Text)
		case b.Reasoning != nil:
			d.a.whole(d.a.block(i, reasoningBlock), b.Reasoning.Text.Text)
		case b.ToolUse != nil:
			c := d.a.block(i, callBlock)
			c.id, c.name, c.server = b.ToolUse.ID, b.ToolUse.Name, b.ToolUse.Type == "server_tool_use"
			d.a.arguments(c, b.ToolUse.Input)
			d.a.close(c)
		case b.Result != nil:
			d.a.served(b.Result.ID, converseOutput(b.Result.Content), b.Result.Status == "error")
		}
	}
	d.a.stop, d.a.ended = m.Stop, true
	d.usage(m.Usage)
}

// event takes an event of ConverseStream, or of the stream of a Nova model, whose events
// are the members of an object.
func (d *converseAnswer) event(name string, data []byte) {
	if name == "" {
		var events map[string]json.RawMessage
		if d.a.unmarshal(data, &events) != nil {
			return
		}
		for name, data := range events {
			if name != "" {
				d.event(name, data)
			}
		}
		return
	}
	var e struct {
		Index int `json:"contentBlockIndex"`
		Start struct {
			ToolUse *struct {
				ID   string `json:"toolUseId"`
				Name string `json:"name"`
				Type string `json:"type"`
			} `json:"toolUse"`
		} `json:"start"`
		Delta struct {
			Text    *string `json:"text"`
			ToolUse *struct {
				Input string `json:"input"`
			} `json:"toolUse"`
			Reasoning *struct {
				Text string `json:"text"`
			} `json:"reasoningContent"`
		} `json:"delta"`
		Stop  string          `json:"stopReason"`
		Usage json.RawMessage `json:"usage"`
		Error *anthropicError `json:"error"`
	}
	if d.a.unmarshal(data, &e) != nil {
		return
	}
	switch name {
	case "contentBlockStart":
		if c := e.Start.ToolUse; c != nil {
			b := d.a.block(e.Index, callBlock)
			b.id, b.name, b.server = c.ID, c.Name, c.Type == "server_tool_use"
		}
	case "contentBlockDelta":
		switch {
		case e.Delta.Text != nil:
			d.a.text(d.a.block(e.Index, textBlock), []byte(*e.Delta.Text))
		case e.Delta.Reasoning != nil:
			d.a.text(d.a.block(e.Index, reasoningBlock), []byte(e.Delta.Reasoning.Text))
		case e.Delta.ToolUse != nil:
			d.a.arguments(d.a.block(e.Index, callBlock), []byte(e.Delta.ToolUse.Input))
		}
	case "contentBlockStop":
		d.a.closeAt(e.Index)
	case "messageStop":
		d.a.stop, d.a.ended = e.Stop, true
	case "metadata":
		d.usage(e.Usage)
		d.a.complete = d.a.ended
	case "exception":
		if e.Error != nil {
			d.a.fail(e.Error.Type, e.Error.Message)
		}
	}
}

// usage takes the counts. Those of the cache lie outside of inputTokens, except with models
// for which the total shows otherwise.
func (d *converseAnswer) usage(raw json.RawMessage) {
	var u struct {
		Input  *int64 `json:"inputTokens"`
		Output int64  `json:"outputTokens"`
		Total  int64  `json:"totalTokens"`
		Read   int64  `json:"cacheReadInputTokens"`
		Write  int64  `json:"cacheWriteInputTokens"`
		// Nova's names.
		NovaRead  int64 `json:"cacheReadInputTokenCount"`
		NovaWrite int64 `json:"cacheWriteInputTokenCount"`
	}
	if len(raw) == 0 || unmarshal(raw, &u) != nil || u.Input == nil {
		return
	}
	d.a.rawUsage = bytes.Clone(raw)
	read, write := max(u.Read, u.NovaRead), max(u.Write, u.NovaWrite)
	if read+write > 0 && u.Total > 0 && u.Total == *u.Input+u.Output {
		d.a.usage = agenttrace.InclusiveUsage{Input: *u.Input, Output: u.Output, CacheRead: read, CacheWrite: write}
		return
	}
	d.a.usage = agenttrace.ExclusiveUsage{Input: *u.Input, Output: u.Output, CacheRead: read, CacheWrite: write}
}
