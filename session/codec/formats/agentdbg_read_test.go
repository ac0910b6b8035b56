package formats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
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

// agentdbgStory tells a session in lines: role, then its parts.
func agentdbgStory(t *session.Transcript) (all []string) {
	for i := range t.Messages {
		m := &t.Messages[i]
		var meta session.MessageMetadata
		if err := json.Unmarshal([]byte(m.Message.MetadataJSON), &meta); err != nil {
			panic(err)
		}
		head := m.Message.Role
		if meta.Trace.Incomplete {
			head += " incomplete"
		}
		if meta.Trace.EndReason == "error" {
			head += " error " + meta.Trace.Error
		}
		if u := meta.Usage; u != nil {
			head += fmt.Sprintf(" %d+%d", u.Input, u.Output)
		}
		all = append(all, head)
		for _, p := range m.Parts {
			var d struct {
				Text, ErrorText string
				Output          json.RawMessage
				Data            json.RawMessage
			}
			if err := json.Unmarshal([]byte(p.DataJSON), &d); err != nil {
				panic(err)
			}
			all = append(all,
				strings.TrimRight(fmt.Sprintf("  %s %s%s%s%s", p.Type, d.Text, d.ErrorText, d.Output, d.Data),
					" "))
		}
	}
	return all
}

func TestAgentDbgDecodeStories(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
		problems agentdbgProblems
	}{
		{
			"prompts that repeat the history say nothing twice",
			agentdbgLine(0, "LLM_CALL",
				`{"model":"m","prompt":[{"role":"system","content":"be brief"},{"role":"user","content":"one"}],`+
					`"response":"1","usage":{"prompt_tokens":10,"completion_tokens":2.0,"total_tokens":12}}`) +
				agentdbgLine(1, "TOOL_CALL", `{"tool_name":"t","args":{},"result":"r","status":"ok","error":null}`) +
				agentdbgLine(2, "LLM_CALL",
					`{"model":"m","prompt":[{"role":"system","content":"be brief"},{"role":"user","content":"one"},`+
						`{"role":"assistant","content":"1"},{"role":"tool","content":"r"}],"response":"2",`+
						`"usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":null}}`) +
				agentdbgLine(3, "LLM_CALL",
					`{"model":"m","prompt":{"messages":[{"role":"user","content":"one"},{"role":"assistant",`+
						`"content":"2"},{"role":"user","content":[{"type":"text","text":"two"}]}]},`+
						`"response":{"content":"3","reasoning_content":"hm"},"usage":null}`) +
				agentdbgLine(4, "LLM_CALL",
					`{"model":"m","prompt":[{"type":"human","content":"two"}],`+
						`"response":{"choices":[{"message":{"role":"assistant","content":"4"}}]}}`),
			[]string{
				"user", "  text one",
				"assistant 30+5", "  step-start", "  text 1", `  tool-t "r"`, "  step-start", "  text 2",
				"user", "  text two",
				"assistant incomplete", "  step-start", "  reasoning hm", "  text 3", "  step-start", "  text 4",
			}, nil,
		},
		{
			"a history that the run did not make",
			agentdbgLine(0, "LLM_CALL",
				`{"model":"m","prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},`+
					`{"role":"user","content":"c"},{"role":"assistant","content":"prefill"}],"response":"d"}`),
			[]string{"user", "  text a", "assistant", "  text b", "user", "  text c", "assistant incomplete",
				"  step-start",
				"  text d"}, nil,
		},
		{
			"prompts that are texts",
			agentdbgLine(0, "LLM_CALL", `{"model":"m","prompt":"one","response":"1"}`) +
				agentdbgLine(1, "LLM_CALL", `{"model":"m","prompt":"one","response":"again"}`) +
				agentdbgLine(2, "LLM_CALL", `{"model":"m","prompt":["one","two"],"response":["x","y"]}`) +
				agentdbgLine(3, "LLM_CALL", `{"model":"m","prompt":{"template":7},"response":{"score":1}}`),
			[]string{
				"user", "  text one", "assistant", "  step-start", "  text 1", "  step-start", "  text again",
				"user", "  text two", "assistant", "  step-start", "  text x", "  text y",
				"user", `  data-prompt {"template":7}`, "assistant incomplete", "  step-start",
				`  data-response {"score":1}`,
			}, nil,
		},
		{
			"corrupt lines are left out",
			agentdbgLine(0, "RUN_START", `{"run_name":"r"}`) + "{\"event_type\": \"TOOL_\n" + "[1]\n" + "{\"x\": 1}\n" + "\n" +
				agentdbgLine(1, "TOOL_CALL", `{"tool_name":"t","args":{"n":NaN,"s":"NaN"},"result":-Infinity,"status":"ok",`+
					`"error":null}`) +
				strings.Replace(agentdbgLine(2, "CUSTOM_THING", `{"a":1}`), "2026-01-01T00:00:02.000Z", "yesterday", 1) +
				agentdbgLine(3, "TOOL_CALL", "\"no\xff dictionary\"") +
				strings.TrimSuffix(agentdbgLine(4, "RUN_END", `{"status":"ok","summary":{}}`), "}\n"),
			[]string{"assistant incomplete", "  tool-t null", `  data-event-custom-thing {"a":1}`, "  tool-n null"},
			agentdbgProblems{
				"line 2: is not an event: left out: invalid character '\\n' in string literal",
				"line 3: is not an event: left out: not an object",
				"line 4: has no event_type: left out",
				"line 6: NaN and Infinity are not JSON and were read as null",
				"line 7: ts is not a time: took that of the event before it",
				"line 8: bytes that are not UTF-8 were replaced by U+FFFD",
				"line 9: is not an event: left out: EOF",
			},
		},
		{
			"failed calls",
			agentdbgLine(0, "LLM_CALL",
				`{"model":"m","prompt":null,"response":null,"status":"error","error":{"error_type":"Timeout",`+
					`"message":"slow"}}`) +
				agentdbgLine(1, "TOOL_CALL",
					`{"tool_name":"t","args":"x","result":"partial","status":"error","error":{"type":"E",`+
						`"message":"m"}}`) +
				agentdbgLine(2, "TOOL_CALL", `{"tool_name":"t","args":"x","result":null,"status":"error","error":null}`) +
				agentdbgLine(3, "ERROR", `{"error_type":"E","message":"m","stack":null}`) +
				agentdbgLine(4, "RUN_END", `{"status":"error","summary":{}}`),
			[]string{"assistant error E: m", "  step-start", "  tool-t E: m", "  tool-t the call failed",
				`  data-error {"error_type":"E","message":"m","stack":null}`}, nil,
		},
		{
			"an event after the end",
			agentdbgLine(0, "RUN_START", `{}`) + agentdbgLine(1, "RUN_END", `{"status":"ok","summary":{}}`) + agentdbgLine(2, "STATE_UPDATE",
				`{"state":1,"diff":null}`),
			[]string{"assistant incomplete", `  data-event-run-end {"status":"ok","summary":{}}`,
				`  data-state {"state":1,"diff":null}`}, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, reported := agentdbgReadOne(t, tt.in)
			if diff := cmp.Diff(tt.want, agentdbgStory(s.Transcript)); diff != "" {
				t.Errorf("story (-want +got):\n%s", diff)
			}
			for i := range reported {
				// What encoding/json says after the reason is its own affair.
				if i < len(tt.problems) && strings.Contains(reported[i], "left out: ") {
					head, _, _ := strings.Cut(tt.problems[i], "left out: ")
					if strings.HasPrefix(reported[i], head) {
						reported[i] = tt.problems[i]
					}
				}
			}
			if diff := cmp.Diff(tt.problems, reported); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			// What was read is the same session after it was written and read again.
			if tt.problems == nil {
				dir, err := agentdbgEncodeFile(t.TempDir(), s, false)
				if err != nil {
					t.Fatal(err)
				}
				again := agentdbgCollect(t, agentdbgDecodeFile(dir, func(p codec.Problem) { t.Error(p) }))
				agentdbgExpressed(t, s, again[0])
			}
		})
	}
}

func TestAgentDbgDecodeSystemPromptAndTimes(t *testing.T) {
	s, _ := agentdbgReadOne(t, agentdbgLine(0, "RUN_START", `{"run_name":"r","cwd":"/w"}`)+
		agentdbgLine(5, "LLM_CALL",
			`{"model":"m","prompt":[{"role":"system","content":"be brief"},{"role":"user","content":"one"}],`+
				`"response":"1","usage":{"prompt_tokens":"many","completion_tokens":-1}}`)+
		strings.Replace(agentdbgLine(9, "TOOL_CALL", `{"tool_name":"t","args":{},"result":1}`), `"meta": {}`,
			`"meta": {"crewai": {"duration_ms": 2500}}`, 1)+
		agentdbgLine(3, "STATE_UPDATE", `{"state":"the clock went back"}`))
	if len(s.Blobs) != 1 || s.Blobs[0].Body != "be brief" || !s.Blobs[0].Exact {
		t.Errorf("blobs %+v", s.Blobs)
	}
	var meta session.MessageMetadata
	if err := json.Unmarshal([]byte(s.Messages[1].Message.MetadataJSON), &meta); err != nil {
		t.Fatal(err)
	}
	if meta.SystemPromptDigest != s.Blobs[0].Digest || len(meta.Trace.Problems) != 2 || meta.Usage != nil {
		t.Errorf("metadata %+v", meta)
	}
	tool := s.Messages[1].Parts[2]
	if got := tool.UpdatedAt - tool.CreatedAt; got != 2500 {
		t.Errorf("the call took %d ms, want 2500", got)
	}
	if u := s.Messages[0].Message.CreatedAt; u != s.Session.CreatedAt {
		t.Errorf("the user spoke at %d, want the start, %d", u, s.Session.CreatedAt)
	}
	if *s.Session.WorkspaceRoot != "/w" || s.Session.Title != "r" {
		t.Errorf("session %+v", s.Session)
	}
}

func agentdbgWrite(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		tb.Fatal(err)
	}
}

func TestAgentDbgDecodeFilePlaces(t *testing.T) {
	events := agentdbgReadFile(t, filepath.Join(agentdbgDataDir, "runs", agentdbgSampleRuns[0], "events.jsonl"))
	meta := agentdbgReadFile(t, filepath.Join(agentdbgDataDir, "runs", agentdbgSampleRuns[0], "run.json"))
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
		var p agentdbgProblems
		got := agentdbgCollect(t, agentdbgDecodeFile(filepath.Join(dir, path), p.report))
		if len(got) != 1 || p != nil {
			t.Errorf("%s in %q: %d runs, problems %q", path, place, len(got), p)
		} else if diff := cmp.Diff(agentdbgLines(t, all[0]), agentdbgLines(t, got[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", place, diff)
		}
	}
}

func TestAgentDbgDecodeFileDamage(t *testing.T) {
	dir := t.TempDir()
	run := func(name string) string { return filepath.Join(dir, "runs", name) }
	meta := agentdbgReadFile(t, filepath.Join(agentdbgDataDir, "runs", agentdbgSampleRuns[0], "run.json"))
	running := strings.NewReplacer(`"error"`, `"running"`).Replace(meta)
	agentdbgWrite(t, filepath.Join(run("1-no-events"), "run.json"), running)
	agentdbgWrite(t, filepath.Join(run("2-no-run"), "events.jsonl"),
		agentdbgLine(0, "RUN_START", `{"run_name":"crashed"}`)+agentdbgLine(1, "TOOL_CALL", `{"tool_name":"t"}`))
	agentdbgWrite(t, filepath.Join(run("3-damaged-run"), "run.json"), meta[:40])
	agentdbgWrite(t, filepath.Join(run("3-damaged-run"), "events.jsonl"),
		agentdbgLine(0, "RUN_START", `{"run_name":"r"}`)+"{\n"+agentdbgLine(1, "RUN_END", `{"status":"ok"}`))
	agentdbgWrite(t, filepath.Join(run("4-nothing"), "run.json"), "")
	agentdbgWrite(t, filepath.Join(dir, "runs", "not-a-run"), "")
	var p agentdbgProblems
	all := agentdbgCollect(t, agentdbgDecodeFile(dir, p.report))
	var got []string
	for _, s := range all {
		got = append(got, s.Session.ID+" "+s.Session.Title)
		got = append(got, agentdbgStory(s.Transcript)...)
	}
	want := []string{
		agentdbgSampleRuns[0] + " err",
		agentdbgTestRun + " crashed", "assistant incomplete", "  tool-t null",
		agentdbgTestRun + " r",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range p {
		p[i], _, _ = strings.Cut(p[i], ": invalid")
		p[i], _, _ = strings.Cut(p[i], ": unexpected")
		p[i], _, _ = strings.Cut(p[i], ": EOF")
	}
	wantProblems := agentdbgProblems{
		"runs/1-no-events/events.jsonl: is missing: the run has no events",
		"runs/2-no-run/run.json: is missing: the run is read from its events",
		"runs/3-damaged-run/run.json: is damaged: the run is read from its events",
		"runs/3-damaged-run/events.jsonl:2: is not an event: left out",
		"runs/4-nothing/run.json: is damaged: the run is read from its events",
		"runs/4-nothing/events.jsonl: is missing: the run has no events",
		"runs/4-nothing: neither run.json nor events.jsonl can be read: the run was left out",
	}
	if diff := cmp.Diff(wantProblems, p); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// A run that lost its run.json gets one that fits; a crashed one is written as
// AgentDbg leaves it.
func TestAgentDbgCrashedRunIsWrittenAsOne(t *testing.T) {
	in := agentdbgLine(0, "RUN_START",
		`{"run_name": "crashed", "python_version": "3", "platform": "linux", "cwd": "/", "argv": []}`) +
		agentdbgLine(1, "TOOL_CALL", `{"tool_name": "t", "args": null, "result": null, "status": "ok", "error": null}`)
	s, _ := agentdbgReadOne(t, in)
	dir, err := agentdbgEncodeFile(t.TempDir(), s, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range agentdbgCollect(t, agentdbgDecodeFile(dir, func(p codec.Problem) { t.Error(p) })) {
		if diff := cmp.Diff(agentdbgLines(t, s), agentdbgLines(t, again)); diff != "" {
			t.Errorf("written and read again (-want +got):\n%s", diff)
		}
	}
	run := agentdbgParse(t, agentdbgReadFile(t, filepath.Join(dir, "run.json")))
	for _, b := range agentdbgBreaches(run, agentdbgRunSchema) {
		t.Error(b)
	}
	if run["status"] != "running" || run["run_name"] != "crashed" {
		t.Errorf("run.json %v", run)
	}
}

func TestAgentDbgDecodeErrors(t *testing.T) {
	for name, in := range map[string]string{"empty": "", "text": "hello\n",
		"another format": `{"type":"session","data":{}}` + "\n", "an array": `[1]`} {
		n := 0
		for s, err := range agentdbgDecode(strings.NewReader(in), nil) {
			if n++; s != nil || err == nil {
				t.Errorf("%s: %v, %v", name, s, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d results", name, n)
		}
	}
	for _, err := range agentdbgDecode(iotest.ErrReader(errors.New("broken")), nil) {
		if err == nil || err.Error() != "read run: broken" {
			t.Errorf("Decode: %v", err)
		}
	}
	for path, want := range map[string]string{t.TempDir(): "no run in it",
		filepath.Join(t.TempDir(), "x"): "no such file"} {
		for _, err := range agentdbgDecodeFile(path, nil) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("DecodeFile: %v, want %s", err, want)
			}
		}
	}
}

// Several runs in one stream are several sessions.
func TestAgentDbgDecodeSeveralRuns(t *testing.T) {
	var in bytes.Buffer
	for _, id := range agentdbgSampleRuns {
		in.WriteString(agentdbgReadFile(t, filepath.Join(agentdbgDataDir, "runs", id, "events.jsonl")))
	}
	var ids []string
	for _, s := range agentdbgCollect(t, agentdbgDecode(&in, nil)) {
		ids = append(ids, s.Session.ID)
	}
	if diff := cmp.Diff(agentdbgSampleRuns, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	export := agentdbgReadFile(t, "testdata/agentdbg/export.json")
	if n := len(agentdbgCollect(t, agentdbgDecode(strings.NewReader(export+"\n"+export), nil))); n != 2 {
		t.Errorf("%d sessions of two exports", n)
	}
}

// FuzzAgentDbgDecode: whatever decodes is a valid session, and what is written of it reads as
// the same.
func FuzzAgentDbgDecode(f *testing.F) {
	var runs []string
	for _, id := range agentdbgSampleRuns {
		runs = append(runs, agentdbgReadFile(f, filepath.Join(agentdbgDataDir, "runs", id, "events.jsonl")))
	}
	fuzz(f, "agentdbg events", append(runs, agentdbgLine(0, "LLM_CALL",
		`{"prompt":[{"role":"user","content":"a"}],"response":{"content":[{"type":"text","text":"b"}]}}`))...)
}
