package dialect

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// A conversation may be spread over one attribute for each field. Reading it takes as
// long as it is, and not the square of that.
func TestConversationSpreadOverManyAttributesIsReadInTime(t *testing.T) {
	for _, tt := range []struct{ dialect, scope, key string }{
		{"openllmetry", "opentelemetry.instrumentation.openai", "gen_ai.prompt.%d.content"},
		{"openllmetry", "opentelemetry.instrumentation.openai", "gen_ai.completion.0.tool_calls.%d.name"},
		{"openinference", "openinference.instrumentation.openai", "llm.input_messages.%d.message.content"},
		{"openinference", "openinference.instrumentation.openai", "llm.tools.%d.tool.json_schema"},
		{"openinference", "openinference.instrumentation.openai",
			"llm.input_messages.0.message.contents.%d.message_content.text"},
	} {
		t.Run(tt.dialect+" "+tt.key, func(t *testing.T) {
			testscale.Linear(t, 1000, func(size int) {
				attrs := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
				if tt.dialect == "openinference" {
					attrs["openinference.span.kind"] = "LLM"
				}
				for i := range size {
					attrs[fmt.Sprintf(tt.key, i)] = "x"
				}
				s, scope := ptrace.NewSpan(), pcommon.NewInstrumentationScope()
				scope.SetName(tt.scope)
				testscale.Must(t, s.Attributes().FromRaw(attrs))
				if got := readSpan(s, scope, pcommon.NewResource()); got.dialect != tt.dialect || len(got.facts) == 0 {
					t.Errorf("%q reads %d facts", got.dialect, len(got.facts))
				}
			})
		})
	}
}
