package agentdbg_test

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
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

const maidaDir = "testdata/maida"

func TestMaidaConformance(t *testing.T) {
	t.Run("spans", func(t *testing.T) {
		codectest.Run(t, codectest.Codec{
			Encode: agentdbg.EncodeMaida, Decode: agentdbg.Decode, Losses: agentdbg.MaidaLosses,
			Many: true, Slow: true,
			Native: []string{maidaDir + "/runs/*/spans.jsonl"},
		})
	})
	t.Run("directory", func(t *testing.T) {
		codectest.Run(t, codectest.Codec{

			EncodeFile: func(dir string, all []*codec.Session) error {
				for _, s := range all {
					if _, err := agentdbg.EncodeMaidaFile(dir, s, false); err != nil {
						return err
					}
				}
				return nil
			},
			DecodeFile: agentdbg.DecodeFile, Losses: agentdbg.MaidaLosses,
			Many: true, Slow: true,
			Native: []string{maidaDir, maidaDir + "/runs/*"},
		})
	})
}

// What Maida publishes of its format: schemas/trace/0.2.0, and the rules of its
// validate-trace.
var (
	isTrace    = matches(`^[0-9a-f]{32}$`)
	isSpan     = matches(`^[0-9a-f]{16}$`)
	metaSchema = map[string]kind{
		"spec_version": matches(`^0\.2\.0$`), "trace_id": isTrace, "run_name": orNull(isText), "started_at": isMoment,
		"ended_at": orNull(isMoment), "duration_ms": orNull(isCount), "status": oneOf("running", "ok", "error"),
		"counts": runSchema["counts"],
	}
	spanSchema = map[string]kind{
		"trace_id": isTrace, "span_id": isSpan, "parent_span_id": orNull(isSpan), "name": isText,
		"kind":       oneOf("INTERNAL", "CLIENT", "SERVER", "PRODUCER", "CONSUMER"),
		"start_time": isMoment, "end_time": orNull(isMoment), "duration_ms": orNull(isCount), "attributes": isObject,
		"events": func(v any) bool {
			all, ok := v.([]any)
			return ok && !slices.ContainsFunc(all, func(v any) bool {
				return len(breaches(v, map[string]kind{"name": isText, "timestamp": isMoment, "attributes": isObject})) > 0
			})
		},
		"status_code": oneOf("OK", "ERROR", "UNSET"), "status_description": isText,
	}
)

func matches(pattern string) kind {
	is := regexp.MustCompile(pattern)
	return func(v any) bool { s, ok := v.(string); return ok && is.MatchString(s) }
}

func isMoment(v any) bool {
	s, ok := v.(string)
	_, err := time.Parse(time.RFC3339, s)
	return ok && err == nil && strings.HasSuffix(s, "Z")
}

// TestMaidaValidatesWhatIsWritten: the two files of a run follow the schemas, and the spans
// are a tree below one root, whose counts are those of the spans.
func TestMaidaValidatesWhatIsWritten(t *testing.T) {
	for i, s := range natives(t) {
		dir, err := agentdbg.EncodeMaidaFile(t.TempDir(), s, false)
		if err != nil {
			t.Fatal(err)
		}
		meta := parse(t, readFile(t, filepath.Join(dir, "meta.json")))
		for _, b := range breaches(meta, metaSchema) {
			t.Errorf("session %d: meta.json: %s", i, b)
		}
		if meta["trace_id"] != filepath.Base(dir) {
			t.Errorf("session %d: run %v stands in %s", i, meta["trace_id"], dir)
		}
		ids, counts, last := map[any]bool{nil: true}, map[string]int64{}, ""
		for line := range strings.Lines(readFile(t, filepath.Join(dir, "spans.jsonl"))) {
			e := parse(t, line)
			for _, b := range breaches(e, spanSchema) {
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

// TestMaidaRunsAreRead: runs as Maida's SDK and other emitters write them.
func TestMaidaRunsAreRead(t *testing.T) {
	var all []*codec.Session
	var problems []string
	for s, err := range agentdbg.DecodeFile(maidaDir, func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	codectest.CheckGolden(t, maidaDir+"/golden.jsonl", codectest.Golden(t, problems, all...), *update)
}

// TestMaidaKeepsTextsThatAreJSON: what somebody said is a text, also if it is JSON, or if Maida's
// SDK writes messages in such a way.
func TestMaidaKeepsTextsThatAreJSON(t *testing.T) {
	for _, text := range []string{
		`[{"type":"text","text":"x"}]`, `{"messages":[{"role":"user","content":"x"}]}`, `{"a":1}`, `[1]`, `7`, `null`, `""`,
		`[{'role': 'user', 'content': 'x'}]`, `{'a': None}`, `{"content":[{"type":"text","text":"x"}]}`, `{`, "['",
	} {
		s, _ := decode(t, readFile(t, maidaDir+"/runs/a1000000000000000000000000000001/spans.jsonl"))
		for _, m := range s.Messages {
			for i := range m.Parts {
				if m.Parts[i].Type == "text" {
					quoted, _ := json.Marshal(text)
					m.Parts[i].DataJSON = `{"type":"text","text":` + string(quoted) + "}"
				}
			}
		}
		var b strings.Builder
		if err := agentdbg.EncodeMaida(&b, s); err != nil {
			t.Fatal(err)
		}
		again, problems := decode(t, b.String())
		if d := cmp.Diff(codectest.Golden(t, nil, s), codectest.Golden(t, problems, again)); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

// TestMaidaExportIsRead: what "maida export" writes has the events of the spans, by their starts.
func TestMaidaExportIsRead(t *testing.T) {
	got, problems := decode(t, readFile(t, maidaDir+"/export.json"))
	want, _ := decode(t, readFile(t, maidaDir+"/runs/a1000000000000000000000000000001/spans.jsonl"))
	if d := cmp.Diff(codectest.Golden(t, nil, want), codectest.Golden(t, problems, got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
