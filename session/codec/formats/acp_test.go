package formats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// acpRead decodes a trace, and fails the test if a session in it is invalid.
func acpRead(tb testing.TB, trace string) (all []*codec.Session, problems []string) {
	tb.Helper()
	for s, err := range acpDecode(strings.NewReader(trace), func(p codec.Problem) {
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

// acpGolden is the sessions as lines of JSON, decisions after each.
func acpGolden(tb testing.TB, all []*codec.Session, problems []string) string {
	tb.Helper()
	return codectest.Golden(tb, problems, all...)
}

func acpCheckGolden(t *testing.T, name, got string) {
	t.Helper()
	codectest.CheckGolden(t, filepath.Join("testdata", "acp", name), got, *update)
}

func acpReadFile(tb testing.TB, name string) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "acp", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// acpTimed are the aspects that tell of times, which messages over stdio do not have.
var acpTimed = []string{"ids and times", "permissions", "other metadata"}

var acpSamples = []string{
	"handmade_raw.ndjson", "handmade_zed.json", "handmade_inspector.jsonl", "handmade_conductor.jsons",
	"inspector_basic-session.jsonl", "inspector_demo-session.jsonl", "inspector_proxy-chain.jsonl",
	"inspector_tool-call-session.jsonl",
	"story.ndjson", "version2.ndjson",
}

func TestACPSamples(t *testing.T) {
	for _, name := range acpSamples {
		t.Run(name, func(t *testing.T) {
			all, problems := acpRead(t, acpReadFile(t, name))
			if len(all) == 0 {
				t.Fatal("no session")
			}
			acpCheckGolden(t, strings.TrimSuffix(name, filepath.Ext(name))+".golden", acpGolden(t, all, problems))
			for _, s := range all {
				var b bytes.Buffer
				if err := acpEncode(&b, s); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(name, "handmade") || strings.Contains(name, "basic") {
					acpValid(t, b.String())
				}
				again, problems := acpRead(t, b.String())
				if len(problems) > 0 {
					t.Errorf("our own trace has problems: %v", problems)
				}
				for _, l := range codec.Lost(s, again[0]) {
					if !slices.Contains(acpTimed, l.What) {
						t.Errorf("after a round trip %d %s are lost", l.Count, l.What)
					}
				}
			}
		})
	}
}

// The same messages in different framings give the same session but for what
// the framings know.
func TestACPFramingsAgree(t *testing.T) {
	raw, _ := acpRead(t, acpReadFile(t, "handmade_raw.ndjson"))
	zed, _ := acpRead(t, acpReadFile(t, "handmade_zed.json"))
	if diff := cmp.Diff(acpGolden(t, raw, nil), acpGolden(t, zed, nil)); diff != "" {
		t.Errorf("raw and Zed differ:\n%s", diff)
	}
	// What came over stdio is written as it was.
	var b bytes.Buffer
	if err := acpEncode(&b, raw[0]); err != nil {
		t.Fatal(err)
	}
	again, _ := acpRead(t, b.String())
	if losses := codec.Lost(raw[0], again[0]); losses != nil {
		t.Errorf("lost %v", losses)
	}
	acpCheckGolden(t, "handmade_raw.again.ndjson", b.String())
}

func TestACPChunksJoin(t *testing.T) {
	update := func(s string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + s + `}}` + "\n"
	}
	text := func(kind, text, more string) string {
		return update(`{"sessionUpdate":"` + kind + `","content":{"type":"text","text":"` + text + `"}` + more + `}`)
	}
	prompt := `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text",` +
		`"text":"hello there"}]}}` + "\n"
	for name, tt := range map[string]struct{ in, want string }{
		"joined": {prompt + text(acpAgentChunk, "a", "") + text(acpAgentChunk, "b", ""),
			"user[text:hello there] assistant[text:ab]"},
		"split by message id": {prompt + text(acpAgentChunk, "a", `,"messageId":"1"`) + text(acpAgentChunk, "b",
			`,"messageId":"2"`), "user[text:hello there] assistant[text:a text:b]"},
		"split by a thought": {prompt + text(acpAgentChunk, "a", "") + text(acpThoughtChunk, "t", "") + text(acpAgentChunk, "b",
			""),
			"user[text:hello there] assistant[text:a reasoning:t text:b]"},
		"own meta": {prompt + text(acpAgentChunk, "a", `,"_meta":{"n":1}`) + text(acpAgentChunk, "b",
			`,"_meta":{"n":2}`), "user[text:hello there] assistant[text:ab]"},
		"echo of the prompt": {prompt + text(acpUserChunk, "hello ", "") + text(acpUserChunk, "there", "") + text(acpAgentChunk,
			"a",
			""), "user[text:hello there] assistant[text:a]"},
		"another user text": {prompt + text(acpAgentChunk, "a", "") + text(acpUserChunk, "more", "") + text(acpAgentChunk, "b",
			""),
			"user[text:hello there] assistant[text:a] user[text:more] assistant[text:b]"},
		"replayed history": {text(acpUserChunk, "x", "") + text(acpUserChunk, "y", "") + text(acpAgentChunk, "a", "") +
			text(acpUserChunk, "z", ""), "user[text:xy] assistant[text:a] user[text:z]"},
		"image": {prompt + update(
			`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"AAAA","mimeType":"image/png"}}`),
			"user[text:hello there] assistant[file:]"},
	} {
		all, problems := acpRead(t, tt.in)
		if got := acpOutline(all[0]); got != tt.want || len(problems) > 0 {
			t.Errorf("%s: %s, want %s; problems %v", name, got, tt.want, problems)
		}
		again, _ := acpRead(t, string(acpTrace(all[0])))
		if diff := cmp.Diff(acpGolden(t, all, nil), acpGolden(t, again, nil)); diff != "" {
			t.Errorf("%s: after a round trip:\n%s", name, diff)
		}
	}
}

// acpOutline is the roles, and the types and texts of parts.
func acpOutline(s *codec.Session) string {
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
func TestACPLogs(t *testing.T) {
	all, _ := acpRead(t, `{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"early"}}
{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","method":"log","params":{"level":"emergency","message":"late","data":{"a":[1]}}}
{"jsonrpc":"2.0","method":"log","params":{"sessionId":"s","level":"debug","message":"own"}}
`)
	if got := acpOutline(all[0]); got != "system[data-log: data-log: data-log:]" {
		t.Error(got)
	}
	again, _ := acpRead(t, string(acpTrace(all[0])))
	if diff := cmp.Diff(acpGolden(t, all, nil), acpGolden(t, again, nil)); diff != "" {
		t.Error(diff)
	}
}

func TestACPPermissionOutcomes(t *testing.T) {
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
		all, _ := acpRead(t, tt.in)
		s := all[0]
		part := s.Messages[1].Parts[0]
		if *part.ToolState != tt.state {
			t.Errorf("%s: state %s, want %s", name, *part.ToolState, tt.state)
		}
		if len(s.Decisions) != 1 || s.Decisions[0].Outcome != tt.outcome || s.Decisions[0].Reply != tt.reply ||
			s.Decisions[0].PartID != part.ID {
			t.Errorf("%s: decisions %+v", name, s.Decisions)
		}
		again, _ := acpRead(t, string(acpTrace(s)))
		if diff := cmp.Diff(acpGolden(t, all, nil), acpGolden(t, again, nil)); diff != "" {
			t.Errorf("%s: after a round trip:\n%s", name, diff)
		}
	}
}

func TestACPDamaged(t *testing.T) {
	all, problems := acpRead(t, "\uFEFFnot json\n[1]\n{}\n"+`{"jsonrpc":"2.0","id":9,"result":{}}
{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"plan"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":"text"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"hologram"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"brand_new","x":[1]},"extra":true}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"late","status":"completed"}}}
{"ts":"when","direction":"fromAgent","json":"{\"jsonrpc\":\"2.0\",\"method\":\"_own/thing\",\"params\":{\"sessionId\":\"s\"}}"}
{"jsonrpc":"2.0","method":"odd","params":[1]}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"`)
	acpCheckGolden(t, "damaged.golden", acpGolden(t, all, problems))
	again, _ := acpRead(t, string(acpTrace(all[0])))
	if diff := cmp.Diff(acpGolden(t, all, nil), acpGolden(t, again, nil)); diff != "" {
		t.Errorf("after a round trip:\n%s", diff)
	}
	for _, in := range []string{"hello\nthere", "[", "[1,2]", `{"a":1}`} {
		for s, err := range acpDecode(strings.NewReader(in), nil) {
			if err == nil {
				t.Errorf("%q: %v", in, s)
			}
		}
	}
	if all, _ := acpRead(t, " \n"); all != nil {
		t.Errorf("an empty trace has %d sessions", len(all))
	}
}

func TestACPTwoSessions(t *testing.T) {
	chunk := func(id, text string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + id +
			`","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}` +
			"\n"
	}
	all, _ := acpRead(t, chunk("one", "a")+chunk("two", "x")+chunk("one", "b")+chunk("two", "y"))
	if len(all) != 2 || acpOutline(all[0]) != "assistant[text:ab]" || acpOutline(all[1]) != "assistant[text:xy]" {
		t.Errorf("%d sessions", len(all))
	}
}

var acpForeignParts = []string{
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

func acpHandmade() *codec.Session {
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
			`"agenttrace":{"stop_reason":"stop","end_reason":"finish"}}`, 6000, acpForeignParts...)
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

// TestACPForeign: what others read of a session that no trace gave.
func TestACPForeign(t *testing.T) {
	acpCheckGolden(t, "foreign.golden.ndjson", string(acpTrace(acpHandmade())))
}

// A session in which nobody has said anything is still a session in what is written of it.
func TestACPSessionWithoutMessagesSurvives(t *testing.T) {
	const trace = `{"id":1,"method":"session/new"}` + "\n" + `{"id":1,"result":{"sessionId":"s"}}`
	for s, err := range acpDecode(strings.NewReader(trace), nil) {
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := acpEncode(&b, s); err != nil {
			t.Fatal(err)
		}
		n := 0
		for again, err := range acpDecode(&b, nil) {
			if n++; err != nil || again.Session.ID != "s" {
				t.Errorf("read session %v, %v", again, err)
			}
		}
		if n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
	}
}

func FuzzACPDecode(f *testing.F) { fuzz(f, "acp") }

// History that is replayed into a session which the trace already has is left
// out; into another, it is the session.
func TestACPReplay(t *testing.T) {
	const load = `{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"s","cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"q"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}}}
{"jsonrpc":"2.0","id":7,"result":null}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"b"}}}}
`
	all, problems := acpRead(t, load)
	if got := acpOutline(all[0]); got != "user[text:q] assistant[text:ab]" || len(problems) > 0 {
		t.Error(got, problems)
	}
	all, problems = acpRead(t, load+load)
	if got := acpOutline(all[0]); got != "user[text:q] assistant[text:abb]" || len(problems) != 1 {
		t.Error(got, problems)
	}
}

const acpOpening = `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"q"}]}}
`

// acpChunk is a line in which the agent says something.
func acpChunk(text string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",`+
			`"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`, text)
}

// TestACPStream reads lines as they come: short and very long, after a mark and space, to
// an end without a newline, and names those that are damaged by their number.
func TestACPStream(t *testing.T) {
	long := strings.Repeat("long ", 40_000)
	text := acpOpening + acpChunk(long) + "\n\nrubbish\n" + acpChunk("short ") + "\n" + acpChunk(long)
	for name, file := range map[string]string{
		"plain": text, "after a mark": "\uFEFF" + text, "carriage returns": strings.ReplaceAll(text, "\n", "\r\n"),
	} {
		for how, r := range map[string]io.Reader{"": strings.NewReader(file),
			"byte by byte": iotest.OneByteReader(strings.NewReader(file))} {
			var problems []string
			var said string
			for s, err := range acpDecode(r, func(p codec.Problem) { problems = append(problems, p.String()) }) {
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range s.Messages[1:] {
					for _, p := range m.Parts {
						said += p.DataJSON
					}
				}
			}
			if want := `{"type":"text","text":"` + long + "short " + long + `"}`; said != want {
				t.Errorf("%s %s: said %d bytes, want %d", name, how, len(said), len(want))
			}
			if d := cmp.Diff([]string{"line 6: not a JSON object: left out"}, problems); d != "" {
				t.Errorf("%s %s: problems (-want +got):\n%s", name, how, d)
			}
		}
	}
	for s, err := range acpDecode(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrClosedPipe)), nil) {
		if s != nil || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("an error of the reader: %v, %v", s, err)
		}
	}
}

// TestACPRetains bounds what is held in memory beside the rows when all messages were
// read: a trace may have hundreds of megabytes.
func TestACPRetains(t *testing.T) {
	var b strings.Builder
	b.WriteString(acpOpening)
	for i := range 400 {
		b.WriteString(acpChunk(fmt.Sprint(i, strings.Repeat(" word", 4000))) + "\n")
		b.WriteString(
			`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan",` +
				`"entries":[]}}}` + "\n")
	}
	text := b.String() + `{"jsonrpc":"2.0","id":77,"result":{}}` + "\n"
	held := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := held()
	messages, err := acpReadMessages(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	all := acpSessions(messages, func(codec.Problem) { // that of the last message
		ended = true
		if times := (held() - before) / float64(len(text)); times > 1.6 {
			t.Errorf("%.2f times the size of the trace is held, want that of the rows", times)
		}
	})
	if !ended || len(all) != 1 || len(all[0].Messages[1].Parts) != 800 {
		t.Errorf("%d sessions, and the end was met: %v", len(all), ended)
	}
	runtime.KeepAlive(text)
}

// What other projects' readers of the protocol make of a trace.

// acpDecodeOne reads a trace of one session.
func acpDecodeOne(t *testing.T, trace string) *codec.Session {
	t.Helper()
	var all []*codec.Session
	for s, err := range acpDecode(strings.NewReader(trace), func(p codec.Problem) { t.Error(p) }) {
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

func acpEncodeOne(t *testing.T, s *codec.Session) string {
	t.Helper()
	var b bytes.Buffer
	if err := acpEncode(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// acpAnswered is a session that no trace gave, of a question and an answer with the
// parts.
func acpAnswered(parts ...session.Part) *codec.Session {
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

func acpToolPart(id, state, rest string, from, to int64) session.Part {
	return session.Part{
		Type: "tool-bash", ToolCallID: &id, ToolState: &state, CreatedAt: from, UpdatedAt: to,
		DataJSON: `{"type":"tool-bash","toolCallId":"` + id + `","state":"` + state + `",` + rest + `}`,
	}
}

// acpOrder returns what happens to calls and files, in the order of the trace.
func acpOrder(trace string) (all []string) {
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
func TestACPCallsEndAfterTheirWork(t *testing.T) {
	text := session.Part{Type: "text", DataJSON: `{"type":"text","text":"done"}`, CreatedAt: 20, UpdatedAt: 20}
	tests := []struct {
		name, trace string
		want        []string
	}{
		{
			"parallel calls", acpEncodeOne(t, acpAnswered(acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 10),
				acpToolPart("c2", "output-error", `"input":{},"errorText":"e"`, 4, 9), text)),
			[]string{"begin c1", "begin c2", "end c2", "end c1", "text"},
		},
		{
			"calls one after another",
			acpEncodeOne(t, acpAnswered(acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 4),
				acpToolPart("c2", "output-available", `"input":{},"output":1`, 5, 6), text)),
			[]string{"begin c1", "end c1", "begin c2", "end c2", "text"},
		},
		{
			"a text that came meanwhile",
			acpEncodeOne(t, acpAnswered(acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 30), text)),
			[]string{"begin c1", "end c1", "text"},
		},
		{"a file, without times", acpEncodeOne(t, acpDecodeOne(t, `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c1","title":"t"}}}
{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"sessionId":"s","path":"/w/a"}}
{"jsonrpc":"2.0","id":"f","result":{"content":"x"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"ok"}}}}
`)), []string{"begin c1", "file", "end c1", "text"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, acpOrder(tt.trace)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A question is about the call that it was asked for, also if another call has the same id.
func TestACPQuestionAboutACallWithTheIDOfAnother(t *testing.T) {
	got := acpDecodeOne(t, acpEncodeOne(t, acpAnswered(acpToolPart("c1", "output-available", `"input":{},"output":1`, 3, 4),
		acpToolPart("c1", "output-available", `"input":{},"output":2,"approval":{"id":"a","approved":true}`, 5, 6))))
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
func TestACPVersion2Turns(t *testing.T) {
	at := 0
	line := func(direction, message string) string {
		at++
		return fmt.Sprintf(`{"ts":%d,"direction":%q,"json":%q}`+"\n", 1795198540000+at*100, direction, message)
	}
	client := func(message string) string { return line("fromClient", message) }
	agent := func(message string) string { return line("fromAgent", message) }
	s := acpDecodeOne(t,
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
	for _, l := range codec.Lost(s, acpDecodeOne(t, acpEncodeOne(t, s))) {
		switch l.What {
		case "ids and times", "other metadata": // of times
		default:
			t.Errorf("%d %s did not come back", l.Count, l.What)
		}
	}
}
