//go:build long

package importer_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFileThatGrowsStepByStep: a transcript that is imported whenever it has grown a little is at
// each step what it is when it is imported once.
func TestFileThatGrowsStepByStep(t *testing.T) {
	for name, text := range transcripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, db := filepath.Join(dir, filepath.Base(name)), filepath.Join(dir, "sessions.db")
			read := 0
			for _, cut := range append(cuts(text), len(text)) {
				write(t, path, text[:cut]) // the same file, longer
				read += importFile(t, db, path)
				fresh := filepath.Join(t.TempDir(), "fresh.db")
				importFile(t, fresh, path)
				if want, got := exported(t, fresh), exported(t, db); got != want {
					t.Fatalf("at %d after %.300s\n(-once +step by step):\n%s", cut, text[max(0, cut-300):cut],
						cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
				}
			}
			t.Logf("%d bytes read of %d", read, len(text))
		})
	}
}
