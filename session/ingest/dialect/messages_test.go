package dialect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

func textPart(s string) fact.Part      { return fact.Part{Kind: fact.PartText, Text: s} }
func reasoningPart(s string) fact.Part { return fact.Part{Kind: fact.PartReasoning, Text: s} }

func callPart(id, name, input string) fact.Part {
	return fact.Part{Kind: fact.PartCall, CallID: id, Name: name, Input: rawOrNil(input)}
}

func resultPart(id, name, output string) fact.Part {
	return fact.Part{Kind: fact.PartResult, CallID: id, Name: name, Output: rawOrNil(output)}
}

func rawOrNil(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

func message(role string, parts ...fact.Part) fact.Message {
	return fact.Message{Role: role, Parts: parts}
}

func TestMessages(t *testing.T) {
	weather := []fact.Message{
		message("user", textPart("Weather in Paris?")),
		message("assistant", textPart("Let me check."), callPart("call_1", "get_weather", `{"city":"Paris"}`)),
		message("tool", resultPart("call_1", "", `{"tempC":12}`)),
	}
	named := []fact.Message{weather[0], weather[1],
		message("tool", resultPart("call_1", "get_weather", `{"tempC":12}`))}
	tests := []struct {
		name string
		raw  string
		want []fact.Message
	}{
		{"conventions", `[{"role":"user","parts":[{"type":"text","content":"Weather in Paris?"}]},
			{"role":"assistant","parts":[{"type":"text","content":"Let me check."},{"type":"tool_call","id":"call_1","name":"get_weather","arguments":{"city":"Paris"}}],"finish_reason":"tool_call"},
			{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":{"tempC":12}}]}]`, weather},
		{"conventions, result", `[{"role":"user","parts":[{"type":"text","content":"Weather in Paris?"}]},
			{"role":"assistant","parts":[{"type":"text","content":"Let me check."},{"type":"tool_call","id":"call_1","name":"get_weather","arguments":"{\"city\":\"Paris\"}"}]},
			{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","result":"{\"tempC\":12}"}]}]`, weather},
		{"conventions, other parts", `[{"role":"assistant","parts":[{"type":"server_tool_call","id":"s1","name":"web_search","server_tool_call":{"type":"web_search","query":"go"}},
			{"type":"server_tool_call_response","id":"s1","server_tool_call_response":{"hits":2}},
			{"type":"blob","modality":"image","mime_type":"image/png","content":"aGk="},{"type":"file","modality":"document","file_id":"f_1"},
			{"type":"uri","modality":"audio","uri":"gs://b/a.wav","mime_type":"audio/wav"},{"type":"compaction","id":"c","content":"So far."},{"type":"sparkle","glow":1},{"type":"text","content":""}]}]`,
			[]fact.Message{message("assistant",
				fact.Part{Kind: fact.PartCall, CallID: "s1", Name: "web_search",
					Input: json.RawMessage(`{"type":"web_search","query":"go"}`), Provider: true},
				fact.Part{Kind: fact.PartResult, CallID: "s1", Output: json.RawMessage(`{"hits":2}`), Provider: true},
				fact.Part{Kind: fact.PartFile, MediaType: "image/png", URL: "data:image/png;base64,aGk="},
				fact.Part{Kind: fact.PartFile, MediaType: "document/*", Name: "f_1"},
				fact.Part{Kind: fact.PartFile, MediaType: "audio/wav", URL: "gs://b/a.wav"},
				fact.Part{Kind: fact.PartCompaction, Text: "So far."},
				fact.Part{Kind: fact.PartOther, Name: "sparkle",
					Data: json.RawMessage(`{"type":"sparkle","glow":1}`)})}},
		{"AI SDK model messages", `[{"role":"user","content":"Weather in Paris?"},
			{"role":"assistant","content":[{"type":"text","text":"Let me check."},{"type":"tool-call","toolCallId":"call_1","toolName":"get_weather","input":{"city":"Paris"}}]},
			{"role":"tool","content":[{"type":"tool-result","toolCallId":"call_1","toolName":"get_weather","output":{"type":"json","value":{"tempC":12}}}]}]`, named},
		{"AI SDK 4 and a prompt object", `{"messages":[{"role":"user","content":[{"type":"text","text":"Weather in Paris?"}]},
			{"role":"assistant","content":[{"type":"text","text":"Let me check."},{"type":"tool-call","toolCallId":"call_1","toolName":"get_weather","args":{"city":"Paris"}}]},
			{"role":"tool","content":[{"type":"tool-result","toolCallId":"call_1","toolName":"get_weather","result":{"tempC":12}}]}]}`, named},
		{"AI SDK results", `[{"role":"tool","content":[
			{"type":"tool-result","toolCallId":"1","toolName":"a","output":{"type":"text","value":"12"}},
			{"type":"tool-result","toolCallId":"2","toolName":"a","output":{"type":"error-text","value":"EACCES"}},
			{"type":"tool-result","toolCallId":"3","toolName":"a","output":{"type":"error-json","value":{"code":7}}},
			{"type":"tool-result","toolCallId":"4","toolName":"a","output":{"type":"execution-denied","reason":"no"}},
			{"type":"tool-result","toolCallId":"5","toolName":"a","output":{"type":"content","value":[{"type":"text","text":"hi"}]}},
			{"type":"tool-result","toolCallId":"6","toolName":"a","result":"gone","isError":true}]}]`,
			[]fact.Message{message("tool",
				resultPart("1", "a", `"12"`),
				fact.Part{Kind: fact.PartResult, CallID: "2", Name: "a", Error: "EACCES"},
				fact.Part{Kind: fact.PartResult, CallID: "3", Name: "a", Error: `{"code":7}`},
				fact.Part{Kind: fact.PartResult, CallID: "4", Name: "a", Denied: true, Error: "no"},
				resultPart("5", "a", `"hi"`),
				fact.Part{Kind: fact.PartResult, CallID: "6", Name: "a", Error: "gone"})}},
		{"AI SDK prompt", `{"system":"Be brief.","prompt":"Hi"}`,
			[]fact.Message{message("system", textPart("Be brief.")), message("user", textPart("Hi"))}},
		{"AI SDK UI messages", `[{"id":"m1","role":"user","parts":[{"type":"text","text":"Hi"}]},
			{"id":"m2","role":"assistant","parts":[{"type":"step-start"},{"type":"reasoning","text":"Hm."},
			{"type":"tool-get_weather","toolCallId":"call_1","state":"output-available","input":{"city":"Paris"},"output":{"tempC":12}},
			{"type":"dynamic-tool","toolName":"rm","toolCallId":"call_2","state":"output-error","input":{},"errorText":"EACCES"},
			{"type":"source-url","url":"https://a.b","title":"A"}]}]`,
			[]fact.Message{{Role: "user", ID: "m1", Parts: []fact.Part{textPart("Hi")}},
				{Role: "assistant", ID: "m2", Parts: []fact.Part{
					reasoningPart("Hm."), callPart("call_1", "get_weather", `{"city":"Paris"}`),
					resultPart("call_1", "get_weather", `{"tempC":12}`),
					callPart("call_2", "rm", `{}`), {Kind: fact.PartResult, CallID: "call_2", Name: "rm",
						Error: "EACCES"},
					{Kind: fact.PartSource, URL: "https://a.b", Name: "A"}}}}},
		{"OpenAI chat", `[{"role":"developer","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Weather in Paris?"}]},
			{"role":"assistant","content":"Let me check.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]},
			{"role":"tool","tool_call_id":"call_1","content":"{\"tempC\":12}"}]`,
			append([]fact.Message{message("system", textPart("Be brief."))}, weather...)},
		{"OpenAI chat response",
			`{"id":"x","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hi",` +
				`"reasoning_content":"Hm."}}]}`,
			[]fact.Message{message("assistant", reasoningPart("Hm."), textPart("Hi"))}},
		{"OpenAI responses", `[{"type":"message","role":"user","content":[{"type":"input_text","text":"Weather in Paris?"},{"type":"input_image","image_url":"https://a.b/c.png"}]},
			{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm."}]},
			{"type":"function_call","id":"fc_1","call_id":"call_1","name":"get_weather","arguments":"{\"city\":\"Paris\"}"},
			{"type":"function_call_output","call_id":"call_1","output":"{\"tempC\":12}"}]`,
			[]fact.Message{message("user", textPart("Weather in Paris?"),
				fact.Part{Kind: fact.PartFile, URL: "https://a.b/c.png", MediaType: "image/*"}),
				message("assistant", reasoningPart("Hm."), callPart("call_1", "get_weather", `{"city":"Paris"}`)),
				weather[2]}},
		{"Anthropic", `[{"role":"user","content":"Weather in Paris?"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"x"},{"type":"tool_use","id":"call_1","name":"get_weather","input":{"city":"Paris"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"{\"tempC\":12}"}]},
			{"type":"tool_result","tool_use_id":"call_2","content":"EACCES","is_error":true},{"type":"text","text":"Also Rome."}]},
			{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]`,
			[]fact.Message{weather[0], message("assistant", reasoningPart("Hm."),
				callPart("call_1", "get_weather", `{"city":"Paris"}`)),
				message("tool", resultPart("call_1", "", `{"tempC":12}`),
					fact.Part{Kind: fact.PartResult, CallID: "call_2", Error: "EACCES"}),
				message("user", textPart("Also Rome.")),
				message("user", fact.Part{Kind: fact.PartFile, MediaType: "image/png",
					URL: "data:image/png;base64,aGk="})}},
		{"Gemini", `[{"role":"user","parts":[{"text":"Weather in Paris?"},{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"fileData":{"fileUri":"gs://b/a.wav","mimeType":"audio/wav"}}]},
			{"role":"model","parts":[{"text":"Hm.","thought":true},{"functionCall":{"id":"call_1","name":"get_weather","args":{"city":"Paris"}},"thoughtSignature":"x"}]},
			{"role":"user","parts":[{"functionResponse":{"id":"call_1","name":"get_weather","response":{"tempC":12}}}]}]`,
			[]fact.Message{message("user", textPart("Weather in Paris?"),
				fact.Part{Kind: fact.PartFile, MediaType: "image/png", URL: "data:image/png;base64,aGk="},
				fact.Part{Kind: fact.PartFile, MediaType: "audio/wav", URL: "gs://b/a.wav"}),
				message("assistant", reasoningPart("Hm."), callPart("call_1", "get_weather", `{"city":"Paris"}`)),
				named[2]}},
		{"Gemini response",
			`[{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi"}]},"finishReason":"STOP","index":0}],` +
				`"usageMetadata":{"totalTokenCount":3}}]`,
			[]fact.Message{message("assistant", textPart("Hi"))}},
		{"Gemini CLI in the conventions' shape", `[{"role":"user","parts":[{"type":"text","content":"List"}]},
			{"role":"system","parts":[{"type":"tool_call","name":"ls","id":"fc_7","arguments":"{\"d\":1}"}]},
			{"role":"user","parts":[{"type":"tool_call_response","response":"{\"output\":\"x\"}","id":"fc_7"}]}]`,
			[]fact.Message{message("user", textPart("List")), message("assistant", callPart("fc_7", "ls", `{"d":1}`)),
				message("tool", resultPart("fc_7", "", `{"output":"x"}`))}},
		{"Bedrock", `[{"role":"assistant","content":[{"text":"Let me check."},{"toolUse":{"toolUseId":"call_1","name":"get_weather","input":{"city":"Paris"}}}]},
			{"role":"user","content":[{"toolResult":{"toolUseId":"call_1","status":"success","content":[{"json":{"tempC":12}}]}}]}]`, weather[1:]},
		{"Genkit", `{"messages":[{"role":"user","content":[{"text":"Weather in Paris?"},{"media":{"url":"https://a.b/c.png","contentType":"image/png"}}]},
			{"role":"model","content":[{"reasoning":"Hm."},{"toolRequest":{"ref":"call_1","name":"get_weather","input":{"city":"Paris"}}}]},
			{"role":"tool","content":[{"toolResponse":{"ref":"call_1","name":"get_weather","output":{"tempC":12}}}]}],"tools":[]}`,
			[]fact.Message{message("user", textPart("Weather in Paris?"),
				fact.Part{Kind: fact.PartFile, MediaType: "image/png", URL: "https://a.b/c.png"}),
				message("assistant", reasoningPart("Hm."), callPart("call_1", "get_weather", `{"city":"Paris"}`)),
				named[2]}},
		{"LangChain", `[[{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"Weather in Paris?","type":"human"}},
			{"type":"ai","content":"Let me check.","tool_calls":[{"name":"get_weather","args":{"city":"Paris"},"id":"call_1","type":"tool_call"}]},
			{"type":"tool","data":{"content":"{\"tempC\":12}","tool_call_id":"call_1"}}]]`, weather},
		{"LangChain on Anthropic",
			`[{"type":"ai","content":[{"type":"text","text":"Let me check."},{"type":"tool_use","id":"call_1",` +
				`"name":"get_weather","input":{"city":"Paris"}}],"tool_calls":[{"name":"get_weather",` +
				`"args":{"city":"Paris"},"id":"call_1"}]}]`,
			weather[1:2]},
		{"text", `"Hi"`, []fact.Message{message("user", textPart("Hi"))}},
		{"texts", `["Hi","there"]`,
			[]fact.Message{message("user", textPart("Hi")), message("user", textPart("there"))}},
		{"one message", `{"role":"human","content":"Hi"}`, []fact.Message{message("user", textPart("Hi"))}},
		{"encoded twice", `"[{\"role\":\"user\",\"content\":\"Hi\"}]"`,
			[]fact.Message{message("user", textPart("Hi"))}},
		{"encoded three times", `"\"[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"Hi\\\"}]\""`,
			[]fact.Message{message("user", textPart("Hi"))}},
		{"text that is JSON", `"{\"city\":\"Paris\"}"`, []fact.Message{message("user", textPart(`{"city":"Paris"}`))}},
		{"content encoded twice", `[{"role":"user","content":"[{\"type\":\"text\",\"text\":\"Hi\"}]"}]`,
			[]fact.Message{message("user", textPart("Hi"))}},
		{"no message", `[]`, nil},
		{"no content", `[{"role":"assistant","content":null}]`, []fact.Message{message("assistant")}},
		{"NUL", `[{"role":"user","content":"a\u0000b"}]`, []fact.Message{message("user", textPart("a\uFFFDb"))}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Messages(json.RawMessage(tt.raw))
			if !ok {
				t.Error("not ok")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMessagesThatAreNone(t *testing.T) {
	for _, raw := range []string{``, `null`, `7`, `[1,2]`, `{"city":"Paris"}`, `{]`, `nonsense`} {
		if got, ok := Messages(json.RawMessage(raw)); ok || got != nil {
			t.Errorf("Messages(%s) = %v, %v", raw, got, ok)
		}
	}
}

// A cut conversation gives what is before the cut and is never more than the
// whole had.
func TestMessagesCut(t *testing.T) {
	const whole = `[{"role":"user","parts":[{"type":"text","content":"Zürich \u00e9 \ud83d\ude00?"}]},` +
		`{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"get","arguments":{"city":"Paris"}}]},` +
		`{"role":"user","content":"ok"}]`
	all, _ := Messages(json.RawMessage(whole))
	for i := range len(whole) {
		for _, tail := range []string{"", "...", "… [truncated]"} {
			got, ok := Messages(json.RawMessage(whole[:i] + tail))
			if ok {
				t.Fatalf("cut at %d: ok", i)
			}
			for n, m := range got {
				for k, p := range m.Parts {
					want := all[n].Parts[k]
					if p.Kind == fact.PartText {
						// a character that was cut before the tail
						kept, _, _ := strings.Cut(strings.TrimSuffix(p.Text, tail), "\uFFFD")
						if !strings.HasPrefix(want.Text, kept) || tail == "" && kept != p.Text {
							t.Errorf("cut at %d: text %q", i, p.Text)
						}
					} else if p.CallID != "" && p.CallID != want.CallID || p.Name != "" && p.Name != want.Name ||
						p.Input != nil && string(p.Input) != string(want.Input) {
						t.Errorf("cut at %d: %+v", i, p)
					}
				}
			}
		}
	}
	got, _ := Messages(json.RawMessage(whole[:strings.Index(whole, `,{"role":"user","content"`)]))
	if diff := cmp.Diff(all[:2], got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// The cut is also found where the JSON is in a string.
	encoded, _ := json.Marshal(whole[:len(whole)-3])
	got, ok := Messages(encoded)
	if ok || len(got) != 3 {
		t.Errorf("encoded: %v, %v", got, ok)
	}
}

func TestOutput(t *testing.T) {
	tests := []struct {
		raw    string
		want   []fact.Part
		finish string
	}{
		{`"Hi"`, []fact.Part{textPart("Hi")}, ""},
		{`[{"role":"assistant","parts":[{"type":"text","content":"a"}],"finish_reason":"tool_call"},{"role":"tool",` +
			`"parts":[{"type":"tool_call_response","id":"1","response":2}]},{"role":"assistant",` +
			`"parts":[{"type":"text","content":"b"}],"finish_reason":"stop"}]`,
			[]fact.Part{textPart("a"), resultPart("1", "", "2"), textPart("b")}, "stop"},
		{`{"messages":[{"type":"human","content":"q"},{"type":"ai","content":"a"}]}`, []fact.Part{textPart("a")}, ""},
		{`{"role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}`,
			[]fact.Part{textPart("Hi")},
			"end_turn"},
		{`{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}`,
			[]fact.Part{textPart("Hi")}, "STOP"},
		{`{"message":{"role":"model","content":[{"text":"Hi"}]},"finishReason":"stop","usage":{}}`,
			[]fact.Part{textPart("Hi")}, "stop"},
		{
			`{"object":"response","output":[{"type":"message","role":"assistant","content":[{"type":"output_text",` +
				`"text":"Hi"}]}]}`, []fact.Part{textPart("Hi")}, ""},
		{`[{"role":"system","parts":[{"type":"text","content":"Hi"}],"finish_reason":"stop"}]`,
			[]fact.Part{textPart("Hi")},
			"stop"},
		{`{"generations":[[{"text":"Hi"}]]}`, []fact.Part{textPart("Hi")}, ""},
	}
	for _, tt := range tests {
		got, finish := Output(json.RawMessage(tt.raw))
		if diff := cmp.Diff(tt.want, got); diff != "" || finish != tt.finish {
			t.Errorf("Output(%s): finish %q, -want +got:\n%s", tt.raw, finish, diff)
		}
	}
}

func TestSystemInstructions(t *testing.T) {
	for raw, want := range map[string]string{
		`"Be brief."`: "Be brief.",
		`[{"type":"text","content":"Be brief."},{"type":"text","content":"Be kind."}]`: "Be brief.\n\nBe kind.",
		`["Be brief."]`: "Be brief.",
		`{"role":"system","content":"Be brief."}`:        "Be brief.",
		`{"parts":[{"text":"Be brief."}],"role":"user"}`: "Be brief.",
		`{"parts":[{"text":"Be brief."}]}`:               "Be brief.",
		``:                                               "", `null`: "",
	} {
		if got := SystemInstructions(json.RawMessage(raw)); got != want {
			t.Errorf("SystemInstructions(%s) = %q, want %q", raw, got, want)
		}
	}
}

func TestRecent(t *testing.T) {
	roles := func(messages []fact.Message) string {
		var s strings.Builder
		for _, m := range messages {
			s.WriteString(m.Role[:1])
		}
		return s.String()
	}
	for all, want := range map[string]struct {
		recent  string
		history int
	}{
		"":         {"", 0},
		"su":       {"u", 0},
		"suau":     {"u", 2},
		"suausu":   {"uu", 2},
		"uatatuat": {"uat", 5},
		"atat":     {"atat", 0},
		"uuatata":  {"uuatata", 0},
	} {
		var messages []fact.Message
		for _, c := range all {
			messages = append(messages,
				message(map[rune]string{'s': "system", 'u': "user", 'a': "assistant", 't': "tool"}[c],
					textPart("x")))
		}
		recent, history := Recent(messages)
		if got := roles(recent); got != want.recent || history != want.history {
			t.Errorf("Recent(%s) = %s, %d, want %s, %d", all, got, history, want.recent, want.history)
		}
	}

	// What follows the user is bounded, but neither the user's own nor the end.
	big := strings.Repeat("x", 20<<10)
	long := []fact.Message{
		message("user", textPart("earlier")), message("assistant", textPart("ok")),
		message("user", textPart(strings.Repeat(big, 3))),
		message("assistant", textPart(big)), message("tool", textPart(big)),
		message("assistant", textPart("small")), message("tool", textPart("small")),
		message("assistant", textPart("last")), message("tool", textPart(big)),
	}
	recent, history := Recent(long)
	if diff := cmp.Diff(append([]fact.Message{long[2]}, long[5:]...), recent); diff != "" || history != 4 {
		t.Errorf("history %d, -want +got:\n%s", history, diff)
	}
	var f fact.Fact
	ReadInput(&f, append([]fact.Message{message("system", textPart("Be brief."))}, long...))
	if f.SystemPrompt != "Be brief." || f.History != 4 || len(f.Input) != 5 {
		t.Errorf("ReadInput: %q, %d, %d", f.SystemPrompt, f.History, len(f.Input))
	}
}

func TestUsage(t *testing.T) {
	n := func(i int64) *int64 { return &i }
	tests := []struct {
		name string
		got  *fact.Usage
		want *fact.Usage
	}{
		{"nothing", Counts{}.Usage(0), nil},
		{"zero", Counts{Input: n(0)}.Usage(0), &fact.Usage{Basis: fact.Inclusive}},
		{"inclusive", Counts{Input: n(180), Output: n(41), CacheRead: n(128), CacheWrite: n(10),
			Reasoning: n(12)}.Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 42, Output: 29, Reasoning: 12,
				CacheRead:  128,
				CacheWrite: 10}}},
		{"more of the cache than there is input", Counts{Input: n(4), Output: n(41), CacheRead: n(128),
			Reasoning: n(12)}.Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Capped: true,
				Tokens: session.Usage{Output: 29, Reasoning: 12, CacheRead: 4}}},
		{"more reasoning than there is output", Counts{Input: n(4), Output: n(1), Reasoning: n(12)}.Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Capped: true, Tokens: session.Usage{Input: 4, Reasoning: 1}}},
		{"assumed, and cannot be inclusive", Counts{Input: n(4), Output: n(41), CacheRead: n(128),
			Reasoning: n(12)}.Assumed("who"),
			&fact.Usage{Basis: fact.Inclusive, Capped: true,
				Tokens:  session.Usage{Output: 29, Reasoning: 12, CacheRead: 4},
				Counter: "who", Stated: &fact.Stated{Input: n(4), Output: n(41), Reasoning: 12, CacheRead: 128},
				Proof: fact.CacheApart}},
		{"assumed, and may be inclusive", Counts{Input: n(180), Output: n(41), CacheRead: n(128), Reasoning: n(12),
			Total: n(221)}.Assumed("who"),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 52, Output: 29, Reasoning: 12,
				CacheRead: 128},
				Counter: "who", Stated: &fact.Stated{Input: n(180), Output: n(41), Reasoning: 12, CacheRead: 128}}},
		{"assumed, and nothing is stated", Counts{Total: n(7)}.Assumed("who"), nil},
		{"only the cache", Counts{CacheRead: n(128)}.Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{CacheRead: 128}}},
		{"thoughts beside the output", Counts{Input: n(100), Output: n(50), CacheRead: n(60), Reasoning: n(20),
			Total: n(170)}.WithThoughts().Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 40, Output: 50, Reasoning: 20,
				CacheRead: 60}}},
		{"thoughts in the output", Counts{Input: n(100), Output: n(50), CacheRead: n(60), Reasoning: n(20),
			Total: n(150)}.WithThoughts().Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 40, Output: 30, Reasoning: 20,
				CacheRead: 60}}},
		{"thoughts and no total", Counts{Input: n(100), Output: n(50), Reasoning: n(20)}.WithThoughts().Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 100, Output: 30, Reasoning: 20}}},
		{"no output", Counts{Input: n(100), Reasoning: n(20), Total: n(140)}.WithThoughts().Usage(0),
			&fact.Usage{Basis: fact.Inclusive, Tokens: session.Usage{Input: 100, Reasoning: 20}}},
		{"negative", Counts{Input: n(-4), Output: n(1)}.Usage(fact.CacheApart | fact.ReasoningApart),
			&fact.Usage{Basis: fact.Exclusive, Tokens: session.Usage{Output: 1}}},
		{"mixed", Counts{Input: n(4), Output: n(20), CacheRead: n(128), CacheWrite: n(8),
			Reasoning: n(5)}.Usage(fact.CacheApart),
			&fact.Usage{Basis: fact.Mixed, Tokens: session.Usage{Input: 4, Output: 15, Reasoning: 5, CacheRead: 128,
				CacheWrite: 8}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`"Hi"`, `[]`, `[{"role":"user","parts":[{"type":"text","content":"a"}]}`, `{"system":"s","prompt":"p"}`,
		`[{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"n","arguments":"{\"a\":1}"}}]}]`,
		`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}],` +
			`"is_error":true}]}]`,
		`[{"candidates":[{"content":{"parts":[{"functionCall":{"name":"n","args":{}}}]}}]}]`,
		`[{"lc":1,"id":["HumanMessage"],"kwargs":{"content":"x"}}]`, `"\"[{\\\"role\\\":1}]\""`,
		`{"data":{"content":[{"inlineData":{}}]}}`,
		`[{"type":"tool-x","toolCallId":"1","state":"output-denied"}]`, `[{"type":"image","image":{"0":1}}]`,
		"[{\"role\":\"user\",\"content\":\"\xff\\ud83d",
	} {
		f.Add([]byte(seed))
	}
	kinds := map[string]bool{fact.PartText: true, fact.PartReasoning: true, fact.PartCall: true, fact.PartResult: true,
		fact.PartFile:   true,
		fact.PartSource: true, fact.PartCompaction: true, fact.PartOther: true}
	f.Fuzz(func(t *testing.T, raw []byte) {
		messages, _ := Messages(raw)
		for _, m := range messages {
			if m.Role != "user" && m.Role != "assistant" && m.Role != "system" && m.Role != "tool" {
				t.Errorf("role %q", m.Role)
			}
			for _, p := range m.Parts {
				switch {
				case !kinds[p.Kind]:
					t.Errorf("kind %q", p.Kind)
				case (p.Kind == fact.PartText || p.Kind == fact.PartReasoning) && p.Text == "":
					t.Error("empty text")
				case p.Kind == fact.PartResult && m.Role == "user":
					t.Error("a result of the user's")
				case p.Kind == fact.PartFile && p.URL == "" && p.Name == "" && p.MediaType == "":
					t.Error("empty file")
				}
				for _, s := range []string{p.Text, p.CallID, p.Name, p.Error, p.URL, p.MediaType} {
					if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
						t.Errorf("text %q", s)
					}
				}
				for _, raw := range []json.RawMessage{p.Input, p.Output, p.Data} {
					if raw != nil && (!json.Valid(raw) || !utf8.Valid(raw)) {
						t.Errorf("JSON %q", raw)
					}
				}
			}
		}
		recent, history := Recent(messages)
		if len(recent)+history > len(messages) {
			t.Errorf("%d recent and %d before of %d", len(recent), history, len(messages))
		}
		Output(raw)
		SystemInstructions(raw)
		Catalog(raw)
	})
}

func BenchmarkMessages(b *testing.B) {
	var s strings.Builder
	s.WriteString(`[{"role":"user","parts":[{"type":"text","content":"Fix the build."}]}`)
	for i := range 100 {
		fmt.Fprintf(&s,
			`,{"role":"assistant","parts":[{"type":"text","content":"Looking at file %d."},{"type":"tool_call",`+
				`"id":"call_%d","name":"read","arguments":{"path":"/src/%d.go"}}]}`, i, i, i)
		fmt.Fprintf(&s, `,{"role":"tool","parts":[{"type":"tool_call_response","id":"call_%d",`+
			`"response":{"content":%q}}]}`,
			i, strings.Repeat("line of text\n", 40))
	}
	raw := json.RawMessage(s.String() + "]")
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if messages, ok := Messages(raw); !ok || len(messages) != 201 {
			b.Fatal(len(messages), ok)
		}
	}
}
