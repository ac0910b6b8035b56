package transcripts

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// GrowCopilot reads events of Copilot CLI from a checkpoint on; see [codec.Growth]. A checkpoint is a message of the
// user, or where the model begins to answer in the midst of a turn. Events of sub-agents have the whole be read, and so
// does the count of what was used since the session was opened.
func GrowCopilot(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem)) (
	*codec.Growth, error) {
	named, title := placeOfCopilot(path)
	return rows.Grow(path, text, from, known, report,
		func(state json.RawMessage, report func(codec.Problem)) (rows.Grower, error) {
			d := newCopilot(named, title, report)
			return d, d.resume(state)
		})
}

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

// resume has the reader go on from a state, nil for the beginning.
func (d *copilot) resume(text json.RawMessage) error {
	if text == nil {
		return nil
	}
	var p copilotState
	if err := json.Unmarshal(text, &p); err != nil {
		return rows.DamagedState(err)
	}
	d.main = &copilotAgent{b: resume(&p.Builder), model: p.Model, prompt: p.Prompt}
	d.main.b.callIDs, d.main.b.earlierIDs = p.CallIDs, p.CallIDs
	d.agents[""], d.order = d.main, append(d.order, d.main)
	d.resumed, d.lacks = true, p.Title != d.title
	return nil
}
