// Package testscale has what tests of many packages share: how much they do, ports for servers that are configured with
// one before they listen, and the secrets of the corpus of package redact. A newcomer's `go test ./...` runs few rounds
// of the suites that deliver, generate or kill at random; with the build tag long, as in `make long`, they run all of
// them:
//
//	for seed := range testscale.Rounds(8, 40) {
package testscale

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Rounds returns few, or with the build tag long many.
func Rounds(few, many int) int {
	if Long {
		return many
	}
	return few
}

// Linear fails the test if the processor time of work grows faster than its size. It compares two sizes in one process
// instead of asking a clock, so that a busy machine does not fail it: work that grows with the square takes 256 times
// as much for sixteen times the size, and 80 times as much is taken for that.
func Linear(t *testing.T, size int, work func(size int)) {
	t.Helper()
	least := func(size int) float64 {
		best := 0.0
		for i := range 3 {
			before := CPUSeconds()
			work(size)
			if took := CPUSeconds() - before; i == 0 || took < best {
				best = took
			}
		}
		return best
	}
	small, large := least(size), least(16*size)
	const noise = 0.02 // a collection of garbage, or the clock's own step
	if large > 80*max(small, noise/16) {
		t.Errorf("size %d takes %.3f s of the processor, size %d takes %.3f s: more than in proportion",
			size, small, 16*size, large)
	}
}

// Copies returns a function that gives each test a file of its own, a copy of one that write makes when the first asks.
// It is safe for concurrent use. An empty store takes twice as long to make as to copy and open.
func Copies(write func(path string) error) func(t testing.TB) (path string) {
	made := sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "file")
		if err := write(path); err != nil {
			return nil, err
		}
		return os.ReadFile(path)
	})
	return func(t testing.TB) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "sessions.db")
		content, err := made()
		if err != nil {
			t.Fatal(err)
		}
		WriteFile(t, path, content)
		return path
	}
}

// Open opens something at a place, as a store for reading, until the test ends.
func Open[T io.Closer](t testing.TB, open func(ctx context.Context, place string) (T, error), place string) T {
	t.Helper()
	opened, err := open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ReadFile returns the content of a file that is there.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// WriteFile writes a file that nobody else may read.
func WriteFile[T string | []byte](t testing.TB, path string, content T) {
	t.Helper()
	Must(t, os.WriteFile(path, []byte(content), 0o600))
}
