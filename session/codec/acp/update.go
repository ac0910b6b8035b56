package acp

import (
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// update takes a session/update.
func (d *decoder) update(x *exchange, m *message) {
	c := x.c
	if c.replaying {
		c.replayed++
		return
	}
	update := m.params.Object("update")
	kind := update.Text("sessionUpdate")
	extra := m.params.Without("sessionId", "update")
	if d.content(c, kind, update, extra, m.at) {
		return
	}
	if _, known := dataUpdates[kind]; !known {
		if update == nil {
			d.problem("update is not an object")
		}
		x.part = c.part(withMeta(dataPart(typeUpdate, rawUpdate(m, update)), "", extra), m.at)
		return
	}
	d.effect(c, kind, update)
	p := c.part(withMeta(dataPart("data-"+kind, update.Without("sessionUpdate")), "", extra), m.at)
	if stop := update.Text("stopReason"); kind == "state_update" && update.Text("state") == "idle" && stop != "" {
		c.prompting = false
		endTurn(p.Message(), stop)
		if stop == "error" {
			failTurn(p.Message(), orNull(update.Get("error")))
		}
		if m.timed && c.promptTimed && m.at >= c.promptAt {
			p.Message().SetTrace("duration_ms", m.at-c.promptAt)
		}
		c.promptTimed = false
	}
}

// content takes an update of what is said or called, or a compaction that is completed,
// and says whether it is one.
func (d *decoder) content(c *conversation, kind string, update, extra rows.Object, at int64) bool {
	switch kind {
	case userChunk, agentChunk, thoughtChunk:
		if !update.Has("content") {
			return false
		}
		d.chunk(c, kind, update, extra, at)
	case "user_message", "agent_message", "agent_thought":
		return d.whole(c, kind, update, at)
	case "tool_call", "tool_call_update":
		id := update.Text("toolCallId")
		if id == "" {
			return false
		}
		if len(extra) > 0 {
			update.Set("params", extra)
		}
		d.tool(c, id, update, at)
	case "tool_call_content_chunk":
		t := c.tools[update.Text("toolCallId")]
		if t == nil || !update.Has("content") {
			return false
		}
		content := append(rows.Elements(t.call.Get("content")), update.Get("content"))
		raw, _ := rows.Marshal(content) // came from JSON
		d.tool(c, t.id, rows.Object{{Key: "content", Value: raw}}, at)
	case "compaction_update":
		if update.Text("status") != "completed" {
			return false
		}
		d.compaction(c, update, at)
	default:
		return false
	}
	return true
}

func rawUpdate(m *message, update rows.Object) rows.Object {
	if update != nil {
		return update
	}
	var o rows.Object
	o.Set("update", orNull(m.params.Get("update")))
	return o
}

// effect is what an update says of the session itself.
func (d *decoder) effect(c *conversation, kind string, update rows.Object) {
	switch kind {
	case "compaction_summary_chunk":
		c.summaries[update.Text("compactionId")] += update.Object("content").Text("text")
	case "session_info_update":
		if title := update.Text("title"); title != "" {
			c.b.Row.Title = title
		}
	case "current_mode_update":
		if mode := update.Text("currentModeId"); mode != "" {
			c.b.Row.Mode = &mode
		}
	case "usage_update":
		cost := update.Object("cost")
		var amount float64
		if cost.Text("currency") == "USD" && json.Unmarshal(cost.Get("amount"), &amount) == nil && amount >= 0 {
			c.b.Row.CostUSD = amount
		}
	}
}

// chunk adds a chunk to the part that it continues, or begins one.
func (d *decoder) chunk(c *conversation, kind string, update, params rows.Object, at int64) {
	extra := update.Without("sessionUpdate", "content")
	if len(params) > 0 {
		extra.Set("params", params)
	}
	content := update.Get("content")
	block, _ := rows.Parse(content) // nil when it is no object
	text, isText := rows.Text(block.Get("text"))
	isText = isText && block.Text("type") == "text"
	if kind == userChunk && d.echoed(c, text, isText) {
		return
	}
	id, rest := update.Text("messageId"), string(block.Without("type", "text").JSON())
	if o := c.open; o != nil && isText && o.kind == kind && o.id == id && (rest == "{}" || rest == o.block) {
		o.text = append(o.text, text...)
		if e := string(extra.JSON()); e != o.first && len(extra.Without("messageId")) > 0 {
			o.chunks = append(o.chunks, extra.JSON())
		}
		o.changed = true
		o.part.Touch(at)
		return
	}
	c.close()
	typ := "text"
	var m *rows.Message
	switch kind {
	case userChunk:
		m = c.replayedMessage(id, at)
	case thoughtChunk:
		typ = "reasoning"
		m = c.reply(at)
	default:
		m = c.reply(at)
	}
	if kind != userChunk {
		c.prompt = ""
	}
	p := m.Part(contentData(typ, kind, content, extra), at)
	if isText && text != codec.WithheldText {
		c.open = &openText{part: p, kind: kind, id: id, block: rest, first: string(extra.JSON()), text: []byte(text)}
	}
}

// echoed says whether a chunk repeats the prompt that the agent was just given.
func (d *decoder) echoed(c *conversation, text string, isText bool) bool {
	if c.prompt == "" || !isText || c.assistant != nil {
		return false
	}
	if text != "" && strings.HasPrefix(c.prompt, c.echo+text) {
		c.echo += text
		return true
	}
	return false
}

// replayedMessage returns the user message that a replayed chunk belongs to.
func (c *conversation) replayedMessage(id string, at int64) *rows.Message {
	if m := c.user; m != nil && c.assistant == nil {
		if o := m.Meta("acp"); string(o.Get("replayed")) == "true" && o.Text("messageId") == id {
			return m
		}
	}
	c.turns++
	c.user, c.assistant, c.prompt = c.b.Message(session.RoleUser, at), nil, ""
	o := rows.Object{}
	o.Set("replayed", true)
	if id != "" {
		o.Set("messageId", id)
	}
	c.user.SetMeta("acp", o)
	return c.user
}

// close ends the part that chunks were added to.
func (c *conversation) close() {
	o := c.open
	if c.open = nil; o == nil || !o.changed {
		return
	}
	data := o.part.Data()
	data.Set("text", string(o.text))
	if o.chunks != nil {
		meta := metaOf(data)
		meta.Set("chunks", o.chunks)
		data = withMeta(data.Without("providerMetadata"), "providerMetadata", meta)
	}
	o.part.Set(data)
}

// whole takes a message of version 2 of the protocol that comes in one piece. It
// is the chunks that it consists of, unless chunks of it are already there.
func (d *decoder) whole(c *conversation, kind string, update rows.Object, at int64) bool {
	id := update.Text("messageId")
	blocks := rows.Elements(update.Get("content"))
	if id == "" || blocks == nil {
		return false
	}
	for _, m := range []*rows.Message{c.user, c.assistant} {
		if m == nil {
			continue
		}
		for _, p := range m.Parts() {
			if metaOf(p.Data()).Object("chunk").Text("messageId") == id {
				return false
			}
		}
	}
	rest := update.Without("content", "sessionUpdate")
	for _, raw := range blocks {
		chunk := rest.Without()
		chunk.Set("content", raw)
		d.chunk(c, kind+"_chunk", chunk, nil, at)
	}
	return true
}

// tool merges an update into the call that it is about.
func (d *decoder) tool(c *conversation, id string, update rows.Object, at int64) {
	c.close()
	c.prompt = ""
	t := c.tools[id]
	if t == nil {
		t = &tool{id: id}
		t.part = c.reply(at).Part(toolData(id, nil, nil), at)
		c.tools[id] = t
		c.order = append(c.order, t)
	}
	t.call = merge(t.call, update)
	t.part.Touch(at)
}

// compaction gives a compaction an assistant message of its own, as the agent
// guide wants it; what follows in the turn stands in another.
func (d *decoder) compaction(c *conversation, update rows.Object, at int64) {
	c.close()
	var summary strings.Builder
	for _, raw := range rows.Elements(update.Get("summary")) {
		block, _ := rows.Parse(raw) // no text in what is no object
		summary.WriteString(block.Text("text"))
	}
	if summary.Len() == 0 {
		summary.WriteString(c.summaries[update.Text("compactionId")])
	}
	inner := rows.Object{}
	inner.Set("summary", summary.String())
	inner.Set("tail_start_id", nil)
	inner.Set("auto", true)
	inner.Set("summary_tokens", 0)
	inner.Set("acp", update.Without("sessionUpdate"))
	c.b.Message(session.RoleAssistant, at).Part(dataPart(session.TypeCompaction, inner), at)
	c.assistant = nil
}
