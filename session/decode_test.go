package session

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode compares Decode with encoding/json.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "agent" : "a" } `, `null`, `[]`, ``, `{"agent":"a"} x`, `{"agent":"a","agent":"b"}`,
		`{"agent":"","agent":"b"}`, `{"Agent":"a"}`, `{"AGENT":"a","agent":"b"}`, `{"uſage":{"input":1}}`,
		`{"usage":{"input":1.0}}`, `{"usage":{"input":-5}}`, `{"usage":{"input":1},"usage":{"output":2}}`,
		`{"usage":null,"model":null,"agent":null}`, `{"compaction":1}`,
		`{"model":{"provider_id":"é\u00e9\ud83d\ude00","model_id":"\ud83d"}}`, "{\"agent\":\"\xff\"}", `{"agent":5}`,
		`{"agenttrace":{"turn_index":0,"cost_usd":1e-3,"temperature":1e400,"usage_raw":null,` +
			`"steps":[{"usage":{"input":1}}]}}`,
		`{"agenttrace":{"usage_raw":{"a":[1, 2]},"problems":["x"],"history":{"turns":2},"incomplete":true,` +
			`"end_reason":"finish"}}`,
		`{"other":{"deep":[{"x":1}]},"agenttrace":{"error":"a\nb","model_errors":null,` +
			`"duration_ms":9223372036854775808}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got, want MessageMetadata
		if !Decode([]byte(text), &got) {
			return
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%q is decoded; encoding/json: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-encoding/json +Decode)\n%s", text, diff)
		}
	})
}

// TestDecodeReadsWhatIsStored reads the metadata of an answer without encoding/json.
func TestDecodeReadsWhatIsStored(t *testing.T) {
	var m MessageMetadata
	const text = `{"model":{"provider_id":"p","model_id":"m"},"usage":{"input":1},"agenttrace":{"turn_index":0,` +
		`"end_reason":"finish"}}`
	if !Decode([]byte(text), &m) || m.Trace.TurnIndex == nil || m.Model.ModelID != "m" || m.Usage.Input != 1 {
		t.Errorf("%+v", m)
	}
}

func BenchmarkParseMessageMetadata(b *testing.B) {
	text := []byte(`{"model":{"provider_id":"anthropic","model_id":"claude-opus-4"},"usage":{"input":1200,` +
		`"output":300,` +
		`"reasoning":100,"cache_read":9000,"cache_write":500},"system_prompt_digest":"0123456789abcdef",` +
		`"agenttrace":{"turn_index":7,"end_reason":"finish","stop_reason":"stop","model_calls":5,"duration_ms":900,` +
		`"tool_catalog_digest":"0123456789abcdef","cost_usd":0.0125,"usage_basis":"exclusive"}}`)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			ParseMessageMetadata(text)
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			var m MessageMetadata
			if err := json.Unmarshal(text, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
