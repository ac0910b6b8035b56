package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Names of events. The data of each is what something is now, so repeating or losing one is harmless.
const (
	// eventReset: what was sent before may be something else now. It is sent to a client that goes on after an event
	// of another server, or of another start of this one.
	eventReset = "reset"
	// eventChange: the store has changed, in whatever way.
	eventChange = "change"
	// eventSession: a session is new, or differs in a list.
	eventSession = "session"
	// eventDeleted: a session was deleted.
	eventDeleted = "deleted"
	// eventStatus: a session does something else.
	eventStatus = "status"
	// eventTurn: a turn is new, or has changed.
	eventTurn = "turn"
)

// deleted names a session that is gone.
type deleted struct {
	SessionID string `json:"session_id"`
}

const (
	// pollInterval is how often a stream of events looks for changes of the store.
	pollInterval = 400 * time.Millisecond
	// keepAlive is how long a stream of events is silent at most.
	keepAlive = 15 * time.Second
	// sendTimeout is how long a reader may take for a piece of an answer. One that takes longer is cut off: what it
	// reads may be held open in the store.
	sendTimeout = 20 * time.Second
	// maxFollowed is how many of the sessions that were updated last are compared when the store changes. Of others
	// that change, such as an old one that gets a tag, there is only the event that something has.
	maxFollowed = 200
)

// Counter counts the changes of a store, for clients that follow it. It looks for them when it is asked. It is safe for
// concurrent use.
type Counter struct {
	mu       sync.Mutex
	follower store.Follower
	at       Position
}

// NewCounter returns a Counter of what a Follower watches. The Counter closes it.
func NewCounter(f store.Follower) *Counter {
	return &Counter{follower: f, at: Position{Epoch: rand.Uint64()}}
}

// Position is how often the store has changed at least, since the Counter was made: a part that is the Counter's, and
// the count.
type Position struct {
	Epoch uint64 `json:"epoch,string"`
	Count uint64 `json:"count,string"`
}

// Position looks whether the store has changed since it was asked last.
func (c *Counter) Position(ctx context.Context) (Position, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, change, err := c.follower.Poll(ctx)
	if err != nil {
		return Position{}, fmt.Errorf("look for changes: %w", err)
	}
	if change != store.Unchanged {
		c.at.Count++
	}
	return c.at, nil
}

// Close closes the Follower.
func (c *Counter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follower.Close()
}

// lastEvent is the parameter that continues a stream: the id of an event. That is a position in the changes of the
// store, and when the event was sent, in Unix milliseconds.
type lastEvent struct{ *Position }

func (l *lastEvent) UnmarshalText(text []byte) error {
	var at Position
	var sent int64
	if _, err := fmt.Sscanf(string(text), "%d-%d-%d", &at.Epoch, &at.Count, &sent); err != nil {
		return errors.New("use the id of an event, or leave it out")
	}
	l.Position = &at
	return nil
}

// stream has the server-sent events that are to be sent next.
type stream struct {
	bytes.Buffer
	// at is the position in the changes of the store of what is read.
	at Position
	// sent has the data of the last event of each subject.
	sent map[string]string
}

// event adds an event, unless the last one of the kind and subject had the same data. About is "" for an event that is
// always sent.
func (s *stream) event(kind, about string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", kind, err)
	}
	if about != "" {
		about = kind + " " + about
		if s.sent[about] == string(text) {
			return nil
		}
		s.sent[about] = string(text)
	}
	fmt.Fprintf(s, "event: %s\nid: %d-%d-%d\ndata: %s\n\n", kind, s.at.Epoch, s.at.Count, time.Now().UnixMilli(), text)
	return nil
}

// errEnd ends a stream of events.
var errEnd = errors.New("the stream is over")

// send answers a request with the events of s, and with those that read adds when the store has changed and, unless
// again is 0, after so long without a change, until the reader leaves or the server stops. If read returns errEnd, its
// events are the last; another error passes, and read is called again.
func (a *Backend) send(w http.ResponseWriter, r *http.Request, s *stream, again time.Duration,
	read func(context.Context, *stream) error) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes events on as they come
	if r.Method == http.MethodHead {
		return
	}
	ctx, control, out := r.Context(), http.NewResponseController(w), patiently(w)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	sent, looked := time.Time{}, time.Now()
	flush := func() bool {
		if s.Len() == 0 {
			if time.Since(sent) < keepAlive {
				return true
			}
			s.WriteString(": still here\n\n")
		}
		sent = time.Now()
		_, err := s.WriteTo(out)
		return err == nil && control.Flush() == nil
	}
	for flush() {
		select {
		case <-ctx.Done():
			return
		case <-a.Done:
			return
		case <-tick.C:
		}
		now, err := a.Changes.Position(ctx)
		if err != nil || now == s.at && (again == 0 || time.Since(looked) < again) {
			continue // an error passes, or the reader reconnects
		}
		before := s.at
		s.at = now
		switch err := read(ctx, s); {
		case errors.Is(err, errEnd):
			flush() // the stream ends in any case
			return
		case err == nil:
			looked = time.Now()
		default:
			s.at = before
		}
	}
}

// patiently returns a writer of an answer that gives the reader time for each piece, however many there are.
func patiently(w http.ResponseWriter) io.Writer { return patient{w, http.NewResponseController(w)} }

type patient struct {
	io.Writer
	control *http.ResponseController
}

func (p patient) Write(b []byte) (int, error) {
	// A server without deadlines serves all the same.
	_ = p.control.SetWriteDeadline(time.Now().Add(sendTimeout))
	return p.Writer.Write(b)
}

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
	changed := func(_ context.Context, s *stream) error { return s.event(eventChange, "", none{}) }
	s := &stream{at: at}
	if err := changed(r.Context(), s); err != nil {
		return err
	}
	v.send(w, r, s, 0, changed)
	return nil
}

// follow sends the events that read adds: all of them to a client that goes on after an event, and unless only changes
// are wanted to one that begins.
func (a *api) follow(w http.ResponseWriter, r *http.Request, after *Position, changes bool,
	read func(context.Context, *stream) error) error {
	if a.Changes == nil {
		return NotFoundf("", "read again for what has changed", "there are no events here")
	}
	at, err := a.Changes.Position(r.Context())
	if err != nil {
		return err
	}
	s := &stream{at: at, sent: make(map[string]string)}
	if after != nil && after.Epoch != at.Epoch {
		if err := s.event(eventReset, "", none{}); err != nil {
			return err
		}
		after = nil
	}
	begun := s.Len()
	if err := read(r.Context(), s); err != nil {
		return err // nothing was sent yet
	}
	if after == nil && changes || after != nil && *after == at {
		s.Truncate(begun) // the client has read what is there
	}
	s.WriteString(": " + time.Now().UTC().Format(time.RFC3339) + "\n\n") // so that the client gets the header
	a.send(w, r, s, keepAlive, read)
	return nil
}

type eventsParams struct {
	After lastEvent `param:"Last-Event-ID"`
}

func (a *api) events(w http.ResponseWriter, r *http.Request, p eventsParams) error {
	x := &allSessions{api: a, working: make(map[string]bool)}
	return a.follow(w, r, p.After.Position, true, x.read)
}

// allSessions are the sessions of the store that were updated last.
type allSessions struct {
	*api
	// at is the position that was read last.
	at Position
	// seen has what the store has of each session, to find those that differ, and working those whose status can
	// change with the time alone.
	seen    map[string]string
	working map[string]bool
}

// read adds an event for each session that differs from what was there, and for each that is gone.
func (x *allSessions) read(ctx context.Context, s *stream) error {
	if x.at != s.at { // which begins what a client that goes on is sent
		if err := s.event(eventChange, "", none{}); err != nil {
			return err
		}
	}
	x.at = s.at
	seen, rows, err := x.rows(ctx)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(row session.Session) bool {
		return seen[row.ID] == x.seen[row.ID] && !x.working[row.ID]
	})
	items, _, err := x.Sessions.Items(ctx, rows)
	if err != nil {
		return err
	}
	for i := range items {
		item := &items[i]
		x.working[item.ID] = item.Status != document.ActivityIdle && !item.Status.Trouble()
		if err := s.event(eventSession, item.ID, item); err != nil {
			return err
		}
	}
	for gone := range x.seen {
		if _, there := seen[gone]; there {
			continue
		}
		delete(s.sent, eventSession+" "+gone)
		delete(x.working, gone)
		if _, err := x.Sessions.Session(ctx, gone); errors.Is(err, store.ErrNotFound) {
			if err := s.event(eventDeleted, "", deleted{gone}); err != nil {
				return err
			}
		}
	}
	x.seen = seen
	return nil
}

// rows reads the sessions that were updated last, and what the store has of each.
func (x *allSessions) rows(ctx context.Context) (seen map[string]string, rows []session.Session, err error) {
	q := store.SessionQuery{Limit: maxFollowed, Children: true, Archived: true}
	if rows, err = x.Sessions.Select(ctx, q, ""); err != nil {
		return nil, nil, err
	}
	seen = make(map[string]string, len(rows))
	for i := range rows {
		seen[rows[i].ID] = string(rows[i].AppendJSON(nil))
	}
	annotations, err := x.Sessions.Annotations(ctx, session.IDs(rows)...)
	for i := range annotations {
		seen[annotations[i].SessionID] += string(annotations[i].AppendJSON(nil))
	}
	return seen, rows, err
}

type sessionEventsParams struct {
	sessionPath
	eventsParams
	Turns int
}

// sessionEvents sends what changes at the end of a session: an event for the status and for each turn that differ from
// what was sent of them.
func (a *api) sessionEvents(w http.ResponseWriter, r *http.Request, p sessionEventsParams) error {
	first := 0 // the number of the first turn that is followed, once the session is known
	return a.follow(w, r, p.After.Position, false, func(ctx context.Context, s *stream) error {
		o, err := a.Sessions.LoadOutline(ctx, p.ID)
		if errors.Is(err, store.ErrNotFound) {
			return errors.Join(s.event(eventDeleted, "", deleted{p.ID}), errEnd)
		}
		if err != nil {
			return err
		}
		n := len(o.Turns)
		first = cmp.Or(first, max(1, n-p.Turns+1))
		if n > 0 {
			err = o.Load(ctx, min(first, n), n)
		}
		if err != nil {
			return err
		}
		doc := o.Document().Between(first, n)
		err = s.event(eventStatus, p.ID, doc.Status)
		for _, turn := range doc.Turns {
			err = errors.Join(err, s.event(eventTurn, strconv.Itoa(turn.Number), turn))
		}
		return err
	})
}
