package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/agenttrace/agenttrace/session/store"
)

// lockSuffix names the lock file beside the database. Whoever holds the lock
// writes its name into the file; the lock itself ends with its process, however
// that dies.
const lockSuffix = ".lock"

// lock takes the writer's lock of the store at path.
func lock(path string) (*flock.Flock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, classifyFile(fmt.Errorf("create directory of store %s: %w", path, err))
	}
	name := path + lockSuffix
	l := flock.New(name, flock.SetPermissions(0o600))
	got, err := l.TryLock()
	if err != nil {
		return nil, classifyFile(fmt.Errorf("lock store %s: %w", path, err))
	}
	if !got {
		return nil, fmt.Errorf("open store %s: %w: %s; stop it or use another store", path, store.ErrLocked, holder(name))
	}
	host, _ := os.Hostname()
	owner := fmt.Sprintf("process %d (%s) on %s since %s\n", os.Getpid(), filepath.Base(os.Args[0]), host, time.Now().UTC().Format(time.RFC3339))
	// The name is a courtesy to the next one who asks: the lock holds without it.
	_ = os.WriteFile(name, []byte(owner), 0o600)
	return l, nil
}

func holder(name string) string {
	b, err := os.ReadFile(name)
	if b = bytes.TrimSpace(b); err != nil || len(b) == 0 {
		return "its name is not known"
	}
	return "it is " + string(b)
}
