package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// listInterval is how often pages about many sessions look for changes of the store: they cost more than others.
const listInterval = time.Second

// stream answers with what read sends, first at once and then whenever the store has changed. An error of the first
// read is the answer.
func (v *pages) stream(w http.ResponseWriter, r *http.Request, every time.Duration,
	read func(context.Context, *stream) error) error {
	if v.Changes == nil {
		w.WriteHeader(http.StatusNoContent) // which ends the attempts of a browser
		return nil
	}
	at, err := v.Changes.Position(r.Context())
	if err != nil {
		return err
	}
	s := newStream(v.Backend, every, 0)
	if err := read(r.Context(), s); err != nil {
		return err
	}
	s.send(w, r, at, func(ctx context.Context, _ Position) error {
		err := read(ctx, s)
		if errors.Is(err, store.ErrNotFound) {
			err = errEnd // the session was deleted
		}
		return err
	})
	return nil
}

// send adds the element with an id if it has changed.
func (v *pages) send(s *stream, id, template string, data any) error {
	var b bytes.Buffer
	if err := v.templates.ExecuteTemplate(&b, template, data); err != nil {
		return err
	}
	s.add("element "+id, "event: element\ndata: "+id+"\n", b.String())
	return nil
}

// events answers with the turns of a session from a number on, and what pages show beside them. Pages whose turns begin
// at the number first have links between them; the page of one turn is alone.
func (v *pages) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	turn, err := strconv.Atoi(q.Get("turn"))
	first, err2 := strconv.Atoi(q.Get("first"))
	if err != nil || err2 != nil || turn < 1 {
		return invalid("the address is not that of updates; load the session's page again")
	}
	id, alone := element(r.PathValue("id")), q.Get("alone") != ""
	return v.stream(w, r, pollInterval, func(ctx context.Context, s *stream) error {
		if alone {
			doc, err := v.alone(ctx, id, turn)
			if err != nil {
				return err
			}
			return errors.Join(
				v.send(s, "status", "status-line", doc),
				v.send(s, "totals", "totals", sessionPage{Doc: doc, Of: turn}),
				v.send(s, "turn-"+strconv.Itoa(turn), "turn", v.data(doc, doc.Turns, true)[0]))
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
		err = errors.Join(v.send(s, "status", "status-line", doc), v.send(s, "totals", "totals", p),
			v.send(s, "outline", "outline", p))
		for _, t := range v.data(doc, turns, false) {
			err = errors.Join(err, v.send(s, "turn-"+strconv.Itoa(t.Number), "turn", t))
		}
		return err
	})
}

// nowEvents answers with what the page Now shows.
func (v *pages) nowEvents(w http.ResponseWriter, r *http.Request) error {
	return v.stream(w, r, listInterval, func(ctx context.Context, s *stream) error {
		p, err := v.nowPage(ctx)
		if err != nil {
			return err
		}
		return v.send(s, "now", "now-groups", p)
	})
}

// listEvents answers with the sessions of a list.
func (v *pages) listEvents(w http.ResponseWriter, r *http.Request) error {
	return v.stream(w, r, listInterval, func(ctx context.Context, s *stream) error {
		p, err := v.listPage(ctx, r.URL.Query())
		if err != nil {
			return err
		}
		return v.send(s, "list", "list", p)
	})
}
