package importer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store/storetest"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// shown is what show prints of the sessions of files that are imported one after the other.
func shown(t testing.TB, paths ...string) string {
	t.Helper()
	db := filepath.Join(t.TempDir(), "s.db")
	for _, path := range paths {
		importFile(t, db, path)
	}
	r := testscale.Open(t, sqlite.OpenReader, db)
	var b bytes.Buffer
	for _, s := range storetest.Sessions(t, r) {
		doc, err := document.Reader{Reader: r}.LoadAll(t.Context(), s.ID)
		testscale.Must(t, err)
		testscale.Must(t, render.Document(&b, doc, render.Options{Width: 100, Now: time.UnixMilli(s.UpdatedAt)}))
		testscale.Must(t, render.Permissions(&b, doc, render.Options{Width: 100, Now: time.UnixMilli(s.UpdatedAt)}))
	}
	return b.String()
}

// contains reports each text that is not in what is shown, whatever the spaces between its words.
func contains(t testing.TB, shown string, texts ...string) {
	t.Helper()
	shown = strings.Join(strings.Fields(shown), " ")
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			t.Errorf("no %q in\n%s", text, shown)
		}
	}
}

// TestCopilotTranscriptBesideItsTelemetry has one session of three processes be the same whether its transcript, its
// telemetry or both are imported, in either order: the turns, the calls and the tokens that the program printed. The
// files are of GitHub Copilot CLI 1.0.102, with the parts left out that are long.
func TestCopilotTranscriptBesideItsTelemetry(t *testing.T) {
	telemetry, err := filepath.Glob("testdata/copilot/*-traces.json")
	if err != nil || len(telemetry) != 3 {
		t.Fatal(telemetry, err)
	}
	transcript := filepath.Join(t.TempDir(), "790fe5a9-8168-4d3f-ad2b-43aede819b5d", "events.jsonl")
	text := testscale.ReadFile(t, "testdata/copilot/events.jsonl")
	write(t, transcript, string(text))
	files := append([]string{transcript}, telemetry...)
	backward := slices.Clone(files)
	slices.Reverse(backward)
	for name, files := range map[string][]string{"transcript": {transcript}, "telemetry": telemetry,
		"transcript first": files, "telemetry first": backward} {
		got := shown(t, files...)
		contains(t, got, "What is in crate.txt? ✓ finished", "3 turns · 4 tool calls", "12,079 tokens",
			"❯ What is in crate.txt? ◦ context: text: <current_datetime>2026-11-24T17:38:22.617+00:00</current_datetime>",
			"● Opening the crate 1. ▸ bash cat crate.txt ✓", "● Seven lemons 2.", "❯ And the second question?",
			"total 2,840 162 17 9,060 0 12,079")
		if strings.Contains(got, "notice") || strings.Count(got, "● Seven lemons 2.") != 1 || t.Failed() {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// TestCopilotTotalsOfEachExitAreCountedOnce: versions that write no usage of single calls write what all exits so far
// add up to.
func TestCopilotTotalsOfEachExitAreCountedOnce(t *testing.T) {
	text := testscale.ReadFile(t, "testdata/copilot/events.jsonl")
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.Contains(line, `"session.usage_record"`)
	})
	transcript := filepath.Join(t.TempDir(), "790fe5a9-8168-4d3f-ad2b-43aede819b5d", "events.jsonl")
	write(t, transcript, strings.Join(lines, "\n"))
	got := shown(t, transcript)
	if contains(t, got, "3 turns · 4 tool calls", "12,079 tokens"); t.Failed() {
		t.Error(got)
	}
}

// TestTailOfACompactionIsKept: what a compaction left in the model's context is known, also where it begins in the
// midst of a turn.
func TestTailOfACompactionIsKept(t *testing.T) {
	for _, path := range []string{"testdata/compaction/pi.jsonl", "testdata/compaction/claude.jsonl"} {
		db := filepath.Join(t.TempDir(), "s.db")
		importFile(t, db, path)
		r := testscale.Open(t, sqlite.OpenReader, db)
		doc, err := document.Reader{Reader: r}.LoadAll(t.Context(), "p1")
		testscale.Must(t, err)
		tail, texts := "", make(map[string]string)
		for _, turn := range doc.Turns {
			for _, m := range turn.Messages {
				if m.Compaction != nil {
					tail = m.Compaction.TailStartID
				}
				for _, p := range m.Parts {
					texts[m.ID] += p.Text
				}
			}
		}
		if got := texts[tail]; got != "twothree" {
			t.Errorf("%s: the tail begins with %q of %q", filepath.Base(path), got, texts)
		}
	}
}

// TestRunsOfAgentDbgHaveItsTypesAndBounds: a result that is an array is in an object, and a text is cut where AgentDbg
// cuts it.
func TestRunsOfAgentDbgHaveItsTypesAndBounds(t *testing.T) {
	long := strings.Repeat("é", 15_000)
	path := filepath.Join(t.TempDir(), "s1.jsonl")
	write(t, path, `{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":`+
		`"user","content":"look"}}`+"\n"+
		`{"type":"assistant","sessionId":"s1","uuid":"u2","parentUuid":"u1","timestamp":"2026-01-02T03:04:06.000Z",`+
		`"message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"text","text":"`+long+`"},`+
		`{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"a"}}]}}`+"\n"+
		`{"type":"user","sessionId":"s1","uuid":"u3","parentUuid":"u2","timestamp":"2026-01-02T03:04:07.000Z","message":`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"},`+
		`{"type":"text","text":"b"}]}]}}`+"\n")
	s := stored(t, path, "s1")
	run := inFormat(t, s, "agentdbg")
	contains(t, run, `"result": { "value": [`, `é__TRUNCATED__"`)
	if strings.Contains(run, strings.Repeat("é", 10_000)) {
		t.Error("a text is longer than AgentDbg has them")
	}
}

// stored imports a file, and returns the session that is in it.
func stored(t *testing.T, path, id string) *codec.Session {
	t.Helper()
	db := filepath.Join(t.TempDir(), "s.db")
	importFile(t, db, path)
	r := testscale.Open(t, sqlite.OpenReader, db)
	s, err := formats.Read(t.Context(), r, id)
	testscale.Must(t, err)
	return s
}

// inFormat returns a session in a format.
func inFormat(t *testing.T, s *codec.Session, format string) string {
	t.Helper()
	var b strings.Builder
	testscale.Must(t, formats.Named(format, nil).Stream(&b)(&formats.Source{Session: s}))
	return b.String()
}

// claudeEvents are records of Claude Code's telemetry: the second, the name, and the attributes of each.
func claudeEvents(of ...any) (records []string) {
	for i := 0; i < len(of); i += 3 {
		at := time.Date(2026, 1, 2, 3, 4, of[i].(int), 0, time.UTC).UnixNano()
		var all map[string]string
		_ = json.Unmarshal([]byte("{"+of[i+2].(string)+"}"), &all)
		all["session.id"], all["prompt.id"], all["event.name"] = "s1", "p1", of[i+1].(string)
		all["event.timestamp"] = time.Unix(0, at).UTC().Format("2006-01-02T15:04:05.000Z")
		var attrs []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			attrs = append(attrs, fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, key, all[key]))
		}
		records = append(records, fmt.Sprintf(`{"timeUnixNano":"%d","body":{"stringValue":"claude_code.%s"},`+
			`"attributes":[%s]}`, at, of[i+1], strings.Join(attrs, ",")))
	}
	return records
}

// otlpLogs is a request of log records of a scope.
func otlpLogs(scope string, records ...string) string {
	return fmt.Sprintf(`{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":`+
		`"claude-code"}}]},"scopeLogs":[{"scope":{"name":%q},"logRecords":[%s]}]}]}`, scope, strings.Join(records, ","))
}
