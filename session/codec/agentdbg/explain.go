package agentdbg

import "github.com/agenttrace/agenttrace/session/codec"

// Explain lists what of the session its run does not hold: what reading it does not give
// again.
func Explain(s *codec.Session) []codec.Loss {
	f, err := format(s, Options{})
	if err != nil {
		return codec.Unheld(s) // nothing is written
	}
	var d decoder
	r := &run{id: f.meta.Text("run_id"), meta: f.meta}
	before := int64(0)
	for _, e := range f.events {
		r.events = d.add(r.events, through(e), 0, "", &before, nil)
	}
	return codec.Lost(s, d.session(r))
}
