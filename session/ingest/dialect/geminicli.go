package dialect

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// geminiCLI reads the spans and events of Gemini CLI.
//
// No span covers a turn: each model call and each batch of tool calls is a trace of its own, and the id of the prompt
// joins them. The standard event of a model call's details reports nothing that the client's own events do not, and is
// left out.
var geminiCLI = Dialect{
	Name:    "gemini-cli",
	Prompts: true,
	Spans:   func(s *Span) bool { return s.Scope.Name() == geminiName },
	Records: func(r *Record) bool {
		return r.Scope.Name() == geminiName || strings.HasPrefix(r.Event, geminiPrefix)
	},
	ReadSpan:   readGeminiSpan,
	ReadRecord: readGeminiRecord,
}

const (
	geminiName   = "gemini-cli"
	geminiPrefix = "gemini_cli."
)

func readGeminiSpan(s *Span, facts *Emitter) {
	a := s.Attrs()
	switch cmp.Or(a.Str("gen_ai.operation.name"), s.Name()) {
	case "llm_call":
		readGeminiCall(a, facts)
	case "tool_call":
		in, _ := objectOf(geminiJSON(a, "gen_ai.input.messages", nil))
		cut := false
		done, _ := objectOf(geminiJSON(a, "gen_ai.output.messages", func() { cut = true }))
		if cut {
			facts.Problem(geminiCut)
		}
		f := facts.Add(fact.ToolCall)
		geminiPrompt(f, in.str("prompt_id"))
		f.CallID = cmp.Or(a.Str("gen_ai.tool.call_id", "gen_ai.tool.call.id"), in.str("callId"))
		f.Tool = &fact.Tool{Name: cmp.Or(a.Str("gen_ai.tool.name"), in.str("name")), Input: in.first("args")}
		geminiFinish(f, done)
		f.Tool.Truncated = cut && f.Tool.Output == nil
	case "schedule_tool_calls":
		facts.Add(fact.Step)
		// The calls that were not executed, because they were refused, unknown or cancelled before, have no span of
		// their own.
		for _, done := range objectsOf(geminiJSON(a, "gen_ai.output.messages", nil)) {
			request, status := done.inner("request"), done.str("status")
			if id := request.str("callId"); id != "" && (status == "error" || status == "cancelled") {
				f := facts.Add(fact.ToolCall)
				f.CallID, f.Tool = id, &fact.Tool{Name: request.str("name")}
				geminiFinish(f, done)
			}
		}
	case "user_prompt", "system_prompt", "agent_call":
		f := facts.Add(fact.Step)
		if agent := a.Str("gen_ai.agent.name"); agent != geminiName {
			f.Agent = agent
		}
	}
}

const geminiCut = "gen_ai.output.messages was cut short before export"

// geminiJSON returns text that is JSON, or what is whole of it, and reports whether it was cut.
func geminiJSON(a Attrs, key string, cut func()) json.RawMessage {
	raw := json.RawMessage(strings.TrimSpace(a.Str(key)))
	if len(raw) == 0 || json.Valid(raw) {
		return raw
	}
	if cut != nil {
		cut()
	}
	return closeCut(raw)
}

func readGeminiCall(a Attrs, facts *Emitter) {
	// Attributes are cut at some 10,000 characters, which leaves the old end of a conversation: what was asked now is
	// not in it.
	raw := a.JSON("gen_ai.input.messages")
	input, whole := Messages(raw)
	if raw != nil && !whole {
		facts.Problem("gen_ai.input.messages was cut short before export")
	}
	output := geminiJSON(a, "gen_ai.output.messages", func() { facts.Problem(geminiCut) })
	f := facts.Add(fact.ModelCall)
	geminiPrompt(f, a.Str("gen_ai.prompt.name"))
	f.Model = modelOf("", a.Str("gen_ai.request.model"))
	f.SystemPrompt = a.Str("gen_ai.system_instructions") // text in JSON, a content of Gemini, or text
	if system := strings.TrimSpace(f.SystemPrompt); hasPrefix(system, `"`, "[", "{") && json.Valid([]byte(system)) {
		f.SystemPrompt = SystemInstructions(json.RawMessage(system))
	}
	f.ToolCatalog = geminiCatalog(a.Str("gen_ai.tool.definitions"))
	if whole {
		geminiInput(f, input)
	}
	parts, _, _ := Output(output) // a content, or a list of those of the pieces of a stream, of which some may be null
	f.Output = joinPieces(parts)
	// The span does not report what of the input was cached, nor the thoughts.
	f.Usage = a.counts("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens").Usage(0)
	f.Aborted = f.Failed && geminiAborted(f.ErrorType, f.Error)
}

func geminiAborted(kind, message string) bool {
	return kind == "AbortError" || strings.Contains(strings.ToLower(message), "abort") ||
		strings.Contains(message, "cancelled")
}

// The ids that requests have in place of a turn's.
var (
	// geminiPromptID ends the id of a prompt: that of the session, eight hashes, and a count.
	geminiPromptID = lazy.Regexp(`########\d+$`)
	// geminiSubagent is the id that a sub-agent gives its requests: its own, and a count. Older versions begin it with
	// the agent's name.
	geminiSubagent = lazy.Regexp(`^(.+?)(-[0-9a-z]{4,8})?#\d+$`)
	// geminiHex is a prompt's id where older versions make one up.
	geminiHex = lazy.Regexp(`^[0-9a-f]{6,16}$`)

	uuidLike = lazy.Regexp(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// geminiPrompt reads the id that a request has in place of a turn's. A run that is not interactive uses the session's
// id, also when a later run resumes the session: it is not a turn's. Helpers and sub-agents have ids of their own,
// which are not a turn's either.
func geminiPrompt(f *fact.Fact, id string) {
	switch {
	case id == "" || id == f.Session:
	case geminiPromptID().MatchString(id), geminiHex().MatchString(id):
		f.TurnID = id
	case geminiSubagent().MatchString(id):
		f.Agent = geminiSubagent().FindStringSubmatch(id)[1]
		if own, _, _ := strings.Cut(id, "#"); uuidLike().MatchString(own) {
			f.Agent = "subagent"
		}
	case uuidLike().MatchString(id):
	case f.Session != "" && strings.HasPrefix(id, f.Session), strings.Contains(id, "########"):
		// A helper of the prompt, such as the check of a compression.
		helper := strings.TrimLeft(id[strings.LastIndexAny(id, "-#")+1:], "0123456789")
		f.Purpose = cmp.Or(helper, "utility")
	default:
		f.Purpose = id
	}
}

// geminiModel returns a model and who serves it, which the way of logging in shows.
func geminiModel(id, auth string) *session.Model {
	m := modelOf("", id)
	if m != nil && auth != "" {
		if m.ProviderID = "gcp.gen_ai"; auth == "vertex-ai" {
			m.ProviderID = "gcp.vertex_ai"
		}
	}
	return m
}

// geminiCatalog flattens Gemini's lists of function declarations. What is not a function, such as googleSearch, stays
// as it is.
func geminiCatalog(s string) string {
	var list []json.RawMessage
	if json.Unmarshal([]byte(s), &list) != nil {
		return ""
	}
	var tools []string
	for _, raw := range list {
		o, _ := objectOf(raw)
		declared, ok := elements(o.first("functionDeclarations", "function_declarations"))
		if !ok {
			declared = []json.RawMessage{raw}
		}
		for _, tool := range declared {
			tools = append(tools, string(tool))
		}
	}
	if tools == nil {
		return ""
	}
	return Text("[" + strings.Join(tools, ",") + "]")
}

// geminiContext begins what the client writes about its surroundings in the user's name, by itself or before the first
// prompt.
var geminiContext = []string{
	"<session_context>", "This is the Gemini CLI. We are setting up the context for our chat.",
}

// geminiInput stores what was asked, without what the user did not write. The context goes to Extra, because it is
// nowhere else.
func geminiInput(f *fact.Fact, messages []fact.Message) {
	ReadInput(f, messages)
	var kept []fact.Message
	for _, m := range f.Input {
		parts := m.Parts[:0:0]
		for _, p := range m.Parts {
			if m.Role == "user" && p.Kind == fact.PartText && hasPrefix(strings.TrimSpace(p.Text), geminiContext...) {
				f.Extra = encode(object{"session_context": quoted(p.Text)})
			} else {
				geminiCallID(&p)
				parts = append(parts, p)
			}
		}
		if m.Parts = parts; len(parts) > 0 {
			kept = append(kept, m)
		}
	}
	f.Input = kept
}

// geminiCallID gives the calls and results of a conversation the ids that the client has for them: it puts a tool's
// name before the model's id, and takes it off again in what it sends. Results become what the model was given, as in
// spans.
func geminiCallID(p *fact.Part) {
	if o, _ := objectOf(p.Output); p.Kind == fact.PartResult && len(o) == 1 {
		if o.has("output") {
			p.Output = o["output"]
		} else if s := text(o["error"]); s != "" {
			p.Output, p.Error = nil, s
		}
	}
	if (p.Kind == fact.PartCall || p.Kind == fact.PartResult) && p.CallID != "" && p.Name != "" &&
		!strings.HasPrefix(p.CallID, p.Name+"__") && !strings.HasPrefix(p.CallID, p.Name+"-") {
		p.CallID = p.Name + "__" + p.CallID
	}
}

// joinPieces joins texts that follow each other, and thoughts.
func joinPieces(parts []fact.Part) (joined []fact.Part) {
	for _, p := range parts {
		n := len(joined) - 1
		if n >= 0 && joined[n].Kind == p.Kind && (p.Kind == fact.PartText || p.Kind == fact.PartReasoning) {
			joined[n].Text += p.Text
			continue
		}
		joined = append(joined, p)
	}
	return joined
}

// geminiFinish reads how a tool call ended, from the call as the client holds it when it is over. What counts is what
// the model was given, not what was shown.
func geminiFinish(f *fact.Fact, done object) {
	request, response, status := done.inner("request"), done.inner("response"), done.str("status")
	f.Tool.Input = firstRaw(f.Tool.Input, request.first("args"))
	if f.TurnID == "" {
		geminiPrompt(f, request.str("prompt_id"))
	}
	f.Purpose = "" // a tool call is never a helper's of the client
	output, failure := geminiResult(response["responseParts"])
	kind := response.str("errorType")
	f.Tool.Output = output
	f.Tool.OutputSize = counted(response.count("contentLength"))
	if ms := number(string(done["durationMs"])); ms != nil && *ms >= 0 && *ms < 1e12 {
		f.Tool.DurationMS = new(int64(*ms))
	}
	// The outcome is what was answered where somebody was asked.
	if status != "success" && (done.str("outcome") == "cancel" || kind == "policy_violation") {
		f.Tool.Denied, f.Tool.Output = true, nil
		if clearFailure(f); failure != "" {
			f.Extra = encode(object{"reason": quoted(failure)})
		}
		return
	}
	f.Aborted = f.Aborted || status == "cancelled"
	f.Failed = f.Failed || status == "cancelled" || status == "error"
	if f.Tool.Succeeded = !f.Failed && status == "success"; f.Failed {
		f.Error, f.ErrorType = cmp.Or(failure, f.Error, status), cmp.Or(kind, f.ErrorType)
	}
}

// geminiResult reads what a model is given of a call: the text under output, the one under error, or all of the
// response.
func geminiResult(raw json.RawMessage) (output json.RawMessage, failure string) {
	for _, part := range objectsOf(raw) {
		response := part.inner("functionResponse")
		o := response.inner("response")
		switch {
		case o == nil:
			continue
		case o.has("error"):
			return o.first("output"), cmp.Or(text(o["error"]), string(o["error"]))
		}
		return firstRaw(o.first("output"), response["response"]), ""
	}
	return nil, ""
}

func readGeminiRecord(r *Record, facts *Emitter) {
	a := r.Attrs()
	facts.stamp(a)
	switch strings.TrimPrefix(r.Event, geminiPrefix) {
	case "user_prompt":
		f := facts.Add(fact.Prompt)
		geminiPrompt(f, a.Str("prompt_id"))
		f.Agent, f.Purpose = "", ""
		f.Input = userMessages(a.Str("prompt"), "")
		f.SessionAttrs = geminiAbout(a)
	case "api_request":
		f := geminiRequest(a, facts)
		if messages, ok := Messages(a.JSON("request_text")); ok {
			geminiInput(f, messages)
		}
	case "api_response":
		f := geminiRequest(a, facts)
		f.Model, f.ResponseModel = nil, a.Str("model") // the one that answered
		// The counts are those of Gemini's interface: the prompt includes what was cached but not what tools added to
		// it, and the output excludes the thoughts.
		f.Usage = a.counts("input_token_count+tool_token_count", "output_token_count+thoughts_token_count",
			"cached_content_token_count", "", "thoughts_token_count", "total_token_count").Usage(0)
		f.Finish = a.Last("finish_reasons")
		readGeminiResponse(f, a.Str("response_text"))
	case "api_error":
		f := geminiRequest(a, facts)
		f.Failed, f.Error = true, a.Str("error", "error.message")
		f.ErrorType = a.Str("error.type", "error_type", "status_code")
		f.Aborted = geminiAborted(f.ErrorType, "")
	case "tool_call":
		readGeminiToolRecord(a, facts)
	case "chat_compression":
		f := facts.Add(fact.Compaction)
		f.Compacted = &fact.Compacted{TokensBefore: a.Int("tokens_before"), TokensAfter: a.Int("tokens_after")}
	case "config":
		f := facts.Add(fact.Session)
		f.Model = geminiModel(a.Str("model"), a.Str("auth_type"))
		f.SessionAttrs = geminiAbout(a)
		f.SessionAttrs.Mode = a.Str("approval_mode")
	case "plan.approval_mode_switch":
		if mode := a.Str("to_mode", "mode"); mode != "" {
			facts.Add(fact.Session).SessionAttrs = &fact.SessionAttrs{Mode: mode}
		}
	}
}

// geminiAbout names the client. The resource's version is that of Node.js.
func geminiAbout(a Attrs) *fact.SessionAttrs {
	return &fact.SessionAttrs{Client: geminiName, UserID: a.Str("user.email", "installation.id")}
}

// geminiRoles are the purposes of requests other than the conversation's own, in the words of all dialects.
var geminiRoles = meanings[string]("gemini cli")

func geminiRequest(a Attrs, facts *Emitter) *fact.Fact {
	f := facts.Add(fact.ModelCall)
	geminiPrompt(f, a.Str("prompt_id"))
	f.Model = geminiModel(a.Str("model", "model_name"), a.Str("auth_type"))
	switch role := a.Str("role"); role {
	case "":
	case "main":
		f.Agent, f.Purpose = "", ""
	case "subagent":
		f.Agent, f.Purpose = cmp.Or(f.Agent, role), ""
	default:
		f.Agent, f.Purpose = "", cmp.Or(geminiRoles()[role], strings.TrimPrefix(role, "utility_"))
	}
	return f
}

// readGeminiResponse reads the response as the interface sent it, or its pieces.
func readGeminiResponse(f *fact.Fact, s string) {
	raw := json.RawMessage(s)
	if !json.Valid(raw) {
		return
	}
	pieces := objectsOf(raw)
	if o, ok := objectOf(raw); ok {
		pieces = []object{o}
	}
	var parts []fact.Part
	for _, piece := range pieces {
		f.ResponseID = cmp.Or(piece.str("responseId"), f.ResponseID)
		f.ResponseModel = cmp.Or(piece.str("modelVersion"), f.ResponseModel)
		if candidates := objectsOf(piece["candidates"]); len(candidates) > 0 { // only the first is ever used
			f.Finish = cmp.Or(candidates[0].str("finishReason"), f.Finish)
			more, _, _ := Output(candidates[0]["content"])
			parts = append(parts, more...)
		}
	}
	f.Output = joinPieces(parts)
}

// readGeminiToolRecord reads the event of a tool call and of the decision on it. Neither has the call's id: name and
// input report which it is.
func readGeminiToolRecord(a Attrs, facts *Emitter) {
	decision := geminiDecision(a.Str("decision"))
	success, reported := a.Bool("success")
	f := facts.Add(fact.ToolCall)
	geminiPrompt(f, a.Str("prompt_id"))
	tool := fact.Tool{Name: a.Str("function_name"), Input: a.JSON("function_args"), Succeeded: success,
		OutputSize: a.Int("content_length"), DurationMS: a.IntPtr("duration_ms")}
	f.Purpose, f.Tool = "", &tool
	if reported && !success {
		if tool.Denied = decision != nil && decision.Outcome == "denied"; !tool.Denied {
			f.Failed, f.Error = true, a.Str("error", "error.message")
			f.ErrorType = a.Str("error_type", "error.type")
		}
	}
	addExtra(f, a, "mcp_server_name")
	if decision != nil {
		turn, agent := f.TurnID, f.Agent
		decision.ToolName = tool.Name
		p := facts.Add(fact.Permission)
		p.TurnID, p.Agent, p.Decision = turn, agent, decision
		p.Tool = &fact.Tool{Name: tool.Name, Input: tool.Input}
	}
}

// geminiDecision reads a decision. Accepting is also what the client does by itself where its mode allows it; every
// other answer is a person's.
func geminiDecision(word string) *fact.Decision {
	d := &fact.Decision{Action: "ask", Outcome: "allowed", Reason: word}
	switch word {
	case "":
		return nil
	case "accept":
		d.Action, d.Reason = "allow", ""
	case "auto_accept":
		d.Reply = "always"
	case "modify":
		d.Reply = "once"
	case "reject":
		d.Outcome, d.Reply, d.Reason = "denied", "reject", ""
	default:
		d.Outcome, d.Reason = "", strconv.Quote(word)
	}
	return d
}
