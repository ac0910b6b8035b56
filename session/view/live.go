package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/service"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	// pollInterval is how often a stream looks for changes of the store.
	pollInterval = 400 * time.Millisecond
	// keepAlive is how long a stream is silent at most.
	keepAlive = 15 * time.Second
	// sendTimeout is how long a reader may take for an event.
	sendTimeout = 20 * time.Second
)

// stream sends the changes of the end of a session. An event is the element of a turn or of the status as it is now,
// so losing or repeating one is harmless.
type stream struct {
	v    *view
	id   string
	from store.Position // of the first turn
	turn int            // and its number
	sent map[string]string
}

// events answers with the turns from a position on whenever they change. The cost of an event depends on these turns,
// not on the session.
func (v *view) events(w http.ResponseWriter, r *http.Request) error {
	if v.Changes == nil {
		w.WriteHeader(http.StatusNoContent) // which ends the attempts of a browser
		return nil
	}
	q := r.URL.Query()
	s := stream{v: v, id: element(r.PathValue("id")), sent: make(map[string]string)}
	var err, err2 error
	s.turn, err = strconv.Atoi(q.Get("turn"))
	if text := q.Get("at"); text != "" {
		s.from.At, err2 = strconv.ParseInt(text, 10, 64)
		s.from.ID = q.Get("message")
	}
	if err != nil || err2 != nil || s.turn < 1 {
		return invalid("the address is not that of updates; load the session's page again")
	}
	if _, err := v.sessions.Session(r.Context(), s.id); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var at service.Position
	quiet := time.Now()
	for first := true; ; first = false {
		var events bytes.Buffer
		now, err := v.Changes.Position(r.Context())
		if err == nil && (first || now != at) {
			err = s.read(r.Context(), &events)
			at = now
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil // the session was deleted
		}
		// Another error passes, or the reader reconnects.
		if events.Len() == 0 && time.Since(quiet) > keepAlive {
			events.WriteString(": still here\n\n")
		}
		if events.Len() > 0 {
			quiet = time.Now()
			_ = control.SetWriteDeadline(quiet.Add(sendTimeout)) // a server without deadlines serves all the same
			if _, err := events.WriteTo(w); err != nil || control.Flush() != nil {
				return nil // the reader is gone
			}
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-v.Done:
			return nil
		case <-tick.C:
		}
	}
}

// read writes an event for each element that has changed since the last time.
func (s *stream) read(ctx context.Context, w io.Writer) error {
	e, err := s.v.sessions.Excerpt(ctx, s.id, store.ExcerptQuery{From: s.from})
	if err != nil {
		return err
	}
	doc := document.Build(document.Input{Transcript: e.Transcript, Decisions: e.Decisions, Now: time.Now(),
		IdleTimeout: s.v.IdleTimeout})
	for i, turn := range doc.Turns {
		turn.Number = s.turn + i
	}
	if err := s.send(w, "status", "status-line", doc); err != nil {
		return err
	}
	for _, turn := range data(doc, doc.Turns, false) {
		if err := s.send(w, "turn-"+strconv.Itoa(turn.Number), "turn", turn); err != nil {
			return err
		}
	}
	return nil
}

// send writes the element with an id if it has changed.
func (s *stream) send(w io.Writer, id, template string, data any) error {
	var b bytes.Buffer
	if err := s.v.templates.ExecuteTemplate(&b, template, data); err != nil {
		return err
	}
	if s.sent[id] == b.String() {
		return nil
	}
	s.sent[id] = b.String()
	_, err := fmt.Fprintf(w, "event: element\ndata: %s\ndata: %s\n\n", id,
		strings.ReplaceAll(strings.ReplaceAll(b.String(), "\r", ""), "\n", "\ndata: "))
	return err
}
