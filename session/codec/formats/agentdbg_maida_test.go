package formats

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

const agentdbgMaidaDir = "testdata/agentdbg/maida"

// TestAgentDbgMaidaValidatesWhatIsWritten: the two files of a run follow the schemas, and the spans
// are a tree below one root, whose counts are those of the spans.
func TestAgentDbgMaidaValidatesWhatIsWritten(t *testing.T) {
	for i, s := range agentdbgNatives(t) {
		dir, err := agentdbgWriteRun(t.TempDir(), s, false, true)
		testscale.Must(t, err)
		meta := agentdbgParse(t, readFile(t, filepath.Join(dir, "meta.json")))
		agentdbgFollows(t, "meta", meta, "session", i)
		if meta["trace_id"] != filepath.Base(dir) {
			t.Errorf("session %d: run %v stands in %s", i, meta["trace_id"], dir)
		}
		ids, counts, last := map[any]bool{nil: true}, map[string]float64{}, ""
		for line := range strings.Lines(readFile(t, filepath.Join(dir, "spans.jsonl"))) {
			e := agentdbgParse(t, line)
			agentdbgFollows(t, "span", e, "session", i)
			start := fmt.Sprint(e["start_time"])
			if e["trace_id"] != meta["trace_id"] || ids[e["span_id"]] || !ids[e["parent_span_id"]] ||
				(e["parent_span_id"] == nil) != (len(ids) == 1) || start < last {
				t.Errorf("session %d: span %v is out of place", i, e)
			}
			ids[e["span_id"]], last = true, start
			switch a := e["attributes"].(map[string]any); {
			case e["parent_span_id"] == nil:
			case a["gen_ai.system"] != nil:
				counts["llm_calls"]++
			case a["maida.tool_name"] != nil:
				counts["tool_calls"]++
			case a["maida.event_type"] == "LOOP_WARNING":
				counts["loop_warnings"]++
			case a["maida.error_type"] != nil:
				counts["errors"]++
			case e["name"] != "state":
				t.Errorf("session %d: Maida knows no type of the span %v", i, e)
			}
		}
		for key, v := range meta["counts"].(map[string]any) {
			if v != counts[key] && meta["status"] != "running" {
				t.Errorf("session %d: %s is %v, want %v", i, key, v, counts[key])
			}
		}
	}
}

// TestAgentDbgMaidaRunsAreRead: runs as Maida's SDK and other emitters write them.
func TestAgentDbgMaidaRunsAreRead(t *testing.T) {
	var problems reports
	all := collected(t, agentdbgDecodeFile(agentdbgMaidaDir, problems.add))
	codectest.CheckGolden(t, agentdbgMaidaDir+"/golden.jsonl", codectest.Golden(t, problems, all...), *update)
}

// TestAgentDbgMaidaKeepsTextsThatAreJSON: what somebody said is a text, also if it is JSON, or if Maida's
// SDK writes messages in such a way.
func TestAgentDbgMaidaKeepsTextsThatAreJSON(t *testing.T) {
	spans := readFile(t, agentdbgMaidaDir+"/runs/a1000000000000000000000000000001/spans.jsonl")
	for _, text := range []string{
		`[{"type":"text","text":"x"}]`, `{"messages":[{"role":"user","content":"x"}]}`, `{"a":1}`, `[1]`, `7`, `null`, `""`,
		`[{'role': 'user', 'content': 'x'}]`, `{'a': None}`, `{"content":[{"type":"text","text":"x"}]}`, `{`, "['",
	} {
		s := one(t, agentdbgDecode, spans)
		for _, m := range s.Messages {
			for i := range m.Parts {
				if m.Parts[i].Type == "text" {
					quoted, _ := json.Marshal(text)
					m.Parts[i].DataJSON = `{"type":"text","text":` + string(quoted) + "}"
				}
			}
		}
		again := one(t, agentdbgDecode, string(agentdbgEncodeMaida(s)))
		if d := cmp.Diff(codectest.Golden(t, nil, s), codectest.Golden(t, nil, again)); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

// TestAgentDbgMaidaExportIsRead: what "maida export" writes has the events of the spans, by their starts.
func TestAgentDbgMaidaExportIsRead(t *testing.T) {
	got := one(t, agentdbgDecode, readFile(t, agentdbgMaidaDir+"/export.json"))
	want := one(t, agentdbgDecode, readFile(t, agentdbgMaidaDir+"/runs/a1000000000000000000000000000001/spans.jsonl"))
	if d := cmp.Diff(codectest.Golden(t, nil, want), codectest.Golden(t, nil, got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
