package acp

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

var update = flag.Bool("update", false, "write the golden files")

// read decodes a trace, and fails the test if a session in it is invalid.
func read(tb testing.TB, trace string) (all []*codec.Session, problems []string) {
	tb.Helper()
	for s, err := range Decode(strings.NewReader(trace), func(p codec.Problem) {
		problems = append(problems, p.String())
	}) {
		if err != nil {
			tb.Fatal(err)
		}
		for _, v := range session.Check(s.Transcript) {
			tb.Errorf("invalid: %v", v)
		}
		all = append(all, s)
	}
	return all, problems
}

// golden is the sessions as lines of JSON, decisions after each.
func golden(tb testing.TB, all []*codec.Session, problems []string) string {
	tb.Helper()
	return codectest.Golden(tb, problems, all...)
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	codectest.CheckGolden(t, filepath.Join("testdata", name), got, *update)
}

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// timed are the aspects that tell of times, which messages over stdio do not have.
var timed = []string{"ids and times", "permissions", "other metadata"}

var samples = []string{
	"handmade_raw.ndjson", "handmade_zed.json", "handmade_inspector.jsonl", "handmade_conductor.jsons",
	"inspector_basic-session.jsonl", "inspector_demo-session.jsonl", "inspector_proxy-chain.jsonl",
	"inspector_tool-call-session.jsonl",
	"story.ndjson", "version2.ndjson",
}

func TestSamples(t *testing.T) {
	for _, name := range samples {
		t.Run(name, func(t *testing.T) {
			all, problems := read(t, readFile(t, name))
			if len(all) == 0 {
				t.Fatal("no session")
			}
			checkGolden(t, strings.TrimSuffix(name, filepath.Ext(name))+".golden", golden(t, all, problems))
			for _, s := range all {
				var b bytes.Buffer
				if err := Encode(&b, s); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(name, "handmade") || strings.Contains(name, "basic") {
					valid(t, b.String())
				}
				again, problems := read(t, b.String())
				if len(problems) > 0 {
					t.Errorf("our own trace has problems: %v", problems)
				}
				for _, l := range codec.Lost(s, again[0]) {
					if !slices.Contains(timed, l.What) {
						t.Errorf("after a round trip %d %s are lost", l.Count, l.What)
					}
				}
			}
		})
	}
}

// The same messages in different framings give the same session but for what
// the framings know.
func TestFramingsAgree(t *testing.T) {
	raw, _ := read(t, readFile(t, "handmade_raw.ndjson"))
	zed, _ := read(t, readFile(t, "handmade_zed.json"))
	if diff := cmp.Diff(golden(t, raw, nil), golden(t, zed, nil)); diff != "" {
		t.Errorf("raw and Zed differ:\n%s", diff)
	}
	// What came over stdio is written as it was.
	var b bytes.Buffer
	if err := Encode(&b, raw[0]); err != nil {
		t.Fatal(err)
	}
	again, _ := read(t, b.String())
	if losses := codec.Lost(raw[0], again[0]); losses != nil {
		t.Errorf("lost %v", losses)
	}
	checkGolden(t, "handmade_raw.again.ndjson", b.String())
}

func TestChunksJoin(t *testing.T) {
	update := func(s string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + s + `}}` + "\n"
	}
	text := func(kind, text, more string) string {
		return update(`{"sessionUpdate":"` + kind + `","content":{"type":"text","text":"` + text + `"}` + more + `}`)
	}
	prompt := `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text",` +
		`"text":"hello there"}]}}` + "\n"
	for name, tt := range map[string]struct{ in, want string }{
		"joined": {prompt + text(agentChunk, "a", "") + text(agentChunk, "b", ""),
			"user[text:hello there] assistant[text:ab]"},
		"split by message id": {prompt + text(agentChunk, "a", `,"messageId":"1"`) + text(agentChunk, "b",
			`,"messageId":"2"`), "user[text:hello there] assistant[text:a text:b]"},
		"split by a thought": {prompt + text(agentChunk, "a", "") + text(thoughtChunk, "t", "") + text(agentChunk, "b",
			""),
			"user[text:hello there] assistant[text:a reasoning:t text:b]"},
		"own meta": {prompt + text(agentChunk, "a", `,"_meta":{"n":1}`) + text(agentChunk, "b",
			`,"_meta":{"n":2}`), "user[text:hello there] assistant[text:ab]"},
		"echo of the prompt": {prompt + text(userChunk, "hello ", "") + text(userChunk, "there", "") + text(agentChunk,
			"a",
			""), "user[text:hello there] assistant[text:a]"},
		"another user text": {prompt + text(agentChunk, "a", "") + text(userChunk, "more", "") + text(agentChunk, "b",
			""),
			"user[text:hello there] assistant[text:a] user[text:more] assistant[text:b]"},
		"replayed history": {text(userChunk, "x", "") + text(userChunk, "y", "") + text(agentChunk, "a", "") +
			text(userChunk, "z", ""), "user[text:xy] assistant[text:a] user[text:z]"},
		"image": {prompt + update(
			`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"AAAA","mimeType":"image/png"}}`),
			"user[text:hello there] assistant[file:]"},
	} {
		all, problems := read(t, tt.in)
		if got := outline(all[0]); got != tt.want || len(problems) > 0 {
			t.Errorf("%s: %s, want %s; problems %v", name, got, tt.want, problems)
		}
		again, _ := read(t, string(encode(all[0])))
		if diff := cmp.Diff(golden(t, all, nil), golden(t, again, nil)); diff != "" {
			t.Errorf("%s: after a round trip:\n%s", name, diff)
		}
	}
}

// outline is the roles, and the types and texts of parts.
func outline(s *codec.Session) string {
	var all []string
	for i := range s.Messages {
		var parts []string
		for _, p := range s.Messages[i].Parts {
			o, err := rows.Parse([]byte(p.DataJSON))
			if err != nil {
				panic(err)
			}
			parts = append(parts, p.Type+":"+o.Text("text"))
		}
		all = append(all, s.Messages[i].Message.Role+"["+strings.Join(parts, " ")+"]")
	}
	return strings.Join(all, " ")
}

// A log is never text, whether of a session or of none.
func TestLogs(t *testing.T) {
	all, _ := read(t, `{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"early"}}
{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","method":"log","params":{"level":"emergency","message":"late","data":{"a":[1]}}}
{"jsonrpc":"2.0","method":"log","params":{"sessionId":"s","level":"debug","message":"own"}}
`)
	if got := outline(all[0]); got != "system[data-log: data-log: data-log:]" {
		t.Error(got)
	}
	again, _ := read(t, string(encode(all[0])))
	if diff := cmp.Diff(golden(t, all, nil), golden(t, again, nil)); diff != "" {
		t.Error(diff)
	}
}

func TestPermissionOutcomes(t *testing.T) {
	const ask = `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"T","kind":"execute","status":"pending","rawInput":{"cmd":"rm"}}}}
{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c","title":"rm?"},"options":[{"optionId":"a","name":"A","kind":"allow_once"},{"optionId":"b","name":"B","kind":"allow_always"},{"optionId":"c","name":"C","kind":"reject_once"}]}}
`
	selected := func(id string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"` + id + `"}}}` + "\n"
	}
	end := func(status string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",` +
			`"update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"` + status + `"}}}` + "\n"
	}
	for name, tt := range map[string]struct{ in, state, outcome, reply string }{
		"asked":              {ask, "approval-requested", "pending", ""},
		"allowed once":       {ask + selected("a"), "approval-responded", "allowed", "once"},
		"allowed always":     {ask + selected("b") + end("completed"), "output-available", "allowed", "always"},
		"allowed and failed": {ask + selected("a") + end("failed"), "output-error", "allowed", "once"},
		"rejected":           {ask + selected("c"), "approval-responded", "denied", "reject"},
		"rejected and over":  {ask + selected("c") + end("failed"), "output-denied", "denied", "reject"},
		"rejected, yet done": {ask + selected("c") + end("completed"), "output-available", "denied", "reject"},
		"withdrawn": {ask + `{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"cancelled"}}}` + "\n",
			"input-available", "denied", ""},
		"failed question": {ask + `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}` + "\n",
			"input-available",
			"pending", ""},
		"no such option": {ask + selected("z"), "approval-requested", "pending", ""},
	} {
		all, _ := read(t, tt.in)
		s := all[0]
		part := s.Messages[1].Parts[0]
		if *part.ToolState != tt.state {
			t.Errorf("%s: state %s, want %s", name, *part.ToolState, tt.state)
		}
		if len(s.Decisions) != 1 || s.Decisions[0].Outcome != tt.outcome || s.Decisions[0].Reply != tt.reply ||
			s.Decisions[0].PartID != part.ID {
			t.Errorf("%s: decisions %+v", name, s.Decisions)
		}
		again, _ := read(t, string(encode(s)))
		if diff := cmp.Diff(golden(t, all, nil), golden(t, again, nil)); diff != "" {
			t.Errorf("%s: after a round trip:\n%s", name, diff)
		}
	}
}

func TestDamaged(t *testing.T) {
	all, problems := read(t, "\uFEFFnot json\n[1]\n{}\n"+`{"jsonrpc":"2.0","id":9,"result":{}}
{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"plan"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":"text"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"hologram"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"brand_new","x":[1]},"extra":true}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"late","status":"completed"}}}
{"ts":"when","direction":"fromAgent","json":"{\"jsonrpc\":\"2.0\",\"method\":\"_own/thing\",\"params\":{\"sessionId\":\"s\"}}"}
{"jsonrpc":"2.0","method":"odd","params":[1]}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"`)
	checkGolden(t, "damaged.golden", golden(t, all, problems))
	again, _ := read(t, string(encode(all[0])))
	if diff := cmp.Diff(golden(t, all, nil), golden(t, again, nil)); diff != "" {
		t.Errorf("after a round trip:\n%s", diff)
	}
	for _, in := range []string{"hello\nthere", "[", "[1,2]", `{"a":1}`} {
		for s, err := range Decode(strings.NewReader(in), nil) {
			if err == nil {
				t.Errorf("%q: %v", in, s)
			}
		}
	}
	if all, _ := read(t, " \n"); all != nil {
		t.Errorf("an empty trace has %d sessions", len(all))
	}
}

func TestTwoSessions(t *testing.T) {
	chunk := func(id, text string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + id +
			`","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}` +
			"\n"
	}
	all, _ := read(t, chunk("one", "a")+chunk("two", "x")+chunk("one", "b")+chunk("two", "y"))
	if len(all) != 2 || outline(all[0]) != "assistant[text:ab]" || outline(all[1]) != "assistant[text:xy]" {
		t.Errorf("%d sessions", len(all))
	}
}

var foreignParts = []string{
	`{"type":"step-start"}`, `{"type":"reasoning","text":"r","state":"done"}`, `{"type":"text","text":"one"}`,
	`{"type":"text","text":"two"}`,
	`{"type":"tool-read_file","toolCallId":"c1","state":"output-available","input":{"a":1},"output":{"b":[2]}}`,
	`{"type":"dynamic-tool","toolName":"y","toolCallId":"c2","state":"output-denied","input":{},` +
		`"approval":{"id":"ap","approved":false,"reason":"never"}}`,
	`{"type":"tool-z","toolCallId":"c3","state":"input-streaming"}`,
	`{"type":"tool-bash","toolCallId":"c4","state":"output-error","errorText":"bad","input":1}`,
	`{"type":"tool-z","toolCallId":"c5","state":"approval-requested","input":{},"approval":{"id":"b"}}`,
	`{"type":"data-plan","data":[1,2]}`,
	`{"type":"data-plan","data":{"entries":[{"content":"c","priority":"low","status":"pending"}]}}`,
	`{"type":"data-plan","data":{"entries":7}}`, `{"type":"data-note","data":"text","id":"n"}`,
	`{"type":"data-log","data":{"level":"info","message":"m","sessionId":"other"}}`,
	`{"type":"data-notice","data":{"severity":"info","title":"t"}}`, `{"type":"data-permission","data":{"x":1}}`,
	`{"type":"data-permission","data":{"toolCall":{"toolCallId":"c4"},"options":[],"agenttrace":1}}`,
	`{"type":"data-acp-update","data":{"sessionUpdate":"plan"}}`,
	`{"type":"data-acp-request","data":{"method":"session/prompt","params":{"sessionId":"ses_1","prompt":[]}}}`,
	`{"type":"data-acp-notification","data":{"method":"m"}}`, `{"type":"data-content","data":{}}`,
	`{"type":"data-current_mode_update","data":{"currentModeId":"trap","_meta":{"agenttrace":{"derived":true}}}}`,
	`{"type":"source-url","sourceId":"s","url":"u"}`,
	`{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA","filename":"f"}`,
	`{"type":"file","mediaType":"text/plain","url":"https://x/y"}`,
	`{"type":"text","text":"end","providerMetadata":{"acp":{"chunk":{"messageId":"m"},"chunks":[{"a":1}]}}}`,
}

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
	add("user", `{"queued_at":4}`, 5001, `{"type":"text","text":"one"}`, `{"type":"data-mention","data":{}}`,
		`{"type":"text","text":"two"}`, `{"type":"file","mediaType":"image/png","url":"data:,"}`)
	add("assistant",
		`{"usage":{"input":5,"output":6,"reasoning":7,"cache_read":8,"cache_write":9},`+
			`"agenttrace":{"stop_reason":"stop","end_reason":"finish"}}`, 6000, foreignParts...)
	add("assistant", `{}`, 7000)
	add("assistant", `{}`, 7001,
		`{"type":"data-compaction","data":{"summary":"s","tail_start_id":"msg_3","auto":false,"summary_tokens":3}}`)
	add("user", `{}`, 7002, `{"type":"text","text":"hidden"}`)
	add("assistant", `{"agenttrace":{"end_reason":"error","error":"boom"}}`, 7003)
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

// TestForeign: what others read of a session that no trace gave.
func TestForeign(t *testing.T) { checkGolden(t, "foreign.golden.ndjson", string(encode(handmade()))) }

// A session in which nobody has said anything is still a session in what is written of it.
func TestSessionWithoutMessagesSurvives(t *testing.T) {
	const trace = `{"id":1,"method":"session/new"}` + "\n" + `{"id":1,"result":{"sessionId":"s"}}`
	for s, err := range Decode(strings.NewReader(trace), nil) {
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := Encode(&b, s); err != nil {
			t.Fatal(err)
		}
		n := 0
		for again, err := range Decode(&b, nil) {
			if n++; err != nil || again.Session.ID != "s" {
				t.Errorf("read session %v, %v", again, err)
			}
		}
		if n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
	}
}

func FuzzDecode(f *testing.F) { codectest.Fuzz(f, format) }

// History that is replayed into a session which the trace already has is left
// out; into another, it is the session.
func TestReplay(t *testing.T) {
	const load = `{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"s","cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"q"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}}}
{"jsonrpc":"2.0","id":7,"result":null}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"b"}}}}
`
	all, problems := read(t, load)
	if got := outline(all[0]); got != "user[text:q] assistant[text:ab]" || len(problems) > 0 {
		t.Error(got, problems)
	}
	all, problems = read(t, load+load)
	if got := outline(all[0]); got != "user[text:q] assistant[text:abb]" || len(problems) != 1 {
		t.Error(got, problems)
	}
}
