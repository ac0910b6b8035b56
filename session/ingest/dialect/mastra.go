package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// mastra reads what Mastra exports by its exporter and bridge for OpenTelemetry: the GenAI conventions on one span per
// model call, and mastra.span.type on every span. Its first exporter, of 2025, wrote other keys for the same.
//
// Since there are spans of one inference each, those are the model calls. Before, the generation around them was, with
// all steps in one.
var mastra = Dialect{
	Name: "mastra",
	Spans: func(s *Span) bool { // those of its exporter for Arize are OpenInference's
		return (s.Has("mastra") || strings.HasPrefix(s.Scope.Name(), "@mastra/")) && !s.Has("openinference")
	},
	ReadSpan: readMastra,
}

func readMastra(s *Span, out *Emitter) {
	a := s.Attrs()
	operation := a.Str("gen_ai.operation.name")
	m := mastraSpan{Attrs: a, span: s, out: out, kind: cmp.Or(strings.ToLower(a.Str("mastra.span.type")), operation)}
	root := s.ParentSpanID().IsEmpty()
	switch kind := mastraKinds()[m.kind]; {
	case kind == fact.Turn && (root || !strings.Contains(m.kind, "workflow")):
		m.turn()
	case kind == fact.ModelCall && (operation == "chat" || operation == "tool_selection"):
		m.modelCall()
	case kind == fact.ToolCall:
		m.toolCall()
	case m.kind == "model_step":
		m.modelStep()
	case m.kind == "model_chunk" || m.kind == "llm_chunk":
		m.chunk()
	case m.kind != "agent_signal":
		m.add(fact.Step)
	}
}

// mastraKinds are the types of spans that report more than a step. A workflow in another is a step, and a generation
// with inferences in it.
var mastraKinds = meanings[fact.Kind]("mastra")

type mastraSpan struct {
	Attrs
	span *Span
	out  *Emitter
	kind string
}

// reported returns the span's input or output by the keys of the conventions, the exporter's or else the first
// exporter's.
func (m *mastraSpan) reported(what, name string, keys ...string) (raw json.RawMessage, cut bool) {
	raw = m.JSON(append(keys, "mastra."+m.kind+"."+what, what)...)
	return raw, problemIfCut(m.out, name, raw)
}

func (m *mastraSpan) add(kind fact.Kind) *fact.Fact {
	f := m.out.Add(kind)
	f.Agent = m.Str("gen_ai.agent.name", "gen_ai.agent.id", "agent.id")
	readFailure(f, m.span)
	return f
}

// modelStep gives the fact of a step and, where the span of the inference within it is the model call, what the model
// requested: that span has the text of the answer alone, and tools that begin in one millisecond do not report their
// order.
func (m *mastraSpan) modelStep() {
	m.add(fact.Step)
	if m.Str("gen_ai.operation.name") != "agent_step" {
		return
	}
	parts, _ := mastraOutput(m.JSON("mastra.model_step.output"))
	if slices.ContainsFunc(parts, func(p fact.Part) bool { return p.Kind == fact.PartCall }) {
		f := m.out.Add(fact.ModelCall)
		f.Agent, f.RequiresTurn, f.Output = m.Str(agentNames...), true, parts
	}
}

// turn gives the fact of an agent's run. One that goes on after it was suspended is another span, in another trace, of
// the same run.
func (m *mastraSpan) turn() {
	asked, _ := m.reported("input", "the input")
	answered, _ := m.reported("output", "the output")
	f := m.add(fact.Turn)
	if m.kind == "scorer_run" {
		f.Purpose = "scoring"
	}
	if f.Agent == "" && strings.HasPrefix(m.kind, "agent") {
		f.Agent = mastraName(f.Name)
	}
	if m.span.ParentSpanID().IsEmpty() {
		f.TurnID = m.Str("mastra.metadata.runId")
	}
	f.SystemPrompt = SystemInstructions(m.JSON("gen_ai.system_instructions"))
	if ReadInput(f, askedIn(asked)); strings.HasPrefix(m.kind, "agent") && !talks(f.Input) {
		// What the user typed may be JSON of any kind.
		ReadInput(f, userMessages(m.Str("mastra."+m.kind+".input", "input"), ""))
	}
	f.Output, f.Finish = mastraOutput(answered)
	f.ToolCatalog = Catalog(m.JSON("gen_ai.tool.definitions", "agent.available_tools"))

	// Whose session it is, and what else the application passed to Mastra.
	setUser(f, m.Str("mastra.metadata.userId", "mastra.metadata.resourceId"))
	version := Attrs{m.span.Resource.Attributes()}.Str("service.version")
	if version != "" && m.span.Scope.Name() == "@mastra/otel-exporter" {
		aboutOf(f).Client = "mastra " + version // the exporter writes the framework's version there
	}
	extra := m.below("mastra.metadata.", "runId", "userId", "resourceId")
	if tags := m.JSON("mastra.tags"); tags != nil {
		extra["tags"] = tags
	}
	f.Extra = encode(extra)
}

// mastraName returns the name that is in a span's name after what the span is.
func mastraName(name string) string {
	for _, prefix := range []string{"invoke_agent ", "agent.", "execute_tool ", "client_tool_call ", "tool.execute "} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "unknown" {
			return rest
		}
	}
	return ""
}

func (m *mastraSpan) modelCall() {
	var c conversation
	c.readInput(m.JSON("gen_ai.input.messages", "gen_ai.prompt", "input"))
	m.out.Problem(c.problems...)
	answered := m.JSON("gen_ai.output.messages", "gen_ai.completion", "output")
	problemIfCut(m.out, "the output", answered)

	f := m.out.Add(fact.ModelCall)
	readGenAICall(f, m.span.Scope, m.Attrs)
	f.Agent = m.Str(agentNames...)
	f.RequiresTurn = !m.span.ParentSpanID().IsEmpty()
	if f.Model != nil { // the AI SDK's name for a provider has the kind of interface, as in "openai.chat"
		for _, suffix := range []string{".chat", ".responses", ".messages", ".completion"} {
			f.Model.ProviderID = strings.TrimSuffix(f.Model.ProviderID, suffix)
		}
	}
	mastraResults(c.input)
	ReadInput(f, c.input)
	parts, finish := mastraOutput(answered)
	f.Output, f.Finish = parts, cmp.Or(f.Finish, finish)
	readFailure(f, m.span)
}

// mastraOutput reads what a model or an agent answered: messages, or the answer's parts as members of an object.
func mastraOutput(raw json.RawMessage) (parts []fact.Part, finish string) {
	o, ok := objectOf(raw)
	if !ok || o.isMessage() || o.has("messages") {
		parts, finish, _ = Output(raw)
		return parts, finish
	}
	parts = appendText(nil, fact.PartReasoning, cmp.Or(o.str("reasoningText"), plainText(o["reasoning"])))
	parts = appendText(parts, fact.PartText, cmp.Or(o.str("text"), string(o.first("object"))))
	for _, call := range objectsOf(o["toolCalls"]) {
		if in := call.inner("payload"); in != nil {
			call = in
		}
		if call.str("toolName", "name") != "" {
			parts = appendCall(parts, call, call.truth("providerExecuted"))
		}
	}
	return parts, o.str("finishReason")
}

// mastraRefusal is what Mastra answers the model when a person declined its call.
const mastraRefusal = "Tool call was not approved by the user"

// mastraResults repairs what the exporter makes of the results of tools: a text is encoded twice, and a refusal looks
// like any other.
func mastraResults(messages []fact.Message) {
	for _, p := range fact.EachPart(messages) {
		if inner := json.RawMessage(text(p.Output)); text(inner) != "" {
			p.Output = inner
		}
		if text(p.Output) == mastraRefusal {
			p.Denied, p.Error, p.Output = true, mastraRefusal, nil
		}
	}
}

// chunk reports a call that waits for a person's approval. Other pieces of a stream report nothing that the model call
// does not.
func (m *mastraSpan) chunk() {
	o := m.object("mastra."+m.kind+".output", "output")
	id, name := o.str("toolCallId"), o.str("toolName")
	if id == "" || !o.has("resumeSchema") && !strings.Contains(m.span.Name(), "approval") {
		return
	}
	f := m.out.Add(fact.ToolCall)
	f.CallID, f.Tool = id, &fact.Tool{Name: name, Input: unwrapped(o.first("args", "input"))}
	f = m.out.Add(fact.Permission)
	f.CallID, f.Decision = id, &fact.Decision{ToolName: name, Action: "ask", Outcome: "pending"}
}

func (m *mastraSpan) toolCall() {
	asked, _ := m.reported("input", "the tool's input", "gen_ai.tool.call.arguments", "gen_ai.tool.input")
	answered, cut := m.reported("output", "the tool's output", "gen_ai.tool.call.result", "gen_ai.tool.output")
	id := m.Str("gen_ai.tool.call.id", "mastra.metadata.toolCallId")
	name := cmp.Or(m.Str("gen_ai.tool.name"), mastraName(Text(m.span.Name())))
	refused := text(answered) == mastraRefusal
	if refused {
		f := m.out.Add(fact.Permission)
		f.CallID = id
		f.Decision = &fact.Decision{ToolName: name, Action: "deny", Outcome: "denied", Reply: "reject", Source: "user",
			Reason: mastraRefusal}
	}
	f := m.add(fact.ToolCall)
	f.CallID = id
	f.Tool = &fact.Tool{Name: name, Input: unwrapped(asked), Truncated: cut, Denied: refused}
	if refused || m.kind == "client_tool_call" { // the span of the latter ends when the call is sent to the client
		return
	}
	setOutput(f, answered)
	if ok, reported := m.Bool("gen_ai.tool.success"); reported && !ok {
		f.Failed = true
	}
	f.Tool.Succeeded = !f.Failed && !f.Tool.Denied &&
		(m.span.Status().Code() == ptrace.StatusCodeOk || answered != nil)
}
