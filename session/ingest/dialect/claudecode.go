package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// claudeCode reads the spans (a beta) and the events of Claude Code and of the Claude Agent SDK, which runs it.
//
// The content is in the events, if the user opted in; the spans have the times. A request id or a tool use id joins the
// two. A tool's failure is reported by its execution or its event, never by the tool's own span.
var claudeCode = Dialect{
	Name:    "claude-code",
	Prompts: true,
	Spans: func(s *Span) bool {
		return strings.HasPrefix(s.Name(), claudePrefix) || strings.HasPrefix(s.Scope.Name(), claudeScope)
	},
	Records: func(r *Record) bool {
		return strings.HasPrefix(r.Scope.Name(), claudeScope) || strings.HasPrefix(r.Event, claudePrefix)
	},
	ReadSpan:   readClaudeSpan,
	ReadRecord: readClaudeRecord,
}

const (
	claudePrefix = "claude_code."
	claudeScope  = "com.anthropic.claude_code"
)

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
	case "llm_request": // one request with all its attempts
		// A standalone request was made outside of any turn, such as for a title.
		alone := a.Str("llm_request.context") == "standalone"
		f := claudeCall(a, facts)
		if source := a.Str("query_source", "query_source_safe"); alone && source == "" && f.Agent == "" {
			f.Purpose = "standalone"
		}
		f.RequiresTurn = !alone && f.Agent == "" // only what the user asks has a span
		f.ResponseID = a.Str("gen_ai.response.id", "request_id")
		f.Usage = claudeUsage(a)
		f.Finish = cmp.Or(a.Str("stop_reason"), a.Last("gen_ai.response.finish_reasons"))
		f.Output = appendText(nil, fact.PartText, claudeReported(a, "response.model_output"))
		claudeOutcome(f, a)
		addExtra(f, a, "attempt", "speed", "ttft_ms")
	case "tool":
		f := claudeTool(a, facts)
		f.RequiresTurn = true
		f.Tool.DurationMS = nil // it includes the wait for a permission
		for _, e := range s.Events().All() {
			if e.Name() == "tool.output" {
				readClaudeOutput(f.Tool, Attrs{e.Attributes()})
			}
		}
	case "tool.execution":
		f := facts.Add(fact.ToolCall)
		if f.CallID = a.Str(claudeCallIDs...); f.CallID == "" { // the tool's own span is the one above
			f.Kind = fact.Step
		}
		if claudeOutcome(f, a); f.Kind == fact.ToolCall && !f.Failed {
			f.Tool = &fact.Tool{Succeeded: a.True("success"), DurationMS: a.IntPtr("duration_ms")}
		}
	case "tool.blocked_on_user":
		if d := claudeDecision(a); d != nil {
			f := facts.Add(fact.Permission)
			if f.Decision = d; d.Action == "ask" {
				if d.WaitedMS = a.IntPtr("duration_ms"); d.WaitedMS == nil && f.Start > 0 {
					d.WaitedMS = new((f.End - f.Start) / int64(time.Millisecond))
				}
			}
		}
	}
}

// claudeCallIDs have the id of a tool call, which older versions do not report.
var claudeCallIDs = []string{"tool_use_id", "gen_ai.tool.call.id"}

// claudeCall adds a model call with which one it is, and who made it or what for.
func claudeCall(a Attrs, facts *Emitter) *fact.Fact {
	f := facts.Add(fact.ModelCall)
	f.RequestID = a.Str("request_id", "client_request_id")
	f.Model = claudeModel(a)
	f.Agent, f.Purpose = claudeSpeaker(a, a.Str("query_source", "query_source_safe"))
	return f
}

func claudeTool(a Attrs, facts *Emitter) *fact.Fact {
	f := facts.Add(fact.ToolCall)
	f.CallID, f.RequestID = a.Str(claudeCallIDs...), a.Str("request_id")
	parameters := a.object("tool_parameters")
	f.Tool = &fact.Tool{Name: a.Str("tool_name", "gen_ai.tool.name"), Input: claudeInput(a, parameters),
		OutputSize: a.Int("tool_result_size_bytes"), DurationMS: a.IntPtr("duration_ms")}
	// The tools of a server that the user added are all called mcp_tool in events.
	if parameters.has("mcp_tool_name") {
		f.Tool.Name = "mcp__" + parameters.str("mcp_server_name") + "__" + parameters.str("mcp_tool_name")
	}
	addExtra(f, a, "agent_id", "parent_agent_id", "result_tokens")
	return f
}

// claudeNames are the tools' own names for what single attributes or parameters report of their input.
var claudeNames = map[string]string{"full_command": "command", "file_path": "file_path", "skill_name": "skill",
	"subagent_type": "subagent_type"}

// claudeInput returns a tool's input: all of it where there is tool_input, and otherwise what single attributes report,
// under the tools' own names for it.
func claudeInput(a Attrs, parameters object) json.RawMessage {
	if raw := a.JSON("tool_input"); raw != nil {
		// Values of tool_input are cut at 512 characters. The command is reported twice.
		in, ok := objectOf(raw)
		full, command := parameters.str("full_command"), in.str("command")
		if ok && len(full) > len(command) && len(command) >= 500 {
			in["command"] = parameters["full_command"]
			return encode(in)
		}
		return raw
	}
	in := object{}
	for key, raw := range parameters {
		switch key {
		case "full_command", "skill_name", "subagent_type":
			in[claudeNames[key]] = raw
		case "timeout", "description", "dangerouslyDisableSandbox":
			in[key] = raw
		}
	}
	for key, name := range claudeNames {
		if s := claudeReported(a, key); s != "" {
			in[name] = quoted(s)
		}
	}
	return encode(in)
}

// readClaudeOutput reads the event tool.output, which has some of the input among the output.
func readClaudeOutput(t *fact.Tool, a Attrs) {
	for _, key := range [...]string{"output", "content", "diff"} {
		reported := claudeReported(a, key)
		switch {
		case reported == "":
		case key == "content" && t.Name == "Write": // what is written
			in, _ := objectOf(t.Input)
			if in.has("content") {
				continue
			}
			if in == nil {
				in = object{}
			}
			in["content"] = quoted(reported)
			if path := a.Str("file_path"); path != "" {
				in["file_path"] = quoted(path)
			}
			t.Input = encode(in)
		default:
			if t.Output = a.JSON(key); a.True(key + "_truncated") {
				t.Truncated = true
				t.OutputSize = *cmp.Or(a.IntPtr(key+"_original_length"), &t.OutputSize)
			}
			return
		}
	}
}

// claudeSubagent sets the sub-agent whose work the facts are. The prompt that they name is the one that the user had
// given last, which need not be that on which the sub-agent works.
func claudeSubagent(a Attrs, facts *Emitter) {
	id := a.Str("agent_id")
	for i := range facts.All {
		if f := &facts.All[i]; id != "" {
			f.SubagentID, f.ParentSubagentID, f.TurnID = id, a.Str("parent_agent_id"), ""
			f.RequiresTurn = false
		}
	}
}

func readClaudeRecord(r *Record, facts *Emitter) {
	a := r.Attrs()
	facts.stamp(a)
	facts.base.TurnID = a.Str("prompt.id")
	defer claudeSubagent(a, facts)
	switch strings.TrimPrefix(r.Event, claudePrefix) {
	case "user_prompt":
		reported := cmp.Or(claudeReported(a, "prompt"), claudeReported(a, "prompt_text"))
		f := facts.Add(fact.Prompt)
		f.Input = userMessages(reported, a.Str("message.uuid"))
		if claudeNotification(reported) {
			f.Kind, f.TurnID, f.Input[0].Role = fact.Note, "", session.RoleSystem
			return
		}
		f.SessionAttrs = claudeAbout(a, r.Resource)
		addExtra(f, a, "command_name", "command_source")
	case "assistant_response":
		readClaudeAnswer(a, facts)
	case "api_request":
		f := claudeCall(a, facts)
		f.Usage, f.CostUSD = claudeUsage(a), a.Float("cost_usd")
		addExtra(f, a, claudeCallExtra...)
	case "api_error":
		f := claudeCall(a, facts)
		f.Failed, f.Error, f.ErrorType = true, a.Str("error"), a.Str("error_class", "status_code")
		f.Aborted = claudeAborted(f)
		addExtra(f, a, claudeCallExtra...)
	case "api_refusal":
		f := claudeCall(a, facts)
		f.Finish = "refusal"
		addExtra(f, a, claudeCallExtra...)
	case "tool_decision":
		readClaudeDecision(a, facts)
	case "tool_result":
		f := claudeTool(a, facts)
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
		f.Compacted = &fact.Compacted{Trigger: a.Str("trigger"), TokensBefore: a.Int("pre_tokens"),
			TokensAfter: a.Int("post_tokens")}
		if t := f.Compacted.Trigger; t != "" {
			f.Compacted.Auto = new(t == "auto")
		}
		claudeBegan(f, a)
		claudeOutcome(f, a)
	case "subagent_completed":
		if a.Str("agent_id") == "" {
			return
		}
		f := facts.Add(fact.Session)
		f.Agent = a.Str("agent_type")
		// It reaches over all that the sub-agent did: a prompt that the user gave meanwhile does not divide it.
		claudeBegan(f, a)
	case "permission_mode_changed":
		f := facts.Add(fact.Session)
		f.TurnID, f.SessionAttrs = "", claudeAbout(a, r.Resource)
		f.SessionAttrs.Mode = a.Str("to_mode")
	}
}

var claudeCallExtra = []string{"attempt", "speed", "ttft_ms", "category"}

// claudeBegan sets the start of what is reported when it is over, with how long it took.
func claudeBegan(f *fact.Fact, a Attrs) {
	if ms := a.Int("duration_ms"); f.Start > 0 && ms > 0 && ms < 1e9 {
		f.Start -= ms * int64(time.Millisecond)
	}
}

// claudeNotification reports whether the program wrote the text in the user's name, to wake the model when a sub-agent
// in the background is done.
func claudeNotification(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "<task-notification>")
}

func readClaudeAnswer(a Attrs, facts *Emitter) {
	reported := claudeReported(a, "response")
	agent, side := claudeSpeaker(a, a.Str("query_source"))
	if strings.Contains(side, "title") { // it is JSON, fenced or not
		from, to := max(0, strings.IndexByte(reported, '{')), strings.LastIndexByte(reported, '}')+1
		o, _ := objectOf(json.RawMessage(reported[min(from, to):to]))
		if title := o.str("title"); title != "" {
			f := facts.Add(fact.Session)
			f.TurnID, f.SessionAttrs = "", &fact.SessionAttrs{Title: title}
		}
	}
	f := facts.Add(fact.Answer)
	f.RequestID, f.Agent, f.Purpose = a.Str("request_id"), agent, side
	f.Model = claudeModel(a)
	f.Output = appendText(nil, fact.PartText, reported)
	addExtra(f, a, "message.uuid")
}

// readClaudeDecision reads tool_decision. Nothing but its span and this event report a refused call, so the event is a
// fact of the call too.
func readClaudeDecision(a Attrs, facts *Emitter) {
	d := claudeDecision(a)
	if d == nil {
		return
	}
	call := claudeTool(a, facts)
	call.Tool.DurationMS, call.Tool.Denied = nil, d.Outcome == "denied"
	d.ToolName = call.Tool.Name
	id, request := call.CallID, call.RequestID
	f := facts.Add(fact.Permission)
	f.CallID, f.RequestID, f.Decision = id, request, d
	if mode := a.Str("permission_mode"); mode != "" {
		f.SessionAttrs = &fact.SessionAttrs{Mode: mode}
	}
}

// claudeDecision reads a decision, or returns nil where there was none. A person was asked where the source reports so;
// all else the settings or a hook decided.
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
	d.Reply = map[string]string{"user_permanent": "always", "user_temporary": "once", "user_reject": "reject",
		"user_abort": "reject"}[d.Source]
	if d.Reply != "" {
		d.Action = "ask"
	}
	return d
}

// claudeSpeaker returns which sub-agent made a request, or what for it was made unless it is the conversation's own.
func claudeSpeaker(a Attrs, source string) (agent, side string) {
	if hasPrefix(source, "agent:", "agent.") {
		agent = source[strings.LastIndexAny(source, ":.")+1:]
	}
	agent = cmp.Or(a.Str("agent.name"), agent, a.Str("agent_id"))
	own := []string{"", "sdk", "main", "compact", "unknown"}
	if agent != "" || slices.Contains(own, source) ||
		strings.HasPrefix(source, "repl_main_thread") { // an output style follows a colon
		return agent, ""
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

// claudeUsage reads the counts as Anthropic's interface has them: the input is what was neither read from nor written
// to the cache, and the output includes the thinking, of which there is no count.
func claudeUsage(a Attrs) *fact.Usage {
	c := a.counts("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
	return c.Usage(fact.CacheApart)
}

// claudeOutcome reads how something ended, in its own words before the span's.
func claudeOutcome(f *fact.Fact, a Attrs) {
	success, reported := a.Bool("success")
	text := a.Str("error", "error.message")
	if f.Failed = f.Failed || reported && !success || text != ""; f.Failed {
		f.ErrorType = cmp.Or(a.Str("error_class", "error_type", "error.type", "status_code"), f.ErrorType)
		f.Error = cmp.Or(text, f.Error, f.ErrorType)
		f.Aborted = claudeAborted(f)
	}
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
