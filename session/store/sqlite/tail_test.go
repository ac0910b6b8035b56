package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestFollower: what happens to a store and its file is built at the next look, and
// nothing else is.
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
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for change := store.Changed; change != store.Unchanged; { // the log goes into the file
		_, c, err := f.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		change = c
	}
	s = open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "2"))
	look("another writer", store.Changed, true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err := another.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, []byte("a letter and not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Follow(path)
	defer f.Close()
	for range 2 {
		if _, _, err := f.Poll(t.Context()); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("%v; want ErrNotStore", err)
		}
	}
}

// TestTail reads the end of a session, and finds by an index where it is.
func TestTail(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	message := func(id, role string, at int64) store.Batch {
		return store.Batch{
			Sessions: []store.SessionChange{{ID: "ses_1", Start: at, End: at}},
			Messages: []store.MessageChange{{ID: id, SessionID: "ses_1", Role: role, CreatedAt: at, UpdatedAt: at,
				Rank: store.RankFinal}},
			Parts: []store.PartChange{{ID: "prt_" + id, MessageID: id, SessionID: "ses_1", Type: "text",
				Data:      []byte(`{"type":"text","text":"x"}`),
				CreatedAt: at, UpdatedAt: at, Rank: store.RankFinal}},
			Decisions: []store.Decision{{ID: "per_" + id, SessionID: "ses_1", ToolID: "bash", Action: "allow", DecidedAt: at}},
		}
	}
	for i, id := range []string{"u1", "a1", "u2", "a2", "u3", "a3"} {
		role := session.RoleUser
		if id[0] == 'a' {
			role = session.RoleAssistant
		}
		apply(t, s, message(id, role, int64(1000+i)))
	}
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []struct {
		turns int
		want  string
	}{{1, "u3 a3"}, {2, "u2 a2 u3 a3"}, {9, "u1 a1 u2 a2 u3 a3"}} {
		from, err := r.TurnStart(t.Context(), "ses_1", c.turns)
		if err != nil {
			t.Fatal(err)
		}
		tail, decisions, err := r.Tail(t.Context(), "ses_1", from)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range tail.Messages {
			got = append(got, m.Message.ID)
			if len(m.Parts) != 1 {
				t.Errorf("message %s has %d parts", m.Message.ID, len(m.Parts))
			}
		}
		if strings.Join(got, " ") != c.want || len(decisions) != len(got) {
			t.Errorf("the last %d turns are %v with %d decisions, want %s", c.turns, got, len(decisions), c.want)
		}
	}
	if from, err := r.TurnStart(t.Context(), "ses_2", 1); err != nil || from != (store.Position{}) {
		t.Errorf("a session without messages begins at %v, %v", from, err)
	}
	if _, _, err := r.Tail(t.Context(), "ses_2", store.Position{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a session that is not there: %v", err)
	}
	since, err := r.SessionsSince(t.Context(), 1005)
	if err != nil || len(since) != 1 {
		t.Errorf("%d sessions since then, %v", len(since), err)
	}
	if since, err = r.SessionsSince(t.Context(), 1006); err != nil || len(since) != 0 {
		t.Errorf("%d sessions since later, %v", len(since), err)
	}
	if err := r.read(t.Context(), func(conn *sqlite.Conn) error {
		for _, query := range []string{
			`SELECT s.id FROM chat_sessions s WHERE s.updated_at >= 5 ORDER BY s.updated_at, s.id`,
			`SELECT created_at, id FROM chat_messages WHERE session_id = 's' AND role = 'user' AND hidden_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET 3`,
			`SELECT p.id FROM chat_parts p WHERE p.message_id = 'm' ORDER BY p."index"`,
			`SELECT id FROM permission_decisions WHERE session_id = 's' AND decided_at >= 5 ORDER BY decided_at, id`,
		} {
			if err := sqlitex.ExecuteTransient(conn, "EXPLAIN QUERY PLAN "+query,
				&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
					if plan := stmt.ColumnText(3); strings.HasPrefix(plan, "SCAN") {
						t.Errorf("%s\n%s", query, plan)
					}
					return nil
				}}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
