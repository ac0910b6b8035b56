package rows

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session/codec"
)

// A transcript that grew is read from the beginning of its last turn on, or from a model call in the midst of a long
// one that begins when no call is pending. What the reader has to know of what is before is little, and is kept: the
// checkpoint. A record that concerns what is not kept, such as a message with which the user goes back to an earlier
// turn, makes the whole file be read. So the rows are always those of the whole file.
//
// What was read of that turn before, or of the file, is taken twice: once to its old end, and once to the new one.
// The difference is what the growth changed, which the store applies; see [store.Grown].

// Grower reads the records of a file that grows.
type Grower interface {
	// Record takes a record.
	Record(o Object, line int)
	// Sessions returns what was read. The reader reads no more then.
	Sessions(path string) ([]*codec.Session, error)
	// Place returns the state that the reader had before the last record from which reading can
	// go on, the cost of what is before it, and its line; nil if there is none. It is called after Sessions.
	Place() (state any, cost float64, line int)
	// Lacking reports that a record concerned what is before the checkpoint.
	Lacking() bool
}

// Checkpoint is the last place from which reading can go on: the state before a line, the cost of what is before it,
// and the line. The zero value is none. A [Grower] that knows it while it reads embeds it.
type Checkpoint struct {
	State any
	Cost  float64
	Line  int
}

// Place implements [Grower].
func (c *Checkpoint) Place() (any, float64, int) { return c.State, c.Cost, c.Line }

// lineState is the state of a checkpoint: how many lines are before it, and that of the reader.
type lineState struct {
	Lines  int             `json:"lines"`
	Reader json.RawMessage `json:"reader"`
	// CostUSD is the cost of the messages before.
	CostUSD float64 `json:"cost_usd,omitempty"`
}

// Grow reads the text of a transcript from a checkpoint on. open returns a reader that has a
// state, which is nil at the beginning.
func Grow(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem),
	open func(state json.RawMessage, report func(codec.Problem)) (Grower, error)) (*codec.Growth, error) {
	var state lineState
	if from.Offset > 0 {
		if err := json.Unmarshal(from.State, &state); err != nil {
			return nil, DamagedState(err)
		}
	}
	fresh := false                // what is read was not read before
	lines := make(map[int][2]int) // where they begin and end
	note := func(p codec.Problem) {
		if at, ok := lines[p.Line]; ok && at[1] > known || !ok && fresh {
			report(p)
		}
	}
	now, err := open(state.Reader, note)
	if err != nil {
		return nil, err
	}
	var was Grower
	if known > 0 {
		if was, err = open(state.Reader, func(codec.Problem) {}); err != nil {
			return nil, err
		}
	}
	g := &codec.Growth{Next: from, CostUSD: state.CostUSD}
	// What is wrong with a line is known before it is known whether the line is fresh.
	var damaged []codec.Problem
	for l := range Lines(text, func(p codec.Problem) { damaged = append(damaged, p) }) {
		n := state.Lines + l.N
		lines[n] = [2]int{l.From, l.To}
		fresh = l.To > known
		if was != nil && l.From < known && fresh { // it was cut off
			g.Cut = n
			for cut := range Lines(text[l.From:known], func(codec.Problem) {}) {
				if cut.Err == nil {
					was.Record(cut.Object, n)
				}
			}
		}
		for _, p := range damaged {
			p.Line += state.Lines
			note(p)
		}
		damaged = damaged[:0]
		if l.Err != nil {
			note(codec.Problem{Line: n, Reason: "is not a record: left out: " + l.Err.Error()})
			continue
		}
		now.Record(l.Object, n)
		if was != nil && !fresh {
			was.Record(l.Object, n)
		}
	}
	fresh = true
	g.Sessions, err = now.Sessions(path)
	if at, cost, line := now.Place(); at != nil {
		reader, failed := json.Marshal(at)
		if failed != nil {
			return nil, failed
		}
		next, failed := json.Marshal(lineState{line - 1, reader, cost})
		if failed != nil {
			return nil, failed
		}
		g.Next = codec.Checkpoint{Offset: from.Offset + int64(lines[line][0]), State: next}
	}
	if err != nil || was == nil {
		return g, err
	}
	g.Before, err = was.Sessions(path)
	if from.Offset > 0 && (err != nil || now.Lacking() || was.Lacking()) {
		return nil, codec.ErrWhole
	}
	return g, nil // from the beginning, an error is that there was no session
}

// DamagedState is the error of a state that cannot be read.
func DamagedState(err error) error {
	return fmt.Errorf("%w: its checkpoint is damaged: %w", codec.ErrWhole, err)
}
