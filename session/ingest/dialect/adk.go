package dialect

import (
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// adk reads Google's Agent Development Kit for Python, Go, Java and JavaScript. What a model was
// asked and answered is in attributes of the span call_llm, in Gemini's form, or in records of one
// message each, which belong to the span generate_content. Versions of Python's have both spans,
// one in the other.
//
// Content that the application withholds is there as "{}" or "<elided>".
var adk = Dialect{
	Name:       "adk",
	Title:      "Google ADK",
	Spans:      isADK,
	Records:    func(r *Record) bool { return r.Scope.Name() == adkScope && isGenAIRecord(r) },
	ReadSpan:   readADK,
	ReadRecord: readADKRecord,
}

const (
	adkScope  = "gcp.vertex.agent"
	adkPrefix = "gcp.vertex.agent."
)

// isADK also knows the model calls that an instrumentation of the model's client emits in ADK's
// place.
func isADK(s *Span) bool {
	if s.Scope.Name() == adkScope {
		return true
	}
	if !s.Has("gcp") {
		return false
	}
	return s.Attrs().Any(adkPrefix+"invocation_id", adkPrefix+"event_id", adkPrefix+"llm_request")
}

// adkText returns text that ADK has not withheld.
func adkText(s string) string {
	switch strings.TrimSpace(s) {
	case "<elided>", "<not serializable>", "<not_serializable>", "<not specified>", "N/A":
		return ""
	}
	return s
}

// adkJSON returns an attribute of ADK's, nil where its content was withheld.
func adkJSON(a Attrs, key string) json.RawMessage {
	raw := a.JSON(adkPrefix + key)
	if raw == nil || string(raw) == "{}" || string(raw) == "null" || raw[0] == '"' && adkText(text(raw)) == "" {
		return nil
	}
	return raw
}

func readADK(s *Span, out *Emitter) {
	a := s.Attrs()
	name := Text(s.Name())
	operation := a.Str("gen_ai.operation.name")
	switch {
	case hasPrefix(name, "execute_tool (merged)", "tool_response"), a.Str("gen_ai.tool.name") == "(merged tools)":
		adkAdd(s, out, fact.Step)
	case operation == "execute_tool", hasPrefix(name, "execute_tool ", "tool_call ["):
		adkTool(s, a, out)
	case name == "call_llm", operation == "chat", operation == "generate_content",
		strings.HasPrefix(name, "generate_content"):
		adkCall(s, a, out)
	case name == "invocation", operation == "invoke_agent", hasPrefix(name, "invoke_agent ", "agent_run ["):
		adkTurn(s, a, out)
	case operation == "invoke_workflow":
		// One in another is a node of it, as far as it reports so.
		if a.True("gen_ai.workflow.nested") {
			adkAdd(s, out, fact.Step)
		} else {
			adkTurn(s, a, out)
		}
	case operation == "compact_events":
		f := adkAdd(s, out, fact.Compaction)
		f.Compacted = &fact.Compacted{Trigger: a.Str("gen_ai.compaction.trigger")}
		f.Compacted.SummarizedMessages = a.Int("gen_ai.compaction.event_count")
		auto := true
		f.Compacted.Auto = &auto
	default:
		adkAdd(s, out, fact.Step)
	}
}

// adkAdd adds a fact with what every span of ADK may have.
func adkAdd(s *Span, out *Emitter, kind fact.Kind) *fact.Fact {
	f := out.Add(kind)
	adkIdentity(f, s)
	readFailure(f, s)
	return f
}

func adkIdentity(f *fact.Fact, s *Span) {
	f.TurnID, f.Agent = s.Attrs().Str(adkPrefix+"invocation_id"), s.Attrs().Str("gen_ai.agent.name")
	// The first versions in Go had spans without parents.
	f.RequiresTurn = f.Kind != fact.Turn && !s.ParentSpanID().IsEmpty() && s.Scope.Name() == adkScope
}

func adkTurn(s *Span, a Attrs, out *Emitter) {
	f := adkAdd(s, out, fact.Turn)
	if f.Agent == "" {
		if name, ok := strings.CutPrefix(f.Name, "agent_run ["); ok {
			f.Agent = strings.TrimSuffix(name, "]")
		} else if name, ok := strings.CutPrefix(f.Name, "invoke_agent "); ok {
			f.Agent = name
		}
	}
	setUser(f, a.Str("user.id"))
	if v := s.Scope.Version(); v != "" && s.Scope.Name() == adkScope {
		aboutOf(f).Client = "google-adk " + Text(v)
	}
}

func adkCall(s *Span, a Attrs, out *Emitter) {
	asked, answer := adkObject(a, out, "llm_request"), adkObject(a, out, "llm_response")
	f := addGenAI(s, out, fact.ModelCall, false)
	adkIdentity(f, s)
	f.RequestID = adkRequest(s, a)
	adkAsked(f, asked)
	adkAnswered(f, answer)
	f.Usage = adkUsage(a, answer)
	f.Unfinished = s.Name() == "call_llm" && s.Scope.Name() == adkScope && asked == nil && answer == nil &&
		neverEnded(f)
}

// adkRequest returns what the two spans of one model call have in common: the span id of the outer
// one. Only Python has both, and only its inner one names the agent and the conversation.
func adkRequest(s *Span, a Attrs) string {
	id := s.SpanID()
	if s.Name() != "call_llm" {
		id = s.ParentSpanID()
		language := (Attrs{s.Resource.Attributes()}).Str("telemetry.sdk.language")
		if language != "python" && language != "" || a.Str("gen_ai.agent.name") == "" ||
			a.Str("gen_ai.conversation.id") == "" {
			return ""
		}
	}
	if id.IsEmpty() {
		return ""
	}
	return "call_llm:" + id.String()
}

// adkObject returns an attribute that holds an object, nil where it was withheld or cut.
func adkObject(a Attrs, out *Emitter, key string) object {
	raw := adkJSON(a, key)
	if raw == nil {
		return nil
	}
	if problemIfCut(out, key, raw) {
		raw = closeCut(json.RawMessage(text(raw)))
	}
	o, _ := objectOf(raw)
	return o
}
