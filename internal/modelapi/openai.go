package modelapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

var chatForm = form{
	messages: "messages", model: "model", variant: "reasoning_effort", temperature: "temperature options.temperature",
	limit: "max_completion_tokens max_tokens options.num_predict", shape: "response_format format", tools: "tools",
	add: addChat,
}

func addChat(r *Request, m object) {
	switch m.text("role") {
	case "tool", "function":
		r.add(User, Item{Kind: Result, ID: m.text("tool_call_id"), Name: m.text("name", "tool_name"),
			Value: outputOf(m.get("content"), "", "text", "")})
	case "assistant":
		r.addText(Assistant, chatText(m))
		for _, c := range chatCallsOf(m) {
			f := c.in("function")
			i := Item{Kind: Call, ID: c.text("id"), Name: f.text("name"), Value: Input(arguments(f))}
			if custom := c.in("custom"); custom != nil {
				i.Name, i.Value = custom.text("name"), Quote(custom.text("input"))
			}
			r.add(Assistant, i)
		}
	default:
		r.addMessage(m)
		for _, image := range m.get("images").elements() { // Ollama's
			r.between = false
			r.add(User, Item{Kind: FileItem, File: inline("image/*", "", image.value.text())})
		}
	}
}

// chatCallsOf returns the calls of a message, or the one of the form that OpenAI had first.
func chatCallsOf(m object) []object {
	if f := m.get("function_call"); f != "" {
		return []object{{{"function", f}}}
	}
	return m.get("tool_calls").objects()
}

// arguments returns those of a call, which are JSON in a text or, with Ollama, an object.
func arguments(f object) string {
	if v := f.get("arguments"); !v.isText() {
		return string(v)
	}
	return f.text("arguments")
}

// chatText returns the text of a message, or why the model refuses to have one.
func chatText(m object) string {
	text, _ := textOf(m.get("content"), "")
	return cmp.Or(text, m.text("refusal"))
}

type chatAnswer struct{ a *Answer }

func (d *chatAnswer) Body(data []byte) {
	if d.chunk(parse(data)) && d.a.Err == nil {
		d.a.Ended = true
	}
	d.a.closeAll()
}

func (d *chatAnswer) Event(_ string, data []byte) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		d.a.Ended, d.a.Complete = true, true
		d.a.closeAll()
		return
	}
	d.chunk(parse(data))
}

// chunk takes a piece of a stream, or a body, which differ in the name of the message.
func (d *chatAnswer) chunk(c object) bool {
	d.a.failed(c)
	d.a.ID, d.a.Model = cmp.Or(c.text("id"), d.a.ID), cmp.Or(c.text("model"), d.a.Model)
	choices := c.get("choices").objects()
	if m := c.in("message"); m != nil { // Ollama's
		if d.first(m); c.isTrue("done") {
			d.a.Stop, d.a.Ended, d.a.Complete = c.text("done_reason"), true, true
			if d.a.closeAll(); c.get("eval_count") != "" {
				d.a.Usage = &Usage{Input: c.count("prompt_eval_count"), Output: c.count("eval_count")}
			}
		}
		return true
	}
	for _, choice := range choices {
		m := choice.get("delta", "message").object()
		if choice.count("index") != 0 {
			continue // an alternative
		}
		d.first(m)
		if finish := choice.text("finish_reason"); finish != "" {
			d.a.Stop, d.a.Ended = finish, true
			d.a.closeAll()
		}
	}
	if u := openAIUsage(c.get("usage"), "prompt", "completion"); u != nil {
		d.a.Usage = u
	}
	return len(choices) > 0
}

// Blocks of the first choice, by key; calls follow by their index.
const (
	chatReasoning = iota
	chatContent
	chatCalls
)

func (d *chatAnswer) first(m object) {
	// Compatible servers have reasoning, under some names.
	if reasoning := m.text("reasoning_content", "reasoning", "thinking"); reasoning != "" {
		d.a.add(d.a.block(chatReasoning, Reasoning), reasoning)
	}
	if spoken := m.in("audio").text("transcript"); spoken != "" {
		b := d.a.block(chatContent, Text)
		b.Spoken = true
		d.a.add(b, spoken)
	}
	if text := chatText(m); text != "" {
		d.a.close(d.a.block(chatReasoning, Reasoning)) // which the text ends
		d.a.add(d.a.block(chatContent, Text), text)
	}
	for _, c := range chatCallsOf(m) {
		id, f, custom := c.text("id"), c.in("function"), c.in("custom")
		name := cmp.Or(custom.text("name"), f.text("name"))
		b := d.called(c.get("index"), id, name)
		b.ID, b.isText = cmp.Or(id, b.ID), b.isText || custom != nil
		b.Name = cmp.Or(name, b.Name)
		d.a.add(b, arguments(f))
		d.a.add(b, custom.text("input"))
	}
}

// called returns the block of a call, or of a piece of one. Bodies do not number calls, and some servers number none in
// streams, or all by 0: then a piece is that of the call with its id or, without id and name, of the last one.
func (d *chatAnswer) called(index value, id, name string) *Block {
	if index != "" {
		b := d.a.block(chatCalls+int(index.count()), Call)
		if b.ID == "" || id == "" || b.ID == id {
			return b
		}
	}
	for i := len(d.a.Blocks) - 1; i >= 0; i-- {
		b := d.a.Blocks[i]
		if b.Kind == Call && (id != "" && b.ID == id || index == "" && id+name == "") {
			return b
		}
	}
	return d.a.block(chatCalls+1<<20+len(d.a.Blocks), Call)
}

var responsesForm = form{
	messages: "input", isInput: true, model: "model", variant: "reasoning.effort", temperature: "temperature",
	limit: "max_output_tokens", shape: "text.format", system: "instructions", tools: "tools",
	previous: "previous_response_id", conversation: "conversation.id conversation", add: addItem,
}

// item is an item of an input or an output of the Responses API, of any of the many types.
type item struct{ object }

func addItem(r *Request, m object) {
	i := item{m}
	kind, id := i.text("type"), i.id()
	switch {
	case kind == "mcp_approval_response":
		answer := map[bool]string{true: "approved", false: "denied"}[i.isTrue("approve")]
		r.add(User, Item{Kind: Result, ID: i.text("approval_request_id"), Value: Quote(answer)})
	case kind == "" || kind == "message":
		r.addMessage(m)
	case strings.HasSuffix(kind, "_call_output"):
		r.add(User, Item{Kind: Result, ID: cmp.Or(id, i.text("id")), Value: outputOf(i.get("output"), "", "input_text"),
			Failed: i.text("status") == "failed"})
	case kind == "additional_tools":
		r.addTools(m)
	case i.isCall() && id != "":
		r.add(Assistant, Item{Kind: Call, ID: id, Name: i.tool(), Value: i.input()})
	}
}

func (i item) isCall() bool { return i.isApproval() || strings.HasSuffix(i.text("type"), "_call") }

// isApproval reports that the model waits for the client to approve the call of a tool of an MCP server, which OpenAI
// then executes.
func (i item) isApproval() bool { return i.text("type") == "mcp_approval_request" }

// id returns the id by which a result names the call, "" for one that OpenAI executes.
func (i item) id() string {
	if i.isApproval() {
		return i.text("id")
	}
	return i.text("call_id")
}

func (i item) isCustom() bool { return i.text("type") == "custom_tool_call" }

// tool returns the name of the tool of a call. Those of OpenAI have no name but their type.
func (i item) tool() string {
	if i.isApproval() {
		return i.text("type")
	}
	return cmp.Or(i.text("name"), strings.TrimSuffix(i.text("type"), "_call"))
}

// input returns the input of a call.
func (i item) input() json.RawMessage {
	arguments, code := i.text("arguments"), i.text("code")
	switch {
	case i.isApproval():
		asked, _ := json.Marshal(map[string]any{"server": i.text("server_label"), "tool": i.text("name"),
			"arguments": Input(arguments)})
		return asked
	case i.isCustom():
		return Quote(i.text("input"))
	case arguments != "":
		return Input(arguments)
	case code != "":
		return Quote(code)
	}
	return cmp.Or(i.get("action", "operation", "queries"), "{}").raw()
}

// result returns the result of a call that OpenAI executed.
func (i item) result() (out json.RawMessage, failed bool) {
	if e := i.get("error"); e != "" {
		_, text := errorOf(e)
		return Quote(cmp.Or(text, string(e))), true
	}
	out = json.RawMessage("null")
	if v := i.get("output", "outputs", "results"); v != "" {
		out = outputOf(v, "", "input_text")
	}
	return out, i.text("status") == "failed"
}

var background = lazy.Regexp(`/responses/([^/]+)(?:/cancel)?/?$`)

// BackgroundOf returns the id of the response that a request with a path asks for, or cancels, "" for another path. The
// answer that the model makes in the background is had so.
func BackgroundOf(path string) string {
	if m := background().FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}

type responsesAnswer struct {
	a *Answer
	// done are the indexes of the items that are whole.
	done map[int]bool
}

func (d *responsesAnswer) Body(data []byte) {
	if r := parse(data); r != nil {
		d.end(r)
	}
}

func (d *responsesAnswer) Event(_ string, data []byte) {
	e := parse(data)
	output := int(e.count("output_index"))
	grow := func(kind Kind, part string) {
		d.a.add(d.a.block(responsesKey(output, int(e.count(part))), kind), e.text("delta"))
	}
	switch e.text("type") {
	case "response.output_text.delta", "response.refusal.delta":
		grow(Text, "content_index")
	case "response.reasoning_summary_text.delta":
		grow(Reasoning, "summary_index")
	case "response.reasoning_text.delta":
		grow(Reasoning, "content_index")
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		grow(Call, "")
	case "response.output_item.added":
		d.added(output, item{e.in("item")})
	case "response.output_item.done":
		d.item(output, item{e.in("item")})
	case "response.completed", "response.incomplete", "response.failed":
		if r := e.in("response"); r != nil {
			d.end(r)
			d.a.Complete = true
		}
	case "error":
		if !d.a.failed(e) {
			d.a.fail(e.text("code"), e.text("message"))
		}
	}
}

// SameItem reports whether two blocks are parts of one item of an output of the Responses API.
func (b *Block) SameItem(other *Block) bool { return b.key>>16 == other.key>>16 }

// responsesKey returns the key of a content or a summary of an item.
func responsesKey(output, part int) int { return output<<16 | part&0xffff }

// added names a call whose input follows, in case that the stream ends before it is whole.
func (d *responsesAnswer) added(index int, i item) {
	if id := i.id(); i.isCall() && id != "" {
		b := d.a.block(responsesKey(index, 0), Call)
		b.ID, b.Name, b.isText = id, i.tool(), i.isCustom()
	}
}

// item takes an item that is whole.
func (d *responsesAnswer) item(index int, i item) {
	if d.done[index] || i.object == nil {
		return
	}
	if d.done == nil {
		d.done = make(map[int]bool)
	}
	d.done[index] = true
	switch kind := i.text("type"); {
	case kind == "message":
		d.parts(index, Text, i.get("content"))
	case kind == "reasoning":
		summary := i.get("summary")
		if len(summary.elements()) == 0 {
			summary = i.get("content")
		}
		d.parts(index, Reasoning, summary)
	case i.isCall():
		b := d.a.block(responsesKey(index, 0), Call)
		id := i.id()
		b.isText = false
		server := id == "" && kind != "function_call"
		if server {
			id = i.text("id")
		}
		d.a.call(b, id, i.tool(), i.input(), server)
		if server {
			out, failed := i.result()
			d.a.Sink.Output(b.ID, out, failed)
		}
	}
}

func (d *responsesAnswer) parts(index int, kind Kind, content value) {
	if content.isText() { // as compatible servers have it
		d.a.whole(d.a.block(responsesKey(index, 0), kind), content.text())
	}
	for k, p := range content.objects() {
		d.a.whole(d.a.block(responsesKey(index, k), kind), p.text("text", "refusal"))
	}
}

func (d *responsesAnswer) end(r object) {
	for k, i := range r.get("output").elements() {
		d.item(k, item{i.value.object()})
	}
	status := r.text("status")
	d.a.ID, d.a.Model = r.text("id"), r.text("model")
	if d.a.Paused = status == "queued" || status == "in_progress"; d.a.Paused {
		d.a.Continuation = d.a.ID
	}
	d.a.Stop = cmp.Or(r.in("incomplete_details").text("reason"), status)
	d.a.Ended = true
	if !d.a.failed(r) && status == "failed" {
		d.a.fail("failed", "")
	}
	d.a.Usage = openAIUsage(r.get("usage"), "input", "output")
}
