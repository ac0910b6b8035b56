package importer_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// claudeSubagent is the transcript of a sub-agent of a session.
func claudeSubagent(session, question string) string {
	return strings.ReplaceAll(claudeFile(session, question), `"isSidechain":false`, `"isSidechain":true,"agentId":"a1"`)
}

// questions returns what the user asked in each session of a store, by the session's id, after the id of its parent.
func questions(t *testing.T, db string) map[string]string {
	t.Helper()
	r := testscale.Open(t, sqlite.OpenReader, db)
	all := make(map[string]string)
	for _, s := range storetest.Sessions(t, r) {
		whole := storetest.Transcript(t, r, s.ID)
		if s.ParentID != nil {
			all[s.ID] = *s.ParentID + " "
		}
		for _, m := range whole.Messages {
			for _, p := range m.Parts {
				if _, text, found := strings.Cut(p.DataJSON, `"text":"`); found {
					text, _, _ = strings.Cut(text, `"`)
					all[s.ID] += text + "."
				}
			}
		}
	}
	return all
}

// TestTwoSessionsOfOneID: transcripts of two projects that have different sessions of one id are two sessions, with
// their sub-agents. A copy of one of them is the same session, and what a file grows by is added to its own.
func TestTwoSessionsOfOneID(t *testing.T) {
	dir := t.TempDir()
	file := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	put := func(text string, elem ...string) {
		t.Helper()
		testscale.Must(t, os.MkdirAll(filepath.Dir(file(elem...)), 0o700))
		write(t, file(elem...), text)
	}
	for project, question := range map[string]string{"a": "why", "b": "how"} {
		put(claudeFile("s1", question), project, "s1.jsonl")
		put(claudeSubagent("s1", "look for "+question), project, "s1", "subagents", "agent-a1.jsonl")
		put(strings.ReplaceAll(claudeSubagent("s1", "older "+question), `"a1"`, `"a2"`), project, "agent-a2.jsonl")
	}
	const other = "s1~14715150"
	want := map[string]string{"s1": "why.yes.", "s1-a1": "s1 look for why.yes.", "s1-a2": "s1 older why.yes."}
	check := func(what, db string, want map[string]string) {
		t.Helper()
		got := questions(t, db)
		for id, text := range want {
			if got[id] != text {
				t.Errorf("%s: session %s is %q, want %q of %v", what, id, got[id], text, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: sessions %v, want %v", what, got, want)
		}
	}
	want[other], want[other+"-a1"] = "how.yes.", other+" look for how.yes."
	want[other+"-a2"] = other + " older how.yes."
	var warned []string
	o := importer.Options{Warn: func(text string) { warned = append(warned, text) }}

	db := filepath.Join(t.TempDir(), "s.db")
	run(t, db, o, dir)
	check("at once", db, want)
	note := file("b", "s1.jsonl") + ": its session s1 is another one than that of " + file("a", "s1.jsonl") +
		": it is stored as " + other
	if !slices.Equal(warned, []string{note}) {
		t.Errorf("warnings %q, want %q", warned, note)
	}

	db = filepath.Join(t.TempDir(), "s.db")
	for _, path := range []string{file("a"), file("b", "s1.jsonl"), file("b")} {
		run(t, db, o, path)
	}
	check("one after the other", db, want)
	run(t, db, importer.Options{Again: true}, dir)
	check("again", db, want)

	put(claudeFile("s1", "how"), "c", "s1.jsonl")
	put(claudeFile("s1", "why"), "d", "s1.jsonl")
	run(t, db, o, dir)
	check("with copies", db, want)

	more := strings.NewReplacer(`"s11"`, `"s13"`, `"s12"`, `"s14"`, "03:04:0", "04:05:0", `"p1"`, `"p2"`, "null", `"s12"`,
		"m1", "m2").Replace(claudeFile("s1", "and then"))
	put(claudeFile("s1", "how")+more, "b", "s1.jsonl")
	run(t, db, o, file("b", "s1.jsonl"))
	want[other] += "and then.yes."
	check("grown", db, want)
	put(claudeSubagent("s1", "look for how")+strings.NewReplacer("s11", "s13", "s12", "s14", "03:04:0", "04:05:0", "null",
		`"s12"`, "m1", "m2").Replace(claudeSubagent("s1", "and there")), "b", "s1", "subagents", "agent-a1.jsonl")
	run(t, db, o, file("b", "s1", "subagents", "agent-a1.jsonl"))
	want[other+"-a1"] += "and there.yes."
	check("grown sub-agent", db, want)
	put(claudeFile("s1", "why")+more, "e", "s1.jsonl")
	run(t, db, o, file("e"))
	want["s1"] += "and then.yes."
	check("a copy that goes on", db, want)
}
