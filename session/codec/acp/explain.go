package acp

import (
	"bytes"

	"github.com/agenttrace/agenttrace/session/codec"
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
