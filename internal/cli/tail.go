package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newTail() *cobra.Command {
	var t tailer
	var x struct {
		JSON, NoFollow bool
		Since          string
		Turns          int
		Interval       time.Duration
	}
	takes := between(0, 1, "one session or none")
	return described("tail", &x, takes, func(cmd *cobra.Command, args []string) (err error) {
		if t.store, t.storeName, err = follow(cmd); err != nil {
			return err
		}
		defer t.store.Close()
		if len(args) == 1 {
			t.name = args[0]
		}
		t.turns = x.Turns
		if x.Interval < 10*time.Millisecond {
			return usagef("--interval is %s; use 10ms or more", x.Interval)
		}
		if t.since, err = parseTime("since", x.Since); err != nil {
			return err
		}
		if t.follower.IdleTimeout, err = idleTimeout(cmd); err != nil {
			return err
		}
		t.now = time.Now
		t.waits = func(name string) { _ = note(cmd, "waiting for a session store at %s\n", document.Sanitize(name)) }
		printer := render.NewNewsPrinter(terminal(cmd))
		t.print = printNews(cmd.OutOrStdout(), printer)
		if x.JSON {
			t.print = func(news []document.News, _ bool) error {
				return document.EncodeJSON(forJSON(cmd.OutOrStdout()), "", news...)
			}
		}
		if x.NoFollow {
			return t.once(cmd.Context())
		}
		ticker := time.NewTicker(x.Interval)
		defer ticker.Stop()
		return t.follow(cmd.Context(), ticker.C)
	})
}

// printNews prints news for a person; end is set with the last.
func printNews(w io.Writer, p *render.NewsPrinter) func(news []document.News, end bool) error {
	return func(news []document.News, end bool) error {
		news = slices.DeleteFunc(slices.Clone(news), func(n document.News) bool { return n.Event == newsStore })
		text := p.Print(news)
		if end {
			text += p.Flush()
		}
		if text == "" {
			return nil
		}
		_, err := io.WriteString(w, text)
		return err
	}
}

// newsStore is the event that reports the store itself.
const newsStore = "store"

const (
	// recent is what tail reports by default, and how far the clocks of agents may be apart: a session that was seen so
	// long before the last one may have changed all the same.
	recent = 10 * time.Minute
	// keep is how many turns of a session are looked at again, besides those that were printed first.
	keep = 4
)

// tailer follows sessions of one store.
type tailer struct {
	// store is what to follow, and storeName its path or address. name is what the user called the session, "" for
	// all of them.
	store           store.Follower
	storeName, name string
	turns           int
	since           time.Time // zero when not given
	now             func() time.Time
	print           func(news []document.News, end bool) error
	// waits is called once when there is no store yet.
	waits func(name string)

	follower document.Follower
	// from is where the part of each session begins that is looked at.
	from map[string]store.Position
	// id is the session that name means, once it is known.
	id string
	// lastSeen is when anything was last updated, in Unix milliseconds.
	lastSeen int64
	// earliest is when what is reported was updated at the earliest.
	earliest time.Time
	// began reports that what was there first has been printed, waiting that the user knows that there is no store.
	began, waiting bool
}

func (t *tailer) once(ctx context.Context) error {
	r, _, err := t.store.Poll(ctx)
	if err != nil {
		return err
	}
	if r == nil {
		return noStore(t.storeName)
	}
	if err := t.read(ctx, r); err != nil {
		return err
	}
	return t.print(nil, true)
}

// follow reports what is there and what comes, looking at each tick, until ctx ends.
func (t *tailer) follow(ctx context.Context, ticks <-chan time.Time) error {
	for {
		err := t.look(ctx)
		if err == nil {
			select {
			case <-ctx.Done():
			case <-ticks:
			}
		}
		if ctx.Err() != nil {
			return t.print(nil, true) // the user has seen enough
		}
		if err != nil {
			return errors.Join(err, t.print(nil, true))
		}
	}
}

func (t *tailer) look(ctx context.Context) error {
	r, change, err := t.store.Poll(ctx)
	if t.began && errors.Is(err, store.ErrNotStore) || errors.Is(err, store.ErrUnavailable) {
		return nil // it is in the making, or busy; a later look shows it
	}
	if err != nil {
		return err
	}
	var state document.State
	switch change {
	case store.Gone:
		state = "gone"
	case store.Opened:
		if t.began {
			state, t.id, t.lastSeen = "opened", "", 0
		}
	case store.Unchanged:
		if r != nil {
			return t.print(t.follower.Idle(t.now()), false)
		}
	}
	if state != "" {
		news := []document.News{{Event: newsStore, At: t.now().UnixMilli(), State: state}}
		if err := t.print(news, false); err != nil {
			return err
		}
	}
	if r == nil {
		if !t.waiting {
			t.waiting = true
			t.waits(t.storeName)
		}
		return nil
	}
	if state != "" { // mostly it is the same store; in another, what was reported may be gone
		for _, id := range slices.Sorted(maps.Keys(t.from)) {
			err = cmp.Or(err, t.session(ctx, r, id))
		}
	}
	err = cmp.Or(err, t.read(ctx, r))
	if errors.Is(err, store.ErrUnavailable) {
		return nil
	}
	t.waiting = t.waiting && err != nil
	return err
}

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
	return t.print(t.follower.Idle(t.now()), false) // what is not looked at falls silent too
}

// candidates are the sessions to look at, the one last seen at the end.
func (t *tailer) candidates(ctx context.Context, r store.Reader) (ids []string, err error) {
	if t.name != "" {
		if t.id == "" {
			t.id, err = r.Resolve(ctx, t.name)
			if errors.Is(err, store.ErrNotFound) && (t.began || t.waiting) {
				return nil, nil // it may come, as the store did
			}
		}
		return []string{t.id}, err
	}
	now := t.now()
	if t.earliest.IsZero() {
		if t.earliest = t.since; t.since.IsZero() {
			t.earliest = now.Add(-recent)
		}
	}
	after := t.earliest
	if seen := time.UnixMilli(min(t.lastSeen, now.UnixMilli())).Add(-recent); seen.After(after) {
		after = seen
	}
	sessions, err := document.Reader{Reader: r}.Select(ctx, store.UpdatedSince(after), "")
	if err != nil {
		return nil, err
	}
	slices.Reverse(sessions)
	there := make(map[string]bool, len(sessions))
	for i := range sessions {
		there[sessions[i].ID], ids = true, append(ids, sessions[i].ID)
		t.lastSeen = max(t.lastSeen, sessions[i].UpdatedAt)
	}
	for _, id := range t.follower.Prune(there) {
		delete(t.from, id)
	}
	return ids, nil
}

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
	if t.from == nil {
		t.from = make(map[string]store.Position)
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
	return t.print(news, false)
}
