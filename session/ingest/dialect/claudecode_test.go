package dialect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

func TestClaudeCodeCaptures(t *testing.T) {
	t.Run("a call of a tool", func(t *testing.T) {
		spans, records, _, _ := captured(t, "claude-code", "claude-code-2.1.329/print-bash")
		const usage5 = `"usage":{"tokens":{"input":305,"output":42,"reasoning":0,"cache_read":640,"cache_write":120},` +
			`"basis":"mixed","raw":{"cache_creation_tokens":120,"cache_read_tokens":640,"input_tokens":305,` +
			`"output_tokens":42}}`
		const model = `"model":{"provider_id":"anthropic","model_id":"claude-opus-5-5","variant":"medium"}`
		const prompt = `"turn":"535dbdcb-308b-46c6-90e3-7d0b086f5b0a"`
		want := []string{
			`{"kind":"turn","dialect":"","name":"claude_code.interaction","input":[{"role":"user",` +
				`"parts":[{"kind":"text","text":"List the files here"}]}],"session_attrs":{"user_id":"user-hash",` +
				`"client":"claude-code 2.1.329"}}`,
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","request":"req_5",` +
				`"requires_turn":true,` +
				model + `,` + usage5 + `,"response_id":"req_5","finish":"tool_use","extra":{"ttft_ms":178}}`,
			`{"kind":"permission","dialect":"","name":"claude_code.tool.blocked_on_user",` +
				`"decision":{"action":"allow","outcome":"allowed","source":"config"}}`,
			`{"kind":"tool_call","dialect":"","name":"claude_code.tool","call":"toolu_5","requires_turn":true,` +
				`"tool":{"name":"Bash","input":{"command":"ls -la"},` +
				`"output":"total 20\ndrwxr-xr-x  3 root root 4096 Nov 20 18:19 .\ndrwxr-xr-x 13 root root 4096 Nov ` +
				`20 18:19 ..\ndrwxr-xr-x  7 root root 4096 Nov 20 18:19 .git\n-rw-r--r--  1 root root    6 Nov 20 ` +
				`18:19 README.md\n-rw-r--r--  1 root root   13 Nov 20 18:19 main.go"}}`,
			`{"kind":"tool_call","dialect":"","name":"claude_code.tool.execution","call":"toolu_5",` +
				`"tool":{"succeeded":true,"duration_ms":78}}`,
		}
		if diff := cmp.Diff(want, strings.Split(lines(t, spans), "\n")[:5]); diff != "" {
			t.Error("spans (-want +got):", diff)
		}
		want = []string{
			`{"kind":"prompt","dialect":"","name":"user_prompt",` + prompt +
				`,"input":[{"role":"user","parts":[{"kind":"text","text":"List the files here"}],` +
				`"id":"9e2458a6-4121-4270-a1aa-19a31ad4e9fc"}],"session_attrs":{"user_id":"user-hash",` +
				`"client":"claude-code 2.1.329"}}`,
			`{"kind":"tool_call","dialect":"","name":"tool_decision",` + prompt +
				`,"request":"req_5","call":"toolu_5","tool":{"name":"Bash","input":{"command":"ls -la",` +
				`"description":"List files"}}}`,
			`{"kind":"permission","dialect":"","name":"tool_decision",` + prompt +
				`,"request":"req_5","call":"toolu_5","decision":{"tool":"Bash","action":"allow","outcome":"allowed",` +
				`"source":"config"},"session_attrs":{"mode":"default"}}`,
			`{"kind":"model_call","dialect":"","name":"api_request",` + prompt + `,"request":"req_5",` + model + `,` +
				usage5 +
				`,"cost_usd":0.0027879999999999997,"extra":{"ttft_ms":178}}`,
			`{"kind":"tool_call","dialect":"","name":"tool_result",` + prompt +
				`,"request":"req_5","call":"toolu_5","tool":{"name":"Bash","input":{"command":"ls -la",` +
				`"description":"List files"},"succeeded":true,"output_size":246,"duration_ms":77}}`,
		}
		got := strings.Split(lines(t, records), "\n")
		if diff := cmp.Diff(want, got[:5]); diff != "" {
			t.Error("records (-want +got):", diff)
		}
		if want := `{"kind":"answer","dialect":"","name":"assistant_response",` + prompt +
			`,"request":"req_6","model":{"provider_id":"anthropic","model_id":"claude-opus-5-5"},` +
			`"output":[{"kind":"text","text":"All done: the listing has been read. "}],` +
			`"extra":{"message.uuid":"b3ce7545-9d81-4e18-89e6-ac23f8f4c0fe"}}`; got[6] != want {
			t.Errorf("got %s\nwant %s", got[6], want)
		}
	})
	t.Run("a refused call", func(t *testing.T) {
		spans, records, _, _ := captured(t, "claude-code", "claude-code-2.1.329/denied-bash")
		var decisions, calls int
		for _, f := range append(spans, records...) {
			switch f.Kind {
			case fact.Permission:
				decisions++
				if f.Decision.Action != "deny" || f.Decision.Outcome != "denied" || f.Decision.Source != "config" ||
					f.Decision.Reply != "" || f.Decision.WaitedMS != nil {
					t.Errorf("%s: decision %+v", f.Name, *f.Decision)
				}
			case fact.ToolCall:
				calls++
				if f.CallID != "toolu_1" || f.Failed || f.Tool.Succeeded ||
					f.Tool.Denied != (f.Name == "tool_decision") {
					t.Errorf("%s: call %q %+v, failed %v", f.Name, f.CallID, *f.Tool, f.Failed)
				}
			}
			if f.Session != "13f357b3-8f64-4fde-aa60-c29d12969d7b" {
				t.Errorf("%s: session %q", f.Name, f.Session)
			}
		}
		if decisions != 2 || calls != 2 {
			t.Errorf("%d decisions and %d calls, want 2 and 2", decisions, calls)
		}
	})
}

const claudeTracing = "com.anthropic.claude_code.tracing"

// What was withheld is absent.
func TestClaudeCodeWithheld(t *testing.T) {
	_, got := spanOf(t, claudeTracing, "claude_code.interaction",
		map[string]any{"user_prompt": "<REDACTED>", "session.id": "s"})
	if f := one(t, got.facts); f.Kind != fact.Turn || f.Input != nil {
		t.Error(lines(t, got.facts))
	}
	facts := recordOf(t, "com.anthropic.claude_code.events", "claude_code.user_prompt",
		map[string]any{"prompt": "<REDACTED>", "prompt.id": "p", "prompt_length": 9})
	if f := one(t, facts); f.Kind != fact.Prompt || f.TurnID != "p" || f.Input != nil {
		t.Error(lines(t, facts))
	}
	facts = recordOf(t, "com.anthropic.claude_code.events", "assistant_response",
		map[string]any{"response": "<REDACTED>", "request_id": "r"})
	if f := one(t, facts); f.Kind != fact.Answer || f.RequestID != "r" || f.Output != nil {
		t.Error(lines(t, facts))
	}
	// With an id, the message is known although its text is not.
	facts = recordOf(t, "com.anthropic.claude_code.events", "user_prompt",
		map[string]any{"prompt": "<REDACTED>", "message.uuid": "m"})
	if f := one(t, facts); len(f.Input) != 1 || f.Input[0].ID != "m" || f.Input[0].Parts != nil {
		t.Error(lines(t, facts))
	}
}

func TestClaudeCodeSpans(t *testing.T) {
	for _, test := range []struct {
		name, span string
		attrs      map[string]any
		want       string
	}{
		{"a request that failed after retries", "llm_request",
			map[string]any{"model": "m", "success": "false", "error": "overloaded", "status_code": 529, "attempt": "11",
				"request_id": "r"},
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","request":"r","requires_turn":true,` +
				`"model":{"model_id":"m"},"response_id":"r","failed":true,"error":"overloaded","error_type":"529",` +
				`"extra":{"attempt":11}}`},
		{"a request outside of a turn", "llm_request",
			map[string]any{"llm_request.context": "standalone", "input_tokens": "12", "output_tokens": 3.0},
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","purpose":"standalone",` +
				`"usage":{"tokens":{"input":12,"output":3,"reasoning":0,"cache_read":0,"cache_write":0},` +
				`"basis":"mixed","raw":{"input_tokens":12,"output_tokens":3}}}`},
		{"a request for a title", "llm_request",
			map[string]any{"query_source": "generate_session_title",
				"gen_ai.response.finish_reasons": []any{"end_turn"}},
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","requires_turn":true,` +
				`"purpose":"generate_session_title","finish":"end_turn"}`},
		{"a sub-agent's request", "llm_request",
			map[string]any{"query_source_safe": "agent.builtin.general-purpose", "agent_id": "a1"},
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","subagent_id":"a1",` +
				`"agent":"general-purpose"}`},
		{"a stopped request", "llm_request",
			map[string]any{"success": false, "error": "Request was aborted.", "error_class": "APIUserAbortError"},
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","requires_turn":true,"aborted":true,` +
				`"failed":true,"error":"Request was aborted.","error_type":"APIUserAbortError"}`},
		{"an execution that failed", "tool.execution",
			map[string]any{"tool_use_id": "t", "success": false, "error": "Error:ENOENT"},
			`{"kind":"tool_call","dialect":"","name":"claude_code.tool.execution","call":"t","failed":true,` +
				`"error":"Error:ENOENT"}`},
		{"an execution of an older version", "tool.execution",
			map[string]any{"success": false, "error": "boom"},
			`{"kind":"step","dialect":"","name":"claude_code.tool.execution","failed":true,"error":"boom"}`},
		{"a person who was asked", "tool.blocked_on_user",
			map[string]any{"decision": "accept", "source": "user_permanent", "duration_ms": 2500},
			`{"kind":"permission","dialect":"","name":"claude_code.tool.blocked_on_user","decision":{"action":"ask",` +
				`"outcome":"allowed","reply":"always","source":"user_permanent","waited_ms":2500}}`},
		{"a person who refused", "tool.blocked_on_user",
			map[string]any{"decision": "reject", "source": "user_reject"},
			`{"kind":"permission","dialect":"","name":"claude_code.tool.blocked_on_user","decision":{"action":"ask",` +
				`"outcome":"denied","reply":"reject","source":"user_reject","waited_ms":1500}}`},
		{"no decision", "tool.blocked_on_user", map[string]any{"decision": "unknown"}, ``},
		{"a tool with little detail", "tool", map[string]any{"tool_name": "Read", "file_path": "/x",
			"gen_ai.tool.call.id": "t"},
			`{"kind":"tool_call","dialect":"","name":"claude_code.tool","call":"t","requires_turn":true,` +
				`"tool":{"name":"Read","input":{"file_path":"/x"}}}`},
		{"a tool with all its input", "tool", map[string]any{"tool_name": "Read", "file_path": "/x",
			"tool_input": `{"file_path":"/x","limit":3}`},
			`{"kind":"tool_call","dialect":"","name":"claude_code.tool","requires_turn":true,"tool":{"name":"Read",` +
				`"input":{"file_path":"/x","limit":3}}}`},
		{"a hook", "hook", map[string]any{"hook_event": "PreToolUse"}, ``},
		{"nothing at all", "llm_request", map[string]any{},
			`{"kind":"model_call","dialect":"","name":"claude_code.llm_request","requires_turn":true}`},
	} {
		_, got := spanOf(t, claudeTracing, "claude_code."+test.span, test.attrs)
		if text := strings.TrimSpace(lines(t, got.facts)); text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, text, test.want)
		}
	}
}

func TestClaudeCodeToolOutput(t *testing.T) {
	event := func(attrs map[string]any) func(ptrace.Span) {
		return func(s ptrace.Span) {
			e := s.Events().AppendEmpty()
			e.SetName("tool.output")
			if err := e.Attributes().FromRaw(attrs); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, got := spanWith(t, claudeTracing, "claude_code.tool", map[string]any{"tool_name": "Bash"},
		event(map[string]any{"bash_command": "ls", "output": "a\nb", "output_truncated": true,
			"output_original_length": 99_000}))
	if f := one(t, got.facts); string(f.Tool.Output) != `"a\nb"` || !f.Tool.Truncated || f.Tool.OutputSize != 99_000 {
		t.Error(lines(t, got.facts))
	}
	// What a tool writes is its input.
	_, got = spanWith(t, claudeTracing, "claude_code.tool", map[string]any{"tool_name": "Write"},
		event(map[string]any{"file_path": "/x", "content": "hi"}))
	if f := one(t, got.facts); string(f.Tool.Input) != `{"content":"hi","file_path":"/x"}` || f.Tool.Output != nil {
		t.Error(lines(t, got.facts))
	}
}

func TestClaudeCodeRecords(t *testing.T) {
	long := strings.Repeat("x", 600)
	for _, test := range []struct {
		name, event string
		attrs       map[string]any
		want        string
	}{
		{"a tool that failed", "tool_result",
			map[string]any{"tool_name": "Bash", "tool_use_id": "t", "success": "false", "error_type": "ShellError",
				"duration_ms": "12"},
			`{"kind":"tool_call","dialect":"","name":"tool_result","call":"t","failed":true,"error":"ShellError",` +
				`"error_type":"ShellError","tool":{"name":"Bash","duration_ms":12}}`},
		{"a tool of a server", "tool_result",
			map[string]any{"tool_name": "mcp_tool", "success": true,
				"tool_parameters": `{"mcp_server_name":"db","mcp_tool_name":"query"}`,
				"tool_input":      `{"sql":"select 1"}`},
			`{"kind":"tool_call","dialect":"","name":"tool_result","tool":{"name":"mcp__db__query",` +
				`"input":{"sql":"select 1"},"succeeded":true}}`},
		{"a command longer than events allow", "tool_result",
			map[string]any{"tool_name": "Bash", "tool_input": `{"command":"` + long[:512] + `"}`,
				"tool_parameters": `{"full_command":"` + long + `"}`},
			`{"kind":"tool_call","dialect":"","name":"tool_result","tool":{"name":"Bash","input":{"command":"` + long +
				`"}}}`},
		{"a request that failed", "api_error",
			map[string]any{"model": "m", "error": "overloaded", "status_code": 529, "attempt": 11,
				"query_source": "repl_main_thread:outputStyle:default"},
			`{"kind":"model_call","dialect":"","name":"api_error","model":{"model_id":"m"},"failed":true,` +
				`"error":"overloaded","error_type":"529","extra":{"attempt":11}}`},
		{"a refusal", "api_refusal", map[string]any{"request_id": "r"},
			`{"kind":"model_call","dialect":"","name":"api_refusal","request":"r","finish":"refusal"}`},
		{"a sub-agent's request", "api_request", map[string]any{"query_source": "agent:builtin:Explore",
			"cost_usd": "0.5"},
			`{"kind":"model_call","dialect":"","name":"api_request","agent":"Explore","cost_usd":0.5}`},
		{"a compaction", "compaction", map[string]any{"trigger": "auto", "success": "true", "pre_tokens": 150000,
			"post_tokens": 9000, "duration_ms": 1000},
			`{"kind":"compaction","dialect":"","name":"compaction","compacted":{"auto":true,"trigger":"auto",` +
				`"tokens_before":150000,"tokens_after":9000}}`},
		{"a compaction that failed", "compaction", map[string]any{"trigger": "manual", "success": "false",
			"error": "no"},
			`{"kind":"compaction","dialect":"","name":"compaction","failed":true,"error":"no",` +
				`"compacted":{"auto":false,"trigger":"manual"}}`},
		{"a mode", "permission_mode_changed", map[string]any{"from_mode": "default", "to_mode": "plan"},
			`{"kind":"session","dialect":"","name":"permission_mode_changed","session_attrs":{"mode":"plan",` +
				`"client":"claude-code"}}`},
		{"a title", "assistant_response", map[string]any{"query_source": "generate_session_title",
			"response": "```json\n{\"title\": \"List files\"}\n```"},
			`{"kind":"session","dialect":"","name":"assistant_response","session_attrs":{"title":"List files"}}` +
				"\n" +
				`{"kind":"answer","dialect":"","name":"assistant_response","purpose":"generate_session_title",` +
				`"output":[{"kind":"text","text":"` + "```json\\n{\\\"title\\\": \\\"List files\\\"}\\n```" + `"}]}`},
		{"noise", "hook_execution_start", map[string]any{"num_hooks": 1}, ``},
		{"noise of a plugin", "plugin_loaded", map[string]any{"plugin.name": "x"}, ``},
		{"retries that api_error reports", "api_retries_exhausted", map[string]any{"total_attempts": 11}, ``},
	} {
		facts := recordOf(t, "com.anthropic.claude_code.events", test.event, test.attrs)
		if text := strings.TrimSpace(lines(t, facts)); text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, text, test.want)
		}
	}
}

// An event's own time counts.
func TestClaudeCodeTime(t *testing.T) {
	f := one(t,
		recordOf(t, "", "claude_code.api_request", map[string]any{"event.timestamp": "2026-11-20T18:20:56.488Z"}))
	if f.Start != 1795198856488000000 || f.End != f.Start {
		t.Errorf("from %d to %d", f.Start, f.End)
	}
	f = one(t, recordOf(t, "", "claude_code.api_request", map[string]any{"event.timestamp": "yesterday"}))
	if f.Start != 1_790_000_002_000_000_000 {
		t.Errorf("start %d", f.Start)
	}
	// A compaction is built when it is over.
	f = one(t, recordOf(t, "", "claude_code.compaction", map[string]any{"duration_ms": 1000}))
	if f.Start != 1_790_000_001_000_000_000 || f.End != 1_790_000_002_000_000_000 {
		t.Errorf("from %d to %d", f.Start, f.End)
	}
}
