package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// received is an event as a client gets it.
type received struct{ kind, id, data string }

// listener reads a stream of events.
type listener struct {
	testing.TB
	events chan received
	leave  context.CancelFunc
	check  func(received) // by the schema that is described for it
}

// listen begins a stream, after an event if one is given.
func (s *site) listen(path, after string) *listener {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+Prefix+path, nil)
	testscale.Must(s, err)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	answer, err := s.Client().Do(r)
	testscale.Must(s, err)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("%s: status %d, content %s", path, answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	l := &listener{TB: s.TB, events: make(chan received, 1000), leave: cancel}
	schemas := make(map[string]*jsonschema.Resolved)
	d, template := describedBy(s), "/events"
	if strings.HasPrefix(path, "sessions/") {
		template = "/sessions/{id}/events"
	}
	for kind, schema := range d.Paths[template]["get"].Events {
		schemas[kind] = d.schema(s, schema)
	}
	l.check = func(e received) {
		var v any
		if schema := schemas[e.kind]; schema == nil {
			s.Errorf("event %s is not described", e.kind)
		} else if err := errors.Join(json.Unmarshal([]byte(e.data), &v), schema.Validate(v)); err != nil {
			s.Errorf("event %s: %v\n%.1000s", e.kind, err, e.data)
		}
	}
	go func() {
		defer close(l.events)
		defer answer.Body.Close()
		var e received
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				e.data += value
			case "":
				if e.kind != "" {
					l.events <- e
				}
				e = received{}
			}
		}
	}()
	return l
}

// until returns the events up to the first of a kind that is accepted.
func (l *listener) until(kind string, accepted func(data string) bool) (all []received) {
	l.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-l.events:
			if !ok {
				l.Fatalf("the stream ended without %s, after %v", kind, all)
			}
			l.check(e)
			if all = append(all, e); e.kind == kind && (accepted == nil || accepted(e.data)) {
				return all
			}
		case <-late:
			l.Fatalf("there is no event %s after %v", kind, all)
		}
	}
}

// titled accepts an item of a session with a title.
func titled(title string) func(string) bool {
	return func(data string) bool {
		var item document.Item
		return json.Unmarshal([]byte(data), &item) == nil && item.Title == title
	}
}

func TestASessionThatChangesIsAnEvent(t *testing.T) {
	s := newSite(t, false)
	all := s.listen("events", "")
	s.setTitle("oa-1", "One")
	got := all.until("session", titled("One"))
	if len(got) != 2 || got[0].kind != "change" {
		t.Errorf("the events are %v, want change and session", got)
	}
	last := got[len(got)-1].id
	all.leave()

	// What happens while nobody listens follows the last event. That something changed may be a session that is gone.
	s.setTitle("lf-1", "Two")
	if got = s.listen("events", last).until("session", titled("Two")); got[0].kind != "change" {
		t.Errorf("the first event is %v, want change", got[0])
	}
	for _, e := range got {
		if e.kind == "reset" {
			t.Error("a client that goes on begins again")
		}
	}
	// One that missed nothing gets nothing again.
	quiet := s.listen("events", got[len(got)-1].id)
	s.setTitle("va-1", "Three")
	for _, e := range quiet.until("session", titled("Three")) {
		if e.kind == "session" && titled("Two")(e.data) {
			t.Errorf("an event comes twice: %v", e)
		}
	}
	testscale.Must(t, s.store.Delete(t.Context(), "va-1"))
	quiet.until("deleted", func(data string) bool { return data == `{"session_id":"va-1"}` })
}

func (s *site) setTitle(id, title string) {
	s.Helper()
	testscale.Must(s, s.store.SetTitle(s.Context(), id, title, time.Now()))
}

func TestAClientOfAnotherServerBeginsAgain(t *testing.T) {
	s := newSite(t, false)
	for _, path := range []string{"events", "sessions/oa-1/events"} {
		got := s.listen(path, "12-34-56").until("reset", nil)
		if len(got) != 1 {
			t.Errorf("%s: reset is not the first of %v", path, got)
		}
	}
}

func TestTheEndOfASessionIsFollowed(t *testing.T) {
	s := newSite(t, false)
	const id = "lf-1"
	l := s.listen("sessions/"+id+"/events?turns=2", "")
	var turn document.Turn
	l.until("status", nil)
	for _, want := range []int{3, 4} {
		got := l.until("turn", nil)
		if err := json.Unmarshal([]byte(got[len(got)-1].data), &turn); err != nil || turn.Number != want {
			t.Errorf("turn %d, want %d (%v)", turn.Number, want, err)
		}
		var read document.Document
		s.get(fmt.Sprintf("sessions/%s/turns/%d", id, want), &read)
		if text, err := json.Marshal(read.Turns[0]); err != nil || string(text) != got[len(got)-1].data {
			t.Errorf("turn %d is not the one that is read (%v):\n%s\n%s", want, err, got[len(got)-1].data, text)
		}
	}
	// A change of another session has no event here.
	s.setTitle("oa-1", "Another")
	end, err := s.store.Excerpt(t.Context(), id, store.ExcerptQuery{LastTurns: 2})
	if err == nil {
		_, err = s.store.Rewind(t.Context(), id, end.From.ID, time.Now())
	}
	testscale.Must(t, err)
	got := l.until("turn", func(data string) bool { return strings.Contains(data, `"hidden":true`) })
	if err := json.Unmarshal([]byte(got[len(got)-1].data), &turn); err != nil || turn.Number != 4 {
		t.Errorf("turn %d was hidden, want 4 (%v)", turn.Number, err)
	}
	testscale.Must(t, s.store.Delete(t.Context(), id))
	l.until("deleted", nil)
	if _, more := <-l.events; more {
		t.Error("the stream of a deleted session goes on")
	}
}

// slow is a reader that does not take what is written.
type slow struct {
	*httptest.ResponseRecorder
	deadlines int
}

func (s *slow) SetWriteDeadline(time.Time) error { s.deadlines++; return nil }

func (s *slow) Write(b []byte) (int, error) {
	if s.deadlines < 2 {
		return len(b), nil
	}
	return 0, errors.New("i/o timeout")
}

// Each write has a deadline, and the stream of a reader that misses one ends.
func TestASlowReaderIsDropped(t *testing.T) {
	s := newSite(t, false)
	changes := NewCounter(sqlite.Follow(s.store.Path()))
	defer changes.Close()
	w := &slow{ResponseRecorder: httptest.NewRecorder()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler := New(Backend{Sessions: document.Reader{Reader: s.store}, Changes: changes}, Options{})
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Prefix+"events", nil))
	}()
	for i := 0; ; i++ {
		s.setTitle("oa-1", fmt.Sprint("Title ", i))
		select {
		case <-done:
			if w.deadlines != 2 {
				t.Errorf("%d deadlines were set", w.deadlines)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		if i > 300 {
			t.Fatal("the stream goes on")
		}
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	s := newSite(t, false)
	changes := NewCounter(sqlite.Follow(s.store.Path()))
	defer changes.Close()
	stop := make(chan struct{})
	server := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: s.store}, Changes: changes,
		Done: stop}, Options{}))
	defer server.Close()
	l := (&site{t, server, s.store}).listen("sessions/oa-1/events", "")
	l.until("turn", nil)
	close(stop)
	for range l.events {
	}
}

func TestAServerWithoutEventsSaysSo(t *testing.T) {
	s := newSite(t, false)
	server := httptest.NewServer(New(Backend{Sessions: document.Reader{Reader: s.store}}, Options{}))
	defer server.Close()
	(&site{t, server, s.store}).fails(http.MethodGet, Prefix+"events", "", http.StatusNotFound, CodeNotFound,
		"")
}
