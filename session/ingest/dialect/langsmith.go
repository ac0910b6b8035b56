package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// langSmith reads the spans that LangSmith's SDKs make of their runs, in Python and JavaScript: the
// attributes of the GenAI conventions' first version, whose prompt and completion are the run's
// inputs and outputs whatever their shape. Its times are milliseconds.
var langSmith = Dialect{
	Name:     "langsmith",
	Title:    "LangSmith",
	Spans:    func(s *Span) bool { return s.Has("langsmith") && s.Attrs().Str("langsmith.span.kind") != "" },
	ReadSpan: readLangSmith,
}

func readLangSmith(s *Span, out *Emitter) {
	a := s.Attrs()
	switch kind := a.Str("langsmith.span.kind"); {
	case kind == "llm":
		langSmithCall(s, a, out)
	case kind == "tool":
		langSmithTool(s, a, out)
	case kind == "chain" && langSmithRoot(s, a):
		f := out.Add(fact.Turn)
		ReadInput(f, entityAsked(a.JSON("gen_ai.prompt")))
		f.Output = entityAnswered(a.JSON("gen_ai.completion"))
		f.Agent = langSmithAgent(a)
		langSmithFailure(f, s)
		langSmithAbout(f, a)
	default: // what a framework runs one after another, and what is looked up
		langSmithFailure(out.Add(fact.Step), s)
	}
}

// langSmithRoot reports whether the run is the outermost of its trace. Its span may are below one
// of something else.
func langSmithRoot(s *Span, a Attrs) bool {
	if a.Str("langsmith.span.id") != "" {
		return a.Str("langsmith.span.parent_id") == ""
	}
	return s.ParentSpanID().IsEmpty()
}

func langSmithCall(s *Span, a Attrs, out *Emitter) {
	asked, answered := a.JSON("gen_ai.prompt"), a.JSON("gen_ai.completion")
	var c conversation
	c.readInput(asked)
	c.readOutput(answered)
	out.Problem(c.problems...)
	f := out.Add(fact.ModelCall)
	c.fill(f)
	request, _ := objectOf(asked)
	f.SystemPrompt = cmp.Or(f.SystemPrompt, SystemInstructions(request.first("system", "instructions")))
	f.ToolCatalog = Catalog(request.first("tools", "functions"))
	readGenAICall(f, s.Scope, a)
	f.Usage = genAIUsage(a, fact.Inclusive, "") // LangChain's usage includes all of its details
	response, _ := objectOf(answered)
	answer := answerOf(response)
	f.ResponseID, f.ResponseModel = cmp.Or(f.ResponseID, answer.str("id")), cmp.Or(f.ResponseModel, answer.str("model"))
	if f.Model != nil {
		f.Model.ModelID = cmp.Or(f.Model.ModelID, a.Str("langsmith.metadata.ls_model_name"))
		f.Model.ProviderID = cmp.Or(a.Str("langsmith.metadata.ls_provider"), f.Model.ProviderID)
	}
	f.Agent = langSmithAgent(a)
	langSmithFailure(f, s)
	langSmithAbout(f, a)
}

func langSmithTool(s *Span, a Attrs, out *Emitter) {
	f := out.Add(fact.ToolCall)
	f.Tool = &fact.Tool{Name: cmp.Or(a.Str("gen_ai.tool.name"), f.Name)}
	f.Agent = langSmithAgent(a)
	input := a.JSON("gen_ai.prompt")
	if o, ok := objectOf(input); ok && len(o) == 1 && o.has("input") {
		if inner := unwrapped(o["input"]); len(inner) > 0 && inner[0] == '{' { // LangChain passes a text
			input = inner
		}
	}
	f.Tool.Input = unwrapped(input)
	langSmithFailure(f, s)
	value := a.JSON("gen_ai.completion")
	if o, ok := objectOf(value); ok && len(o) == 1 && o.has("outputs") {
		value = o["outputs"]
	}
	if value != nil && !f.Failed {
		fillToolOutput(f, value)
	}
	f.Tool.Succeeded = !f.Failed && (f.Tool.Output != nil || value != nil)
}

// langSmithFailure reads an error: it is an event of the span, whose status is OK all the same.
func langSmithFailure(f *fact.Fact, s *Span) {
	for a := range exceptions(s.Span) {
		f.Failed = true
		f.Error, f.ErrorType = withoutStack(a.Str("exception.message")), a.Str("exception.type")
	}
	readFailure(f, s)
}

// langSmithAgent names the agent of LangGraph that speaks.
func langSmithAgent(a Attrs) string { return a.Str("langsmith.metadata.lc_agent_name") }

// langSmithAbout notes the user and the tags that an application gives its runs.
func langSmithAbout(f *fact.Fact, a Attrs) {
	setUser(f, a.Str("langsmith.metadata.user_id", "langsmith.metadata.userId"))
	if tags := a.Str("langsmith.span.tags"); tags != "" {
		raw, _ := json.Marshal(strings.Split(tags, ", "))
		setExtra(f, "langsmith.span.tags", raw)
	}
}
