package importer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestOmittedPromptsAreNowhereInTheStore: what the user wrote is not stored of a transcript where prompts are omitted,
// be it in messages, in the title or in what is remembered of the file. What the agent wrote is.
func TestOmittedPromptsAreNowhereInTheStore(t *testing.T) {
	redactor, err := redact.New(redact.Config{Omit: redact.Omit{Prompts: true}})
	testscale.Must(t, err)
	const question, again, answer = "the quarterly figures of Acme", "and those of Initech", "they look fine"
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	first := strings.ReplaceAll(claudeFile("s1", question), "yes", answer)
	for _, text := range []string{first, first + strings.ReplaceAll(claudeFile("s1", again), `"uuid":"s1`,
		`"uuid":"t1`)} {
		write(t, filepath.Join(dir, "s1.jsonl"), text)
		run(t, db, importer.Options{Redactor: redactor}, dir)
		for _, name := range []string{db, db + "-wal"} {
			b, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			testscale.Must(t, err)
			for _, prompt := range []string{question, again} {
				if at := bytes.Index(b, []byte(prompt)); at >= 0 {
					t.Errorf("%s has a prompt: %q", filepath.Base(name), b[max(0, at-80):at+len(prompt)])
				}
			}
			if !bytes.Contains(b, []byte(answer)) {
				t.Errorf("%s does not have the answer", filepath.Base(name))
			}
		}
	}
	got := exported(t, db)
	if n := strings.Count(got, `"role":"user"`); n != 2 {
		t.Errorf("%d messages of the user:\n%s", n, got)
	}
}

// TestAnnotationsStayWhenTelemetryComes: what a user noted on the session of a transcript, and on one of its messages,
// stays when telemetry of the session arrives later, and the rest is as without it.
func TestAnnotationsStayWhenTelemetryComes(t *testing.T) {
	for _, client := range []string{"claude-code", "codex"} {
		t.Run(client, func(t *testing.T) {
			dir := filepath.Join("..", "ingest", "testdata", "delegated", client)
			telemetry, err := filepath.Glob(filepath.Join(dir, "telemetry", "*.json"))
			if err != nil || len(telemetry) == 0 {
				t.Fatal("no telemetry", err)
			}
			notes := func(db string, annotate bool) (string, []store.Annotation, []store.Annotation) {
				run(t, db, importer.Options{}, filepath.Join(dir, "transcripts"))
				s, err := sqlite.Open(t.Context(), db, sqlite.Options{})
				testscale.Must(t, err)
				defer s.Close()
				var before []store.Annotation
				for _, row := range storetest.Sessions(t, s) {
					transcript := storetest.Transcript(t, s, row.ID)
					before = append(before,
						store.Annotation{SessionID: row.ID, Kind: store.AnnotationTag, Name: "good", CreatedAt: 1,
							UpdatedAt: 1},
						store.Annotation{SessionID: row.ID, MessageID: transcript.Messages[0].Message.ID,
							Kind:    store.AnnotationNote,
							Comment: "look here", CreatedAt: 1, UpdatedAt: 1})
				}
				for i := range before {
					before[i].Identify()
				}
				if annotate {
					testscale.Must(t, s.Annotate(t.Context(), before))
				}
				ingester := ingest.New(s, ingest.Options{})
				im, err := importer.NewInto(s, db, ingester, importer.Options{})
				testscale.Must(t, err)
				if failed, err := im.Run(t.Context(), importer.Inputs(telemetry, nil, nil)); failed != nil ||
					err != nil {
					t.Fatal(failed, err)
				}
				testscale.Must(t, im.Close())
				var ids []string
				for i := 0; i < len(before); i += 2 {
					ids = append(ids, before[i].SessionID)
				}
				after, err := s.Annotations(t.Context(), ids...)
				testscale.Must(t, err)
				return exported(t, db), before, after
			}
			plain, _, none := notes(filepath.Join(t.TempDir(), "plain.db"), false)
			annotated, before, after := notes(filepath.Join(t.TempDir(), "annotated.db"), true)
			if len(none) > 0 || len(after) != len(before) || len(before) == 0 {
				t.Fatalf("%d annotations of %d, and %d where none was made", len(after), len(before), len(none))
			}
			var rest []string
			for line := range strings.Lines(annotated) {
				if !strings.Contains(line, `"type":"annotation"`) {
					rest = append(rest, line)
				}
			}
			if diff := cmp.Diff(plain, strings.Join(rest, "")); diff != "" {
				t.Errorf("-without +with annotations:\n%s", diff)
			}
		})
	}
}
