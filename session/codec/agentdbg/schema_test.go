package agentdbg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
)

// What AgentDbg publishes of its format: schemas/run.schema.json,
// schemas/event.schema.json and the trace format page.
var (
	uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	stamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

type kind func(any) bool

func isText(v any) bool    { _, ok := v.(string); return ok }
func isObject(v any) bool  { _, ok := v.(map[string]any); return ok }
func isID(v any) bool      { s, ok := v.(string); return ok && uuid4.MatchString(s) }
func isAnything(any) bool  { return true }
func isVersion(v any) bool { return v == "0.1" }
func isNumber(v any) bool  { _, ok := v.(json.Number); return ok }

func isTime(v any) bool {
	s, ok := v.(string)
	_, err := time.Parse(time.RFC3339, s)
	return ok && err == nil && stamp.MatchString(s)
}

func isCount(v any) bool {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	return ok && err == nil && i >= 0
}

func isTexts(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { return !isText(v) })
}

func isIDs(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { return !isID(v) })
}

func orNull(k kind) kind { return func(v any) bool { return v == nil || k(v) } }

func oneOf(words ...any) kind { return func(v any) bool { return slices.Contains(words, v) } }

func objectOf(fields map[string]kind, optional ...string) kind {
	return func(v any) bool { return len(breaches(v, fields, optional...)) == 0 }
}

// breaches lists the keys that are missing, of another kind, or too many.
func breaches(v any, fields map[string]kind, optional ...string) (all []string) {
	o, ok := v.(map[string]any)
	if !ok {
		return []string{"not an object"}
	}
	for key, is := range fields {
		v, has := o[key]
		switch {
		case !has && !slices.Contains(optional, key):
			all = append(all, key+" is missing")
		case has && !is(v):
			all = append(all, fmt.Sprintf("%s is %v", key, v))
		}
	}
	for key := range o {
		if fields[key] == nil {
			all = append(all, key+" is not in the schema")
		}
	}
	return all
}

var runSchema = map[string]kind{
	"spec_version": isVersion, "run_id": isID, "run_name": orNull(isText), "started_at": isTime,
	"ended_at":    orNull(isTime),
	"duration_ms": orNull(isCount), "status": oneOf("running", "ok", "error"), "last_event_ts": orNull(isTime),
	"counts": objectOf(map[string]kind{"llm_calls": isCount, "tool_calls": isCount, "errors": isCount,
		"loop_warnings": isCount}),
}

var eventSchema = map[string]kind{
	"spec_version": isVersion, "event_id": isID, "run_id": isID, "parent_id": orNull(isID),
	"event_type": oneOf("RUN_START", "RUN_END", "LLM_CALL", "TOOL_CALL", "STATE_UPDATE", "ERROR", "LOOP_WARNING"),
	"ts":         isTime, "duration_ms": orNull(isCount), "name": isText, "payload": isObject, "meta": isObject,
}

var errorSchema = map[string]kind{"error_type": isText, "message": isText, "details": isAnything,
	"stack": orNull(isText)}

var payloadSchemas = map[string]map[string]kind{
	"RUN_START": {"run_name": orNull(isText), "python_version": isText, "platform": isText, "cwd": isText,
		"argv": isTexts},
	"RUN_END": {"status": oneOf("ok", "error"), "summary": objectOf(map[string]kind{
		"llm_calls": isCount, "tool_calls": isCount, "errors": isCount, "duration_ms": isCount})},
	"LLM_CALL": {"model": isText, "prompt": isAnything, "response": isAnything, "provider": isText,
		"temperature": orNull(isNumber),
		"stop_reason": orNull(isText), "status": oneOf("ok", "error"), "error": orNull(objectOf(errorSchema)),
		"usage": orNull(objectOf(map[string]kind{"prompt_tokens": isCount, "completion_tokens": isCount,
			"total_tokens": isCount}))},
	"TOOL_CALL": {"tool_name": isText, "args": isAnything, "result": isAnything, "status": oneOf("ok", "error"),
		"error": orNull(objectOf(errorSchema))},
	"STATE_UPDATE": {"state": isAnything, "diff": isAnything},
	"ERROR":        errorSchema,
	"LOOP_WARNING": {"pattern": isText, "repetitions": isCount, "window_size": isCount, "evidence_event_ids": isIDs},
}

func parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		tb.Fatal(err)
	}
	return o
}

func TestWhatIsWrittenFollowsTheSchemas(t *testing.T) {
	for i, s := range natives(t) {
		dir, err := agentdbg.EncodeFile(t.TempDir(), s, false)
		if err != nil {
			t.Fatal(err)
		}
		run := parse(t, readFile(t, filepath.Join(dir, "run.json")))
		for _, b := range breaches(run, runSchema) {
			t.Errorf("session %d: run.json: %s", i, b)
		}
		if run["run_id"] != filepath.Base(dir) {
			t.Errorf("session %d: run %v stands in %s", i, run["run_id"], dir)
		}
		checkEvents(t, fmt.Sprint("session ", i), readFile(t, filepath.Join(dir, "events.jsonl")), run)

		// The export has the same events in the same words.
		var b bytes.Buffer
		if err := agentdbg.Encode(&b, s); err != nil {
			t.Fatal(err)
		}
		for _, br := range breaches(parse(t, b.String()),
			map[string]kind{"spec_version": isVersion, "run": objectOf(runSchema), "events": isAnything}) {
			t.Errorf("session %d: export: %s", i, br)
		}
	}
}

func checkEvents(t *testing.T, name, text string, run map[string]any) {
	t.Helper()
	counts := map[string]int64{}
	ids := map[any]bool{nil: true}
	n, last := 0, ""
	for line := range strings.Lines(text) {
		e := parse(t, line)
		typ, _ := e["event_type"].(string)
		optional := []string{"details"}
		for _, b := range append(breaches(e, eventSchema),
			breaches(e["payload"], payloadSchemas[typ], optional...)...) {
			t.Errorf("%s: event %d, %s: %s", name, n, typ, b)
		}
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
	want := map[string]int64{
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
		if got, _ := v.(json.Number).Int64(); got != want[key] {
			t.Errorf("%s: %s is %d, want %d", name, key, got, want[key])
		}
	}
}

// The schema is AgentDbg's, so what AgentDbg wrote has to pass.
func TestSamplesFollowTheSchemas(t *testing.T) {
	for _, id := range sampleRuns {
		dir := filepath.Join(dataDir, "runs", id)
		run := parse(t, readFile(t, filepath.Join(dir, "run.json")))
		for _, b := range breaches(run, runSchema) {
			t.Errorf("%s: %s", id, b)
		}
		// These go beyond what the schemas know: guardrails, redacted counts.
		text := regexp.MustCompile(`, "guardrail": "[^"]*", "threshold": \d+, "actual": \d+`).ReplaceAllString(
			readFile(t, filepath.Join(dir, "events.jsonl")), "")
		text = strings.ReplaceAll(text, `_tokens": "__REDACTED__"`, `_tokens": 0`)
		checkEvents(t, id, text, run)
	}
}
