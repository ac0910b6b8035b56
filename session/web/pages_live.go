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
	s := newStream(v.Backend, 0)
	changed := func(_ context.Context, now Position) error {
		return s.event(newEventID(now), eventChange, "", emptyEvent{})
	}
	if err := changed(r.Context(), at); err != nil {
		return err
	}
	s.send(w, r, at, changed)
	return nil
}
