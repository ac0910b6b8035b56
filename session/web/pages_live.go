package web

import (
	"context"
	"net/http"
)

// changes answers with an event at once, and one whenever the store has changed. A page that is open is read again
// then, and what differs in it is replaced.
func (v *pages) changes(w http.ResponseWriter, r *http.Request) error {
	if v.Changes == nil {
		w.WriteHeader(http.StatusNoContent) // which ends the attempts of a browser
		return nil
	}
	at, err := v.Changes.Position(r.Context())
	if err != nil {
		return err
	}
	s := newStream(v.Backend, pollInterval, 0)
	changed := func(_ context.Context, now Position) error {
		s.add("", "event: change\n", eventID{Position: now}.String())
		return nil
	}
	_ = changed(r.Context(), at) // it has no error
	s.send(w, r, at, changed)
	return nil
}
