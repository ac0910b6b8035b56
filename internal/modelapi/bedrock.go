package modelapi

import (
	"cmp"
	"encoding/json"
	"strings"
)

var converseForm = form{
	messages: "messages", temperature: "inferenceConfig.temperature", limit: "inferenceConfig.maxTokens",
	system: "system", tools: "toolConfig.tools",
}

// converseOutput returns the output of a tool: a JSON value, texts, or all blocks if there are images or documents.
func converseOutput(v value) json.RawMessage {
	content := v.objects()
	var text strings.Builder
	for _, c := range content {
		data := c.get("json")
		if !c.get("text").isText() && data == "" {
			return v.raw()
		}
		text.WriteString(cmp.Or(c.text("text"), string(data)))
	}
	switch {
	case v.elements() == nil:
		return v.raw()
	case len(content) == 1 && content[0].get("json") != "":
		return content[0].get("json").raw()
	}
	return output(text.String())
}

type converseAnswer struct{ a *Answer }

func (d *converseAnswer) Body(data []byte) {
	m := parse(data)
	if m == nil {
		return
	}
	for i, b := range m.in("output", "message").get("content").objects() {
		if result := b.in("toolResult"); result != nil {
			d.a.Sink.Output(result.text("toolUseId"), converseOutput(result.get("content")), result.text("status") == "error")
		}
		d.begin(i, b)
		d.delta(i, b)
		d.a.closeAt(i)
	}
	d.a.Stop, d.a.Ended = m.text("stopReason"), true
	d.usage(m.get("usage"))
}

// begin begins a call, if a block is one.
func (d *converseAnswer) begin(index int, block object) {
	if call := block.in("toolUse"); call != nil {
		b := d.a.block(index, Call)
		b.ID, b.Name, b.Server = call.text("toolUseId"), call.text("name"), call.text("type") == "server_tool_use"
	}
}

// delta takes a piece of a block, or a whole one: then the input of a call is JSON, and no text.
func (d *converseAnswer) delta(index int, block object) {
	reasoning, call := block.in("reasoningContent"), block.in("toolUse")
	switch input := call.get("input"); {
	case block.get("text") != "":
		d.a.add(d.a.block(index, Text), block.text("text"))
	case reasoning != nil:
		d.a.add(d.a.block(index, Reasoning), cmp.Or(reasoning.text("text"), reasoning.in("reasoningText").text("text")))
	case input.isText():
		d.a.add(d.a.block(index, Call), input.text())
	case call != nil:
		d.a.add(d.a.block(index, Call), string(input))
	}
}

// Event takes an event of ConverseStream, or of the stream of a Nova model, whose events are the members of an object.
func (d *converseAnswer) Event(name string, data []byte) {
	e := parse(data)
	if name != "" {
		d.event(name, e)
		return
	}
	for _, m := range e {
		d.event(m.name, m.value.object())
	}
}

func (d *converseAnswer) event(name string, e object) {
	index := int(e.count("contentBlockIndex"))
	switch name {
	case "contentBlockStart":
		d.begin(index, e.in("start"))
	case "contentBlockDelta":
		d.delta(index, e.in("delta"))
	case "contentBlockStop":
		d.a.closeAt(index)
	case "messageStop":
		d.a.Stop, d.a.Ended = e.text("stopReason"), true
	case "metadata":
		d.usage(e.get("usage"))
		d.a.Complete = d.a.Ended
	case "exception":
		d.a.failed(e)
	}
}

// usage takes the counts. Those of the cache lie outside of inputTokens, except with models
// for which the total shows otherwise. Nova has other names.
func (d *converseAnswer) usage(v value) {
	u := v.object()
	if u.get("inputTokens") == "" {
		return
	}
	sum := &Usage{
		Basis: Exclusive, Input: u.count("inputTokens"), Output: u.count("outputTokens"), Raw: v.raw(),
		CacheRead:  max(u.count("cacheReadInputTokens"), u.count("cacheReadInputTokenCount")),
		CacheWrite: max(u.count("cacheWriteInputTokens"), u.count("cacheWriteInputTokenCount")),
	}
	total := u.count("totalTokens")
	if sum.CacheRead+sum.CacheWrite > 0 && total > 0 && total == sum.Input+sum.Output {
		sum.Basis = Inclusive
	}
	d.a.Usage = sum
}
