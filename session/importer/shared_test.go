package importer_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// interrupted is a store in which something is done just before the first sessions are imported.
type interrupted struct {
	store.Store
	before func()
}

func (s *interrupted) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	s.Store.ImportAll(ctx, func(yield func(*store.Imported) bool) {
		for in := range sessions {
			if before := s.before; before != nil {
				s.before = nil
				before()
			}
			if !yield(in) {
				return
			}
		}
	}, done)
}

// TestTelemetryThatComesWhileATranscriptIsRead: telemetry of a session may be stored by others after the importer
// asked for it, and before the rows of the transcript are written. The two are merged all the same.
func TestTelemetryThatComesWhileATranscriptIsRead(t *testing.T) {
	for _, name := range []string{"claude-code", "codex", "claude-code that grew", "codex that grew"} {
		t.Run(name, func(t *testing.T) {
			client, grew := strings.CutSuffix(name, " that grew")
			dir := filepath.Join("..", "ingest", "testdata", "delegated", client)
			transcripts := filepath.Join(t.TempDir(), "transcripts")
			testscale.Must(t, os.CopyFS(transcripts, os.DirFS(filepath.Join(dir, "transcripts"))))
			telemetry, err := filepath.Glob(filepath.Join(dir, "telemetry", "*.json"))
			if err != nil || len(telemetry) == 0 {
				t.Fatal("no telemetry", err)
			}
			whole := filepath.Join(t.TempDir(), "s.db")
			run(t, whole, importer.Options{}, telemetry...)
			run(t, whole, importer.Options{}, transcripts)

			db := filepath.Join(t.TempDir(), "s.db")
			s, err := sqlite.Open(t.Context(), db, sqlite.Options{})
			testscale.Must(t, err)
			ingester := ingest.New(s, ingest.Options{})
			read := func(s store.Store, o importer.Options, names ...string) importer.Summary {
				t.Helper()
				im, err := importer.NewInto(s, db, ingester, o)
				testscale.Must(t, err)
				failed, err := im.Run(t.Context(), importer.Inputs(names, os.Stdin, nil))
				if failed != nil || err != nil {
					t.Fatal(failed, err)
				}
				testscale.Must(t, im.Close())
				return im.Summary
			}
			texts := make(map[string]string)
			err = filepath.WalkDir(transcripts, func(path string, e os.DirEntry, err error) error {
				if err != nil || !grew || filepath.Ext(path) != ".jsonl" {
					return err
				}
				text, err := os.ReadFile(path)
				texts[path] = string(text)
				lines := strings.SplitAfter(string(text), "\n")
				write(t, path, strings.Join(lines[:len(lines)*3/4], ""))
				return err
			})
			testscale.Must(t, err)
			if grew {
				read(s, importer.Options{}, transcripts)
			}
			for path, text := range texts {
				write(t, path, text)
			}
			late := &interrupted{Store: s, before: func() { read(s, importer.Options{}, telemetry...) }}
			if got := read(late, importer.Options{}, transcripts); got.Total.Joined == 0 {
				t.Errorf("nothing was merged: %+v", got.Total)
			}
			testscale.Must(t, s.Close())
			if want, got := exported(t, whole), exported(t, db); got != want {
				t.Errorf("other rows than of telemetry that was there before\nwant %s\ngot  %s", want, got)
			}
			if again, n := run(t, db, importer.Options{}, transcripts); n > 0 || again.Total.Rows > 0 {
				t.Errorf("%d files were read again: %+v", n, again.Total)
			}
		})
	}
}
