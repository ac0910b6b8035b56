package formats

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

const agentdbgMaidaDir = "testdata/agentdbg/maida"

// What Maida publishes of its format: schemas/trace/0.2.0, and the rules of its
// validate-trace.
var (
	agentdbgIsTrace    = agentdbgMatches(`^[0-9a-f]{32}$`)
	agentdbgIsSpan     = agentdbgMatches(`^[0-9a-f]{16}$`)
	agentdbgMetaSchema = map[string]agentdbgKind{
		"spec_version": agentdbgMatches(`^0\.2\.0$`), "trace_id": agentdbgIsTrace, "run_name": agentdbgOrNull(agentdbgIsText), "started_at": agentdbgIsMoment,
		"ended_at": agentdbgOrNull(agentdbgIsMoment), "duration_ms": agentdbgOrNull(agentdbgIsCount), "status": agentdbgOneOf("running", "ok", "error"),
		"counts": agentdbgRunSchema["counts"],
	}
	agentdbgSpanSchema = map[string]agentdbgKind{
		"trace_id": agentdbgIsTrace, "span_id": agentdbgIsSpan, "parent_span_id": agentdbgOrNull(agentdbgIsSpan), "name": agentdbgIsText,
		"kind":       agentdbgOneOf("INTERNAL", "CLIENT", "SERVER", "PRODUCER", "CONSUMER"),
		"start_time": agentdbgIsMoment, "end_time": agentdbgOrNull(agentdbgIsMoment), "duration_ms": agentdbgOrNull(agentdbgIsCount), "attributes": agentdbgIsObject,
		"events": func(v any) bool {
			all, ok := v.([]any)
			return ok && !slices.ContainsFunc(all, func(v any) bool {
				return len(agentdbgBreaches(v, map[string]agentdbgKind{"name": agentdbgIsText, "timestamp": agentdbgIsMoment, "attributes": agentdbgIsObject})) > 0
			})
		},
		"status_code": agentdbgOneOf("OK", "ERROR", "UNSET"), "status_description": agentdbgIsText,
	}
)

func agentdbgMatches(pattern string) agentdbgKind {
	is := regexp.MustCompile(pattern)
	return func(v any) bool { s, ok := v.(string); return ok && is.MatchString(s) }
}

func agentdbgIsMoment(v any) bool {
	s, ok := v.(string)
	_, err := time.Parse(time.RFC3339, s)
	return ok && err == nil && strings.HasSuffix(s, "Z")
}

// TestAgentDbgMaidaValidatesWhatIsWritten: the two files of a run follow the schemas, and the spans
// are a tree below one root, whose counts are those of the spans.
func TestAgentDbgMaidaValidatesWhatIsWritten(t *testing.T) {
	for i, s := range agentdbgNatives(t) {
		dir, err := agentdbgEncodeMaidaFile(t.TempDir(), s, false)
		if err != nil {
			t.Fatal(err)
		}
		meta := agentdbgParse(t, agentdbgReadFile(t, filepath.Join(dir, "meta.json")))
		for _, b := range agentdbgBreaches(meta, agentdbgMetaSchema) {
			t.Errorf("session %d: meta.json: %s", i, b)
		}
		if meta["trace_id"] != filepath.Base(dir) {
			t.Errorf("session %d: run %v stands in %s", i, meta["trace_id"], dir)
		}
		ids, counts, last := map[any]bool{nil: true}, map[string]int64{}, ""
		for line := range strings.Lines(agentdbgReadFile(t, filepath.Join(dir, "spans.jsonl"))) {
			e := agentdbgParse(t, line)
			for _, b := range agentdbgBreaches(e, agentdbgSpanSchema) {
				t.Errorf("session %d: span %v: %s", i, e["name"], b)
			}
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
			if got, _ := v.(json.Number).Int64(); got != counts[key] && meta["status"] != "running" {
				t.Errorf("session %d: %s is %d, want %d", i, key, got, counts[key])
			}
		}
	}
}

// TestAgentDbgMaidaRunsAreRead: runs as Maida's SDK and other emitters write them.
func TestAgentDbgMaidaRunsAreRead(t *testing.T) {
	var all []*codec.Session
	var problems []string
	for s, err := range agentdbgDecodeFile(agentdbgMaidaDir, func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	codectest.CheckGolden(t, agentdbgMaidaDir+"/golden.jsonl", codectest.Golden(t, problems, all...), *update)
}

// TestAgentDbgMaidaKeepsTextsThatAreJSON: what somebody said is a text, also if it is JSON, or if Maida's
// SDK writes messages in such a way.
func TestAgentDbgMaidaKeepsTextsThatAreJSON(t *testing.T) {
	for _, text := range []string{
		`[{"type":"text","text":"x"}]`, `{"messages":[{"role":"user","content":"x"}]}`, `{"a":1}`, `[1]`, `7`, `null`, `""`,
		`[{'role': 'user', 'content': 'x'}]`, `{'a': None}`, `{"content":[{"type":"text","text":"x"}]}`, `{`, "['",
	} {
		s, _ := agentdbgReadOne(t, agentdbgReadFile(t, agentdbgMaidaDir+"/runs/a1000000000000000000000000000001/spans.jsonl"))
		for _, m := range s.Messages {
			for i := range m.Parts {
				if m.Parts[i].Type == "text" {
					quoted, _ := json.Marshal(text)
					m.Parts[i].DataJSON = `{"type":"text","text":` + string(quoted) + "}"
				}
			}
		}
		var b strings.Builder
		if err := agentdbgEncodeMaida(&b, s); err != nil {
			t.Fatal(err)
		}
		again, problems := agentdbgReadOne(t, b.String())
		if d := cmp.Diff(codectest.Golden(t, nil, s), codectest.Golden(t, problems, again)); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

// TestAgentDbgMaidaExportIsRead: what "maida export" writes has the events of the spans, by their starts.
func TestAgentDbgMaidaExportIsRead(t *testing.T) {
	got, problems := agentdbgReadOne(t, agentdbgReadFile(t, agentdbgMaidaDir+"/export.json"))
	want, _ := agentdbgReadOne(t, agentdbgReadFile(t, agentdbgMaidaDir+"/runs/a1000000000000000000000000000001/spans.jsonl"))
	if d := cmp.Diff(codectest.Golden(t, nil, want), codectest.Golden(t, problems, got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
