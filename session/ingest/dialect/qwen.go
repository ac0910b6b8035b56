package dialect

import (
	"cmp"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// qwenCode reads Qwen Code. Its spans follow the GenAI conventions, with the content where its user asked for it; its
// events are those of Gemini CLI, of which it is made, under names of its own. Only an event reports why a tool failed,
// or a tool that was never run. What its sub-agents do names them, in spans and events.
var qwenCode = Dialect{
	Name:        "qwen-code",
	Prompts:     true,
	PromptFirst: true,
	Spans: func(s *Span) bool {
		return s.Scope.Name() == qwenName || strings.HasPrefix(s.Name(), qwenPrefix)
	},
	Records: func(r *Record) bool {
		return r.Scope.Name() == qwenName || strings.HasPrefix(r.Event, qwenPrefix)
	},
	ReadSpan:   readQwenSpan,
	ReadRecord: readQwenRecord,
}

const (
	qwenName   = "qwen-code"
	qwenPrefix = "qwen-code."
)

// qwenSubagent finds the sub-agent in the id of a prompt: that of the session, its own, and a count.
var qwenSubagent = lazy.Regexp(`^[^#]+#([^#]+)#\d+$`)

func readQwenSpan(s *Span, out *Emitter) {
	a := s.Attrs()
	content := func(kind fact.Kind) *fact.Fact {
		f := addGenAI(s, out, kind, false)
		qwenAbout(f, a)
		return f
	}
	switch s.Name() {
	case "qwen-code.interaction":
		f := content(fact.Turn)
		f.Agent = "" // its name is the client's, also where it speaks of a model's
		f.Model = cmp.Or(modelOf("", a.Str("qwen-code.model")), f.Model)
		f.Aborted = f.Aborted || isAbort(a.Str("qwen-code.turn_status"))
	case "qwen-code.llm_request":
		f := content(fact.ModelCall)
		f.RequiresTurn = a.Str("llm_request.context") == "interaction"
		if a.IntPtr("thoughts_token_count") != nil {
			f.Usage = a.counts("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
				"gen_ai.usage.cache_read.input_tokens", "", "thoughts_token_count").Usage(0)
		}
		// The client gathers the text of a stream before the thoughts that led to it.
		rank := map[string]int{fact.PartReasoning: -1}
		f.Output = session.SortedRows(f.Output, func(p, q *fact.Part) int { return rank[p.Kind] - rank[q.Kind] })
	case "qwen-code.subagent":
		// Without an id, the spans below it show what is the sub-agent's.
		f := content(fact.Turn)
		f.Subagent, f.SubagentID = "", a.Str("qwen-code.subagent.id")
		f.StartedBy = a.Str("qwen-code.subagent.invoking_request_id")
	case "qwen-code.tool", "qwen-code.tool.execution":
		f := out.Add(fact.ToolCall)
		qwenAbout(f, a)
		readGenAITool(f, s)
		f.Agent, f.RequiresTurn = "", true
		f.CallID = cmp.Or(f.CallID, a.Str("tool.call_id", "call_id"))
		f.Tool.Name = cmp.Or(f.Tool.Name, a.Str("tool_name", "tool.name"))
		if readFailure(f, s); f.Error == "Tool execution failed" {
			f.Error = "" // so it is whatever went wrong
		}
		f.ErrorType = cmp.Or(a.Str("error_type"), f.ErrorType)
	case "qwen-code.hook":
		// That a hook answered nothing is no failure of the tool that it was asked about.
	default:
		if s.Scope.Name() == qwenName {
			out.Add(fact.Step).Failed = false
		}
	}
}

// qwenAbout reads which prompt of the user, or which sub-agent, something is of.
func qwenAbout(f *fact.Fact, a Attrs) {
	id := a.Str("qwen-code.prompt_id", "prompt_id")
	f.Agent = a.Str("subagent_name", "gen_ai.subagent.name")
	switch of := qwenSubagent().FindStringSubmatch(id); {
	case of != nil:
		f.SubagentID = of[1]
		name := of[1]
		if own := geminiSubagent().FindStringSubmatch(of[1] + "#0"); own != nil {
			name = own[1]
		}
		f.Agent = cmp.Or(f.Agent, name)
	case f.Agent != "":
		f.Subagent = f.Agent
	case geminiPromptID().MatchString(id):
		f.TurnID = id
	}
}

func readQwenRecord(r *Record, out *Emitter) {
	a := r.Attrs()
	add := func(kind fact.Kind) *fact.Fact {
		f := out.Add(kind)
		qwenAbout(f, a)
		return f
	}
	switch strings.TrimPrefix(r.Event, qwenPrefix) {
	case "user_prompt":
		add(fact.Prompt).Input = userMessages(a.Str("prompt"), "")
	case "api_response":
		f := add(fact.ModelCall)
		f.ResponseID, f.ResponseModel = a.Str("response_id"), a.Str("model")
		f.Output = appendText(nil, fact.PartText, a.Str("response_text"))
		f.Usage = a.counts("input_token_count", "output_token_count", "cached_content_token_count", "",
			"thoughts_token_count", "total_token_count").WithThoughts().Usage(0)
	case "api_error", "api_cancel":
		f := add(fact.ModelCall)
		f.Model = modelOf("", a.Str("model"))
		f.Failed, f.Error = true, a.Str("error_message", "error.message", "error")
		f.ErrorType = a.Str("error_type", "error.type")
		f.Aborted = strings.HasSuffix(r.Event, "cancel") || aborts()[f.ErrorType]
	case "tool_call":
		// It alone knows why the call failed, and is all there is of a call that was never run.
		success, known := a.Bool("success")
		f := add(fact.ToolCall)
		f.CallID = a.Str("call_id")
		f.Tool = &fact.Tool{Name: a.Str("function_name"), Input: unwrapped(a.JSON("function_args")), Succeeded: success}
		if a.Str("execution_status") != "not_started" {
			f.Tool.DurationMS = a.IntPtr("duration_ms")
		}
		if known && !success {
			f.Failed, f.Aborted = true, a.Str("status") == "cancelled"
			f.Error, f.ErrorType = a.Str("error", "error.message"), a.Str("error_type", "error.type")
		}
		if decision := geminiDecision(a.Str("decision")); decision != nil {
			if decision.Outcome == "denied" {
				f.Tool.Denied, f.Failed = true, false
			}
			decision.ToolName = f.Tool.Name
			p := add(fact.Permission)
			p.CallID, p.Decision = a.Str("call_id"), decision
		}
	case "chat_compression":
		out.Add(fact.Compaction).Compacted = &fact.Compacted{TokensBefore: counted(a.IntPtr("tokens_before")),
			TokensAfter: counted(a.IntPtr("tokens_after"))}
	}
}
