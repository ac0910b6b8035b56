package importer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/importer"
)

// TestRepeatedPromptsTakeNoMemory: what each request of a transcript repeats is most of its bytes. It is neither
// copied nor kept, and all files are read into the same memory.
func TestRepeatedPromptsTakeNoMemory(t *testing.T) {
	const files, requests = 20, 150
	dir := t.TempDir()
	size := int64(0)
	for n := range files {
		var b strings.Builder
		record := func(kind, rest string) {
			fmt.Fprintf(&b, `{"type":%q,"uuid":"u%d-%d","sessionId":"s%d","timestamp":"2026-05-01T10:00:00Z",%s}`+"\n",
				kind, n, b.Len(), n, rest)
		}
		record("user", `"message":{"role":"user","content":"go"}`)
		prompt := strings.Repeat("do not repeat yourself ", 400)
		for range requests {
			record("attachment", `"attachment":{"type":"prompt_snapshot","systemPrompt":["`+prompt+`"]}`)
		}
		record("assistant", `"message":{"id":"m","role":"assistant","content":[{"type":"text","text":"done"}]}`)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("s%d.jsonl", n)), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		size += int64(b.Len())
	}
	im, err := importer.New(filepath.Join(t.TempDir(), "s.db"), importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	inputs := importer.Inputs([]string{dir}, nil, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	failed, err := im.Run(t.Context(), inputs)
	runtime.ReadMemStats(&after)
	if err != nil || failed != nil || im.Summary.Total.Added != files {
		t.Fatal(failed, err, im.Summary.Total)
	}
	if took := int64(after.TotalAlloc - before.TotalAlloc); took > size/2 {
		t.Errorf("%d bytes were allocated to read %d", took, size)
	}
}
