package importer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
)

// BenchmarkImport imports a directory of transcripts that is new, unchanged, and grown by a turn. The floor reads the
// files and decodes their lines.
func BenchmarkImport(b *testing.B) {
	dir := b.TempDir()
	var paths []string
	output := strconv.Quote(strings.Repeat("\tif err := read(ctx, \"name\"); err != nil {\n", 500)) // of a tool
	size := int64(0)
	for i := range 100 {
		path := filepath.Join(dir, fmt.Sprintf("s%03d.jsonl", i))
		text := strings.NewReplacer(`"s1"`, fmt.Sprintf(`"s%03d"`, i), `"a.go"`, output).Replace(claudeLong(b))
		testscale.WriteFile(b, path, text)
		paths, size = append(paths, path), size+int64(len(text))
	}
	imported := func(db string) {
		im, err := importer.New(db, importer.Options{})
		testscale.Must(b, err)
		if _, err := im.Run(b.Context(), importer.Inputs(paths, nil, nil)); err != nil {
			b.Fatal(err)
		}
		testscale.Must(b, im.Close())
	}
	b.Run("floor", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			for _, path := range paths {
				text := testscale.ReadFile(b, path)
				for line := range bytes.Lines(text) {
					var record map[string]any
					testscale.Must(b, json.Unmarshal(line, &record))
				}
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			imported(filepath.Join(b.TempDir(), "new.db"))
		}
	})
	db := filepath.Join(b.TempDir(), "sessions.db")
	imported(db)
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			imported(db)
		}
	})
	b.Run("grown", func(b *testing.B) {
		n := 0
		for b.Loop() {
			f, err := os.OpenFile(paths[0], os.O_APPEND|os.O_WRONLY, 0)
			testscale.Must(b, err)
			n++
			_, err = fmt.Fprintf(f, `{"type":"user","uuid":"more%d","parentUuid":null,"sessionId":"s000",`+
				`"isSidechain":false,"timestamp":"2026-02-02T03:04:05Z","message":{"role":"user","content":"and now?"}}`+"\n", n)
			if closeErr := f.Close(); err != nil || closeErr != nil {
				b.Fatal(err, closeErr)
			}
			imported(db)
		}
	})
}
