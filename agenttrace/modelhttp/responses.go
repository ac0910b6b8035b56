package modelhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// responsesAPI is OpenAI's Responses API, also on Azure.
var responsesAPI = api{request: responsesRequest, answer: func(a *answer) decoder { return &responsesAnswer{a: a} }}

// responsesItem is an item of an input or an output, of any of the many types.
type responsesItem struct {
	Type    string `json:"type"`
	Role    string `json:"role"`
	Content view   `json:"content"`
	ID      string `json:"id"`
	Status  string `json:"status"`
	// CallID is that of a call that the client executes, and of its output.
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	Output    json.RawMessage `json:"output"`
	Summary   []responsesPart `json:"summary"`
	// What the calls have that OpenAI executes, and the ones without arguments.
	Action    json.RawMessage `json:"action"`
	Operation json.RawMessage `json:"operation"`
	Code      string          `json:"code"`
	Queries   json.RawMessage `json:"queries"`
	Outputs   json.RawMessage `json:"outputs"`
	Results   json.RawMessage `json:"results"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`
}

type responsesPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	ImageURL json.RawMessage `json:"image_url"`
	FileID   string          `json:"file_id"`
	FileURL  string          `json:"file_url"`
	Filename string          `json:"filename"`
	FileData string          `json:"file_data"`
}

func responsesRequest(t *target, body []byte) *request {
	var in struct {
		Model        string          `json:"model"`
		Input        json.RawMessage `json:"input"`
		Instructions string          `json:"instructions"`
		Temperature  *float64        `json:"temperature"`
		Reasoning    struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		Tools []struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"tools"`
		Previous     string          `json:"previous_response_id"`
		Conversation json.RawMessage `json:"conversation"`
		Limit        json.RawMessage `json:"max_output_tokens"`
		Text         struct {
			Format json.RawMessage `json:"format"`
		} `json:"text"`
	}
	if unmarshal(body, &in) != nil || len(in.Input) == 0 {
		return nil
	}
	r := &request{
		model: agenttrace.Model{ID: in.Model, Variant: in.Reasoning.Effort}, temperature: in.Temperature,
		system: in.Instructions, previous: in.Previous, form: in.Text.Format,
	}
	r.setLimit(in.Limit)
	var conversation struct {
		ID string `json:"id"`
	}
	if r.conversation, _ = stringOr(in.Conversation, &conversation); r.conversation == "" {
		r.conversation = conversation.ID
	}
	for _, tool := range in.Tools {
		r.tools = append(r.tools, agenttrace.Tool{
			Name: cmp.Or(tool.Name, tool.Type), Description: tool.Description, Parameters: tool.Parameters,
		})
	}
	var items []responsesItem
	text, isText := stringOr(in.Input, &items)
	if isText {
		r.addText(user, text)
	}
	for i := range items {
		r.next()
		responsesInput(r, &items[i])
	}
	return r
}

func responsesInput(r *request, i *responsesItem) {
	switch {
	case i.Type == "" || i.Type == "message":
		responsesMessage(r, i)
	case strings.HasSuffix(i.Type, "_call_output"):
		r.add(user, item{
			kind: resultItem, id: cmp.Or(i.CallID, i.ID), value: responsesOutput(i.Output),
			failed: i.Status == "failed",
		})
	case i.isCall() && i.CallID != "":
		r.add(assistant, item{kind: callItem, id: i.CallID, name: i.tool(), value: i.input()})
	}
}

func responsesMessage(r *request, i *responsesItem) {
	from := user
	switch i.Role {
	case "assistant":
		from = assistant
	case "system", "developer":
		if len(r.messages) == 0 {
			r.addSystem(responsesText(i.Content.RawMessage))
		}
		return
	}
	var parts []responsesPart
	if text, ok := stringOr(i.Content.RawMessage, &parts); ok {
		r.addText(from, text)
	}
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case "input_image":
			u, _ := stringOr(p.ImageURL, nil)
			f := linked("image/*", "", u)
			if p.FileID != "" {
				f.url = "file:" + p.FileID
			}
			r.add(from, item{kind: fileItem, file: f})
		case "input_file":
			f := linked("application/octet-stream", p.Filename, cmp.Or(p.FileURL, p.FileData))
			if p.FileID != "" {
				f.url = "file:" + p.FileID
			}
			r.add(from, item{kind: fileItem, file: f})
		default:
			r.addText(from, cmp.Or(p.Text, p.Refusal))
		}
	}
}

func responsesText(raw json.RawMessage) string {
	var parts []responsesPart
	text, ok := stringOr(raw, &parts)
	if ok {
		return text
	}
	for i := range parts {
		text += cmp.Or(parts[i].Text, parts[i].Refusal)
	}
	return text
}

// responsesOutput returns the output of a call: a text, a list of texts, or JSON.
func responsesOutput(raw json.RawMessage) json.RawMessage {
	var parts []responsesPart
	text, ok := stringOr(raw, &parts)
	if ok {
		return output(text)
	}
	for i := range parts {
		if parts[i].Type != "input_text" {
			return raw
		}
		text += parts[i].Text
	}
	if parts == nil {
		return raw
	}
	return output(text)
}

func (i *responsesItem) isCall() bool { return strings.HasSuffix(i.Type, "_call") }

// tool returns the name of the tool of a call. Those of OpenAI have no name but their type.
func (i *responsesItem) tool() string { return cmp.Or(i.Name, strings.TrimSuffix(i.Type, "_call")) }

// input returns the input of a call.
func (i *responsesItem) input() json.RawMessage {
	switch {
	case i.Type == "custom_tool_call":
		text, _ := stringOr(i.Input, nil)
		return quote(text)
	case i.Arguments != "":
		return input(i.Arguments)
	case i.Code != "":
		return quote(i.Code)
	}
	for _, raw := range [...]json.RawMessage{i.Action, i.Operation, i.Queries} {
		if len(raw) > 0 {
			return raw
		}
	}
	return json.RawMessage("{}")
}

type responsesAnswer struct {
	a *answer
	// done are the indexes of the items that are whole.
	done map[int]bool
}

type response struct {
	ID         string          `json:"id"`
	Model      string          `json:"model"`
	Status     string          `json:"status"`
	Output     []view          `json:"output"`
	Usage      json.RawMessage `json:"usage"`
	Error      json.RawMessage `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

func (d *responsesAnswer) body(data []byte) {
	var r response
	if unmarshal(data, &r) == nil {
		d.end(&r)
	}
}

// grown returns the block that an event of the type appends to, nil if it is of another type.
func (d *responsesAnswer) grown(event string, output, content, summary int) *block {
	switch event {
	case "response.output_text.delta", "response.refusal.delta":
		return d.a.block(responsesKey(output, content), textBlock)
	case "response.reasoning_summary_text.delta":
		return d.a.block(responsesKey(output, summary), reasoningBlock)
	case "response.reasoning_text.delta":
		return d.a.block(responsesKey(output, content), reasoningBlock)
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		return d.a.block(responsesKey(output, 0), callBlock)
	}
	return nil
}

func (d *responsesAnswer) event(name string, data []byte) {
	switch name {
	case "response.created", "response.in_progress", "response.queued",
		"response.content_part.added", "response.content_part.done", "response.output_text.done", "response.refusal.done",
		"response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
		"response.reasoning_summary_text.done", "response.reasoning_text.done",
		"response.function_call_arguments.done", "response.custom_tool_call_input.done":
		return // these repeat the request, or what the item has that follows
	}
	var e struct {
		Type     string          `json:"type"`
		Output   int             `json:"output_index"`
		Content  int             `json:"content_index"`
		Summary  int             `json:"summary_index"`
		Delta    view            `json:"delta"`
		Item     view            `json:"item"`
		Response *response       `json:"response"`
		Error    json.RawMessage `json:"error"`
		Code     string          `json:"code"`
		Message  string          `json:"message"`
	}
	if d.a.unmarshal(data, &e) != nil {
		return
	}
	if b := d.grown(e.Type, e.Output, e.Content, e.Summary); b != nil {
		delta, _ := stringOr(e.Delta.RawMessage, nil)
		d.a.add(b, []byte(delta))
		return
	}
	switch e.Type {
	case "response.output_item.added":
		d.added(e.Output, e.Item.RawMessage)
	case "response.output_item.done":
		d.item(e.Output, e.Item.RawMessage)
	case "response.completed", "response.incomplete", "response.failed":
		if e.Response != nil {
			d.end(e.Response)
			d.a.complete = true
		}
	case "error":
		if len(e.Error) > 0 {
			d.a.fail(openAIError(e.Error))
			return
		}
		d.a.fail(e.Code, e.Message)
	}
}

// responsesKey returns the key of a content or a summary of an item.
func responsesKey(output, part int) int { return output<<16 | part&0xffff }

// added names a call whose input follows, in case that the stream ends before it is whole.
func (d *responsesAnswer) added(index int, raw json.RawMessage) {
	var i responsesItem
	if unmarshal(raw, &i) == nil && i.isCall() && i.CallID != "" {
		b := d.a.block(responsesKey(index, 0), callBlock)
		b.id, b.name, b.isText = i.CallID, i.tool(), i.Type == "custom_tool_call"
	}
}

// item takes an item that is whole.
func (d *responsesAnswer) item(index int, raw json.RawMessage) {
	var i responsesItem
	if d.done[index] || unmarshal(raw, &i) != nil {
		return
	}
	if d.done == nil {
		d.done = make(map[int]bool)
	}
	d.done[index] = true
	switch {
	case i.Type == "message":
		d.parts(index, textBlock, i.Content.RawMessage)
	case i.Type == "reasoning":
		for k, s := range i.Summary {
			d.a.whole(d.a.block(responsesKey(index, k), reasoningBlock), s.Text)
		}
		if len(i.Summary) == 0 {
			d.parts(index, reasoningBlock, i.Content.RawMessage)
		}
	case i.isCall():
		b := d.a.block(responsesKey(index, 0), callBlock)
		if i.CallID != "" {
			b.id, b.name, b.isText = i.CallID, i.tool(), false
			b.input = d.a.take(i.input())
			d.a.close(b)
			return
		}
		b.id, b.name, b.server, b.input = i.ID, i.tool(), true, i.input()
		d.a.close(b)
		out, failed := i.result()
		d.a.served(b.id, out, failed)
	}
}

func (d *responsesAnswer) parts(index int, kind blockKind, content json.RawMessage) {
	var parts []responsesPart
	if unmarshal(content, &parts) != nil {
		return
	}
	for k := range parts {
		d.a.whole(d.a.block(responsesKey(index, k), kind), cmp.Or(parts[k].Text, parts[k].Refusal))
	}
}

// result returns the result of a call that OpenAI executed.
func (i *responsesItem) result() (out json.RawMessage, failed bool) {
	if len(i.Error) > 0 && string(i.Error) != "null" {
		_, text := openAIError(i.Error)
		return quote(cmp.Or(text, string(i.Error))), true
	}
	out = json.RawMessage("null")
	for _, raw := range [...]json.RawMessage{i.Output, i.Outputs, i.Results} {
		if len(raw) > 0 && string(raw) != "null" {
			out = responsesOutput(raw)
			break
		}
	}
	return out, i.Status == "failed"
}

func (d *responsesAnswer) end(r *response) {
	for k, raw := range r.Output {
		d.item(k, raw.RawMessage)
	}
	d.a.id, d.a.model = r.ID, r.Model
	d.a.stop = cmp.Or(r.Incomplete.Reason, r.Status)
	d.a.ended = true
	if len(r.Error) > 0 && string(r.Error) != "null" {
		d.a.fail(openAIError(r.Error))
	} else if r.Status == "failed" {
		d.a.fail("failed", "")
	}
	var u struct {
		Input  *int64 `json:"input_tokens"`
		Output int64  `json:"output_tokens"`
		In     struct {
			Cached  int64 `json:"cached_tokens"`
			Written int64 `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		Out struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
	if len(r.Usage) == 0 || unmarshal(r.Usage, &u) != nil || u.Input == nil {
		return
	}
	d.a.rawUsage = bytes.Clone(r.Usage)
	d.a.usage = agenttrace.InclusiveUsage{
		Input: *u.Input, Output: u.Output, Reasoning: u.Out.Reasoning, CacheRead: u.In.Cached, CacheWrite: u.In.Written,
	}
}
