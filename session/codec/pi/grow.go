package pi

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Grow reads a file from a checkpoint on; see [codec.Growth]. A checkpoint is a message of the user that follows the
// entry before it. An entry that follows another one from before the checkpoint has the whole be read.
func Grow(path string, text []byte, from codec.Checkpoint, known int,
	report func(codec.Problem)) (*codec.Growth, error) {
	return rows.Opener[state](open).Grow(path, text, from, known, report)
}

// open returns a reader that has a state, nil for the beginning.
func open(_ string, was *state, report func(codec.Problem)) (rows.Grower, error) {
	b := newBuilder(report)
	if was == nil {
		return b, nil
	}
	var err error
	if b.f.header, err = rows.Parse(was.Header); err != nil {
		return nil, rows.DamagedState(err)
	}
	b.f.was = was
	return b, nil
}

// state is what the reader has to know of the entries before a checkpoint.
type state struct {
	Header json.RawMessage `json:"header"`
	Row    session.Session `json:"row"`
	Base   rows.Base       `json:"base"`
	Model  session.Model   `json:"model"`
	Effort string          `json:"effort,omitempty"`
	Total  int64           `json:"total,omitempty"`
	// Tip is the id of the last entry, and Clock its time.
	Tip   string `json:"tip,omitempty"`
	Clock int64  `json:"clock,omitempty"`
}

// note notes the state before entry i, which follows the one before it on the way to the last.
func (b *builder) note(i int) {
	base := b.s.Base()
	if base.Messages == 0 {
		return
	}
	tip := ""
	if i > 0 {
		tip = b.f.entries[i-1].Text("id")
	} else if b.f.was != nil {
		tip = b.f.was.Tip
	}
	e := b.f.entries[i]
	b.Checkpoint = rows.Checkpoint{
		State: &state{b.f.header.JSON(), b.s.Row, base, b.model, b.effort, b.total, tip, e.clock},
		Cost:  b.s.Row.CostUSD, Line: e.line,
	}
}

// resume has the builder go on from a state.
func (b *builder) resume(s *state) {
	b.s = rows.Continue(s.Row, s.Base)
	b.model, b.effort, b.total = s.Model, s.Effort, s.Total
}

// Sessions implements [rows.Grower].
func (b *builder) Sessions(string) ([]*codec.Session, error) {
	if err := b.begin(); err != nil {
		return nil, fmt.Errorf("read session of Pi: %w", err)
	}
	return []*codec.Session{b.build()}, nil
}

// Lacking implements [rows.Grower].
func (b *builder) Lacking() bool { return b.f.lacks }
