package acp

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// callOf returns the protocol's fields of a call.
func callOf(p *session.Part, data rows.Object) rows.Object {
	meta := metaOf(data)
	call := rows.Object{}
	name, named := strings.CutPrefix(p.Type, "tool-")
	if !named {
		name = data.Text("toolName")
	}
	if meta == nil {
		call.Set("title", name)
		call.Set("name", name)
		call.Set("kind", kindOf(name))
		if text := data.Text("errorText"); text != "" {
			call.Set("rawOutput", text)
		} else if reason := data.Object("approval").Text("reason"); data.Text("state") == session.StateOutputDenied && reason != "" {
			call.Set("rawOutput", reason)
		}
		call.Set("status", map[string]string{
			session.StateOutputAvailable: "completed", session.StateOutputError: "failed", session.StateOutputDenied: "failed",
			session.StateInputAvailable: "in_progress", session.StateApprovalResponded: "in_progress",
		}[data.Text("state")])
		if call.Text("status") == "" {
			call.Set("status", "pending")
		}
	}
	call = merge(call, meta)
	if input := data.Get("input"); input != nil && string(input) != "null" {
		call.Set("rawInput", input)
	}
	withheldInput, withheldOutput := codec.Withheld(p)
	if withheldInput && meta == nil {
		call.Set("rawInput", codec.WithheldText)
	}
	if withheldOutput {
		call.Set("rawOutput", codec.WithheldText)
		return merge(call, nil)
	}
	output := data.Get("output")
	if data.Text("state") == session.StateOutputAvailable && string(output) != string(contentOutput(call)) {
		call.Set("rawOutput", output)
	}
	return merge(call, nil)
}

// kindOf guesses what kind of tool a name means.
func kindOf(name string) string {
	name = strings.ToLower(name)
	for _, k := range [...]struct{ word, kind string }{
		{"read", "read"}, {"edit", "edit"}, {"write", "edit"}, {"patch", "edit"}, {"delete", "delete"}, {"move", "move"},
		{"grep", "search"}, {"glob", "search"}, {"search", "search"}, {"bash", "execute"}, {"shell", "execute"},
		{"exec", "execute"}, {"run", "execute"}, {"fetch", "fetch"}, {"think", "think"},
	} {
		if strings.Contains(name, k.word) {
			return k.kind
		}
	}
	return "other"
}

// tool writes a call and returns the update that ends it, nil when there is none.
// asked says that a question about it follows, after which everything that is
// known of it is to be said again.
func (e *encoder) tool(p *session.Part, data rows.Object, asked bool) (end rows.Object) {
	call := callOf(p, data)
	status := call.Text("status")
	final := status != "" && status != "pending" && status != "in_progress"
	begin := call.Without("params")
	if final {
		begin = call.Without("params", "status", "content", "rawOutput")
		begin.Set("status", "pending")
		begin = merge(begin, nil)
	}
	var update rows.Object
	update.Set("sessionUpdate", "tool_call")
	if e.version2 {
		update.Set("sessionUpdate", "tool_call_update")
	}
	update.Set("toolCallId", e.callID(p))
	if title := call.Get("title"); title == nil && !e.version2 {
		if e.foreign {
			update.Set("title", toolName(call))
		} else {
			// Nobody said what the call is titled, so nothing but updates did come.
			update.Set("sessionUpdate", "tool_call_update")
		}
	}
	e.update(append(update, begin...), call.Object("params"))
	if e.foreign {
		e.approval(p, data)
	}
	if !final && !asked {
		return nil
	}
	end.Set("toolCallId", e.callID(p))
	if asked {
		return append(end, call...)
	}
	for _, key := range [...]string{"status", "content", "rawOutput"} {
		if v := call.Get(key); v != nil {
			end.Set(key, v)
		}
	}
	return end
}

func (e *encoder) toolUpdate(end rows.Object) {
	update := rows.Object{}
	update.Set("sessionUpdate", "tool_call_update")
	e.update(append(update, end.Without("params")...), end.Object("params"))
}

// approval writes the questions about a call that no part tells of: those that its
// decisions were, and else the one that its approval was. What a rule allowed or denied
// asked nobody, and is no message of the protocol.
func (e *encoder) approval(p *session.Part, data rows.Object) {
	if e.questioned(e.callID(p)) {
		return
	}
	asked := e.asked(p)
	for i := range asked {
		d := &asked[i]
		option, canceled := "", false
		switch {
		case d.Outcome == "allowed" && d.Reply == "always":
			option = "allow_always"
		case d.Outcome == "allowed":
			option = "allow"
		case d.Outcome == "denied" && d.Reply == "" && strings.HasPrefix(d.Reason, "cancel"):
			canceled = true
		case d.Outcome == "denied":
			option = "reject"
		}
		e.ask(p, option, canceled)
	}
	if approval := data.Object("approval"); approval != nil && len(asked) == 0 {
		e.ask(p, map[string]string{"true": "allow", "false": "reject"}[string(approval.Get("approved"))], false)
	}
}

// questioned says whether a part is a question about the call.
func (e *encoder) questioned(callID string) bool {
	for i := range e.t.Messages {
		for j := range e.t.Messages[i].Parts {
			q := &e.t.Messages[i].Parts[j]
			if q.Type != typePermission {
				continue
			}
			o, _ := rows.Parse([]byte(q.DataJSON)) // unreadable: asks nothing
			if askedAbout(o.Object("data")) == callID {
				return true
			}
		}
	}
	return false
}

// asked are the decisions about a call for which a human was asked, in their order.
func (e *encoder) asked(p *session.Part) (found []store.Decision) {
	for _, d := range e.s.Decisions {
		about := d.PartID == p.ID || d.PartID == "" && d.ToolCallID == *p.ToolCallID && (d.MessageID == "" || d.MessageID == p.MessageID)
		if about && d.Action == "ask" {
			found = append(found, d)
		}
	}
	slices.SortStableFunc(found, func(a, b store.Decision) int {
		return cmp.Or(cmp.Compare(a.DecidedAt, b.DecidedAt), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// ask writes a question about the call and the answer, if there was one.
func (e *encoder) ask(p *session.Part, option string, canceled bool) {
	params := rows.Object{}
	params.Set("sessionId", e.t.Session.ID)
	params.Set("toolCall", rows.Object{{Key: "toolCallId", Value: quoted(*p.ToolCallID)}})
	params.Set("options", json.RawMessage(`[{"optionId":"allow","name":"Allow","kind":"allow_once"},`+
		`{"optionId":"allow_always","name":"Always allow","kind":"allow_always"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]`))
	id := e.request(agent, methodPermission, params)
	switch {
	case canceled:
		e.respond(id, "result", json.RawMessage(`{"outcome":{"outcome":"cancelled"}}`))
	case option != "":
		e.respond(id, "result", json.RawMessage(`{"outcome":{"outcome":"selected","optionId":"`+option+`"}}`))
	}
}

// askedAbout returns the id of the call that a question is about.
func askedAbout(params rows.Object) string {
	if id := params.Object("toolCall").Text("toolCallId"); id != "" {
		return id
	}
	subject := params.Object("subject")
	if id := subject.Object("toolCall").Text("toolCallId"); id != "" {
		return id
	}
	return subject.Text("toolCallId")
}

func (e *encoder) permission(p *session.Part, data rows.Object) {
	inner := data.Object("data")
	params := rows.Object{{Key: "sessionId", Value: quoted(e.t.Session.ID)}}
	params = append(params, inner.Without("sessionId", "outcome", "response", "error")...)
	id := e.request(agent, methodPermission, params)
	result := rows.Object{}
	if outcome := inner.Get("outcome"); outcome != nil {
		result.Set("outcome", outcome)
	}
	if result = append(result, inner.Object("response").Without("outcome")...); len(result) > 0 {
		e.respond(id, "result", result.JSON())
	} else if raw := inner.Get("error"); raw != nil {
		e.respond(id, "error", raw)
	}
}
