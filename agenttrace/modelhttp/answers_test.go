package modelhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(answer, "data:") || strings.HasPrefix(answer, "event:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, answer)
	}, modelhttp.Options{})
	for _, p := range pairs {
		resp, err := a.client.Post(a.url+path, "application/json", strings.NewReader(p[0]))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return a
}

// TestAToolOfTheProviderHasItsResultInTheAnswer has one of Anthropic and one of OpenAI.
func TestAToolOfTheProviderHasItsResultInTheAnswer(t *testing.T) {
	for name, test := range map[string]struct{ path, request, answer, tool, output string }{
		"Anthropic": {"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			`{"id":"msg_1","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}},
			{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"u"}]},
			{"type":"text","text":"found"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`,
			"web_search", `[{"type":"web_search_result","url":"u"}]`},
		"OpenAI": {"/v1/responses", `{"model":"m","input":"hi"}`,
			`{"id":"resp_1","status":"completed","output":[{"type":"mcp_call","id":"mcp_1","name":"roll","arguments":"{}","output":"4"},
			{"type":"message","content":[{"type":"output_text","text":"found"}]}]}`, "roll", `"4"`},
	} {
		t.Run(name, func(t *testing.T) {
			a := exchanges(t, test.path, [2]string{test.request, test.answer})
			a.check()
			calls := a.rec.All().ToolCalls(test.tool)
			if len(calls) != 1 || !calls[0].ProviderExecuted || calls[0].Output != test.output || calls[0].Inferred {
				t.Fatalf("calls: %+v", calls)
			}
			turn := a.rec.All().Turns()[0]
			if p := turn.Assistant.Parts; len(p) != 2 || p[0].Type != "tool-"+test.tool || turn.EndReason != "finish" {
				t.Errorf("the turn ended with %s and %d parts", turn.EndReason, len(turn.Assistant.Parts))
			}
		})
	}
}

// TestUsageThatIsNotSentIsNotCounted has a stream without it.
func TestUsageThatIsNotSentIsNotCounted(t *testing.T) {
	a := exchanges(t, "/v1/chat/completions", [2]string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		`data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}],"usage":null}` + "\n\ndata: [DONE]\n\n",
	})
	a.check()
	if u := a.rec.All().Turns()[0].Usage; u.Tokens != nil {
		t.Errorf("usage = %+v, want none", u.Tokens)
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
	a.check()
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
	a.check()
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
	var got []string
	for _, p := range a.rec.All().Turns()[0].User.Parts {
		got = append(got, string(p.Data))
	}
	want := []string{
		`{"type":"text","text":"see"}`, `{"type":"data-file","data":{"mediaType":"image/png","size":3}}`,
		`{"type":"file","mediaType":"image/*","url":"https://example.com/a.png"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
