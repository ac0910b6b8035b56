package formats

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

const agentdbgTestRun = "11111111-2222-4333-8444-555555555555"

// agentdbgLine writes an event as the SDK does.
func agentdbgLine(n int, typ, payload string) string {
	return fmt.Sprintf(`{"spec_version": "0.1", "event_id": "00000000-0000-4000-8000-%012d", "run_id": %q, `+
		`"parent_id": null, "event_type": %q, `+
		`"ts": "2026-01-01T00:00:%02d.000Z", "duration_ms": null, "name": "n", "payload": %s, "meta": {}}`+"\n", n,
		agentdbgTestRun,
		typ, n%60, payload)
}

func agentdbgWrite(tb testing.TB, path, text string) {
	tb.Helper()
	testscale.Must(tb, os.MkdirAll(filepath.Dir(path), 0o777))
	testscale.Must(tb, os.WriteFile(path, []byte(text), 0o666))
}

func TestAgentDbgDecodeFilePlaces(t *testing.T) {
	events := readFile(t, filepath.Join(agentdbgDataDir, "runs", agentdbgSampleRuns[0], "events.jsonl"))
	meta := readFile(t, filepath.Join(agentdbgDataDir, "runs", agentdbgSampleRuns[0], "run.json"))
	all, _ := agentdbgSamples(t)
	for place, path := range map[string]string{
		"runs/" + agentdbgSampleRuns[0]:           "",
		".agentdbg/runs/" + agentdbgSampleRuns[0]: "",
		".maida/runs/" + agentdbgSampleRuns[0]:    ".maida",
		agentdbgSampleRuns[0]:                     agentdbgSampleRuns[0],
		"a":                                       "a/run.json",
		"b":                                       "b/events.jsonl",
		"c":                                       "",
	} {
		dir := t.TempDir()
		agentdbgWrite(t, filepath.Join(dir, place, "run.json"), meta)
		agentdbgWrite(t, filepath.Join(dir, place, "events.jsonl"), events)
		var p reports
		got := collected(t, agentdbgDecodeFile(filepath.Join(dir, path), p.add))
		if len(got) != 1 || p != nil {
			t.Errorf("%s in %q: %d runs, problems %q", path, place, len(got), p)
		} else if diff := cmp.Diff(codectest.Golden(t, nil, all[0]), codectest.Golden(t, nil, got[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", place, diff)
		}
	}
}

func TestAgentDbgDecodeFileDamage(t *testing.T) {
	dir := t.TempDir()
	run := func(name string) string { return filepath.Join(dir, "runs", name) }
	meta := readFile(t, filepath.Join(agentdbgDataDir, "runs", agentdbgSampleRuns[0], "run.json"))
	running := strings.NewReplacer(`"error"`, `"running"`).Replace(meta)
	agentdbgWrite(t, filepath.Join(run("1-no-events"), "run.json"), running)
	agentdbgWrite(t, filepath.Join(run("2-no-run"), "events.jsonl"),
		agentdbgLine(0, "RUN_START", `{"run_name":"crashed"}`)+agentdbgLine(1, "TOOL_CALL", `{"tool_name":"t"}`))
	agentdbgWrite(t, filepath.Join(run("3-damaged-run"), "run.json"), meta[:40])
	agentdbgWrite(t, filepath.Join(run("3-damaged-run"), "events.jsonl"),
		agentdbgLine(0, "RUN_START", `{"run_name":"r"}`)+"{\n"+agentdbgLine(1, "RUN_END", `{"status":"ok"}`))
	agentdbgWrite(t, filepath.Join(run("4-nothing"), "run.json"), "")
	agentdbgWrite(t, filepath.Join(dir, "runs", "not-a-run"), "")
	var p reports
	all := collected(t, agentdbgDecodeFile(dir, p.add))
	codectest.CheckGolden(t, "testdata/agentdbg/damage.golden.jsonl", codectest.Golden(t, p, all...), *update)
}

// A run that lost its run.json gets one that fits; a crashed one is written as
// AgentDbg leaves it.
func TestAgentDbgCrashedRunIsWrittenAsOne(t *testing.T) {
	in := agentdbgLine(0, "RUN_START",
		`{"run_name": "crashed", "python_version": "3", "platform": "linux", "cwd": "/", "argv": []}`) +
		agentdbgLine(1, "TOOL_CALL", `{"tool_name": "t", "args": null, "result": null, "status": "ok", "error": null}`)
	s := one(t, agentdbgDecode, in)
	dir, err := agentdbgWriteRun(t.TempDir(), s, false, false)
	testscale.Must(t, err)
	for _, again := range collected(t, agentdbgDecodeFile(dir, func(p codec.Problem) { t.Error(p) })) {
		if diff := cmp.Diff(codectest.Golden(t, nil, s), codectest.Golden(t, nil, again)); diff != "" {
			t.Errorf("written and read again (-want +got):\n%s", diff)
		}
	}
	run := agentdbgParse(t, readFile(t, filepath.Join(dir, "run.json")))
	agentdbgFollows(t, "run", run)
	if run["status"] != "running" || run["run_name"] != "crashed" {
		t.Errorf("run.json %v", run)
	}
}

// TestNothingToDecode: a directory without anything of the format, and one that is not there, are errors.
func TestNothingToDecode(t *testing.T) {
	for nothing, decode := range map[string]func(string, func(codec.Problem)) iter.Seq2[*codec.Session, error]{
		"no run in it": agentdbgDecodeFile, "no conversation in it": skilletDecodeFile,
	} {
		for path, want := range map[string]string{t.TempDir(): nothing, filepath.Join(t.TempDir(), "x"): "no such file"} {
			for _, err := range decode(path, nil) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			}
		}
	}
}

// FuzzAgentDbgDecode: whatever decodes is a valid session, and what is written of it reads as
// the same.
func FuzzAgentDbgDecode(f *testing.F) {
	var runs []string
	for _, id := range agentdbgSampleRuns {
		runs = append(runs, readFile(f, filepath.Join(agentdbgDataDir, "runs", id, "events.jsonl")))
	}
	fuzz(f, "agentdbg events", append(runs, agentdbgLine(0, "LLM_CALL",
		`{"prompt":[{"role":"user","content":"a"}],"response":{"content":[{"type":"text","text":"b"}]}}`))...)
}
