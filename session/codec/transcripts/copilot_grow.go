package transcripts

import (
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// GrowCopilot reads events of Copilot CLI from a checkpoint on; see [codec.Growth]. A checkpoint is a message of the
// user, or where the model begins to answer in the midst of a turn. Events of sub-agents have the whole be read, and so
// does the count of what was used since the session was opened.
func GrowCopilot(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem)) (
	*codec.Growth, error) {
	return copilotEvents.Grow(path, text, from, known, report)
}

// copilotEvents are the events of a session.
var copilotEvents rows.Opener[copilotState] = openCopilot

// copilotState is what the reader has to know of the events before a checkpoint.
type copilotState struct {
	Builder builderState `json:"builder"`
	CallIDs []uint32     `json:"call_ids,omitempty"`
	Model   string       `json:"model,omitempty"`
	Prompt  string       `json:"prompt,omitempty"`
	Title   string       `json:"title,omitempty"`
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
	d.Checkpoint = rows.Checkpoint{State: &copilotState{s, ids[:len(ids):len(ids)], a.model, a.prompt, d.title},
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
	return d, nil
}
