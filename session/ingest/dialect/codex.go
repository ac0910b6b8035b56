package dialect

import (
	"cmp"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// codex reads the spans and events of OpenAI's Codex: the CLI, its exec mode, the app server and
// what embeds it.
//
// Its spans are those of a program's functions, several hundred a turn, of which a handful report
// the session; [readCodexSpan] knows them by name. Its events report the prompt, the tools' inputs
// and outputs, and the tokens. Neither reports the model's text.
var codex = Dialect{
	Name:       "codex",
	Prompts:    true,
	Threads:    true,
	Title:      "Codex CLI",
	Spans:      isCodexSpan,
	Records:    isCodexRecord,
	ReadSpan:   readCodexSpan,
	ReadRecord: readCodexRecord,
}

func isCodexSpan(s *Span) bool {
	return isCodexName(s.Scope.Name()) || strings.HasPrefix(s.Attrs().Str("code.module.name"), "codex_")
}

func isCodexRecord(r *Record) bool {
	return strings.HasPrefix(r.Event, "codex.") || isCodexName(r.Scope.Name())
}

// isCodexName knows the scopes: of spans the name of the service, such as codex_exec, codex_cli_rs
// and Codex Desktop, of records codex_otel.log_only.
func isCodexName(scope string) bool {
	return strings.HasPrefix(scope, "codex") || strings.HasPrefix(scope, "Codex")
}

// readCodexSpan reads the spans that report a session. Two report a model call: receiving_stream is
// about its time, and the one of its children that saw the response completed has the tokens. Spans
// between these and the turn only tie.
func readCodexSpan(s *Span, facts *Emitter) {
	switch s.Name() {
	case "session_task.turn", "session_task.review":
		readCodexTurn(s, facts)
	case "session_task.compact":
		codexCompaction(s, facts, false)
	case "run_auto_compact":
		codexCompaction(s, facts, true)
	case "session_task.run", "session_task.user_shell", "run_task", "run_turn", "codex.compaction",
		"run_sampling_request", "try_run_sampling_request", "try_run_turn":
		f := codexFact(s, facts, fact.Step)
		f.Model = codexModel(s.Attrs())
		if cwd := s.Attrs().Str("cwd"); cwd != "" {
			f.SessionAttrs = &fact.SessionAttrs{WorkspaceRoot: cwd}
		}
	case "receiving_stream":
		f := codexFact(s, facts, fact.ModelCall)
		f.RequiresTurn = true
		f.RequestID = codexStream(f.SpanID)
		f.End = f.Start // the span's own is after the tools that ran meanwhile
	case "handle_responses", "completed": // named after what was received in some versions
		usage := codexUsage(s.Attrs(), "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
			"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens",
			"codex.usage.reasoning_output_tokens", "codex.usage.total_tokens")
		if usage == nil {
			return
		}
		f := codexFact(s, facts, fact.ModelCall)
		f.RequiresTurn = true
		f.RequestID = codexStream(f.ParentID)
		f.Usage = usage
	default:
		if readCodexTool(s, facts); s.Events().Len() > 0 {
			readCodexEvents(s, facts)
		}
		if len(facts.All) == 0 && slices.Contains(codexStarts, s.Name()) {
			codexFact(s, facts, fact.Step)
		}
	}
}

// codexStarts are the spans between a tool call and the turn of the sub-agent that it starts.
var codexStarts = []string{"dispatch_tool_call_with_state", "codex.turn_input", "op.dispatch.turn_input",
	"op.dispatch.inter_agent_communication"}

// codexStream is the id that the two spans of a model call share.
func codexStream(span string) string {
	if span == "" {
		return ""
	}
	return "stream-" + span
}

// codexFact adds a fact with the ids that the spans of a turn have.
func codexFact(s *Span, facts *Emitter, kind fact.Kind) *fact.Fact {
	a := s.Attrs()
	f := facts.Add(kind)
	f.TurnID = a.Str("turn.id", "turn_id")
	if f.Session == "" {
		codexThread(f, a)
	}
	return f
}

// codexThread finds the session of a span that calls it a thread. Such spans have the key thread.id
// twice: once for the thread of the operating system, as a number.
func codexThread(f *fact.Fact, a Attrs) {
	for key, v := range a.All() {
		if key == "thread.id" && v.Type() == pcommon.ValueTypeStr && v.Str() != "" {
			codexSession(f, Text(v.Str()), key, "thread_id")
			return
		}
	}
}

func readCodexTurn(s *Span, facts *Emitter) {
	a := s.Attrs()
	f := codexFact(s, facts, fact.Turn)
	f.Model = codexModel(a)
	const total = "codex.turn.token_usage."
	f.Usage = codexUsage(a, total+"input_tokens", total+"output_tokens", total+"cached_input_tokens",
		total+"cache_write_input_tokens", total+"reasoning_output_tokens", total+"total_tokens")
	f.SessionAttrs = codexAbout(a, s.Resource)
}

func codexAbout(a Attrs, resource pcommon.Resource) *fact.SessionAttrs {
	return &fact.SessionAttrs{Client: clientOf(resource, "codex", a.Str("app.version"))}
}

// codexCompaction reads the span of a compaction: the task that a person asked for, or the function
// that runs when the context is full. Either may have a span codex.compaction below or above it,
// which would be a second one.
func codexCompaction(s *Span, facts *Emitter, auto bool) {
	f := codexFact(s, facts, fact.Compaction)
	f.Compacted = &fact.Compacted{Auto: &auto, Trigger: "manual"}
	if auto {
		f.Compacted.Trigger = "auto"
	}
	f.Model = codexModel(s.Attrs())
}

// readCodexTool reads the span of a tool call, which has the tool's name. Only its attributes show
// what it is.
func readCodexTool(s *Span, facts *Emitter) {
	a := s.Attrs()
	aborted, ok := a.Bool("aborted")
	if !ok {
		return
	}
	name, id := a.Str("tool_name"), a.Str("call_id")
	if name == "" || id == "" {
		return
	}
	f := codexFact(s, facts, fact.ToolCall)
	f.RequiresTurn = true
	f.CallID = id
	f.Tool = &fact.Tool{Name: name}
	f.Aborted = aborted
}

// readCodexEvents reads the events on a span: those of the records without content are there too,
// and are the only ones if records are off.
func readCodexEvents(s *Span, facts *Emitter) {
	for _, e := range s.Events().All() {
		a := Attrs{e.Attributes()}
		add := func(kind fact.Kind) *fact.Fact {
			f := codexFact(s, facts, kind)
			codexConversation(f, a)
			if n := Nanos(e.Timestamp()); n != 0 && kind != fact.Step {
				f.Start, f.End = n, n
			}
			return f
		}
		switch a.Str("event.name") {
		case "codex.user_prompt": // its text is in the record, which is in this span
			if len(facts.All) == 0 {
				f := add(fact.Step)
				f.TurnID = cmp.Or(f.TurnID, a.Str("turn.id", "turn_id"))
			}
		case "codex.tool_result":
			if a.Str("call_id") != "" {
				readCodexResult(add(fact.ToolCall), a)
			}
		case "codex.conversation_starts":
			readCodexStart(add(fact.Session), a, s.Resource)
		case "codex.api_request", "codex.websocket_request":
			if codexRequestFailed(a) {
				readCodexFailure(add(fact.ModelCall), a)
			}
		}
	}
}

// codexConversation takes the session from an event on a span that has none.
func codexConversation(f *fact.Fact, a Attrs) {
	if id := a.Str("conversation.id"); f.Session == "" && id != "" {
		codexSession(f, id, "conversation.id", "conversation.id")
	}
}

func codexSession(f *fact.Fact, id, key, rank string) {
	f.Session, f.SessionKey, f.SessionRank = id, key, max(0, slices.Index(SessionKeys, rank))
}

func readCodexRecord(r *Record, facts *Emitter) {
	a := r.Attrs()
	facts.stamp(a)
	facts.base.TurnID = a.Str("turn.id", "turn_id")
	add := facts.Add
	switch r.Event {
	case "codex.conversation_starts":
		readCodexStart(add(fact.Session), a, r.Resource)
	case "codex.user_prompt":
		f := add(fact.Prompt)
		if reported := a.Str("prompt"); reported != "[REDACTED]" {
			f.Input = userMessages(reported, "")
		}
		f.Model = codexModel(a)
		f.SessionAttrs = codexAbout(a, r.Resource)
	case "codex.sse_event", "codex.websocket_event":
		readCodexStream(a, add)
	case "codex.api_request", "codex.websocket_request":
		if codexRequestFailed(a) {
			readCodexFailure(add(fact.ModelCall), a)
		}
	case "codex.tool_decision":
		f := add(fact.Permission)
		f.CallID = a.Str("call_id")
		f.Decision = codexDecision(a)
	case "codex.tool_result":
		readCodexResult(add(fact.ToolCall), a)
	}
}

// readCodexStart reads how a conversation was set up. The policy on approvals and that on the
// sandbox together are what others call a mode.
func readCodexStart(f *fact.Fact, a Attrs, resource pcommon.Resource) {
	f.Model = codexModel(a)
	f.SessionAttrs = codexAbout(a, resource)
	modes := []string{a.Str("approval_policy"), a.Str("sandbox_policy")}
	f.SessionAttrs.Mode = strings.Join(slices.DeleteFunc(modes, func(m string) bool { return m == "" }), ", ")
}

// readCodexStream reads an event of a response's stream: the one that has the tokens, and those
// that report an error. Every other only reports that it came.
func readCodexStream(a Attrs, add func(fact.Kind) *fact.Fact) {
	usage := codexUsage(a, "input_token_count", "output_token_count", "cached_token_count", "cache_write_token_count",
		"reasoning_token_count", "tool_token_count")
	failure := a.Str("error.message")
	if failure == "" && (usage == nil || usage.Tokens == (session.Usage{})) {
		return // a connection that is warmed up completes without any tokens
	}
	f := add(fact.ModelCall)
	f.Model, f.Usage = codexModel(a), usage
	if failure != "" {
		f.Failed, f.Error, f.ErrorType = true, failure, a.Str("event.kind")
	}
}

// codexRequestFailed reports whether a request for a response did not get one. Lists of models and
// such are requested too.
func codexRequestFailed(a Attrs) bool {
	endpoint := a.Str("endpoint")
	if endpoint != "" && endpoint != "unknown" && !strings.Contains(endpoint, "responses") {
		return false
	}
	if a.Str("error.message") != "" {
		return true
	}
	status := a.IntPtr("http.response.status_code", "http.status_code", "status")
	return status != nil && *status >= 400
}

// readCodexFailure reads a request that failed before anything was received. It has no stream, so
// that its time and attempt identify it: its span and its record have both.
func readCodexFailure(f *fact.Fact, a Attrs) {
	f.Model = codexModel(a)
	f.RequestID = "request-" + a.Str("event.timestamp") + "-" + a.Str("attempt")
	f.Failed = true
	f.ErrorType = a.Str("http.response.status_code", "http.status_code", "status")
	f.Error = cmp.Or(a.Str("error.message"), "status "+f.ErrorType)
	if strings.Contains(a.Str("endpoint"), "compact") {
		f.Purpose = "compaction"
	}
	if n, ok := a.Int("attempt"); ok && n > 0 {
		f.Extra = encode(map[string]int64{"attempt": n})
	}
}

// codexDecision reads a decision. Versions differ in how they write the words.
func codexDecision(a Attrs) *fact.Decision {
	word := a.Str("decision")
	d := &fact.Decision{ToolName: a.Str("tool_name"), Source: a.Str("source")}
	always := false
	switch w := strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(word)); {
	case strings.HasPrefix(w, "approved"):
		d.Action, d.Outcome = "allow", "allowed"
		always = w != "approved"
	case w == "denied", w == "abort", w == "networkpolicydeny", hasPrefix(w, "timedout", "deniedby"):
		d.Action, d.Outcome = "deny", "denied"
	case strings.HasPrefix(w, "networkpolicy"):
		d.Action, d.Outcome = "allow", "allowed"
		always = true
	default: // a decision was asked for, and its word is not known
		d.Action = "ask"
	}
	if strings.EqualFold(d.Source, "user") {
		d.Action = "ask"
		switch {
		case d.Outcome == "denied":
			d.Reply = "reject"
		case always:
			d.Reply = "always"
		case d.Outcome == "allowed":
			d.Reply = "once"
		}
	}
	if d.Outcome == "" || word != "approved" && word != "denied" {
		d.Reason = word
	}
	return d
}

// readCodexResult reads the end of a tool call, which has no content in an event on a span.
func readCodexResult(f *fact.Fact, a Attrs) {
	f.CallID = a.Str("call_id")
	f.Tool = &fact.Tool{Name: a.Str("tool_name"), DurationMS: a.IntPtr("duration_ms"), Input: a.JSON("arguments"),
		Output: a.JSON("output")}
	if string(f.Tool.Input) == `""` {
		f.Tool.Input = nil
	}
	f.Tool.OutputSize, _ = a.Int("output_length")
	f.Tool.Truncated, _ = a.Bool("output_truncated")
	success, reported := a.Bool("success")
	if f.Tool.Succeeded = success; reported && !success {
		f.Failed = true
		f.Error = a.Str("error.message", "output")
	}
	f.Extra = claudeExtra(a, "mcp_server", "mcp_server_origin")
	if f.Tool.Name == "spawn_agent" {
		if started, ok := objectOf(f.Tool.Output); ok {
			f.ChildSession = started.str("agent_id")
		}
	}
}

func codexModel(a Attrs) *session.Model {
	id := a.Str("model", "slug")
	if id == "" {
		return nil
	}
	return &session.Model{ProviderID: a.Str("provider_name"), ModelID: id}
}

// codexUsage reads counts as OpenAI's interface has them: the input includes what was cached, the
// output the reasoning.
func codexUsage(a Attrs, input, output, cached, written, reasoning, total string) *fact.Usage {
	if a.IntPtr(input, output) == nil {
		return nil
	}
	return a.statedUsage(0, input, output, cached, written, reasoning, total)
}
