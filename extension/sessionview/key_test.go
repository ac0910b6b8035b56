package sessionview

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// Every program of a user gets one key for a store, whichever makes it, and the key for one that is not a file.
func TestKeyOfAStore(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	users := filepath.Join(state, "agenttrace", "key")
	for location, file := range map[string]string{
		filepath.Join(dir, "deep", "s.db"): filepath.Join(dir, "deep", "s.db.key"),
		"postgres://db/sessions":           users,
		"":                                 users,
	} {
		var mu sync.Mutex
		keys := make(map[string]bool)
		var programs sync.WaitGroup
		for range 20 {
			programs.Go(func() {
				key, err := Key(location)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				keys[key] = true
				mu.Unlock()
			})
		}
		programs.Wait()
		info, err := os.Stat(file)
		if len(keys) != 1 || err != nil || info.Mode() != 0o600 {
			t.Errorf("%q: %d keys in a file %v, %v", location, len(keys), info, err)
		}
		for key := range keys {
			if len(key) < 20 {
				t.Errorf("%q: the key is %q", location, key)
			}
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".key*")); err != nil || len(left) > 0 {
			t.Errorf("%q: %q is left, %v", location, left, err)
		}
	}
}

// A key that others may know is not used.
func TestKeyThatOthersMayKnow(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	users, err := Key("")
	testscale.Must(t, err)
	const known = "a key that is long enough"
	for name, make := range map[string]func(path string) error{
		"a link": func(path string) error {
			return errors.Join(os.WriteFile(path+".of", []byte(known), 0o600), os.Symlink(path+".of", path))
		},
		"of another user": func(path string) error {
			if os.Getuid() != 0 {
				return os.Symlink("/dev/null", path)
			}
			return errors.Join(os.WriteFile(path, []byte(known), 0o600), os.Chown(path, 65534, 65534))
		},
		"readable by a group": func(path string) error { return os.WriteFile(path, []byte(known), 0o640) },
		"without a key":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		location := filepath.Join(t.TempDir(), "s.db")
		testscale.Must(t, make(location+".key"))
		if key, err := Key(location); key != users && (err == nil || !strings.Contains(err.Error(), "remove it")) {
			t.Errorf("%s: the key is %q, %v", name, key, err)
		}
	}
}

// The socket of a store with a long path is in a directory that belongs to the user, or nowhere.
func TestDirectoryOfSockets(t *testing.T) {
	store := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "s.db")
	for name, make := range map[string]func(dir string) error{
		"":                    func(dir string) error { return nil },
		"the user's":          func(dir string) error { return os.Mkdir(dir, 0o700) },
		"a link":              func(dir string) error { return os.Symlink(os.TempDir(), dir) },
		"a file":              func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"readable by a group": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750)) },
		"of another user": func(dir string) error {
			if os.Getuid() != 0 {
				return os.Symlink("/", dir)
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534))
		},
	} {
		temp := t.TempDir()
		t.Setenv("TMPDIR", temp)
		testscale.Must(t, make(filepath.Join(temp, fmt.Sprintf("agenttrace-%d", os.Getuid()))))
		path, err := socketPath(store)
		if valid := name == "" || name == "the user's"; valid != (err == nil) || valid != (path != "") {
			t.Errorf("%s: the socket is %q, %v", name, path, err)
		}
	}
}
