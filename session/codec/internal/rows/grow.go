package rows

import (
	"encoding/json"
	"fmt"
	"io"

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

// Opener returns a reader of the transcript at path, which is empty for one that is no file. The reader has a state,
// nil at the beginning.
type Opener[State any] func(path string, state *State, report func(codec.Problem)) (Grower, error)

// at returns a reader that has the state which a checkpoint has as JSON.
func (open Opener[State]) at(path string, state json.RawMessage, report func(codec.Problem)) (Grower, error) {
	if state == nil {
		return open(path, nil, report)
	}
	s := new(State)
	if err := json.Unmarshal(state, s); err != nil {
		return nil, DamagedState(err)
	}
	return open(path, s, report)
}

// Decode reads a transcript as a whole.
func (open Opener[State]) Decode(path string, r io.Reader, report func(codec.Problem)) ([]*codec.Session, error) {
	d, err := open(path, nil, report)
	if err == nil {
		err = Records(r, report, d.Record)
	}
	if err != nil {
		return nil, err
	}
	return d.Sessions(path)
}

// Records calls record for each JSON object in r, and reports lines that are none.
func Records(r io.Reader, report func(codec.Problem), record func(o Object, line int)) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read transcript: %w", err)
	}
	for l := range Lines(text, report) {
		if l.Err != nil {
			report(notRecord(l.N, l.Err))
			continue
		}
		record(l.Object, l.N)
	}
	return nil
}

func notRecord(line int, err error) codec.Problem {
	return codec.Problem{Line: line, Reason: "is not a record: left out: " + err.Error()}
}

// Grow reads the text of a transcript from a checkpoint on.
func (open Opener[State]) Grow(path string, text []byte, from codec.Checkpoint, known int,
	report func(codec.Problem)) (*codec.Growth, error) {
	state, err := stateAt(from)
	if err != nil {
		return nil, err
	}
	fresh := false                // what is read was not read before
	lines := make(map[int][2]int) // where they begin and end
	note := func(p codec.Problem) {
		if at, ok := lines[p.Line]; ok && at[1] > known || !ok && fresh {
			report(p)
		}
	}
	now, err := open.at(path, state.Reader, note)
	if err != nil {
		return nil, err
	}
	var was Grower
	if known > 0 {
		if was, err = open.at(path, state.Reader, func(codec.Problem) {}); err != nil {
			return nil, err
		}
	}
	g := &codec.Growth{CostUSD: state.CostUSD}
	// What is wrong with a line is known before it is known whether the line is fresh.
	var damaged []codec.Problem
	for l := range Lines(text, func(p codec.Problem) { damaged = append(damaged, p) }) {
		n := state.Lines + l.N
		lines[n] = [2]int{l.From, l.To}
		fresh = l.To > known
		if was != nil && l.From < known && fresh { // it was cut off
			g.Cut = n
			recordCut(was, text[l.From:known], n)
		}
		for _, p := range damaged {
			p.Line += state.Lines
			note(p)
		}
		damaged = damaged[:0]
		if l.Err != nil {
			note(notRecord(n, l.Err))
			continue
		}
		now.Record(l.Object, n)
		if was != nil && !fresh {
			was.Record(l.Object, n)
		}
	}
	fresh = true
	g.Sessions, err = now.Sessions(path)
	var failed error
	if g.Next, failed = checkpointOf(now, from, lines); failed != nil {
		return nil, failed
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

// recordCut has a reader take the records of a line that was cut off.
func recordCut(was Grower, text []byte, line int) {
	for l := range Lines(text, func(codec.Problem) {}) {
		if l.Err == nil {
			was.Record(l.Object, line)
		}
	}
}

// stateAt is the state of a checkpoint, the zero state of the one at the beginning.
func stateAt(from codec.Checkpoint) (state lineState, _ error) {
	if from.Offset <= 0 {
		return state, nil
	}
	if err := json.Unmarshal(from.State, &state); err != nil {
		return state, DamagedState(err)
	}
	return state, nil
}

// checkpointOf is where the next reading begins: at the line that the reader states, or where this one began. lines are
// where the lines begin.
func checkpointOf(now Grower, from codec.Checkpoint, lines map[int][2]int) (codec.Checkpoint, error) {
	at, cost, line := now.Place()
	if at == nil {
		return from, nil
	}
	reader, err := json.Marshal(at)
	if err != nil {
		return from, err
	}
	state, err := json.Marshal(lineState{line - 1, reader, cost})
	return codec.Checkpoint{Offset: from.Offset + int64(lines[line][0]), State: state}, err
}

// DamagedState is the error of a state that cannot be read.
func DamagedState(err error) error {
	return fmt.Errorf("%w: its checkpoint is damaged: %w", codec.ErrWhole, err)
}
