package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestAStoreHasOneWriterByWhateverName: a second writer is refused with the name of who holds the
// store by a symbolic link, a link to the directory and a relative path, and by a hard link without it.
func TestAStoreHasOneWriterByWhateverName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "real", "s.db")
	s := open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "1"))
	link, hard, dirLink := filepath.Join(dir, "link.db"), filepath.Join(dir, "hard.db"), filepath.Join(dir, "dir")
	testscale.Must(t, errors.Join(os.Symlink("real/s.db", link), os.Link(path, hard), os.Symlink("real", dirLink)))
	t.Chdir(filepath.Join(dir, "real"))
	names := []string{path, link, hard, filepath.Join(dirLink, "s.db"), "s.db", "./../link.db"}
	for _, name := range names {
		second, err := Open(t.Context(), name, Options{})
		if !errors.Is(err, store.ErrLocked) {
			t.Errorf("%s: a second writer: %v", name, err)
			if err == nil {
				second.Close()
			}
			continue
		}
		if name != hard && !strings.Contains(err.Error(), fmt.Sprintf("process %d (", os.Getpid())) {
			t.Errorf("%s: %v does not name the holder", name, err)
		}
	}
	testscale.Must(t, s.Close())
	for _, name := range names {
		s, err := Open(t.Context(), name, Options{})
		if err != nil {
			t.Errorf("%s, when nobody has it: %v", name, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestALinkToNothingLocksWhatItWillMake: two names of a database that is not there yet.
func TestALinkToNothingLocksWhatItWillMake(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "new.db"), filepath.Join(dir, "link.db")
	testscale.Must(t, os.Symlink("new.db", link))
	s := open(t, link, Options{})
	defer s.Close()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if second, err := Open(t.Context(), path, Options{}); !errors.Is(err, store.ErrLocked) ||
		!strings.Contains(err.Error(), "this process: another of its components has the store") {
		t.Errorf("a second writer: %v", err)
		if err == nil {
			second.Close()
		}
	}
}

// TestLookingAtAStoreKeepsItsLocks: another process that opens and closes the database finds that somebody has it, and
// leaves the log in which the writer writes, also after readers of the writer's process have come and gone.
func TestLookingAtAStoreKeepsItsLocks(t *testing.T) {
	if path := os.Getenv("TEST_OPEN_AND_CLOSE"); path != "" {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err == nil {
			err = errors.Join(sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM chat_sessions", nil), conn.Close())
		}
		testscale.Must(t, err)
		return
	}
	path := newPath(t)
	s := open(t, path, Options{})
	defer s.Close()
	apply(t, s, turnBatch("ses_1", "1"))
	for range 3 {
		r, err := OpenReader(t.Context(), path)
		testscale.Must(t, err)
		testscale.Must(t, r.Close())
		if second, err := Open(t.Context(), path, Options{}); err == nil {
			second.Close()
			t.Fatal("a second writer")
		}
	}
	cmd := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLookingAtAStoreKeepsItsLocks$")
	cmd.Env = append(os.Environ(), "TEST_OPEN_AND_CLOSE="+path)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Errorf("the log of the writer is gone: %v", err)
	}
	apply(t, s, turnBatch("ses_2", "2"))
	if n := testscale.Query(t, path, "SELECT count(*) FROM chat_sessions"); n[0] != "2" {
		t.Errorf("%s sessions", n[0])
	}
}

// TestADatabaseInTheMaking: an empty file is made a store, what has tables of others is refused.
func TestADatabaseInTheMaking(t *testing.T) {
	path := newPath(t)
	for _, suffix := range []string{"", "-wal", "-journal"} { // left behind, empty
		testscale.WriteFile(t, path+suffix, "")
	}
	apply(t, open(t, path, Options{}), turnBatch("ses_1", "1"))
	path = newPath(t)
	testscale.Script(t, path, "CREATE TABLE other (a)")
	if s, err := Open(t.Context(), path, Options{}); !errors.Is(err, store.ErrNotStore) {
		t.Errorf("a database with tables of others: %v", err)
		if err == nil {
			s.Close()
		}
	}
}

// TestADeviceIsNoStore: nothing is written to it or beside it.
func TestADeviceIsNoStore(t *testing.T) {
	if s, err := Open(t.Context(), os.DevNull, Options{}); !errors.Is(err, store.ErrNotStore) {
		t.Errorf("opened for writing: %v", err)
		if err == nil {
			s.Close()
		}
	}
	if r, err := OpenReader(t.Context(), os.DevNull); !errors.Is(err, store.ErrNotStore) {
		t.Errorf("opened for reading: %v", err)
		if err == nil {
			r.Close()
		}
	}
	if _, err := os.Lstat(os.DevNull + lockSuffix); err == nil {
		t.Error("there is a lock file beside the device")
	}
}
