package dialect

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// claudeCode reads the spans (a beta) and the events of Claude Code and of the Claude Agent SDK,
// which runs it.
//
// The content is in the events, if the user opted in; the spans have the times. A request id or a
// tool use id joins the two. A tool's failure is reported by its execution or its event, never by
// the tool's own span.
var claudeCode = Dialect{
	Name:       "claude-code",
	Prompts:    true,
	Title:      "Claude Code",
	Spans:      isClaudeSpan,
	Records:    isClaudeRecord,
	ReadSpan:   readClaudeSpan,
	ReadRecord: readClaudeRecord,
}

const (
	claudePrefix = "claude_code."
	claudeScope  = "com.anthropic.claude_code"
)

func isClaudeSpan(s *Span) bool {
	return strings.HasPrefix(s.Name(), claudePrefix) || strings.HasPrefix(s.Scope.Name(), claudeScope)
}

func isClaudeRecord(r *Record) bool {
	return strings.HasPrefix(r.Scope.Name(), claudeScope) || strings.HasPrefix(r.Event, claudePrefix)
}

func readClaudeSpan(s *Span, facts *Emitter) {
	a := s.Attrs()
	facts.base.TurnID = a.Str("prompt.id")
	defer claudeSubagent(a, facts)
	switch strings.TrimPrefix(s.Name(), claudePrefix) {
	case "interaction":
		f := facts.Add(fact.Turn)
		if asked := claudeReported(a, "user_prompt"); !claudeNotification(asked) {
			f.Input = userMessages(asked, "")
		}
		f.SessionAttrs = claudeAbout(a, s.Resource)
	case "llm_request":
		readClaudeCall(a, facts)
	case "tool":
		f := facts.Add(fact.ToolCall)
		f.RequiresTurn = true
		readClaudeTool(f, a)
		f.Tool.DurationMS = nil // it includes the wait for a permission
		for _, e := range s.Events().All() {
			if e.Name() == "tool.output" {
				readClaudeOutput(f.Tool, Attrs{e.Attributes()})
			}
		}
	case "tool.execution":
		kind := fact.ToolCall
		if claudeCallID(a) == "" { // the tool's own span is the one above
			kind = fact.Step
		}
		f := facts.Add(kind)
		f.CallID = claudeCallID(a)
		if claudeOutcome(f, a); kind == fact.ToolCall && !f.Failed {
			f.Tool = &fact.Tool{Succeeded: a.True("success"), DurationMS: a.IntPtr("duration_ms")}
		}
	case "tool.blocked_on_user":
		d := claudeDecision(a)
		if d == nil {
			return
		}
		f := facts.Add(fact.Permission)
		if f.Decision = d; d.Action == "ask" {
			if d.WaitedMS = a.IntPtr("duration_ms"); d.WaitedMS == nil && f.Start > 0 {
				d.WaitedMS = new((f.End - f.Start) / int64(time.Millisecond))
			}
		}
	}
}

// readClaudeCall reads llm_request, which is one request with all its attempts.
func readClaudeCall(a Attrs, facts *Emitter) {
	f := facts.Add(fact.ModelCall)
	// A standalone request was made outside of any turn, such as for a title.
	alone := a.Str("llm_request.context") == "standalone"
	f.RequiresTurn = !alone
	source := a.Str("query_source", "query_source_safe")
	if f.Agent, f.Purpose = claudeSpeaker(a, source); alone && source == "" && f.Agent == "" {
		f.Purpose = "standalone"
	}
	if f.Agent != "" {
		f.RequiresTurn = false // only what the user asks has a span
	}
	f.Model = claudeModel(a)
	f.RequestID = a.Str("request_id", "client_request_id")
	f.ResponseID = a.Str("gen_ai.response.id", "request_id")
	f.Usage = claudeUsage(a)
	f.Finish = cmp.Or(a.Str("stop_reason"), a.Last("gen_ai.response.finish_reasons"))
	f.Output = appendText(nil, fact.PartText, claudeReported(a, "response.model_output"))
	claudeOutcome(f, a)
	f.Extra = claudeExtra(a, "attempt", "speed", "ttft_ms")
}

// claudeCallID is the id of a tool call, which older versions do not report.
func claudeCallID(a Attrs) string { return a.Str("tool_use_id", "gen_ai.tool.call.id") }

func readClaudeTool(f *fact.Fact, a Attrs) {
	f.CallID, f.RequestID = claudeCallID(a), a.Str("request_id")
	parameters := a.JSON("tool_parameters")
	f.Tool = &fact.Tool{Name: a.Str("tool_name", "gen_ai.tool.name"), DurationMS: a.IntPtr("duration_ms")}
	// The tools of a server that the user added are all called mcp_tool in events.
	if p, ok := objectOf(parameters); ok && p.has("mcp_tool_name") {
		f.Tool.Name = "mcp__" + p.str("mcp_server_name") + "__" + p.str("mcp_tool_name")
	}
	f.Tool.Input = claudeInput(a, parameters)
	f.Tool.OutputSize, _ = a.Int("tool_result_size_bytes")
	f.Extra = claudeExtra(a, "agent_id", "parent_agent_id", "result_tokens")
}

// claudeInput returns a tool's input: all of it where there is tool_input, and otherwise what
// single attributes report, under the tools' own names for it.
func claudeInput(a Attrs, parameters json.RawMessage) json.RawMessage {
	p, _ := objectOf(parameters)
	if raw := a.JSON("tool_input"); raw != nil {
		// Values of tool_input are cut at 512 characters. The command is reported twice.
		in, ok := objectOf(raw)
		if full := p.str("full_command"); ok && len(full) > len(in.str("command")) && len(in.str("command")) >= 500 {
			in["command"] = p["full_command"]
			raw = encode(in)
		}
		return raw
	}
	in := object{}
	for key, raw := range p {
		switch key {
		case "full_command":
			in["command"] = raw
		case "skill_name":
			in["skill"] = raw
		case "timeout", "description", "dangerouslyDisableSandbox", "subagent_type":
			in[key] = raw
		}
	}
	for key, name := range map[string]string{"full_command": "command", "file_path": "file_path",
		"skill_name": "skill", "subagent_type": "subagent_type"} {
		if s := claudeReported(a, key); s != "" {
			in[name] = quoted(s)
		}
	}
	return encode(in)
}

// readClaudeOutput reads the event tool.output, which has some of the input among the output.
func readClaudeOutput(t *fact.Tool, a Attrs) {
	for _, key := range [...]string{"output", "content", "diff"} {
		if claudeReported(a, key) == "" {
			continue
		}
		if key == "content" && t.Name == "Write" { // what is written
			in, _ := objectOf(t.Input)
			if in == nil {
				in = object{}
			}
			if !in.has("content") {
				in["content"] = quoted(a.Str(key))
				if path := a.Str("file_path"); path != "" {
					in["file_path"] = quoted(path)
				}
				t.Input = encode(in)
			}
			continue
		}
		t.Output = a.JSON(key)
		if a.True(key + "_truncated") {
			t.Truncated = true
			if size := a.IntPtr(key + "_original_length"); size != nil {
				t.OutputSize = *size
			}
		}
		return
	}
}

// claudeSubagent sets the sub-agent whose work the facts are. The prompt that they name is the one
// that the user had given last, which need not be that on which the sub-agent works.
func claudeSubagent(a Attrs, facts *Emitter) {
	id := a.Str("agent_id")
	if id == "" {
		return
	}
	for i := range facts.All {
		f := &facts.All[i]
		f.SubagentID, f.ParentSubagentID, f.TurnID = id, a.Str("parent_agent_id"), ""
		f.RequiresTurn = false
	}
}

func readClaudeRecord(r *Record, facts *Emitter) {
	a := r.Attrs()
	facts.stamp(a)
	facts.base.TurnID = a.Str("prompt.id")
	defer claudeSubagent(a, facts)
	switch name := strings.TrimPrefix(r.Event, claudePrefix); name {
	case "user_prompt":
		readClaudePrompt(a, r.Resource, facts)
	case "assistant_response":
		readClaudeAnswer(a, facts)
	case "api_request", "api_error", "api_refusal":
		f := facts.Add(fact.ModelCall)
		f.RequestID = a.Str("request_id", "client_request_id")
		f.Model = claudeModel(a)
		f.Agent, f.Purpose = claudeSpeaker(a, a.Str("query_source"))
		switch name {
		case "api_request":
			f.Usage = claudeUsage(a)
			f.CostUSD = a.Float("cost_usd")
		case "api_error":
			f.Failed, f.Error, f.ErrorType = true, a.Str("error"), a.Str("error_class", "status_code")
			f.Aborted = claudeAborted(f)
		case "api_refusal":
			f.Finish = "refusal"
		}
		f.Extra = claudeExtra(a, "attempt", "speed", "ttft_ms", "category")
	case "tool_decision":
		readClaudeDecision(a, facts)
	case "tool_result":
		f := facts.Add(fact.ToolCall)
		readClaudeTool(f, a)
		for _, key := range [...]string{"tool_result", "tool_output", "output"} {
			if f.Tool.Output == nil && claudeReported(a, key) != "" {
				f.Tool.Output = a.JSON(key)
			}
		}
		if claudeOutcome(f, a); !f.Failed {
			f.Tool.Succeeded = a.True("success")
		}
	case "compaction":
		f := facts.Add(fact.Compaction)
		f.Compacted = &fact.Compacted{Trigger: a.Str("trigger")}
		if t := f.Compacted.Trigger; t != "" {
			f.Compacted.Auto = new(t == "auto")
		}
		f.Compacted.TokensBefore, _ = a.Int("pre_tokens")
		f.Compacted.TokensAfter, _ = a.Int("post_tokens")
		claudeBegan(f, a)
		claudeOutcome(f, a)
	case "subagent_completed":
		if a.Str("agent_id") == "" {
			return
		}
		f := facts.Add(fact.Session)
		f.Agent = a.Str("agent_type")
		// It reaches over all that the sub-agent did: a prompt that the user gave meanwhile does
		// not divide it.
		claudeBegan(f, a)
	case "permission_mode_changed":
		facts.base.TurnID = ""
		f := facts.Add(fact.Session)
		f.SessionAttrs = claudeAbout(a, r.Resource)
		f.SessionAttrs.Mode = a.Str("to_mode")
	}
}

func readClaudePrompt(a Attrs, resource pcommon.Resource, facts *Emitter) {
	reported := cmp.Or(claudeReported(a, "prompt"), claudeReported(a, "prompt_text"))
	if claudeNotification(reported) {
		f := facts.Add(fact.Note)
		f.TurnID = ""
		f.Input = userMessages(reported, a.Str("message.uuid"))
		f.Input[0].Role = session.RoleSystem
		return
	}
	f := facts.Add(fact.Prompt)
	f.Input = userMessages(reported, a.Str("message.uuid"))
	f.SessionAttrs = claudeAbout(a, resource)
	f.Extra = claudeExtra(a, "command_name", "command_source")
}

// claudeBegan sets the start of what is reported when it is over, with how long it took.
func claudeBegan(f *fact.Fact, a Attrs) {
	if ms, ok := a.Int("duration_ms"); ok && f.Start > 0 && ms > 0 && ms < 1e9 {
		f.Start -= ms * int64(time.Millisecond)
	}
}

// claudeNotification reports whether the program wrote the text in the user's name, to wake the
// model when a sub-agent in the background is done.
func claudeNotification(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "<task-notification>")
}

func readClaudeAnswer(a Attrs, facts *Emitter) {
	reported := claudeReported(a, "response")
	agent, side := claudeSpeaker(a, a.Str("query_source"))
	if title := claudeTitle(reported); title != "" && strings.Contains(side, "title") {
		f := facts.Add(fact.Session)
		f.TurnID = ""
		f.SessionAttrs = &fact.SessionAttrs{Title: title}
	}
	f := facts.Add(fact.Answer)
	f.RequestID, f.Agent, f.Purpose = a.Str("request_id"), agent, side
	f.Model = claudeModel(a)
	f.Output = appendText(nil, fact.PartText, reported)
	f.Extra = claudeExtra(a, "message.uuid")
}

// claudeTitle reads the answer of a request for a title: JSON, fenced or not.
func claudeTitle(reported string) string {
	from, to := strings.IndexByte(reported, '{'), strings.LastIndexByte(reported, '}')
	if from < 0 || to < from {
		return ""
	}
	o, _ := objectOf(json.RawMessage(reported[from : to+1]))
	return o.str("title")
}

// readClaudeDecision reads tool_decision. Nothing but its span and this event report a refused
// call, so the event is a fact of the call too.
func readClaudeDecision(a Attrs, facts *Emitter) {
	d := claudeDecision(a)
	if d == nil {
		return
	}
	call := facts.Add(fact.ToolCall)
	readClaudeTool(call, a)
	call.Tool.DurationMS = nil
	call.Tool.Denied = d.Outcome == "denied"
	name := call.Tool.Name

	f := facts.Add(fact.Permission)
	f.CallID, f.RequestID = claudeCallID(a), a.Str("request_id")
	d.ToolName = name
	f.Decision = d
	if mode := a.Str("permission_mode"); mode != "" {
		f.SessionAttrs = &fact.SessionAttrs{Mode: mode}
	}
}

// claudeDecision reads a decision, or returns nil where there was none. A person was asked where
// the source reports so; all else the settings or a hook decided.
func claudeDecision(a Attrs) *fact.Decision {
	d := &fact.Decision{Source: a.Str("source")}
	switch a.Str("decision") {
	case "accept":
		d.Action, d.Outcome = "allow", "allowed"
	case "reject":
		d.Action, d.Outcome = "deny", "denied"
	default:
		return nil
	}
	switch d.Source {
	case "user_permanent":
		d.Action, d.Reply = "ask", "always"
	case "user_temporary":
		d.Action, d.Reply = "ask", "once"
	case "user_reject", "user_abort":
		d.Action, d.Reply = "ask", "reject"
	}
	return d
}

// claudeSpeaker returns which sub-agent made a request, or what for it was made unless it is the
// conversation's own.
func claudeSpeaker(a Attrs, source string) (agent, side string) {
	agent = a.Str("agent.name")
	if agent == "" && hasPrefix(source, "agent:", "agent.") {
		agent = source[strings.LastIndexAny(source, ":.")+1:]
	}
	if agent = cmp.Or(agent, a.Str("agent_id")); agent != "" {
		return agent, ""
	}
	switch source {
	case "", "sdk", "main", "compact", "unknown": // the conversation's own
		return "", ""
	}
	if strings.HasPrefix(source, "repl_main_thread") { // an output style follows a colon
		return "", ""
	}
	return "", source
}

func claudeModel(a Attrs) *session.Model {
	id := a.Str("model", "gen_ai.request.model")
	if id == "" {
		return nil
	}
	provider := a.Str("gen_ai.provider.name", "gen_ai.system", "anthropic.provider")
	if provider == "firstParty" {
		provider = "anthropic"
	}
	return &session.Model{ProviderID: provider, ModelID: id, Variant: a.Str("effort")}
}

// claudeUsage reads the counts as Anthropic's interface has them: the input is what was neither
// read from nor written to the cache, and the output includes the thinking, of which there is no
// count.
func claudeUsage(a Attrs) *fact.Usage {
	return a.statedUsage(fact.CacheApart, "input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens",
		"", "")
}

// claudeOutcome reads how something ended, in its own words before the span's.
func claudeOutcome(f *fact.Fact, a Attrs) {
	success, reported := a.Bool("success")
	text := a.Str("error", "error.message")
	if reported && !success || text != "" {
		f.Failed = true
	}
	if !f.Failed {
		return
	}
	f.ErrorType = cmp.Or(a.Str("error_class", "error_type", "error.type", "status_code"), f.ErrorType)
	f.Error = cmp.Or(text, f.Error, f.ErrorType)
	f.Aborted = claudeAborted(f)
}

// claudeAborted reports whether an error is that of a person who stopped it.
func claudeAborted(f *fact.Fact) bool {
	return strings.Contains(f.ErrorType, "Abort") || strings.Contains(f.Error, "AbortError") ||
		strings.Contains(f.Error, "Request was aborted")
}

// claudeReported returns text that was not withheld.
func claudeReported(a Attrs, key string) string {
	if s := a.Str(key); s != "<REDACTED>" {
		return s
	}
	return ""
}

func claudeAbout(a Attrs, resource pcommon.Resource) *fact.SessionAttrs {
	about := &fact.SessionAttrs{UserID: a.Str("user.id"),
		Client: clientOf(resource, "claude-code", a.Str("app.version"))}
	if paths := a.Strings("workspace.host_paths"); len(paths) > 0 {
		about.WorkspaceRoot = paths[0]
	}
	return about
}

// claudeExtra keeps what no field holds. A first attempt and a normal speed are not worth keeping.
func claudeExtra(a Attrs, keys ...string) json.RawMessage {
	o := object{}
	for _, key := range keys {
		raw := a.JSON(key)
		if raw == nil || string(raw) == `""` || key == "attempt" && string(raw) == "1" ||
			key == "speed" && string(raw) == `"normal"` {
			continue
		}
		o[key] = raw
	}
	return encode(o)
}

// statedCounts keeps counts under the keys under which they came.
func statedCounts(a Attrs, keys ...string) json.RawMessage {
	o := map[string]int64{}
	for _, key := range keys {
		if n, ok := a.Int(key); ok {
			o[key] = n
		}
	}
	return encode(o)
}

// userMessages is a message of the user, or nil when nothing is known of it.
func userMessages(text, id string) []fact.Message {
	if text == "" && id == "" {
		return nil
	}
	return []fact.Message{{Role: "user", ID: id, Parts: appendText(nil, fact.PartText, text)}}
}

// stamp takes a record's time from its attribute event.timestamp where it has one: it is when the
// event was, while the record's own time may be unset, or when it was handed to the exporter.
func (f *Emitter) stamp(a Attrs) {
	t, err := time.Parse(time.RFC3339Nano, a.Str("event.timestamp"))
	if err != nil || t.Year() < 2000 || t.Year() > 2100 {
		return
	}
	f.base.Start, f.base.End = t.UnixNano(), t.UnixNano()
}

// clientOf names the program that emits, and its version.
func clientOf(resource pcommon.Resource, name, version string) string {
	r := Attrs{resource.Attributes()}
	return strings.TrimSpace(cmp.Or(r.Str("service.name"), name) + " " + cmp.Or(r.Str("service.version"), version))
}
