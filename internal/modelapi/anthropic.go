package modelapi

import "encoding/json"

var anthropicForm = form{
	messages: "messages", model: "model", variant: "output_config.effort", temperature: "temperature",
	limit: "max_tokens", shape: "output_config.format", system: "system", tools: "tools",
}

type anthropicAnswer struct {
	a *Answer
	// counts are the members of the usage, which comes in pieces.
	counts map[string]json.RawMessage
}

func (d *anthropicAnswer) Body(data []byte) {
	m := parse(data)
	if m == nil || d.a.failed(m) {
		return
	}
	d.begin(m)
	for i, b := range m.get("content").objects() {
		d.start(i, b)
		d.a.closeAt(i)
	}
	d.a.Stop = m.text("stop_reason")
	d.end()
}

func (d *anthropicAnswer) begin(m object) {
	d.a.ID, d.a.Model = m.text("id"), m.text("model")
	d.count(m.in("usage"))
}

// count sets counts of the usage: the later one of a name replaces the earlier one. An answer that breaks off has
// the usage that was sent until then.
func (d *anthropicAnswer) count(usage object) {
	if usage != nil && d.counts == nil {
		d.counts = make(map[string]json.RawMessage)
	}
	for _, m := range usage {
		if m.value != "" {
			d.counts[m.name] = m.value.raw()
		}
	}
	raw, err := json.Marshal(d.counts)
	u := parse(raw)
	if err != nil || u.get("input_tokens") == "" {
		return
	}
	output := u.count("output_tokens")
	thinking := min(u.count("output_tokens_details.thinking_tokens"), output)
	sum := &Usage{
		Basis: Exclusive, Input: u.count("input_tokens"), Output: output - thinking, Reasoning: thinking,
		CacheRead: u.count("cache_read_input_tokens"), CacheWrite: u.count("cache_creation_input_tokens"), Raw: raw,
	}
	for _, i := range u.get("iterations").objects() {
		if i.text("type") == "compaction" { // which is not in the counts above
			sum.Input += i.count("input_tokens")
			sum.Output += i.count("output_tokens")
			sum.CacheRead += i.count("cache_read_input_tokens")
			sum.CacheWrite += i.count("cache_creation_input_tokens")
		}
	}
	d.a.Usage = sum
}

func (d *anthropicAnswer) Event(_ string, data []byte) {
	e := parse(data)
	d.a.failed(e)
	index := int(e.count("index"))
	switch e.text("type") {
	case "message_start":
		if m := e.in("message"); m != nil {
			d.begin(m)
		}
	case "content_block_start":
		d.start(index, e.in("content_block"))
	case "content_block_delta":
		switch delta := e.in("delta"); delta.text("type") {
		case "text_delta":
			d.a.add(d.a.block(index, Text), delta.text("text"))
		case "thinking_delta":
			d.a.add(d.a.block(index, Reasoning), delta.text("thinking"))
		case "signature_delta":
			d.a.block(index, Reasoning).Signature += delta.text("signature")
		case "input_json_delta":
			d.a.add(d.a.block(index, Call), delta.text("partial_json"))
		}
	case "content_block_stop":
		d.a.closeAt(index)
	case "message_delta":
		if stop := e.in("delta").text("stop_reason"); stop != "" {
			d.a.Stop = stop
		}
		d.count(e.in("usage"))
	case "message_stop":
		d.end()
		d.a.Complete = true
	}
}

// start begins a block. In a stream its content is empty, and follows.
func (d *anthropicAnswer) start(index int, b object) {
	kind := b.text("type")
	switch kind {
	case "text":
		d.a.add(d.a.block(index, Text), b.text("text"))
	case "thinking", "redacted_thinking":
		r := d.a.block(index, Reasoning)
		r.Signature, r.Redacted = b.text("signature"), b.text("data")
		d.a.add(r, b.text("thinking"))
	case "tool_use", "server_tool_use", "mcp_tool_use":
		c := d.a.block(index, Call)
		c.ID, c.Name, c.Server = b.text("id"), b.text("name"), kind != "tool_use"
		if input := b.get("input"); input != "{}" {
			d.a.add(c, string(input))
		}
	default:
		if id := b.text("tool_use_id"); id != "" { // the result of a tool that Anthropic executes
			content := b.get("content")
			failed := b.isTrue("is_error") || content.object().text("error_code") != ""
			d.a.Sink.Output(id, outputOf(content, "\n\n", "text"), failed)
		}
	}
}

func (d *anthropicAnswer) end() {
	d.a.Ended = true
	d.a.Paused = d.a.Stop == "pause_turn"
}
