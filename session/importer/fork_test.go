package importer_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// claudeTurnOf is a turn of the session in the hour and minute: a question, and an answer that used 3 and 2 tokens.
func claudeTurnOf(session, minute, above, question, more string) string {
	user := fmt.Sprintf(`{"sessionId":%q,"uuid":"u%s","parentUuid":%s,"timestamp":"2026-01-02T03:%s:01.000Z",`+
		`"type":"user","message":{"role":"user","content":%q}%s}`, session, minute, above, minute, question, more)
	answer := fmt.Sprintf(`{"sessionId":%q,"uuid":"a%s","parentUuid":"u%[2]s","timestamp":"2026-01-02T03:%[2]s:02.000Z",`+
		`"type":"assistant","message":{"id":"m%[2]s","model":"claude-x","content":[{"type":"text","text":"yes %[3]s"}],`+
		`"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}%[4]s}`, session, minute, question, more)
	return user + "\n" + answer + "\n"
}

// forkFiles are the names and texts of a session of two turns, a fork of it that goes on, and a fork of that one, as
// Claude Code and Codex write them. Newer versions of Codex, in base, write no copies, but where they are.
func forkFiles(t testing.TB, program string) (names, texts []string) {
	t.Helper()
	paths, err := filepath.Glob("testdata/forks/" + program + "/*/*")
	if err != nil || len(paths) != 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		names, texts = append(names, filepath.Base(path)), append(texts, string(testscale.ReadFile(t, path)))
	}
	return names, texts
}

// forksTold is the id of the parent and the conversation of each session.
var forksTold = map[string]string{
	"claude": "f one.yes one.two.yes two.three.yes three.four.yes four.|one.yes one.two.yes two.|" +
		"p one.yes one.two.yes two.three.yes three.",
	"base": codexTold, "rollout": codexTold,
}

const codexTold = "019b7d00-0000-7000-8000-00000000000f one.yes one.two.yes two.three.yes three.|" +
	"019b7d00-0005-7000-8000-00000000000f one.yes one.two.yes two.three.yes three.four.yes four.|" +
	"one.yes one.two.yes two."

// TestForksCountTheirHistoryOnce: a fork is below the session that it was forked from, and shows the whole
// conversation. Each model call counts once, in whatever order the files are imported, however often, and when they
// grow.
func TestForksCountTheirHistoryOnce(t *testing.T) {
	for name := range forksTold {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names, files := forkFiles(t, name)
			dir := t.TempDir()
			paths := make([]string, len(files))
			for i, text := range files {
				paths[i] = filepath.Join(dir, "2026", "01", fmt.Sprint(i), names[i])
				write(t, paths[i], text)
			}
			db := filepath.Join(t.TempDir(), "s.db")
			run(t, db, importer.Options{}, paths...)
			want := forksShown(t, db)
			all := questions(t, db)
			if got, want := strings.Join(slices.Sorted(maps.Values(all)), "|"), forksTold[name]; got != want {
				t.Errorf("sessions %q, want %q", got, want)
			}
			for _, text := range []string{"20 tokens in all", "at two: fork, 5 tokens, 10 copied",
				"at three: fork, 5 tokens, 15 copied"} {
				if !strings.Contains(want, text) {
					t.Errorf("no %q in\n%s", text, want)
				}
			}
			for _, order := range [][]int{{2, 1, 0}, {1, 0, 2, 1, 0}} {
				db := filepath.Join(t.TempDir(), "s.db")
				for _, i := range order {
					run(t, db, importer.Options{}, paths[i])
				}
				if got := forksShown(t, db); got != want {
					t.Errorf("in the order %v:\n%s\nwant\n%s", order, got, want)
				}
			}
			db = filepath.Join(t.TempDir(), "s.db")
			for _, i := range []int{2, 1, 0} {
				growing := filepath.Join(dir, "2026", "02", fmt.Sprint(i), names[i])
				for end := i; end < strings.Count(files[i], "\n"); end += 6 {
					write(t, growing, strings.Join(strings.SplitAfter(files[i], "\n")[:end+1], ""))
					run(t, db, importer.Options{}, growing)
				}
				write(t, growing, files[i])
				run(t, db, importer.Options{}, growing)
			}
			if got := forksShown(t, db); got != want {
				t.Errorf("line by line:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// forksShown are the rows of the sessions of a store, where each was forked and what it used, and the sum of it all.
func forksShown(t *testing.T, db string) string {
	t.Helper()
	r := testscale.Open(t, sqlite.OpenReader, db)
	stats, err := r.Stats(t.Context(), store.StatsQuery{})
	testscale.Must(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "%d tokens in all\n", stats.Total.TotalTokens)
	for _, s := range storetest.Sessions(t, r) {
		doc, err := document.Reader{Reader: r}.LoadAll(t.Context(), s.ID)
		testscale.Must(t, err)
		fmt.Fprintf(&b, "%s\n", s.AppendJSON(nil))
		if s.ParentMessageID == nil {
			continue
		}
		parent := storetest.Transcript(t, r, *s.ParentID)
		for _, m := range parent.Messages {
			if m.Message.ID == *s.ParentMessageID {
				kind := "no fork"
				if doc.Session.Origin.Fork {
					kind = "fork"
				}
				_, text, _ := strings.Cut(m.Parts[0].DataJSON, `"text":"`)
				copied := session.Usage{}
				if doc.Totals.CopiedUsage != nil {
					copied = *doc.Totals.CopiedUsage
				}
				fmt.Fprintf(&b, "at %s: %s, %d tokens, %d copied\n", strings.Trim(text, `"}`), kind,
					doc.Totals.Usage.Total(), copied.Total())
			}
		}
	}
	return b.String()
}

// TestForkBesideTelemetryCountsOnce: what a fork copied is not counted again where the program's telemetry reports of
// the fork or of its parent, and the fork keeps its parent.
func TestForkBesideTelemetryCountsOnce(t *testing.T) {
	_, files := forkFiles(t, "claude")
	for _, id := range []string{"p", "f"} {
		logs := strings.ReplaceAll(otlpLogs("com.anthropic.claude_code.events", claudeEvents(
			7, "user_prompt", `"prompt":"three"`)...), `"s1"`, `"`+id+`"`)
		for _, order := range [][]string{{files[0], files[1], logs}, {logs, files[0], files[1]}, {files[1], logs, files[0]}} {
			db := filepath.Join(t.TempDir(), "s.db")
			for i, text := range order {
				path := filepath.Join(t.TempDir(), fmt.Sprint(i, ".jsonl"))
				write(t, path, text)
				run(t, db, importer.Options{}, path)
			}
			shown := forksShown(t, db)
			if !strings.HasPrefix(shown, "15 tokens in all") || !strings.Contains(shown, `"parent_id":"p"`) {
				t.Errorf("with telemetry of %s, in the order %.60q:\n%s", id, order, shown)
			}
		}
	}
}

// TestClaudeSessionThatContinuesInAnotherFile: a session whose first record follows from one of another file is below
// the session of that one, where the user last wrote, and it is listed, in any order and when it grows.
func TestClaudeSessionThatContinuesInAnotherFile(t *testing.T) {
	first := claudeTurnOf("p", "01", "null", "one", "") + claudeTurnOf("p", "02", `"a01"`, "two", "")
	next := claudeTurnOf("n", "06", `"a02"`, "three", "")
	compacted := `{"sessionId":"n","uuid":"b","parentUuid":null,"logicalParentUuid":"a02","type":"system",` +
		`"subtype":"compact_boundary","timestamp":"2026-01-02T03:05:00.000Z","compactMetadata":{"trigger":"auto"}}` + "\n" +
		claudeTurnOf("n", "06", `"b"`, "three", "")
	end := claudeTurnOf("n", "07", `"a06"`, "four", "")
	for what, files := range map[string][][2]string{
		"in two files":        {{"p.jsonl", first}, {"n.jsonl", next}, {"n.jsonl", next + end}},
		"the other way round": {{"n.jsonl", next}, {"n.jsonl", next + end}, {"p.jsonl", first}},
		"after a compaction":  {{"p.jsonl", first}, {"n.jsonl", compacted + end}},
		"in the same file":    {{"n.jsonl", first + next + end}},
	} {
		dir, db := t.TempDir(), filepath.Join(t.TempDir(), "s.db")
		write(t, filepath.Join(dir, "p.jsonl"), first)
		for _, f := range files {
			write(t, filepath.Join(dir, f[0]), f[1])
			run(t, db, importer.Options{}, filepath.Join(dir, f[0]))
		}
		shown := forksShown(t, db)
		if !strings.HasPrefix(shown, "20 tokens in all") || !strings.Contains(shown, "at two: fork, 10 tokens, 0 copied") {
			t.Errorf("%s:\n%s", what, shown)
		}
		r := testscale.Open(t, sqlite.OpenReader, db)
		if listed := len(storetest.List(t, r, store.SessionQuery{})); listed != 2 {
			t.Errorf("%s: %d sessions are listed, want 2", what, listed)
		}
	}
}
