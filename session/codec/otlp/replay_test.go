package otlp

import (
	"slices"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// FuzzReplay delivers spans whose rows anybody may have written: whatever they say,
// what is stored is sound.
func FuzzReplay(f *testing.F) {
	kinds := []string{semconv.SpanSessionRun, semconv.SpanSessionTurn, semconv.SpanToolCall, semconv.SpanCompactionRun,
		semconv.SpanPermissionEvaluate, "chat m"}
	for _, s := range generated(f, 3) {
		td, err := Encode(s)
		if err != nil {
			f.Fatal(err)
		}
		for _, sp := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			if v, ok := sp.Attributes().Get(ingest.RowsKey); ok {
				f.Add(uint8(max(0, slices.Index(kinds, sp.Name()))), v.Str())
			}
		}
	}
	for _, rows := range []string{
		`{`, `null`, `{"messages":[{"id":"m","role":"robot"}]}`, `{"messages":[{"id":"m\u0000","role":"user"}]}`,
		`{"messages":[{"id":"m","role":"assistant","metadata":"{\"usage\":{\"input\":-1}}"}]}`,
		`{"parts":[{"id":"p","message_id":"m","index":-5,"type":"text","data":"{}"}]}`,
		`{"parts":[{"id":"p","message_id":"m","type":"tool-x","data":"{\"type\":\"tool-x\"}","input_at":99}]}`,
		`{"facts_of":"m","facts":{"usage":{"input":-7},"system_prompt_digest":"no","agenttrace":{"cost_usd":-1,` +
			`"usage_raw":7},"extra":{"a":1}}}`,
		`{"session":{"id":"other","permissions":{"text":"{}"},"model":{"text":"[]"},"parent_id":{"text":"ses_f"},` +
			`"metadata":{"a":{"text":"{"}},"start":-1,"rewinds":[{"to":"","at":1}],"fork":{"from":"x"}}}`,
		`{"decision":{"id":"d","session_id":"elsewhere","action":"","decided_at":-3}}`,
	} {
		f.Add(uint8(1), rows)
	}
	f.Fuzz(func(t *testing.T, kind uint8, rows string) {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		ss.Scope().SetName(semconv.ScopeName)
		sp := ss.Spans().AppendEmpty()
		sp.SetName(kinds[int(kind)%len(kinds)])
		sp.SetTraceID([16]byte{1})
		sp.SetSpanID([8]byte{1})
		sp.SetStartTimestamp(1_795_198_540_000 * 1e6)
		sp.SetEndTimestamp(1_795_198_540_000 * 1e6)
		sp.Attributes().PutStr(string(semconv.SessionIDKey), "ses_f")
		sp.Attributes().PutStr(ingest.RowsKey, rows)
		deliver(t, emptyStore(t), td)
	})
}
