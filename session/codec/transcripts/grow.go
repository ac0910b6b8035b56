package transcripts

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// A transcript that grew is read from the beginning of its last turn on. What the reader has to
// know of the turns before is little, and is kept: the checkpoint. A record that concerns what is
// not kept, such as a message with which the user goes back to an earlier turn, makes the whole
// file be read. So the rows are always those of the whole file.
//
// What was read of that turn before, or of the file, is taken twice: once to its old end, and once to the new one.
// The difference is what the growth changed, which the store applies; see [store.Grown].

// grower reads the records of a transcript.
type grower interface {
	record(o rows.Object, line int)
	// sessions returns what was read. The reader is not to be used again.
	sessions(path string) ([]*codec.Session, error)
	// place returns the state that the reader had before the last record from which reading can
	// go on, the cost of what is before it, and its line; nil if there is none.
	place() (state any, cost float64, line int)
	// lacking reports that a record concerned what is before the checkpoint.
	lacking() bool
}

// lineState is the state of a checkpoint: how many lines are before it, and that of the reader.
type lineState struct {
	Lines  int             `json:"lines"`
	Reader json.RawMessage `json:"reader"`
	// CostUSD is the cost of the messages before.
	CostUSD float64 `json:"cost_usd,omitempty"`
}

// grow reads the text of a transcript from a checkpoint on. open returns a reader that has a
// state, which is nil at the beginning.
func grow(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem),
	open func(state json.RawMessage, report func(codec.Problem)) (grower, error)) (*codec.Growth, error) {
	var state lineState
	if from.Offset > 0 {
		if err := json.Unmarshal(from.State, &state); err != nil {
			return nil, fmt.Errorf("%w: its checkpoint is damaged: %w", codec.ErrWhole, err)
		}
	}
	fresh := false // what is read was not read before
	tell := func(p codec.Problem) {
		if fresh {
			report(p)
		}
	}
	now, err := open(state.Reader, tell)
	if err != nil {
		return nil, err
	}
	var was grower
	if known > 0 {
		if was, err = open(state.Reader, func(codec.Problem) {}); err != nil {
			return nil, err
		}
	}
	g := &codec.Growth{Next: from, CostUSD: state.CostUSD}
	offsets := make(map[int]int) // of the lines
	// Each line is examined before it is told which of them are fresh.
	var damaged []codec.Problem
	for l := range rows.Lines(text, func(p codec.Problem) { damaged = append(damaged, p) }) {
		n := state.Lines + l.N
		offsets[n] = l.From
		fresh = l.To > known
		if was != nil && l.From < known && fresh { // it was cut off
			g.Cut = n
			for cut := range rows.Lines(text[l.From:known], func(codec.Problem) {}) {
				if cut.Err == nil {
					was.record(cut.Object, n)
				}
			}
		}
		for _, p := range damaged {
			p.Line += state.Lines
			tell(p)
		}
		damaged = damaged[:0]
		if l.Err != nil {
			tell(codec.Problem{Line: n, Reason: "is not a record: left out: " + l.Err.Error()})
			continue
		}
		now.record(l.Object, n)
		if was != nil && !fresh {
			was.record(l.Object, n)
		}
	}
	fresh = true
	if at, cost, line := now.place(); at != nil {
		reader, err := json.Marshal(at)
		if err != nil {
			return nil, err
		}
		next, err := json.Marshal(lineState{line - 1, reader, cost})
		if err != nil {
			return nil, err
		}
		g.Next = codec.Checkpoint{Offset: from.Offset + int64(offsets[line]), State: next}
	}
	if g.Sessions, err = now.sessions(path); err != nil || was == nil {
		return g, err
	}
	g.Before, err = was.sessions(path)
	if from.Offset > 0 && (err != nil || now.lacking() || was.lacking()) {
		return nil, codec.ErrWhole
	}
	return g, nil // from the beginning, an error is that there was no session
}

// builderState is what a builder has to know of the messages before a checkpoint.
type builderState struct {
	Row     session.Session         `json:"row"`
	About   session.TranscriptTrace `json:"about"`
	Base    rows.Base               `json:"base"`
	At      int64                   `json:"at,omitempty"`
	Calls   int                     `json:"calls,omitempty"`
	Model   session.Model           `json:"model"`
	Cost    *float64                `json:"cost,omitempty"`
	Settled float64                 `json:"settled,omitempty"`
	Title   string                  `json:"title,omitempty"`
	Asked   string                  `json:"asked,omitempty"`
}

// state returns that of the builder, except for Settled.
func (b *builder) state() builderState {
	return builderState{
		Row: b.s.Row, About: b.about, Base: b.s.Base(), At: b.at, Calls: b.earlier + len(b.calls), Model: b.sessionModel,
		Cost: b.cost, Title: b.title, Asked: b.question,
	}
}

// settle sets the cost of the messages before a state, when their turns are over.
func (b *builder) settle(s *builderState) {
	all := b.s.Messages()
	for ; b.settledTo < len(all) && all[b.settledTo].Before(s.Base); b.settledTo++ {
		if a := b.answers[all[b.settledTo]]; a != nil && a.cost != nil {
			b.settled = store.AddCost(b.settled, *a.cost)
		}
	}
	s.Settled = b.settled
}

// resume returns a builder that has a state.
func resume(s *builderState) *builder {
	b := newBuilder(s.Row.ID, s.Row.Agent)
	b.s = rows.Continue(s.Row, s.Base)
	b.s.Row.CostUSD = s.Settled
	b.about, b.at, b.earlier, b.sessionModel, b.cost = s.About, s.At, s.Calls, s.Model, s.Cost
	b.settled, b.title, b.question, b.resumed = s.Settled, s.Title, s.Asked, true
	return b
}
