package dialect

import (
	"cmp"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// codex reads the spans and events of OpenAI's Codex: the CLI, its exec mode, the app server and what embeds it.
//
// Its spans are those of a program's functions, several hundred a turn, of which a handful report the session;
// [readCodexSpan] knows them by name. Its events report the prompt, the tools' inputs and outputs, and the tokens.
// Neither reports the model's text.
//
// The scope of spans is the name of the service, such as codex_exec, codex_cli_rs and Codex Desktop, that of records
// codex_otel.log_only.
var codex = Dialect{
	Name:    "codex",
	Prompts: true,
	Threads: true,
	Spans: func(s *Span) bool {
		return hasPrefix(s.Scope.Name(), "codex", "Codex") ||
			strings.HasPrefix(s.Attrs().Str("code.module.name"), "codex_")
	},
	Records: func(r *Record) bool {
		return strings.HasPrefix(r.Event, "codex.") || hasPrefix(r.Scope.Name(), "codex", "Codex")
	},
	ReadSpan:   readCodexSpan,
	ReadRecord: readCodexRecord,
}

// readCodexSpan reads the spans that report a session. Two report a model call: receiving_stream is about its time, and
// the one of its children that saw the response completed has the tokens. Spans between these and the turn only tie.
func readCodexSpan(s *Span, facts *Emitter) {
	a := s.Attrs()
	switch s.Name() {
	case "session_task.turn", "session_task.review":
		f := codexFact(s, facts, fact.Turn)
		f.Model = codexModel(a)
		const total = "codex.turn.token_usage."
		f.Usage = codexUsage(a, total+"input_tokens", total+"output_tokens", total+"cached_input_tokens",
			total+"cache_write_input_tokens", total+"reasoning_output_tokens", total+"total_tokens")
		f.SessionAttrs = codexAbout(a, s.Resource)
	case "session_task.compact", "run_auto_compact":
		// The task that a person asked for, or the function that runs when the context is full. Either may have a span
		// codex.compaction below or above it, which would be a second one.
		f := codexFact(s, facts, fact.Compaction)
		f.Compacted = &fact.Compacted{Auto: new(s.Name() == "run_auto_compact"), Trigger: "manual"}
		if *f.Compacted.Auto {
			f.Compacted.Trigger = "auto"
		}
		f.Model = codexModel(a)
	case "session_task.run", "session_task.user_shell", "run_task", "run_turn", "codex.compaction",
		"run_sampling_request", "try_run_sampling_request", "try_run_turn":
		f := codexFact(s, facts, fact.Step)
		f.Model = codexModel(a)
		if cwd := a.Str("cwd"); cwd != "" {
			f.SessionAttrs = &fact.SessionAttrs{WorkspaceRoot: cwd}
		}
	case "receiving_stream":
		f := codexFact(s, facts, fact.ModelCall)
		f.RequiresTurn, f.RequestID = true, "stream-"+f.SpanID
		f.End = f.Start // the span's own is after the tools that ran meanwhile
	case "handle_responses", "completed": // named after what was received in some versions
		usage := codexUsage(a, "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
			"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens",
			"codex.usage.reasoning_output_tokens", "codex.usage.total_tokens")
		if usage == nil {
			return
		}
		f := codexFact(s, facts, fact.ModelCall)
		if f.RequiresTurn, f.Usage = true, usage; f.ParentID != "" {
			f.RequestID = "stream-" + f.ParentID
		}
	default:
		// The span of a tool call has the tool's name. Only its attributes show what it is.
		name, id := a.Str("tool_name"), a.Str("call_id")
		if aborted, ok := a.Bool("aborted"); ok && name != "" && id != "" {
			f := codexFact(s, facts, fact.ToolCall)
			f.RequiresTurn, f.Aborted = true, aborted
			f.CallID, f.Tool = id, &fact.Tool{Name: name}
		}
		readCodexEvents(s, facts)
		switch s.Name() {
		case "dispatch_tool_call_with_state", "codex.turn_input", "op.dispatch.turn_input",
			"op.dispatch.inter_agent_communication":
			// These are between a tool call and the turn of the sub-agent that it starts.
			if len(facts.All) == 0 {
				codexFact(s, facts, fact.Step)
			}
		}
	}
}

// codexFact adds a fact with the ids that the spans of a turn have.
func codexFact(s *Span, facts *Emitter, kind fact.Kind) *fact.Fact {
	f := facts.Add(kind)
	f.TurnID = s.Attrs().Str("turn.id", "turn_id")
	// Some spans call the session a thread. They have the key thread.id twice: once for the thread of the operating
	// system, as a number.
	for key, v := range s.Attributes().All() {
		if key == "thread.id" && v.Type() == pcommon.ValueTypeStr && f.Session == "" {
			setSession(f, Text(v.Str()), key, "thread_id")
		}
	}
	return f
}

// setSession stores a session, unless its id is "". It is found as the key of a rank is.
func setSession(f *fact.Fact, id, key, rank string) {
	if id != "" {
		f.Session, f.SessionKey, f.SessionRank = id, key, max(0, slices.Index(SessionKeys(), rank))
	}
}

func codexAbout(a Attrs, resource pcommon.Resource) *fact.SessionAttrs {
	return &fact.SessionAttrs{Client: clientOf(resource, "codex", a.Str("app.version"))}
}

// readCodexEvents reads the events on a span: those of the records without content are there too, and are the only ones
// if records are off.
func readCodexEvents(s *Span, facts *Emitter) {
	for _, e := range s.Events().All() {
		a := Attrs{e.Attributes()}
		add := func(kind fact.Kind) *fact.Fact {
			f := codexFact(s, facts, kind)
			if f.Session == "" {
				setSession(f, a.Str("conversation.id"), "conversation.id", "conversation.id")
			}
			if n := Nanos(e.Timestamp()); n != 0 && kind != fact.Step {
				f.Start, f.End = n, n
			}
			return f
		}
		switch event := a.Str("event.name"); event {
		case "codex.user_prompt": // its text is in the record, which is in this span
			if len(facts.All) == 0 {
				f := add(fact.Step)
				f.TurnID = cmp.Or(f.TurnID, a.Str("turn.id", "turn_id"))
			}
		case "codex.tool_result":
			if a.Str("call_id") != "" {
				readCodexResult(add(fact.ToolCall), a)
			}
		default:
			readCodexEvent(event, a, s.Resource, add)
		}
	}
}

func readCodexRecord(r *Record, facts *Emitter) {
	a := r.Attrs()
	facts.stamp(a)
	facts.base.TurnID = a.Str("turn.id", "turn_id")
	switch r.Event {
	case "codex.user_prompt":
		f := facts.Add(fact.Prompt)
		if reported := a.Str("prompt"); reported != "[REDACTED]" {
			f.Input = userMessages(reported, "")
		}
		f.Model = codexModel(a)
		f.SessionAttrs = codexAbout(a, r.Resource)
	case "codex.sse_event", "codex.websocket_event":
		// Of the events of a response's stream one has the tokens, and some report an error. Every other only reports
		// that it came.
		usage := codexUsage(a, "input_token_count", "output_token_count", "cached_token_count",
			"cache_write_token_count", "reasoning_token_count", "tool_token_count")
		failure := a.Str("error.message")
		if failure == "" && (usage == nil || usage.Tokens == (session.Usage{})) {
			return // a connection that is warmed up completes without any tokens
		}
		f := facts.Add(fact.ModelCall)
		if f.Model, f.Usage = codexModel(a), usage; failure != "" {
			f.Failed, f.Error, f.ErrorType = true, failure, a.Str("event.kind")
		}
	case "codex.tool_decision":
		f := facts.Add(fact.Permission)
		f.CallID = a.Str("call_id")
		f.Decision = codexDecision(a)
	case "codex.tool_result":
		readCodexResult(facts.Add(fact.ToolCall), a)
	default:
		readCodexEvent(r.Event, a, r.Resource, facts.Add)
	}
}

// readCodexEvent reads what records and the events on spans report alike: how a conversation was set up, and requests
// that failed before anything was received. These have no stream, so that time and attempt identify them.
func readCodexEvent(event string, a Attrs, resource pcommon.Resource, add func(fact.Kind) *fact.Fact) {
	switch event {
	case "codex.conversation_starts":
		f := add(fact.Session)
		f.Model = codexModel(a)
		f.SessionAttrs = codexAbout(a, resource)
		// The policy on approvals and that on the sandbox together are what others call a mode.
		modes := []string{a.Str("approval_policy"), a.Str("sandbox_policy")}
		f.SessionAttrs.Mode = strings.Join(slices.DeleteFunc(modes, func(m string) bool { return m == "" }), ", ")
	case "codex.api_request", "codex.websocket_request":
		endpoint, message := a.Str("endpoint"), a.Str("error.message")
		if endpoint != "" && endpoint != "unknown" && !strings.Contains(endpoint, "responses") {
			return // lists of models and such are requested too
		}
		statuses := []string{"http.response.status_code", "http.status_code", "status"}
		if status := a.IntPtr(statuses...); message == "" && (status == nil || *status < 400) {
			return
		}
		f := add(fact.ModelCall)
		f.Model = codexModel(a)
		f.RequestID = "request-" + a.Str("event.timestamp") + "-" + a.Str("attempt")
		f.Failed, f.ErrorType = true, a.Str(statuses...)
		f.Error = cmp.Or(message, "status "+f.ErrorType)
		if strings.Contains(endpoint, "compact") {
			f.Purpose = "compaction"
		}
		if n := a.Int("attempt"); n > 0 {
			f.Extra = encode(map[string]int64{"attempt": n})
		}
	}
}

// codexDecision reads a decision. Versions differ in how they write the words.
func codexDecision(a Attrs) *fact.Decision {
	word := a.Str("decision")
	d := &fact.Decision{ToolName: a.Str("tool_name"), Source: a.Str("source")}
	reply := "once"
	switch w := strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(word)); {
	case w == "denied", w == "abort", w == "networkpolicydeny", hasPrefix(w, "timedout", "deniedby"):
		d.Action, d.Outcome, reply = "deny", "denied", "reject"
	case hasPrefix(w, "approved", "networkpolicy"):
		if d.Action, d.Outcome = "allow", "allowed"; w != "approved" {
			reply = "always"
		}
	default: // a decision was asked for, and its word is not known
		d.Action, reply = "ask", ""
	}
	if strings.EqualFold(d.Source, "user") {
		d.Action, d.Reply = "ask", reply
	}
	if word != "approved" && word != "denied" {
		d.Reason = word
	}
	return d
}

// codexExit is how the output of a command begins that failed: for the program its tool has succeeded.
var codexExit = lazy.Regexp(`^(?:[A-Z][a-zA-Z ]+: .*\n)*(?:Process exited with code|Exit code:) -?[1-9]`)

// readCodexResult reads the end of a tool call, which has no content in an event on a span.
func readCodexResult(f *fact.Fact, a Attrs) {
	success, reported := a.Bool("success")
	success = success && !codexExit().MatchString(a.Str("output"))
	f.CallID = a.Str("call_id")
	f.Tool = &fact.Tool{Name: a.Str("tool_name"), DurationMS: a.IntPtr("duration_ms"), Output: a.JSON("output"),
		OutputSize: a.Int("output_length"), Truncated: a.True("output_truncated"), Succeeded: success}
	if input := a.JSON("arguments"); string(input) != `""` {
		f.Tool.Input = input
	}
	if reported && !success {
		f.Failed, f.Error = true, a.Str("error.message", "output")
	}
	addExtra(f, a, "mcp_server", "mcp_server_origin")
	if f.Tool.Name == "spawn_agent" {
		started, _ := objectOf(f.Tool.Output)
		f.ChildSession = started.str("agent_id")
	}
}

func codexModel(a Attrs) *session.Model {
	if id := a.Str("model", "slug"); id != "" {
		return &session.Model{ProviderID: a.Str("provider_name"), ModelID: id}
	}
	return nil
}

// codexUsage reads counts as OpenAI's interface has them: the input includes what was cached, the output the reasoning.
func codexUsage(a Attrs, names ...string) *fact.Usage {
	if a.IntPtr(names[:2]...) == nil {
		return nil
	}
	return a.counts(names...).Usage(0)
}
