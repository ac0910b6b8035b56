//go:build e2e

package npm_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/ingest"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// accepted fails the test if the SDK rejects the session's trace.
func accepted(t *testing.T, s *codec.Session) {
	t.Helper()
	var trace bytes.Buffer
	testscale.Must(t, formats.Named("acp", nil).Stream(&trace)(&formats.Source{Session: s}))
	lines := bytes.Count(trace.Bytes(), []byte("\n"))
	report, err := project(t, "acpsdk").Check(t.Context(), "check.mjs", &trace)
	testscale.Must(t, err)
	for _, failure := range report.Failures {
		t.Errorf("%s: %s", s.Session.ID, failure)
	}
	if report.Passed+report.Failed != lines || lines == 0 {
		t.Errorf("%s: %d messages passed and %d failed of %d", s.Session.ID, report.Passed, report.Failed, lines)
	}
}

// TestACPReference exports sessions that the guide's reference implementation wrote, with
// forks, rewinds and compactions.
func TestACPReference(t *testing.T) {
	f, err := os.Open(filepath.FromSlash("../../../session/testdata/reference.jsonl"))
	testscale.Must(t, err)
	defer f.Close()
	for tr, err := range jsonl.Decode(f, nil) {
		testscale.Must(t, err)
		accepted(t, &codec.Session{Transcript: tr})
	}
}

// TestACPTraces exports traces of other programs unchanged.
func TestACPTraces(t *testing.T) {
	for _, name := range []string{"handmade_raw.ndjson", "handmade_zed.json", "handmade_inspector.jsonl",
		"handmade_conductor.jsons"} {
		f, err := os.Open(filepath.Join(filepath.FromSlash("../../../session/codec/formats/testdata/acp"), name))
		testscale.Must(t, err)
		defer f.Close()
		for s, err := range formats.Named("acp", nil).Decode(f, func(p codec.Problem) { t.Errorf("%s: %s", name, p) }) {
			testscale.Must(t, err)
			accepted(t, s)
		}
	}
}

// TestACPVersion2 does so for a trace of protocol version 2, also after a change.
func TestACPVersion2(t *testing.T) {
	trace := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"editor","version":"1"},"capabilities":{}}}
{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"info":{"name":"coder","version":"1"},"capabilities":{}}}
{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w"}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hi"}]}}
{"jsonrpc":"2.0","id":2,"result":{"messageId":"u1"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Run","name":"bash","kind":"execute","status":"in_progress","rawInput":{"c":"ls"}}}}
{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","title":"May I?","subject":{"type":"tool_call","toolCall":{"toolCallId":"t1"}},"options":[{"optionId":"n","name":"No","kind":"reject_once"}]}}
{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"n"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"failed","rawOutput":"denied"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"sorry"}]}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}
`
	for s, err := range formats.Named("acp", nil).Decode(strings.NewReader(trace), func(p codec.Problem) { t.Error(p) }) {
		testscale.Must(t, err)
		accepted(t, s)
		s.Session.Title = "Given later"
		accepted(t, s)
	}
}

// TestACPCaptures exports sessions of agents that never used the protocol, as a store has them after their telemetry.
func TestACPCaptures(t *testing.T) {
	ctx := t.Context()
	st, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "sessions.db"), sqlitestore.Options{})
	testscale.Must(t, err)
	defer st.Close()
	in := ingest.New(st, ingest.Options{})
	bodies, err := filepath.Glob(filepath.FromSlash("../../../session/ingest/testdata/captures/*/*/*-*.json"))
	testscale.Must(t, err)
	for _, path := range bodies {
		body := testscale.ReadFile(t, path)
		if strings.HasSuffix(path, "-traces.json") {
			traces, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(body)
			if err == nil {
				_, err = in.Traces(ctx, traces)
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			continue
		}
		logs, err := new(plog.JSONUnmarshaler).UnmarshalLogs(body)
		if err == nil {
			_, err = in.Logs(ctx, logs)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	all := storetest.Sessions(t, st)
	for _, row := range all {
		accepted(t, &codec.Session{Transcript: storetest.Transcript(t, st, row.ID)})
	}
	if len(all) < 5 {
		t.Errorf("%d sessions of %d bodies", len(all), len(bodies))
	}
}

// TestACPEveryPart checks that the output for every kind of part is valid, whatever other content the part has.
func TestACPEveryPart(t *testing.T) {
	parts := []string{
		`{"type":"text","text":"t"}`, `{"type":"reasoning","text":"r"}`, `{"type":"step-start"}`,
		`{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA=="}`,
		`{"type":"file","mediaType":"audio/wav","url":"data:audio/wav;base64,AA=="}`,
		`{"type":"file","mediaType":"text/plain","filename":"a b","url":"https://x/y"}`,
		`{"type":"source-url","sourceId":"s","url":"u"}`,
		`{"type":"source-document","sourceId":"s","mediaType":"m","title":"t"}`,
		`{"type":"tool-bash","toolCallId":"c1","state":"output-available","input":{"command":"ls"},` +
			`"output":{"stdout":"a"}}`,
		`{"type":"tool-bash","toolCallId":"c2","state":"output-error","input":1,"errorText":"e"}`,
		`{"type":"tool-bash","toolCallId":"c3","state":"output-denied","input":{},"approval":{"id":"a",` +
			`"approved":false,"reason":"no"}}`,
		`{"type":"tool-bash","toolCallId":"c4","state":"approval-requested","input":{},"approval":{"id":"a"}}`,
		`{"type":"tool-bash","toolCallId":"c5","state":"approval-responded","input":{},"approval":{"id":"a",` +
			`"approved":true}}`,
		`{"type":"tool-bash","toolCallId":"c6","state":"input-available","input":null}`,
		`{"type":"tool-bash","toolCallId":"c7","state":"input-streaming"}`,
		`{"type":"dynamic-tool","toolName":"mcp__x","toolCallId":"c8","state":"output-available","input":[1],` +
			`"output":null}`,
		`{"type":"data-plan","data":{"entries":[{"content":"c","priority":"low","status":"pending"}]}}`,
		`{"type":"data-plan","data":{"entries":[{"content":"c","priority":"urgent","status":"pending"}]}}`,
		`{"type":"data-usage_update","data":{"used":1,"size":2}}`,
		`{"type":"data-usage_update","data":{"used":"1","size":2}}`,
		`{"type":"data-session_info_update","data":{"title":5}}`,
		`{"type":"data-current_mode_update","data":{"currentModeId":3}}`,
		`{"type":"data-available_commands_update","data":{"availableCommands":[{"name":"n","description":"d"}]}}`,
		`{"type":"data-config_option_update","data":{"configOptions":[1]}}`,
		`{"type":"data-notice","data":{"severity":"info","title":"t"}}`,
		`{"type":"data-notice","data":{"severity":1,"title":"t"}}`,
		`{"type":"data-compaction_update","data":{"compactionId":"c","status":"failed"}}`,
		`{"type":"data-compaction_summary_chunk","data":{"compactionId":1}}`,
		`{"type":"data-state_update","data":{"state":1}}`, `{"type":"data-terminal_update","data":{"terminalId":7}}`,
		`{"type":"data-terminal_output_chunk","data":{"terminalId":7}}`,
		`{"type":"data-plan_update","data":{}}`, `{"type":"data-plan_removed","data":{}}`,
		`{"type":"data-subagent_update","data":{}}`, `{"type":"data-session_message","data":{}}`,
		`{"type":"data-log","data":{"level":"info","message":"m"}}`,
		`{"type":"data-log","data":{"level":5,"message":{}}}`,
		`{"type":"data-permission","data":{"toolCall":{"toolCallId":"c1"},"options":[{"optionId":"o","name":"n",` +
			`"kind":"allow_once"}],"outcome":{"outcome":"selected","optionId":"o"}}}`,
		`{"type":"data-permission","data":{"toolCall":{"toolCallId":"c1"},"options":[1,2]}}`,
		`{"type":"data-acp-update","data":{"sessionUpdate":"plan"}}`,
		`{"type":"data-acp-fs","data":{"method":"fs/read_text_file","params":{"sessionId":"ses_1"}}}`,
		`{"type":"data-acp-request","data":{"method":"session/prompt","params":{"sessionId":"ses_1","prompt":7}}}`,
		`{"type":"data-content","data":{"block":{"type":"odd"}}}`,
		`{"type":"data-note","data":null}`,
	}
	s := &codec.Session{Transcript: &session.Transcript{
		Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 1, UpdatedAt: 9},
		Messages: []session.MessageAndParts{
			{Message: session.Message{ID: "msg_1", SessionID: "ses_1", Role: "assistant",
				MetadataJSON: "{}", CreatedAt: 1, UpdatedAt: 9}}},
	}}
	m := &s.Messages[0]
	for i, data := range parts {
		p := session.Part{ID: fmt.Sprintf("prt_%02d", i), MessageID: "msg_1", SessionID: "ses_1", Index: int64(i),
			Type: strings.Split(data, `"`)[3], DataJSON: data, CreatedAt: 1, UpdatedAt: 2}
		if _, id, ok := strings.Cut(data, `"toolCallId":"`); ok && !strings.HasPrefix(p.Type, "data-") {
			id, _, _ = strings.Cut(id, `"`)
			_, state, _ := strings.Cut(data, `"state":"`)
			state, _, _ = strings.Cut(state, `"`)
			p.ToolCallID, p.ToolState = &id, &state
		}
		m.Parts = append(m.Parts, p)
	}
	accepted(t, s)
}

// TestACPFlaws checks that an invalid message is found and reported with its line.
func TestACPFlaws(t *testing.T) {
	begin := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}` + "\n"
	tests := []struct{ line, want string }{
		{`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",` +
			`"update":{"sessionUpdate":"tool_call"}}}`,
			"line 2 (session/update, tool_call): the SDK rejects it"},
		{
			`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",` +
				`"update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","kind":"write"}}}`,
			"line 2 (session/update, tool_call): the SDK drops .update.kind"},
		{`{"jsonrpc":"2.0","method":"session/steal","params":{}}`,
			"line 2 (session/steal): the protocol has no method session/steal"},
		{`{"jsonrpc":"2.0","id":5,"result":{}}`, "line 2 (response): it answers no request"},
		{`{"jsonrpc":"2.0","id":0,"result":{}}`, "line 2 (response): the SDK rejects it"},
		{`{"id":1,"method":"session/new"}`, "line 2 (session/new): it is not JSON-RPC 2.0"},
	}
	for _, tt := range tests {
		got, err := project(t, "acpsdk").Check(t.Context(), "check.mjs", strings.NewReader(begin+tt.line+"\n"))
		testscale.Must(t, err)
		if got.Passed != 1 || got.Failed != 1 || !strings.HasPrefix(got.Failures[0], tt.want) {
			t.Errorf("report of %s is %+v, want %q", tt.line, got, tt.want)
		}
	}
	got, err := project(t, "acpsdk").Check(t.Context(), "check.mjs", strings.NewReader("{"))
	if err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("Check of half a line = %+v, %v, want an error with the line", got, err)
	}
}

// TestACPPair has a client and an agent on the protocol's own SDK talk with agenttrace run in between: each byte is as
// without it, and the session has what the agent said.
func TestACPPair(t *testing.T) {
	p := project(t, "acpsdk")
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../../cmd/agenttrace")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	db := filepath.Join(dir, "s.db")
	talk := func(name string, between ...string) (said [4]string) {
		to := filepath.Join(dir, name)
		testscale.Must(t, os.Mkdir(to, 0o700))
		args := append(append([]string{"client.mjs", to}, between...), "node", "agent.mjs", to)
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), "XDG_STATE_HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for i, of := range []string{"client.wrote", "agent.read", "agent.wrote", "client.read"} {
			text, err := os.ReadFile(filepath.Join(to, of))
			if err != nil || len(text) == 0 {
				t.Fatalf("%s: %d bytes, %v", of, len(text), err)
			}
			said[i] = string(text)
		}
		return said
	}
	without := talk("without")
	with := talk("with", filepath.Join(dir, "agenttrace"), "--store", db, "run", "--acp", "--quiet", "--")
	if with != without || with[0] != with[1] || with[2] != with[3] {
		t.Errorf("without:\n%s\nwith:\n%s", without, with)
	}
	r := testscale.Open(t, sqlitestore.OpenReader, db)
	docs := e2e.Read(t, r)
	if len(docs) != 1 {
		t.Fatalf("%d sessions", len(docs))
	}
	plan := `assistant data-plan {"entries":[{"content":"edit","priority":"high","status":"in_progress"}]}`
	var want []string
	for _, turn := range [][4]string{{"first", ` output "edited"`, "yes", "done"},
		{"second", " output-denied", "no", "not done"}} {
		prompt, result, option, said := turn[0], turn[1], turn[2], turn[3]
		want = append(want, "user text "+prompt, "assistant reasoning Is it ä or 漢?", plan, "assistant text I edit a.txt.",
			`assistant call edit {"path":"/w/a.txt"} call_`+prompt+result,
			`assistant data-permission {"toolCall":{"toolCallId":"call_`+prompt+`"},"options":[{"optionId":"yes",`+
				`"name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}],`+
				`"outcome":{"outcome":"selected","optionId":"`+option+`"}}`,
			"assistant text "+prompt+": "+said+".", "turn 130+45 end_turn 0 calls")
	}
	if d := cmp.Diff(want, e2e.Lines(docs[0], true)); d != "" {
		t.Errorf("session (-said +stored):\n%s", d)
	}
	in := storetest.Transcript(t, r, "sess_pair")
	edits := 0
	for _, m := range in.Messages {
		for _, row := range m.Parts {
			if row.Type != "dynamic-tool" && !strings.HasPrefix(row.Type, "tool-") {
				continue
			}
			edits++
			for _, has := range []string{`"kind":"edit"`, `"locations":[{"path":"/w/a.txt","line":3}]`,
				`"oldText":"old\n","newText":"new \n"`, `"type":"diff"`} {
				if !strings.Contains(row.DataJSON, has) {
					t.Errorf("%s does not have %s", row.DataJSON, has)
				}
			}
		}
	}
	if edits != 2 {
		t.Errorf("%d edits", edits)
	}
	for _, n := range docs[0].Notices {
		t.Errorf("%s", n.String())
	}
}
