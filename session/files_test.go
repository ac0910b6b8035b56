package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestFilesAreReplacedTogether cannot write the second of two files, and wants the first as it was.
func TestFilesAreReplacedTogether(t *testing.T) {
	dir := t.TempDir()
	first := NewFile{filepath.Join(dir, "events.jsonl"), []byte("old")}
	testscale.Must(t, ReplaceFiles(first))
	second := NewFile{filepath.Join(dir, "nowhere", "run.json"), []byte("new")}
	err := ReplaceFiles(NewFile{first.Path, []byte("new")}, second)
	if err == nil {
		t.Error("a file was written in a directory that is not there")
	}
	if got, err := os.ReadFile(first.Path); err != nil || string(got) != "old" {
		t.Errorf("the first file has %q, %v; want what it had", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}
