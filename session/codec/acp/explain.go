package acp

import (
	"bytes"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Explain lists what of the session the trace does not hold: what reading it does not give
// again.
func Explain(s *codec.Session) []codec.Loss {
	if s.CheckTree() != nil {
		return codec.Unheld(s) // nothing is written
	}
	report := func(codec.Problem) {}
	t, err := readMessages(bytes.NewReader(encode(s)), report)
	if err != nil {
		return codec.Unheld(s)
	}
	for _, got := range decode(t, report) {
		if got.Session.ID == s.Session.ID {
			return codec.Lost(s, got)
		}
	}
	return codec.Unheld(s)
}

// metaOfSession returns what a session says of the trace that it was; nil when it
// was none.
func metaOfSession(s *codec.Session) rows.Object {
	meta, _ := rows.Parse([]byte(s.Session.MetadataJSON)) // not an object: nothing is known
	own := meta.Object("acp")
	if len(own.Without("initialize", "connection", "new", "load")) > 0 {
		return nil // it is of somebody else
	}
	return own
}
