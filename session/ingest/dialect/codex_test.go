package dialect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

func TestCodexCapture(t *testing.T) {
	spans, records, spanCount, recordCount := captured(t, "codex", "codex-cli-0.169.0/exec-shell")
	if spanCount != 574 || len(spans) != 16 {
		t.Errorf("%d facts of %d spans, want 16 of 574", len(spans), spanCount)
	}
	if recordCount != 31 || len(records) != 6 {
		t.Errorf("%d facts of %d records, want 6 of 31", len(records), recordCount)
	}
	const conversation, turn = "01a1fa2f-1e4a-7b31-a55d-4564d5182253", "01a1fa2f-1e6a-7be1-9dc2-f4de804e6548"

	calls := map[string]session.Usage{}
	kinds := map[fact.Kind]int{}
	for _, f := range spans {
		kinds[f.Kind]++
		switch f.Kind {
		case fact.Turn:
			if f.Session != conversation || f.SessionKey != "thread.id" || f.TurnID != turn ||
				f.Model.ModelID != "fake-model" ||
				f.SessionAttrs.Client != "codex_exec 0.169.0" {
				t.Error("turn:", lines(t, spans[:1]))
			}
			if want := (session.Usage{Input: 807, Output: 48, Reasoning: 32,
				CacheRead: 1600}); f.Usage.Tokens != want ||
				f.Usage.Basis != fact.Inclusive {
				t.Errorf("turn's usage %+v", f.Usage)
			}
		case fact.ModelCall:
			if !strings.HasPrefix(f.RequestID, "stream-") || !f.RequiresTurn {
				t.Errorf("model call %+v", f)
			}
			total := calls[f.RequestID]
			if f.Usage != nil {
				total = total.Add(f.Usage.Tokens)
			}
			calls[f.RequestID] = total
		case fact.ToolCall:
			if f.CallID != "call_3" || f.Tool.Name != "exec_command" || f.Failed || f.Aborted {
				t.Errorf("tool call %+v", f)
			}
		}
	}
	if diff := cmp.Diff(map[fact.Kind]int{fact.Turn: 1, fact.Step: 9, fact.ModelCall: 4, fact.ToolCall: 2},
		kinds); diff != "" {
		t.Error("kinds (-want +got):", diff)
	}
	want := map[string]session.Usage{
		"stream-f4f7f4450e5655e1": {Input: 403, Output: 24, Reasoning: 16, CacheRead: 800},
		"stream-45925259c6af9cda": {Input: 404, Output: 24, Reasoning: 16, CacheRead: 800},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Error("model calls (-want +got):", diff)
	}

	const usage1 = `"usage":{"tokens":{"input":403,"output":24,"reasoning":16,"cache_read":800,"cache_write":0},` +
		`"basis":"inclusive","raw":{"cache_write_token_count":0,"cached_token_count":800,"input_token_count":1203,` +
		`"output_token_count":40,"reasoning_token_count":16,"tool_token_count":1243}}`
	wantRecords := []string{
		`{"kind":"session","dialect":"","name":"codex.conversation_starts","model":{"provider_id":"fake",` +
			`"model_id":"fake-model"},"session_attrs":{"mode":"never, danger-full-access",` +
			`"client":"codex_exec 0.169.0"}}`,
		`{"kind":"prompt","dialect":"","name":"codex.user_prompt","model":{"model_id":"fake-model"},` +
			`"input":[{"role":"user","parts":[{"kind":"text","text":"List the files here"}]}],` +
			`"session_attrs":{"client":"codex_exec 0.169.0"}}`,
		`{"kind":"model_call","dialect":"","name":"codex.sse_event","model":{"model_id":"fake-model"},` + usage1 + `}`,
		`{"kind":"permission","dialect":"","name":"codex.tool_decision","call":"call_3",` +
			`"decision":{"tool":"exec_command","action":"allow","outcome":"allowed","source":"Config"}}`,
		`{"kind":"tool_call","dialect":"","name":"codex.tool_result","call":"call_3","tool":{"name":"exec_command",` +
			`"input":{"cmd":"ls -la"},` +
			`"output":"Chunk ID: ff7a64\nWall time: 0.6234 seconds\nProcess exited with code 0\nOriginal token ` +
			`count: 62\nOutput:\ntotal 20\ndrwxr-xr-x  3 root root 4096 Nov 20 18:19 .\ndrwxr-xr-x 12 root root 4096 ` +
			`Nov 20 18:19 ..\ndrwxr-xr-x  7 root root 4096 Nov 20 18:19 .git\n-rw-r--r--  1 root root    6 Nov 20 ` +
			`18:19 README.md\n-rw-r--r--  1 root root   13 Nov 20 18:19 main.go\n","succeeded":true,` +
			`"duration_ms":789}}`,
	}
	if diff := cmp.Diff(wantRecords, strings.Split(lines(t, records), "\n")[:5]); diff != "" {
		t.Error("records (-want +got):", diff)
	}
	for _, f := range records {
		// The records' own time is unset.
		if f.Session != conversation || f.Start != f.End || f.Start%1e6 != 0 || f.Start < 1795198754390000000 ||
			f.Start > 1795198755397000000 {
			t.Errorf("%s: session %q, time %d", f.Name, f.Session, f.Start)
		}
	}
}

func TestCodexSpans(t *testing.T) {
	for _, test := range []struct {
		name, span string
		attrs      map[string]any
		want       string
	}{
		{"the stream of a call", "receiving_stream", nil,
			`{"kind":"model_call","dialect":"","name":"receiving_stream","request":"stream-0200000000000000",` +
				`"requires_turn":true}`},
		{"a response that completed, as older versions name it", "completed",
			map[string]any{"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": 4},
			`{"kind":"model_call","dialect":"","name":"completed","request":"stream-0300000000000000",` +
				`"requires_turn":true,"usage":{"tokens":{"input":10,"output":4,"reasoning":0,"cache_read":0,` +
				`"cache_write":0},"basis":"inclusive","raw":{"gen_ai.usage.input_tokens":10,` +
				`"gen_ai.usage.output_tokens":4}}}`},
		{"a piece of a response", "handle_responses",
			map[string]any{"from": "output_item_done", "tool_name": "exec_command"},
			``},
		{"a stopped tool", "mcp__db__query", map[string]any{"tool_name": "mcp__db__query", "call_id": "c",
			"aborted": true,
			"turn_id": "t"},
			`{"kind":"tool_call","dialect":"","name":"mcp__db__query","turn":"t","call":"c","requires_turn":true,` +
				`"aborted":true,"tool":{"name":"mcp__db__query"}}`},
		{"a compaction of a full context", "run_auto_compact", nil,
			`{"kind":"compaction","dialect":"","name":"run_auto_compact","compacted":{"auto":true,"trigger":"auto"}}`},
		{"the span around it", "codex.compaction", map[string]any{"conversation.id": "s", "turn.id": "t"},
			`{"kind":"step","dialect":"","name":"codex.compaction","turn":"t"}`},
		{"a compaction that a person asked for", "session_task.compact", map[string]any{"turn.id": "t", "model": "m"},
			`{"kind":"compaction","dialect":"","name":"session_task.compact","turn":"t","model":{"model_id":"m"},` +
				`"compacted":{"auto":false,"trigger":"manual"}}`},
		{"noise", "fs.get_metadata", map[string]any{"sandboxed": true}, ``},
		{"noise with ids", "guardian_scoring_observation",
			map[string]any{"thread_id": "s", "turn_id": "t", "call_id": "c", "tool_name": "x"}, ``},
		{"noise without anything", "", nil, ``},
	} {
		_, got := spanOf(t, "codex_cli_rs", test.span, test.attrs)
		if text := strings.TrimSpace(lines(t, got.facts)); text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, text, test.want)
		}
	}
	// The stream's end is not the span's, which waits for the tools.
	_, got := spanOf(t, "Codex Desktop", "receiving_stream", nil)
	if f := one(t, got.facts); f.End != f.Start || f.Start == 0 {
		t.Errorf("from %d to %d", f.Start, f.End)
	}
	// The key thread.id is there twice; the session's is text.
	_, got = spanWith(t, "codex_exec", "session_task.turn", nil, func(s ptrace.Span) {
		s.Attributes().FromRaw(map[string]any{"thread.id": 4})
		s.Attributes().PutStr("turn.id", "t")
	})
	if f := one(t, got.facts); f.Session != "" {
		t.Errorf("session %q", f.Session)
	}
}

// Where records are off, the events on spans report what is not content.
func TestCodexEvents(t *testing.T) {
	event := func(s ptrace.Span, attrs map[string]any) {
		e := s.Events().AppendEmpty()
		e.SetName("event otel/src/x.rs:1")
		e.SetTimestamp(1_790_000_001_000_000_000)
		if err := e.Attributes().FromRaw(attrs); err != nil {
			t.Fatal(err)
		}
	}
	_, got := spanWith(t, "codex_exec", "dispatch_tool_call_with_state", nil, func(s ptrace.Span) {
		event(s, map[string]any{"event.name": "codex.tool_result", "call_id": "c", "tool_name": "shell",
			"success":     "false",
			"duration_ms": "7", "output_length": 30, "conversation.id": "s"})
		event(s, map[string]any{"event.name": "codex.turn_ttft", "duration_ms": "7"})
	})
	if f := one(t, got.facts); f.Kind != fact.ToolCall || f.CallID != "c" || !f.Failed || f.Tool.Succeeded ||
		f.Session != "s" || f.Start != 1_790_000_001_000_000_000 || *f.Tool.DurationMS != 7 {
		t.Error(lines(t, got.facts))
	}
	_, got = spanWith(t, "codex_exec", "run_hooks_and_record_inputs", nil, func(s ptrace.Span) {
		event(s, map[string]any{"event.name": "codex.user_prompt", "prompt_length": "7", "conversation.id": "s"})
	})
	if f := one(t, got.facts); f.Kind != fact.Step || f.Session != "s" || f.SessionKey != "conversation.id" {
		t.Error(lines(t, got.facts))
	}
	_, got = spanWith(t, "codex_exec", "thread/start", nil, func(s ptrace.Span) {
		event(s, map[string]any{"event.name": "codex.conversation_starts", "model": "m", "provider_name": "OpenAI",
			"approval_policy": "on-request", "sandbox_policy": "read-only", "conversation.id": "s"})
	})
	if f := one(t, got.facts); f.Kind != fact.Session || f.SessionAttrs.Mode != "on-request, read-only" ||
		f.Model.ProviderID != "OpenAI" {
		t.Error(lines(t, got.facts))
	}

	// A request that failed is built by a span and by a record, and is one.
	failed := map[string]any{"event.name": "codex.api_request", "event.timestamp": "2026-09-21T14:13:21.123Z",
		"http.response.status_code": 503, "error.message": "unavailable", "attempt": 2, "endpoint": "/responses",
		"model": "m"}
	_, got = spanWith(t, "codex_exec", "endpoint_session.stream_encoded_json_with", nil,
		func(s ptrace.Span) { event(s, failed) })
	reported := one(t, got.facts)
	again := one(t, recordOf(t, "codex_otel.log_only", "codex.api_request", failed))
	if reported.RequestID == "" || reported.RequestID != again.RequestID || reported.Error != "unavailable" ||
		reported.ErrorType != "503" || string(reported.Extra) != `{"attempt":2}` {
		t.Errorf("span: %ssrecord: %s", lines(t, []fact.Fact{reported}), lines(t, []fact.Fact{again}))
	}
}

func TestCodexRecords(t *testing.T) {
	for _, test := range []struct {
		name, event string
		attrs       map[string]any
		want        string
	}{
		{"a withheld prompt", "codex.user_prompt", map[string]any{"prompt": "[REDACTED]", "prompt_length": "4"},
			`{"kind":"prompt","dialect":"","name":"codex.user_prompt","session_attrs":{"client":"codex"}}`},
		{"a response that completed, without counts", "codex.sse_event",
			map[string]any{"event.kind": "response.completed", "duration_ms": "0"}, ``},
		{"a connection that was warmed up", "codex.sse_event",
			map[string]any{"event.kind": "response.completed", "input_token_count": "0", "output_token_count": "0"},
			``},
		{"counts as text, without a cache", "codex.sse_event",
			map[string]any{"event.kind": "response.completed", "input_token_count": "12", "output_token_count": "5",
				"model": "m"},
			`{"kind":"model_call","dialect":"","name":"codex.sse_event","model":{"model_id":"m"},` +
				`"usage":{"tokens":{"input":12,"output":5,"reasoning":0,"cache_read":0,"cache_write":0},` +
				`"basis":"inclusive","raw":{"input_token_count":12,"output_token_count":5}}}`},
		{"a stream that failed", "codex.sse_event", map[string]any{"event.kind": "response.failed",
			"error.message": "rate limit"},
			`{"kind":"model_call","dialect":"","name":"codex.sse_event","failed":true,"error":"rate limit",` +
				`"error_type":"response.failed"}`},
		{"a socket that failed", "codex.websocket_event",
			map[string]any{"success": "false", "event.kind": "unknown", "error.message": "closed"},
			`{"kind":"model_call","dialect":"","name":"codex.websocket_event","failed":true,"error":"closed",` +
				`"error_type":"unknown"}`},
		{"a request that did well", "codex.api_request",
			map[string]any{"http.response.status_code": 200, "endpoint": "/responses"}, ``},
		{"a list of models that failed", "codex.api_request",
			map[string]any{"http.response.status_code": 500, "endpoint": "/models"}, ``},
		{"a status without a message", "codex.api_request",
			map[string]any{"http.response.status_code": "429", "attempt": "0"},
			`{"kind":"model_call","dialect":"","name":"codex.api_request","request":"request--0","failed":true,` +
				`"error":"status 429","error_type":"429"}`},
		{"a person's once", "codex.tool_decision", map[string]any{"tool_name": "shell", "call_id": "c",
			"decision": "approved", "source": "User"},
			`{"kind":"permission","dialect":"","name":"codex.tool_decision","call":"c","decision":{"tool":"shell",` +
				`"action":"ask","outcome":"allowed","reply":"once","source":"User"}}`},
		{"a person's always", "codex.tool_decision", map[string]any{"call_id": "c", "decision": "approved_for_session",
			"source": "user"},
			`{"kind":"permission","dialect":"","name":"codex.tool_decision","call":"c","decision":{"action":"ask",` +
				`"outcome":"allowed","reply":"always","source":"user","reason":"approved_for_session"}}`},
		{"a person's no", "codex.tool_decision", map[string]any{"call_id": "c", "decision": "abort", "source": "user"},
			`{"kind":"permission","dialect":"","name":"codex.tool_decision","call":"c","decision":{"action":"ask",` +
				`"outcome":"denied","reply":"reject","source":"user","reason":"abort"}}`},
		{"a rule's no", "codex.tool_decision", map[string]any{"call_id": "c", "decision": "denied", "source": "config"},
			`{"kind":"permission","dialect":"","name":"codex.tool_decision","call":"c","decision":{"action":"deny",` +
				`"outcome":"denied","source":"config"}}`},
		{"a tool that failed", "codex.tool_result", map[string]any{"tool_name": "shell", "call_id": "c",
			"arguments": `{"command":["ls"]}`, "success": "false", "output": "no such file", "duration_ms": "3",
			"mcp_server": ""},
			`{"kind":"tool_call","dialect":"","name":"codex.tool_result","call":"c","failed":true,` +
				`"error":"no such file","tool":{"name":"shell","input":{"command":["ls"]},"output":"no such file",` +
				`"duration_ms":3}}`},
		{"a patch, which is no JSON", "codex.tool_result",
			map[string]any{"tool_name": "apply_patch", "call_id": "c", "arguments": "*** Begin Patch", "success": true,
				"output": ""},
			`{"kind":"tool_call","dialect":"","name":"codex.tool_result","call":"c","tool":{"name":"apply_patch",` +
				`"input":"*** Begin Patch","output":"","succeeded":true}}`},
		{"noise", "codex.startup_phase", map[string]any{"duration_ms": "27"}, ``},
		{"noise of the stream", "codex.sse_event", map[string]any{"event.kind": "response.output_text.delta"}, ``},
	} {
		facts := recordOf(t, "codex_otel.log_only", test.event, test.attrs)
		if text := strings.TrimSpace(lines(t, facts)); text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, text, test.want)
		}
	}
}

// Whatever an attribute's type is, nothing breaks and nothing is invented.
func TestClientsOddTypes(t *testing.T) {
	odd := func() pcommon.Value {
		v := pcommon.NewValueMap()
		v.Map().PutEmptySlice("x").AppendEmpty()
		return v
	}
	keys := []string{"model", "user_prompt", "prompt", "tool_use_id", "tool_input", "tool_parameters", "input_tokens",
		"success", "decision", "call_id", "tool_name", "aborted",
		"arguments", "output", "event.kind", "error.message", "gen_ai.input.messages", "gen_ai.output.messages",
		"gen_ai.tool.definitions", "gen_ai.system_instructions",
		"response_text", "request_text", "function_args", "prompt_id", "finish_reasons", "event.timestamp",
		"gen_ai.usage.input_tokens", "duration_ms"}
	for _, client := range []struct {
		scope         string
		spans, events []string
	}{
		{"com.anthropic.claude_code.tracing", []string{"claude_code.interaction", "claude_code.llm_request",
			"claude_code.tool", "claude_code.tool.execution", "claude_code.tool.blocked_on_user"},
			[]string{"user_prompt", "assistant_response", "api_request", "api_error", "tool_decision", "tool_result",
				"compaction"}},
		{"codex_exec", []string{"session_task.turn", "receiving_stream", "handle_responses", "run_turn",
			"run_auto_compact",
			"shell"},
			[]string{"codex.user_prompt", "codex.sse_event", "codex.api_request", "codex.tool_decision",
				"codex.tool_result",
				"codex.conversation_starts"}},
		{"gemini-cli", []string{"llm_call", "tool_call", "schedule_tool_calls", "agent_call"},
			[]string{"gemini_cli.user_prompt", "gemini_cli.api_request", "gemini_cli.api_response",
				"gemini_cli.api_error",
				"gemini_cli.tool_call", "gemini_cli.config"}},
	} {
		for _, value := range []pcommon.Value{pcommon.NewValueEmpty(), odd(), pcommon.NewValueDouble(1e308),
			pcommon.NewValueInt(-1), pcommon.NewValueStr("[{\"\xff"), pcommon.NewValueBool(true)} {
			attrs := pcommon.NewMap()
			for _, key := range keys {
				value.CopyTo(attrs.PutEmpty(key))
			}
			for _, name := range client.spans {
				_, got := spanWith(t, client.scope, name, nil, func(s ptrace.Span) { attrs.CopyTo(s.Attributes()) })
				if got.dialect == "" {
					t.Errorf("%s is read by nobody", name)
				}
				lines(t, got.facts)
			}
			for _, event := range client.events {
				lines(t, recordOf(t, client.scope, event, attrs.AsRaw()))
			}
		}
	}
}
