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

// TestTailPlans: the end of a session is found by an index.
func TestTailPlans(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{})
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
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
