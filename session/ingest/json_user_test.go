package ingest_test

import (
	"encoding/json"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// TestUserTextThatLooksLikeJSON: what the user typed is a user text, whatever it
// looks like, by whichever interface it was sent.
func TestUserTextThatLooksLikeJSON(t *testing.T) {
	texts := []string{
		`{"city":"Oslo"}`, `[1,2,3]`, `"quoted"`, `{"role":"user","content":"x"}`,
		`{"messages":[{"role":"user","content":"x"}]}`,
		`[{"role":"user","content":"x"}]`, `{"type":"text","text":"x"}`, `{"input":"x"}`, `null`, `{"output":"x"}`,
		`{"error":"x"}`,
	}
	quoted := func(v any) string { raw, _ := json.Marshal(v); return string(raw) }
	shapes := map[string]func(text string) map[string]string{
		"gen_ai.input.messages": func(s string) map[string]string {
			return map[string]string{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
				"gen_ai.input.messages": quoted(
					[]any{map[string]any{"role": "user",
						"parts": []any{map[string]any{"type": "text", "content": s}}}})}
		},
		"chat completions": func(s string) map[string]string {
			return map[string]string{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
				"gen_ai.prompt": quoted(
					map[string]any{"messages": []any{map[string]any{"role": "user", "content": s}}})}
		},
		"gen_ai.prompt.0": func(s string) map[string]string {
			return map[string]string{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
				"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": s}
		},
		"openinference": func(s string) map[string]string {
			return map[string]string{"openinference.span.kind": "LLM", "llm.model_name": "m",
				"llm.input_messages.0.message.role":    "user",
				"llm.input_messages.0.message.content": s,
				"input.value": quoted(
					map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": s}}})}
		},
		"ai sdk messages": func(s string) map[string]string {
			return map[string]string{"ai.operationId": "ai.generateText",
				"ai.prompt": quoted(map[string]any{"messages": []any{map[string]any{"role": "user", "content": s}}})}
		},
		"ai sdk prompt": func(s string) map[string]string {
			return map[string]string{"ai.operationId": "ai.generateText",
				"ai.prompt": quoted(map[string]any{"prompt": s})}
		},
	}
	for shape, attributes := range shapes {
		for _, text := range texts {
			td := ptrace.NewTraces()
			sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
			sp.SetName("ai.generateText")
			sp.SetTraceID(pcommon.TraceID{1})
			sp.SetSpanID(pcommon.SpanID{1})
			sp.SetStartTimestamp(1795198540000 * 1e6)
			sp.SetEndTimestamp(1795198541000 * 1e6)
			sp.Attributes().PutStr("session.id", "s")
			for key, value := range attributes(text) {
				sp.Attributes().PutStr(key, value)
			}
			s := openStore(t)
			if _, err := ingest.New(s, ingest.Options{}).Traces(t.Context(), td); err != nil {
				t.Fatal(err)
			}
			tr, err := s.Transcript(t.Context(), "s")
			if err != nil {
				t.Errorf("%s: %s: %v", shape, text, err)
				continue
			}
			if m := tr.Messages[0]; m.Message.Role != session.RoleUser || len(m.Parts) != 1 ||
				textOfPart(m.Parts[0]) != text {
				t.Errorf("%s: %s is %s %v", shape, text, m.Message.Role, m.Parts)
			}
		}
	}
}
