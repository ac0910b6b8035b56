package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

func TestGeminiCapture(t *testing.T) {
	spans, records, spanCount, recordCount := captured(t, "gemini-cli", "gemini-cli-0.61.0/prompt-shell")
	if spanCount != 4 || recordCount != 15 {
		t.Errorf("%d spans and %d records", spanCount, recordCount)
	}
	var context struct {
		SessionContext string `json:"session_context"`
	}
	for i := range spans {
		f := &spans[i]
		if f.Session != "51780c9e-4086-485c-82cb-4c6742c9c02a" || f.TurnID != "" || f.RequiresTurn || f.Purpose != "" ||
			f.Agent != "" {
			t.Errorf("%s: %+v", f.Name, f)
		}
		if f.Kind != fact.ModelCall {
			continue
		}
		if !strings.HasPrefix(f.SystemPrompt, "[text elided") {
			t.Errorf("system prompt %.40q", f.SystemPrompt)
		}
		var tools []struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal([]byte(f.ToolCatalog), &tools); err != nil || len(tools) < 5 ||
			tools[0].Name != "update_topic" || tools[1].Name != "list_directory" {
			t.Errorf("catalog %.80s: %v", f.ToolCatalog, err)
		}
		if err := json.Unmarshal(f.Extra, &context); err != nil ||
			!strings.HasPrefix(context.SessionContext, "<session_context>") {
			t.Errorf("extra %.40s: %v", f.Extra, err)
		}
		f.Extra, f.SystemPrompt, f.ToolCatalog = nil, "", ""
	}
	const reported = `"input":[{"role":"user","parts":[{"kind":"text","text":"List the files here"}]}]`
	const call = `{"kind":"call","call":"run_shell_command__fc_7","name":"run_shell_command",` +
		`"input":{"command":"ls -la","description":"List files"}}`
	listing := `"\u003cuntrusted_context\u003e\nOutput: total 20\ndrwxr-xr-x  3 root root 4096 Nov 20 18:19 ` +
		`.\ndrwxr-xr-x 14 root root 4096 Nov 20 18:19 ..\ndrwxr-xr-x  7 root root 4096 Nov 20 18:19 .git\n-rw-r--r-- ` +
		` 1 root root    6 Nov 20 18:19 README.md\n-rw-r--r--  1 root root   13 Nov 20 18:19 main.go\nProcess Group ` +
		`PGID: 4741\n\u003c/untrusted_context\u003e"`
	goesOn := strings.TrimSuffix(reported, "]") + `,{"role":"assistant","parts":[` + call +
		`]},{"role":"tool","parts":[{"kind":"result","call":"run_shell_command__fc_7","name":"run_shell_command",` +
		`"output":` +
		listing + `}]}]`
	want := []string{
		`{"kind":"model_call","dialect":"","name":"llm_call","model":{"model_id":"gemini-2.5-flash"},` + reported +
			`,"output":[` + call +
			`],"usage":{"tokens":{"input":707,"output":22,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"basis":"inclusive","raw":{"gen_ai.usage.input_tokens":707,"gen_ai.usage.output_tokens":22}}}`,
		`{"kind":"step","dialect":"","name":"schedule_tool_calls"}`,
		`{"kind":"tool_call","dialect":"","name":"tool_call","call":"run_shell_command__fc_7",` +
			`"tool":{"name":"run_shell_command","input":{"command":"ls -la","description":"List files"},"output":` +
			listing + `,"succeeded":true,"output_size":320,"duration_ms":146}}`,
		`{"kind":"model_call","dialect":"","name":"llm_call","model":{"model_id":"gemini-2.5-flash"},` + goesOn +
			`,"output":[{"kind":"text","text":"All done: the listing has been read."}],` +
			`"usage":{"tokens":{"input":708,"output":22,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"basis":"inclusive","raw":{"gen_ai.usage.input_tokens":708,"gen_ai.usage.output_tokens":22}}}`,
		"",
	}
	if diff := cmp.Diff(want, strings.Split(lines(t, spans), "\n")); diff != "" {
		t.Error("spans (-want +got):", diff)
	}

	for i := range records {
		if records[i].Name == "gemini_cli.api_request" {
			records[i].Extra = nil
		}
	}
	const model = `"model":{"provider_id":"gcp.gen_ai","model_id":"gemini-2.5-flash"}`
	const about = `"user_id":"fac1a790-9876-4a39-ba5b-af81449f6ee5","client":"gemini-cli"`
	want = []string{
		`{"kind":"session","dialect":"","name":"gemini_cli.config",` + model + `,"session_attrs":{"mode":"yolo",` +
			about +
			`}}`,
		`{"kind":"prompt","dialect":"","name":"gemini_cli.user_prompt",` + reported + `,"session_attrs":{` + about +
			`}}`,
		`{"kind":"model_call","dialect":"","name":"gemini_cli.api_request",` + model + `,` + reported + `}`,
		`{"kind":"model_call","dialect":"","name":"gemini_cli.api_response","output":[` + call +
			`],"usage":{"tokens":{"input":451,"output":22,"reasoning":8,"cache_read":256,"cache_write":0},` +
			`"basis":"inclusive","raw":{"cached_content_token_count":256,"input_token_count":707,` +
			`"output_token_count":22,"thoughts_token_count":8,"tool_token_count":0,"total_token_count":737}},` +
			`"response_id":"r7","response_model":"gemini-fake-001","finish":"STOP"}`,
		`{"kind":"tool_call","dialect":"","name":"gemini_cli.tool_call","tool":{"name":"run_shell_command",` +
			`"input":{"command":"ls -la","description":"List files"},"succeeded":true,"output_size":320,` +
			`"duration_ms":146}}`,
		`{"kind":"permission","dialect":"","name":"gemini_cli.tool_call","tool":{"name":"run_shell_command",` +
			`"input":{"command":"ls -la","description":"List files"}},"decision":{"tool":"run_shell_command",` +
			`"action":"allow","outcome":"allowed"}}`,
	}
	got := strings.Split(lines(t, records), "\n")
	if diff := cmp.Diff(want, got[:6]); diff != "" {
		t.Error("records (-want +got):", diff)
	}
	// What a tool answered is in the next request, under the client's id.
	last := records[6].Input
	if n := len(last); n != 3 || last[2].Role != "tool" || last[2].Parts[0].CallID != "run_shell_command__fc_7" ||
		!strings.HasPrefix(string(last[2].Parts[0].Output), `"`) {
		t.Error("second request:", lines(t, records[6:7]))
	}
}

func TestGeminiPromptIDs(t *testing.T) {
	const id = "51780c9e-4086-485c-82cb-4c6742c9c02a"
	for _, test := range []struct{ prompt, turn, agent, side string }{
		{"", "", "", ""},
		{id, "", "", ""}, // one run that does not talk: no turn's, for it may be resumed
		{id + "########3", id + "########3", "", ""},
		{"ab12cd34ef567", "ab12cd34ef567", "", ""},
		{"9f0b5e0e-4086-485c-82cb-4c6742c9c02a#4", "", "subagent", ""},
		{"codebase_investigator-x1y2z3#0", "", "codebase_investigator", ""},
		{id + "########3-verify", "", "", "verify"},
		{"session-summary-generation", "", "", "session-summary-generation"},
	} {
		f := fact.Fact{Session: id}
		geminiPrompt(&f, test.prompt)
		if f.TurnID != test.turn || f.Agent != test.agent || f.Purpose != test.side {
			t.Errorf("%s: turn %q, agent %q, side %q", test.prompt, f.TurnID, f.Agent, f.Purpose)
		}
	}
}

func TestGeminiCalls(t *testing.T) {
	call := func(attrs map[string]any) fact.Fact {
		t.Helper()
		attrs["gen_ai.operation.name"] = "llm_call"
		_, got := spanOf(t, "gemini-cli", "llm_call", attrs)
		return one(t, got.facts)
	}
	// A stream's pieces are joined, and may be null.
	f := call(map[string]any{
		"gen_ai.output.messages": `[{"role":"model","parts":[{"text":"I think","thought":true}]},{"role":"model",` +
			`"parts":[{"text":"All "}]},null,{"role":"model","parts":[{"text":"done."}]},{"role":"model",` +
			`"parts":[{"functionCall":{"name":"ls","args":{}}}]}]`})
	want := []fact.Part{{Kind: fact.PartReasoning, Text: "I think"}, {Kind: fact.PartText, Text: "All done."},
		{Kind: fact.PartCall, Name: "ls", Input: json.RawMessage(`{}`)}}
	if diff := cmp.Diff(want, f.Output); diff != "" {
		t.Error("output (-want +got):", diff)
	}
	// One content, of a call that was not streamed.
	f = call(map[string]any{"gen_ai.output.messages": `{"role":"model","parts":[{"text":"Hi"}]}`,
		"gen_ai.system_instructions": `{"role":"user","parts":[{"text":"Be kind."}]}`,
		"gen_ai.tool.definitions":    `[{"googleSearch":{}},{"functionDeclarations":[{"name":"a"},{"name":"b"}]}]`})
	if len(f.Output) != 1 || f.Output[0].Text != "Hi" || f.SystemPrompt != "Be kind." ||
		f.ToolCatalog != `[{"googleSearch":{}},{"name":"a"},{"name":"b"}]` {
		t.Errorf("%+v", f)
	}
	// Instructions as they are, as JSON text, and none.
	for in, want := range map[string]string{`"You are\nan agent"`: "You are\nan agent",
		"You are an agent": "You are an agent", "[]": "", `[{"text":"a"},{"text":"b"}]`: "a\n\nb"} {
		if got := call(map[string]any{"gen_ai.system_instructions": in}).SystemPrompt; got != want {
			t.Errorf("instructions %s: %q, want %q", in, got, want)
		}
	}
	// Of a conversation that was cut only the old end is left.
	f = call(map[string]any{
		"gen_ai.input.messages": `[{"role":"user","parts":[{"text":"old"}]},{"role":"model",` +
			`"parts":[{"text":"yes"}]},{"role":"user","parts":[{"text":"ne...[TRUNCATED: original length 12000]`,
		"gen_ai.output.messages": `[{"role":"model","parts":[{"text":"a long sto...[TRUNCATED: original length 12000]`,
		"gen_ai.prompt.name":     "x########2",
	})
	if f.Input != nil || len(f.Problems) != 2 || len(f.Output) != 1 ||
		!strings.HasPrefix(f.Output[0].Text, "a long sto") || f.TurnID != "x########2" {
		t.Errorf("%+v", f)
	}
	// A context that is by itself, with its acknowledgement, is none of the user's.
	f = call(map[string]any{
		"gen_ai.input.messages": `[{"role":"user","parts":[{"text":"This is the Gemini CLI. We are setting up the context for our chat.\nToday"}]}]`})
	if f.Input != nil || !strings.Contains(string(f.Extra), "setting up") {
		t.Errorf("%+v", f)
	}
	// A call that was stopped, and one that failed.
	_, got := spanWith(t, "gemini-cli", "llm_call", nil, func(s ptrace.Span) {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Status().SetMessage("The user aborted a request.")
	})
	if f := one(t, got.facts); !f.Failed || !f.Aborted {
		t.Errorf("%+v", f)
	}
	_, got = spanWith(t, "gemini-cli", "llm_call", nil, func(s ptrace.Span) {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Status().SetMessage("quota")
	})
	if f := one(t, got.facts); !f.Failed || f.Aborted || f.Error != "quota" {
		t.Errorf("%+v", f)
	}
}

func TestGeminiTools(t *testing.T) {
	tool := func(output string) fact.Fact {
		t.Helper()
		_, got := spanOf(t, "gemini-cli", "tool_call", map[string]any{
			"gen_ai.tool.name": "ls", "gen_ai.tool.call_id": "ls__1",
			"gen_ai.input.messages":  `{"callId":"ls__1","name":"ls","args":{"path":"/"},"prompt_id":"x########2"}`,
			"gen_ai.output.messages": output})
		return one(t, got.facts)
	}
	f := tool(
		`{"status":"error","request":{},"response":{"responseParts":[{"functionResponse":{"name":"ls",` +
			`"response":{"error":"no such directory"}}}],"error":{},"errorType":"not_found"}}`)
	if !f.Failed || f.Error != "no such directory" || f.ErrorType != "not_found" || f.TurnID != "x########2" ||
		f.Tool.Output != nil || f.Aborted || string(f.Tool.Input) != `{"path":"/"}` {
		t.Errorf("%+v %+v", f, f.Tool)
	}
	f = tool(
		`{"status":"cancelled",` +
			`"response":{"responseParts":[{"functionResponse":{"response":{"error":"[Operation Cancelled] User ` +
			`cancelled tool execution."}}}]}}`)
	if !f.Failed || !f.Aborted || f.Tool.Denied {
		t.Errorf("%+v %+v", f, f.Tool)
	}
	// The answer of a long call is cut off with the call.
	f = tool(
		`{"status":"success","request":{"callId":"ls__1","args":{"path":"/"}},"tool":{"name":"ls",` +
			`"description":"Lis...[TRUNCATED: original length 12000]`)
	if f.Failed || !f.Tool.Succeeded || f.Tool.Output != nil || !f.Tool.Truncated || len(f.Problems) != 1 {
		t.Errorf("%+v %+v", f, f.Tool)
	}

	// A refused call has no span but its batch's.
	_, got := spanOf(t, "gemini-cli", "schedule_tool_calls", map[string]any{"gen_ai.output.messages": `[
		{"status":"success","request":{"callId":"a","name":"ls"},"response":{}},
		{"status":"cancelled","outcome":"cancel","request":{"callId":"b","name":"rm","args":{"path":"/"},"prompt_id":"x########2"},"response":{"responseParts":[{"functionResponse":{"response":{"error":"[Operation Cancelled] Reason: User denied execution."}}}]}},
		{"status":"error","request":{"callId":"c","name":"nope"},"response":{"responseParts":[{"functionResponse":{"response":{"error":"Tool \"nope\" not found."}}}],"errorType":"tool_not_registered"}}]`})
	if len(got.facts) != 3 || got.facts[0].Kind != fact.Step {
		t.Fatal(lines(t, got.facts))
	}
	if b := got.facts[1]; b.CallID != "b" || !b.Tool.Denied || b.Failed || b.Error != "" || b.TurnID != "x########2" ||
		string(b.Tool.Input) != `{"path":"/"}` {
		t.Errorf("%+v %+v", b, b.Tool)
	}
	if c := got.facts[2]; c.CallID != "c" || !c.Failed || c.ErrorType != "tool_not_registered" ||
		c.Error != `Tool "nope" not found.` {
		t.Errorf("%+v %+v", c, c.Tool)
	}
}

func TestGeminiRecords(t *testing.T) {
	for _, test := range []struct {
		name, event string
		attrs       map[string]any
		want        string
	}{
		{"a withheld prompt", "user_prompt", map[string]any{"prompt_length": 4, "prompt_id": "x########0"},
			`{"kind":"prompt","dialect":"","name":"gemini_cli.user_prompt","turn":"x########0",` +
				`"session_attrs":{"client":"gemini-cli"}}`},
		{"a helper's request", "api_request", map[string]any{"model": "m", "role": "utility_router",
			"prompt_id": "x########0"},
			`{"kind":"model_call","dialect":"","name":"gemini_cli.api_request","turn":"x########0",` +
				`"purpose":"routing","model":{"model_id":"m"}}`},
		{"a sub-agent's request", "api_request", map[string]any{"role": "subagent", "auth_type": "vertex-ai",
			"model": "m"},
			`{"kind":"model_call","dialect":"","name":"gemini_cli.api_request","agent":"subagent",` +
				`"model":{"provider_id":"gcp.vertex_ai","model_id":"m"}}`},
		{"a request that failed", "api_error", map[string]any{"model": "m", "error": "quota", "status_code": 429,
			"role": "main"},
			`{"kind":"model_call","dialect":"","name":"gemini_cli.api_error","model":{"model_id":"m"},"failed":true,` +
				`"error":"quota","error_type":"429"}`},
		{"a response without content", "api_response",
			map[string]any{"model": "m", "input_token_count": "5", "output_token_count": "2",
				"finish_reasons": []any{"stop"}},
			`{"kind":"model_call","dialect":"","name":"gemini_cli.api_response","usage":{"tokens":{"input":5,` +
				`"output":2,"reasoning":0,"cache_read":0,"cache_write":0},"basis":"inclusive",` +
				`"raw":{"input_token_count":5,"output_token_count":2}},"response_model":"m","finish":"stop"}`},
		{"a refused call", "tool_call", map[string]any{"function_name": "rm", "function_args": `{"path":"/"}`,
			"decision": "reject", "success": false, "error": "denied"},
			`{"kind":"tool_call","dialect":"","name":"gemini_cli.tool_call","tool":{"name":"rm","input":{"path":"/"},` +
				`"denied":true}}` + "\n" +
				`{"kind":"permission","dialect":"","name":"gemini_cli.tool_call","tool":{"name":"rm",` +
				`"input":{"path":"/"}},"decision":{"tool":"rm","action":"ask","outcome":"denied","reply":"reject"}}`},
		{"a call that failed", "tool_call", map[string]any{"function_name": "ls", "success": "false",
			"error": "no such directory", "error_type": "not_found", "duration_ms": 3},
			`{"kind":"tool_call","dialect":"","name":"gemini_cli.tool_call","failed":true,` +
				`"error":"no such directory","error_type":"not_found","tool":{"name":"ls","duration_ms":3}}`},
		{"a call that is always allowed now", "tool_call",
			map[string]any{"function_name": "ls", "success": true, "decision": "auto_accept"},
			`{"kind":"tool_call","dialect":"","name":"gemini_cli.tool_call","tool":{"name":"ls","succeeded":true}}` +
				"\n" +
				`{"kind":"permission","dialect":"","name":"gemini_cli.tool_call","tool":{"name":"ls"},` +
				`"decision":{"tool":"ls","action":"ask","outcome":"allowed","reply":"always","reason":"auto_accept"}}`},
		{"a compression", "chat_compression", map[string]any{"tokens_before": 90000, "tokens_after": 8000},
			`{"kind":"compaction","dialect":"","name":"gemini_cli.chat_compression",` +
				`"compacted":{"tokens_before":90000,"tokens_after":8000}}`},
		{"noise", "model_routing", map[string]any{"decision_model": "m"}, ``},
		{"noise of a start", "startup_stats", map[string]any{"phases": "[]"}, ``},
	} {
		facts := recordOf(t, "gemini-cli", "gemini_cli."+test.event, test.attrs)
		if text := strings.TrimSpace(lines(t, facts)); text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, text, test.want)
		}
	}
	if facts := recordOf(t, "gemini-cli", "gen_ai.client.inference.operation.details",
		map[string]any{"gen_ai.response.id": "r"}); len(facts) != 0 {
		t.Error("the standard event counts a call twice:", lines(t, facts))
	}
	// Thoughts are beside the output, and what tools added beside the prompt.
	f := one(t, recordOf(t, "gemini-cli", "gemini_cli.api_response", map[string]any{"input_token_count": 100,
		"output_token_count": 5, "cached_content_token_count": 40, "thoughts_token_count": 50, "tool_token_count": 7}))
	if want := (session.Usage{Input: 67, Output: 5, Reasoning: 50, CacheRead: 40}); f.Usage.Tokens != want {
		t.Errorf("usage %+v, want %+v", f.Usage.Tokens, want)
	}
}
