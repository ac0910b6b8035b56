package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// openLLMetry reads the instrumentations of OpenLLMetry for Python and JavaScript, with or without Traceloop's SDK.
// Model calls follow the GenAI conventions, older ones with a message spread over attributes; traceloop.span.kind
// states what the other spans are, and traceloop.entity.input and output hold what went in and out.
//
// A streamed call often has no tokens. In JavaScript a tool that throws leaves no span.
var openLLMetry = Dialect{
	Name:       "openllmetry",
	Spans:      isOpenLLMetry,
	Records:    func(r *Record) bool { return openLLMetryScope(r.Scope.Name()) && isGenAIRecord(r) },
	ReadSpan:   readOpenLLMetry,
	ReadRecord: readGenAIRecord,
}

func isOpenLLMetry(s *Span) bool {
	return s.Has("traceloop") || s.Has("gen_ai", "llm") && openLLMetryScope(s.Scope.Name())
}

// openLLMetryScope reports whether a scope is one of the instrumentations. Two of OpenTelemetry's
// own share their prefix.
func openLLMetryScope(name string) bool {
	if strings.HasPrefix(name, "@traceloop/") {
		return true
	}
	library, ok := strings.CutPrefix(name, "opentelemetry.instrumentation.")
	return ok && !strings.HasSuffix(library, "_v2") && library != "google_genai"
}

// traceloopKinds are the values of traceloop.span.kind and of llm.request.type.
var traceloopKinds = meanings[fact.Kind]("traceloop")

const associations = "traceloop.association.properties."

func readOpenLLMetry(s *Span, out *Emitter) {
	a := s.Attrs()
	kind := openLLMetryKind(s, a)
	switch kind {
	case fact.Turn:
		openLLMetryTurn(s, a, out)
		return
	case fact.ModelCall:
		openLLMetryCall(s, a, out)
	case fact.ToolCall:
		openLLMetryTool(s, a, out)
	case fact.Step:
		readFailure(out.Add(kind), s)
	}
	for i := range out.All {
		if f := &out.All[i]; f.Kind == kind {
			f.Agent = a.Str("gen_ai.agent.name")
			// In Python the name of a workflow outlives it, and then does not prove that the span is below one.
			f.RequiresTurn = s.Scope.Name() == "@traceloop/node-server-sdk" && !s.ParentSpanID().IsEmpty() &&
				a.Str("traceloop.workflow.name") != ""
		}
	}
}

// openLLMetryKind returns what a span reports, "" for nothing.
func openLLMetryKind(s *Span, a Attrs) fact.Kind {
	operation := a.Str("gen_ai.operation.name")
	switch kind := a.Str("traceloop.span.kind"); {
	case kind == "task" && operation == "execute_tool":
		return fact.ToolCall // LangChain's in JavaScript
	case kind == "workflow" && operation == "workflow" && strings.HasPrefix(s.Name(), "workflow Runnable"):
		return fact.Step // a piece of a chain, there too: what goes through it is no answer
	}
	// Spans of the AI SDK that pass through Traceloop's SDK are all renamed to a model call's.
	kind := cmp.Or(traceloopKinds()[a.Str("traceloop.span.kind")], aiOperations()[a.Str("ai.operationId")])
	if kind != "" {
		return kind
	}
	if kind, known := operations()[operation]; known {
		return kind
	}
	if kind = traceloopKinds()[a.Str("llm.request.type")]; kind == "" && operation == "" {
		kind = genAIKindOf(s, a)
	}
	return cmp.Or(kind, fact.Step)
}

func openLLMetryTurn(s *Span, a Attrs, out *Emitter) {
	asked, answered := a.JSON("traceloop.entity.input"), a.JSON("traceloop.entity.output")
	problemIfCut(out, "traceloop.entity.input", asked)
	problemIfCut(out, "traceloop.entity.output", answered)
	var c conversation
	c.readAttrs(a)

	f := out.Add(fact.Turn)
	c.fill(f)
	f.Agent = a.Str("gen_ai.agent.name")
	switch entity := a.Str("traceloop.entity.name"); {
	case a.Str("traceloop.span.kind") == "agent":
		f.Agent = cmp.Or(entity, f.Agent)
	case f.Agent == entity && a.Str("traceloop.span.kind") == "workflow":
		f.Agent = "" // LangChain's workflows are all agents of their own name
	}
	if m := genAIModel(a); m != nil && m.ModelID != "" {
		f.Model = m // else the provider is who made the framework
	}
	if len(f.Input) == 0 {
		ReadInput(f, entityAsked(asked))
	}
	if f.Output == nil {
		f.Output = entityAnswered(answered)
	}
	// Whose session it is, and what else an application associates with it.
	users := []string{"user_id", "userId", "user"}
	for _, name := range users {
		if f.SessionAttrs == nil {
			setUser(f, a.Str(associations+name))
		}
	}
	f.Extra = encode(a.below(associations, users...))
	readFailure(f, s)
}

func openLLMetryCall(s *Span, a Attrs, out *Emitter) {
	f := addGenAI(s, out, fact.ModelCall, true)
	if items := responseItems(f.Input, a.Str("gen_ai.response.id")); items != nil && f.History == 0 {
		ReadInput(f, items)
	}
	// LangChain's name for a model that it does not know is "unknown", and a provider was once written as a name.
	if f.ResponseModel == "unknown" {
		f.ResponseModel = ""
	}
	if m := f.Model; m != nil {
		if m.ModelID == "unknown" {
			m.ModelID = f.ResponseModel
		}
		f.Model = modelOf(strings.ToLower(m.ProviderID), m.ModelID)
	}
	f.Finish = cmp.Or(f.Finish,
		a.Str("gen_ai.response.stop_reason", "llm.response.finish_reason", "llm.response.stop_reason"))
	if len(f.Output) > 0 && f.Output[0].Kind == fact.PartText && a.Str("gen_ai.completion.0.role") == "thinking" {
		f.Output[0].Kind = fact.PartReasoning // Anthropic's thinking was a completion of its own role
	}
	f.ToolCatalog = cmp.Or(f.ToolCatalog, flatCatalog(a))
	// Bedrock counts the cache beside the input, and Anthropic does in JavaScript. The other instrumentations add
	// Anthropic's cache to the input, or get counts that include it.
	if f.Usage != nil && (usageBasis(s.Scope.Name(), a) == fact.Mixed || strings.Contains(s.Scope.Name(), "bedrock") ||
		strings.EqualFold(a.Str("gen_ai.provider.name", "gen_ai.system"), "aws.bedrock")) {
		c := a.conventionCounts()
		c.Raw = f.Usage.Raw
		f.Usage = c.Usage(fact.CacheApart)
	}
}

// responseItems returns the messages of a request to OpenAI's Responses API, whose input is a list of items: the
// instrumentation for JavaScript writes the list as the text of one message of the user. It is nil for anything else,
// such as a user who wrote JSON to another interface.
func responseItems(input []fact.Message, responseID string) []fact.Message {
	if len(input) != 1 || input[0].Role != "user" || len(input[0].Parts) != 1 ||
		input[0].Parts[0].Kind != fact.PartText || responseID != "" && !strings.HasPrefix(responseID, "resp_") {
		return nil
	}
	raw := json.RawMessage(strings.TrimSpace(input[0].Parts[0].Text))
	list, _ := elements(raw)
	for _, e := range list {
		o, _ := objectOf(e)
		if normalRole(o.str("role")) == "" && shapes()[o.str("type")] == "" && o.str("type") != "item_reference" {
			return nil
		}
	}
	if messages, ok := Messages(raw); ok && len(list) > 0 {
		return messages
	}
	return nil
}

func openLLMetryTool(s *Span, a Attrs, out *Emitter) {
	asked := a.JSON("gen_ai.tool.call.arguments", "traceloop.entity.input", "ai.toolCall.input",
		"ai.toolCall.args")
	answered := a.JSON("gen_ai.tool.call.result", "traceloop.entity.output", "ai.toolCall.output",
		"ai.toolCall.result")
	problemIfCut(out, "the tool's input", asked)
	cut := problemIfCut(out, "the tool's output", answered)

	f := out.Add(fact.ToolCall)
	input, askedID := toolAsked(asked)
	f.CallID = cmp.Or(a.Str("gen_ai.tool.call.id", "gen_ai.tool.call_id", "ai.toolCall.id"), askedID)
	f.Tool = &fact.Tool{Input: input, Truncated: cut, Name: a.Str("gen_ai.tool.name")}
	setOutput(f, answered)
	if asked == nil || a.Str("traceloop.span.kind") != "task" { // else the span has the name of the tool's class
		f.Tool.Name = cmp.Or(f.Tool.Name, a.Str("traceloop.entity.name", "ai.toolCall.name"),
			strings.TrimSuffix(strings.TrimPrefix(f.Name, "execute_tool "), ".tool"))
	}
	readFailure(f, s)
	// A span that ends without an error is a call that returned.
	f.Tool.Succeeded = !f.Failed && !f.Tool.Denied &&
		(s.Status().Code() == ptrace.StatusCodeOk || s.EndTimestamp() > 0)
}

// toolAsked returns the arguments of a tool, and the id of its call where LangChain passes it on.
func toolAsked(raw json.RawMessage) (input json.RawMessage, callID string) {
	o, ok := objectOf(raw)
	langChain := o.has("input_str") || o.has("inputs") && o.has("kwargs")
	if langChain {
		callID = o.inner("kwargs").str("tool_call_id")
	}
	switch {
	case !ok:
		return unwrapped(raw), ""
	case langChain && o.has("inputs"):
		return o["inputs"], callID
	case langChain:
		return unwrapped(o["input_str"]), callID
	}
	return calledWith(o, raw), ""
}

// calledWith is [arguments], also for LangChain's in JavaScript, which have one argument as a text and nothing else.
func calledWith(o object, raw json.RawMessage) json.RawMessage {
	if args, ok := elements(o["args"]); ok && len(args) == 1 && len(o) == 1 {
		return unwrapped(args[0])
	}
	return arguments(raw)
}

// entityAsked finds what the user asked among what a workflow or agent was called with. It is nil if the arguments do
// not show it.
func entityAsked(raw json.RawMessage) []fact.Message {
	o, ok := objectOf(raw)
	if !ok {
		return askedIn(raw)
	}
	if in := o.first("inputs"); in != nil {
		return askedIn(in)
	}
	if messages := askedIn(calledWith(o, raw)); messages != nil {
		return messages
	}
	// A method is called with its object first.
	args, _ := elements(o["args"])
	texts := slices.DeleteFunc(args[min(1, len(args)):], func(arg json.RawMessage) bool { return text(arg) == "" })
	if len(texts) != 1 {
		return nil
	}
	return askedIn(texts[0])
}

func askedIn(raw json.RawMessage) []fact.Message {
	if o, ok := objectOf(raw); ok && !o.isMessage() {
		if messages, ok := Messages(o["messages"]); ok && o.has("messages") {
			return messages
		}
		s := o.str(sections()["words"]["asked"]...)
		for key := range o {
			if len(o) == 1 {
				s = o.str(key)
			}
		}
		if raw = quoted(s); s == "" {
			return nil
		}
	}
	if messages, ok := Messages(raw); ok {
		return messages
	}
	return nil
}

// entityAnswered finds the answer in what a workflow or agent returned.
func entityAnswered(raw json.RawMessage) (parts []fact.Part) {
	o, ok := objectOf(raw)
	switch {
	case o.has("outputs"):
		return entityAnswered(o["outputs"])
	case o.has("messages"): // the state of a graph: the whole conversation
		messages, _ := Messages(o["messages"])
		_, parts = splitAnswer(messages)
	case ok && (!o.isMessage() && !o.isWrapper() || o.has("output")):
		parts = appendText(nil, fact.PartText, o.str(sections()["words"]["answered"]...))
	default:
		parts, _, _ = Output(raw)
	}
	return parts
}
