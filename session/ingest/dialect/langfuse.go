package dialect

import (
	"cmp"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// langfuse reads the spans of Langfuse's own SDKs, which report in langfuse.observation.* what they are. Input and
// output are whatever the application or an integration put there, so they are read as [generic] reads them.
//
// Counts of tokens are disjoint. A failed observation has a level and a message; the span's status is that of the
// outermost only.
var langfuse = Dialect{
	Name: "langfuse",
	Spans: func(s *Span) bool {
		return s.Has("langfuse") && !s.Has("gen_ai", "ai", "openinference") &&
			s.Attrs().Str("langfuse.observation.type") != ""
	},
	ReadSpan: readLangfuse,
}

func readLangfuse(s *Span, out *Emitter) {
	a := s.Attrs()
	g := collectScope(a, noBody, s.Scope)
	root := s.ParentSpanID().IsEmpty() || a.True("langfuse.internal.is_app_root")
	f := out.Add(fact.Step) // span, chain, event, retriever, evaluator, guardrail, embedding
	switch kind := strings.ToLower(a.Str("langfuse.observation.type")); {
	case kind == "generation":
		f.Kind = fact.ModelCall
	case kind == "tool":
		f.Kind = fact.ToolCall
	case kind == "agent":
		f.Kind, f.Agent = fact.Turn, Text(s.Name())
	case root && (len(g.values["input"]) > 0 || len(g.values["output"]) > 0):
		f.Kind = fact.Turn
	default:
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
	if raw := a.JSON("langfuse.observation.usage_details"); raw != nil {
		if usage, ok := objectOf(raw); ok {
			t := make(tally)
			t.object(usage, 0)
			f.Usage = t.counts(raw).Usage(fact.CacheApart | fact.ReasoningApart)
		}
	}
	if cost := a.object("langfuse.observation.cost_details"); cost != nil && f.Usage != nil {
		f.CostUSD = number(string(cost["total"]))
	}
	if parameters := a.object("langfuse.observation.model.parameters"); parameters != nil {
		f.Temperature = number(string(parameters["temperature"]))
	}
	addExtra(f, a, "langfuse.trace.name", "langfuse.trace.tags", "langfuse.environment", "langfuse.release",
		"langfuse.version")
	readFailure(f, s)
}
