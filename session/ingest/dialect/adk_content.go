package dialect

import (
	"cmp"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// adkField returns a member of an object that Python writes in snake case, Go as genai's JSON or as
// the names of its fields.
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

// adkAsked reads a request, as far as the attributes lack it.
func adkAsked(f *fact.Fact, request object) {
	if request == nil {
		return
	}
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
	if len(f.Input) == 0 {
		contents := adkField(request, "contents")
		if contents == nil {
			contents = adkField(request, "content") // so in the first versions in Go
		}
		messages, _ := Messages(contents)
		for _, m := range messages {
			for i := range m.Parts {
				geminiFailure(&m.Parts[i])
			}
		}
		ReadInput(f, messages)
		adkUnanswered(f)
	}
}

// geminiFailure makes an error of a function's response that has nothing but one, as Gemini's
// interface wants it.
func geminiFailure(p *fact.Part) {
	if p.Kind != fact.PartResult || p.Error != "" {
		return
	}
	if o, _ := objectOf(p.Output); len(o) == 1 && o.has("error") {
		p.Error, p.Output = errorText(o["error"]), nil
	}
}

// adkContext begins what ADK writes in the user's name about the messages of other agents.
const adkContext = "For context:"

// adkUnanswered takes out of the input the user's messages of earlier turns that failed: each
// message of the user's is a turn, and the last one this one.
func adkUnanswered(f *fact.Fact) {
	n := 0
	for n < len(f.Input) && f.Input[n].Role == "user" {
		if parts := f.Input[n].Parts; len(parts) > 0 && strings.HasPrefix(parts[0].Text, adkContext) {
			return
		}
		n++
	}
	if n < 2 {
		return
	}
	f.Unanswered, f.Input = f.Input[:n-1], f.Input[n-1:]
	f.History += n - 1
}

// adkCatalog returns the declarations of functions among a request's tools, and the tools of the
// provider as they are.
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
	if response == nil {
		return
	}
	if f.Output == nil {
		f.Output, _ = Output(adkField(response, "content"))
	}
	f.Finish = cmp.Or(f.Finish, text(adkField(response, "finish_reason")))
	f.ResponseModel = cmp.Or(f.ResponseModel, text(adkField(response, "model_version")))
	if string(adkField(response, "interrupted")) == "true" {
		f.Aborted = true
	}
	// An answer that was stopped, as for safety, has the finish reason as its error.
	if code := text(adkField(response, "error_code")); code != "" && !strings.EqualFold(code, f.Finish) {
		f.Failed, f.ErrorType = true, cmp.Or(f.ErrorType, code)
		f.Error = cmp.Or(f.Error, text(adkField(response, "error_message")))
	}
}

// adkUsage returns the counts of a model call. Those of Gemini exclude the thoughts from the output
// and the results of its own tools from the input; attributes do so in some versions, and leave the
// thoughts and the cache out in others.
func adkUsage(a Attrs, response object) *fact.Usage {
	meta := adkField(response, "usage_metadata")
	counts, _ := objectOf(meta)
	c := geminiCounts(counts)
	c.Raw = meta
	if u := c.Usage(0); u != nil {
		return u
	}
	u := genAIUsage(a, fact.Inclusive, "")
	if u != nil && u.Tokens.Reasoning == 0 {
		u.Tokens.Reasoning = *counted(a.IntPtr("gen_ai.usage.experimental.reasoning_tokens"))
	}
	return u
}

// What a tool of ADK answers before and after a person was asked about the call.
const (
	adkAsks    = "requires confirmation, please approve or reject"
	adkRefuses = "call is rejected"
)

func adkTool(s *Span, a Attrs, out *Emitter) {
	asked := firstRaw(adkJSON(a, "tool_call_args"), a.JSON("gen_ai.tool.call.arguments"))
	answered := firstRaw(adkJSON(a, "tool_response"), a.JSON("gen_ai.tool.call.result"))
	problemIfCut(out, "the tool's input", asked)
	cut := problemIfCut(out, "the tool's output", answered)
	tool := fact.Tool{Name: a.Str("gen_ai.tool.name"), Input: unwrapped(asked), Truncated: cut}
	if tool.Name == "" {
		name := strings.TrimPrefix(Text(s.Name()), "execute_tool ")
		if inner, ok := strings.CutPrefix(name, "tool_call ["); ok {
			name = strings.TrimSuffix(inner, "]")
		}
		tool.Name = name
	}
	id := adkText(a.Str("gen_ai.tool.call.id"))

	// A response is an object: that of a failure has the error, that of a tool which returned
	// anything else the result.
	o, _ := objectOf(answered)
	failure := ""
	if o.has("error") && len(o) == 1 {
		failure = errorText(o["error"])
	} else if len(o) == 1 && o.has("result") && adkText(text(o["result"])) == "" && text(o["result"]) != "" {
		answered = nil
	}
	switch {
	case strings.Contains(failure, adkAsks):
		adkPermission(s, out, id, fact.Decision{ToolName: tool.Name, Action: "ask", Outcome: "pending"})
	case strings.HasSuffix(strings.TrimSuffix(failure, "."), adkRefuses):
		tool.Denied = true
		adkPermission(s, out, id, fact.Decision{ToolName: tool.Name, Action: "deny", Outcome: "denied",
			Reply: "reject", Source: "user", Reason: failure})
	}
	permission := tool.Denied || strings.Contains(failure, adkAsks)

	f := adkAdd(s, out, fact.ToolCall)
	f.CallID, f.Tool = id, &tool
	switch {
	case permission: // Go makes an error of it
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

func adkPermission(s *Span, out *Emitter, id string, decision fact.Decision) {
	f := adkAdd(s, out, fact.Permission)
	clearFailure(f)
	f.CallID, f.Decision = id, &decision
}

// readADKRecord reads the records of the generic convention, and those of one message, whose body
// has Gemini's content where the convention has none.
func readADKRecord(r *Record, out *Emitter) {
	if !HasMessage(r) {
		before := len(out.All)
		readGenAIRecord(r, out)
		for i := before; i < len(out.All); i++ {
			adkRecordIDs(r, &out.All[i])
		}
		return
	}
	if r.Body().Type() != pcommon.ValueTypeMap {
		return
	}
	body := Attrs{r.Body().Map()}
	content := body.JSON("content")
	if raw := body.Str("content"); adkText(raw) == "" || content == nil || string(content) == "null" {
		content = nil
	}
	var got fact.Fact
	switch r.Event {
	case "gen_ai.system.message":
		got.SystemPrompt = SystemInstructions(content)
	case "gen_ai.choice":
		got.Output, _ = Output(content)
		got.Finish = body.Str("finish_reason")
	default:
		// The model's messages are in the choices of its own calls.
		if messages, _ := Messages(content); talks(messages[:min(1, len(messages))]) &&
			messages[0].Role != "assistant" {
			got.Input = messages
		}
	}
	if got.SystemPrompt == "" && got.Output == nil && got.Finish == "" && got.Input == nil {
		return
	}
	f := out.Add(fact.ModelCall)
	f.SystemPrompt, f.Output, f.Finish, f.Input = got.SystemPrompt, got.Output, got.Finish, got.Input
	f.Model = modelOf(r.Attrs().Str("gen_ai.system"), "")
	adkRecordIDs(r, f)
}

// adkRecordIDs stores what a record reports of where it belongs.
func adkRecordIDs(r *Record, f *fact.Fact) {
	a := r.Attrs()
	f.TurnID = cmp.Or(a.Str(adkPrefix+"invocation_id"), f.TurnID)
	setUser(f, a.Str("user.id"))
}
