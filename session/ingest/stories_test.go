package ingest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestStories reads the stories of testdata/stories, several in a file, each a section: spans and
// records in the form of parseText, and behind => how many the dialects took, and the sessions that
// they come to, as TestCaptureFacts has them, in whatever order they arrive. Where calls were counted,
// there is a line for each answer: its session, its usage and how its source counted. A line for each notice follows.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		testscale.Must(t, err)
		if len(bytes.TrimSpace(archive.Comment)) == 0 {
			t.Errorf("%s has no description", file)
		}
		for i, section := range archive.Files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+section.Name, func(t *testing.T) {
				if !*update { // then the file is written when all have run
					t.Parallel()
				}
				given, want := splitFacts(section.Data)
				all := parsed(t, given)
				s := openStore(t)
				report := deliver(t, s, join(all))
				storetest.CheckSessions(t, s)
				dialects, _ := json.Marshal(report.Dialects)
				got := "=> " + string(dialects) + "\n" + recount(t, s) + usages(t, s)
				if archive.Files[i].Data = []byte(given + got); want != got && !*update {
					t.Errorf("run with -update to accept (-want +got):\n%s",
						differ(want, got))
				}
				testOrderWith(t, s, ingest.Options{}, all, testscale.Rounds(1, 8))
			})
		}
		if *update {
			testscale.Must(t, os.WriteFile(file, txtar.Format(archive), 0o644))
		}
	}
}

// usages is a line for every answer, its session, its usage and how its source counted, and one for every notice.
func usages(t testing.TB, r store.Reader) string {
	t.Helper()
	var lines []string
	for _, transcript := range rowsOf(t, r) {
		s := transcript.Session
		for _, m := range transcript.Messages {
			var meta session.MessageMetadata
			testscale.Must(t, json.Unmarshal([]byte(m.Message.MetadataJSON), &meta))
			if u := meta.Usage; u != nil {
				lines = append(lines, fmt.Sprintf("counted %s: %d+%d+%d in, %d+%d out, %s, %d calls\n", s.ID, u.Input,
					u.CacheRead,
					u.CacheWrite, u.Output, u.Reasoning,
					meta.Trace.UsageBasis, meta.Trace.ModelCalls))
			}
		}
		in, err := (&document.Reader{Reader: r}).Collect(t.Context(), s.ID)
		testscale.Must(t, err)
		for _, n := range document.NoticesOf(in) {
			lines = append(lines, fmt.Sprintf("notice %s: %s %s\n", s.ID, n.Rule, n.Detail))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
