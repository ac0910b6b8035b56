package dialect

import (
	"cmp"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// langfuse reads the spans of Langfuse's own SDKs, which report in langfuse.observation.* what they
// are. Input and output are whatever the application or an integration put there, so they are read
// as [generic] reads them.
//
// Counts of tokens are disjoint. A failed observation has a level and a message; the span's status
// is that of the outermost only.
var langfuse = Dialect{
	Name:     "langfuse",
	Title:    "Langfuse SDK",
	Spans:    isLangfuse,
	ReadSpan: readLangfuse,
}

func isLangfuse(s *Span) bool {
	return s.Has(MarkLangfuse) && !s.Has(MarkGenAI|MarkAI|MarkOpenInference) &&
		s.Attrs().Str("langfuse.observation.type") != ""
}

func readLangfuse(s *Span, out *Emitter) {
	a := s.Attrs()
	g := collectScope(a, noBody, s.Scope)
	root := s.ParentSpanID().IsEmpty()
	var f *fact.Fact
	switch kind := strings.ToLower(a.Str("langfuse.observation.type")); kind {
	case "generation":
		f = out.Add(fact.ModelCall)
	case "tool":
		f = out.Add(fact.ToolCall)
	case "agent":
		f = out.Add(fact.Turn)
		f.Agent = Text(s.Name())
	default: // span, chain, event, retriever, evaluator, guardrail, embedding
		if app, _ := a.Bool("langfuse.internal.is_app_root"); (root || app) && (len(g.values[fieldInput]) > 0 ||
			len(g.values[fieldOutput]) > 0) {
			f = out.Add(fact.Turn)
			break
		}
		out.Add(fact.Step)
		return
	}
	if strings.EqualFold(a.Str("langfuse.observation.level"), "ERROR") {
		f.Failed, f.Error = true, cmp.Or(f.Error, a.Str("langfuse.observation.status_message"))
	}
	g.about(f, s)
	if f.Kind == fact.ToolCall {
		f.CallID = a.Str("langfuse.observation.metadata.tool_call_id", "langfuse.observation.metadata.toolCallId")
		g.tool(f, Text(s.Name()))
		f.Tool.Name = Text(s.Name())
		return
	}
	g.call(f)
	if usage, ok := objectOf(a.JSON("langfuse.observation.usage_details")); ok {
		t := make(tally)
		t.object(usage, 0)
		f.Usage = t.counts(a.JSON("langfuse.observation.usage_details")).Usage(fact.CacheApart | fact.ReasoningApart)
	}
	if cost, ok := objectOf(a.JSON("langfuse.observation.cost_details")); ok && f.Usage != nil {
		f.CostUSD = number(string(cost["total"]))
	}
	if parameters, ok := objectOf(a.JSON("langfuse.observation.model.parameters")); ok {
		f.Temperature = number(string(parameters["temperature"]))
	}
	addExtra(f, a, "langfuse.trace.name", "langfuse.trace.tags", "langfuse.environment", "langfuse.release",
		"langfuse.version")
	readFailure(f, s)
}
