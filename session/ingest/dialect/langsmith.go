package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// langSmith reads the spans that LangSmith's SDKs make of their runs, in Python and JavaScript: the attributes of the
// GenAI conventions' first version, whose prompt and completion are the run's inputs and outputs whatever their shape.
// Its times are milliseconds.
var langSmith = Dialect{
	Name:     "langsmith",
	Spans:    func(s *Span) bool { return s.Has("langsmith") && s.Attrs().Str("langsmith.span.kind") != "" },
	ReadSpan: readLangSmith,
}

func readLangSmith(s *Span, out *Emitter) {
	a := s.Attrs()
	// The run that is the outermost of its trace is the turn. Its span may be below one of something else.
	root := s.ParentSpanID().IsEmpty()
	if a.Str("langsmith.span.id") != "" {
		root = a.Str("langsmith.span.parent_id") == ""
	}
	var f *fact.Fact
	switch kind := a.Str("langsmith.span.kind"); {
	case kind == "llm":
		f = langSmithCall(s, a, out)
	case kind == "tool":
		f = out.Add(fact.ToolCall)
	case kind == "chain" && root:
		f = out.Add(fact.Turn)
		ReadInput(f, entityAsked(a.JSON("gen_ai.prompt")))
		f.Output = entityAnswered(a.JSON("gen_ai.completion"))
	default: // what a framework runs one after another, and what is looked up
		f = out.Add(fact.Step)
	}
	// An error is an event of the span, whose status is OK all the same.
	for e := range exceptions(s.Span) {
		f.Failed = true
		f.Error, f.ErrorType = withoutStack(e.Str("exception.message")), e.Str("exception.type")
	}
	readFailure(f, s)
	if f.Kind != fact.Step {
		f.Agent = a.Str("langsmith.metadata.lc_agent_name") // the agent of LangGraph that speaks
	}
	if f.Kind == fact.ToolCall {
		langSmithTool(f, a)
	}
	if f.Kind == fact.Turn || f.Kind == fact.ModelCall {
		setUser(f, a.Str("langsmith.metadata.user_id", "langsmith.metadata.userId"))
		if tags := a.Str("langsmith.span.tags"); tags != "" {
			raw, _ := json.Marshal(strings.Split(tags, ", "))
			setExtra(f, "langsmith.span.tags", raw)
		}
	}
}

func langSmithCall(s *Span, a Attrs, out *Emitter) *fact.Fact {
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
	return f
}

func langSmithTool(f *fact.Fact, a Attrs) {
	input, output := a.JSON("gen_ai.prompt"), a.JSON("gen_ai.completion")
	if o, _ := objectOf(input); len(o) == 1 && o.has("input") {
		if inner := unwrapped(o["input"]); len(inner) > 0 && inner[0] == '{' { // LangChain passes a text
			input = inner
		}
	}
	f.Tool = &fact.Tool{Name: cmp.Or(a.Str("gen_ai.tool.name"), f.Name), Input: unwrapped(input)}
	if o, _ := objectOf(output); len(o) == 1 && o.has("outputs") {
		output = o["outputs"]
	}
	if output != nil && !f.Failed {
		setOutput(f, output)
	}
	f.Tool.Succeeded = !f.Failed && output != nil
}
