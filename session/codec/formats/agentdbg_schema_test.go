package formats

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
)

// What AgentDbg publishes of its format: schemas/run.schema.json,
// schemas/event.schema.json and the trace format page.
var (
	agentdbgStamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

type agentdbgKind func(any) bool

func agentdbgIsText(v any) bool    { _, ok := v.(string); return ok }
func agentdbgIsObject(v any) bool  { _, ok := v.(map[string]any); return ok }
func agentdbgIsID(v any) bool      { s, ok := v.(string); return ok && agentdbgUUID4.MatchString(s) }
func agentdbgIsAnything(any) bool  { return true }
func agentdbgIsVersion(v any) bool { return v == "0.1" }
func agentdbgIsNumber(v any) bool  { _, ok := v.(json.Number); return ok }

func agentdbgIsTime(v any) bool {
	s, ok := v.(string)
	_, err := time.Parse(time.RFC3339, s)
	return ok && err == nil && agentdbgStamp.MatchString(s)
}

func agentdbgIsCount(v any) bool {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	return ok && err == nil && i >= 0
}

func agentdbgIsTexts(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { return !agentdbgIsText(v) })
}

func agentdbgIsIDs(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { return !agentdbgIsID(v) })
}

func agentdbgOrNull(k agentdbgKind) agentdbgKind { return func(v any) bool { return v == nil || k(v) } }

func agentdbgOneOf(words ...any) agentdbgKind {
	return func(v any) bool { return slices.Contains(words, v) }
}

func agentdbgObjectOf(fields map[string]agentdbgKind, optional ...string) agentdbgKind {
	return func(v any) bool { return len(agentdbgBreaches(v, fields, optional...)) == 0 }
}

// agentdbgBreaches lists the keys that are missing, of another kind, or too many.
func agentdbgBreaches(v any, fields map[string]agentdbgKind, optional ...string) (all []string) {
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

var agentdbgRunSchema = map[string]agentdbgKind{
	"spec_version": agentdbgIsVersion, "run_id": agentdbgIsID, "run_name": agentdbgOrNull(agentdbgIsText), "started_at": agentdbgIsTime,
	"ended_at":    agentdbgOrNull(agentdbgIsTime),
	"duration_ms": agentdbgOrNull(agentdbgIsCount), "status": agentdbgOneOf("running", "ok", "error"), "last_event_ts": agentdbgOrNull(agentdbgIsTime),
	"counts": agentdbgObjectOf(map[string]agentdbgKind{"llm_calls": agentdbgIsCount, "tool_calls": agentdbgIsCount, "errors": agentdbgIsCount,
		"loop_warnings": agentdbgIsCount}),
}

var agentdbgEventSchema = map[string]agentdbgKind{
	"spec_version": agentdbgIsVersion, "event_id": agentdbgIsID, "run_id": agentdbgIsID, "parent_id": agentdbgOrNull(agentdbgIsID),
	"event_type": agentdbgOneOf("RUN_START", "RUN_END", "LLM_CALL", "TOOL_CALL", "STATE_UPDATE", "ERROR", "LOOP_WARNING"),
	"ts":         agentdbgIsTime, "duration_ms": agentdbgOrNull(agentdbgIsCount), "name": agentdbgIsText, "payload": agentdbgIsObject, "meta": agentdbgIsObject,
}

var agentdbgErrorSchema = map[string]agentdbgKind{"error_type": agentdbgIsText, "message": agentdbgIsText, "details": agentdbgIsAnything,
	"stack": agentdbgOrNull(agentdbgIsText)}

var agentdbgPayloadSchemas = map[string]map[string]agentdbgKind{
	"RUN_START": {"run_name": agentdbgOrNull(agentdbgIsText), "python_version": agentdbgIsText, "platform": agentdbgIsText, "cwd": agentdbgIsText,
		"argv": agentdbgIsTexts},
	"RUN_END": {"status": agentdbgOneOf("ok", "error"), "summary": agentdbgObjectOf(map[string]agentdbgKind{
		"llm_calls": agentdbgIsCount, "tool_calls": agentdbgIsCount, "errors": agentdbgIsCount, "duration_ms": agentdbgIsCount})},
	"LLM_CALL": {"model": agentdbgIsText, "prompt": agentdbgIsAnything, "response": agentdbgIsAnything, "provider": agentdbgIsText,
		"temperature": agentdbgOrNull(agentdbgIsNumber),
		"stop_reason": agentdbgOrNull(agentdbgIsText), "status": agentdbgOneOf("ok", "error"), "error": agentdbgOrNull(agentdbgObjectOf(agentdbgErrorSchema)),
		"usage": agentdbgOrNull(agentdbgObjectOf(map[string]agentdbgKind{"prompt_tokens": agentdbgIsCount, "completion_tokens": agentdbgIsCount,
			"total_tokens": agentdbgIsCount}))},
	"TOOL_CALL": {"tool_name": agentdbgIsText, "args": agentdbgIsAnything, "result": agentdbgIsAnything, "status": agentdbgOneOf("ok", "error"),
		"error": agentdbgOrNull(agentdbgObjectOf(agentdbgErrorSchema))},
	"STATE_UPDATE": {"state": agentdbgIsAnything, "diff": agentdbgIsAnything},
	"ERROR":        agentdbgErrorSchema,
	"LOOP_WARNING": {"pattern": agentdbgIsText, "repetitions": agentdbgIsCount, "window_size": agentdbgIsCount, "evidence_event_ids": agentdbgIsIDs},
}

func agentdbgParse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		tb.Fatal(err)
	}
	return o
}

func TestAgentDbgWhatIsWrittenFollowsTheSchemas(t *testing.T) {
	for i, s := range agentdbgNatives(t) {
		dir, err := agentdbgEncodeFile(t.TempDir(), s, false)
		if err != nil {
			t.Fatal(err)
		}
		run := agentdbgParse(t, agentdbgReadFile(t, filepath.Join(dir, "run.json")))
		for _, b := range agentdbgBreaches(run, agentdbgRunSchema) {
			t.Errorf("session %d: run.json: %s", i, b)
		}
		if run["run_id"] != filepath.Base(dir) {
			t.Errorf("session %d: run %v stands in %s", i, run["run_id"], dir)
		}
		agentdbgCheckEvents(t, fmt.Sprint("session ", i), agentdbgReadFile(t, filepath.Join(dir, "events.jsonl")), run)

		// The export has the same events in the same words.
		var b bytes.Buffer
		if err := agentdbgEncode(&b, s); err != nil {
			t.Fatal(err)
		}
		for _, br := range agentdbgBreaches(agentdbgParse(t, b.String()),
			map[string]agentdbgKind{"spec_version": agentdbgIsVersion, "run": agentdbgObjectOf(agentdbgRunSchema), "events": agentdbgIsAnything}) {
			t.Errorf("session %d: export: %s", i, br)
		}
	}
}

func agentdbgCheckEvents(t *testing.T, name, text string, run map[string]any) {
	t.Helper()
	counts := map[string]int64{}
	ids := map[any]bool{nil: true}
	n, last := 0, ""
	for line := range strings.Lines(text) {
		e := agentdbgParse(t, line)
		typ, _ := e["event_type"].(string)
		optional := []string{"details"}
		for _, b := range append(agentdbgBreaches(e, agentdbgEventSchema),
			agentdbgBreaches(e["payload"], agentdbgPayloadSchemas[typ], optional...)...) {
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
func TestAgentDbgSamplesFollowTheSchemas(t *testing.T) {
	for _, id := range agentdbgSampleRuns {
		dir := filepath.Join(agentdbgDataDir, "runs", id)
		run := agentdbgParse(t, agentdbgReadFile(t, filepath.Join(dir, "run.json")))
		for _, b := range agentdbgBreaches(run, agentdbgRunSchema) {
			t.Errorf("%s: %s", id, b)
		}
		// These go beyond what the schemas know: guardrails, redacted counts.
		text := regexp.MustCompile(`, "guardrail": "[^"]*", "threshold": \d+, "actual": \d+`).ReplaceAllString(
			agentdbgReadFile(t, filepath.Join(dir, "events.jsonl")), "")
		text = strings.ReplaceAll(text, `_tokens": "__REDACTED__"`, `_tokens": 0`)
		agentdbgCheckEvents(t, id, text, run)
	}
}
