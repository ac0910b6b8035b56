package importer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	zsqlite "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// shown is what show prints of the sessions of files that are imported one after the other.
func shown(t testing.TB, paths ...string) string {
	t.Helper()
	db := filepath.Join(t.TempDir(), "s.db")
	for _, path := range paths {
		importFile(t, db, path)
	}
	r := reader(t, db)
	var b bytes.Buffer
	for s, err := range r.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		doc, err := document.Reader{Reader: r}.LoadAll(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := render.Document(&b, doc, render.Options{Width: 100, Now: time.UnixMilli(s.UpdatedAt)}); err != nil {
			t.Fatal(err)
		}
		if err := render.Permissions(&b, doc, render.Options{Width: 100, Now: time.UnixMilli(s.UpdatedAt)}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// shownLines is what show prints of a file of lines of JSON, whose name states the program.
func shownLines(t testing.TB, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, strings.Join(lines, "\n")+"\n")
	return shown(t, path)
}

// contains reports each text that is not in what is shown, whatever the spaces between its words.
func contains(t testing.TB, shown string, texts ...string) {
	t.Helper()
	shown = strings.Join(strings.Fields(shown), " ")
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			t.Errorf("no %q in\n%s", text, shown)
		}
	}
}

// TestCodexCallsEndAsTheyDid: a command that failed or was declined is not shown as if it had succeeded, a search that
// is done not as if it went on, and what the user ran by himself is no turn.
func TestCodexCallsEndAsTheyDid(t *testing.T) {
	n := 0
	record := func(kind, payload string) string {
		n++
		return fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:%02d.000Z","type":%q,"payload":%s}`, n, kind, payload)
	}
	item := func(payload string) string { return record("response_item", payload) }
	event := func(payload string) string { return record("event_msg", payload) }
	call := func(id string) string {
		return item(`{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"make ` + id +
			`\"}","call_id":"` + id + `"}`)
	}
	result := func(id, output string) string {
		return item(`{"type":"function_call_output","call_id":"` + id + `","output":"` + output + `"}`)
	}
	user := func(text string) string {
		return item(`{"type":"message","role":"user","content":[{"type":"input_text","text":"` + text + `"}]}`)
	}
	const header = `Chunk ID: 4c51\nWall time: 0.1 seconds\nProcess exited with code `
	got := shownLines(t, "rollout-1.jsonl",
		record("session_meta", `{"id":"c1","cwd":"/w","model_provider":"openai"}`),
		user(`<user_shell_command>\n<command>\nls\n</command>\n</user_shell_command>`),
		user("build it"),
		call("header"), result("header", header+`2\nOutput:\nno rule`),
		call("fine"), result("fine", header+`0\nOutput:\nProcess exited with code 7`),
		call("freeform"), result("freeform", `Exit code: 1\nWall time: 0 seconds\nOutput:\nno`),
		call("item"),
		event(`{"type":"item_completed","item":{"type":"CommandExecution","id":"item","command":["make"],`+
			`"source":"agent","status":"failed","exit_code":3}}`),
		result("item", "cut off"),
		call("late"), result("late", "cut off"),
		event(`{"type":"exec_command_end","call_id":"late","exit_code":1,"status":"failed"}`),
		call("declined"),
		event(`{"type":"item_completed","item":{"type":"CommandExecution","id":"declined","command":["make"],`+
			`"status":"declined","exit_code":-1}}`),
		result("declined", "it was not to be"),
		call("asked"), result("asked", "exec command rejected by user"),
		call("policy"), result("policy",
			"exec_command failed for `make`: CreateProcess { message: \\\"Rejected(\\\\\\\"forbidden\\\\\\\")\\\" }"),
		item(`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"go"}}`),
		item(`{"type":"custom_tool_call","name":"exec","input":"run()","call_id":"script"}`),
		event(`{"type":"item_completed","item":{"type":"CommandExecution","id":"nested","command":["go","vet"],`+
			`"source":"agent","status":"failed","exit_code":1,"aggregated_output":"vet: x"}}`),
		item(`{"type":"custom_tool_call_output","call_id":"script","output":[{"type":"input_text",`+
			`"text":"Script completed\nWall time 0.1 seconds\nOutput:\n"}]}`),
	)
	contains(t, got, "1 turn · 11 tool calls (5 failed, 3 denied)", "Turn 1",
		"make header ✗ failed", "make fine ✓", "make freeform ✗ failed", "make item ✗ failed", "make late ✗ failed",
		"make declined ⊘ denied", "make asked ⊘ denied ◇ ask (user) → human replied reject",
		"make policy ⊘ denied ◇ deny: exec_command failed for", "web_search go ✓", "exec run() ✓",
		`exec_command command: ["go","vet"] ✗ failed │ vet: x`)
}

// TestClaudeDecisionsAreShown: how it was decided whether a call may run, and a turn that ended in an error, which a
// reason of the model to stop does not contradict.
func TestClaudeDecisionsAreShown(t *testing.T) {
	n := 0
	record := func(kind, message, more string) string {
		n++
		return fmt.Sprintf(`{"type":%q,"sessionId":"s1","uuid":"u%d","parentUuid":"u%d","timestamp":`+
			`"2026-01-02T03:04:%02d.000Z","promptId":"p1","message":%s%s}`, kind, n, n-1, n, message, more)
	}
	call := func(id, result, more string) string {
		return record("assistant", `{"id":"m`+id+`","model":"claude-x","role":"assistant","content":[{"type":"tool_use",`+
			`"id":"`+id+`","name":"Bash","input":{"command":"run `+id+`"}}],"stop_reason":"tool_use"}`, "") + "\n" +
			record("user", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+id+`",`+result+`}]}`, more)
	}
	const rule = `"content":"Permission to use Bash with command rm has been denied.","is_error":true`
	lines := []string{
		record("user", `{"role":"user","content":"go"}`, ""),
		call("once", `"content":"a"`, `,"permissionDecision":{"decision":"accept","source":"user_temporary"}`),
		call("config", `"content":"b"`, `,"permissionDecision":{"decision":"accept","source":"config"}`),
		call("rule", rule, `,"toolDenialKind":"permission-rule","permissionDecision":{"decision":"reject",`+
			`"source":"config","reasonType":"rule","ruleSource":"userSettings"}`),
		call("older", rule, ""),
		call("person", `"content":"The user doesn't want to proceed with this tool use.","is_error":true`,
			`,"toolDenialKind":"user-rejected","permissionDecision":{"decision":"reject","source":"user_reject"}`),
		call("stopped", `"content":"The user doesn't want to take this action right now.","is_error":true`,
			`,"toolDenialKind":"cancelled"`),
		record("assistant", `{"id":"e1","model":"<synthetic>","role":"assistant","content":[{"type":"text",`+
			`"text":"API Error: 500"}],"stop_reason":"stop_sequence"}`, `,"isApiErrorMessage":true`),
	}
	got := shownLines(t, "s1.jsonl", lines...)
	both := []string{"go ✗ error", "run once ✓ ◇ ask (user_temporary) → human replied once",
		"run rule ⊘ denied ◇ deny (config)", "✗ API Error: 500"}
	contains(t, got, both...)
	contains(t, got, "6 tool calls (1 failed, 3 denied)", "run once ✓ ◇ ask (user_temporary) → human replied once",
		"run config ✓ ◇ allow (config)", "run rule ⊘ denied ◇ deny (config): Permission to use Bash",
		"run older ⊘ denied ◇ deny: Permission to use Bash",
		"run person ⊘ denied ◇ ask (user_reject) → human replied reject", "run stopped ✗ failed")

	telemetry := otlpLogs("com.anthropic.claude_code.events", claudeEvents(
		1, "user_prompt", `"prompt":"go"`,
		3, "tool_decision", `"decision":"accept","source":"user_temporary","tool_name":"Bash","tool_use_id":"once"`,
		7, "tool_decision", `"decision":"reject","source":"config","tool_name":"Bash","tool_use_id":"rule"`,
		14, "api_error", `"error":"API Error: 500","status_code":"500","model":"claude-x","query_source":"sdk"`)...)
	dir := t.TempDir()
	transcript, events := filepath.Join(dir, "s1.jsonl"), filepath.Join(dir, "logs.json")
	write(t, transcript, strings.Join(lines, "\n")+"\n")
	write(t, events, telemetry)
	for _, order := range [][]string{{transcript, events}, {events, transcript}} {
		got := shown(t, order...)
		contains(t, got, both...)
		if n := strings.Count(got, "human replied once"); n != 2 { // of the call, and among the permissions
			t.Errorf("the decision is shown %d times\n%s", n, got)
		}
	}
}

// claudeEvents are records of Claude Code's telemetry: the second, the name, and the attributes of each.
func claudeEvents(of ...any) (records []string) {
	for i := 0; i < len(of); i += 3 {
		at := time.Date(2026, 1, 2, 3, 4, of[i].(int), 0, time.UTC).UnixNano()
		var all map[string]string
		_ = json.Unmarshal([]byte("{"+of[i+2].(string)+"}"), &all)
		all["session.id"], all["prompt.id"], all["event.name"] = "s1", "p1", of[i+1].(string)
		all["event.timestamp"] = time.Unix(0, at).UTC().Format("2006-01-02T15:04:05.000Z")
		var attrs []string
		for _, key := range slices.Sorted(maps.Keys(all)) {
			attrs = append(attrs, fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, key, all[key]))
		}
		records = append(records, fmt.Sprintf(`{"timeUnixNano":"%d","body":{"stringValue":"claude_code.%s"},`+
			`"attributes":[%s]}`, at, of[i+1], strings.Join(attrs, ",")))
	}
	return records
}

// otlpLogs is a request of log records of a scope.
func otlpLogs(scope string, records ...string) string {
	return fmt.Sprintf(`{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":`+
		`"claude-code"}}]},"scopeLogs":[{"scope":{"name":%q},"logRecords":[%s]}]}]}`, scope, strings.Join(records, ","))
}

// TestCopilotTranscriptBesideItsTelemetry has one session of three processes be the same whether its transcript, its
// telemetry or both are imported, in either order: the turns, the calls and the tokens that the program printed. The
// files are of GitHub Copilot CLI 1.0.102, with the parts left out that are long.
func TestCopilotTranscriptBesideItsTelemetry(t *testing.T) {
	telemetry, err := filepath.Glob("testdata/copilot/*-traces.json")
	if err != nil || len(telemetry) != 3 {
		t.Fatal(telemetry, err)
	}
	transcript := filepath.Join(t.TempDir(), "790fe5a9-8168-4d3f-ad2b-43aede819b5d", "events.jsonl")
	text, err := os.ReadFile("testdata/copilot/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	write(t, transcript, string(text))
	files := append([]string{transcript}, telemetry...)
	backward := slices.Clone(files)
	slices.Reverse(backward)
	for name, files := range map[string][]string{"transcript": {transcript}, "telemetry": telemetry,
		"transcript first": files, "telemetry first": backward} {
		got := shown(t, files...)
		contains(t, got, "What is in crate.txt? ✓ finished", "3 turns · 4 tool calls", "12,079 tokens",
			"❯ What is in crate.txt? ◦ context: text: <current_datetime>2026-11-24T17:38:22.617+00:00</current_datetime>",
			"● Opening the crate 1. ▸ bash cat crate.txt ✓", "● Seven lemons 2.", "❯ And the second question?",
			"total 2,840 162 17 9,060 0 12,079")
		if strings.Contains(got, "notice") || strings.Count(got, "● Seven lemons 2.") != 1 || t.Failed() {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// TestCopilotTotalsOfEachExitAreCountedOnce: versions that write no usage of single calls write what all exits so far
// add up to.
func TestCopilotTotalsOfEachExitAreCountedOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/copilot/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.Contains(line, `"session.usage_record"`)
	})
	transcript := filepath.Join(t.TempDir(), "790fe5a9-8168-4d3f-ad2b-43aede819b5d", "events.jsonl")
	write(t, transcript, strings.Join(lines, "\n"))
	got := shown(t, transcript)
	if contains(t, got, "3 turns · 4 tool calls", "12,079 tokens"); t.Failed() {
		t.Error(got)
	}
}

// TestWordsOfTheUserAreShownApart: what a client puts around what the user wrote is neither the user's message nor the
// title of the session.
func TestWordsOfTheUserAreShownApart(t *testing.T) {
	const reminder = `<system-reminder>\nToday is Friday.\n</system-reminder>\n`
	claude := `{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":` +
		`"user","content":[{"type":"text","text":"<ide_opened_file>a.go</ide_opened_file>"},{"type":"text","text":"` +
		reminder + `fix it"}]}}`
	codex := `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"c1"}}` + "\n" +
		`{"timestamp":"2026-01-02T03:04:06.000Z","type":"response_item","payload":{"type":"message","role":"user",` +
		`"content":[{"type":"input_text","text":"<environment_context>linux</environment_context>"},{"type":` +
		`"input_text","text":"# Context from my IDE setup:\n\n## Active file: a.go\n\n## My request for Codex:\nfix it"}]}}`
	events := otlpLogs("com.anthropic.claude_code.events",
		claudeEvents(5, "user_prompt", `"prompt":"`+reminder+`fix it"`)...)
	tagged := strings.Replace(claude, reminder+"fix it", `<user_input id=\"1\">fix it</user_input>`, 1)
	for name, text := range map[string]string{"s1.jsonl": claude, "rollout-1.jsonl": codex, "logs.json": events,
		"s2.jsonl": tagged} {
		got := shownLines(t, name, text)
		contains(t, got, "── Turn 1 ", "❯ fix it ◦ context: text:")
		if !strings.HasPrefix(got, "fix it\n") || strings.Contains(got, "❯ <") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// TestTailOfACompactionIsKept: what a compaction left in the model's context is known, also where it begins in the
// midst of a turn.
func TestTailOfACompactionIsKept(t *testing.T) {
	n := 0
	entry := func(kind, more string) string {
		n++
		return fmt.Sprintf(`{"type":%q,"id":"e%d","parentId":"e%d","timestamp":"2026-01-02T03:04:%02d.000Z",%s}`,
			kind, n, n-1, n, more)
	}
	says := func(text string) string {
		return entry("message", `"message":{"role":"assistant","content":[{"type":"text","text":"`+text+
			`"}],"stopReason":"toolUse","usage":{"input":1,"output":1}}`)
	}
	pi := filepath.Join(t.TempDir(), "pi.jsonl")
	write(t, pi, strings.Join([]string{
		`{"type":"session","version":3,"id":"p1","timestamp":"2026-01-02T03:04:00.000Z","cwd":"/w"}`,
		entry("message", `"message":{"role":"user","content":"go"}`), says("one"), says("two"), says("three"),
		entry("compaction", `"summary":"one was said","firstKeptEntryId":"e3","tokensBefore":90`), says("four"),
	}, "\n")+"\n")

	n = 0
	record := func(kind, more string) string {
		n++
		return fmt.Sprintf(`{"type":%q,"sessionId":"p1","uuid":"e%d","parentUuid":%q,"timestamp":`+
			`"2026-01-02T03:04:%02d.000Z",%s}`, kind, n, map[bool]string{true: fmt.Sprintf("e%d", n-1)}[n > 1], n, more)
	}
	answer := func(id, text string) string {
		return record("assistant", `"message":{"id":"`+id+`","model":"claude-x","role":"assistant","content":`+
			`[{"type":"text","text":"`+text+`"}]}`)
	}
	claude := filepath.Join(t.TempDir(), "claude.jsonl")
	write(t, claude, strings.Join([]string{
		record("user", `"message":{"role":"user","content":"before"}`), answer("m0", "one"),
		record("user", `"message":{"role":"user","content":"go"}`), answer("m1", "two"), answer("m2", "three"),
		record("system", `"subtype":"compact_boundary","compactMetadata":{"trigger":"auto","preTokens":90,`+
			`"preservedSegment":{"headUuid":"e4","anchorUuid":"e7","tailUuid":"e5"}}`),
		record("user", `"isCompactSummary":true,"message":{"role":"user","content":"one was said"}`),
		answer("m3", "four"),
	}, "\n")+"\n")
	for _, path := range []string{pi, claude} {
		db := filepath.Join(t.TempDir(), "s.db")
		importFile(t, db, path)
		r := reader(t, db)
		doc, err := document.Reader{Reader: r}.LoadAll(t.Context(), "p1")
		if err != nil {
			t.Fatal(err)
		}
		tail, texts := "", make(map[string]string)
		for _, turn := range doc.Turns {
			for _, m := range turn.Messages {
				if m.Compaction != nil {
					tail = m.Compaction.TailStartID
				}
				for _, p := range m.Parts {
					texts[m.ID] += p.Text
				}
			}
		}
		if got := texts[tail]; got != "twothree" {
			t.Errorf("%s: the tail begins with %q of %q", filepath.Base(path), got, texts)
		}
	}
}

// TestGooseTextBeforeACallIsShownBeforeIt: an answer of Goose has its parts in their order.
func TestGooseTextBeforeACallIsShownBeforeIt(t *testing.T) {
	got := shownLines(t, "20260102_030405.jsonl", `{"working_dir":"/w","description":"d","message_count":3}`,
		`{"id":"g1","role":"user","created":1767323045,"content":[{"type":"text","text":"list"}]}`,
		`{"id":"g2","role":"assistant","created":1767323046,"content":[{"type":"text","text":"I look."},`+
			`{"type":"toolRequest","id":"t1","toolCall":{"status":"success","value":{"name":"shell","arguments":`+
			`{"command":"ls"}}}},{"type":"text","text":"Wait."}]}`,
		`{"id":"g3","role":"user","created":1767323047,"content":[{"type":"toolResponse","id":"t1","toolResult":`+
			`{"status":"success","value":[{"type":"text","text":"a.go"}]}}]}`)
	contains(t, got, "● I look. ▸ shell ls ✓ │ a.go ● Wait.")
}

// TestLogsOfACPBeforeThePromptAreNoTurn: logs of a session and of the connection come before the first prompt, begin no
// turn, and are written again as they were.
func TestLogsOfACPBeforeThePromptAreNoTurn(t *testing.T) {
	const connection = `{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"connected"}}`
	path := filepath.Join(t.TempDir(), "trace.ndjson")
	write(t, path, strings.Join([]string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"logging":{}}}}`,
		`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}`, connection,
		`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"sessionId":"a1"}}`,
		`{"jsonrpc":"2.0","method":"log","params":{"sessionId":"a1","level":"warning","message":"slow"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"a1","prompt":[{"type":"text",` +
			`"text":"go"}]}}`,
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a1","update":{"sessionUpdate":` +
			`"agent_message_chunk","content":{"type":"text","text":"done"}}}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}`,
	}, "\n")+"\n")
	got := shown(t, path)
	contains(t, got, "1 turn", "connected", "slow", "❯ go", "● done")

	s := stored(t, path, "a1")
	again := inFormat(t, s, "acp")
	for text, want := range map[string]string{"connected": "", "slow": "a1"} {
		i := strings.Index(again, text)
		if i < 0 {
			t.Fatalf("no log %q in\n%s", text, again)
		}
		line := again[strings.LastIndex(again[:i], "\n")+1:]
		line, _, _ = strings.Cut(line, "\n")
		if got := strings.Contains(line, "a1"); got != (want != "") {
			t.Errorf("log %q: %s", text, line)
		}
	}
}

// TestInterruptedSessionIsNotClosed: what an agent left that was killed while a tool ran has no end in the formats of
// other programs either.
func TestInterruptedSessionIsNotClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s1.jsonl")
	write(t, path, `{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":`+
		`"user","content":"go"}}`+"\n"+
		`{"type":"assistant","sessionId":"s1","uuid":"u2","parentUuid":"u1","timestamp":"2026-01-02T03:04:06.000Z",`+
		`"message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"tool_use","id":"t1",`+
		`"name":"Bash","input":{"command":"sleep 9"}}],"stop_reason":"tool_use"}}`+"\n")
	s := stored(t, path, "s1")
	run, log := inFormat(t, s, "agentdbg"), inFormat(t, s, "skillet")
	contains(t, run, `"status": "running"`, `"ended_at": null`)
	if strings.Contains(run, "RUN_END") || strings.Contains(log, "final_result") {
		t.Errorf("the session has an end in\n%s\n%s", run, log)
	}
}

// TestRejectedCallOfJutulIsDenied: a call that a person rejected has no result in a trace of jutul-agent.
func TestRejectedCallOfJutulIsDenied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.sqlite")
	conn, err := zsqlite.OpenConn(path, zsqlite.OpenReadWrite, zsqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	script := `CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, kind TEXT NOT NULL,
		payload_json TEXT NOT NULL);`
	for i, event := range []string{
		`session_start {"session_id":"2026-01-02-0304-abcd","simulator":"jutul"}`, `message_user {"content":"go"}`,
		`tool_call {"id":"t1","name":"run_julia","args":{"code":"1+1"}}`,
		`hitl_request {"interrupt_id":"0af7651916cd43dd8448eb211c80319c","value":{"action_requests":[{"name":` +
			`"run_julia","args":{"code":"1+1"}}]}}`,
		`hitl_response {"interrupt_id":"0af7651916cd43dd8448eb211c80319c","payload":{"decisions":[{"type":"reject",` +
			`"message":"not now"}]}}`,
		`message_assistant {"content":"I will not run it."}`,
	} {
		kind, payload, _ := strings.Cut(event, " ")
		script += fmt.Sprintf("INSERT INTO events(timestamp, kind, payload_json) VALUES "+
			"('2026-01-02T03:04:%02d+00:00', '%s', '%s');", i, kind, payload)
	}
	if err := errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
	got := shown(t, path)
	contains(t, got, "run_julia", "⊘ denied", "human replied reject", "not now")
	if strings.Contains(got, "no result") {
		t.Error(got)
	}
}

// TestImagesOfToolsAreImagesInPi: an image that a tool returned is an image in a session of Pi, not a text.
func TestImagesOfToolsAreImagesInPi(t *testing.T) {
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	path := filepath.Join(t.TempDir(), "s1.jsonl")
	write(t, path, `{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":`+
		`"user","content":"look"}}`+"\n"+
		`{"type":"assistant","sessionId":"s1","uuid":"u2","parentUuid":"u1","timestamp":"2026-01-02T03:04:06.000Z",`+
		`"message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"tool_use","id":"t1",`+
		`"name":"Read","input":{"file_path":"a.png"}}]}}`+"\n"+
		`{"type":"user","sessionId":"s1","uuid":"u3","parentUuid":"u2","timestamp":"2026-01-02T03:04:07.000Z","message":`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a.png:"},`+
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+png+`"}}]}]}}`+"\n")
	s := stored(t, path, "s1")
	file := inFormat(t, s, "pi")
	contains(t, file, `"content":[{"type":"text","text":"a.png:"},{"type":"image","data":"`+png+
		`","mimeType":"image/png"}]`)
}

// TestRunsOfAgentDbgHaveItsTypesAndBounds: a result that is an array is in an object, and a text is cut where AgentDbg
// cuts it.
func TestRunsOfAgentDbgHaveItsTypesAndBounds(t *testing.T) {
	long := strings.Repeat("é", 15_000)
	path := filepath.Join(t.TempDir(), "s1.jsonl")
	write(t, path, `{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":`+
		`"user","content":"look"}}`+"\n"+
		`{"type":"assistant","sessionId":"s1","uuid":"u2","parentUuid":"u1","timestamp":"2026-01-02T03:04:06.000Z",`+
		`"message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"text","text":"`+long+`"},`+
		`{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"a"}}]}}`+"\n"+
		`{"type":"user","sessionId":"s1","uuid":"u3","parentUuid":"u2","timestamp":"2026-01-02T03:04:07.000Z","message":`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"},`+
		`{"type":"text","text":"b"}]}]}}`+"\n")
	s := stored(t, path, "s1")
	run := inFormat(t, s, "agentdbg")
	contains(t, run, `"result": { "value": [`, `é__TRUNCATED__"`)
	if strings.Contains(run, strings.Repeat("é", 10_000)) {
		t.Error("a text is longer than AgentDbg has them")
	}
}

// stored imports a file, and returns the session that is in it.
func stored(t *testing.T, path, id string) *codec.Session {
	t.Helper()
	db := filepath.Join(t.TempDir(), "s.db")
	importFile(t, db, path)
	r := reader(t, db)
	s, err := formats.Read(t.Context(), r, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inFormat returns a session in a format.
func inFormat(t *testing.T, s *codec.Session, format string) string {
	t.Helper()
	var b strings.Builder
	if err := formats.Named(format, nil).Stream(&b)(&formats.Source{Session: s}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// reader reads a store until the test ends.
func reader(t testing.TB, db string) *sqlite.Reader {
	t.Helper()
	r, err := sqlite.OpenReader(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}
