package importer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// watched runs a watch of a directory into a store, and counts what it does.
type watched struct {
	mu            sync.Mutex
	imports, read int
	warnings      []string
	done          chan error
}

func (w *watched) counts() (imports, read int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.imports, w.read
}

func watch(t *testing.T, dir, db string) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{done: make(chan error, 1)}
	run := importer.Watch{
		Quiet: 10 * time.Millisecond,
		Paths: []string{dir},
		New: func() (*importer.Importer, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.imports++
			return importer.New(db, importer.Options{})
		},
		Imported: func(s *importer.Summary) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.read += len(s.Files)
			if s.Total.Damaged > 0 {
				t.Errorf("%d pieces are damaged of what is being written", s.Total.Damaged)
			}
			return nil
		},
		Warn: func(text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.warnings = append(w.warnings, text)
		},
	}
	go func() { w.done <- run.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-w.done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return w
}

// eventually waits until a session has as many messages.
func eventually(t *testing.T, db, id string, messages int) {
	t.Helper()
	for range 500 {
		if r, err := sqlite.OpenReader(t.Context(), db); err == nil {
			s, err := r.Transcript(t.Context(), id)
			_ = r.Close()
			if err == nil && len(s.Messages) == messages {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not have %d messages", id, messages)
}

// TestWatchImportsWhatChanges: what grows, what is new and what is in a new directory arrives, and
// each costs the reading of that file alone. Nothing is done while nothing changes.
func TestWatchImportsWhatChanges(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	for i := range 20 {
		write(t, filepath.Join(dir, "p", fmt.Sprintf("s%d.jsonl", i)), claudeFile(fmt.Sprintf("s%d", i), "why"))
	}
	w := watch(t, dir, db)
	eventually(t, db, "s19", 2)
	time.Sleep(200 * time.Millisecond)
	imports, read := w.counts()
	if read != 20 {
		t.Errorf("%d files read", read)
	}
	time.Sleep(300 * time.Millisecond)
	if i, r := w.counts(); i != imports || r != read {
		t.Errorf("idle: %d imports, %d files", i-imports, r-read)
	}

	f, err := os.OpenFile(filepath.Join(dir, "p", "s3.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	testscale.Must(t, err)
	for _, half := range []string{`{"sessionId":"s3","isSidechain":false,"uuid":"s33","parentUuid":"s32",`,
		`"timestamp":"2026-01-02T03:05:00.000Z",` +
			`"type":"user","promptId":"p2","message":{"role":"user","content":"and?"}}` + "\n"} {
		_, err := f.WriteString(half)
		testscale.Must(t, err)
		time.Sleep(200 * time.Millisecond) // what is written is read
	}
	testscale.Must(t, f.Close())
	eventually(t, db, "s3", 3)
	write(t, filepath.Join(dir, "p", "new.jsonl"), claudeFile("new", "why"))
	eventually(t, db, "new", 2)
	if _, r := w.counts(); r < read+1 || r > read+3 { // of the second, reading may go on
		t.Errorf("one grew, by halves, and one is new: %d files", r-read)
	}
	write(t, filepath.Join(dir, "q", "deep", "deeper.jsonl"), claudeFile("deeper", "why"))
	eventually(t, db, "deeper", 2)
	testscale.Must(t, os.Remove(filepath.Join(dir, "p", "s4.jsonl")))
	write(t, filepath.Join(dir, "p", "last.jsonl"), claudeFile("last", "why"))
	eventually(t, db, "last", 2)
	eventually(t, db, "s4", 2)
}

// TestWatchWaitsForTheStore: while another writer holds the store, what changed waits, and a watch
// that begins then ends with an error that names the writer.
func TestWatchWaitsForTheStore(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	write(t, filepath.Join(dir, "a.jsonl"), claudeFile("a", "why"))
	w := watch(t, dir, db)
	eventually(t, db, "a", 2)
	var other *sqlite.Store
	for {
		var err error
		if other, err = sqlite.Open(t.Context(), db, sqlite.Options{}); err == nil {
			break
		}
	}
	write(t, filepath.Join(dir, "b.jsonl"), claudeFile("b", "why"))
	warned := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.warnings) > 0
	}
	for range 200 {
		if warned() {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !warned() {
		t.Error("nothing was reported")
	}
	second := importer.Watch{Paths: []string{dir},
		New: func() (*importer.Importer, error) { return importer.New(db, importer.Options{}) }}
	if err := second.Run(t.Context()); err == nil {
		t.Error("a store that is held was watched into")
	}
	testscale.Must(t, other.Close())
	eventually(t, db, "b", 2)
}
