package dialect

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// geminiCLI reads the spans and events of Gemini CLI.
//
// No span stands for a turn: each model call and each batch of tool calls is a
// trace of its own, and what ties them is the id of the prompt. The standard event
// of a model call's details reports nothing that the client's own events do not, and
// is left out.
var geminiCLI = Dialect{
	Name:       "gemini-cli",
	Prompts:    true,
	Title:      "Gemini CLI",
	Spans:      func(s *Span) bool { return s.Scope.Name() == geminiName },
	Records:    func(r *Record) bool { return r.Scope.Name() == geminiName || strings.HasPrefix(r.Event, geminiPrefix) },
	ReadSpan:   readGeminiSpan,
	ReadRecord: readGeminiRecord,
	Capabilities: capabilities{
		"span, log": {TopicSession, TopicToolError, TopicAbort},
		"log; opt-in: span": {TopicTurn, TopicUser, TopicText, TopicReasoning, TopicToolInput, TopicModel,
			TopicTokens},
		"opt-in: span": {TopicToolOutput, TopicPrompt, TopicCatalog},
		"log":          {TopicPermission, TopicCompaction, TopicCache, TopicThinking, TopicFinish},
	}.byTopic(),
}

const (
	geminiName   = "gemini-cli"
	geminiPrefix = "gemini_cli."
)

func readGeminiSpan(s *Span, facts *Emitter) {
	a := s.Attrs()
	name := a.Str("gen_ai.operation.name")
	if name == "" {
		name = s.Name()
	}
	switch name {
	case "llm_call":
		readGeminiCall(a, facts)
	case "tool_call":
		readGeminiTool(a, facts)
	case "schedule_tool_calls":
		facts.Add(fact.Step)
		readGeminiBatch(a, facts)
	case "user_prompt", "system_prompt", "agent_call":
		f := facts.Add(fact.Step)
		if agent := a.Str("gen_ai.agent.name"); agent != geminiName {
			f.Agent = agent
		}
	}
}

func readGeminiCall(a Attrs, facts *Emitter) {
	// Attributes are cut at some 10,000 characters, which leaves the old end of a
	// conversation: what was asked now is not in it.
	var input []fact.Message
	whole := true
	if raw := a.JSON("gen_ai.input.messages"); raw != nil {
		if input, whole = Messages(raw); !whole {
			facts.Problem("gen_ai.input.messages was cut short before export")
		}
	}
	parts, cut := geminiOutput(a.Str("gen_ai.output.messages"))
	if cut {
		facts.Problem("gen_ai.output.messages was cut short before export")
	}
	f := facts.Add(fact.ModelCall)
	geminiPrompt(f, a.Str("gen_ai.prompt.name"))
	f.Model = geminiModel(a.Str("gen_ai.request.model"), "")
	f.SystemPrompt = geminiText(a.Str("gen_ai.system_instructions"))
	f.ToolCatalog = geminiCatalog(a.Str("gen_ai.tool.definitions"))
	if whole {
		ReadInput(f, input)
		geminiInput(f, geminiCallID)
	}
	f.Output = parts
	// The span does not report what of the input was cached, nor the thoughts.
	f.Usage = InclusiveUsage(a.IntPtr("gen_ai.usage.input_tokens"), a.IntPtr("gen_ai.usage.output_tokens"), nil, nil, nil,
		statedCounts(a, "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"))
	f.Aborted = f.Failed && geminiAborted(f.ErrorType, f.Error)
}

func geminiAborted(kind, message string) bool {
	return kind == "AbortError" || strings.Contains(strings.ToLower(message), "abort") || strings.Contains(message, "cancelled")
}

// geminiPromptID finds the count in a prompt's id: that of the session, eight
// hashes, and the count.
var geminiPromptID = regexp.MustCompile(`########\d+$`)

// geminiSubagent is the id that a sub-agent gives its requests: its own, and a
// count. Older versions begin it with the agent's name.
var geminiSubagent = regexp.MustCompile(`^(.+?)(-[0-9a-z]{4,8})?#\d+$`)

// geminiHex is a prompt's id where older versions make one up.
var geminiHex = regexp.MustCompile(`^[0-9a-f]{6,16}$`)

var uuidLike = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// geminiPrompt reads the id that a request has in place of a turn's. One run that
// does not talk uses the session's id, also where a later run resumes the session:
// that is no turn's. Helpers and sub-agents have ids of their own, which are not a
// turn's either.
func geminiPrompt(f *fact.Fact, id string) {
	switch {
	case id == "" || id == f.Session:
	case geminiPromptID.MatchString(id), geminiHex.MatchString(id):
		f.TurnID = id
	case geminiSubagent.MatchString(id):
		f.Agent = geminiSubagent.FindStringSubmatch(id)[1]
		if own, _, _ := strings.Cut(id, "#"); uuidLike.MatchString(own) {
			f.Agent = "subagent"
		}
	case uuidLike.MatchString(id):
	case f.Session != "" && strings.HasPrefix(id, f.Session), strings.Contains(id, "########"):
		// A helper of the prompt, such as the check of a compression.
		f.Purpose = strings.TrimLeft(id[strings.LastIndexAny(id, "-#")+1:], "0123456789")
		if f.Purpose == "" {
			f.Purpose = "utility"
		}
	default:
		f.Purpose = id
	}
}

func geminiModel(id, auth string) *session.Model {
	if id == "" {
		return nil
	}
	m := &session.Model{ModelID: id}
	switch auth {
	case "":
	case "vertex-ai":
		m.ProviderID = "gcp.vertex_ai"
	default:
		m.ProviderID = "gcp.gen_ai"
	}
	return m
}

// geminiText reads instructions: text in JSON, or a content of Gemini.
func geminiText(s string) string {
	trimmed := strings.TrimSpace(s)
	if trimmed == "" || !strings.ContainsRune(`"[{`, rune(trimmed[0])) || !json.Valid([]byte(trimmed)) {
		return s
	}
	return SystemInstructions(json.RawMessage(trimmed))
}

// geminiCatalog flattens Gemini's lists of function declarations. What is no
// function, such as googleSearch, stays as it is.
func geminiCatalog(s string) string {
	var list []json.RawMessage
	if json.Unmarshal([]byte(s), &list) != nil {
		return ""
	}
	var tools []json.RawMessage
	for _, raw := range list {
		o, _ := objectOf(raw)
		var declared []json.RawMessage
		if json.Unmarshal(o.first("functionDeclarations", "function_declarations"), &declared) != nil {
			tools = append(tools, raw)
			continue
		}
		tools = append(tools, declared...)
	}
	if len(tools) == 0 {
		return ""
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i, raw := range tools {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(raw)
	}
	b.WriteByte(']')
	return Text(b.String())
}

// geminiContext begins what the client tells the model of its surroundings in the
// user's name, by itself or before the first prompt.
var geminiContext = []string{"<session_context>", "This is the Gemini CLI. We are setting up the context for our chat."}

// geminiInput takes out of the input what the user did not say, and all parts that
// are not to be kept. The context goes to Extra, because it is said nowhere else.
func geminiInput(f *fact.Fact, keep func(*fact.Part) bool) {
	kept := f.Input[:0:0]
	for _, m := range f.Input {
		parts := m.Parts[:0:0]
		for _, p := range m.Parts {
			if m.Role == "user" && p.Kind == fact.PartText && isGeminiContext(p.Text) {
				f.Extra, _ = json.Marshal(map[string]string{"session_context": p.Text})
			} else if keep(&p) {
				parts = append(parts, p)
			}
		}
		if len(parts) > 0 {
			m.Parts = parts
			kept = append(kept, m)
		}
	}
	if f.Input = kept; len(kept) == 0 {
		f.Input = nil
	}
}

func isGeminiContext(s string) bool {
	s = strings.TrimSpace(s)
	for _, prefix := range geminiContext {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// geminiOutput reads what a model answered: a content of Gemini, or one for each
// piece of a stream, whose texts are joined.
func geminiOutput(s string) (parts []fact.Part, cut bool) {
	if strings.TrimSpace(s) == "" || strings.TrimSpace(s) == "null" {
		return nil, false
	}
	raw := json.RawMessage(s)
	if cut = !json.Valid(raw); cut {
		if raw = closeCut(raw); raw == nil {
			return nil, true
		}
	}
	return joinPieces(geminiContents(raw)), cut
}

// geminiContents reads the contents of a list, whose members may be null, or one.
func geminiContents(raw json.RawMessage) []fact.Part {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var parts []fact.Part
	for _, content := range list {
		if !isNull(content) {
			more, _ := Output(content)
			parts = append(parts, more...)
		}
	}
	return parts
}

// joinPieces joins texts that follow each other, and thoughts.
func joinPieces(parts []fact.Part) []fact.Part {
	var joined []fact.Part
	for _, p := range parts {
		if n := len(joined) - 1; n >= 0 && joined[n].Kind == p.Kind && (p.Kind == fact.PartText || p.Kind == fact.PartReasoning) {
			joined[n].Text += p.Text
			continue
		}
		joined = append(joined, p)
	}
	return joined
}

// geminiDone is a tool call as the client holds it when it is over.
type geminiDone struct {
	Status  string `json:"status"`
	Request struct {
		CallID   string          `json:"callId"`
		Name     string          `json:"name"`
		Args     json.RawMessage `json:"args"`
		PromptID string          `json:"prompt_id"`
	} `json:"request"`
	Response struct {
		ResponseParts json.RawMessage `json:"responseParts"`
		ErrorType     string          `json:"errorType"`
		ContentLength int64           `json:"contentLength"`
	} `json:"response"`
	DurationMS *float64 `json:"durationMs"`
	// Outcome is what was answered where somebody was asked.
	Outcome string `json:"outcome"`
}

func readGeminiTool(a Attrs, facts *Emitter) {
	in, _ := objectOf(geminiJSON(a.Str("gen_ai.input.messages")))
	output := a.Str("gen_ai.output.messages")
	cut := output != "" && !json.Valid([]byte(output))
	if cut {
		facts.Problem("gen_ai.output.messages was cut short before export")
	}
	f := facts.Add(fact.ToolCall)
	geminiPrompt(f, in.str("prompt_id"))
	f.Purpose = "" // a tool call is never a helper's of the client
	f.CallID = a.First("gen_ai.tool.call_id", "gen_ai.tool.call.id")
	if f.CallID == "" {
		f.CallID = in.str("callId")
	}
	f.Tool = &fact.Tool{Name: a.Str("gen_ai.tool.name"), Input: in.first("args")}
	if f.Tool.Name == "" {
		f.Tool.Name = in.str("name")
	}
	geminiFinish(f, output)
	f.Tool.Truncated = f.Tool.Truncated || cut && f.Tool.Output == nil
}

// geminiJSON returns text that is JSON, or what is whole of it.
func geminiJSON(s string) json.RawMessage {
	raw := json.RawMessage(strings.TrimSpace(s))
	if len(raw) == 0 || json.Valid(raw) {
		return raw
	}
	return closeCut(raw)
}

// geminiFinish reads how a tool call ended. What counts is what the model was
// given, not what was shown.
func geminiFinish(f *fact.Fact, output string) {
	var done geminiDone
	if raw := geminiJSON(output); raw == nil || json.Unmarshal(raw, &done) != nil {
		return
	}
	if f.Tool.Input == nil && !isNull(done.Request.Args) {
		f.Tool.Input = done.Request.Args
	}
	if f.TurnID == "" {
		geminiPrompt(f, done.Request.PromptID)
		f.Purpose = ""
	}
	var failure string
	if result := geminiResult(done.Response.ResponseParts); result != nil {
		f.Tool.Output, failure = result.Output, result.Error
	}
	if done.Response.ContentLength > 0 {
		f.Tool.OutputSize = done.Response.ContentLength
	}
	if done.DurationMS != nil && *done.DurationMS >= 0 && *done.DurationMS < 1e12 {
		ms := int64(*done.DurationMS)
		f.Tool.DurationMS = &ms
	}
	if done.Status != "success" && (done.Outcome == "cancel" || done.Response.ErrorType == "policy_violation") {
		f.Tool.Denied, f.Tool.Output = true, nil
		if f.Failed, f.Error, f.ErrorType = false, "", ""; failure != "" {
			f.Extra, _ = json.Marshal(map[string]string{"reason": failure})
		}
		return
	}
	switch done.Status {
	case "success":
		f.Tool.Succeeded = !f.Failed
	case "error":
		f.Failed = true
	case "cancelled":
		f.Failed, f.Aborted = true, true
	}
	if !f.Failed {
		return
	}
	if failure != "" {
		f.Error = failure
	}
	if done.Response.ErrorType != "" {
		f.ErrorType = done.Response.ErrorType
	}
	if f.Error == "" {
		f.Error = done.Status
	}
}

// geminiResult reads what a model is given of a call: the text under output, the
// one under error, or all of the response.
func geminiResult(raw json.RawMessage) *fact.Part {
	var parts []struct {
		FunctionResponse struct {
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return nil
	}
	for _, p := range parts {
		o, ok := objectOf(p.FunctionResponse.Response)
		if !ok {
			continue
		}
		result := &fact.Part{Output: p.FunctionResponse.Response}
		if o.has("error") {
			if result.Error = text(o["error"]); result.Error == "" {
				result.Error = string(o["error"])
			}
			result.Output = nil
		}
		if o.has("output") {
			result.Output = o["output"]
		}
		return result
	}
	return nil
}

// readGeminiBatch reads the calls of a batch that were not executed, because they
// were refused, unknown or cancelled before: those have no span of their own.
func readGeminiBatch(a Attrs, facts *Emitter) {
	var calls []json.RawMessage
	if json.Unmarshal(geminiJSON(a.Str("gen_ai.output.messages")), &calls) != nil {
		return
	}
	for _, raw := range calls {
		var done geminiDone
		if json.Unmarshal(raw, &done) != nil || done.Request.CallID == "" || done.Status != "error" && done.Status != "cancelled" {
			continue
		}
		f := facts.Add(fact.ToolCall)
		f.CallID = done.Request.CallID
		f.Tool = &fact.Tool{Name: done.Request.Name}
		geminiFinish(f, string(raw))
	}
}

func readGeminiRecord(r *Record, facts *Emitter) {
	a := r.Attrs()
	switch r.Event {
	case "gemini_cli.user_prompt":
		facts.stamp(a)
		f := facts.Add(fact.Prompt)
		geminiPrompt(f, a.Str("prompt_id"))
		f.Agent, f.Purpose = "", ""
		f.Input = userMessages(a.Str("prompt"), "")
		f.SessionAttrs = geminiAbout(a)
	case "gemini_cli.api_request":
		facts.stamp(a)
		f := geminiRequest(a, facts)
		if messages, ok := Messages(a.JSON("request_text")); ok {
			ReadInput(f, messages)
			geminiInput(f, geminiCallID)
		}
	case "gemini_cli.api_response":
		facts.stamp(a)
		f := geminiRequest(a, facts)
		f.Model, f.ResponseModel = nil, a.Str("model") // the one that answered
		f.Usage = geminiUsage(a)
		if reasons := a.Strings("finish_reasons"); len(reasons) > 0 {
			f.Finish = reasons[len(reasons)-1]
		}
		readGeminiResponse(f, a.Str("response_text"))
	case "gemini_cli.api_error":
		facts.stamp(a)
		f := geminiRequest(a, facts)
		f.Failed = true
		f.Error = a.First("error", "error.message")
		f.ErrorType = a.First("error.type", "error_type", "status_code")
		f.Aborted = geminiAborted(f.ErrorType, "")
	case "gemini_cli.tool_call":
		facts.stamp(a)
		readGeminiToolRecord(a, facts)
	case "gemini_cli.chat_compression":
		facts.stamp(a)
		f := facts.Add(fact.Compaction)
		f.Compacted = &fact.Compacted{}
		f.Compacted.TokensBefore, _ = a.Int("tokens_before")
		f.Compacted.TokensAfter, _ = a.Int("tokens_after")
	case "gemini_cli.config":
		facts.stamp(a)
		f := facts.Add(fact.Session)
		f.Model = geminiModel(a.Str("model"), a.Str("auth_type"))
		f.SessionAttrs = geminiAbout(a)
		f.SessionAttrs.Mode = a.Str("approval_mode")
	case "gemini_cli.plan.approval_mode_switch":
		if mode := a.First("to_mode", "mode"); mode != "" {
			facts.stamp(a)
			facts.Add(fact.Session).SessionAttrs = &fact.SessionAttrs{Mode: mode}
		}
	}
}

// geminiAbout names the client. The resource's version is that of Node.js.
func geminiAbout(a Attrs) *fact.SessionAttrs {
	return &fact.SessionAttrs{Client: geminiName, UserID: a.First("user.email", "installation.id")}
}

// geminiRoles are what a request was for, where it is none of the conversation's
// own, in the words of all dialects.
var geminiRoles = map[string]string{
	"utility_router": "routing", "utility_summarizer": "summary", "utility_compressor": "compaction", "utility_next_speaker": "next-speaker",
	"utility_loop_detector": "loop-detection", "utility_edit_corrector": "edit-correction", "utility_autocomplete": "autocomplete", "utility_tool": "tool",
}

// geminiRequest begins the fact of an event of a model call.
func geminiRequest(a Attrs, facts *Emitter) *fact.Fact {
	f := facts.Add(fact.ModelCall)
	geminiPrompt(f, a.Str("prompt_id"))
	f.Model = geminiModel(a.First("model", "model_name"), a.Str("auth_type"))
	switch role := a.Str("role"); role {
	case "":
	case "main":
		f.Agent, f.Purpose = "", ""
	case "subagent":
		if f.Purpose = ""; f.Agent == "" {
			f.Agent = role
		}
	default:
		if f.Agent, f.Purpose = "", geminiRoles[role]; f.Purpose == "" {
			f.Purpose = strings.TrimPrefix(role, "utility_")
		}
	}
	return f
}

// geminiCallID gives the calls and results of a conversation the ids that the
// client has for them: it puts a tool's name before the model's id, and takes it
// off again in what it sends. Results become what the model was given, as in spans.
func geminiCallID(p *fact.Part) bool {
	if o, ok := objectOf(p.Output); ok && p.Kind == fact.PartResult && len(o) == 1 {
		if o.has("output") {
			p.Output = o["output"]
		} else if s := text(o["error"]); s != "" {
			p.Output, p.Error = nil, s
		}
	}
	if (p.Kind == fact.PartCall || p.Kind == fact.PartResult) && p.CallID != "" && p.Name != "" && !strings.HasPrefix(p.CallID, p.Name) {
		p.CallID = p.Name + "__" + p.CallID
	}
	return true
}

// geminiUsage reads counts as Gemini's interface has them: the prompt includes
// what was cached but not what tools added to it, and the output excludes the
// thoughts.
func geminiUsage(a Attrs) *fact.Usage {
	keys := []string{"input_token_count", "output_token_count", "cached_content_token_count", "thoughts_token_count", "tool_token_count", "total_token_count"}
	input, output, cached, thoughts := a.IntPtr(keys[0]), a.IntPtr(keys[1]), a.IntPtr(keys[2]), a.IntPtr(keys[3])
	if tools := a.IntPtr(keys[4]); tools != nil && input != nil {
		sum := *counted(input) + *counted(tools)
		input = &sum
	}
	if thoughts != nil && output != nil {
		sum := *counted(output) + *counted(thoughts)
		output = &sum
	}
	return InclusiveUsage(input, output, cached, nil, thoughts, statedCounts(a, keys...))
}

// readGeminiResponse reads the response as the interface sent it, or its pieces.
func readGeminiResponse(f *fact.Fact, s string) {
	var pieces []json.RawMessage
	if json.Unmarshal([]byte(s), &pieces) != nil {
		pieces = []json.RawMessage{json.RawMessage(s)}
	}
	var parts []fact.Part
	for _, raw := range pieces {
		var piece struct {
			Candidates []struct {
				Content      json.RawMessage `json:"content"`
				FinishReason string          `json:"finishReason"`
			} `json:"candidates"`
			ResponseID   string `json:"responseId"`
			ModelVersion string `json:"modelVersion"`
		}
		if json.Unmarshal(raw, &piece) != nil {
			continue
		}
		if piece.ResponseID != "" {
			f.ResponseID = Text(piece.ResponseID)
		}
		if piece.ModelVersion != "" {
			f.ResponseModel = Text(piece.ModelVersion)
		}
		if len(piece.Candidates) > 0 { // only the first is ever used
			c := piece.Candidates[0]
			if c.FinishReason != "" {
				f.Finish = Text(c.FinishReason)
			}
			parts = append(parts, geminiContents(c.Content)...)
		}
	}
	f.Output = joinPieces(parts)
}

// readGeminiToolRecord reads the event of a tool call and of the decision on it.
// Neither has the call's id: name and input report which it is.
func readGeminiToolRecord(a Attrs, facts *Emitter) {
	tool := fact.Tool{Name: a.Str("function_name"), Input: a.JSON("function_args"), DurationMS: a.IntPtr("duration_ms")}
	decision := geminiDecision(a.Str("decision"))
	success, reported := a.Bool("success")

	f := facts.Add(fact.ToolCall)
	geminiPrompt(f, a.Str("prompt_id"))
	f.Purpose = ""
	f.Tool = &tool
	tool.Succeeded = success
	if size, ok := a.Int("content_length"); ok {
		tool.OutputSize = size
	}
	if reported && !success {
		if tool.Denied = decision != nil && decision.Outcome == "denied"; !tool.Denied {
			f.Failed = true
			f.Error = a.First("error", "error.message")
			f.ErrorType = a.First("error_type", "error.type")
		}
	}
	f.Extra = claudeExtra(a, "mcp_server_name")
	turn, agent := f.TurnID, f.Agent

	if decision != nil {
		decision.ToolName = tool.Name
		p := facts.Add(fact.Permission)
		p.TurnID, p.Agent = turn, agent
		p.Tool = &fact.Tool{Name: tool.Name, Input: tool.Input}
		p.Decision = decision
	}
}

// geminiDecision reads a decision. Accepting is also what the client does by
// itself where its mode allows it; every other answer is a person's.
func geminiDecision(word string) *fact.Decision {
	switch word {
	case "accept":
		return &fact.Decision{Action: "allow", Outcome: "allowed"}
	case "auto_accept":
		return &fact.Decision{Action: "ask", Outcome: "allowed", Reply: "always", Reason: word}
	case "modify":
		return &fact.Decision{Action: "ask", Outcome: "allowed", Reply: "once", Reason: word}
	case "reject":
		return &fact.Decision{Action: "ask", Outcome: "denied", Reply: "reject"}
	case "":
		return nil
	}
	return &fact.Decision{Action: "ask", Reason: strconv.Quote(word)}
}
