package modelapi

import (
	"bytes"
	"cmp"
)

var chatForm = form{
	messages: "messages", model: "model", variant: "reasoning_effort", temperature: "temperature",
	limit: "max_completion_tokens max_tokens", shape: "response_format", tools: "tools", add: addChat,
}

func addChat(r *Request, m object) {
	switch m.text("role") {
	case "tool", "function":
		r.add(User, Item{Kind: Result, ID: m.text("tool_call_id"), Name: m.text("name"),
			Value: outputOf(m.get("content"), "", "text", "")})
	case "assistant":
		r.addText(Assistant, chatText(m))
		for _, c := range m.get("tool_calls").objects() {
			f := c.in("function")
			i := Item{Kind: Call, ID: c.text("id"), Name: f.text("name"), Value: Input(f.text("arguments"))}
			if custom := c.in("custom"); custom != nil {
				i.Name, i.Value = custom.text("name"), Quote(custom.text("input"))
			}
			r.add(Assistant, i)
		}
	default:
		r.addMessage(m)
	}
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
	// Compatible servers have reasoning, under two names.
	if reasoning := m.text("reasoning_content", "reasoning"); reasoning != "" {
		d.a.add(d.a.block(chatReasoning, Reasoning), reasoning)
	}
	if text := chatText(m); text != "" {
		d.a.close(d.a.block(chatReasoning, Reasoning)) // which the text ends
		d.a.add(d.a.block(chatContent, Text), text)
	}
	for _, c := range m.get("tool_calls").objects() {
		id, f, custom := c.text("id"), c.in("function"), c.in("custom")
		name := cmp.Or(custom.text("name"), f.text("name"))
		b := d.called(c.get("index"), id, name)
		b.ID, b.isText = cmp.Or(id, b.ID), b.isText || custom != nil
		b.Name = cmp.Or(name, b.Name)
		d.a.add(b, f.text("arguments"))
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
