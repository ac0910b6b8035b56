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

// claudeFork is what the program writes of a fork of a session: its records with the ids of the fork and where they
// are from, and the last one with the time of the fork.
func claudeFork(from, to, minute, records string) string {
	var b strings.Builder
	lines := strings.Split(strings.TrimSpace(records), "\n")
	for i, line := range lines {
		_, uuid, _ := strings.Cut(line, `"uuid":"`)
		uuid, _, _ = strings.Cut(uuid, `"`)
		line = strings.NewReplacer(`"sessionId":"`+from, `"sessionId":"`+to, `"uuid":"`, `"uuid":"`+to,
			`"parentUuid":"`, `"parentUuid":"`+to).Replace(line)
		if i == len(lines)-1 {
			at := strings.Index(line, `"timestamp":"`) + len(`"timestamp":"2026-01-02T`)
			line = line[:at] + "03:" + minute + ":00" + line[at+len("03:00:00"):]
		}
		fmt.Fprintf(&b, "%s,\"forkedFrom\":{\"sessionId\":%q,\"messageUuid\":%q}}\n", strings.TrimSuffix(line, "}"),
			from, uuid)
	}
	return b.String() + fmt.Sprintf(`{"type":"custom-title","sessionId":%q,"customTitle":"x (fork)","uuid":"t%[1]s",`+
		`"timestamp":"2026-01-02T03:%s:00.000Z"}`+"\n", to, minute)
}

// codexTurnOf is a turn of a session in the hour and minute: its records without their times.
func codexTurnOf(minute, question, total string) []string {
	turn := "019b7d00-00" + minute + "-7000-8000-000000000000"
	return []string{
		`"type":"event_msg","payload":{"type":"task_started","turn_id":"` + turn + `"}`,
		`"type":"turn_context","payload":{"turn_id":"` + turn + `","model":"gpt-x"}`,
		`"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"` +
			question + `"}]}`,
		`"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text",` +
			`"text":"yes ` + question + `"}]}`,
		`"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":` + total +
			`},"last_token_usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}`,
		`"type":"event_msg","payload":{"type":"task_complete","turn_id":"` + turn + `"}`,
	}
}

// codexSession begins a session in the hour and minute.
func codexSession(id, minute, more string) string {
	return `"type":"session_meta","payload":{"id":"` + id + `","cwd":"/w","source":"cli","model_provider":"openai",` +
		`"timestamp":"2026-01-02T03:` + minute + `:00.000Z"` + more + `}`
}

// codexAt are records that were written in the hour and minute, as many in a millisecond as the program can write.
func codexAt(minute string, records ...string) string {
	var b strings.Builder
	for i, r := range records {
		fmt.Fprintf(&b, "{\"timestamp\":\"2026-01-02T03:%s:00.%03dZ\",%s}\n", minute, i/3, r)
	}
	return b.String()
}

// forkFiles are a session of two turns, a fork of it that goes on, and a fork of that one.
func forkFiles() map[string][]string {
	claude := claudeTurnOf("p", "01", "null", "one", "") + claudeTurnOf("p", "02", `"a01"`, "two", "")
	fork := claudeFork("p", "f", "05", claude) + claudeTurnOf("f", "06", `"fa02"`, "three", "")
	first, _, _ := strings.Cut(fork, `{"type":"custom-title"`)
	second := claudeFork("f", "g", "07", first+claudeTurnOf("f", "06", `"fa02"`, "three", "")) +
		claudeTurnOf("g", "08", `"gfa06"`, "four", "")

	id := func(minute string) string { return "019b7d00-00" + minute + "-7000-8000-00000000000f" }
	one, two := codexTurnOf("01", "one", "3"), codexTurnOf("02", "two", "6")
	three, four := codexTurnOf("06", "three", "9"), codexTurnOf("08", "four", "12")
	parent := append([]string{codexSession(id("00"), "00", "")}, append(one, two...)...)
	child := append([]string{codexSession(id("05"), "05", `,"forked_from_id":"`+id("00")+`"`)}, parent...)
	next := append([]string{codexSession(id("07"), "07", `,"forked_from_id":"`+id("05")+`"`)}, append(child, three...)...)
	// Newer versions of Codex write no copies, but where they are.
	based := func(from, at, history string) string {
		return fmt.Sprintf(`,"forked_from_id":%q,"history_base":{"thread_id":%q,"end_byte_offset":%d}`, id(from), id(at),
			len(history))
	}
	base := codexAt("01", parent...)
	onBase := codexAt("05", codexSession(id("05"), "05", based("00", "00", base))) + codexAt("06", three...)
	onFork := codexAt("07", codexSession(id("07"), "07", based("05", "05", onBase))) + codexAt("08", four...)
	return map[string][]string{
		"base.jsonl":   {base, onBase, onFork},
		"claude.jsonl": {claude, fork, second},
		"rollout.jsonl": {codexAt("01", parent...), codexAt("05", child...) + codexAt("06", three...),
			codexAt("07", next...) + codexAt("08", four...)},
	}
}

// forksTold is the id of the parent and the conversation of each session.
var forksTold = map[string]string{
	"claude.jsonl": "f one.yes one.two.yes two.three.yes three.four.yes four.|one.yes one.two.yes two.|" +
		"p one.yes one.two.yes two.three.yes three.",
	"base.jsonl": codexTold, "rollout.jsonl": codexTold,
}

const codexTold = "019b7d00-0000-7000-8000-00000000000f one.yes one.two.yes two.three.yes three.|" +
	"019b7d00-0005-7000-8000-00000000000f one.yes one.two.yes two.three.yes three.four.yes four.|" +
	"one.yes one.two.yes two."

// nameOf is the name of the file of a session.
func nameOf(name string, i int) string {
	if name == "claude.jsonl" {
		return fmt.Sprint(i, ".jsonl")
	}
	return fmt.Sprintf("rollout-2026-01-02T03-00-00-019b7d00-000%d-7000-8000-00000000000f.jsonl", []int{0, 5, 7}[i])
}

// TestForksCountTheirHistoryOnce: a fork is below the session that it was forked from, and shows the whole
// conversation. Each model call counts once, in whatever order the files are imported, however often, and when they
// grow.
func TestForksCountTheirHistoryOnce(t *testing.T) {
	for name, files := range forkFiles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			paths := make([]string, len(files))
			for i, text := range files {
				paths[i] = filepath.Join(dir, "2026", "01", fmt.Sprint(i), nameOf(name, i))
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
				growing := filepath.Join(dir, "2026", "02", fmt.Sprint(i), nameOf(name, i))
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
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d tokens in all\n", stats.Total.TotalTokens)
	for s, err := range r.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true}) {
		if err != nil {
			t.Fatal(err)
		}
		doc, err := document.Reader{Reader: r}.LoadAll(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", s.AppendJSON(nil))
		if s.ParentMessageID == nil {
			continue
		}
		parent := transcriptOf(t, r, *s.ParentID)
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
	files := forkFiles()["claude.jsonl"][:2]
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
		listed := 0
		for range r.Sessions(t.Context(), store.SessionQuery{}) {
			listed++
		}
		if listed != 2 {
			t.Errorf("%s: %d sessions are listed, want 2", what, listed)
		}
	}
}
