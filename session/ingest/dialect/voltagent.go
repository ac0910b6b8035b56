package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// voltAgent reads the spans of VoltAgent, which name the agent or workflow that they belong to in
// entity.* and report in span.type what they are.
//
// One span of type llm covers all steps of a turn, and reports nothing of what the model answered;
// its counts are those of the last step, so that only the agent's count. What the model wrote
// between its tools is in what is stored in the memory: the message as far as it has grown.
var voltAgent = Dialect{
	Name:     "voltagent",
	Title:    "VoltAgent",
	Spans:    isVoltAgent,
	ReadSpan: readVoltAgent,
}

func isVoltAgent(s *Span) bool {
	if !s.Has("entity", "voltagent") {
		return false
	}
	a := s.Attrs()
	return strings.HasPrefix(s.Scope.Name(), "@voltagent/") || a.Str("voltagent.operation_id") != "" ||
		a.Str("entity.type") == "agent" && a.Str("operation.id") != ""
}

func readVoltAgent(s *Span, out *Emitter) {
	a := s.Attrs()
	switch kind := a.Str("span.type"); kind {
	case "llm":
		f := out.Add(fact.ModelCall)
		voltAgentIdentity(f, a)
		f.RequestID = a.Str("voltagent.operation_id", "operation.id")
		f.Model = voltAgentModel(a)
		messages, ok := Messages(a.JSON("llm.messages", "input"))
		if ReadInput(f, messages); !ok && messages != nil {
			f.Problems = append(f.Problems, "the messages could not be read whole")
		}
		f.Output, _ = Output(a.JSON("llm.output", "output"))
		f.Finish = a.Str("llm.finish_reason", "ai.response.finish_reason")
		f.Temperature = a.Float("llm.temperature")
		readFailure(f, s)
	case "tool":
		f := out.Add(fact.ToolCall)
		voltAgentIdentity(f, a)
		f.CallID = a.Str("tool.call.id", "tool.callId", "toolCallId")
		f.Tool = &fact.Tool{Name: cmp.Or(a.Str("tool.name"), toolOfName(f.Name)),
			Input: unwrapped(a.JSON("input", "tool.input"))}
		readFailure(f, s)
		if !f.Failed {
			setOutput(f, a.JSON("output", "tool.output"))
		}
		f.Tool.Succeeded = !f.Failed && (f.Tool.Output != nil || s.Status().Code() == ptrace.StatusCodeOk)
	case "memory":
		readVoltAgentMemory(a, out)
	case "", "agent", "workflow":
		if a.Str("input", "output", "agent.state", "agent.instructions") == "" {
			out.Add(fact.Step)
			return
		}
		readVoltAgentTurn(s, a, out)
	default:
		out.Add(fact.Step)
	}
}

func voltAgentIdentity(f *fact.Fact, a Attrs) {
	if f.Kind == fact.Turn || f.Kind == fact.ModelCall {
		// Of a sub-agent the entity is the agent above it.
		f.Agent = a.Str("subagent.name", "subagent.id", "entity.name", "entity.id")
	}
	setUser(f, a.Str("user.id", "userId"))
}

func voltAgentModel(a Attrs) *session.Model {
	return modelOf(a.Str("ai.model.provider", "llm.provider"), a.Str("llm.model", "ai.model.name"))
}

func readVoltAgentTurn(s *Span, a Attrs, out *Emitter) {
	f := out.Add(fact.Turn)
	voltAgentIdentity(f, a)
	if s.Scope.Name() != "" {
		aboutOf(f).Client = "voltagent"
	}
	f.Model = voltAgentModel(a)
	messages, ok := Messages(a.JSON("input"))
	if ReadInput(f, messages); !ok && messages == nil {
		f.Input = []fact.Message{{Role: "user", Parts: appendText(nil, fact.PartText, a.Str("input"))}}
	}
	f.SystemPrompt = cmp.Or(a.Str("agent.instructions"), f.SystemPrompt)
	f.Output, _ = Output(a.JSON("output"))
	if f.Output == nil {
		f.Output = appendText(nil, fact.PartText, a.Str("output"))
	}
	f.Finish = a.Str("ai.response.finish_reason", "llm.finish_reason")
	if snapshot, ok := objectOf(a.JSON("agent.stateSnapshot")); ok {
		f.ToolCatalog = Catalog(snapshot["tools"])
	}
	keys := []string{"usage.prompt_tokens", "usage.completion_tokens", "usage.cached_tokens", "usage.reasoning_tokens",
		"usage.total_tokens"}
	f.Usage = Counts{Input: a.IntPtr(keys[0]), Output: a.IntPtr(keys[1]), CacheRead: a.IntPtr(keys[2]),
		Reasoning: a.IntPtr(keys[3]), Total: a.IntPtr(keys[4]), Raw: rawNumbers(a, keys...)}.WithThoughts().Usage(0)
	readFailure(f, s)
	state := a.Str("agent.state")
	f.Aborted = f.Aborted || isAbort(state)
	if state == "error" {
		f.Failed, f.Error = true, cmp.Or(f.Error, a.Str("error.message"))
	}
}

// readVoltAgentMemory reads what the model wrote from the message that is stored. It is part of the
// one call that covers the turn, by its id.
func readVoltAgentMemory(a Attrs, out *Emitter) {
	input, ok := objectOf(a.JSON("input"))
	message := input.inner("message")
	if !ok || message.str("role") != "assistant" {
		return
	}
	raw, _ := json.Marshal([]object{message})
	parts, _ := Output(raw)
	if len(parts) == 0 {
		return
	}
	f := out.Add(fact.ModelCall)
	voltAgentIdentity(f, a)
	f.RequestID = a.Str("voltagent.operation_id", "operation.id")
	f.Output = parts
}
