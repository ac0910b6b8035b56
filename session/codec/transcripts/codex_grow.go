package transcripts

import (
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// codexRollout is the transcript of a session.
var codexRollout rows.Opener[codexState] = openCodex

// codexState is what the reader has to know of the records before a checkpoint.
type codexState struct {
	Builder builderState `json:"builder"`
	codexKnown
	CallIDs []uint32 `json:"call_ids,omitempty"`
	// Marked reports that the message which goes on has the ids of its turn.
	Marked bool `json:"marked,omitempty"`
}

// begins notes the state before a message of the user, unless the size of a compaction is still
// to come.
func (d *codex) begins(line int) {
	if d.compaction != nil || d.before.Base.Messages == 0 {
		return
	}
	d.b.settle(&d.before)
	d.notes(d.before, line)
}

// goesOn notes the state before a part of an answer that begins in the midst of a turn.
func (d *codex) goesOn(line int) {
	if d.compaction != nil || d.Open {
		return
	}
	if s, ok := d.b.inTurn(); ok {
		d.notes(s, line)
	}
}

// notes notes the state before a line, at which that of the builder was b.
func (d *codex) notes(b builderState, line int) {
	ids := d.b.callIDs
	state := &codexState{b, d.codexKnown, ids[:len(ids):len(ids)], b.Turn != nil && d.marked[d.b.turn]}
	d.Checkpoint = rows.Checkpoint{State: state, Cost: b.Settled, Line: line}
}

// Lacking implements [rows.Grower].
func (d *codex) Lacking() bool { return d.b == nil || d.b.lacks }

// openCodex returns a reader that has a state, nil for the beginning.
func openCodex(path string, p *codexState, report func(codec.Problem)) (rows.Grower, error) {
	d := &codex{report: report, path: path, named: rolloutID(path)}
	if p == nil {
		return d, nil
	}
	d.b, d.codexKnown = resume(&p.Builder), p.codexKnown
	d.b.callIDs, d.b.earlierIDs = p.CallIDs, p.CallIDs
	if p.Marked {
		d.marked = map[*rows.Message]bool{d.b.turn: true}
	}
	return d, nil
}
