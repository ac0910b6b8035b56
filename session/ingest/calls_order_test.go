package ingest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/ingest/internal/spantext"
)

// Mastra counts milliseconds. The ids of the spans are in the order in which the calls were
// not made.
const callsOfOneMillisecond = `
scope "@mastra/otel-exporter"
span "invoke_agent Ferris" id=1 at=0ms for=100ms
  gen_ai.operation.name = "invoke_agent"
  mastra.span.type = "agent_run"
  mastra.metadata.sessionId = "s"
  mastra.agent_run.input := [{"role":"user","content":"Measure twice."}]
  mastra.agent_run.output := {"text":"Measuring.Two readings."}
span "model_generation pilot" id=2 parent=1 at=1ms for=98ms
  gen_ai.operation.name = "model_generation"
  mastra.span.type = "model_generation"
span "agent_step Ferris" id=3 parent=2 at=2ms for=40ms
  gen_ai.operation.name = "agent_step"
  mastra.span.type = "model_step"
  mastra.model_step.output := {"text":"Measuring.","toolCalls":[{"toolCallId":"a","toolName":"get_tide","args":{}},{"toolCallId":"b","toolName":"get_tide","args":{}}]}
span "chat pilot" id=4 parent=3 at=3ms for=39ms
  gen_ai.operation.name = "chat"
  mastra.span.type = "model_inference"
  gen_ai.request.model = "pilot"
  gen_ai.output.messages := [{"role":"assistant","parts":[{"type":"text","content":"Measuring."}]}]
  gen_ai.usage.input_tokens = 10
  gen_ai.usage.output_tokens = 2
span "execute_tool get_tide" id=6 parent=3 at=20ms for=5ms
  gen_ai.operation.name = "execute_tool"
  mastra.span.type = "tool_call"
  gen_ai.tool.name = "get_tide"
  gen_ai.tool.call.id = "a"
  gen_ai.tool.call.arguments := {}
  gen_ai.tool.call.result := {"reading":1}
span "execute_tool get_tide" id=5 parent=3 at=20ms for=5ms
  gen_ai.operation.name = "execute_tool"
  mastra.span.type = "tool_call"
  gen_ai.tool.name = "get_tide"
  gen_ai.tool.call.id = "b"
  gen_ai.tool.call.arguments := {}
  gen_ai.tool.call.result := {"reading":2}
span "agent_step Ferris" id=7 parent=2 at=43ms for=50ms
  gen_ai.operation.name = "agent_step"
  mastra.span.type = "model_step"
  mastra.model_step.output := {"text":"Two readings.","toolCalls":[]}
span "chat pilot" id=8 parent=7 at=44ms for=49ms
  gen_ai.operation.name = "chat"
  mastra.span.type = "model_inference"
  gen_ai.request.model = "pilot"
  gen_ai.output.messages := [{"role":"assistant","parts":[{"type":"text","content":"Two readings."}]}]
  gen_ai.usage.input_tokens = 20
  gen_ai.usage.output_tokens = 3
`

// TestCallsOfOneMillisecondAreInTheOrderOfTheAnswer: tools that Mastra calls in the same
// millisecond are in the order in which the model asked for them.
func TestCallsOfOneMillisecondAreInTheOrderOfTheAnswer(t *testing.T) {
	parsed, err := spantext.Parse(callsOfOneMillisecond, "")
	if err != nil {
		t.Fatal(err)
	}
	var all []request
	for _, td := range parsed {
		all = append(all, request{traces: td})
	}
	s := openStore(t)
	deliver(t, s, join(all))
	check(t, s)
	want := `session s 30/5/0/0/0
user Measure twice.
assistant calls=2 usage=30/5/0/0/0 model=pilot
  text Measuring.
  tool a get_tide {} = {"reading":1}
  tool b get_tide {} = {"reading":2}
  text Two readings.
`
	if d := cmp.Diff(want, recount(t, s)); d != "" {
		t.Errorf("session (-want +got):\n%s", d)
	}
	testOrder(t, all, 8, deliver)
}
