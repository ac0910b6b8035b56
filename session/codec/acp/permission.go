package acp

import (
	"slices"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// permission takes a question to the user.
func (d *decoder) permission(x *exchange, m *message) {
	c := x.c
	id := askedAbout(m.params)
	call := m.params.Object("toolCall")
	if call == nil {
		call = m.params.Object("subject").Object("toolCall") // version 2 of the protocol
	}
	if id != "" {
		d.tool(c, id, call, m.at)
	}
	x.part = c.part(rows.DataPart(typePermission, m.params.Without("sessionId")), m.at)
	q := &question{toolID: id}
	q.decision = store.Decision{
		ID:        spans.DeriveID(spans.PrefixPermission, m.at, x.part.Row.ID),
		SessionID: c.b.Row.ID, MessageID: x.part.Row.MessageID, ToolCallID: id,
		ToolID: toolName(call), Action: "ask", Outcome: "pending", DecidedAt: m.at,
	}
	q.approval.id = q.decision.ID
	for _, raw := range rows.Elements(m.params.Get("options")) {
		q.options = append(q.options, rows.Read(string(raw)))
	}
	c.asked = append(c.asked, q)
	x.ask = q
}

// answers are what the kinds of options mean.
var answers = map[string]struct{ outcome, reply, reason string }{
	"allow_once": {"allowed", "once", ""}, "allow_always": {"allowed", "always", ""},
	"reject_once": {"denied", "reject", ""}, "reject_always": {"denied", "reject", "reject_always"},
}

func (d *decoder) outcome(x *exchange, m *message, result rows.Object) {
	q, o := x.ask, &x.ask.decision
	outcome := result.Object("outcome")
	switch kind := outcome.Text("outcome"); {
	case m.err != nil:
		d.problem("the question was answered with an error: its outcome is unknown")
		q.approval.canceled = true
		return
	case kind == "cancelled":
		q.approval.canceled = true
		o.Outcome, o.Reason = "denied", kind
	case kind == "selected":
		id := outcome.Text("optionId")
		i := slices.IndexFunc(q.options, func(option rows.Object) bool { return option.Text("optionId") == id })
		if i < 0 {
			d.problem("option %q was not offered: the outcome is unknown", id)
			return
		}
		a, known := answers[q.options[i].Text("kind")]
		if !known {
			d.problem("option of kind %q: the outcome is unknown", q.options[i].Text("kind"))
			return
		}
		o.Outcome, o.Reply, o.Reason = a.outcome, a.reply, a.reason
		q.approval.answered, q.approval.approved = true, a.outcome == "allowed"
	default:
		d.problem("outcome %q is unknown", kind)
		return
	}
	o.DecidedAt = m.at
	if m.timed && m.at >= x.at {
		o.WaitedMS = new(m.at - x.at)
	}
}
