package transcripts

import (
	"hash/fnv"
	"io"
	"maps"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// digest is a short one of an id, by which a reader knows that it is one of those before the checkpoint. That another
// id has the same has the whole be read.
func digest(id string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, id) // a hash takes all
	return h.Sum32()
}

// builderState is what a builder has to know of the messages before a checkpoint.
type builderState struct {
	Row  session.Session `json:"row"`
	Base rows.Base       `json:"base"`
	builderKnown
	Calls   int     `json:"calls,omitempty"`
	Settled float64 `json:"settled,omitempty"`
	// Turn is what is known of the message that goes on, which is that of Base.
	Turn *answer `json:"turn,omitempty"`
}

// apart is how many parts of a turn are between two states in the midst of it.
const apart = 16

// inTurn returns the state in the midst of a turn, false where reading cannot go on there.
func (b *builder) inTurn() (builderState, bool) {
	all := b.s.Messages()
	if b.turn == nil || b.turn != all[len(all)-1] || b.pending > 0 || b.turn.Count() < b.marked+apart {
		return builderState{}, false
	}
	b.marked = b.turn.Count()
	s, turn := b.state(), *b.answer(b.turn)
	turn.Steps, turn.BySource = slices.Clone(turn.Steps), maps.Clone(turn.BySource)
	if turn.Cost != nil {
		turn.Cost = new(*turn.Cost)
	}
	s.Base, s.Turn = b.s.BaseIn(), &turn
	b.settle(&s)
	return s, true
}

// state returns that of the builder, except for Settled.
func (b *builder) state() builderState {
	return builderState{Row: b.s.Row, Base: b.s.Base(), builderKnown: b.builderKnown, Calls: b.earlier + len(b.calls)}
}

// settle sets the cost of the messages before a state, when their turns are over.
func (b *builder) settle(s *builderState) {
	all := b.s.Messages()
	for ; b.settledTo < len(all) && all[b.settledTo].Before(s.Base); b.settledTo++ {
		if a := b.answers[all[b.settledTo]]; a != nil && a.Cost != nil {
			b.settled = store.AddCost(b.settled, *a.Cost)
		}
	}
	s.Settled = b.settled
}

// resume returns a builder that has a state.
func resume(s *builderState) *builder {
	b := newBuilder(s.Row.ID, s.Row.Agent)
	b.s = rows.Continue(s.Row, s.Base)
	b.s.Row.CostUSD = s.Settled
	b.builderKnown, b.earlier, b.settled, b.resumed = s.builderKnown, s.Calls, s.Settled, true
	if s.Turn != nil {
		b.turn, b.marked = b.s.Messages()[0], s.Base.Parts
		b.answers[b.turn] = s.Turn
	}
	return b
}
