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
	call := m.params.Object("toolCall")
	if call == nil {
		if subject := m.params.Object("subject"); subject.Object("toolCall") != nil {
			call = subject.Object("toolCall")
		} else if subject.Text("toolCallId") != "" {
			call = rows.Object{{Key: "toolCallId", Value: subject.Get("toolCallId")}}
		}
	}
	id := call.Text("toolCallId")
	if id != "" {
		d.tool(c, id, call, m.at)
	}
	x.part = c.part(dataPart(typePermission, m.params.Without("sessionId")), m.at)
	q := &question{toolID: id}
	q.decision = store.Decision{
		ID:        spans.DeriveID(spans.PrefixPermission, m.at, x.part.Row.ID),
		SessionID: c.b.Row.ID, MessageID: x.part.Row.MessageID, ToolCallID: id,
		ToolID: toolName(call), Action: "ask", Outcome: "pending", DecidedAt: m.at,
	}
	q.approval.id = q.decision.ID
	for _, raw := range rows.Elements(m.params.Get("options")) {
		if o, err := rows.Parse(raw); err == nil {
			q.options = append(q.options, o)
		}
	}
	c.asked = append(c.asked, q)
	x.ask = q
}

func (d *decoder) outcome(x *exchange, m *message, result rows.Object) {
	q, o := x.ask, &x.ask.decision
	outcome := result.Object("outcome")
	switch {
	case m.err != nil:
		d.problem("the question was answered with an error: its outcome is unknown")
		q.approval.canceled = true
		return
	case outcome.Text("outcome") == "cancelled":
		q.approval.canceled = true
		o.Outcome, o.Reason = "denied", "cancelled"
	case outcome.Text("outcome") == "selected":
		i := slices.IndexFunc(q.options, func(option rows.Object) bool { return option.Text("optionId") == outcome.Text("optionId") })
		if i < 0 {
			d.problem("option %q was not offered: the outcome is unknown", outcome.Text("optionId"))
			return
		}
		switch kind := q.options[i].Text("kind"); kind {
		case "allow_once", "allow_always":
			o.Outcome, o.Reply = "allowed", map[string]string{"allow_once": "once", "allow_always": "always"}[kind]
			q.approval.answered, q.approval.approved = true, true
		case "reject_once", "reject_always":
			o.Outcome, o.Reply = "denied", "reject"
			if kind == "reject_always" {
				o.Reason = kind
			}
			q.approval.answered = true
		default:
			d.problem("option of kind %q: the outcome is unknown", kind)
			return
		}
	default:
		d.problem("outcome %q is unknown", outcome.Text("outcome"))
		return
	}
	o.DecidedAt = m.at
	if m.timed && m.at >= x.at {
		o.WaitedMS = new(m.at - x.at)
	}
}
