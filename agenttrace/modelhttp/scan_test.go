package modelhttp

import (
	"bytes"
	"fmt"
	"testing"
)

// deltas are events as the providers stream them, by API, with what makes them hard.
var deltas = map[string][]string{
	"anthropic": {
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"fine"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"a \"b\" \\ \/\b\f\n\r\t"}}`,
		`{"type":"content_block_delta","index":12,"delta":{"type":"input_json_delta","partial_json":"{\"a\": "}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"c2ln"}}`,
		` { "index" : 0 , "delta" : { "text" : "\u00e4\ud83d\ude00 \u4e2d", "type" : "text_delta" } , "more" : [1.5e-7,{"a":null}], "type":"content_block_delta" } `,
	},
	"chat": {
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"ä 中 😀\n"},"finish_reason":null}],"obfuscation":"x"}`,
		`{"id":"c","choices":[{"index":0,"delta":{"reasoning_content":"well","content":null}}]}`,
		`{"id":"c","choices":[{"delta":{"reasoning":"well","content":"so"}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"a\""}}]}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null,"type":"function","function":{"name":null,"arguments":":1}"}}]}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":[{"type":"text","text":"part"}]}}]}`,
		`{"id":"c","choices":[{"index":1,"delta":{"content":"other"}}]}`,
	},
	"responses": {
		`{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg","output_index":0,"content_index":0,"delta":"fine","logprobs":[],"obfuscation":"x"}`,
		`{"type":"response.refusal.delta","output_index":2,"content_index":1,"delta":"no"}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":2,"delta":"well"}`,
		`{"type":"response.reasoning_text.delta","output_index":1,"content_index":2,"delta":"well"}`,
		`{"type":"response.function_call_arguments.delta","output_index":3,"delta":"{\"a\""}`,
		`{"type":"response.custom_tool_call_input.delta","output_index":3,"delta":"raw"}`,
		`{"type":"response.audio.delta","delta":"AAAA"}`,
	},
	"gemini": {
		`{"candidates":[{"content":{"parts":[{"text":"fine"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":2,"totalTokenCount":9,"promptTokensDetails":[{"modality":"TEXT","tokenCount":7}]},"modelVersion":"g","responseId":"r"}`,
		`{"candidates":[{"content":{"parts":[{"text":"well","thought":true,"thoughtSignature":"eA=="}]},"safetyRatings":[]}]}`,
		`{"usageMetadata":{"promptTokenCount":7,"thoughtsTokenCount":3,"cachedContentTokenCount":1,"toolUsePromptTokenCount":2}}`,
		`{"usageMetadata":{"totalTokenCount":7},"candidates":[{"content":{"parts":[{"text":"not","thought":false}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"a"},{"text":"b"}]},"finishReason":"STOP"}]}`,
	},
	"bedrock converse": {
		`{"contentBlockIndex":0,"delta":{"text":"fine"},"p":"abcdefgh"}`,
		`{"contentBlockIndex":1,"delta":{"reasoningContent":{"text":"well"}}}`,
		`{"contentBlockIndex":1,"delta":{"reasoningContent":{"signature":"c2ln"}}}`,
		`{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"a\""}},"p":"ab"}`,
	},
}

// odd are events that no provider sends so, each with the API that would have them.
var odd = map[string][]string{
	"anthropic": {
		`{"Type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":1.0,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":12345678901,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":01,"delta":{"type":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x","text":null}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"},"delta":{"text":"merged"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}},`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\q"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + "\xff" + `"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + "\n" + `"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"t\u0079pe":"text_delta","text":"x"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"error":{"type":"overloaded_error","message":"m"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"more":01}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"more":[1,]}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"more":"\u12g4"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"u` + "\u017f" + `age":"x"}`,
		`[]`, `null`, `"x"`, ``, `{`, `{"`, `{"a\`, `{"type":"content_block_delta"}`, `{"a":1 "b":2}`, `{,}`,
	},
	"chat": {
		`{"id":"c","choices":[{"index":0,"delta":{"content":"x"}},{"index":0,"delta":{"content":"y"}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":"x"},"message":{"content":"y"}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":"x","content":null}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":"x","refusal":"no"}}],"error":null}`,
		`{"id":"c","choices":[{"index":0,"delta":{"content":"x","name":7}}]}`,
		`{"id":"c","choices":[{"index":0,"delta":null}]}`, `{"id":"c","choices":[null]}`, `{"id":"c","choices":[]}`,
	},
	"responses": {
		`{"type":"response.output_text.delta","delta":{"a":1}}`,
		`{"type":"response.output_text.delta","delta":"x","error":{"message":"m"}}`,
		`{"type":"response.output_text.delta","delta":"x","message":7}`,
	},
	"gemini": {
		`{"usageMetadata":{"promptTokenCount":7},"usageMetadata":{"candidatesTokenCount":3}}`,
		`{"usageMetadata":{"promptTokenCount":7,"promptTokenCount":null}}`,
		`{"usageMetadata":{"promptTokenCount":7,"thoughtsTokenCount":"x"}}`,
		`{"candidates":[{"content":{"parts":[{"text":"x","THOUGHT":true}]}}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"x","functionCall":{"name":"f"}}]}}]}`,
	},
	"bedrock converse": {
		`{"contentBlockIndex":0,"delta":{"text":"x","text":null,"reasoningContent":{"text":"y"}}}`,
		`{"contentBlockIndex":0,"delta":{"text":"x","toolUse":{"input":"y"}}}`,
		`{"contentBlockIndex":0,"delta":{"toolUse":{"input":null}}}`, `{"contentblockindex":3,"delta":{"text":"x"}}`,
	},
}

// TestManyCarriageReturnsTakeNoLongerThanLineFeeds has lines that end with a carriage return only: the time to split
// them grows with their number. With its square, this test would not end.
func TestManyCarriageReturnsTakeNoLongerThanLineFeeds(t *testing.T) {
	events := 0
	split := &sse{max: 1 << 20}
	split.feed(bytes.Repeat([]byte("data: 1\r\r"), 1<<20), func(string, []byte) { events++ })
	if events != 1<<20 {
		t.Errorf("%d events", events)
	}
}

func outcome(a *answer) string {
	out := fmt.Sprintf("id %q model %q stop %q ended %v complete %v paused %v err %v usage %v raw %s counts %s size %d\n",
		a.id, a.model, a.stop, a.ended, a.complete, a.paused, a.err, a.usage, a.rawUsage, a.counts, a.size)
	for _, b := range a.blocks {
		out += fmt.Sprintf("%d %d %v %v %q %q %q\n", b.key, b.kind, b.open, b.wrote, b.id, b.name, b.input)
	}
	return out + fmt.Sprintf("%v %x", a.content.full, a.content.after(digest{}, assistant))
}
