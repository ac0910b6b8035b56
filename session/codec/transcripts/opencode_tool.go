package transcripts

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// How opencode tells the model that a call was refused.
const (
	deniedByRule = "The user has specified a rule which prevents you from using this specific tool call"
	rejected     = "The user rejected permission to use this specific tool call"
	withFeedback = " with the following feedback: "
)

// tool adds a call, and how it was decided on where it was refused: of what was
// allowed nothing is kept.
func (d *opencode) tool(row *rows.Message, p *opencodeRecord) {
	state := p.data.Object("state")
	name, call := cmp.Or(p.data.Text("tool"), "unknown"), cmp.Or(p.data.Text("callID"), p.id)
	o := rows.ToolPart(name, call, session.StateInputAvailable)
	o.Set("input", orEmpty(state.Get("input")))
	o.Add(state.Texts("title"))
	var decision *store.Decision
	failure := state.Text("error")
	switch state.Text("status") {
	case "pending":
		o.Set("state", session.StateInputStreaming)
	case "completed":
		o.Set("state", session.StateOutputAvailable)
		o.Set("output", opencodeOutput(state))
	case "error":
		if decision = refusal(failure); decision != nil {
			o.Set("state", session.StateOutputDenied)
			o.Set("approval", map[string]any{"id": call, "approved": false, "reason": cmp.Or(decision.Reason, failure)})
			break
		}
		o.Set("state", session.StateOutputError)
		o.Set("errorText", cmp.Or(failure, "error"))
	}
	if trace, err := rows.Marshal(opencodeTrace(state, decision != nil)); err == nil && string(trace) != "{}" {
		o.Set("toolMetadata", rows.Object{{Key: "agenttrace", Value: trace}})
	}
	part := d.part(row, p, o)
	if decision == nil {
		return
	}
	at := cmp.Or(moment(state.Object("time"), "end"), part.Row.CreatedAt)
	decision.ID = spans.DeriveID(spans.PrefixPermission, at, d.b.s.Row.ID, part.Row.ID, "refused")
	decision.SessionID, decision.MessageID, decision.PartID = d.b.s.Row.ID, row.Row.ID, part.Row.ID
	decision.ToolCallID, decision.ToolID, decision.DecidedAt = call, name, at
	d.b.s.Decisions = append(d.b.s.Decisions, *decision)
}

// refusal is how a call was refused, nil for one that failed.
func refusal(failure string) *store.Decision {
	switch {
	case strings.Contains(failure, deniedByRule):
		return &store.Decision{Action: "deny", Outcome: "denied", Reason: failure}
	case strings.Contains(failure, rejected):
		_, feedback, _ := strings.Cut(failure, withFeedback)
		return &store.Decision{Action: "ask", Outcome: "denied", Reply: "reject", Reason: feedback}
	}
	return nil
}

// opencodeOutput is the text that a tool returned, with the files that it added.
func opencodeOutput(state rows.Object) json.RawMessage {
	output := rows.OrNull(state.Get("output"))
	var files []rows.Object
	for o := range rows.Objects(state.Get("attachments")) {
		files = append(files, o.Without("id", "messageID", "sessionID"))
	}
	if len(files) == 0 {
		return output
	}
	return rows.Of("text", output, "attachments", files).JSON()
}

// opencodeTrace is what is known of a call besides what went in and came out.
func opencodeTrace(state rows.Object, denied bool) session.ToolTrace {
	at, about := state.Object("time"), state.Object("metadata")
	t := session.ToolTrace{
		Denied: denied, ChildSessionID: about.Text("sessionId"),
		Truncated: about.True("truncated"), OutputPath: about.Text("outputPath"),
	}
	if start, end := moment(at, "start"), moment(at, "end"); start > 0 && end >= start && !denied {
		t.DurationMS = new(end - start)
	}
	if state.Text("status") == "error" && !denied {
		t.PartialOutput = about.Text("output")
	}
	return t
}
