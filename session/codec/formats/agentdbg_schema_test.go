package formats

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

var agentdbgSchema = schemaOf("testdata/schemas/agentdbg.json")

// agentdbgFollows wants that a value follows the schema of its kind.
func agentdbgFollows(t *testing.T, kind string, value any, place ...any) {
	t.Helper()
	if err := agentdbgSchema(map[string]any{kind: value}); err != nil {
		t.Errorf("%s%s: %v", fmt.Sprintln(place...), kind, err)
	}
}

func agentdbgParse(tb testing.TB, text string) (o map[string]any) {
	tb.Helper()
	text = strings.ReplaceAll(text, "1e400", "1e300") // the suite has a number that no float64 holds
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		tb.Fatal(err)
	}
	return o
}

func TestAgentDbgWhatIsWrittenFollowsTheSchemas(t *testing.T) {
	for i, s := range agentdbgNatives(t) {
		dir, err := agentdbgWriteRun(t.TempDir(), s, false, false)
		testscale.Must(t, err)
		run := agentdbgParse(t, readFile(t, filepath.Join(dir, "run.json")))
		agentdbgFollows(t, "run", run, "session", i)
		if run["run_id"] != filepath.Base(dir) {
			t.Errorf("session %d: run %v stands in %s", i, run["run_id"], dir)
		}
		agentdbgCheckEvents(t, fmt.Sprint("session ", i), readFile(t, filepath.Join(dir, "events.jsonl")), run)

		// The export has the same events in the same words.
		agentdbgFollows(t, "export", agentdbgParse(t, string(agentdbgEncode(s))), "session", i)
	}
}

func agentdbgCheckEvents(t *testing.T, name, text string, run map[string]any) {
	t.Helper()
	counts := map[string]float64{}
	ids := map[any]bool{nil: true}
	n, last := 0, ""
	for line := range strings.Lines(text) {
		e := agentdbgParse(t, line)
		typ, _ := e["event_type"].(string)
		agentdbgFollows(t, "event", e, name, n, typ)
		if ids[e["event_id"]] {
			t.Errorf("%s: event %d has the id of an earlier one", name, n)
		}
		if !ids[e["parent_id"]] {
			t.Errorf("%s: event %d has a parent that is not above it", name, n)
		}
		ids[e["event_id"]] = true
		if e["run_id"] != run["run_id"] {
			t.Errorf("%s: event %d is of run %v", name, n, e["run_id"])
		}
		if (typ == "RUN_START") != (n == 0) || last == "RUN_END" {
			t.Errorf("%s: event %d, %s after %q", name, n, typ, last)
		}
		counts[typ]++
		last = typ
		n++
	}
	want := map[string]float64{
		"llm_calls": counts["LLM_CALL"], "tool_calls": counts["TOOL_CALL"], "errors": counts["ERROR"],
		"loop_warnings": counts["LOOP_WARNING"],
	}
	if run["status"] == "running" {
		if counts["RUN_END"] != 0 || run["ended_at"] != nil {
			t.Errorf("%s: the run goes on and has ended", name)
		}
		clear(want)
	} else if last != "RUN_END" {
		t.Errorf("%s: the last event is %s", name, last)
	}
	for key, v := range run["counts"].(map[string]any) {
		if v != want[key] {
			t.Errorf("%s: %s is %v, want %v", name, key, v, want[key])
		}
	}
}

// The schema is AgentDbg's, so what AgentDbg wrote has to pass.
func TestAgentDbgSamplesFollowTheSchemas(t *testing.T) {
	for _, id := range agentdbgSampleRuns {
		dir := filepath.Join(agentdbgDataDir, "runs", id)
		run := agentdbgParse(t, readFile(t, filepath.Join(dir, "run.json")))
		agentdbgFollows(t, "run", run, id)
		// These go beyond what the schemas know: guardrails, redacted counts.
		text := regexp.MustCompile(`, "guardrail": "[^"]*", "threshold": \d+, "actual": \d+`).ReplaceAllString(
			readFile(t, filepath.Join(dir, "events.jsonl")), "")
		text = strings.ReplaceAll(text, `_tokens": "__REDACTED__"`, `_tokens": 0`)
		agentdbgCheckEvents(t, id, text, run)
	}
}
