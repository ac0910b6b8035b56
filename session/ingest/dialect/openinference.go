package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// openInference reads spans with the attributes of Arize's OpenInference, which instrument frameworks of their own or
// rewrite the spans of others. Where the attributes of the AI SDK or of the GenAI conventions are still on the span
// they report more, and those of OpenInference only fill in the rest.
var openInference = Dialect{
	Name:     "openinference",
	Spans:    isOpenInference,
	ReadSpan: readOpenInference,
}

// isOpenInference reports whether the span has a kind of OpenInference, or a model call's attributes of it. Others have
// attributes of the family llm as well.
func isOpenInference(s *Span) bool {
	if s.Has("openinference") {
		return s.Attrs().Str("openinference.span.kind") != ""
	}
	return s.Has("llm") && !s.Has("traceloop", "gen_ai", "ai") && s.Attrs().Str("llm.model_name",
		"llm.input_messages.0.message.role", "llm.output_messages.0.message.role") != ""
}

func readOpenInference(s *Span, out *Emitter) {
	switch {
	case aiOperation(s) != "" || s.Has("ai") && s.Has("gen_ai"):
		readAISDK(s, out)
	case s.Has("gen_ai"):
		readGenAI(s, out)
	}
	if len(out.All) == 0 {
		f := out.Add(openInferenceKind(s))
		if f.Event != "" && f.Kind == fact.Turn { // of an agent's work in its run, of which there is a span
			f.Kind, f.RequiresTurn = fact.Step, f.ParentID != ""
		}
	}
	for i := range out.All {
		if f := &out.All[i]; f.Kind != fact.Compaction {
			fillOpenInference(f, s)
		}
	}
}

// openInferenceScope reports whether the instrumentation is that of a library, by the names that it has.
func openInferenceScope(s *Span, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(s.Scope.Name(), name) })
}

func openAIAgentsScope(s *Span) bool { return openInferenceScope(s, "openai-agents", "openai_agents") }

// openInferenceKind returns what the span reports. A chain is whatever a framework runs one after another: the one that
// nothing is above is the turn.
func openInferenceKind(s *Span) fact.Kind {
	a := s.Attrs()
	switch strings.ToUpper(a.Str("openinference.span.kind")) {
	case "LLM", "":
		if !a.Any("llm.input_messages.0.message.role", "llm.output_messages.0.message.role", "llm.prompts", "output.value",
			"llm.token_count.prompt", "llm.token_count.total") && openInferenceScope(s, "llama_index", "llama-index") &&
			s.Status().Code() != ptrace.StatusCodeError {
			return fact.Step // a method of the model's class that makes a request, and does not send it
		}
		return fact.ModelCall
	case "AGENT":
		return fact.Turn
	case "TOOL":
		if openAIAgentsScope(s) && strings.HasPrefix(a.Str("tool.name"), "handoff_to_") {
			return fact.Step // what a call of the tool transfer_to_… comes to, and no call of its own
		}
		return fact.ToolCall
	case "CHAIN":
		if s.ParentSpanID().IsEmpty() && a.Str("input.value", "output.value") != "" {
			return fact.Turn
		}
	}
	return fact.Step
}

// fillOpenInference adds what the attributes of OpenInference report and the fact lacks.
func fillOpenInference(f *fact.Fact, s *Span) {
	a := s.Attrs()
	f.Agent = cmp.Or(f.Agent, a.Str("agent.name"))
	if f.Agent == "" && (f.Kind == fact.Turn || f.Kind == fact.ModelCall) {
		f.Agent = a.object("metadata").str("lc_agent_name") // LangChain
	}
	if f.Agent == "" && f.Kind == fact.Turn && openInferenceScope(s, "smolagents") {
		// Of a managed agent the words that its manager's call puts around the task have the name.
		if _, name, ok := strings.Cut(a.Str("input.value"), "You're a helpful agent named '"); ok {
			f.Agent, _, _ = strings.Cut(name, "'")
		} else if a.Any("smolagents.managed_agents.0.name") {
			f.Agent, _, _ = strings.Cut(s.Name(), ".")
		}
	}
	if f.SessionAttrs == nil || f.SessionAttrs.UserID == "" {
		setUser(f, a.Str("user.id"))
	}
	addExtra(f, a, "metadata", "tag.tags", "graph.node.id", "graph.node.name", "graph.node.parent_id")
	readFailure(f, s)
	if openAIAgentsScope(s) {
		// All spans of the OpenAI Agents SDK are below one of the whole run. Of the spans of kind AGENT, those of an
		// agent name their node in the graph, and that of the run does not.
		node := a.Str("graph.node.id")
		f.RequiresTurn = f.RequiresTurn || !s.ParentSpanID().IsEmpty() &&
			(a.Str("openinference.span.kind") != "AGENT" || node != "")
		if f.Kind == fact.Turn {
			f.Agent = cmp.Or(f.Agent, node)
		}
	}
	switch f.Kind {
	case fact.ModelCall, fact.Turn:
		fillOpenInferenceCall(f, s)
		clearBlame(f, s)
	case fact.ToolCall:
		clearBlame(f, s)
		fillOpenInferenceTool(f, s)
	}
}

// clearBlame takes a failure off a call that finished. The exporter for the AI SDK gives the error of one tool to every
// span of the trace that ends after it; a call that failed itself has an exception, and no reason why the model
// stopped, or, of a tool, no output.
func clearBlame(f *fact.Fact, s *Span) {
	finished := f.Finish != "" && fact.FinishReason(f.Finish) != "error" && len(f.Output) > 0
	if f.Kind == fact.ToolCall {
		finished = s.Has("ai", "gen_ai") && s.Attrs().Str("output.value") != ""
	}
	for range exceptions(s.Span) {
		finished = false
	}
	if !f.Failed || !finished {
		return
	}
	if f.Error != "" {
		setExtra(f, "otel.status_description", quoted(f.Error))
	}
	clearFailure(f)
	f.Aborted = false
}

func fillOpenInferenceCall(f *fact.Fact, s *Span) {
	a := s.Attrs()
	var request, response, answered object // of a model call, as they were sent
	if f.Kind == fact.ModelCall {
		request, response = a.object("input.value"), a.object("output.value")
		answered = answerOf(response)
		f.ResponseID = cmp.Or(f.ResponseID, answered.str("id", "response_id", "responseId"))
	}
	// llm.model_name is the model that was asked or that answered: most instrumentations write the latter there once
	// they know it.
	f.ResponseModel = cmp.Or(f.ResponseModel, a.Str("llm.response.model_name"),
		answered.str("model", "model_name", "modelVersion", "model_version"),
		answered.inner("response_metadata").str("model_name", "model"))
	f.Model = cmp.Or(f.Model, modelOf(a.Str("llm.provider", "llm.system"),
		cmp.Or(a.Str("llm.request.model_name"), request.str("model"), a.Str("llm.model_name"))))
	if f.Input == nil && f.History == 0 {
		fillOpenInferenceInput(f, a)
	}
	f.Finish = cmp.Or(f.Finish, a.Str("llm.finish_reason"))
	if f.Output == nil {
		fillOpenInferenceOutput(f, a)
	}
	const tokens = "llm.token_count."
	if f.Usage == nil && aiOperations()[aiOperation(s)] != fact.Turn {
		c := countsOf(a.IntPtr, tokens+"prompt", tokens+"completion",
			tokens+"prompt_details.cache_read "+tokens+"prompt_details.cache_input",
			tokens+"prompt_details.cache_write", tokens+"completion_details.reasoning", tokens+"total")
		c.Raw = rawNumbers(a, tokens)
		f.Usage = c.WithThoughts().Usage(0)
	}
	f.CostUSD = cmp.Or(f.CostUSD, a.Float("llm.cost.total"))
	if prompt, completion := a.Float("llm.cost.prompt"), a.Float("llm.cost.completion"); f.CostUSD == nil &&
		prompt != nil && completion != nil {
		f.CostUSD = new(*prompt + *completion)
	}
	parameters := a.object("llm.invocation_parameters")
	f.Temperature = cmp.Or(f.Temperature, number(string(parameters["temperature"])))
	for _, o := range []object{parameters, response} {
		if f.SystemPrompt == "" && f.Kind == fact.ModelCall {
			f.SystemPrompt = SystemInstructions(
				o.first("system", "instructions", "systemInstruction", "system_instruction"))
		}
	}
	f.ToolCatalog = cmp.Or(f.ToolCatalog, flatCatalog(a), Catalog(parameters.first("tools", "functions")))
}

// answerOf returns the object that describes the answer of a model: a response of a provider, or the message in
// LangChain's generations.
func answerOf(response object) object {
	list, _ := elements(response["generations"])
	for len(list) > 0 { // generations are lists of lists
		if o, ok := objectOf(list[0]); ok {
			message := o.inner("message")
			for _, answer := range []object{message.inner("kwargs", "data"), message} {
				if answer != nil {
					return answer
				}
			}
			return o
		}
		list, _ = elements(list[0])
	}
	return response
}

// fillOpenInferenceInput reads what was asked: the messages, or the value that went in, whatever its shape. Messages
// that are flattened to attributes have lost what there is no attribute for: ids of calls, all but one result of a
// message, the system's text. The request has them, if it is there and whole.
func fillOpenInferenceInput(f *fact.Fact, a Attrs) {
	messages := flatConversation(a, "llm.input_messages.")
	value := a.JSON("input.value")
	if a.Str("ai.operationId") != "" || isNull(value) {
		ReadInput(f, messages)
		return
	}
	asked, ok := Messages(value)
	recent, _ := Recent(messages)
	switch {
	case len(recent) > 0 && ok && knownOf(asked) >= knownOf(messages):
		messages = asked
	case len(recent) > 0:
	case asked == nil:
		messages = append(messages, fact.Message{Role: "user",
			Parts: appendText(nil, fact.PartText, cmp.Or(questionOf(value), a.Str("input.value")))})
	default:
		if messages = append(messages, asked...); !ok {
			f.Problems = append(f.Problems, "the input could not be read whole")
		}
	}
	ReadInput(f, messages)
}

func fillOpenInferenceOutput(f *fact.Fact, a Attrs) {
	answers, value := flatConversation(a, "llm.output_messages."), a.JSON("output.value")
	more := func(m fact.Message) bool { return partsKnown(m.Parts) != 1 || m.Parts[0].Kind != fact.PartText }
	if o, _ := objectOf(value); len(answers) > 1 && !o.has("output") && !slices.ContainsFunc(answers, more) {
		answers = answers[:1] // the others are candidates for it, and no items of OpenAI's Responses
	}
	f.Output = fact.PartsOf(answers)
	if isNull(value) {
		return
	}
	if o, _ := objectOf(value); o.inner("response").isMessage() { // of LlamaIndex's agents
		value = o["response"]
	}
	parts, finish, ok := Output(value)
	f.Finish = cmp.Or(f.Finish, finish)
	switch {
	case f.Output != nil: // a text is made of it, as LlamaIndex's "assistant: It is 4 C."
		if ok && text(value) == "" && partsKnown(parts) >= partsKnown(f.Output) {
			f.Output = parts
		}
	case parts == nil && !ok:
		o, _ := objectOf(value)
		f.Output = appendText(nil, fact.PartText, cmp.Or(o.str("raw"), a.Str("output.value"))) // raw is CrewAI's
	default:
		if f.Output = parts; !ok {
			f.Problems = append(f.Problems, "the output could not be read whole")
		}
	}
}

func fillOpenInferenceTool(f *fact.Fact, s *Span) {
	a := s.Attrs()
	if f.Tool == nil {
		f.Tool = new(fact.Tool)
	}
	name := f.Name
	if f.Event != "" {
		name, _, _ = strings.Cut(f.EventOf, "/")
		name = name[strings.LastIndexByte(name, '.')+1:]
	}
	f.Tool.Name = cmp.Or(f.Tool.Name, a.Str("tool.name", "tool_call.function.name"), name)
	for _, key := range []string{"tool_call.id", "tool.id"} {
		if id := a.Str(key); id != "null" { // of what exporters do not know
			f.CallID = cmp.Or(f.CallID, id)
		}
	}
	if f.Tool.Input == nil {
		f.Tool.Input = arguments(unwrapped(a.JSON("input.value", "tool_call.function.arguments", "tool.parameters")))
	}
	value := a.JSON("output.value")
	if o, ok := objectOf(value); ok && f.Event != "" && len(o) == 1 && o.has("result") {
		value = o["result"] // of BeeAI, which gives the model what is in it
	}
	if f.Tool.Output == nil && value != nil && !f.Failed {
		setOutput(f, value)
	}
	f.Tool.Succeeded = f.Tool.Succeeded || f.Event == "success" ||
		f.Event == "" && !f.Failed && (f.Tool.Output != nil || s.Status().Code() == ptrace.StatusCodeOk)
}

// questionOf returns the question of an object in which nothing else is: the arguments of a function may have switches
// and what is empty beside it, {"task": "Weather?", "stream": false}.
func questionOf(raw json.RawMessage) (question string) {
	o, _ := objectOf(raw)
	for key, member := range o {
		switch s := text(member); {
		case s != "" && slices.Contains(sections()["words"]["asked"], key) && question == "":
			question = s
		case s != "", len(member) > 2 && (member[0] == '{' || member[0] == '['):
			return ""
		}
	}
	return question
}
