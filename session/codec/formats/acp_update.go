package formats

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// update takes a session/update.
func (d *acpDecoder) update(c *acpConversation, m *acpMessage) {
	if c.replaying {
		c.replayed++
		return
	}
	update := m.params.Object("update")
	kind := update.Text("sessionUpdate")
	switch {
	case update == nil:
		d.problem("update is not an object: left out")
		return
	case d.content(c, kind, update, m.at):
		return
	case !slices.Contains(acpDataUpdates, kind):
		c.part(rows.DataPart(acpTypeUpdate, update), m.at)
		return
	}
	d.effect(c, kind, update)
	p := c.part(rows.DataPart("data-"+kind, update.Without("sessionUpdate")), m.at)
	if stop := update.Text("stopReason"); kind == "state_update" && update.Text("state") == "idle" && stop != "" {
		acpEndTurn(p.Message(), stop)
		if stop == "error" {
			acpFailTurn(p.Message(), rows.OrNull(update.Get("error")))
		}
		if m.timed && c.promptTimed && m.at >= c.promptAt {
			p.Message().SetTrace("duration_ms", m.at-c.promptAt)
		}
		c.promptTimed = false
	}
}

// content takes an update of what is said or called, or a compaction that is completed,
// and reports whether it is one.
func (d *acpDecoder) content(c *acpConversation, kind string, update rows.Object, at int64) bool {
	switch kind {
	case acpUserChunk, acpAgentChunk, acpThoughtChunk:
		if !update.Has("content") {
			return false
		}
		d.chunk(c, kind, update.Text("messageId"), update.Get("content"), at)
	case "user_message", "agent_message", "agent_thought":
		return d.message2(c, kind, update, at)
	case "tool_call", "tool_call_update":
		id := update.Text("toolCallId")
		if id == "" {
			return false
		}
		d.tool(c, id, update, at)
	case "tool_call_content_chunk":
		t := c.tools[update.Text("toolCallId")]
		if t == nil || !update.Has("content") {
			return false
		}
		content := append(rows.Elements(t.call.Get("content")), update.Get("content"))
		d.tool(c, t.id, rows.Of("content", content), at)
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

// effect is what an update reports of the session itself.
func (d *acpDecoder) effect(c *acpConversation, kind string, update rows.Object) {
	switch kind {
	case "compaction_summary_chunk":
		c.summaries[update.Text("compactionId")] += update.Object("content").Text("text")
	case "session_info_update":
		c.b.Row.Title = cmp.Or(update.Text("title"), c.b.Row.Title)
	case "current_mode_update":
		rows.SetText(&c.b.Row.Mode, update.Text("currentModeId"))
	case "usage_update":
		cost := update.Object("cost")
		var amount float64
		if cost.Text("currency") == "USD" && json.Unmarshal(cost.Get("amount"), &amount) == nil && amount >= 0 {
			c.b.Row.CostUSD = amount
		}
	}
}

// chunk adds a chunk to the part that it continues, or begins one.
func (d *acpDecoder) chunk(c *acpConversation, kind, id string, content json.RawMessage, at int64) {
	block := rows.Read(string(content))
	text := block.Text("text")
	if kind == acpUserChunk && acpIsText(block) && c.echoes(text) {
		return
	}
	c.arrived[id] = true
	if c.open != nil && acpIsText(block) && c.openKind == kind && c.openID == id {
		c.text = append(c.text, text...)
		c.open.Touch(at)
		return
	}
	c.close()
	var m *rows.Message
	typ := "text"
	switch kind {
	case acpUserChunk:
		m = c.replayedMessage(id, at)
	case acpThoughtChunk:
		typ = "reasoning"
		fallthrough
	default:
		m = c.reply(at)
		c.prompt = ""
	}
	p := m.Part(acpContentData(typ, content), at)
	if acpIsText(block) && text != codec.WithheldText {
		c.open, c.openKind, c.openID, c.text = p, kind, id, []byte(text)
	}
}

// echoes reports whether a text repeats the prompt that the agent was just given.
func (c *acpConversation) echoes(text string) bool {
	if text == "" || c.prompt == "" || c.assistant != nil || !strings.HasPrefix(c.prompt, c.echo+text) {
		return false
	}
	c.echo += text
	return true
}

// replayedMessage returns the user message that a replayed chunk belongs to.
func (c *acpConversation) replayedMessage(id string, at int64) *rows.Message {
	if c.user == nil || c.assistant != nil || c.history != c.user || c.historyID != id {
		c.turns++
		c.user, c.assistant, c.prompt = c.b.Message(session.RoleUser, at), nil, ""
		c.history, c.historyID = c.user, id
	}
	return c.user
}

// close ends the part that chunks were added to.
func (c *acpConversation) close() {
	if c.open != nil {
		c.open.Set(rows.TextPart(c.open.Row.Type, string(c.text)))
	}
	c.open = nil
}

// message2 takes a message of version 2 of the protocol that comes in one piece. It
// is the chunks that it consists of, unless chunks of it are already there.
func (d *acpDecoder) message2(c *acpConversation, kind string, update rows.Object, at int64) bool {
	id := update.Text("messageId")
	blocks := rows.Elements(update.Get("content"))
	if id == "" || blocks == nil {
		return false
	}
	if c.arrived[id] {
		return true
	}
	for _, raw := range blocks {
		d.chunk(c, kind+"_chunk", id, raw, at)
	}
	return true
}

// tool merges an update into the call that it is about.
func (d *acpDecoder) tool(c *acpConversation, id string, update rows.Object, at int64) {
	c.close()
	c.prompt = ""
	t := c.tools[id]
	if t == nil {
		t = &acpTool{id: id}
		t.part = c.reply(at).Part(acpToolData(id, nil, nil), at)
		c.tools[id] = t
		c.order = append(c.order, t)
	}
	t.call = acpMerge(t.call, update)
	t.part.Touch(at)
}

// compaction gives a compaction an assistant message of its own, as the agent
// guide requires; the rest of the turn is in another.
func (d *acpDecoder) compaction(c *acpConversation, update rows.Object, at int64) {
	c.close()
	var summary strings.Builder
	for _, raw := range rows.Elements(update.Get("summary")) {
		summary.WriteString(rows.Read(string(raw)).Text("text"))
	}
	if summary.Len() == 0 {
		summary.WriteString(c.summaries[update.Text("compactionId")])
	}
	inner := rows.Of("summary", summary.String(), "tail_start_id", nil, "auto", true, "summary_tokens", 0)
	c.b.Message(session.RoleAssistant, at).Part(rows.DataPart(session.TypeCompaction, inner), at)
	c.assistant = nil
}

// permission takes a question to the user.
func (d *acpDecoder) permission(x *acpExchange, m *acpMessage) {
	c := x.c
	id := acpAskedAbout(m.params)
	call := m.params.Object("toolCall")
	if call == nil {
		call = m.params.Object("subject").Object("toolCall") // version 2 of the protocol
	}
	if id != "" {
		d.tool(c, id, call, m.at)
	}
	x.part = c.part(rows.DataPart(acpTypePermission, m.params.Without("sessionId")), m.at)
	q := &acpQuestion{toolID: id}
	q.decision = store.Decision{
		ID:        spans.DeriveID(spans.PrefixPermission, m.at, x.part.Row.ID),
		SessionID: c.b.Row.ID, MessageID: x.part.Row.MessageID, ToolCallID: id,
		ToolID: acpToolName(call), Action: "ask", Outcome: "pending", DecidedAt: m.at,
	}
	for _, raw := range rows.Elements(m.params.Get("options")) {
		q.options = append(q.options, rows.Read(string(raw)))
	}
	c.asked = append(c.asked, q)
	x.ask = q
}

// acpAnswers are what the kinds of options mean.
var acpAnswers = map[string]struct{ outcome, reply, reason string }{
	"allow_once": {"allowed", "once", ""}, "allow_always": {"allowed", "always", ""},
	"reject_once": {"denied", "reject", ""}, "reject_always": {"denied", "reject", "reject_always"},
}

func (d *acpDecoder) outcome(x *acpExchange, m *acpMessage, result rows.Object) {
	q, o := x.ask, &x.ask.decision
	outcome := result.Object("outcome")
	switch kind := outcome.Text("outcome"); {
	case m.err != nil:
		d.problem("the question was answered with an error: its outcome is unknown")
		q.canceled = true
		return
	case kind == "cancelled":
		q.canceled = true
		o.Outcome, o.Reason = "denied", kind
	case kind == "selected":
		id := outcome.Text("optionId")
		i := slices.IndexFunc(q.options, func(option rows.Object) bool { return option.Text("optionId") == id })
		if i < 0 {
			d.problem("option %q was not offered: the outcome is unknown", id)
			return
		}
		a, known := acpAnswers[q.options[i].Text("kind")]
		if !known {
			d.problem("option of kind %q: the outcome is unknown", q.options[i].Text("kind"))
			return
		}
		o.Outcome, o.Reply, o.Reason = a.outcome, a.reply, a.reason
		q.answered, q.approved = true, a.outcome == "allowed"
	default:
		d.problem("outcome %q is unknown", kind)
		return
	}
	o.DecidedAt = m.at
	if m.timed && m.at >= x.at {
		o.WaitedMS = new(m.at - x.at)
	}
}
