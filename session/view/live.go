package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/api"
	"github.com/agenttrace/agenttrace/session/store"
)

// listInterval is how often pages about many sessions look for changes of the store: they cost more than others.
const listInterval = time.Second

// stream sends elements of a page that is open. An event is an element as it is now, so losing or repeating one is
// harmless.
type stream struct {
	v *view
	api.Stream
	sent map[string]string
}

// stream answers with what read sends, first at once and then whenever the store has changed. An error of the first
// read is the answer.
func (v *view) stream(w http.ResponseWriter, r *http.Request, every time.Duration,
	read func(context.Context, *stream) error) error {
	if v.Changes == nil {
		w.WriteHeader(http.StatusNoContent) // which ends the attempts of a browser
		return nil
	}
	at, err := v.Changes.Position(r.Context())
	if err != nil {
		return err
	}
	s := &stream{v, api.Stream{Changes: v.Changes, Done: v.Done, Every: every}, make(map[string]string)}
	if err := read(r.Context(), s); err != nil {
		return err
	}
	s.Send(w, r, at, func(ctx context.Context, _ api.Position) error {
		err := read(ctx, s)
		if errors.Is(err, store.ErrNotFound) {
			err = api.ErrEnd // the session was deleted
		}
		return err
	})
	return nil
}

// send writes the element with an id if it has changed.
func (s *stream) send(id, template string, data any) error {
	var b bytes.Buffer
	if err := s.v.templates.ExecuteTemplate(&b, template, data); err != nil {
		return err
	}
	if s.sent[id] == b.String() {
		return nil
	}
	s.sent[id] = b.String()
	fmt.Fprintf(&s.Events, "event: element\ndata: %s\ndata: %s\n\n", id,
		strings.ReplaceAll(strings.ReplaceAll(b.String(), "\r", ""), "\n", "\ndata: "))
	return nil
}

// events answers with the turns of a session from a number on, and what pages show beside them. Pages whose turns begin
// at the number first have links between them; the page of one turn is alone.
func (v *view) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	turn, err := strconv.Atoi(q.Get("turn"))
	first, err2 := strconv.Atoi(q.Get("first"))
	if err != nil || err2 != nil || turn < 1 {
		return invalid("the address is not that of updates; load the session's page again")
	}
	id, alone := element(r.PathValue("id")), q.Get("alone") != ""
	return v.stream(w, r, api.PollInterval, func(ctx context.Context, s *stream) error {
		if alone {
			doc, err := v.alone(ctx, id, turn)
			if err != nil {
				return err
			}
			return errors.Join(
				s.send("status", "status-line", doc),
				s.send("totals", "totals", sessionPage{Doc: doc, Of: turn}),
				s.send("turn-"+strconv.Itoa(turn), "turn", v.data(doc, doc.Turns, true)[0]))
		}
		o, err := v.Sessions.LoadOutline(ctx, id)
		if err != nil {
			return err
		}
		last := len(o.Turns)
		p, err := v.turns(ctx, o, first, turn, last)
		if err != nil {
			return err
		}
		doc := p.Doc
		p.First, p.Last = first, len(doc.Turns)
		turns := doc.Turns[min(turn-1, last):last]
		err = errors.Join(s.send("status", "status-line", doc), s.send("totals", "totals", p),
			s.send("outline", "outline", p))
		for _, t := range v.data(doc, turns, false) {
			err = errors.Join(err, s.send("turn-"+strconv.Itoa(t.Number), "turn", t))
		}
		return err
	})
}

// nowEvents answers with what the page Now shows.
func (v *view) nowEvents(w http.ResponseWriter, r *http.Request) error {
	return v.stream(w, r, listInterval, func(ctx context.Context, s *stream) error {
		p, err := v.nowPage(ctx)
		if err != nil {
			return err
		}
		return s.send("now", "now-groups", p)
	})
}

// listEvents answers with the sessions of a list.
func (v *view) listEvents(w http.ResponseWriter, r *http.Request) error {
	return v.stream(w, r, listInterval, func(ctx context.Context, s *stream) error {
		p, err := v.listPage(ctx, r.URL.Query())
		if err != nil {
			return err
		}
		return s.send("list", "list", p)
	})
}
