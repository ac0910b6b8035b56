package skillet_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/skillet"
	"github.com/agenttrace/agenttrace/session/store"
)

// The sessions of this file are not skillet's: they are put in its words.

var userKinds = []string{
	`{"type":"text","text":"what <is> it?"}`,
	`{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AAAA"}`,
	`{"type":"file","mediaType":"audio/mp3","url":"data:audio/mp3;base64,BBBB"}`,
	`{"type":"file","mediaType":"application/pdf","filename":"a.pdf","url":"data:application/pdf;base64,CCCC"}`,
	`{"type":"data-mention","data":{"path":"x"}}`,
}

var assistantKinds = []string{
	`{"type":"text","text":"I look. "}`,
	`{"type":"text","text":"é, \"done\"","state":"done"}`,
	`{"type":"reasoning","text":"hm"}`,
	`{"type":"step-start"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-available","input":{"command":"ls","n":1.50},` +
		`"output":"a\nb"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-available","input":{"command":"ls"},` +
		`"output":{"stdout":"a"}}`,
	`{"type":"dynamic-tool","toolName":"mcp_x","toolCallId":"ID","state":"output-error","input":"text",` +
		`"errorText":"boom"}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"output-denied","input":{},"approval":{"id":"a","approved":false,` +
		`"reason":"no"}}`,
	`{"type":"tool-bash","toolCallId":"ID","state":"input-available","input":{}}`,
	`{"type":"data-handoff","data":{"type":"handoff","agentName":"a","toAgentName":"b"}}`,
	`{"type":"data-note","data":1}`,
	`{"type":"file","mediaType":"image/png","url":"https://x/a.png"}`,
}

// valueOf is a JSON value in one spelling; what is none is itself.
func valueOf(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if !json.Valid(raw) || d.Decode(&v) != nil {
		return string(raw)
	}
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // of what was read
	}
	return string(out)
}

// isStep says that a data part is a step of the log.
func isStep(data json.RawMessage) bool {
	var step struct{ Type string }
	return json.Unmarshal(data, &step) == nil && slices.Contains([]string{"agent_start", "agent_end", "handoff"},
		step.Type)
}

// what is left of a session when what Losses lists is taken away. With store
// set, it is what the store keeps, and otherwise what the log does.
func what(t *session.Transcript, inStore bool) (all []string) {
	role, text := "", false
	open := map[string]int{} // places in all of the calls without a result
	say := func(format string, args ...any) { all, text = append(all, fmt.Sprintf(format, args...)), false }
	for i := range t.Messages {
		m := &t.Messages[i]
		compaction := len(m.Parts) == 1 && m.Parts[0].Type == session.TypeCompaction
		if m.Message.HiddenAt != nil || compaction || m.Message.Role == session.RoleSystem && !inStore {
			continue
		}
		if m.Message.Role != role || inStore && role != session.RoleAssistant {
			if role == "" && m.Message.Role == session.RoleAssistant && !inStore {
				say("user")
				say("text ")
			}
			role = m.Message.Role
			clear(open)
			say("%s", role)
		}
		heads := len(all)
		var meta session.MessageMetadata
		if err := json.Unmarshal([]byte(m.Message.MetadataJSON), &meta); err != nil {
			panic(err)
		}
		if meta.Agent == "" {
			meta.Agent = t.Session.Agent
		}
		for _, p := range m.Parts {
			var d struct {
				Text, URL, MediaType, Filename, ToolName, ErrorText, State string
				Input, Output, Data                                        json.RawMessage
				Approval                                                   struct{ Reason string }
				CallProviderMetadata                                       struct{ Skillet struct{ AgentName string } }
			}
			if err := json.Unmarshal([]byte(p.DataJSON), &d); err != nil {
				panic(err)
			}
			switch {
			case p.Type == "text" && text && !inStore && role == session.RoleAssistant:
				all[len(all)-1] += d.Text
			case p.Type == "text":
				if role == session.RoleSystem && len(all) > 0 && strings.HasPrefix(all[len(all)-1], "text ") {
					all[len(all)-1] += "\n\n" + d.Text
					continue
				}
				say("text %s", d.Text)
				text = true
			case p.Type == "reasoning" && inStore && role == session.RoleAssistant:
				say("reasoning %s", d.Text)
			case p.Type == "file" && role == session.RoleUser && d.URL != "":
				if strings.HasPrefix(d.MediaType, "image/") || strings.HasPrefix(d.URL, "data:audio/") {
					d.Filename = "" // only other files have one
				}
				say("file %s %s", d.Filename, d.URL)
			case p.ToolState != nil && role == session.RoleAssistant:
				name := strings.TrimPrefix(p.Type, "tool-")
				if p.Type == "dynamic-tool" {
					name = d.ToolName
				}
				id := ""
				if inStore {
					id = *p.ToolCallID
				}
				output := "none"
				switch d.State {
				case session.StateOutputError:
					output = "failed: " + d.ErrorText
				case session.StateOutputDenied:
					output = "failed: " + cmp.Or(d.Approval.Reason, "Tool execution was not approved.")
				case session.StateOutputAvailable:
					output = valueOf(d.Output)
					if s := ""; strings.HasPrefix(output, `"`) && json.Unmarshal(d.Output, &s) == nil {
						output = valueOf(json.RawMessage(s)) // JSON is written as text
					}
					if _, withheld := codec.Withheld(&p); withheld {
						output = codec.WithheldText
					}
				}
				agent := meta.Agent
				if a := d.CallProviderMetadata.Skillet.AgentName; a != "" {
					agent = a
				}
				if at, ok := open[agent+" "+name]; ok && !inStore {
					all[at] = strings.TrimSuffix(all[at], "none") + "[no result]"
				}
				delete(open, agent+" "+name)
				if d.Input == nil {
					d.Input = json.RawMessage(`""`) // what a call without arguments has
				}
				say("call %s %s %s -> %s", id, name, valueOf(d.Input), output)
				if output == "none" {
					open[agent+" "+name] = len(all) - 1
				}
			case p.Type == "data-handoff" && !inStore && role == session.RoleAssistant && isStep(d.Data):
				say("handoff %s", valueOf(d.Data))
			case p.Type == "data-agent" && !inStore && isStep(d.Data):
				text = false
			}
		}
		if role == session.RoleAssistant && !inStore {
			text = false // the agent's end stands between
		}
		if inStore && role == session.RoleAssistant && len(all) == heads && all[heads-1] == role {
			all, role = all[:heads-1], "" // no item says that it was there
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "text " && inStore })
}

func TestLosses(t *testing.T) {
	s := codectest.Corpus()[0].Session
	m := func(role string, hidden *int64, data ...string) session.MessageAndParts {
		n := len(s.Messages)
		mp := session.MessageAndParts{Message: session.Message{ID: fmt.Sprintf("m%d", n), SessionID: s.Session.ID,
			Role:         role,
			MetadataJSON: "{}", HiddenAt: hidden, CreatedAt: int64(n), UpdatedAt: int64(n)}}
		for i, d := range data {
			var fields struct{ Type string }
			if err := json.Unmarshal([]byte(d), &fields); err != nil {
				t.Fatal(err)
			}
			mp.Parts = append(mp.Parts, session.Part{ID: fmt.Sprintf("p%d.%d", n, i), MessageID: mp.Message.ID,
				SessionID: s.Session.ID, Index: int64(i), Type: fields.Type, DataJSON: d})
		}
		return mp
	}
	s.Messages = nil
	for _, row := range []session.MessageAndParts{
		m("system", nil, userKinds[0]),
		m("assistant", nil, assistantKinds...),
		m("user", nil, userKinds...), m("user", nil), m("user", new(int64(5)), userKinds[0]),
		m("assistant", nil, assistantKinds[0], assistantKinds[2], assistantKinds[1]),
		m("assistant", nil, `{"type":"data-compaction","data":{"summary":"S"}}`),
	} {
		row.Message.CreatedAt = int64(len(s.Messages))
		row.Message.ID = fmt.Sprintf("m%d", len(s.Messages))
		for i := range row.Parts {
			row.Parts[i].MessageID, row.Parts[i].ID = row.Message.ID, fmt.Sprintf("p%d.%d", len(s.Messages), i)
		}
		s.Messages = append(s.Messages, row)
	}
	s.Decisions = make([]store.Decision, 2)
	var got []string
	for _, l := range lost(t, s) {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %s", l.Count, l.What, l.Kept)))
	}
	want := []string{
		"1 session id",
		"2 session times",
		"30 ids of messages and parts",
		"20 times of messages and parts",
		"3 messages of their own",
		"1 messages without parts",
		"1 messages that a rewind hid",
		"1 system messages",
		"1 texts",
		"6 borders between text parts",
		"2 reasoning",
		"1 files",
		"1 names and media types of files",
		"1 steps",
		"2 metadata of texts and files",
		"1 compactions",
		"1 summaries of compactions",
		"2 data parts",
		"5 tool call ids state directory",
		"5 states of tool calls without a result",
		"1 questions to a human",
		"2 details of permission decisions",
		"2 metadata of tool calls",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// lost is what of the session does not come back from a log; what comes back from a state
// directory is marked as kept there.
func lost(t *testing.T, s *codec.Session) []codec.Loss {
	t.Helper()
	from := func(sessions iter.Seq2[*codec.Session, error]) []codec.Loss {
		for got, err := range sessions {
			if err == nil {
				return codec.Lost(s, got)
			}
		}
		return codec.Unheld(s)
	}
	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, s, false); err != nil {
		t.Fatal(err)
	}
	losses := from(skillet.Decode(strings.NewReader(encode(t, s)), nil))
	both := from(skillet.DecodeFile(dir, nil))
	for i := range losses {
		if !slices.ContainsFunc(both, func(l codec.Loss) bool { return l.What == losses[i].What }) {
			losses[i].Kept = "state directory"
		}
	}
	return losses
}

// newStore makes a store of the items.
func newStore(tb testing.TB, path string, rows ...[4]any) {
	tb.Helper()
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn,
		`CREATE TABLE session_items (id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, session_name TEXT `+
			`NOT NULL, created_at INTEGER NOT NULL, item_json TEXT NOT NULL)`, nil); err != nil {
		tb.Fatal(err)
	}
	for _, r := range rows {
		if err := sqlitex.Execute(conn,
			`INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`,
			&sqlitex.ExecOptions{Args: r[:]}); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestDecodeItems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sqlite")
	texts := []string{
		`{"role":"system","content":"be brief"}`,
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image",` +
			`"image":"https://x/a.png","detail":"low"}]}`,
		`{"type":"reasoning","id":"r1","content":[],"rawContent":[{"type":"reasoning_text","text":"raw thought"}]}`,
		`{"type":"function_call","callId":"c1","name":"t","arguments":"{\"a\": 1}"}`,
		`{"type":"function_call","callId":"c2","name":"u","arguments":"not JSON"}`,
		`{"type":"function_call_result","callId":"c2","name":"u","status":"completed","output":"plain"}`,
		`{"type":"function_call_result","callId":"c1","name":"t","status":"incomplete",` +
			`"output":[{"type":"input_text","text":"x"}]}`,
		`{"type":"function_call_result","callId":"c9","name":"t","output":"of nothing"}`,
		`{"type":"function_call","callId":"c1","name":"again","arguments":"{}"}`,
		`{"type":"hosted_tool_call","name":"web_search","status":"completed"}`,
		`{"type":"compaction","encrypted_content":"zzz"}`,
		`{"role":"assistant","status":"completed","content":[{"type":"output_text","text":"a"},{"type":"refusal",` +
			`"refusal":"no"}]}`,
		`{"broken`,
	}
	var all [][4]any
	for i, text := range texts {
		all = append(all, [4]any{"u@x", "s", int64(1000 + i), text})
	}
	newStore(t, path, all...)
	var p problems
	s := only(t, skillet.DecodeFile(path, p.report))
	want := []string{
		"system", "  text be brief",
		"user", "  text hi", "  file image/* https://x/a.png",
		"assistant", "  reasoning raw thought", `  tool-t output-available {"a":1} [{"type":"input_text","text":"x"}]`,
		`  tool-u output-available "not JSON" "plain"`,
		`  data-item {"type":"function_call_result","callId":"c9","name":"t","output":"of nothing"}`,
		"  tool-again input-available {}",
		`  data-item {"type":"hosted_tool_call","name":"web_search","status":"completed"}`,
		`  data-compaction {"summary":"","tail_start_id":null,"auto":true,"summary_tokens":0}`, "  text a",
		`  data-content {"type":"refusal","refusal":"no"}`,
	}
	if diff := gocmp.Diff(want, story(s.Transcript)); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
	for i := range p {
		p[i], _, _ = strings.Cut(p[i], ": unexpected")
	}
	wantProblems := problems{
		`s.sqlite: session_items row 8: result of call "c9", which is not above it: kept as data-item`,
		`s.sqlite: session_items row 9: call with the callId "c1", which names no call or another one: its result ` +
			`cannot be matched`,
		`s.sqlite: session_items row 13: is not an item: left out`,
	}
	if diff := gocmp.Diff(wantProblems, p); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	out := filepath.Join(t.TempDir(), "out.sqlite")
	if err := skillet.EncodeFile(out, s, false); err != nil {
		t.Fatal(err)
	}
	// No item says that there was a compaction but the one of the provider, which is encrypted.
	want = slices.DeleteFunc(want, func(line string) bool { return strings.HasPrefix(line, "  data-compaction") })
	if diff := gocmp.Diff(want, story(only(t, skillet.DecodeFile(out, nil)).Transcript)); diff != "" {
		t.Errorf("written and read (-want +got):\n%s", diff)
	}
}

func TestDecodeFileOfADirectory(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, ".skilled-agent", "state", ".agent_session_logs")
	for _, name := range []string{"ann_x/one", "ann_x/two", "bob/one"} {
		path := filepath.Join(logs, filepath.FromSlash(name)+".jsonl")
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(user(0, `"`+name+`"`)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(logs, "bob", "empty.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	hi := `{"role":"user","content":"hi"}`
	newStore(t, filepath.Join(dir, ".skilled-agent", "state", ".agent_sessions.sqlite"),
		[4]any{"ann@x", "one", 1, hi}, [4]any{"ann@x", "three", 1, hi}, [4]any{"a.b", "s", 1, hi},
		[4]any{"a_b", "s", 1, hi})
	var p problems
	var got []string
	for _, s := range collect(t, skillet.DecodeFile(dir, p.report)) {
		var meta struct {
			Skillet struct {
				User string `json:"user"`
			} `json:"skillet"`
		}
		if err := json.Unmarshal([]byte(s.Session.MetadataJSON), &meta); err != nil {
			t.Fatal(err)
		}
		got = append(got, meta.Skillet.User+"/"+s.Session.Title)
	}
	want := []string{"ann@x/one", "ann_x/two", "bob/one", "a.b/s", "a_b/s", "ann@x/three"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	damaged := problems{"bob/empty.jsonl: no entry in it: want lines of kind user_message, step and " +
		"final_result: the log was left out"}
	if diff := gocmp.Diff(damaged, p); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// The session keeps its id through skillet, as its name.
func TestEncodeFileKeepsTheID(t *testing.T) {
	s := codectest.Corpus()[1].Session
	s.Session.ID = "ses_1fa2bdc08000YO9dOSXjsMd9kP"
	for i := range s.Messages {
		s.Messages[i].Message.SessionID = s.Session.ID
		for j := range s.Messages[i].Parts {
			s.Messages[i].Parts[j].SessionID = s.Session.ID
		}
	}
	s.Session.MetadataJSON = `{"user_id":"ann@x"}`
	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, s, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".agent_session_logs", "ann_x", s.Session.ID+".jsonl")); err != nil {
		t.Error(err)
	}
	if again := only(t, skillet.DecodeFile(dir, nil)); again.Session.ID != s.Session.ID {
		t.Errorf("id %s, want %s", again.Session.ID, s.Session.ID)
	}
}
