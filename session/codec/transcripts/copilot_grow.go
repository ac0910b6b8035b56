package transcripts

import (
	"maps"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// copilotEvents are the events of a session.
var copilotEvents rows.Opener[copilotState] = openCopilot

// copilotState is what the reader has to know of the events before a checkpoint.
type copilotState struct {
	Builder builderState `json:"builder"`
	CallIDs []uint32     `json:"call_ids,omitempty"`
	Model   string       `json:"model,omitempty"`
	Prompt  string       `json:"prompt,omitempty"`
	Title   string       `json:"title,omitempty"`
	// Used is what was counted of calls that have no message yet.
	Used map[string]session.Usage `json:"used,omitempty"`
}

// begins notes the state before an event with which the user begins a turn, or the model an answer in the midst of one.
func (d *copilot) begins(a *copilotAgent, kind string, o, data rows.Object, line int) {
	if len(d.order) != 1 || a.thought != "" {
		return
	}
	var s builderState
	switch kind {
	case "user.message":
		if s = a.b.state(); copilotRole(data) != session.RoleUser || s.Base.Messages == 0 {
			return
		}
		a.b.settle(&s)
	case "assistant.message":
		if d.begun(a, responseOf(o, data)) != nil {
			return
		}
		var ok bool
		if s, ok = a.b.inTurn(); !ok {
			return
		}
	default:
		return
	}
	ids := a.b.callIDs
	d.Checkpoint = rows.Checkpoint{State: &copilotState{s, ids[:len(ids):len(ids)], a.model, a.prompt, d.title,
		maps.Clone(d.used)},
		Cost: s.Settled, Line: line}
}

// Lacking implements [rows.Grower].
func (d *copilot) Lacking() bool { return d.lacks || len(d.order) != 1 || d.main.b.lacks }

// openCopilot returns a reader that has a state, nil for the beginning.
func openCopilot(path string, p *copilotState, report func(codec.Problem)) (rows.Grower, error) {
	d := newCopilot(path, report)
	if p == nil {
		return d, nil
	}
	d.main = &copilotAgent{b: resume(&p.Builder), model: p.Model, prompt: p.Prompt}
	d.main.b.callIDs, d.main.b.earlierIDs = p.CallIDs, p.CallIDs
	d.agents[""], d.order = d.main, append(d.order, d.main)
	d.resumed, d.lacks = true, p.Title != d.title
	maps.Copy(d.used, p.Used)
	return d, nil
}
