package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// TestFollower: what happens to a store and its file is built at the next look, and nothing else is.
func TestFollower(t *testing.T) {
	path := newPath(t)
	f := Follow(path)
	defer f.Close()
	look := func(what string, want store.Change, there bool) store.Reader {
		t.Helper()
		r, got, err := f.Poll(t.Context())
		if err != nil || got != want || (r != nil) != there {
			t.Fatalf("%s: change %d, reader %v, %v; want change %d", what, got, r != nil, err, want)
		}
		return r
	}
	look("no file", store.Unchanged, false)
	testscale.WriteFile(t, path, "")
	look("an empty file", store.Unchanged, false)
	s := open(t, path, Options{})
	r := look("a store", store.Opened, true)
	look("nothing new", store.Unchanged, true)
	apply(t, s, turnBatch("ses_1", "1"))
	look("a commit", store.Changed, true)
	look("nothing since", store.Unchanged, true)
	if _, err := r.Session(t.Context(), "ses_1"); err != nil {
		t.Error(err)
	}
	testscale.Must(t, s.Close())
	for change := store.Changed; change != store.Unchanged; { // the log goes into the file
		_, c, err := f.Poll(t.Context())
		testscale.Must(t, err)
		change = c
	}
	s = open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "2"))
	look("another writer", store.Changed, true)
	testscale.Must(t, s.Close())
	moveStore(t, path, filepath.Join(t.TempDir(), "old.db"))
	look("moved away", store.Gone, false)
	look("still away", store.Unchanged, false)
	fresh := open(t, path, Options{})
	r = look("another file", store.Opened, true)
	if _, err := r.Session(t.Context(), "ses_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the old file is read: %v", err)
	}
	other := newPath(t)
	another := open(t, other, Options{})
	apply(t, another, turnBatch("ses_2", "1"))
	testscale.Must(t, another.Close())
	testscale.Must(t, fresh.Close())
	moveStore(t, path, filepath.Join(t.TempDir(), "old.db"))
	moveStore(t, other, path)
	r = look("a file put in its place", store.Opened, true)
	if _, err := r.Session(t.Context(), "ses_2"); err != nil {
		t.Error(err)
	}
}

// moveStore moves a database with its log.
func moveStore(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(from+suffix, to+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestFollowNoStore: what is no store is an error, each time.
func TestFollowNoStore(t *testing.T) {
	path := newPath(t)
	testscale.WriteFile(t, path, "a letter and not a database")
	f := Follow(path)
	defer f.Close()
	for range 2 {
		if _, _, err := f.Poll(t.Context()); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("%v; want ErrNotStore", err)
		}
	}
}

// TestPlans: what is read of one session, or of the newest, is found by an index, however many there are.
func TestPlans(t *testing.T) {
	path := newPath(t)
	apply(t, open(t, path, Options{}), turnBatch("s", "1"))
	opened := openReader(t, path)
	r := sqlstore.NewReader(explained{opened, t})
	ctx, from := t.Context(), store.Position{At: 1}
	for name, read := range map[string]func() error{
		"Session":    func() error { _, err := r.Session(ctx, "s"); return err },
		"Transcript": func() error { _, err := r.Transcript(ctx, "s"); return err },
		"Tail":       func() error { _, err := r.Excerpt(ctx, "s", store.ExcerptQuery{From: from}); return err },
		"Outline":    func() error { _, err := r.Excerpt(ctx, "s", store.ExcerptQuery{Outline: true}); return err },
		"LastTurn": func() error {
			_, err := r.Excerpt(ctx, "s", store.ExcerptQuery{LastTurns: 1, Outline: true})
			return err
		},
		"Messages": func() error {
			_, err := r.Excerpt(ctx, "s", store.ExcerptQuery{Messages: []string{"m"}, Spans: true})
			return err
		},
		"Decisions":      func() error { _, err := r.Decisions(ctx, "s"); return err },
		"SpanRefs":       func() error { _, err := r.SpanRefs(ctx, "s"); return err },
		"Observed":       func() error { _, err := r.Observed(ctx, "s"); return err },
		"Origin":         func() error { return r.Origin(ctx, &store.Imported{Transcript: &session.Transcript{}}) },
		"Spent":          func() error { _, err := r.Spent(ctx, []string{"s"}, nil); return err },
		"Missing":        func() error { _, err := r.Missing(ctx, []string{"s"}); return err },
		"MayHaveNotices": func() error { _, err := r.MayHaveNotices(ctx, []string{"s"}); return err },
		"Resolve":        func() error { _, err := r.Resolve(ctx, "s"); return err },
		"Sessions": func() error {
			for _, err := range r.Sessions(ctx, store.SessionQuery{ParentID: "s"}) {
				return err
			}
			return nil
		},
		"UpdatedSince": func() error {
			for _, err := range r.Sessions(ctx, store.UpdatedSince(time.UnixMilli(5))) {
				return err
			}
			return nil
		},
	} {
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// explained is a source whose queries must read no table from its beginning.
type explained struct {
	*Reader
	t *testing.T
}

func (e explained) Read(ctx context.Context, fn func(sqlstore.Conn) error) error {
	return e.Reader.Read(ctx, func(conn sqlstore.Conn) error { return fn(explainedConn{conn, e.t}) })
}

type explainedConn struct {
	sqlstore.Conn
	t *testing.T
}

func (e explainedConn) Query(query string, fn func(store.Row) error, args ...any) error {
	err := e.Conn.Query("EXPLAIN QUERY PLAN "+query, func(row store.Row) error {
		plan := row.ColumnText(3)
		subquery := strings.HasPrefix(plan, "SCAN (") || plan == "SCAN k"
		if strings.HasPrefix(plan, "SCAN") && plan != "SCAN CONSTANT ROW" && !subquery &&
			!strings.Contains(plan, "VIRTUAL TABLE") {
			e.t.Errorf("%s\n%s", query, plan)
		}
		if strings.HasPrefix(plan, "CORRELATED") && strings.Contains(query, "CROSS JOIN chat_parts p") {
			e.t.Errorf("the parts of a message are read once for each of them:\n%s", query)
		}
		return nil
	}, args...)
	if err != nil {
		return err
	}
	return e.Conn.Query(query, fn, args...)
}
