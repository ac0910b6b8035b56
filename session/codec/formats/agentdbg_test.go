package formats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
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

// agentdbgExpressed fails the test if a session differs from what came of it by more than times,
// ids and counts of tokens that nobody can read.
func agentdbgExpressed(tb testing.TB, s, again *codec.Session) {
	tb.Helper()
	for _, l := range codec.Lost(s, again) {
		if !slices.Contains([]string{"ids and times", "other metadata"}, l.What) {
			tb.Errorf("run %s: %d %s did not come back", s.Session.ID, l.Count, l.What)
		}
	}
	if invented := codec.Invented(s, again); invented != nil {
		tb.Errorf("run %s: what came back also states %q", s.Session.ID, invented)
	}
}

// TestAgentDbgSamplesKeepWhatTheirSessionsExpress: a run of AgentDbg that is imported, exported and
// imported again is the same session.
func TestAgentDbgSamplesKeepWhatTheirSessionsExpress(t *testing.T) {
	all, _ := agentdbgSamples(t)
	out := t.TempDir()
	for _, s := range all {
		dir, err := agentdbgEncodeFile(out, s, false)
		if err != nil {
			t.Fatal(err)
		}
		again := collected(t, agentdbgDecodeFile(dir, func(p codec.Problem) { t.Error(p) }))
		if len(again) != 1 {
			t.Fatalf("%d sessions in %s", len(again), dir)
		}
		agentdbgExpressed(t, s, again[0])
	}
	if _, err := agentdbgEncodeFile(out, all[0], false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a run that is there: %v", err)
	}

	// Replaced: the two files, and nothing else that is there.
	dir := filepath.Join(out, "runs", agentdbgSampleRuns[0])
	for _, name := range []string{"run.json", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := agentdbgEncodeFile(out, all[0], true); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(dir, "notes.txt")); got != "mine" {
		t.Errorf("notes.txt after the run was replaced: %q", got)
	}
	for _, s := range collected(t, agentdbgDecodeFile(dir, func(p codec.Problem) { t.Error(p) })) {
		agentdbgExpressed(t, all[0], s)
	}
	if left, err := filepath.Glob(filepath.Join(out, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// agentdbgExport.json was written by Python's json.dump of the sample.
func TestAgentDbgExport(t *testing.T) {
	want := readFile(t, "testdata/agentdbg/export.json")
	s := one(t, agentdbgDecode, want)
	agentdbgExpressed(t, s, one(t, agentdbgDecode, writtenText(t, agentdbgEncode, s)))
	all, _ := agentdbgSamples(t)
	if diff := cmp.Diff(codectest.Golden(t, nil, all[2]), codectest.Golden(t, nil, s)); diff != "" {
		t.Errorf("the export and the directory differ:\n%s", diff)
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
	if err := agentdbgEncode(new(bytes.Buffer), s); err == nil ||
		!strings.Contains(err.Error(), "session has no id") {
		t.Errorf("Encode: %v", err)
	}
	if _, err := agentdbgEncodeFile(t.TempDir(), s, false); err == nil {
		t.Error("EncodeFile: no error")
	}
}

// Maida sorts a run's events by time before it compares runs. Then too a run
// begins with its start, a model's call stands before the tools that it asked for,
// and what those gave before the next.
func TestAgentDbgEventsSortedByTimeStayInOrder(t *testing.T) {
	call, done := [2]string{"call_1", "call_2"}, session.StateOutputAvailable
	parts := []session.Part{
		{Type: "text", DataJSON: `{"type":"text","text":"a"}`, CreatedAt: 10, UpdatedAt: 10},
		{Type: "tool-slow", ToolCallID: &call[0], ToolState: &done,
			DataJSON:  `{"type":"tool-slow","toolCallId":"call_1","state":"output-available","input":{},"output":1}`,
			CreatedAt: 20, UpdatedAt: 90},
		{Type: "tool-fast", ToolCallID: &call[1], ToolState: &done,
			DataJSON:  `{"type":"tool-fast","toolCallId":"call_2","state":"output-available","input":{},"output":1}`,
			CreatedAt: 21, UpdatedAt: 30},
		// Its time is before that of what it follows, as where clocks differ.
		{Type: "text", DataJSON: `{"type":"text","text":"b"}`, CreatedAt: 22, UpdatedAt: 22},
		{Type: "data-state", DataJSON: `{"type":"data-state","data":{"state":1}}`, CreatedAt: 5, UpdatedAt: 5},
	}
	for i := range parts {
		p := &parts[i]
		p.ID, p.MessageID, p.SessionID, p.Index = fmt.Sprintf("prt_%d", i), "msg_1", "ses_1", int64(i)
	}
	s := &codec.Session{Transcript: &session.Transcript{
		// It was made, so it says, after its messages.
		Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 8,
			UpdatedAt: 50},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "assistant", MetadataJSON: "{}",
				CreatedAt: 2,
				UpdatedAt: 95}, Parts: parts},
			{Message: session.Message{ID: "msg_2", SessionID: "ses_1", Role: "user", MetadataJSON: "{}", CreatedAt: 3,
				UpdatedAt: 3}, Parts: []session.Part{
				{ID: "prt_9", MessageID: "msg_2", SessionID: "ses_1", Type: "text",
					DataJSON:  `{"type":"text","text":"q"}`,
					CreatedAt: 3, UpdatedAt: 3},
			}},
		},
	}}
	var b bytes.Buffer
	if err := agentdbgEncode(&b, s); err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(b.Bytes(), &run); err != nil {
		t.Fatal(err)
	}
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
		s := &codec.Session{Transcript: &session.Transcript{Session: session.Session{
			ID: "s", Title: "t", Agent: "coder", PermissionsJSON: "[]", MetadataJSON: "{}", CreatedAt: 1, UpdatedAt: 99,
		}}}
		at := int64(1)
		add := func(role, metadata, text string) {
			at++
			id := fmt.Sprint("m", at)
			data, _ := json.Marshal(map[string]string{"type": "text", "text": text})
			s.Messages = append(s.Messages, session.MessageAndParts{
				Message: session.Message{ID: id, SessionID: "s", Role: role, MetadataJSON: metadata, CreatedAt: at,
					UpdatedAt: at},
				Parts: []session.Part{{ID: "p" + id, MessageID: id, SessionID: "s", Type: "text",
					DataJSON:  string(data),
					CreatedAt: at, UpdatedAt: at}},
			})
		}
		for i, answer := range answers {
			add(session.RoleUser, "{}", fmt.Sprint("question ", i))
			if answer != "" {
				add(session.RoleAssistant, `{"agenttrace":`+answer+`}`, fmt.Sprint("answer ", i))
			}
		}
		var file bytes.Buffer
		if err := agentdbgEncode(&file, s); err != nil {
			t.Fatal(err)
		}
		for read, err := range agentdbgDecode(&file, func(p codec.Problem) { t.Error(p) }) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range read.Messages {
				var meta session.MessageMetadata
				if m := &read.Messages[i].Message; m.Role == session.RoleAssistant &&
					json.Unmarshal([]byte(m.MetadataJSON), &meta) == nil {
					got = append(got, fmt.Sprint(meta.Trace.EndReason, meta.Trace.Incomplete))
				}
			}
			var meta struct {
				Trace struct{ Outcome string } `json:"agenttrace"`
			}
			if err := json.Unmarshal([]byte(read.Session.MetadataJSON), &meta); err != nil {
				t.Fatal(err)
			}
			outcome = meta.Trace.Outcome
		}
		return got, outcome
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

// TestAgentDbgRetains bounds what is held in memory beside the session when it is yielded, be
// it of events or of what agentdbg export writes: a run may have hundreds of megabytes.
func TestAgentDbgRetains(t *testing.T) {
	const run = "f0ca8552-c91a-473d-a112-286a75226e66"
	event := func(i int, typ, name, payload string) string {
		return fmt.Sprintf(`{"spec_version":"0.1","event_id":"bef57a0d-bd0e-45b8-bbc1-%012x","run_id":"%s",`+
			`"parent_id":null,"event_type":"%s","ts":"2026-11-20T10:00:00.000Z","duration_ms":null,"name":"%s",`+
			`"payload":%s,"meta":{}}`,
			i, run, typ, name, payload)
	}
	var events []string
	for i := range 300 {
		events = append(events, event(i, "TOOL_CALL", "bash",
			`{"tool_name":"bash","args":{},"result":"`+strings.Repeat("word ", 2000)+`","status":"ok","error":null}`))
	}
	for name, text := range map[string]string{
		"events": strings.Join(events, "\n") + "\n",
		"export": `{"spec_version":"0.1",` + "\n" + `"run":{"run_id":"` + run + `","status":"running"},"events":[` +
			strings.Join(events, ",\n") + "]}",
	} {
		held := func() float64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc)
		}
		before := held()
		for s, err := range agentdbgDecode(strings.NewReader(text), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if times := (held() - before) / float64(len(text)); times > 1.6 {
				t.Errorf("%s: %.2f times its size is held, want that of the session", name, times)
			}
			if n := len(s.Messages[0].Parts); n != len(events) {
				t.Errorf("%s: %d parts, want %d", name, n, len(events))
			}
		}
		runtime.KeepAlive(text)
	}
}

// The warnings of AgentDbg's own runs are the ones that the detector gives, at
// the same places and byte for byte.
func TestLoopDetectorAgreesWithAgentDbg(t *testing.T) {
	files, err := filepath.Glob("testdata/agentdbg/data/runs/*/events.jsonl")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d runs, %v", len(files), err)
	}
	warnings := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := new(agentdbgLoopDetector)
		var expected rows.Object
		for line := range strings.Lines(string(text)) {
			e, err := rows.Parse([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			typ, payload := e.Text("event_type"), e.Object("payload")
			if typ == agentdbgLoopWarning {
				warnings++
				if diff := cmp.Diff(string(payload.JSON()), string(expected.JSON())); diff != "" {
					t.Errorf("%s: warning (-want +got):\n%s", file, diff)
				}
				if got := agentdbgDefaultName(typ, payload); got != e.Text("name") {
					t.Errorf("%s: name %q, want %q", file, got, e.Text("name"))
				}
				expected = nil
				continue
			}
			if expected != nil {
				t.Errorf("%s: a warning that AgentDbg did not give: %s", file, expected.JSON())
			}
			expected = d.see(typ, e.Text("event_id"), payload)
		}
	}
	if warnings != 3 {
		t.Errorf("%d warnings, want 3", warnings)
	}
}

func TestAgentDbgLoopDetector(t *testing.T) {
	// Each letter is a call of the tool of that name, a dot a state update, and a
	// bang an error, which the window does not hold.
	for _, tt := range []struct {
		events string
		want   []string // place and pattern
	}{
		{"aa", nil},
		{"aaa", []string{"2 a"}},
		{"aaaaaa", []string{"2 a"}},
		{"a!a!a", []string{"4 a"}},
		{"ababab", []string{"5 a b"}},
		{"abababab", []string{"5 a b", "6 b a"}},
		{"abcabcabc", []string{"8 a b c"}},
		{"abcdabcdabcd", []string{"11 a b c d"}},
		{"abcdeabcdeabcde", nil}, // longer than the window
		{"...", []string{"2 STATE_UPDATE"}},
		{"aabaabaab", []string{"8 a a b"}},
	} {
		d := new(agentdbgLoopDetector)
		var got []string
		for i, c := range tt.events {
			typ := agentdbgToolCall
			switch c {
			case '.':
				typ = agentdbgStateUpdate
			case '!':
				typ = agentdbgErrorEvent
			}
			if w := d.see(typ, "", rows.Object{{Key: "tool_name", Value: rows.Raw(string(c))}}); w != nil {
				pattern := strings.NewReplacer("TOOL_CALL:", "", " -> ", " ").Replace(w.Text("pattern"))
				got = append(got, strings.Join([]string{string(rows.Raw(i)), pattern}, " "))
				if !strings.Contains(string(w.Get("evidence_event_ids")), "__MISSING__") {
					t.Errorf("%s: evidence %s", tt.events, w.Get("evidence_event_ids"))
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.events, diff)
		}
	}
	if got := agentdbgSignature(agentdbgLlmCall, nil); got != "LLM_CALL:UNKNOWN" {
		t.Errorf("signature without a model is %s", got)
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
		if !agentdbgIsUUID4(got) || got == id {
			t.Errorf("runID(%q) = %s", id, got)
		}
		if again := agentdbgRunID(id); again != got {
			t.Errorf("runID(%q) = %s and then %s", id, got, again)
		}
	}
}

// TestAgentDbgAChatIsNoLoop exports a session in which a model answers three times and calls nothing.
func TestAgentDbgAChatIsNoLoop(t *testing.T) {
	s := &codec.Session{Transcript: &session.Transcript{}}
	s.Session = session.Session{ID: "ses_1", Agent: "coder"}
	for i := range int64(6) {
		id := string('a' + rune(i))
		m := session.MessageAndParts{Message: session.Message{ID: id, SessionID: "ses_1", Role: session.RoleUser,
			CreatedAt: i, MetadataJSON: "{}"}, Parts: []session.Part{{ID: "p" + id, MessageID: id, Type: "text",
			DataJSON: `{"type":"text","text":"go on"}`, CreatedAt: i}}}
		if i%2 == 1 {
			m.Message.Role = session.RoleAssistant
		}
		s.Messages = append(s.Messages, m)
	}
	calls := 0
	for _, e := range agentdbgDraft(s, false).events {
		switch e.EventType {
		case agentdbgLlmCall:
			calls++
		case agentdbgLoopWarning:
			t.Errorf("warning: %s", e.Payload.JSON())
		}
	}
	if calls != 3 {
		t.Errorf("%d model calls, want 3", calls)
	}
}
