package transcripts

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// GrowCodex reads a rollout of Codex from a checkpoint on; see [codec.Growth]. A checkpoint is a
// message of the user.
func GrowCodex(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem)) (
	*codec.Growth, error) {
	named := rolloutID(path)
	return grow(path, text, from, known, report,
		func(state json.RawMessage, report func(codec.Problem)) (grower, error) {
			return resumeCodex(state, named, report)
		})
}

// codexState is what the reader has to know of the records before a checkpoint.
type codexState struct {
	Builder  builderState  `json:"builder"`
	Provider string        `json:"provider,omitempty"`
	Model    session.Model `json:"model"`
	Prompt   string        `json:"prompt,omitempty"`
	Total    string        `json:"total,omitempty"`
	Spent    int           `json:"spent,omitempty"`
	Open     bool          `json:"open,omitempty"`
	TurnID   string        `json:"turn_id,omitempty"`
	TraceID  string        `json:"trace_id,omitempty"`
	Context  int64         `json:"context,omitempty"`
}

// begins notes the state before a message of the user, unless the size of a compaction is still
// to come.
func (d *codex) begins(line int) {
	if d.compaction != nil || d.before.Base.Messages == 0 {
		return
	}
	d.b.settle(&d.before)
	d.begun = codexState{
		Builder: d.before, Provider: d.provider, Model: d.model, Prompt: d.prompt, Total: d.total, Spent: d.spent,
		Open: d.open, TurnID: d.turnID, TraceID: d.traceID, Context: d.context,
	}
	d.begunAt = line
}

// place implements grower.
func (d *codex) place() (any, float64, int) {
	if d.begunAt == 0 {
		return nil, 0, 0
	}
	return &d.begun, d.begun.Builder.Settled, d.begunAt
}

// lacking implements grower.
func (d *codex) lacking() bool { return d.b == nil || d.b.lacks }

// resumeCodex returns a reader that has a state. named is the session by the name of the file.
func resumeCodex(text json.RawMessage, named string, report func(codec.Problem)) (grower, error) {
	d := &codex{report: report, named: named}
	if text == nil {
		return d, nil
	}
	var p codexState
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%w: its checkpoint is damaged: %w", codec.ErrWhole, err)
	}
	d.b = resume(&p.Builder)
	d.provider, d.model, d.prompt, d.total, d.spent = p.Provider, p.Model, p.Prompt, p.Total, p.Spent
	d.open, d.turnID, d.traceID, d.context = p.Open, p.TurnID, p.TraceID, p.Context
	return d, nil
}
