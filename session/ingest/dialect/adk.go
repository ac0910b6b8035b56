package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// adk reads Google's Agent Development Kit for Python, Go, Java and JavaScript. What a model was asked and answered is
// in attributes of the span call_llm, in Gemini's form, or in records of one message each, which belong to the span
// generate_content. Versions of Python's have both spans, one in the other.
//
// Content that the application withholds is there as "{}" or "<elided>".
var adk = Dialect{
	Name: "adk",
	Spans: func(s *Span) bool { // also of what an instrumentation of the model's client emits in ADK's place
		return s.Scope.Name() == adkScope || s.Has("gcp") &&
			s.Attrs().Any(adkPrefix+"invocation_id", adkPrefix+"event_id", adkPrefix+"llm_request")
	},
	Records:    func(r *Record) bool { return r.Scope.Name() == adkScope && isGenAIRecord(r) },
	ReadSpan:   readADK,
	ReadRecord: readADKRecord,
}

const (
	adkScope  = "gcp.vertex.agent"
	adkPrefix = "gcp.vertex.agent."
)

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

// adkObject returns an attribute that holds an object, nil where it was withheld or cut.
func adkObject(a Attrs, out *Emitter, key string) object {
	raw := adkJSON(a, key)
	if problemIfCut(out, key, raw) {
		raw = closeCut(json.RawMessage(text(raw)))
	}
	o, _ := objectOf(raw)
	return o
}

// adkField returns a member of an object that Python writes in snake case, Go as genai's JSON or as the names of its
// fields.
func adkField(o object, snake string) json.RawMessage {
	if o.has(snake) {
		return o[snake]
	}
	var pascal strings.Builder
	for word := range strings.SplitSeq(snake, "_") {
		pascal.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	name := pascal.String()
	return o.first(strings.ToLower(name[:1])+name[1:], name)
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
	case name == "invocation", operation == "invoke_agent", hasPrefix(name, "invoke_agent ", "agent_run ["),
		operation == "invoke_workflow" && !a.True("gen_ai.workflow.nested"):
		f := adkAdd(s, out, fact.Turn)
		if agent, ok := strings.CutPrefix(name, "agent_run ["); ok {
			f.Agent = cmp.Or(f.Agent, strings.TrimSuffix(agent, "]"))
		} else if agent, ok := strings.CutPrefix(name, "invoke_agent "); ok {
			f.Agent = cmp.Or(f.Agent, agent)
		}
		setUser(f, a.Str("user.id"))
		if v := s.Scope.Version(); v != "" && s.Scope.Name() == adkScope {
			aboutOf(f).Client = "google-adk " + Text(v)
		}
	case operation == "compact_events":
		adkAdd(s, out, fact.Compaction).Compacted = &fact.Compacted{Trigger: a.Str("gen_ai.compaction.trigger"),
			SummarizedMessages: a.Int("gen_ai.compaction.event_count"), Auto: new(true)}
	default: // among others a workflow in another: it is a node of that, as far as it reports so
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

func adkCall(s *Span, a Attrs, out *Emitter) {
	asked, answer := adkObject(a, out, "llm_request"), adkObject(a, out, "llm_response")
	f := addGenAI(s, out, fact.ModelCall, false)
	adkIdentity(f, s)
	// What the two spans of one model call have in common is the span id of the outer one. Only Python has both, and
	// only its inner one names the agent and the conversation.
	id := s.ParentSpanID()
	language := Attrs{s.Resource.Attributes()}.Str("telemetry.sdk.language")
	outer := s.Name() == "call_llm"
	if outer {
		id = s.SpanID()
	}
	if !id.IsEmpty() && (outer || (language == "python" || language == "") && f.Agent != "" &&
		a.Str("gen_ai.conversation.id") != "") {
		f.RequestID = "call_llm:" + id.String()
	}
	if asked != nil {
		adkAsked(f, asked)
	}
	if answer != nil {
		adkAnswered(f, answer)
	}
	// The counts of Gemini exclude the thoughts from the output and the results of its own tools from the input;
	// attributes do so in some versions, and leave the thoughts and the cache out in others.
	meta := adkField(answer, "usage_metadata")
	counts, _ := objectOf(meta)
	c := geminiCounts(counts)
	c.Raw = meta
	if f.Usage = c.Usage(0); f.Usage == nil {
		f.Usage = genAIUsage(a, fact.Inclusive, "")
		if f.Usage != nil && f.Usage.Tokens.Reasoning == 0 {
			f.Usage.Tokens.Reasoning = counted(a.IntPtr("gen_ai.usage.experimental.reasoning_tokens"))
		}
	}
	f.Unfinished = outer && s.Scope.Name() == adkScope && asked == nil && answer == nil && neverEnded(f)
}

// adkAsked reads a request, as far as the attributes lack it.
func adkAsked(f *fact.Fact, request object) {
	if id := text(adkField(request, "model")); f.Model == nil {
		f.Model = modelOf("", id)
	} else {
		f.Model.ModelID = cmp.Or(f.Model.ModelID, id)
	}
	config, _ := objectOf(adkField(request, "config"))
	f.SystemPrompt = cmp.Or(f.SystemPrompt, SystemInstructions(adkField(config, "system_instruction")))
	f.ToolCatalog = cmp.Or(f.ToolCatalog, adkCatalog(adkField(config, "tools")))
	f.Temperature = cmp.Or(f.Temperature, number(string(adkField(config, "temperature"))))
	labels, _ := objectOf(adkField(config, "labels"))
	f.Agent = cmp.Or(f.Agent, labels.str("adk_agent_name"))
	if len(f.Input) > 0 {
		return
	}
	// It is the content in the first versions in Go.
	messages, _ := Messages(firstRaw(adkField(request, "contents"), adkField(request, "content")))
	for _, p := range fact.EachPart(messages) {
		// A function's response that has nothing but an error is one, as Gemini's interface wants it.
		o, _ := objectOf(p.Output)
		if p.Kind == fact.PartResult && p.Error == "" && len(o) == 1 && o.has("error") {
			p.Error, p.Output = errorText(o["error"]), nil
		}
	}
	ReadInput(f, messages)
	f.SplitPrompts()
}

// adkCatalog returns the declarations of functions among a request's tools, and the tools of the provider as they are.
func adkCatalog(raw json.RawMessage) string {
	var all []json.RawMessage
	for _, tool := range objectsOf(raw) {
		declared := adkField(tool, "function_declarations")
		list, _ := elements(declared)
		for _, name := range sortedKeys(tool) {
			if declared == nil && tool.has(name) {
				list = append(list, encode(object{"name": quoted(name), "type": quoted(name)}))
			}
		}
		all = append(all, list...)
	}
	list, _ := json.Marshal(all)
	return Catalog(list)
}

func adkAnswered(f *fact.Fact, response object) {
	if f.Output == nil {
		f.Output, _, _ = Output(adkField(response, "content"))
	}
	f.Finish = cmp.Or(f.Finish, text(adkField(response, "finish_reason")))
	f.ResponseModel = cmp.Or(f.ResponseModel, text(adkField(response, "model_version")))
	f.Aborted = f.Aborted || string(adkField(response, "interrupted")) == "true"
	// An answer that was stopped, as for safety, has the finish reason as its error.
	if code := text(adkField(response, "error_code")); code != "" && !strings.EqualFold(code, f.Finish) {
		f.Failed, f.ErrorType = true, cmp.Or(f.ErrorType, code)
		f.Error = cmp.Or(f.Error, text(adkField(response, "error_message")))
	}
}

func adkTool(s *Span, a Attrs, out *Emitter) {
	asked := firstRaw(adkJSON(a, "tool_call_args"), a.JSON("gen_ai.tool.call.arguments"))
	answered := firstRaw(adkJSON(a, "tool_response"), a.JSON("gen_ai.tool.call.result"))
	problemIfCut(out, "the tool's input", asked)
	cut := problemIfCut(out, "the tool's output", answered)
	name := strings.TrimPrefix(Text(s.Name()), "execute_tool ")
	if inner, ok := strings.CutPrefix(name, "tool_call ["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	tool := fact.Tool{Name: cmp.Or(a.Str("gen_ai.tool.name"), name), Input: unwrapped(asked), Truncated: cut}
	id := adkText(a.Str("gen_ai.tool.call.id"))

	// A response is an object: that of a failure has the error, that of a tool which returned anything else the result.
	o, _ := objectOf(answered)
	failure := ""
	if o.has("error") && len(o) == 1 {
		failure = errorText(o["error"])
	} else if result := o.str("result"); len(o) == 1 && result != "" && adkText(result) == "" {
		answered = nil
	}
	// It is also what the tool answers before and after a person was asked about the call.
	asks := strings.Contains(failure, "requires confirmation, please approve or reject")
	tool.Denied = !asks && strings.HasSuffix(strings.TrimSuffix(failure, "."), "call is rejected")
	if asks || tool.Denied {
		p := adkAdd(s, out, fact.Permission)
		clearFailure(p)
		p.CallID, p.Decision = id, &fact.Decision{ToolName: tool.Name, Action: "ask", Outcome: "pending"}
		if tool.Denied {
			p.Decision = &fact.Decision{ToolName: tool.Name, Action: "deny", Outcome: "denied", Reply: "reject",
				Source: "user", Reason: failure}
		}
	}
	f := adkAdd(s, out, fact.ToolCall)
	f.CallID, f.Tool = id, &tool
	switch {
	case asks || tool.Denied: // Go makes an error of it
		clearFailure(f)
	case failure != "":
		f.Failed = true
		if f.Error == "" || f.Error == f.ErrorType {
			f.Error = failure
		}
	case answered != nil:
		tool.Output, tool.Succeeded = structured(answered), !f.Failed
	}
}

// readADKRecord reads the records of the generic convention, and those of one message, whose body has Gemini's content
// where the convention has none.
func readADKRecord(r *Record, out *Emitter) {
	a := r.Attrs()
	if !HasMessage(r) {
		readGenAIRecord(r, out)
	} else if r.Body().Type() == pcommon.ValueTypeMap {
		f := out.base
		readADKMessage(&f, r.Event, Attrs{r.Body().Map()})
		if f.SystemPrompt != "" || f.Output != nil || f.Finish != "" || f.Input != nil {
			f.Kind, f.Model = fact.ModelCall, modelOf(a.Str("gen_ai.system"), "")
			out.All = append(out.All, f)
		}
	}
	for i := range out.All {
		f := &out.All[i]
		f.TurnID = cmp.Or(a.Str(adkPrefix+"invocation_id"), f.TurnID)
		setUser(f, a.Str("user.id"))
	}
}

func readADKMessage(f *fact.Fact, event string, body Attrs) {
	content := body.JSON("content")
	if adkText(body.Str("content")) == "" || string(content) == "null" {
		content = nil
	}
	switch event {
	case "gen_ai.system.message":
		f.SystemPrompt = SystemInstructions(content)
	case "gen_ai.choice":
		f.Output, _, _ = Output(content)
		f.Finish = body.Str("finish_reason")
	default:
		if messages, _ := Messages(content); talks(messages[:min(1, len(messages))]) {
			f.Input, f.OnePrompt = messages, true
		}
	}
}
