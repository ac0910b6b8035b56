package formats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

const agentdbgDataDir = "testdata/agentdbg/data"

var agentdbgSampleRuns = []string{
	"3cb3426d-1fa6-417a-b821-6be9c94cd9f4", // stop_on_loop
	"46e80958-2ba7-4329-9bda-377db118f630", // an exception
	"dff117f0-c969-44c1-8173-1523b6eb1213", // a cycle of two
	"f0ca8552-c91a-473d-a112-286a75226e66", // redaction, truncation
}

func agentdbgSamples(tb testing.TB) ([]*codec.Session, reports) {
	tb.Helper()
	var p reports
	all := collected(tb, agentdbgDecodeFile(agentdbgDataDir, p.add))
	if len(all) != len(agentdbgSampleRuns) {
		tb.Fatalf("%d sessions, want %d", len(all), len(agentdbgSampleRuns))
	}
	return all, p
}

func TestAgentDbgDecodeSamples(t *testing.T) {
	all, reported := agentdbgSamples(t)
	for i, s := range all {
		got := codectest.Golden(t, nil, s)
		codectest.CheckGolden(t, filepath.Join("testdata", "agentdbg", agentdbgSampleRuns[i]+".jsonl"), got, *update)
	}
	// Counts that AgentDbg redacted are no damage, and the message says of them.
	if len(reported) > 0 {
		t.Errorf("problems %q of samples that are sound", reported)
	}
	if !strings.Contains(readFile(t, filepath.Join("testdata", "agentdbg", "f0ca8552-c91a-473d-a112-286a75226e66.jsonl")),
		`is \\\"__REDACTED__\\\": the count is unknown`) {
		t.Error("nothing says that counts of tokens are unknown")
	}
}

// TestAgentDbgReplace: a run that is there is replaced if that is asked for: its two files, and nothing else.
func TestAgentDbgReplace(t *testing.T) {
	all, _ := agentdbgSamples(t)
	out := t.TempDir()
	dir, err := agentdbgWriteRun(out, all[0], false, false)
	testscale.Must(t, err)
	want := readFile(t, filepath.Join(dir, "run.json"))
	if _, err := agentdbgWriteRun(out, all[0], false, false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a run that is there: %v", err)
	}
	agentdbgWrite(t, filepath.Join(dir, "run.json"), "mine")
	agentdbgWrite(t, filepath.Join(dir, "notes.txt"), "mine")
	if _, err := agentdbgWriteRun(out, all[0], true, false); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(dir, "run.json")); got != want {
		t.Errorf("run.json (-want +got):\n%s", cmp.Diff(want, got))
	}
	if got := readFile(t, filepath.Join(dir, "notes.txt")); got != "mine" {
		t.Errorf("notes.txt after the run was replaced: %q", got)
	}
	if left, err := filepath.Glob(filepath.Join(out, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// The sessions of this file are not AgentDbg's: they are put in its terms.

func agentdbgNatives(tb testing.TB) []*codec.Session {
	all := codectest.Load(tb, "../../testdata/reference.jsonl")
	for _, s := range slices.Concat(codectest.Corpus(), codectest.Generated(40)) {
		all = append(all, s.Session)
	}
	return all
}

func TestAgentDbgEncodeRefuses(t *testing.T) {
	s := codectest.Corpus()[0].Session
	s.Session.ID = ""
	if err := written(agentdbgEncode)(new(bytes.Buffer))(&Source{Session: s}); err == nil ||
		!strings.Contains(err.Error(), "session has no id") {
		t.Errorf("Encode: %v", err)
	}
	if _, err := agentdbgWriteRun(t.TempDir(), s, false, false); err == nil {
		t.Error("EncodeFile: no error")
	}
}

// Maida sorts a run's events by time before it compares runs. Then too a run
// begins with its start, a model's call stands before the tools that it asked for,
// and what those gave before the next.
func TestAgentDbgEventsSortedByTimeStayInOrder(t *testing.T) {
	s := chat([]string{"assistant", `{"type":"text","text":"a"}`,
		`{"type":"tool-slow","toolCallId":"call_1","state":"output-available","input":{},"output":1}`,
		`{"type":"tool-fast","toolCallId":"call_2","state":"output-available","input":{},"output":1}`,
		`{"type":"text","text":"b"}`, `{"type":"data-state","data":{"state":1}}`},
		[]string{"user", `{"type":"text","text":"q"}`})
	// The last part's time is before that of what it follows, as where clocks differ.
	for i, at := range [][2]int64{{10, 10}, {20, 90}, {21, 30}, {22, 22}, {5, 5}} {
		s.Messages[0].Parts[i].CreatedAt, s.Messages[0].Parts[i].UpdatedAt = at[0], at[1]
	}
	s.Messages[0].Message.CreatedAt, s.Messages[0].Message.UpdatedAt = 2, 95
	question := &s.Messages[1]
	question.Message.CreatedAt, question.Message.UpdatedAt = 3, 3
	question.Parts[0].CreatedAt, question.Parts[0].UpdatedAt = 3, 3
	s.Session.CreatedAt, s.Session.UpdatedAt = 8, 50 // it was made, so it says, after its messages
	type event struct {
		Type string `json:"event_type"`
		TS   string
		Name string
	}
	var run struct {
		Run struct {
			EndedAt    string `json:"ended_at"`
			DurationMS int64  `json:"duration_ms"`
		}
		Events []event
	}
	testscale.Must(t, json.Unmarshal(agentdbgEncode(s), &run))
	slices.SortStableFunc(run.Events, func(a, b event) int { return bytes.Compare([]byte(a.TS), []byte(b.TS)) })
	var got []string
	for _, e := range run.Events {
		got = append(got, e.TS[len("1970-01-01T00:00:"):]+" "+e.Type+" "+e.Name)
	}
	want := []string{
		"00.008Z RUN_START T", "00.010Z LLM_CALL unknown", "00.030Z TOOL_CALL fast", "00.090Z TOOL_CALL slow",
		"00.090Z LLM_CALL unknown", "00.090Z STATE_UPDATE state", "00.090Z STATE_UPDATE state",
		"00.090Z ERROR Unfinished", "00.090Z RUN_END run_end",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if run.Run.EndedAt != "1970-01-01T00:00:00.090Z" || run.Run.DurationMS != 82 {
		t.Errorf("run is %+v, want its end at its last event", run.Run)
	}
}

// TestAgentDbgTurnsOfARunKeepTheirEnds: a turn that failed, was interrupted or was not seen to end is
// that also when another turn follows it, and a run whose last prompt nothing answered has no
// outcome.
func TestAgentDbgTurnsOfARunKeepTheirEnds(t *testing.T) {
	const unfinished = `{"incomplete":true}`
	ends := func(answers ...string) (got []string, outcome string) {
		t.Helper()
		var messages, metadata []string
		for i, answer := range answers {
			messages, metadata = append(messages, session.RoleUser, fmt.Sprint("question ", i)), append(metadata, "{}")
			if answer != "" {
				messages = append(messages, session.RoleAssistant, fmt.Sprint("answer ", i))
				metadata = append(metadata, `{"agenttrace":`+answer+`}`)
			}
		}
		var all [][]string
		for m := range slices.Chunk(messages, 2) {
			all = append(all, []string{m[0], fmt.Sprintf(`{"type":"text","text":%q}`, m[1])})
		}
		s := chat(all...)
		for i := range metadata {
			s.Messages[i].Message.MetadataJSON = metadata[i]
		}
		read := one(t, agentdbgDecode, string(agentdbgEncode(s)))
		for i := range read.Messages {
			meta := session.ParseMessageMetadata([]byte(read.Messages[i].Message.MetadataJSON))
			if read.Messages[i].Message.Role == session.RoleAssistant {
				got = append(got, fmt.Sprint(meta.Trace.EndReason, meta.Trace.Incomplete))
			}
		}
		var meta struct {
			Trace struct{ Outcome string } `json:"agenttrace"`
		}
		testscale.Must(t, json.Unmarshal([]byte(read.Session.MetadataJSON), &meta))
		return got, meta.Trace.Outcome
	}
	finished := `{"end_reason":"finish"}`
	for _, c := range []struct {
		answers []string
		want    []string
		outcome string
	}{
		{[]string{unfinished, finished}, []string{"true", "finishfalse"}, "finish"},
		{[]string{`{"end_reason":"error","error":"no"}`, finished}, []string{"errorfalse", "finishfalse"}, "finish"},
		{[]string{`{"end_reason":"abort"}`, finished}, []string{"abortfalse", "finishfalse"}, "finish"},
		// no event of a call has the last prompt
		{[]string{`{"end_reason":"error","error":"no"}`, ""}, []string{"true"}, ""},
	} {
		if got, outcome := ends(c.answers...); !slices.Equal(got, c.want) || outcome != c.outcome {
			t.Errorf("%v: the turns end %v and the run %q, want %v and %q", c.answers, got, outcome, c.want, c.outcome)
		}
	}
}

func TestAgentDbgRunID(t *testing.T) {
	const own = "3cb3426d-1fa6-417a-b821-6be9c94cd9f4"
	if got := agentdbgRunID(own); got != own {
		t.Errorf("runID(%s) = %s", own, got)
	}
	for _, id := range []string{"", "ses_1", strings.ToUpper(own), "018f4d7c-0000-7000-8000-000000000000", own[:35],
		own[:35] + "g", "3cb3426d1fa6-417a-b821-6be9c94cd9f4-"} {
		got := agentdbgRunID(id)
		if !agentdbgUUID4().MatchString(got) || got == id {
			t.Errorf("runID(%q) = %s", id, got)
		}
		if again := agentdbgRunID(id); again != got {
			t.Errorf("runID(%q) = %s and then %s", id, got, again)
		}
	}
}

// TestAgentDbgLoopWarningsAreEvents: a warning of this program's SDK, which lists parts, is one of AgentDbg's, which
// lists events.
func TestAgentDbgLoopWarningsAreEvents(t *testing.T) {
	f := agentdbgDraft(chat([]string{"user", `{"type":"text","text":"q"}`}, []string{"assistant",
		`{"type":"tool-a","toolCallId":"c","state":"output-available","input":{},"output":1}`,
		`{"type":"data-loop-warning","data":{"pattern":"a","repetitions":3,"window_size":3,` +
			`"evidence":["prt_1_0","x"]}}`}), false)
	call, warning := f.events[2], f.events[3]
	want := `{"pattern":"a","repetitions":3,"window_size":3,"evidence":["prt_1_0","x"],"evidence_event_ids":["` +
		call.EventID + `"]}`
	got := string(warning.Payload.JSON())
	if warning.EventType != agentdbgLoopWarning || warning.Name != "a" || got != want {
		t.Errorf("%s %s %s, want %s", warning.EventType, warning.Name, got, want)
	}
}
