package modelhttp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/spans"
)

// exchanges has an agent send requests and get the answers, each as its kind shows: text
// that begins with "data:" or "event:" is a stream.
func exchanges(t *testing.T, path string, pairs ...[2]string) *agent {
	t.Helper()
	next := 0
	a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer := pairs[next][1]
		next++
		w.Header().Set("Content-Type", "application/octet-stream") // some servers state no type of their own
		_, _ = io.WriteString(w, answer)
	}, modelhttp.Options{})
	for _, p := range pairs {
		a.send(t.Context(), path, strings.NewReader(p[0]))
	}
	_ = a.transport.Close() // no attempt follows one that failed
	return a
}

// TestAnswersOfOtherShapesAreRecorded has what compatible servers and other forms of an API answer, and how the turn
// shows: its end, its error, cost, parts, calls (executed is of the provider) and, if it was sent, usage.
func TestAnswersOfOtherShapesAreRecorded(t *testing.T) {
	ask := `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	call := `"function_call":{"name":"f","arguments":"{\"a\":1}"}`
	for name, test := range map[string]struct {
		path, want string
		pairs      [][2]string
	}{
		"spoken": {"/v1/chat/completions", `finish 0.5 1+1 text {"type":"text","text":"I hear."}`, [][2]string{{ask,
			`{"choices":[{"message":{"content":null,"audio":{"id":"a","data":"AAAA","transcript":"I hear."}},
			"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"cost":0.5}}`}}},
		"functions": {"/v1/chat/completions", `finish tool-f {"a":1} "4" text {"type":"text","text":"Four."}`,
			[][2]string{{ask, `data: {"choices":[{"delta":{` + call + `},"finish_reason":"function_call"}]}` + "\n\n"}, {
				`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,` + call + `},
				{"role":"function","name":"f","content":"4"}]}`,
				`{"choices":[{"message":{"content":"Four."},"finish_reason":"stop"}]}`}}},
		"Anthropic's tool": {"/v1/messages",
			`finish 1+1 tool-web_search executed {"query":"q"} [{"url":"u"}] text {"type":"text","text":"found"}`,
			[][2]string{{ask, `{"content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},
				{"type":"web_search_tool_result","tool_use_id":"s","content":[{"url":"u"}]},{"type":"text","text":"found"}],
				"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`}}},
		"OpenAI's tool": {"/v1/responses", `finish tool-roll executed {} "4"`, [][2]string{{`{"model":"m","input":"hi"}`,
			`{"status":"completed","output":[{"type":"mcp_call","id":"m","name":"roll","arguments":"{}","output":"4"}]}`}}},
		"OpenAI's question": {"/v1/responses",
			`finish tool-mcp_approval_request {"arguments":{},"server":"s","tool":"roll"} "approved" tool-roll executed {} "4"`,
			[][2]string{{`{"model":"m","input":"hi"}`, `{"id":"r","status":"completed","output":[{"type":"mcp_approval_request",
				"id":"p","name":"roll","arguments":"{}","server_label":"s"}]}`}, {`{"model":"m","previous_response_id":"r",
				"input":[{"type":"mcp_approval_response","approval_request_id":"p","approve":true}]}`,
				`{"status":"completed","output":[{"type":"mcp_call","id":"m","name":"roll","arguments":"{}","output":"4"}]}`}}},
		"usage that is null": {"/v1/chat/completions", `finish text {"type":"text","text":"Hello"}`, [][2]string{{ask,
			`data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}],"usage":null}` + "\n\ndata: [DONE]\n\n"}}},
		"a page": {"/v1/chat/completions", `error the answer is not JSON: "<p>Sign in</p>"`,
			[][2]string{{ask, "<p>Sign in</p>"}}},
		"nothing": {"/v1/chat/completions", `error the answer is not JSON: ""`, [][2]string{{ask, ""}}},
		"half of it": {"/v1/chat/completions", `error the answer's stream ended early`,
			[][2]string{{ask, `{"choices":[`}}},
		"Ollama's lines": {"/api/chat", `finish text {"type":"text","text":"Hello"}`, [][2]string{{ask,
			`{"message":{"content":"Hel"}}` + "\n" + `{"message":{"content":"lo"},"done":true}` + "\n"}}},
		"Ollama's error": {"/api/chat", `error model "m" not found`, [][2]string{{ask, `{"error":"model \"m\" not found"}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := exchanges(t, test.path, test.pairs...)
			a.check()
			turn := a.rec.All().Turns()[0]
			got := strings.TrimSpace(turn.EndReason + " " + turn.Error)
			if turn.Usage.CostUSD != nil {
				got += fmt.Sprint(" ", *turn.Usage.CostUSD)
			}
			if u := turn.Usage.Tokens; u != nil {
				got += fmt.Sprint(" ", u.Input, "+", u.Output)
			}
			for _, p := range turn.Assistant.Parts {
				if p.Type != "step-start" {
					got += strings.TrimRight(fmt.Sprintf(" %s %s", p.Type, p.Data), " ")
				}
				for _, c := range a.rec.All().ToolCalls() {
					if c.CallID == p.ToolCallID {
						got += map[bool]string{true: " executed"}[c.ProviderExecuted && !c.Inferred] + " " + c.Input + " " + c.Output
					}
				}
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestAPausedAnswerGoesOnInItsTurn sends the conversation again without text of the user.
func TestAPausedAnswerGoesOnInItsTurn(t *testing.T) {
	a := exchanges(t, "/v1/messages",
		[2]string{`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"id":"msg_1","content":[{"type":"text","text":"One, "}],"stop_reason":"pause_turn"}`},
		[2]string{`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"One, "}]}`,
			`{"id":"msg_2","content":[{"type":"text","text":"two."}],"stop_reason":"end_turn"}`},
		[2]string{`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"One, two."},
			{"role":"user","content":"more"}]}`,
			`{"id":"msg_3","content":[{"type":"text","text":"three"}],"stop_reason":"end_turn"}`})
	wantTurns(t, a, []string{"hi", "more"})
}

// TestHopsOfAnInterruptedAnswerAreOneCall has Gemini's continuation: usage is the sum.
func TestHopsOfAnInterruptedAnswerAreOneCall(t *testing.T) {
	hop := func(text, more string) string {
		return `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"` + text + `"}]},` + more +
			`}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2}}` + "\n\n"
	}
	body := `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]`
	a := exchanges(t, "/v1beta/models/gemini-x:streamGenerateContent",
		[2]string{body + `}`, hop("One, ", `"finishReason":"CONTINUATION","continuationToken":"dG9rZW4="`)},
		[2]string{body + `,"continuationToken":"dG9rZW4="}`, hop("two.", `"finishReason":"STOP"`)})
	wantTurns(t, a, []string{"hi"})
	turn := a.rec.All().Turns()[0]
	if n := len(a.rec.All().ModelCalls()); n != 1 || *turn.Usage.Tokens != (spans.Tokens{Input: 20, Output: 4}) {
		t.Errorf("have %d calls with %+v", n, *turn.Usage.Tokens)
	}
}

// TestUsageOfEachProvider has the counts that differ in what includes what.
func TestUsageOfEachProvider(t *testing.T) {
	for name, test := range map[string]struct {
		path, request, answer string
		want                  spans.Tokens
	}{
		"Anthropic, thinking and a compaction": {"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":5,
			"cache_read_input_tokens":7,"cache_creation_input_tokens":11,"output_tokens":10,
			"output_tokens_details":{"thinking_tokens":4},"iterations":[{"type":"message","input_tokens":5},
			{"type":"compaction","input_tokens":100,"output_tokens":20}]}}`,
			spans.Tokens{Input: 105, Output: 26, Reasoning: 4, CacheRead: 7, CacheWrite: 11}},
		"Anthropic, an answer that breaks off": {"/v1/messages",
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			`data: {"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":5,` +
				`"cache_read_input_tokens":7,"output_tokens":1}}}` + "\n\n" +
				`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me "}}` + "\n\n",
			spans.Tokens{Input: 5, Output: 1, CacheRead: 7}},
		"Bedrock, cache beside the input": {"/model/m/converse", `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
			`{"output":{"message":{"content":[{"text":"x"}]}},"stopReason":"end_turn",
			"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":115,"cacheReadInputTokens":100}}`,
			spans.Tokens{Input: 10, Output: 5, CacheRead: 100}},
		"Bedrock, cache in the input": {"/model/m/converse", `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`,
			`{"output":{"message":{"content":[{"text":"x"}]}},"stopReason":"end_turn",
			"usage":{"inputTokens":110,"outputTokens":5,"totalTokens":115,"cacheReadInputTokens":100}}`,
			spans.Tokens{Input: 10, Output: 5, CacheRead: 100}},
		"Gemini, thoughts and the prompt of tools": {"/v1beta/models/m:generateContent",
			`{"contents":[{"parts":[{"text":"hi"}]}]}`,
			`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,
			"cachedContentTokenCount":4,"toolUsePromptTokenCount":3,"candidatesTokenCount":5,"thoughtsTokenCount":6}}`,
			spans.Tokens{Input: 9, Output: 5, Reasoning: 6, CacheRead: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			a := exchanges(t, test.path, [2]string{test.request, test.answer})
			a.check()
			if diff := cmp.Diff(&test.want, a.rec.All().Turns()[0].Usage.Tokens); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAFileIsRecordedByItsKindAndSize has one in the request and one by its URL.
func TestAFileIsRecordedByItsKindAndSize(t *testing.T) {
	a := exchanges(t, "/v1/chat/completions", [2]string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"see"},
		{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
		{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]}`,
		`{"choices":[{"message":{"content":"seen"},"finish_reason":"stop"}]}`,
	})
	a.check()
	for i, want := range []string{
		`{"type":"text","text":"see"}`, `{"type":"data-file","data":{"mediaType":"image/png","size":3}}`,
		`{"type":"file","mediaType":"image/*","url":"https://example.com/a.png"}`,
	} {
		if got := string(a.rec.All().Turns()[0].User.Parts[i].Data); got != want {
			t.Errorf("part %d is %s, want %s", i, got, want)
		}
	}
}

// TestParallelCallsThatAreSentBackOneByOneKeepTheirResults has a client, such as langchaingo's agents, that sends an
// answer with two calls back as two answers, each with its result.
func TestParallelCallsThatAreSentBackOneByOneKeepTheirResults(t *testing.T) {
	const one, two = "call_0123456789_one", "call_0123456789_two"
	for name, test := range map[string]struct{ path, first, calls, second, done string }{
		"chat": {
			"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"go"}]}`,
			`{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[` +
				`{"id":"` + one + `","type":"function","function":{"name":"ls","arguments":"{}"}},` +
				`{"id":"` + two + `","type":"function","function":{"name":"ls","arguments":"{}"}}]},` +
				`"finish_reason":"tool_calls"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"go"},` +
				`{"role":"assistant","tool_calls":[{"id":"` + one + `","type":"function",` +
				`"function":{"name":"ls","arguments":"{}"}}]},` +
				`{"role":"tool","tool_call_id":"` + one + `","content":"1"},` +
				`{"role":"assistant","tool_calls":[{"id":"` + two + `","type":"function",` +
				`"function":{"name":"ls","arguments":"{}"}}]},` +
				`{"role":"tool","tool_call_id":"` + two + `","content":"2"}]}`,
			`{"choices":[{"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}`,
		},
		"responses": {
			"/v1/responses", `{"model":"m","input":"go"}`,
			`{"id":"r1","status":"completed","output":[` +
				`{"type":"function_call","call_id":"` + one + `","name":"ls","arguments":"{}"},` +
				`{"type":"function_call","call_id":"` + two + `","name":"ls","arguments":"{}"}]}`,
			`{"model":"m","input":[{"role":"user","content":"go"},` +
				`{"type":"function_call","call_id":"` + one + `","name":"ls","arguments":"{}"},` +
				`{"type":"function_call_output","call_id":"` + one + `","output":"1"},` +
				`{"type":"function_call","call_id":"` + two + `","name":"ls","arguments":"{}"},` +
				`{"type":"function_call_output","call_id":"` + two + `","output":"2"}]}`,
			`{"id":"r2","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"done"}]}]}`,
		},
		"anthropic": {
			"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"go"}]}`,
			`{"id":"m1","stop_reason":"tool_use","content":[{"type":"tool_use","id":"` + one + `","name":"ls","input":{}},` +
				`{"type":"tool_use","id":"` + two + `","name":"ls","input":{}}]}`,
			`{"model":"m","messages":[{"role":"user","content":"go"},` +
				`{"role":"assistant","content":[{"type":"tool_use","id":"` + one + `","name":"ls","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + one + `","content":"1"}]},` +
				`{"role":"assistant","content":[{"type":"tool_use","id":"` + two + `","name":"ls","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + two + `","content":"2"}]}]}`,
			`{"id":"m2","stop_reason":"end_turn","content":[{"type":"text","text":"done"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := exchanges(t, test.path, [2]string{test.first, test.calls}, [2]string{test.second, test.done})
			a.check()
			outputs := map[string]string{}
			for _, c := range a.rec.All().ToolCalls() {
				outputs[c.CallID] += c.Output
			}
			if diff := cmp.Diff(map[string]string{one: `"1"`, two: `"2"`}, outputs); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			wantTurns(t, a, []string{"go"})
		})
	}
}

// TestAnEarlierResultOfTheSameIDIsNotTakenForANewOne has a server that numbers the calls of each answer, and a client
// that sends no result of the second one.
func TestAnEarlierResultOfTheSameIDIsNotTakenForANewOne(t *testing.T) {
	a := newAgent(t, says("call: call_0 ls", "It is empty.", "call: call_0 ls", "Never mind."), modelhttp.Options{})
	history := []string{"user: list", "call: call_0 ls", "tool: call_0 old", "assistant: It is empty.", "user: again"}
	a.chat(t.Context(), nil, tools, history[:1]...)
	a.chat(t.Context(), nil, tools, history[:3]...)
	a.chat(t.Context(), nil, tools, history...)
	a.chat(t.Context(), nil, tools, append(history, "call: call_0 ls", "user: stop")...)
	a.check()
	calls := a.rec.All().ToolCalls()
	if len(calls) != 2 || calls[0].Output != `"old"` || calls[1].Output != "" {
		t.Errorf("calls = %+v", calls)
	}
}

// TestAnImageThatAToolReturnsIsNotStored has what TestFilesInOutputsOfToolsAreNotStored of package agenttrace has not.
func TestAnImageThatAToolReturnsIsNotStored(t *testing.T) {
	picture := bytes.Repeat([]byte("\x89PNG\r\n"), 4000)
	encoded := base64.StdEncoding.EncodeToString(picture)
	note := fmt.Sprintf("[image/png, %d bytes, sha256 %x", len(picture), sha256.Sum256(picture))
	for name, test := range map[string]struct{ path, history string }{
		"chat, as text": {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"look"},
			{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"see","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":"seen [{\"url\":\"data:image/png;base64,$\"}]"}]}`},
		"gemini": {"/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"look"}]},
			{"role":"model","parts":[{"functionCall":{"name":"see","args":{}}}]},
			{"role":"user","parts":[{"functionResponse":{"name":"see","response":{"output":"seen"},
				"parts":[{"inlineData":{"mimeType":"image/png","data":"$"}}]}}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := exchanges(t, test.path, [2]string{strings.ReplaceAll(test.history, "$", encoded), "{}"})
			_ = a.transport.Close()
			a.check()
			calls := a.rec.All().ToolCalls("see")
			if len(calls) != 1 || !strings.Contains(calls[0].Output, note) || !strings.Contains(calls[0].Output, "seen") {
				t.Errorf("calls = %.500s", fmt.Sprint(calls))
			}
			for _, s := range a.rec.All() {
				if strings.Contains(fmt.Sprint(s.Attributes), encoded[:100]) {
					t.Errorf("span %s has the picture", s.Name)
				}
			}
		})
	}
}

// TestAToolThatMiddlewareReportsIsTheCallOfTheModel has an agent that begins no turn: middleware, such as that of MCP,
// reports the execution of a tool in a context that nobody has prepared.
func TestAToolThatMiddlewareReportsIsTheCallOfTheModel(t *testing.T) {
	a := newAgent(t, says("call: call_0123456789 ls", "call: call_abcdefghij ls", "Done."), modelhttp.Options{})
	start := func(o agenttrace.ToolOptions) *agenttrace.ToolCall {
		_, call := agenttrace.StartTool(context.Background(), o)
		return call
	}
	byInput := agenttrace.ToolOptions{Name: "ls", Input: map[string]any{}}
	a.chat(t.Context(), nil, tools, "user: list")
	if call := start(agenttrace.ToolOptions{Name: "ls", Input: map[string]any{"path": "/"}}); call != nil {
		t.Errorf("a call with other arguments is %s", call.ID())
	}
	call := start(byInput)
	if again := start(byInput); call.ID() != "call_0123456789" || again != nil {
		t.Errorf("the call is %q, and a second one %q", call.ID(), again.ID())
	}
	call.EndText("a.go")
	history := []string{"user: list", "call: call_0123456789 ls", "tool: call_0123456789 as the model sees it"}
	a.chat(t.Context(), nil, tools, history...)
	start(agenttrace.ToolOptions{ID: "call_abcdefghij", Name: "ls"}).Fail(errors.New("gone"))
	a.chat(t.Context(), nil, tools, append(history, "call: call_abcdefghij ls", "tool: call_abcdefghij gone")...)
	a.check()
	calls := a.rec.All().ToolCalls()
	if len(calls) != 2 || calls[0].Output != `"a.go"` || calls[0].Inferred || calls[1].Error != "gone" {
		t.Errorf("calls = %+v", calls)
	}
	if start(byInput) != nil {
		t.Error("a call is found after the turn")
	}
}

// TestEqualCallsOfTwoUsersAreNotMixedUp has two sessions that wait for the same call.
func TestEqualCallsOfTwoUsersAreNotMixedUp(t *testing.T) {
	a := newAgent(t, says("call: call_0123456789 ls", "call: call_abcdefghij ls"), modelhttp.Options{})
	a.chat(t.Context(), http.Header{"Authorization": {"Bearer alice"}}, tools, "user: list")
	a.chat(t.Context(), http.Header{"Authorization": {"Bearer bob"}}, tools, "user: list")
	o := agenttrace.ToolOptions{Name: "ls", Input: map[string]any{}}
	if _, call := agenttrace.StartTool(t.Context(), o); call != nil {
		t.Errorf("the call is %s", call.ID())
	}
	o.ID = "call_abcdefghij"
	if _, call := agenttrace.StartTool(t.Context(), o); call.ID() != o.ID {
		t.Errorf("the call of the id is %q", call.ID())
	}
	_ = a.transport.Close()
}
