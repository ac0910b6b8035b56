package stores

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
)

// A name has no password, however the address has it.
func TestNameHasNoPassword(t *testing.T) {
	for location, want := range map[string]string{
		"sessions.db":                                                 "sessions.db",
		`C:\data\ses.db`:                                              `C:\data\ses.db`,
		"a b/%zz?q=1#.db":                                             "a b/%zz?q=1#.db",
		"postgres://db.example:5432/sessions":                         "postgres://db.example:5432/sessions",
		"postgres://me:secret@db.example/sessions":                    "postgres://me@db.example/sessions",
		"postgres://me@db/s?password=secret&sslmode=require":          "postgres://me@db/s?sslmode=require",
		"postgres://me:sec%zzret@db.example/sessions":                 "postgres://…",
		"postgres://db/s?sslpassword=secret&application_name=tracing": "postgres://db/s?application_name=tracing",
	} {
		if got := Name(location); got != want {
			t.Errorf("the name of %s is %s, want %s", location, got, want)
		}
	}
}

// An address that no engine knows is refused, and nothing is made of it.
func TestUnknownSchemes(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, location := range []string{"mysql://localhost/db", "://", "x://"} {
		if _, err := Open(t.Context(), location, Options{}); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("open %s: %v", location, err)
		}
		if _, err := OpenReader(t.Context(), location); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("read %s: %v", location, err)
		}
	}
	if made, _ := filepath.Glob("*"); len(made) > 0 {
		t.Errorf("it made %v", made)
	}
}

// A store that cannot be opened is a nil interface.
func TestNoStore(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.db")
	if r, err := OpenReader(t.Context(), none); r != nil || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a store that is not there: %v, %v", r, err)
	}
	if s, err := Open(t.Context(), t.TempDir(), Options{}); s != nil || err == nil {
		t.Errorf("a directory: %v, %v", s, err)
	}
}
