package transcripts

import (
	"bytes"
	"encoding/json"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// growGemini reads a chat of Gemini CLI from a checkpoint on; see [codec.Growth]. A checkpoint is a message of the user
// before which no message changed later. A chat that is one object is read whole.
func growGemini(path string, text []byte, from codec.Checkpoint, known int, report func(codec.Problem)) (
	*codec.Growth, error) {
	if from.Offset > 0 || areLines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
		return rows.Opener[geminiState](openGemini).Grow(path, text, from, known, report)
	}
	all, err := newGemini(path, report).readText(text)
	if err != nil {
		return nil, err
	}
	g := &codec.Growth{Sessions: all}
	if known > 0 {
		g.Before, _ = newGemini(path, func(codec.Problem) {}).readText(text[:known]) // it may have had no session then
	}
	return g, nil
}

// geminiState is what the reader has to know of the messages before a checkpoint.
type geminiState struct {
	Builder builderState `json:"builder"`
	ID      string       `json:"id"`
	Start   string       `json:"start,omitempty"`
	// About is what is reported of the session.
	About json.RawMessage `json:"about"`
	At    int64           `json:"at,omitempty"`
	// IDs are digests of the ids of messages, CallIDs of those of calls.
	IDs     []uint32 `json:"ids,omitempty"`
	CallIDs []uint32 `json:"call_ids,omitempty"`
}

// Place implements [rows.Grower].
func (d *gemini) Place() (any, float64, int) {
	if d.begun == 0 {
		return nil, 0, 0
	}
	m := d.order[d.begun]
	p := &geminiState{Builder: d.before, ID: d.id, Start: d.about.Text("startTime"), About: d.about.JSON(),
		At: m.before, CallIDs: d.b.callIDs[:d.calls]}
	if d.was != nil {
		p.IDs = d.was.IDs
	}
	for _, earlier := range d.order[:d.begun] {
		p.IDs = append(p.IDs, digest(earlier.id))
	}
	d.b.settle(&p.Builder)
	return p, p.Builder.Settled, m.line
}

// Sessions implements [rows.Grower].
func (d *gemini) Sessions(string) ([]*codec.Session, error) {
	s, err := d.session()
	if err != nil {
		return nil, err
	}
	return []*codec.Session{s}, nil
}

// Lacking implements [rows.Grower].
func (d *gemini) Lacking() bool { return d.lacks || d.b.lacks }

// openGemini returns a reader of JSON lines that has a state, nil for the beginning.
func openGemini(path string, was *geminiState, report func(codec.Problem)) (rows.Grower, error) {
	d := newGemini(path, report)
	if was == nil {
		return d, nil
	}
	about, err := rows.Parse(was.About)
	if err != nil {
		return nil, rows.DamagedState(err)
	}
	d.was, d.id, d.about, d.at = was, was.ID, about, was.At
	return d, nil
}
