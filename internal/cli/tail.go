package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newTail() *cobra.Command {
	var o tailOptions
	var asJSON, noFollow bool
	var since string
	var interval time.Duration
	cmd := described("tail", flags{
		"json": &asJSON, "since": &since, "turns": &o.turns, "no-follow": &noFollow, "interval": &interval,
	}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("tail takes one session or none, not %d; %s --help shows examples", len(args),
					cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.store, o.storeName, err = follow(cmd); err != nil {
				return err
			}
			if len(args) == 1 {
				o.name = args[0]
			}
			if o.turns < 1 {
				return usagef("--turns is %d; use a number above 0", o.turns)
			}
			if interval < 10*time.Millisecond {
				return usagef("--interval is %s; use 10ms or more", interval)
			}
			if since != "" {
				if o.since, err = parseTime("since", since); err != nil {
					return err
				}
			}
			if o.idleTimeout, err = idleTimeout(cmd); err != nil {
				return err
			}
			o.now, o.notice = time.Now, cmd.ErrOrStderr()
			printer := render.NewNewsPrinter(terminal(cmd))
			printer.Grow = isTerminal(cmd.OutOrStdout())
			o.sink = &humanSink{w: cmd.OutOrStdout(), p: printer}
			if asJSON {
				o.sink = &jsonSink{w: jsonOutput(cmd)}
			}
			if noFollow {
				return newTailer(o).once(cmd.Context())
			}
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			return newTailer(o).follow(cmd.Context(), ticker.C)
		},
	})
	idleTimeoutFlag(cmd)
	return cmd
}

type tailOptions struct {
	// store is what to follow, and storeName its path or address.
	store     store.Follower
	storeName string
	// name is what the user called the session, "" for all of them.
	name        string
	turns       int
	since       time.Time // zero when not given
	idleTimeout time.Duration
	now         func() time.Time
	sink        newsSink
	// notice is where it states what it waits for.
	notice io.Writer
}

// newsSink is where news goes.
type newsSink interface {
	news([]document.News) error
	// close ends what is open.
	close() error
}

type humanSink struct {
	w io.Writer
	p *render.NewsPrinter
}

func (s *humanSink) news(news []document.News) error {
	var reported []document.News
	for _, n := range news {
		if n.Event != newsStore {
			reported = append(reported, n)
		}
	}
	return s.write(s.p.Print(reported))
}

func (s *humanSink) close() error { return s.write(s.p.Flush()) }

func (s *humanSink) write(text string) error {
	if text == "" {
		return nil
	}
	_, err := io.WriteString(s.w, text)
	return err
}

// jsonSink writes a line per event.
type jsonSink struct{ w io.Writer }

func (s *jsonSink) news(news []document.News) error {
	e := json.NewEncoder(s.w)
	e.SetEscapeHTML(false)
	for i := range news {
		if err := e.Encode(&news[i]); err != nil {
			return err
		}
	}
	return nil
}

func (*jsonSink) close() error { return nil }

// newsStore is the event that reports the store itself.
const newsStore = "store"

const (
	// recent is what tail reports by default.
	recent = 10 * time.Minute
	// lag is how far the clocks of agents may be apart: a session that was seen
	// so long before the last one may have changed all the same.
	lag = 15 * time.Minute
	// keep is how many turns of a session are looked at again, besides those that
	// were printed first.
	keep = 4
)

// tailer follows sessions of one store.
type tailer struct {
	tailOptions
	follower document.Follower
	// from is where the part of each session begins that is looked at.
	from map[string]store.Position
	// id is the session that name means, once it is known.
	id string
	// lastSeen is when anything was last updated, in Unix milliseconds.
	lastSeen int64
	// old are sessions that were there at first, too old to be reported, and when
	// they were seen.
	old map[string]int64
	// began reports that what was there first has been printed, waiting that the user
	// knows that there is no store.
	began, waiting bool
}

func newTailer(o tailOptions) *tailer {
	t := &tailer{tailOptions: o, from: make(map[string]store.Position)}
	t.follower.IdleTimeout = o.idleTimeout
	return t
}

// once reports what is there.
func (t *tailer) once(ctx context.Context) error {
	defer t.store.Close()
	r, _, err := t.store.Poll(ctx)
	if err != nil {
		return err
	}
	if r == nil {
		return noStoreError{fmt.Errorf("there is no session store at %s", t.storeName)}
	}
	if err := t.read(ctx, r); err != nil {
		return err
	}
	return t.sink.close()
}

// follow reports what is there and what comes, looking at each tick, until ctx ends.
func (t *tailer) follow(ctx context.Context, ticks <-chan time.Time) error {
	defer t.store.Close()
	for {
		if err := t.look(ctx); err != nil {
			if ctx.Err() != nil {
				break
			}
			return errors.Join(err, t.sink.close())
		}
		select {
		case <-ctx.Done():
		case <-ticks:
		}
		if ctx.Err() != nil {
			break
		}
	}
	return t.sink.close() // the user has seen enough
}

// look reports what is new.
func (t *tailer) look(ctx context.Context) error {
	r, change, err := t.store.Poll(ctx)
	if err != nil {
		if t.began && errors.Is(err, store.ErrNotStore) || errors.Is(err, store.ErrUnavailable) {
			return nil // it is in the making, or busy; a later look shows it
		}
		return err
	}
	switch change {
	case store.Gone:
		if err := t.sink.news([]document.News{{Event: newsStore, At: t.now().UnixMilli(), State: "gone"}}); err != nil {
			return err
		}
	case store.Opened:
		if t.began {
			// Its sessions are others, or the same with another past.
			t.follower = document.Follower{IdleTimeout: t.idleTimeout}
			clear(t.from)
			t.id, t.lastSeen, t.old = "", 0, nil
			opened := document.News{Event: newsStore, At: t.now().UnixMilli(), State: "opened"}
			if err := t.sink.news([]document.News{opened}); err != nil {
				return err
			}
		}
	case store.Unchanged:
		if r != nil {
			return t.sink.news(t.follower.Idle(t.now()))
		}
	}
	if r == nil {
		if !t.waiting {
			t.waiting = true
			fmt.Fprintf(t.notice, "waiting for a session store at %s\n", document.Sanitize(t.storeName))
		}
		return nil
	}
	if err := t.read(ctx, r); err != nil {
		if errors.Is(err, store.ErrUnavailable) {
			return nil
		}
		return err
	}
	t.waiting = false
	return nil
}

// read reports what is new in the sessions that may have changed.
func (t *tailer) read(ctx context.Context, r store.Reader) error {
	ids, err := t.candidates(ctx, r)
	if err != nil {
		return err
	}
	t.began = true
	for _, id := range ids {
		if err := t.session(ctx, r, id); err != nil {
			return err
		}
	}
	return t.sink.news(t.follower.Idle(t.now())) // what is not looked at falls silent too
}

// candidates are the sessions to look at, the one last seen at the end.
func (t *tailer) candidates(ctx context.Context, r store.Reader) ([]string, error) {
	if t.name != "" {
		if t.id == "" {
			id, err := r.Resolve(ctx, t.name)
			if errors.Is(err, store.ErrNotFound) && (t.began || t.waiting) {
				return nil, nil // it may come, as the store did
			}
			if err != nil {
				return nil, err
			}
			t.id = id
		}
		return []string{t.id}, nil
	}
	now := t.now()
	reported := now.Add(-recent)
	if !t.since.IsZero() {
		reported = t.since
	}
	after := now.Add(-lag)
	if t.lastSeen != 0 {
		after = time.UnixMilli(min(t.lastSeen, now.UnixMilli())).Add(-lag)
	}
	if !t.began && reported.Before(after) {
		after = reported
	}
	sessions, err := r.SessionsSince(ctx, after.UnixMilli())
	if err != nil {
		return nil, err
	}
	var ids []string
	there := make(map[string]bool, len(sessions))
	old := make(map[string]int64)
	for i := range sessions {
		s := &sessions[i]
		there[s.ID] = true
		t.lastSeen = max(t.lastSeen, s.UpdatedAt)
		seen, isOld := t.old[s.ID]
		if isOld && seen == s.UpdatedAt || !t.began && s.UpdatedAt < reported.UnixMilli() {
			old[s.ID] = s.UpdatedAt
			continue
		}
		ids = append(ids, s.ID)
	}
	t.old = old
	for _, id := range t.follower.Prune(there) {
		delete(t.from, id)
	}
	return ids, nil
}

// session reports what is new in one session.
func (t *tailer) session(ctx context.Context, r store.Reader, id string) error {
	from, known := t.from[id]
	q := store.ExcerptQuery{From: from}
	switch {
	case known:
	case !t.since.IsZero():
		q.From.At = t.since.UnixMilli()
	default:
		q.LastTurns = max(t.turns, 1)
	}
	e, err := r.Excerpt(ctx, id, q)
	if errors.Is(err, store.ErrNotFound) { // it was deleted
		t.follower.Forget(id)
		delete(t.from, id)
		return nil
	}
	if err != nil {
		return err
	}
	if !known {
		t.from[id] = e.From
	}
	news := t.follower.Read(e.Transcript, e.Decisions, t.now())
	var users []store.Position
	for i := range e.Messages {
		if m := &e.Messages[i].Message; m.Role == session.RoleUser {
			users = append(users, store.PositionOf(m))
		}
	}
	if n := len(users); n > t.turns+keep {
		t.from[id] = users[n-keep]
	}
	return t.sink.news(news)
}
