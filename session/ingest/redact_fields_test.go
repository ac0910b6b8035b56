package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/store"
)

const planted = "ghp_" + "aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"

// tagged is what an identifier becomes that is the secret. Its tag is the same anywhere.
const tagged = "[redacted:github-token]~e66c084457c32182"

func newRedaction(t *testing.T, c redact.Config) *redaction {
	t.Helper()
	r, err := redact.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &redaction{Redactor: r}
}

func TestRedactPart(t *testing.T) {
	all := redact.Omit{Prompts: true, Reasoning: true, ToolInputs: true, ToolOutputs: true}
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name   string
		config redact.Config
		role   string
		part   store.PartChange
		want   string
	}{
		{name: "clean", part: store.PartChange{Type: "text", Data: []byte(`{ "type":"text", "text":"a" }`)},
			want: `{ "type":"text", "text":"a" }`},
		{name: "what the columns repeat stays the same as they",
			part: store.PartChange{Type: "tool-" + planted,
				Data: []byte(`{"type":"tool-` + planted + `","toolCallId":"` + planted +
					`","state":"output-error","input":{"password":"a"},"errorText":"` + planted + `"}`)},
			want: `{"type":"tool-` + tagged + `","toolCallId":"` + tagged +
				`","state":"output-error","input":{"password":"__REDACTED__"},"errorText":"[redacted:github-token]"}`},
		{name: "an input in a string",
			part: store.PartChange{Type: "dynamic-tool",
				Data: []byte(
					`{"type":"dynamic-tool","toolName":"a","toolCallId":"c","state":"input-available",` +
						`"input":"{\"api_key\":\"abc\"}"}`)},
			want: `{"type":"dynamic-tool","toolName":"a","toolCallId":"c","state":"input-available",` +
				`"input":"{\"api_key\":\"__REDACTED__\"}"}`},
		{name: "omitted", config: redact.Config{Omit: all}, role: "assistant",
			part: store.PartChange{Type: "tool-a",
				Data: []byte(
					`{"type":"tool-a","toolCallId":"c","state":"output-available","input":{"a":1},"output":null,` +
						`"toolMetadata":{"agenttrace":{"duration_ms":1,"partial_output":"ab"}}}`)},
			want: `{"type":"tool-a","toolCallId":"c","state":"output-available","input":"[omitted: 7 bytes]",` +
				`"output":null,"toolMetadata":{"agenttrace":{"duration_ms":1,"partial_output":"[omitted: 2 bytes]"}}}`},
		{name: "an answer is no prompt", config: redact.Config{Omit: all}, role: "assistant",
			part: store.PartChange{Type: "text", Data: []byte(`{"type":"text","text":"a"}`)},
			want: `{"type":"text","text":"a"}`},
		{name: "a question is", config: redact.Config{Omit: all}, role: "user",
			part: store.PartChange{Type: "text", Data: []byte(`{"type":"text","text":"a"}`)},
			want: `{"type":"text","text":"[omitted: 1 bytes]"}`},
		{name: "what may be one is", config: redact.Config{Omit: all},
			part: store.PartChange{Type: "file", Data: []byte(`{"type":"file","mediaType":"a/b","url":"data:,a"}`)},
			want: `{"type":"file","mediaType":"a/b","url":"[omitted: 7 bytes]"}`},
		{name: "reasoning", config: redact.Config{Omit: all}, role: "assistant",
			part: store.PartChange{Type: "reasoning", Data: []byte(`{"type":"reasoning","text":"a","state":"done"}`)},
			want: `{"type":"reasoning","text":"[omitted: 1 bytes]","state":"done"}`},
		{name: "damaged reasoning", config: redact.Config{Omit: redact.Omit{Reasoning: true}}, role: "assistant",
			part: store.PartChange{Type: store.TypeDamaged, Data: placeholder("reasoning", "ab")},
			want: `{"type":"data-damaged","data":{"type":"reasoning","text":"[omitted: 2 bytes]"}}`},
		{name: "damaged tool", config: redact.Config{Omit: redact.Omit{ToolOutputs: true}}, role: "assistant",
			part: store.PartChange{Type: store.TypeDamaged, Data: placeholder("tool-a", "ab")},
			want: `{"type":"data-damaged","data":{"type":"tool-a","text":"[omitted: 2 bytes]"}}`},
		{name: "a summary keeps its form", config: redact.Config{MaxBytes: 100}, role: "assistant",
			part: store.PartChange{Type: "data-compaction",
				Data: []byte(`{"type":"data-compaction","data":{"summary":"` + long + `","tail_start_id":"` + planted +
					`"}}`)},
			want: `{"type":"data-compaction","data":{"summary":"` + long[:76] + `__TRUNCATED__[300 bytes]",` +
				`"tail_start_id":"` +
				tagged + `"}}`},
		{name: "a long text is noted beside it", config: redact.Config{MaxBytes: 100}, role: "assistant",
			part: store.PartChange{Type: "text",
				Data: []byte(`{"type":"text","text":"` + long + `","providerMetadata":{"a":{"b":1}}}`)},
			want: `{"type":"text","text":"` + long[:76] +
				`__TRUNCATED__[300 bytes]","providerMetadata":{"a":{"b":1},"agenttrace":{"truncated":true,"size":300,` +
				`"sha256":"` +
				digestOf(long) + `"}}}`},
		{name: "a tool notes which", config: redact.Config{MaxBytes: 100}, role: "assistant",
			part: store.PartChange{Type: "tool-a",
				Data: []byte(`{"type":"tool-a","toolCallId":"c","state":"output-available","input":"` + long +
					`","output":"` +
					long + `"}`)},
			want: `{"type":"tool-a","toolCallId":"c","state":"output-available","input":"` + long[:76] +
				`__TRUNCATED__[300 bytes]","output":"` + long[:76] + `__TRUNCATED__[300 bytes]",` +
				`"toolMetadata":{"agenttrace":{"input_truncated":true,"input_size":300,"input_sha256":"` +
				digestOf(long) +
				`","truncated":true,"output_size":300,"output_sha256":"` + digestOf(long) + `"}}}`},
		{name: "what the source cut keeps its size", config: redact.Config{MaxBytes: 100}, role: "assistant",
			part: store.PartChange{Type: "tool-a",
				Data: []byte(`{"type":"tool-a","toolCallId":"c","state":"output-available","input":{},"output":"` +
					long +
					`","toolMetadata":{"agenttrace":{"truncated":true,"output_size":9000,"output_sha256":"ab"}}}`)},
			want: `{"type":"tool-a","toolCallId":"c","state":"output-available","input":{},"output":"` + long[:76] +
				`__TRUNCATED__[300 bytes]","toolMetadata":{"agenttrace":{"truncated":true,"output_size":9000,` +
				`"output_sha256":"ab"}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for again := range 2 { // a request that is retried, or redacted in the SDK before
				x := newRedaction(t, c.config)
				b := store.Batch{Messages: []store.MessageChange{{ID: "m", Role: c.role}},
					Parts: []store.PartChange{c.part}}
				b.Parts[0].MessageID = "m"
				x.batch(&b)
				c.part.Data = b.Parts[0].Data
				if d := cmp.Diff(c.want, string(c.part.Data)); d != "" {
					t.Errorf("pass %d (-want +got):\n%s", again, d)
				}
			}
		})
	}
}

// A prompt is found by the digest that its source sent, also where the rest of what it sent is known no more.
func TestRedactPrompt(t *testing.T) {
	body := "use " + planted
	b := store.Batch{
		Blobs: []store.Blob{{Kind: store.BlobSystemPrompt, Digest: digestOf(body), Body: body, Exact: true},
			{Kind: store.BlobToolCatalog, Digest: digestOf("[]"), Body: "[]", Exact: true}},
		SpanRefs: []store.SpanRef{{TurnStats: &store.TurnStats{SystemPromptDigest: digestOf(body)}}},
	}
	newRedaction(t, redact.Config{}).batch(&b)
	want := []store.Blob{{Kind: store.BlobSystemPrompt, Digest: digestOf(body), Body: "use [redacted:github-token]"},
		{Kind: store.BlobToolCatalog, Digest: digestOf("[]"), Body: "[]", Exact: true}}
	if d := cmp.Diff(want, b.Blobs); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := b.SpanRefs[0].TurnStats.SystemPromptDigest; got != want[0].Digest {
		t.Errorf("the message has digest %s", got)
	}
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
