package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// voltAgent reads the spans of VoltAgent, which name the agent or workflow that they belong to in entity.* and report
// in span.type what they are.
//
// One span of type llm covers all steps of a turn, and reports nothing of what the model answered; its counts are those
// of the last step, so that only the agent's count. What the model wrote between its tools is in what is stored in the
// memory: the message as far as it has grown.
var voltAgent = Dialect{
	Name:     "voltagent",
	Spans:    isVoltAgent,
	ReadSpan: readVoltAgent,
}

func isVoltAgent(s *Span) bool {
	a := s.Attrs()
	return s.Has("entity", "voltagent") && (strings.HasPrefix(s.Scope.Name(), "@voltagent/") ||
		a.Str("voltagent.operation_id") != "" || a.Str("entity.type") == "agent" && a.Str("operation.id") != "")
}

func readVoltAgent(s *Span, out *Emitter) {
	a := s.Attrs()
	add := func(kind fact.Kind) *fact.Fact {
		f := out.Add(kind)
		if kind != fact.ToolCall {
			// Of a sub-agent the entity is the agent above it.
			f.Agent = a.Str("subagent.name", "subagent.id", "entity.name", "entity.id")
			f.Model = modelOf(a.Str("ai.model.provider", "llm.provider"), a.Str("llm.model", "ai.model.name"))
		}
		setUser(f, a.Str("user.id", "userId"))
		return f
	}
	operation := a.Str("voltagent.operation_id", "operation.id")
	switch kind := a.Str("span.type"); {
	case kind == "llm":
		f := add(fact.ModelCall)
		f.RequestID = operation
		messages, ok := Messages(a.JSON("llm.messages", "input"))
		if ReadInput(f, messages); !ok && messages != nil {
			f.Problems = append(f.Problems, "the messages could not be read whole")
		}
		f.Output, _, _ = Output(a.JSON("llm.output", "output"))
		f.Finish = a.Str("llm.finish_reason", "ai.response.finish_reason")
		f.Temperature = a.Float("llm.temperature")
		readFailure(f, s)
	case kind == "tool":
		f := add(fact.ToolCall)
		f.CallID = a.Str("tool.call.id", "tool.callId", "toolCallId")
		f.Tool = &fact.Tool{Name: cmp.Or(a.Str("tool.name"), toolOfName(f.Name)),
			Input: unwrapped(a.JSON("input", "tool.input"))}
		readFailure(f, s)
		if !f.Failed {
			setOutput(f, a.JSON("output", "tool.output"))
		}
		f.Tool.Succeeded = !f.Failed && (f.Tool.Output != nil || s.Status().Code() == ptrace.StatusCodeOk)
	case kind == "memory":
		// What the model wrote is in the message that is stored. It is part of the one call that covers the turn, by
		// its id.
		message := a.object("input").inner("message")
		raw, _ := json.Marshal([]object{message})
		parts, _, _ := Output(raw)
		if len(parts) > 0 && message.str("role") == "assistant" {
			f := add(fact.ModelCall)
			f.Model, f.RequestID, f.Output = nil, operation, parts
		}
	case (kind == "" || kind == "agent" || kind == "workflow") &&
		a.Str("input", "output", "agent.state", "agent.instructions") != "":
		readVoltAgentTurn(add(fact.Turn), s, a)
	default:
		out.Add(fact.Step)
	}
}

func readVoltAgentTurn(f *fact.Fact, s *Span, a Attrs) {
	if s.Scope.Name() != "" {
		aboutOf(f).Client = "voltagent"
	}
	messages, ok := Messages(a.JSON("input"))
	if ReadInput(f, messages); !ok && messages == nil {
		f.Input = []fact.Message{{Role: "user", Parts: appendText(nil, fact.PartText, a.Str("input"))}}
	}
	f.SystemPrompt = cmp.Or(a.Str("agent.instructions"), f.SystemPrompt)
	f.Output, _, _ = Output(a.JSON("output"))
	if f.Output == nil {
		f.Output = appendText(nil, fact.PartText, a.Str("output"))
	}
	f.Finish = a.Str("ai.response.finish_reason", "llm.finish_reason")
	f.ToolCatalog = Catalog(a.object("agent.stateSnapshot")["tools"])
	f.Usage = a.counts("usage.prompt_tokens", "usage.completion_tokens", "usage.cached_tokens", "",
		"usage.reasoning_tokens", "usage.total_tokens").WithThoughts().Usage(0)
	readFailure(f, s)
	state := a.Str("agent.state")
	f.Aborted = f.Aborted || isAbort(state)
	if state == "error" {
		f.Failed, f.Error = true, cmp.Or(f.Error, a.Str("error.message"))
	}
}
