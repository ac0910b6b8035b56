package jutul

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

var update = flag.Bool("update", false, "write the golden files")

// decode builds the session of the events.
func decode(events []event, report func(codec.Problem)) *codec.Session {
	var p parser
	for _, e := range events {
		p.add(e)
	}
	return p.decode(report)
}

// decodeAll decodes events, and fails the test if the result is invalid.
func decodeAll(tb testing.TB, events []event) (*codec.Session, []string) {
	tb.Helper()
	var problems []string
	s := decode(events, func(p codec.Problem) { problems = append(problems, p.String()) })
	valid(tb, s)
	return s, problems
}

func valid(tb testing.TB, s *codec.Session) {
	tb.Helper()
	for _, v := range session.Check(s.Transcript) {
		tb.Errorf("invalid: %v", v)
	}
}

// golden is the session as lines of JSON, its decisions after it.
func golden(tb testing.TB, s *codec.Session, problems []string) string {
	tb.Helper()
	return codectest.Golden(tb, problems, s)
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	codectest.CheckGolden(t, filepath.Join("testdata", name), got, *update)
}

// read returns the sessions of a file.
func read(tb testing.TB, path string, report func(codec.Problem)) []*codec.Session {
	tb.Helper()
	var all []*codec.Session
	for s, err := range DecodeFile(path, report) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

const sample = "testdata/trace.sqlite"

func TestDecodeSample(t *testing.T) {
	var problems []string
	all := read(t, sample, func(p codec.Problem) { problems = append(problems, p.String()) })
	valid(t, all[0])
	checkGolden(t, "trace.golden.jsonl", golden(t, all[0], problems))
	if losses := lost(all[0]); losses != nil {
		t.Errorf("a session from a trace loses %v", losses)
	}
}

// lost lists what of the session is not in what comes of it.
func lost(s *codec.Session) []codec.Loss {
	return codec.Lost(s, decode(encode(s), func(codec.Problem) {}))
}

func readAll(tb testing.TB, path string) []event {
	tb.Helper()
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	var events []event
	if err := readEvents(conn, func(e event) { events = append(events, e) }); err != nil {
		tb.Fatal(err)
	}
	return events
}

// milli cuts the times to milliseconds, the one thing that the sample loses.
func milli(tb testing.TB, events []event) []event {
	tb.Helper()
	out := make([]event, len(events))
	for i, e := range events {
		at, err := parseTime(e.timestamp)
		if err != nil {
			tb.Fatal(err)
		}
		e.timestamp, e.id = formatTime(at), int64(i+1)
		out[i] = e
	}
	return out
}

func TestRoundTripSample(t *testing.T) {
	all := read(t, sample, nil)
	path := filepath.Join(t.TempDir(), FileName)
	if err := EncodeFile(path, all[0]); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + "-*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
	want, got := readAll(t, sample), readAll(t, path)
	if diff := cmp.Diff(milli(t, want), got, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	again := read(t, filepath.Dir(path), nil)
	if diff := cmp.Diff(golden(t, all[0], nil), golden(t, again[0], nil)); diff != "" {
		t.Errorf("rows (-first +second):\n%s", diff)
	}
	for _, pragma := range []string{"table_info(events)", "index_list(events)", "index_info(events_kind_idx)",
		"user_version", "application_id", "encoding"} {
		if diff := cmp.Diff(query(t, sample, "PRAGMA "+pragma), query(t, path, "PRAGMA "+pragma)); diff != "" {
			t.Errorf("%s (-sample +ours):\n%s", pragma, diff)
		}
	}
	if got := query(t, path, "PRAGMA journal_mode"); got != "wal\n" {
		t.Errorf("journal_mode %q", got)
	}
	if got, want := query(t, path, "SELECT seq FROM sqlite_sequence"), fmt.Sprintln(len(want)); got != want {
		t.Errorf("the next id follows %s, want %s", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := EncodeFile(path, all[0]); err == nil {
		t.Error("wrote over a file")
	}
}

func query(tb testing.TB, path, q string) string {
	tb.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	var b strings.Builder
	err = sqlitex.ExecuteTransient(conn, q, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		for i := range row.ColumnCount() {
			if i > 0 {
				b.WriteByte('|')
			}
			b.WriteString(row.ColumnText(i))
		}
		b.WriteByte('\n')
		return nil
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// trace makes events a second apart of lines "kind payload".
func trace(lines ...string) []event {
	var events []event
	for i, line := range lines {
		kind, payload, _ := strings.Cut(line, " ")
		events = append(events, event{int64(i + 1), formatTime(1780000000000 + int64(i)*1000), kind, payload})
	}
	return events
}

// everyKind has every kind of jutul's vocabulary and the three shapes of a
// compaction.
var everyKind = trace(
	`session_start {"session_id": "2026-06-12-2315-3f2a", "simulator": "jutuldarcy"}`,
	`upload {"path": "uploads/deck.data"}`,
	`message_user {"content": "h\u00e9 \ud83d\ude00"}`,
	`session_title {"session_id": "2026-06-12-2315-3f2a", "title": "h\u00e9"}`,
	`message_reasoning {"content": "think", "signature": "abc"}`,
	`message_assistant {"content": "I run it"}`,
	`model_usage {"input_tokens": 100, "output_tokens": 30, "total_tokens": 130, "input_token_details": `+
		`{"cache_read": 60, "cache_creation": 10}, "output_token_details": {"reasoning": 20}}`,
	`hitl_request {"interrupt_id": "i1", "value": {"action_requests": [{"name": "execute", "args": {"command": `+
		`"ls"}}, {"name": "rm", "args": {}}]}}`,
	`hitl_response {"interrupt_id": "i1", "payload": {"decisions": [{"type": "approve"}, {"type": "reject", `+
		`"message": "no"}]}}`,
	`tool_call {"id": "c1", "name": "execute", "args": {"command": "ls"}}`,
	`tool_call {"id": "c2", "name": "run_julia", "args": {"code": "1e-05"}}`,
	`ui {"action": "zoom", "payload": {"x": 1.50}}`,
	`ui_event {"payload": {"clicked": true}}`,
	`tool_result {"tool_call_id": "c2", "name": "run_julia", "content": "4", "status": null}`,
	`tool_result {"tool_call_id": "c1", "name": "execute", "content": "Error running tool", "status": "error"}`,
	`artifact {"path": "a.png", "mime": "image/png", "caption": "p", "tool_call_id": "c1"}`,
	`attempt {"id": "1", "parent_id": null, "metrics": {"rmse": 1e-05}}`,
	`context_compaction {"messages_before": 20, "messages_after": 3}`,
	`message_assistant {"content": "after"}`,
	`model_usage {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}`,
	`session_end {"session_id": "2026-06-12-2315-3f2a"}`,
	`session_resume {"session_id": "2026-06-12-2315-3f2a", "simulator": "jutuldarcy"}`,
	`context_compaction {"cutoff_index": 4, "offloaded": true, "manual": true}`,
	`message_user {"content": "again"}`,
	`context_compaction {"summarized": 21, "kept": 9, "offloaded": true, "manual": false}`,
	`tool_call {"id": "c3", "name": "execute", "args": {}}`,
	`tool_call {"id": "c3", "name": "execute", "args": {}}`,
	`eval_target {"task": "t"}`,
	`eval_result {"passed": true, "task": "t", "scores": {}}`,
	`otel_context {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}`,
)

func TestEveryKind(t *testing.T) {
	s, problems := decodeAll(t, everyKind)
	checkGolden(t, "kinds.golden.jsonl", golden(t, s, problems))
	if diff := cmp.Diff(everyKind, encode(s), cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if losses := lost(s); losses != nil {
		t.Errorf("loses %v", losses)
	}
	kinds := make(map[string]bool)
	for _, e := range everyKind {
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

func TestDamaged(t *testing.T) {
	events := trace(
		`message_user {"content": ["a", "list"]}`,
		`attempt {"metrics": {"rmse": NaN, "min": -Infinity, "text": "NaN"}}`,
		`message_assistant {"content": `,
		`tool_result {"tool_call_id": "none", "content": "x"}`,
		`tool_call {"id": null, "name": "n", "args": {}}`,
		`tool_call {"id": "a", "name": "n", "args": {}}`,
		`tool_call {"id": "a", "name": "n", "args": {"other": 1}}`,
		`hitl_response {"interrupt_id": "none"}`,
		`hitl_request {"interrupt_id": "q", "value": {"action_requests": ["x", {"name": "n"}]}}`,
		`hitl_response {"interrupt_id": "q", "payload": {"decisions": [{"type": "later"}]}}`,
		` {"kindless": true}`,
		`odd [1,2]`,
		"bytes {\"a\": \"\xff\"}",
		`deep `+strings.Repeat("[", 5000)+strings.Repeat("]", 5000),
		`model_usage {"input_tokens": 1e300, "output_tokens": -4, "input_token_details": {"cache_read": 1.5}}`,
	)
	events[3].timestamp = "yesterday"
	events[4].timestamp = "2026-05-19 10:00:01"
	events[0].timestamp = "2026-05-19T10:00:01.123456+00:00"
	events[1].timestamp = "2026-05-19T12:00:01+02:00"
	s, problems := decodeAll(t, events)
	checkGolden(t, "damaged.golden.jsonl", golden(t, s, problems))
	// What was not an object is one from then on.
	again, _ := decodeAll(t, encode(s))
	third, _ := decodeAll(t, encode(again))
	if again.Session.ID != s.Session.ID || len(again.Messages) != len(s.Messages) {
		t.Errorf("session %s of %d messages came back as %s of %d", s.Session.ID, len(s.Messages), again.Session.ID,
			len(again.Messages))
	}
	if diff := cmp.Diff(golden(t, again, nil), golden(t, third, nil)); diff != "" {
		t.Errorf("a third time (-second +third):\n%s", diff)
	}
}

// Traces with random events, a millisecond apart at least, come back as the same
// events.
func TestRoundTripProperty(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		events := []event{}
		at := int64(1780000000000)
		var open []string
		for i := range r.IntN(40) {
			at += 1 + r.Int64N(5000)
			template := everyKind[r.IntN(len(everyKind))]
			e := event{int64(i + 1), formatTime(at), template.kind, template.payload}
			switch e.kind {
			case kindCall:
				id := fmt.Sprintf("c%d", i)
				open = append(open, id)
				e.payload = fmt.Sprintf(`{"id": "%s", "name": "execute", "args": {}}`, id)
			case kindResult:
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
		if len(events) == 0 {
			continue
		}
		s, _ := decodeAll(t, events)
		got := encode(s)
		if diff := cmp.Diff(events, got, cmp.AllowUnexported(event{})); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

// handmade is a session that no trace gave.
func handmade() *codec.Session {
	t := &session.Transcript{Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", WorkspaceRoot: new("/w"),
		Mode:            new("plan"),
		PermissionsJSON: `[{"permission":"*","pattern":"*","action":"ask"}]`, MetadataJSON: `{"k":1}`, CostUSD: 0.5,
		CreatedAt: 5000, UpdatedAt: 9000, ArchivedAt: new(int64(9500))}}
	n := 0
	add := func(role, meta string, at int64, parts ...string) {
		n++
		m := session.MessageAndParts{Message: session.Message{ID: fmt.Sprintf("msg_%d", n), SessionID: "ses_1",
			Role:         role,
			MetadataJSON: meta, CreatedAt: at, UpdatedAt: at + 50}}
		for i, data := range parts {
			o, err := rows.Parse([]byte(data))
			if err != nil {
				panic(err)
			}
			p := session.Part{ID: fmt.Sprintf("prt_%d_%d", n, i), MessageID: m.Message.ID, SessionID: "ses_1",
				Index: int64(i),
				Type:  o.Text("type"), DataJSON: data, CreatedAt: at + int64(i%2), UpdatedAt: at + 20}
			if id := o.Text("toolCallId"); id != "" {
				p.ToolCallID, p.ToolState = &id, new(o.Text("state"))
			}
			m.Parts = append(m.Parts, p)
		}
		t.Messages = append(t.Messages, m)
	}
	add("system", `{}`, 5000, `{"type":"text","text":"be good"}`)
	add("user", `{"queued_at":4}`, 5001, `{"type":"text","text":"one"}`, `{"type":"text","text":"two"}`,
		`{"type":"file","mediaType":"image/png","url":"data:,"}`)
	add("assistant",
		`{"usage":{"input":5,"output":6,"reasoning":7,"cache_read":8,"cache_write":9},"model":{"provider_id":"p",`+
			`"model_id":"m"}}`, 6000,
		`{"type":"step-start"}`, `{"type":"reasoning","text":"r"}`,
		`{"type":"tool-x","toolCallId":"c1","state":"output-available","input":{"a":1},"output":{"b":[2]}}`,
		`{"type":"dynamic-tool","toolName":"y","toolCallId":"c2","state":"output-denied","input":{},`+
			`"approval":{"id":"ap","approved":false,"reason":"never"}}`,
		`{"type":"tool-z","toolCallId":"c3","state":"input-streaming"}`,
		`{"type":"tool-z","toolCallId":"c4","state":"output-error","errorText":"bad","input":1}`,
		`{"type":"tool-z","toolCallId":"c5","state":"approval-requested","input":{},"approval":{"id":"b"}}`,
		`{"type":"data-session_start","data":{"session_id":"other"}}`,
		`{"type":"data-tool_call","data":{"id":"c1","name":"x","args":{}}}`,
		`{"type":"data-plan","data":[1,2]}`, `{"type":"data-note","data":"text","id":"n"}`,
		`{"type":"data-trap","data":{"agenttrace":{"derived":true}}}`,
		`{"type":"source-url","sourceId":"s","url":"u"}`, `{"type":"text","text":"end","state":"done"}`)
	add("assistant", `{}`, 7000)
	add("assistant", `{}`, 7001,
		`{"type":"data-compaction","data":{"summary":"s","tail_start_id":"msg_3","auto":false,"summary_tokens":3}}`)
	add("user", `{}`, 7002, `{"type":"text","text":"hidden"}`)
	t.Messages[5].Message.HiddenAt = new(int64(8000))
	t.Session.SetUsage(session.Usage{Input: 5, Output: 6, Reasoning: 7, CacheRead: 8, CacheWrite: 9})
	return &codec.Session{Transcript: t,
		Decisions: []store.Decision{
			{ID: "per_1", SessionID: "ses_1", ToolCallID: "c1", ToolID: "x", Action: "ask", Outcome: "allowed",
				Reply:    "always",
				WaitedMS: new(int64(10)), DecidedAt: 6010},
			{ID: "per_2", SessionID: "ses_1", ToolID: "y", Action: "deny", Source: "manifest", Outcome: "denied",
				DecidedAt: 6011},
		},
		Blobs: []store.Blob{{Kind: store.BlobSystemPrompt, Digest: "d", Body: "<b> & é", Exact: true}},
	}
}

// TestForeign tells what jutul reads of a session that no trace gave, and what of it
// only rows say.
func TestForeign(t *testing.T) {
	s := handmade()
	checkGolden(t, "foreign.golden.txt", dump(encode(s)))
}

// dump shows the events.
func dump(events []event) string {
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

// The events make a valid session, and what jutul appends to a trace of ours is read.
func TestForeignReadByOthers(t *testing.T) {
	s := handmade()
	got, _ := decodeAll(t, encode(s))
	if got.Session.ID != "ses_1" || got.Session.Title != "T" {
		t.Errorf("session %+v", got.Session)
	}
	var sum session.Usage
	for i := range got.Messages {
		u, _ := session.UsageOf(got.Messages[i].Message.MetadataJSON)
		sum = sum.Add(u)
	}
	if want := s.Session.Usage(); sum != want {
		t.Errorf("usage %+v, want %+v", sum, want)
	}
	more := encode(s)
	more = append(more,
		event{int64(len(more) + 1), "2026-05-19T10:00:01+00:00", kindUser, `{"content": "more"}`},
		event{int64(len(more) + 2), "2026-05-19T10:00:02+00:00", kindAssistant, `{"content": "yes"}`})
	before := len(got.Messages)
	got, problems := decodeAll(t, more)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if n := len(got.Messages); n != before+2 || got.Session.UpdatedAt <= s.Session.UpdatedAt {
		t.Errorf("%d messages, session %+v", n, got.Session)
	}
}

func TestDecodeFileErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.sqlite")
	conn, err := sqlite.OpenConn(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlitex.ExecuteScript(conn, "CREATE TABLE t (a)", nil); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):           "no such file",
		write("text", "hello, this is text"): "not an SQLite database",
		write("empty", ""):                   "not an SQLite database",
		dir:                                  "no such file",
		other:                                "no such table: events",
		write("cut", string(data[:4096])):    "read trace",
	} {
		for s, err := range DecodeFile(path, nil) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, %v; want %q", filepath.Base(path), s, err, want)
			}
		}
	}
}

// FuzzDecode: whatever the events are, they give a valid session that goes back and
// forth unchanged.
func FuzzDecode(f *testing.F) {
	codectest.Fuzz(f, events, lines(everyKind), lines(encode(handmade())),
		"x\tattempt\t{\"a\":NaN}\n\ttool_call\t{\"id\":\"a\",\"name\":\"b\",\"args\":1}")
}
