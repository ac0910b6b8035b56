package formats

import (
	"fmt"
	"math/rand/v2"
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
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// jutulDecodeAll decodes events, and fails the test if the result is invalid.
func jutulDecodeAll(tb testing.TB, events []jutulEvent) (*codec.Session, []string) {
	tb.Helper()
	var problems []string
	s := jutulDecode(events, func(p codec.Problem) { problems = append(problems, p.String()) })
	for _, v := range session.Check(s.Transcript) {
		tb.Errorf("invalid: %v", v)
	}
	return s, problems
}

const (
	jutulSample = "testdata/jutul/trace.sqlite"
	// jutulKinds has every kind of jutul's vocabulary and the three shapes of a compaction, jutulForeign a session that no
	// trace gave.
	jutulKinds, jutulForeign = "testdata/jutul/kinds.txt", "testdata/jutul/foreign.rows"
)

func TestJutulDecodeSample(t *testing.T) {
	var problems reports
	all := collected(t, jutulDecodeFile(jutulSample, problems.add))
	codectest.CheckGolden(t, "testdata/jutul/trace.golden.jsonl", codectest.Golden(t, problems, all[0]), *update)
	if losses := jutulLost(all[0]); losses != nil {
		t.Errorf("a session from a trace loses %v", losses)
	}
}

// jutulLost lists what of the session is not in what comes of it.
func jutulLost(s *codec.Session) []codec.Loss {
	return codec.Lost(s, jutulDecode(jutulEncode(s), func(codec.Problem) {}))
}

func jutulReadAll(tb testing.TB, path string) []jutulEvent {
	tb.Helper()
	events, err := jutulReadEvents(path)
	if err != nil {
		tb.Fatal(err)
	}
	return events
}

// jutulMilli cuts the times to milliseconds, and payloads have no space, which is all that the sample loses.
func jutulMilli(tb testing.TB, events []jutulEvent) []jutulEvent {
	tb.Helper()
	out := make([]jutulEvent, len(events))
	for i, e := range events {
		at, ok := rows.ParseTime(e.timestamp)
		if !ok {
			tb.Fatal(e.timestamp)
		}
		payload, err := rows.Value([]byte(e.payload))
		testscale.Must(tb, err)
		e.timestamp, e.id, e.payload = jutulFormatTime(at), int64(i+1), string(payload)
		out[i] = e
	}
	return out
}

func TestJutulRoundTripSample(t *testing.T) {
	all := collected(t, jutulDecodeFile(jutulSample, nil))
	path := filepath.Join(t.TempDir(), jutulFileName)
	testscale.Must(t, jutulEncodeFile(path, all[0]))
	if left, _ := filepath.Glob(path + "-*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
	want, got := jutulReadAll(t, jutulSample), jutulReadAll(t, path)
	if diff := cmp.Diff(jutulMilli(t, want), got, cmp.AllowUnexported(jutulEvent{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	again := collected(t, jutulDecodeFile(filepath.Dir(path), nil))
	if diff := cmp.Diff(codectest.Golden(t, nil, all[0]), codectest.Golden(t, nil, again[0])); diff != "" {
		t.Errorf("rows (-first +second):\n%s", diff)
	}
	for _, pragma := range []string{"table_info(events)", "index_list(events)", "index_info(events_kind_idx)",
		"user_version", "application_id", "encoding"} {
		sample, ours := testscale.Query(t, jutulSample, "PRAGMA "+pragma), testscale.Query(t, path, "PRAGMA "+pragma)
		if diff := cmp.Diff(sample, ours); diff != "" {
			t.Errorf("%s (-sample +ours):\n%s", pragma, diff)
		}
	}
	if got := testscale.Query(t, path, "PRAGMA journal_mode"); !slices.Equal(got, []string{"wal"}) {
		t.Errorf("journal_mode %q", got)
	}
	last := testscale.Query(t, path, "SELECT seq FROM sqlite_sequence")
	if got, want := strings.Join(last, " "), fmt.Sprint(len(want)); got != want {
		t.Errorf("the next id follows %s, want %s", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := jutulEncodeFile(path, all[0]); err == nil {
		t.Error("wrote over a file")
	}
}

func TestJutulEveryKind(t *testing.T) {
	jutulEveryKind := jutulParseEvents(readFile(t, jutulKinds))
	s, problems := jutulDecodeAll(t, jutulEveryKind)
	codectest.CheckGolden(t, "testdata/jutul/kinds.golden.jsonl", codectest.Golden(t, problems, s), *update)
	if diff := cmp.Diff(jutulMilli(t, jutulEveryKind), jutulEncode(s), cmp.AllowUnexported(jutulEvent{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if losses := jutulLost(s); losses != nil {
		t.Errorf("loses %v", losses)
	}
	kinds := make(map[string]bool)
	for _, e := range jutulEveryKind {
		kinds[e.kind] = true
	}
	for _, kind := range strings.Fields("session_start session_resume session_title session_end message_user " +
		"message_assistant message_reasoning model_usage " +
		"tool_call tool_result hitl_request hitl_response context_compaction artifact attempt upload ui ui_event " +
		"eval_target eval_result") {
		if !kinds[kind] {
			t.Errorf("%s is not tested", kind)
		}
	}
}

// Traces with random events after their start, a millisecond apart at least, come back as the same events.
func TestJutulRoundTripProperty(t *testing.T) {
	jutulEveryKind := jutulParseEvents(readFile(t, jutulKinds))
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		at := int64(1780000000000)
		events := []jutulEvent{{1, jutulFormatTime(at), jutulEveryKind[0].kind, jutulEveryKind[0].payload}}
		var open []string
		for i := range r.IntN(40) {
			at += 1 + r.Int64N(5000)
			template := jutulEveryKind[r.IntN(len(jutulEveryKind))]
			e := jutulEvent{int64(i + 2), jutulFormatTime(at), template.kind, template.payload}
			switch e.kind {
			case jutulKindCall:
				id := fmt.Sprintf("c%d", i)
				open = append(open, id)
				e.payload = fmt.Sprintf(`{"id": "%s", "name": "execute", "args": {}}`, id)
			case jutulKindResult:
				if open == nil {
					e.kind, e.payload = "other", `{}`
					break
				}
				k := r.IntN(len(open))
				e.payload = fmt.Sprintf(`{"tool_call_id": "%s", "name": "execute", "content": "%d", "status": `+
					`"success"}`, open[k],
					i)
				if open = append(open[:k:k], open[k+1:]...); len(open) == 0 {
					open = nil
				}
			}
			events = append(events, e)
		}
		s, _ := jutulDecodeAll(t, events)
		got := jutulEncode(s)
		if diff := cmp.Diff(jutulMilli(t, events), got, cmp.AllowUnexported(jutulEvent{})); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

// TestJutulForeign reads with jutul a session that no trace gave, and compares what of it
// only rows have.
func TestJutulForeign(t *testing.T) {
	s := rowsOf(t, jutulForeign)
	codectest.CheckGolden(t, "testdata/jutul/foreign.golden.txt", jutulDump(jutulEncode(s)), *update)
}

// jutulDump shows the events.
func jutulDump(events []jutulEvent) string {
	var b strings.Builder
	for _, e := range events {
		o, err := rows.Parse([]byte(e.payload))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%d %s %s %s\n", e.id, e.timestamp, e.kind, o.JSON())
	}
	return b.String()
}

// TestJutulAppends: what jutul appends to a trace of ours is read.
func TestJutulAppends(t *testing.T) {
	s := rowsOf(t, jutulForeign)
	ours := jutulEncode(s)
	before, _ := jutulDecodeAll(t, ours)
	more := append(ours,
		jutulEvent{int64(len(ours) + 1), "2026-05-19T10:00:01+00:00", jutulKindUser, `{"content": "more"}`},
		jutulEvent{int64(len(ours) + 2), "2026-05-19T10:00:02+00:00", jutulKindAssistant, `{"content": "yes"}`})
	got, problems := jutulDecodeAll(t, more)
	if n := len(got.Messages); n != len(before.Messages)+2 || got.Session.UpdatedAt <= s.Session.UpdatedAt ||
		problems != nil {
		t.Errorf("%d messages, session %+v, problems %v", n, got.Session, problems)
	}
}

func TestJutulDecodeFileErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		path := filepath.Join(dir, name)
		testscale.WriteFile(t, path, data)
		return path
	}
	data := testscale.ReadFile(t, jutulSample)
	other := filepath.Join(dir, "other.sqlite")
	testscale.Script(t, other, "CREATE TABLE t (a)")
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):           "no such file",
		write("text", "hello, this is text"): "not an SQLite database",
		write("empty", ""):                   "not an SQLite database",
		dir:                                  "no such file",
		other:                                "no such table: events",
		write("cut", string(data[:4096])):    "read trace",
	} {
		for s, err := range jutulDecodeFile(path, nil) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, %v; want %q", filepath.Base(path), s, err, want)
			}
		}
	}
}

// FuzzJutulDecode: whatever the events are, they give a valid session that goes back and
// forth unchanged.
func FuzzJutulDecode(f *testing.F) {
	fuzz(f, "jutul events", readFile(f, jutulKinds), jutulLines(jutulEncode(rowsOf(f, jutulForeign))))
}

// jutulWritten returns the events of a trace of an answer with the parts, as other readers see them.
func jutulWritten(data ...string) []string {
	s := chat(append([]string{"assistant"}, data...))
	s.Session.Title = "New Chat"
	var events []string
	for line := range strings.Lines(jutulDump(jutulEncode(s))) {
		events = append(events, strings.TrimSpace(strings.SplitN(line, " ", 3)[2])) // behind the number and the time
	}
	return events
}

// Jutul's readers trust the payloads of their own kinds: a report stops at a metric
// that is not a number, a transcript takes the id of whatever session_start it sees.
func TestPartsThatAreNoEventsOfJutul(t *testing.T) {
	tests := []struct{ part, want string }{
		{`{"type":"data-attempt","data":{"id":"1","metrics":{"rmse":0.5}}}`, "data-attempt"},
		{`{"type":"data-artifact","data":{"path":"a.png"}}`, "data-artifact"},
		{`{"type":"data-session_start","data":{"session_id":"other"}}`, "data-session_start"},
		{`{"type":"data-message_user","data":{"content":"never said"}}`, "data-message_user"},
		{`{"type":"data-tool_call","data":{"id":"c","name":"n","args":{}}}`, "data-tool_call"},
		{`{"type":"data-tool_result","data":{"tool_call_id":"c"}}`, "data-tool_result"},
		{`{"type":"data-model_usage","data":{"input_tokens":"many"}}`, "data-model_usage"},
		{`{"type":"data-hitl_request","data":{}}`, "data-hitl_request"},
		{`{"type":"data-ui","data":{"action":"zoom"}}`, "data-ui"},
		{`{"type":"data-note","data":{"any":"thing"}}`, "note"},
	}
	for _, tt := range tests {
		events := jutulWritten(tt.part)
		if kind, _, _ := strings.Cut(events[len(events)-1], " "); len(events) != 2 || kind != tt.want {
			t.Errorf("%s is written as %q, want a %s", tt.part, events[1:], tt.want)
		}
	}
}

// Arguments are looked up by name, so they are an object.
func TestJutulArgumentsAreAnObject(t *testing.T) {
	got := jutulWritten(
		`{"type":"tool-a","toolCallId":"c1","state":"input-available","input":"raw"}`,
		`{"type":"tool-a","toolCallId":"c2","state":"input-available","input":[1]}`,
		`{"type":"tool-a","toolCallId":"c3","state":"input-available","input":null}`,
		`{"type":"tool-a","toolCallId":"c4","state":"input-available","input":{"x":1}}`,
	)[1:]
	want := []string{
		`tool_call {"id":"c1","name":"a","args":{"input":"raw"}}`,
		`tool_call {"id":"c2","name":"a","args":{"input":[1]}}`,
		`tool_call {"id":"c3","name":"a","args":{"input":null}}`,
		`tool_call {"id":"c4","name":"a","args":{"x":1}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Where a step begins is nothing that a transcript of jutul should show.
func TestJutulStepsAreNotShown(t *testing.T) {
	got := jutulWritten(
		`{"type":"step-start"}`, `{"type":"text","text":"one"}`, `{"type":"step-start"}`,
		`{"type":"tool-a","toolCallId":"c1","state":"output-available","input":{},"output":"o"}`,
		`{"type":"step-start"}`,
	)
	want := []string{
		`session_start {"session_id":"ses_1","simulator":null}`,
		`message_assistant {"content":"one"}`,
		`tool_call {"id":"c1","name":"a","args":{}}`,
		`tool_result {"tool_call_id":"c1","name":"a","content":"o","status":"success"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
