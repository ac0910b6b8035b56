package importer_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestTranscriptsComeBackThroughOTLP: every session that is imported from a program's own files has the same rows in a
// store that reads its spans. What it has besides are the spans themselves. Nothing else is another, so there is no
// list of what cannot be the same: the format has that of any session, and must be empty here.
func TestTranscriptsComeBackThroughOTLP(t *testing.T) {
	samples := filepath.Join("..", "codec", "formats", "testdata")
	ours := filepath.Join("..", "codec", "transcripts", "testdata")
	for _, sample := range []string{
		filepath.Join(ours, "aider"), filepath.Join(ours, "amp"), filepath.Join(ours, "cline"),
		filepath.Join(ours, "copilot"), filepath.Join(ours, "crush"), filepath.Join(ours, "windsurf", "transcripts"),
		filepath.Join(ours, "cursor"), filepath.Join(ours, "kimi"), filepath.Join(ours, "kimi-code"),
		filepath.Join(ours, "gemini"), filepath.Join(ours, "goose"), filepath.Join(ours, "kiro"),
		filepath.Join(ours, "opencode"), filepath.Join(ours, "openhands"), filepath.Join(ours, "zed"),
		filepath.Join(ours, "qwen"), filepath.Join(ours, "roo"), filepath.Join(ours, "vscode"),
		filepath.Join(ours, "continue"),
		filepath.Join("..", "ingest", "testdata", "delegated", "claude-code", "transcripts"),
		filepath.Join("..", "ingest", "testdata", "delegated", "codex", "transcripts"),
		filepath.Join(samples, "pi", "session.jsonl"), filepath.Join(samples, "sts", "llama.jsonl"),
		filepath.Join(samples, "agentdbg", "data"), filepath.Join(samples, "skillet", "state"),
		filepath.Join(samples, "jutul", "trace.sqlite"), filepath.Join(samples, "atif", "harbor.json"),
		filepath.Join(samples, "acp", "story.ndjson"), filepath.Join("testdata", "forks", "claude"),
		filepath.Join("testdata", "forks", "rollout"),
	} {
		t.Run(filepath.Base(filepath.Dir(sample))+" "+filepath.Base(sample), func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "sessions.db")
			run(t, db, importer.Options{}, sample)
			sessions := storedSessions(t, db)
			if len(sessions) == 0 {
				t.Fatal("no session was imported")
			}
			file := filepath.Join(t.TempDir(), "sessions.otlp.jsonl")
			var spans bytes.Buffer
			otlp := formats.Named("otlp-json", nil)
			for _, s := range sessions {
				if losses := otlp.Explain(&formats.Source{Session: s}); len(losses) > 0 {
					t.Errorf("session %s would lose %v", s.Session.ID, losses)
				}
				testscale.Must(t, otlp.Stream(&spans)(&formats.Source{Session: s}))
			}
			testscale.WriteFile(t, file, spans.Bytes())
			again := filepath.Join(t.TempDir(), "again.db")
			run(t, again, importer.Options{}, file)
			back := storedSessions(t, again)
			for id, want := range sessions {
				if back[id] == nil {
					t.Errorf("session %s did not come back", id)
				} else if d := codectest.Diff(want, rowsOf(back[id])); d != "" {
					t.Errorf("session %s %s", id, d)
				}
			}
		})
	}
}

// storedSessions are those of a store.
func storedSessions(t *testing.T, db string) map[string]*codec.Session {
	t.Helper()
	r := testscale.Open(t, sqlite.OpenReader, db)
	all := make(map[string]*codec.Session)
	for _, row := range storetest.Sessions(t, r) {
		s, err := formats.Read(t.Context(), r, row.ID)
		testscale.Must(t, err)
		all[row.ID] = rowsOf(s)
	}
	return all
}

// rowsOf is a session without what the merge of later telemetry needs.
func rowsOf(s *codec.Session) *codec.Session {
	return &codec.Session{Transcript: s.Transcript, Decisions: s.Decisions, Annotations: s.Annotations, Blobs: s.Blobs}
}

// TestAFileOfSpansTakesNothingOfAnotherSession: spans of a file that have the ids of stored ones and name another session
// change nothing of the first, whether it came by a file or in another form with the same message ids.
func TestAFileOfSpansTakesNothingOfAnotherSession(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	spans := func(session, text string) string {
		return `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c",` +
			`"spanId":"b7ad6b7169203331","name":"chat m","startTimeUnixNano":"1760000000000000000",` +
			`"endTimeUnixNano":"1760000001000000000","attributes":[` +
			`{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},` +
			`{"key":"gen_ai.conversation.id","value":{"stringValue":"` + session + `"}},` +
			`{"key":"gen_ai.input.messages","value":{"stringValue":` +
			`"[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"` + text + `\"}]}]"}}]}]}]}]}` + "\n"
	}
	victim, evil := filepath.Join(dir, "victim.jsonl"), filepath.Join(dir, "evil.jsonl")
	write(t, victim, spans("victim", "hello"))
	write(t, evil, spans("evil", "a longer text"))
	run(t, db, importer.Options{}, victim)
	want := storedSessions(t, db)["victim"]
	var rows bytes.Buffer
	testscale.Must(t, jsonl.Encode(&rows, want.Transcript))
	copied := filepath.Join(dir, "copied.jsonl")
	write(t, copied, strings.NewReplacer("victim", "evil", "hello", "a longer text").Replace(rows.String()))
	for _, path := range []string{evil, copied} {
		sum, _ := run(t, db, importer.Options{}, path)
		if f := sum.Files[0]; f.Accepted > 0 || f.Refused == 0 || !strings.Contains(strings.Join(f.Damages, ""), "victim") {
			t.Errorf("%s: %d accepted, %d refused: %q", filepath.Base(path), f.Accepted, f.Refused, f.Damages)
		}
		if d := codectest.Diff(want, rowsOf(storedSessions(t, db)["victim"])); d != "" {
			t.Errorf("after %s: %s", filepath.Base(path), d)
		}
	}
}
