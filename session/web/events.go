package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// emptyEvent is the data of an event that has only a name.
type emptyEvent struct{}

// lag is how far the clocks of agents may be apart: a session that was updated so long before another event may be
// news all the same.
const lag = 15 * time.Minute

// eventID is the id of an event: a position in the changes of a store, and when the event was sent.
type eventID struct {
	Position
	at int64 // Unix milliseconds
}

func (id eventID) String() string { return fmt.Sprintf("%d-%d-%d", id.Epoch, id.Count, id.at) }

// lastEventID is the parameter that continues a stream.
type lastEventID struct{ *eventID }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *lastEventID) UnmarshalText(text []byte) error {
	var id eventID
	numbers := strings.Split(string(text), "-")
	err := errors.New("use the id of an event, or leave it out")
	if len(numbers) != 3 {
		return err
	}
	for i, to := range []*uint64{&id.Epoch, &id.Count} {
		var wrong error
		if *to, wrong = strconv.ParseUint(numbers[i], 10, 64); wrong != nil {
			return err
		}
	}
	var wrong error
	if id.at, wrong = strconv.ParseInt(numbers[2], 10, 64); wrong != nil || id.at < 0 {
		return err
	}
	l.eventID = &id
	return nil
}

// event adds an event, unless the last one of the kind and subject had the same data. About is "" for an event that is
// always sent.
func (s *stream) event(id eventID, kind, about string, data any) error {
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
	fmt.Fprintf(&s.events, "event: %s\nid: %s\ndata: %s\n\n", kind, id, text)
	return nil
}

// watched is what a stream is about.
type watched interface {
	// begin is called once, with the event after which the client goes on, nil for one that begins.
	begin(ctx context.Context, s *stream, id eventID, after *eventID) error
	// read is called when the store has changed, and from time to time: a session is interrupted when nothing changes.
	read(ctx context.Context, s *stream, id eventID) error
}

// follow sends events of something until the client leaves or the server stops.
func (a *api) follow(w http.ResponseWriter, r *http.Request, after *eventID, of watched) error {
	if a.Changes == nil {
		return NotFoundf("", "read again for what has changed", "there are no events here")
	}
	ctx := r.Context()
	at, err := a.Changes.Position(ctx)
	if err != nil {
		return err
	}
	s := newStream(a.Backend, keepAlive)
	if after != nil && after.Epoch != at.Epoch {
		after = nil
		if err := s.event(newEventID(at), eventReset, "", emptyEvent{}); err != nil {
			return err
		}
	}
	if err := of.begin(ctx, s, newEventID(at), after); err != nil {
		return err // nothing was sent yet
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes events on as they come
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	s.events.WriteString(": " + time.Now().UTC().Format(time.RFC3339) + "\n\n") // so that the client gets the header
	s.send(w, r, at, func(ctx context.Context, now Position) error { return of.read(ctx, s, newEventID(now)) })
	return nil
}

func newEventID(at Position) eventID { return eventID{at, time.Now().UnixMilli()} }

type eventsParams struct {
	After lastEventID `param:"Last-Event-ID"`
}

// events sends what changes in the store.
func (a *api) events(w http.ResponseWriter, r *http.Request, p eventsParams) error {
	return a.follow(w, r, p.After.eventID, &allSessions{api: a})
}

// maxFollowed is how many of the sessions that were updated last are compared when the store changes. Of others that
// change, such as an old one that gets a tag, there is only the event that something has.
const maxFollowed = 200

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

func (x *allSessions) begin(ctx context.Context, s *stream, id eventID, after *eventID) (err error) {
	x.at, x.seen, x.working = id.Position, make(map[string]string), make(map[string]bool)
	if after == nil || after.Position == id.Position {
		// The client has read what is there. It is read to know what differs later.
		var rows []session.Session
		x.seen, rows, err = x.rows(ctx, id)
		for i := range rows {
			x.working[rows[i].ID] = rows[i].UpdatedAt >= id.at-lag.Milliseconds()
		}
		return err
	}
	return x.readRows(ctx, s, id)
}

func (x *allSessions) read(ctx context.Context, s *stream, id eventID) error {
	if x.at != id.Position {
		x.at = id.Position
		if err := s.event(id, eventChange, "", emptyEvent{}); err != nil {
			return err
		}
	}
	return x.readRows(ctx, s, id)
}

// rows reads the sessions that were updated last, and what the store has of each.
func (x *allSessions) rows(ctx context.Context, id eventID) (seen map[string]string, rows []session.Session,
	err error) {
	q := store.SessionQuery{Limit: maxFollowed, Children: true, Archived: true}
	if rows, err = x.Sessions.Select(ctx, q, ""); err != nil {
		return nil, nil, err
	}
	if since := id.at - lag.Milliseconds(); len(rows) == maxFollowed && rows[maxFollowed-1].UpdatedAt >= since {
		if rows, err = x.Sessions.SessionsSince(ctx, since); err != nil {
			return nil, nil, err
		}
	}
	seen = make(map[string]string, len(rows))
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
		seen[rows[i].ID] = string(rows[i].AppendJSON(nil))
	}
	annotations, err := x.Sessions.Annotations(ctx, ids...)
	for i := range annotations {
		seen[annotations[i].SessionID] += string(annotations[i].AppendJSON(nil))
	}
	return seen, rows, err
}

// readRows adds an event for each session that differs from what was there, and for each that is gone.
func (x *allSessions) readRows(ctx context.Context, s *stream, id eventID) error {
	seen, rows, err := x.rows(ctx, id)
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
		if err := s.event(id, eventSession, item.ID, item); err != nil {
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
			if err := s.event(id, eventDeleted, "", deleted{gone}); err != nil {
				return err
			}
		}
	}
	x.seen = seen
	return nil
}

type sessionEventsParams struct {
	sessionPath
	eventsParams
	Turns int `param:"turns"`
}

// sessionEvents sends what changes at the end of a session.
func (a *api) sessionEvents(w http.ResponseWriter, r *http.Request, p sessionEventsParams) error {
	return a.follow(w, r, p.After.eventID, &oneSession{api: a, id: p.ID, turns: p.Turns})
}

// oneSession is the end of a session.
type oneSession struct {
	*api
	id    string
	turns int
	// first is the number of the first turn that is followed, once the session is known.
	first int
}

func (x *oneSession) begin(ctx context.Context, s *stream, id eventID, after *eventID) error {
	err := x.read(ctx, s, id)
	if after != nil && after.Position == id.Position {
		s.events.Reset() // the client has it
	}
	return err
}

// read adds an event for the status and for each turn that differ from what was sent of them.
func (x *oneSession) read(ctx context.Context, s *stream, id eventID) error {
	doc, err := x.end(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return errors.Join(s.event(id, eventDeleted, "", deleted{x.id}), errEnd)
	}
	if err != nil {
		return err
	}
	if err := s.event(id, eventStatus, x.id, doc.Status); err != nil {
		return err
	}
	for _, turn := range doc.Turns {
		if err := s.event(id, eventTurn, strconv.Itoa(turn.Number), turn); err != nil {
			return err
		}
	}
	return nil
}

// end returns the status of the session, and the turns that are followed.
func (x *oneSession) end(ctx context.Context) (*document.Document, error) {
	o, err := x.Sessions.LoadOutline(ctx, x.id)
	if err != nil {
		return nil, err
	}
	n := len(o.Turns)
	if x.first == 0 {
		x.first = max(1, n-x.turns+1)
	}
	if x.first <= n {
		return o.Range(ctx, x.first, n)
	}
	status, err := x.Sessions.LoadStatus(ctx, x.id)
	return &document.Document{Status: status}, err
}
