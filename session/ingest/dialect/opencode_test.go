package dialect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

func TestOpenCodeCapture(t *testing.T) {
	facts, rest := capturedBy(t, "opencode", "opencode-1.18.33/serve-bash")
	if len(facts) != 28 || rest != 1047 {
		t.Errorf("%d facts, %d not read, want 28 and 1047", len(facts), rest)
	}
	const (
		user  = `{"role":"user","parts":[{"kind":"text","text":"\"List the files here\""}]}`
		model = `"model":{"provider_id":"fake.chat","model_id":"fake-model"}`
		ls    = `"total 24\ndrwxr-xr-x  3 root root 4096 Nov 20 18:19 .\ndrwxr-xr-x 17 root root 4096 Nov 20 18:21 ` +
			`..\ndrwxr-xr-x  7 root root 4096 Nov 20 18:19 .git\n-rw-r--r--  1 root root    6 Nov 20 18:19 ` +
			`README.md\n-rw-r--r--  1 root root   13 Nov 20 18:19 main.go\n-rw-r--r--  1 root root  423 Nov 20 18:19 ` +
			`opencode.json\n"`
		call  = `{"kind":"call","call":"call_16","name":"bash","input":{"command":"ls -la","description":"List files"}}`
		extra = `"ai.response.providerMetadata":{"fake":{}},"ai.response.timestamp":"1970-01-01T00:00:01.000Z",` +
			`"ai.settings.maxOutputTokens":4000}}`
	)
	if diff := cmp.Diff([]string{
		`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","request":"84202f07ff11ab25",` +
			`"requires_turn":true,"purpose":"title",` + model + `,"input":[{"role":"user","parts":[{"kind":"text",` +
			`"text":"Generate a title for this conversation:\n"}]},` + user + `],"output":[{"kind":"text",` +
			`"text":"Greeting and listing "}],"system_prompt_digest":"yes","usage":{"tokens":{"input":403,` +
			`"output":23,"reasoning":7,"cache_read":512,"cache_write":0},"basis":"inclusive"},` +
			`"response_id":"chatcmpl-15","response_model":"fake-model","finish":"stop",` +
			`"extra":{"ai.response.msToFinish":75.32066000000123,"ai.response.msToFirstChunk":65.3969990000005,` +
			extra,
		`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","request":"29ac891a5990869a",` +
			`"requires_turn":true,` + model + `,"input":[` + user + `],"output":[` + call +
			`],"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":404,"output":23,` +
			`"reasoning":7,"cache_read":512,"cache_write":0},"basis":"inclusive"},"response_id":"chatcmpl-16",` +
			`"response_model":"fake-model","finish":"tool-calls",` +
			`"extra":{"ai.response.msToFinish":1007.2077539999991,"ai.response.msToFirstChunk":27.187699999998586,` +
			extra,
		`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","request":"9b291136e8f7e18e",` +
			`"requires_turn":true,` + model + `,"input":[` + user + `,{"role":"assistant","parts":[` + call +
			`]},{"role":"tool","parts":[{"kind":"result","call":"call_16","name":"bash","output":` + ls +
			`}]}],"output":[{"kind":"text","text":"All done: the tool result has been read. "}],` +
			`"system_prompt_digest":"yes","tool_catalog_digest":"yes","usage":{"tokens":{"input":405,"output":23,` +
			`"reasoning":7,"cache_read":512,"cache_write":0},"basis":"inclusive"},"response_id":"chatcmpl-17",` +
			`"response_model":"fake-model","finish":"stop","extra":{"ai.response.msToFinish":64.24835099999837,` +
			`"ai.response.msToFirstChunk":34.48880499999723,` + extra,
	}, ofKind(t, facts, fact.ModelCall)); diff != "" {
		t.Error("calls of the model (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"tool_call","dialect":"","name":"Tool.execute","call":"call_16","requires_turn":true,` +
			`"tool":{"name":"bash","succeeded":true},"extra":{"message.id":"msg_1fa310659001BuUDTvT8Ql3aDK"}}`,
		`{"kind":"tool_call","dialect":"","name":"ai.toolCall","call":"call_16","tool":{"name":"bash",` +
			`"input":{"command":"ls -la","description":"List files"},"output":{"title":"ls -la","metadata":{"output":` +
			ls + `,"exit":0,"truncated":false},"output":` + ls + `},"succeeded":true}}`,
	}, ofKind(t, facts, fact.ToolCall)); diff != "" {
		t.Error("calls of tools (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"permission","dialect":"","name":"evaluated","decision":{"tool":"bash","pattern":"ls -la",` +
			`"action":"allow","outcome":"allowed","source":"rule"},"extra":{"rule":{"permission":"*",` +
			`"action":"allow","pattern":"*"}}}`,
		`{"kind":"permission","dialect":"","name":"Permission.ask","decision":{"action":"","outcome":"allowed"}}`,
	}, ofKind(t, facts, fact.Permission)); diff != "" {
		t.Error("permissions (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"session","dialect":"","name":"created","session_attrs":{"workspace_root":"/home/dev/project",` +
			`"rules":[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter",` +
			`"pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}],` +
			`"client":"opencode 1.18.33"},"extra":{"projectID":"global","slug":"glowing-wizard"}}`,
		`{"kind":"session","dialect":"","name":"ai.streamText.doStream",` +
			`"session_attrs":{"title":"Greeting and listing"}}`,
	}, ofKind(t, facts, fact.Session)); diff != "" {
		t.Error("session (-want +got):", diff)
	}
	if diff := cmp.Diff([]string{
		`{"kind":"turn","dialect":"","name":"SessionPrompt.run","session_attrs":{"client":"opencode 1.18.33"}}`,
	}, ofKind(t, facts, fact.Turn)); diff != "" {
		t.Error("turn (-want +got):", diff)
	}
	for _, f := range facts {
		if f.Session != "" && (f.Session != "ses_e05cf0965ffe7aAkDJwwC6DaRu" || f.SessionKey != "session.id" ||
			f.SessionRank != 0) {
			t.Errorf("%s: session %q of %q, rank %d", f.Name, f.Session, f.SessionKey, f.SessionRank)
		}
		if f.Session == "" && (f.Kind == fact.ModelCall || f.Kind == fact.ToolCall || f.Kind == fact.Session) {
			t.Errorf("%s has no session", f.Name)
		}
	}
}

// Of everything that reports a session, each ancestor up to the turn is known, and
// no span but those is read.
func TestOpenCodeChains(t *testing.T) {
	facts, _ := capturedBy(t, "opencode", "opencode-1.18.33/serve-bash")
	spans := map[string]fact.Fact{}
	for _, f := range facts {
		if f.ParentID != "" && f.Kind != fact.Session {
			spans[f.SpanID] = f
		}
	}
	var chains []string
	needed := map[string]bool{}
	for _, f := range facts {
		if f.Kind != fact.ModelCall && f.Kind != fact.ToolCall && f.Kind != fact.Permission && f.Name != "stream" {
			continue
		}
		chain := []string{f.Name}
		next := f.ParentID
		if next == "" { // a record
			next = f.SpanID
		}
		for ; next != ""; next = spans[next].ParentID {
			needed[next] = true
			if chain = append(chain, spans[next].Name); spans[next].Kind == fact.Turn || spans[next].Name == "" {
				break
			}
		}
		needed[f.SpanID] = true
		chains = append(chains, strings.Join(chain, " < "))
	}
	const call = "ai.streamText < LLM.run < SessionProcessor.process < SessionPrompt.run"
	const tool = "Tool.execute < SessionTools.resolve < SessionPrompt.run"
	if diff := cmp.Diff([]string{
		"ai.streamText.doStream < ai.streamText < LLM.run < SessionPrompt.ensureTitle < SessionPrompt.run",
		"stream < LLM.run < SessionPrompt.ensureTitle < SessionPrompt.run",
		"stream < LLM.run < SessionProcessor.process < SessionPrompt.run",
		"evaluated < Permission.ask < ShellTool.ask < " + tool,
		"Permission.ask < ShellTool.ask < " + tool,
		tool,
		"ai.toolCall < " + call,
		"ai.streamText.doStream < " + call,
		"stream < LLM.run < SessionProcessor.process < SessionPrompt.run",
		"ai.streamText.doStream < " + call,
	}, chains); diff != "" {
		t.Error("chains (-want +got):", diff)
	}
	var others []string
	for id, f := range spans {
		if !needed[id] {
			others = append(others, f.Name)
		}
	}
	// A sub-agent's turn is below these, and the next step's tools below the last.
	if diff := cmp.Diff(map[string]int{"SessionRunState.ensureRunning": 1, "SessionPrompt.loop": 1,
		"SessionPrompt.prompt": 1, "SessionTools.resolve": 1}, counts(others)); diff != "" {
		t.Error("spans that nothing is below (-want +got):", diff)
	}
}

func counts(names []string) map[string]int {
	n := map[string]int{}
	for _, name := range names {
		n[name]++
	}
	return n
}

func TestOpenCodeSpans(t *testing.T) {
	interrupted := func(s ptrace.Span) { s.Status().SetCode(ptrace.StatusCodeOk) }
	for _, test := range []struct {
		name, span string
		attrs      map[string]any
		more       func(ptrace.Span)
		want       string
	}{
		{"an ask that a person refused", "Permission.ask", nil,
			func(s ptrace.Span) {
				failWith(s, "PermissionCorrectedError",
					"The user rejected permission to use this specific tool call with the following feedback: use "+
						"git rm")
			},
			`{"kind":"permission","dialect":"","name":"Permission.ask","decision":{"action":"ask","outcome":"denied",` +
				`"reply":"reject","source":"user","reason":"use git rm","waited_ms":1500}}`},
		{"an ask that a person refused without a word", "Permission.ask", nil,
			func(s ptrace.Span) {
				failWith(s, "Error", "The user rejected permission to use this specific tool call.")
			},
			`{"kind":"permission","dialect":"","name":"Permission.ask","decision":{"action":"ask","outcome":"denied",` +
				`"reply":"reject","source":"user","waited_ms":1500}}`},
		{"an ask that a rule refused", "Permission.ask", nil,
			func(s ptrace.Span) { failWith(s, "PermissionDeniedError", deniedByRule+" Here are []") },
			`{"kind":"permission","dialect":"","name":"Permission.ask","decision":{"action":"deny",` +
				`"outcome":"denied","source":"rule",` +
				`"reason":"The user has specified a rule which prevents you from using this specific tool call. Here ` +
				`are []"}}`},
		{"an ask that was left", "Permission.ask",
			map[string]any{"status.interrupted": true, "span.label": "⚠︎ Interrupted"},
			interrupted,
			`{"kind":"step","dialect":"","name":"Permission.ask","aborted":true}`},
		{"an ask that broke", "Permission.ask", nil,
			func(s ptrace.Span) { failWith(s, "Error", "disk full") },
			`{"kind":"permission","dialect":"","name":"Permission.ask","failed":true,"error":"disk full",` +
				`"error_type":"Error","decision":{"action":""}}`},
		{"a refused tool", "Tool.execute", map[string]any{"tool.name": "bash", "tool.call_id": "c"},
			func(s ptrace.Span) {
				failWith(s, "Error", "The user rejected permission to use this specific tool call.")
			},
			`{"kind":"tool_call","dialect":"","name":"Tool.execute","call":"c","requires_turn":true,"failed":true,` +
				`"error":"The user rejected permission to use this specific tool call.","error_type":"Error",` +
				`"tool":{"name":"bash","denied":true}}`},
		{"an interrupted tool", "Tool.execute", map[string]any{"tool.name": "bash", "tool.call_id": "c",
			"status.interrupted": true}, interrupted,
			`{"kind":"tool_call","dialect":"","name":"Tool.execute","call":"c","requires_turn":true,"aborted":true,` +
				`"tool":{"name":"bash"}}`},
		{"a sub-agent", "TaskTool.execute", nil, nil,
			`{"kind":"step","dialect":"","name":"TaskTool.execute"}`},
		{"a compaction", "SessionCompaction.process", nil, nil,
			`{"kind":"compaction","dialect":"","name":"SessionCompaction.process","compacted":{}}`},
		{"a compaction's call", "ai.streamText.doStream",
			map[string]any{"ai.operationId": "ai.streamText.doStream",
				"ai.prompt.messages": `[{"role":"system","content":"You are an anchored context summarization assistant for coding sessions."},{"role":"user","content":[{"type":"text","text":"Hi"}]}]`, "ai.response.text": "## Objective", "ai.response.finishReason": "stop"}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","request":"0300000000000000",` +
				`"requires_turn":true,"purpose":"compaction","input":[{"role":"user","parts":[{"kind":"text",` +
				`"text":"Hi"}]}],"output":[{"kind":"text","text":"## Objective"}],"system_prompt_digest":"yes",` +
				`"finish":"stop"}`},
		{"an aborted call, of which only the root is left", "ai.streamText",
			map[string]any{"ai.operationId": "ai.streamText", "ai.telemetry.functionId": "session.llm",
				"ai.prompt":                    `{"messages":[{"role":"user","content":"Hi"}]}`,
				"ai.telemetry.metadata.userId": "unknown"}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.streamText","request":"0200000000000000",` +
				`"requires_turn":true,"input":[{"role":"user","parts":[{"kind":"text","text":"Hi"}]}],` +
				`"unfinished":true}`},
		{"an object, which is no part of a loop", "ai.generateObject",
			map[string]any{"ai.operationId": "ai.generateObject", "ai.prompt": `{"prompt":"An agent for tests"}`,
				"ai.response.object": "{}", "ai.response.finishReason": "stop"}, nil,
			`{"kind":"turn","dialect":"","name":"ai.generateObject","input":[{"role":"user","parts":[{"kind":"text",` +
				`"text":"An agent for tests"}]}],"output":[{"kind":"text","text":"{}"}],"finish":"stop"}`},
		{"a tool whose output was cut", "ai.toolCall",
			map[string]any{"ai.operationId": "ai.toolCall", "ai.toolCall.name": "read", "ai.toolCall.id": "c",
				"ai.toolCall.result": `{"output":"x","metadata":{"truncated":true}}`}, nil,
			`{"kind":"tool_call","dialect":"","name":"ai.toolCall","call":"c","tool":{"name":"read",` +
				`"output":{"output":"x","metadata":{"truncated":true}},"succeeded":true,"truncated":true}}`},
		{"a user who types a prompt of opencode's", "ai.streamText.doStream",
			map[string]any{"ai.operationId": "ai.streamText.doStream",
				"ai.prompt.messages": `[{"role":"user","content":"Generate a title for this conversation:"}]`,
				"ai.prompt.tools":    []any{`{"name":"bash"}`}}, nil,
			`{"kind":"model_call","dialect":"","name":"ai.streamText.doStream","request":"0300000000000000",` +
				`"requires_turn":true,"input":[{"role":"user","parts":[{"kind":"text",` +
				`"text":"Generate a title for this conversation:"}]}],"tool_catalog_digest":"yes","unfinished":true}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, got := spanWith(t, "opencode", test.span, test.attrs, test.more)
			if got.dialect != "opencode" {
				t.Errorf("read by %q", got.dialect)
			}
			if diff := cmp.Diff(test.want+"\n", lines(t, []fact.Fact{one(t, got.facts)})); diff != "" {
				t.Error("(-want +got):", diff)
			}
		})
	}
	for _, noise := range []string{"sql.execute", "FileSystem.readJson", "State.reload.update",
		"SessionCompaction.prune",
		"ShellTool.run", "Session.create", "http.server POST"} {
		if _, got := spanOf(t, "opencode", noise, map[string]any{"session.id": "s"}); got.dialect != "" {
			t.Errorf("%s is read by %q", noise, got.dialect)
		}
	}
}

func TestOpenCodeTitle(t *testing.T) {
	for text, want := range map[string]string{
		"<think>\nhm\n</think>\n\n  A title \nmore": "A title",
		"<think>never ends":                         "<think>never ends",
		"\n \n":                                     "",
		strings.Repeat("é", 101):                    strings.Repeat("é", 97) + "...",
	} {
		if got := openCodeTitle([]fact.Part{{Kind: fact.PartReasoning, Text: "no"},
			{Kind: fact.PartText, Text: text}}); got != want {
			t.Errorf("title of %q is %q, want %q", text, got, want)
		}
	}
}

// openCodeRecordOf reads a record whose body is a list.
func openCodeRecordOf(t *testing.T, body ...any) []fact.Fact {
	t.Helper()
	r := plog.NewLogRecord()
	r.SetTimestamp(1_790_000_002_000_000_000)
	r.SetSpanID(pcommon.SpanID{4})
	if err := r.Body().SetEmptySlice().FromRaw(body); err != nil {
		t.Fatal(err)
	}
	scope := pcommon.NewInstrumentationScope()
	scope.SetName("opencode")
	return readRecord(r, scope, pcommon.NewResource()).facts
}

func TestOpenCodeRecords(t *testing.T) {
	for _, test := range []struct {
		name, message string
		detail        any
		session, want string
	}{
		{"a sub-agent's session", "created",
			`{"id":"ses_2","directory":"/w","workspaceID":undefined,"parentID":"ses_1",` +
				`"title":"Look \"undefined\" up (@explore subagent)","agent":"explore","model":{"providerID":"p",` +
				`"id":"m","variant":"high"},"permission":undefined,"version":"2.0"}`, "ses_2",
			`{"kind":"session","dialect":"","name":"created","agent":"explore","model":{"provider_id":"p",` +
				`"model_id":"m","variant":"high"},` +
				`"session_attrs":{"title":"Look \"undefined\" up (@explore subagent)","workspace_root":"/w",` +
				`"parent_session":"ses_1","client":"opencode 2.0"}}`},
		{"a session that was cut", "created",
			`{"id":"ses_3","directory":"/w","parentID":undefined,"title":"New session - 2026-11-20T18:21:15.290Z",` +
				`"permission":[{"permis`, "ses_3",
			`{"kind":"session","dialect":"","name":"created","session_attrs":{"workspace_root":"/w"},` +
				`"problems":["the record could not be read whole"]}`},
		{"something else that was created", "created", `{"id":"pty_1"}`, "", ""},
		{"an ask", "evaluated",
			`{"permission":"edit","pattern":"src/a.go","action":{"action":"ask","permission":"edit","pattern":"*"}}`,
			"",
			`{"kind":"permission","dialect":"","name":"evaluated","decision":{"tool":"edit","pattern":"src/a.go",` +
				`"action":"ask","outcome":"pending"},"extra":{"rule":{"action":"ask","permission":"edit",` +
				`"pattern":"*"}}}`},
		{"a refusal, as a map", "evaluated", map[string]any{"permission": "bash", "pattern": "rm *",
			"action": map[string]any{"action": "deny"}}, "",
			`{"kind":"permission","dialect":"","name":"evaluated","decision":{"tool":"bash","pattern":"rm *",` +
				`"action":"deny","outcome":"denied","source":"rule"},"extra":{"rule":{"action":"deny"}}}`},
		{"who speaks", "stream",
			`{"providerID":"p","modelID":"m","session.id":"ses_1","small":"false","agent":"plan","mode":"primary"}`,
			"ses_1",
			`{"kind":"step","dialect":"","name":"stream","agent":"plan","model":{"provider_id":"p","model_id":"m"},` +
				`"extra":{"mode":"primary"}}`},
		{"who summarizes", "stream", `{"modelID":"m","session.id":"ses_1","agent":"compaction"}`, "ses_1",
			`{"kind":"step","dialect":"","name":"stream","purpose":"compaction","agent":"compaction",` +
				`"model":{"model_id":"m"}}`},
		{"a small model", "stream", `{"modelID":"m","small":true}`, "",
			`{"kind":"step","dialect":"","name":"stream","purpose":"title","model":{"model_id":"m"}}`},
		{"no object", "stream", `undefined`, "", ""},
		{"nothing", "stream", nil, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			facts := openCodeRecordOf(t, test.message, test.detail)
			if test.want == "" {
				if facts != nil {
					t.Error(lines(t, facts))
				}
				return
			}
			f := one(t, facts)
			if diff := cmp.Diff(test.want+"\n", lines(t, facts)); diff != "" {
				t.Error("(-want +got):", diff)
			}
			if f.Session != test.session || f.SpanID != "0400000000000000" {
				t.Errorf("session %q, span %q", f.Session, f.SpanID)
			}
		})
	}
	for _, body := range [][]any{{"loop", "{}"}, {"created"}, {12, "{}"}, {}} {
		if facts := openCodeRecordOf(t, body...); facts != nil {
			t.Errorf("%v: %s", body, lines(t, facts))
		}
	}
}

func FuzzInspected(f *testing.F) {
	for _, s := range []string{`{"a":undefined}`, `{"a":"undefined \" undefined","b":[undefined]}`, `"\`, `undefine`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := inspected(s)
		if !strings.Contains(s, "undefined") && string(got) != Text(s) {
			t.Errorf("%q became %q", s, got)
		}
		if o, ok := objectOf(got); ok {
			openCodeRecord("created", o, new(Emitter))
			openCodeRecord("evaluated", o, new(Emitter))
			openCodeRecord("stream", o, new(Emitter))
		}
	})
}
