package acp

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// statuses are the statuses of calls by the states of their parts. A call in another state is
// pending.
var statuses = map[string]string{
	session.StateOutputAvailable: "completed", session.StateOutputError: "failed", session.StateOutputDenied: "failed",
	session.StateInputAvailable: "in_progress", session.StateApprovalResponded: "in_progress",
}

// fieldsOf returns the protocol's fields of a call.
func fieldsOf(p *session.Part, data rows.Object) rows.Object {
	call := metaOf(data)
	withheldInput, withheldOutput := codec.Withheld(p)
	if call == nil {
		name, state := rows.ToolName(data), data.Text("state")
		call = rows.Of("title", name, "name", name, "kind", kindOf(name), "status", cmp.Or(statuses[state], "pending"))
		reason := data.Text("errorText")
		if reason == "" && state == session.StateOutputDenied {
			reason = data.Object("approval").Text("reason")
		}
		call.Add(rows.NonEmpty("rawOutput", reason))
		if withheldInput {
			call.Set("rawInput", codec.WithheldText)
		}
	}
	if input := data.Get("input"); input != nil && string(input) != "null" {
		call.Set("rawInput", input)
	}
	output := data.Get("output")
	switch {
	case withheldOutput:
		call.Set("rawOutput", codec.WithheldText)
	case data.Text("state") == session.StateOutputAvailable && string(output) != string(contentOutput(call)):
		call.Set("rawOutput", output)
	}
	return merge(call, nil)
}

// kindOf guesses what kind of tool a name means.
func kindOf(name string) string {
	name = strings.ToLower(name)
	for _, k := range [...]struct{ word, kind string }{
		{"read", "read"}, {"edit", "edit"}, {"write", "edit"}, {"patch", "edit"},
		{"delete", "delete"}, {"move", "move"},
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
// asked reports that a question about it follows, which may have changed every field.
func (e *encoder) tool(p *session.Part, data rows.Object, asked bool) (end rows.Object) {
	call := fieldsOf(p, data)
	begin := call
	status := call.Text("status")
	final := status != "" && status != "pending" && status != "in_progress"
	if final {
		begin = call.Without("content", "rawOutput")
		begin.Set("status", "pending")
	}
	id := rows.Of("toolCallId", e.callID(p))
	kind := "tool_call"
	switch {
	case e.version2, !e.foreign && !call.Has("title"): // the trace had only updates of it
		kind = "tool_call_update"
	case !call.Has("title"):
		id.Set("title", toolName(call))
	}
	e.update(kind, append(id, begin...))
	e.approval(p, data)
	end = rows.Of("toolCallId", e.callID(p))
	switch {
	case asked:
		return append(end, call...)
	case !final:
		return nil
	}
	for _, key := range [...]string{"status", "content", "rawOutput"} {
		if v := call.Get(key); v != nil {
			end.Set(key, v)
		}
	}
	return end
}

// approval writes the questions about a call that no part reports: those that its
// decisions were, and else the one that its approval was. What a rule allowed or denied
// asked nobody, and is no message of the protocol.
func (e *encoder) approval(p *session.Part, data rows.Object) {
	if e.questioned[e.callID(p)] {
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

// asked are the decisions about a call for which a human was asked, in their order.
func (e *encoder) asked(p *session.Part) (found []store.Decision) {
	for _, d := range e.s.Decisions {
		about := d.PartID == p.ID
		if d.PartID == "" && d.ToolCallID == *p.ToolCallID {
			about = d.MessageID == "" || d.MessageID == p.MessageID
		}
		if about && d.Action == "ask" {
			found = append(found, d)
		}
	}
	return jsonl.SortedDecisions(found)
}

// options are those of the questions that no part has.
const options = `[{"optionId":"allow","name":"Allow","kind":"allow_once"},` +
	`{"optionId":"allow_always","name":"Always allow","kind":"allow_always"},` +
	`{"optionId":"reject","name":"Reject","kind":"reject_once"}]`

// ask writes a question about the call and the answer, if there was one.
func (e *encoder) ask(p *session.Part, option string, canceled bool) {
	question := rows.Of("toolCall", rows.Of("toolCallId", e.callID(p)), "options", json.RawMessage(options))
	var outcome rows.Object
	if canceled {
		outcome = rows.Of("outcome", "cancelled")
	} else if option != "" {
		outcome = rows.Of("outcome", "selected", "optionId", option)
	}
	e.question(question, outcome, nil)
}

// question writes a request for permission, and the response to it.
func (e *encoder) question(params, outcome rows.Object, failure json.RawMessage) {
	id := e.request(agent, methodPermission, e.ofSession(params).JSON())
	if outcome != nil {
		e.respond(id, "result", rows.Of("outcome", outcome))
	} else if failure != nil {
		e.respond(id, "error", failure)
	}
}

func (e *encoder) permission(inner rows.Object) {
	e.question(inner.Without("outcome", "response", "error"), inner.Object("outcome"), inner.Get("error"))
}

// askedAbout returns the id of the call that a question is about. In version 2 of the protocol a
// question has a subject.
func askedAbout(params rows.Object) string {
	subject := params.Object("subject")
	return cmp.Or(params.Object("toolCall").Text("toolCallId"),
		subject.Object("toolCall").Text("toolCallId"), subject.Text("toolCallId"))
}
