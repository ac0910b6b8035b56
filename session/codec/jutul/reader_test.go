package jutul_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jutul"
)

// written returns the events of a session's trace as other readers see them, and
// fails the test if something is lost of the session that Explain does not list.
func written(t *testing.T, s *codec.Session) (events []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), jutul.FileName)
	if err := jutul.EncodeFile(path, s); err != nil {
		t.Fatal(err)
	}
	for again, err := range jutul.DecodeFile(path, func(p codec.Problem) { t.Error(p) }) {
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range codec.Lost(s, again) {
			if !slices.ContainsFunc(jutul.Losses.Of(s), func(listed codec.Loss) bool { return listed.What == l.What }) {
				t.Errorf("%d %s are lost, and Explain does not list them", l.Count, l.What)
			}
		}
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = sqlitex.ExecuteTransient(conn, "SELECT kind, payload_json FROM events ORDER BY id",
		&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			o, err := rows.Parse([]byte(stmt.ColumnText(1)))
			events = append(events, stmt.ColumnText(0)+" "+string(o.JSON()))
			return err
		}})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// answer is a session that no trace gave, of one message with the parts.
func answer(data ...string) *codec.Session {
	m := session.MessageAndParts{Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "assistant",
		MetadataJSON: "{}", CreatedAt: 5, UpdatedAt: 9}}
	for i, text := range data {
		o, err := rows.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		p := session.Part{ID: fmt.Sprintf("prt_%d", i), MessageID: "msg_1", SessionID: "ses_1", Index: int64(i),
			Type: o.Text("type"), DataJSON: text, CreatedAt: 5, UpdatedAt: 6}
		if id := o.Text("toolCallId"); id != "" {
			p.ToolCallID, p.ToolState = &id, new(o.Text("state"))
		}
		m.Parts = append(m.Parts, p)
	}
	return &codec.Session{Transcript: &session.Transcript{
		Session: session.Session{ID: "ses_1", Title: "New Chat", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 5, UpdatedAt: 9},
		Messages: []session.MessageAndParts{m},
	}}
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
		events := written(t, answer(tt.part))
		if kind, _, _ := strings.Cut(events[len(events)-1], " "); len(events) != 2 || kind != tt.want {
			t.Errorf("%s is written as %q, want a %s", tt.part, events[1:], tt.want)
		}
	}
}

// Arguments are looked up by name, so they are an object.
func TestArgumentsAreAnObject(t *testing.T) {
	got := written(t, answer(
		`{"type":"tool-a","toolCallId":"c1","state":"input-available","input":"raw"}`,
		`{"type":"tool-a","toolCallId":"c2","state":"input-available","input":[1]}`,
		`{"type":"tool-a","toolCallId":"c3","state":"input-available","input":null}`,
		`{"type":"tool-a","toolCallId":"c4","state":"input-available","input":{"x":1}}`,
	))[1:]
	want := []string{
		`tool_call {"id":"c1","name":"a","args":{"input":"raw"}}`,
		`tool_call {"id":"c2","name":"a","args":{"input":[1]}}`,
		`tool_call {"id":"c3","name":"a","args":{}}`,
		`tool_call {"id":"c4","name":"a","args":{"x":1}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Where a step begins is nothing that a transcript of jutul should show.
func TestStepsAreNotShown(t *testing.T) {
	got := written(t, answer(
		`{"type":"step-start"}`, `{"type":"text","text":"one"}`, `{"type":"step-start"}`,
		`{"type":"tool-a","toolCallId":"c1","state":"output-available","input":{},"output":"o"}`,
		`{"type":"step-start"}`,
	))
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
