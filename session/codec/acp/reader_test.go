package acp_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/acp"
)

// What other projects' readers of the protocol make of a trace.

// decodeOne reads a trace of one session.
func decodeOne(t *testing.T, trace string) *codec.Session {
	t.Helper()
	var all []*codec.Session
	for s, err := range acp.Decode(strings.NewReader(trace), func(p codec.Problem) { t.Error(p) }) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if len(all) != 1 {
		t.Fatalf("%d sessions, want 1", len(all))
	}
	return all[0]
}

func encodeOne(t *testing.T, s *codec.Session) string {
	t.Helper()
	var b bytes.Buffer
	if err := acp.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// answered is a session that no trace gave, of a question and an answer with the
// parts.
func answered(parts ...session.Part) *codec.Session {
	tr := &session.Transcript{
		Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 1,
			UpdatedAt: 99},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "user", MetadataJSON: "{}", CreatedAt: 1,
				UpdatedAt: 1}, Parts: []session.Part{
				{ID: "prt_0", MessageID: "msg_1", SessionID: "ses_1", Type: "text",
					DataJSON:  `{"type":"text","text":"go"}`,
					CreatedAt: 1, UpdatedAt: 1},
			}},
			{Message: session.Message{ID: "msg_2", SessionID: "ses_1", Role: "assistant", MetadataJSON: "{}",
				CreatedAt: 2,
				UpdatedAt: 99}},
		},
	}
	for i := range parts {
		p := &parts[i]
		p.ID, p.MessageID, p.SessionID, p.Index = fmt.Sprintf("prt_%d", i+1), "msg_2", "ses_1", int64(i)
	}
	tr.Messages[1].Parts = parts
	return &codec.Session{Transcript: tr}
}

func tool(id, state, rest string, from, to int64) session.Part {
	return session.Part{
		Type: "tool-bash", ToolCallID: &id, ToolState: &state, CreatedAt: from, UpdatedAt: to,
		DataJSON: `{"type":"tool-bash","toolCallId":"` + id + `","state":"` + state + `",` + rest + `}`,
	}
}

// order returns what happens to calls and files, in the order of the trace.
func order(trace string) (all []string) {
	for line := range strings.Lines(trace) {
		for _, step := range []struct{ sign, word string }{
			{`"sessionUpdate":"tool_call",`, "begin"}, {`"status":"completed"`, "end"}, {`"status":"failed"`, "end"},
			{`"method":"fs/read_text_file"`, "file"}, {`"agent_message_chunk"`, "text"},
		} {
			if strings.Contains(line, step.sign) {
				word := step.word
				for _, id := range []string{"c1", "c2"} {
					if strings.Contains(line, `"toolCallId":"`+id+`"`) {
						word += " " + id
					}
				}
				all = append(all, word)
				break
			}
		}
	}
	return all
}

// A reader follows what a call does while it is open: an editor would show a file
// that is read after its tool is done as the work of nobody.
func TestCallsEndAfterTheirWork(t *testing.T) {
	text := session.Part{Type: "text", DataJSON: `{"type":"text","text":"done"}`, CreatedAt: 20, UpdatedAt: 20}
	tests := []struct {
		name, trace string
		want        []string
	}{
		{
			"parallel calls", encodeOne(t, answered(tool("c1", "output-available", `"input":{},"output":1`, 3, 10),
				tool("c2", "output-error", `"input":{},"errorText":"e"`, 4, 9), text)),
			[]string{"begin c1", "begin c2", "end c2", "end c1", "text"},
		},
		{
			"calls one after another",
			encodeOne(t, answered(tool("c1", "output-available", `"input":{},"output":1`, 3, 4),
				tool("c2", "output-available", `"input":{},"output":1`, 5, 6), text)),
			[]string{"begin c1", "end c1", "begin c2", "end c2", "text"},
		},
		{
			"a text that came meanwhile",
			encodeOne(t, answered(tool("c1", "output-available", `"input":{},"output":1`, 3, 30), text)),
			[]string{"begin c1", "end c1", "text"},
		},
		{"a file, without times", encodeOne(t, decodeOne(t, `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c1","title":"t"}}}
{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
{"jsonrpc":"2.0","id":"f","result":{"content":"x"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"ok"}}}}
`)), []string{"begin c1", "file", "end c1", "text"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, order(tt.trace)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A question is about the call that it was asked for, also if another call has the same id.
func TestQuestionAboutACallWithTheIDOfAnother(t *testing.T) {
	got := decodeOne(t, encodeOne(t, answered(tool("c1", "output-available", `"input":{},"output":1`, 3, 4),
		tool("c1", "output-available", `"input":{},"output":2,"approval":{"id":"a","approved":true}`, 5, 6))))
	var asked []bool
	for _, p := range got.Messages[len(got.Messages)-1].Parts {
		if p.ToolCallID != nil {
			asked = append(asked, strings.Contains(p.DataJSON, `"approved":true`))
		}
	}
	if diff := cmp.Diff([]bool{false, true}, asked); diff != "" {
		t.Errorf("calls that were asked about (-want +got):\n%s", diff)
	}
}

// What version 2 of the protocol says elsewhere: who the agent is, how a turn
// failed, and how long it took.
func TestVersion2Turns(t *testing.T) {
	at := 0
	line := func(direction, message string) string {
		at++
		return fmt.Sprintf(`{"ts":%d,"direction":%q,"json":%q}`+"\n", 1795198540000+at*100, direction, message)
	}
	client := func(message string) string { return line("fromClient", message) }
	agent := func(message string) string { return line("fromAgent", message) }
	s := decodeOne(t,
		client(
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"editor",`+
				`"version":"1"},"capabilities":{}}}`)+
			agent(
				`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"info":{"name":"coder","version":"1"},`+
					`"capabilities":{}}}`)+
			client(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w"}}`)+
			agent(`{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}`)+
			client(
				`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s",`+
					`"prompt":[{"type":"text","text":"hi"}]}}`)+
			agent(`{"jsonrpc":"2.0","id":2,"result":{"messageId":"u1"}}`)+
			agent(
				`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",`+
					`"update":{"sessionUpdate":"state_update","state":"idle","stopReason":"error",`+
					`"error":{"code":-32603,"message":"model is down"}}}}`)+
			client(
				`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s",`+
					`"prompt":[{"type":"text","text":"again"}]}}`)+
			agent(`{"jsonrpc":"2.0","id":3,"result":{"messageId":"u2"}}`)+
			agent(
				`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",`+
					`"update":{"sessionUpdate":"state_update","state":"idle","stopReason":"error"}}}`)+
			client(
				`{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s",`+
					`"prompt":[{"type":"text","text":"please"}]}}`)+
			agent(`{"jsonrpc":"2.0","id":4,"result":{"messageId":"u3"}}`)+
			agent(
				`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",`+
					`"update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}`))
	if s.Session.Agent != "coder" {
		t.Errorf("agent is %q, want coder", s.Session.Agent)
	}
	var got []string
	for _, m := range s.Messages {
		if m.Message.Role == session.RoleAssistant {
			got = append(got, m.Message.MetadataJSON)
		}
	}
	want := []string{
		`{"agenttrace":{"turn_index":0,"stop_reason":"error","end_reason":"error","error":"model is down",` +
			`"duration_ms":200}}`,
		`{"agenttrace":{"turn_index":1,"stop_reason":"error","end_reason":"error",` +
			`"error":"the agent gave up without a reason","duration_ms":200}}`,
		`{"agenttrace":{"turn_index":2,"stop_reason":"end_turn","end_reason":"finish","duration_ms":200}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata of the answers (-want +got):\n%s", diff)
	}
	for _, l := range codec.Lost(s, decodeOne(t, encodeOne(t, s))) {
		switch l.What {
		case "ids and times", "other metadata": // of times
		default:
			t.Errorf("%d %s did not come back", l.Count, l.What)
		}
	}
}
