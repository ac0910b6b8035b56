package dialect

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// genAI reads the GenAI conventions of OpenTelemetry in their versions so far,
// with the keys that clients use beside them. It stands last in the table and so
// reads agents that nothing else knows.
var genAI = Dialect{
	Name:       "gen-ai",
	Title:      "OpenTelemetry GenAI conventions",
	Spans:      isGenAI,
	Records:    isGenAIRecord,
	ReadSpan:   readGenAI,
	ReadRecord: readGenAIRecord,
	Capabilities: capabilities{
		"span, log": {TopicSession, TopicModel, TopicTokens, TopicCache, TopicThinking, TopicCost, TopicFinish,
			TopicAbort},
		"span": {TopicTurn, TopicToolError, TopicCompaction},
		"opt-in: span, log": {TopicUser, TopicText, TopicReasoning, TopicToolInput, TopicToolOutput, TopicPrompt,
			TopicCatalog},
	}.byTopic(),
}

// operations are the values of gen_ai.operation.name and what they report. What
// maps to nothing is none of a session's.
var operations = byWord(map[fact.Kind]string{
	fact.ModelCall: `chat generate_content text_completion completion llm_call responses response messages generate
		generate_text stream_text generate_object stream_object`,
	fact.Turn: `invoke_agent invoke_workflow run_agent invoke_swarm invoke_graph invoke_multiagent`,
	fact.Step: `agent_step step plan agent_plan handoff apply_guardrail execute_event_loop_cycle embeddings retrieval
		rerank create_memory_store search_memory create_memory update_memory upsert_memory delete_memory
		delete_memory_store`,
	fact.ToolCall: `execute_tool tool_call tool`,
	"":            `create_agent create_thread`,
})

// isGenAI reports whether the span tells anything of an agent's work. An orphan
// attribute of the family on a span of something else does not.
func isGenAI(s *Span) bool { return s.Has(MarkGenAI|MarkMCP) && genAIKind(s) != "" }

// genAIKind returns what a span reports, "" for nothing.
//
// A call of a tool by MCP is built by the client's span as well as by the span of
// the tool around it, where there is one: without the id of the call, which joins
// the two, the client's only ties. The server's does always, because it reports a
// call that some client makes.
func genAIKind(s *Span) fact.Kind {
	a := s.Attrs()
	method := a.Str("mcp.method.name")
	if method != "" && (s.Kind() == ptrace.SpanKindServer || s.Kind() == ptrace.SpanKindClient) {
		switch {
		case method != "tools/call":
			return ""
		case s.Kind() == ptrace.SpanKindClient && a.First(toolCallIDs...) != "":
			return fact.ToolCall
		}
		return fact.Step
	}
	operation := a.Str("gen_ai.operation.name")
	if kind, known := operations[operation]; known {
		if kind == fact.Step && a.First(toolCallIDs...) != "" {
			return fact.ToolCall
		}
		return kind
	}
	if kind := genAIKindOf(s, a); kind != "" || operation == "" {
		return kind
	}
	return fact.Step
}

// genAIKindOf reports what a span reports by the attributes that it has.
func genAIKindOf(s *Span, a Attrs) fact.Kind {
	has := func(keys ...string) bool {
		for _, key := range keys {
			if _, ok := a.Value(key); ok {
				return true
			}
		}
		return false
	}
	switch {
	case has("agent_loop.cycle_id", "event_loop.cycle_id"):
		return fact.Step // Strands repeats the conversation in it
	case has("gen_ai.tool.name") && (has(toolCallIDs...) || has(toolInputs...) || has(toolOutputs...)):
		return fact.ToolCall
	case has("pydantic_ai.all_messages", "all_messages_events"):
		return fact.Turn
	case has("gen_ai.agent.name", "gen_ai.agent.id") && has("gen_ai.input.messages", "gen_ai.output.messages") && !has("gen_ai.response.id", "gen_ai.response.finish_reasons"):
		return fact.Turn
	case has("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.completion.0.content"):
		return fact.ModelCall
	case has("gen_ai.request.model", "gen_ai.response.model") && (has(inputTokens...) || has(outputTokens...) || has("gen_ai.response.finish_reasons", "gen_ai.response.id")):
		return fact.ModelCall
	}
	if has("gen_ai.request.model", "gen_ai.system", "gen_ai.provider.name") {
		for _, e := range s.Events().All() {
			if messageEvent(e.Name()) {
				return fact.ModelCall
			}
		}
	}
	return ""
}

// readGenAI gives the fact of a span, and one more of the compaction that a model
// call reports.
func readGenAI(s *Span, out *Emitter) {
	kind := genAIKind(s)
	if kind == "" {
		return
	}
	a := s.Attrs()
	if kind == fact.Step {
		f := out.Add(kind)
		f.Agent = a.First("gen_ai.agent.name", "gen_ai.agent.id")
		// The AI SDK is the one that ends the work of every agent in steps.
		f.RequiresTurn = s.Scope.Name() == "gen_ai" && a.Str("gen_ai.operation.name") == "agent_step"
		readFailure(f, s)
		return
	}
	var c conversation
	if kind != fact.ToolCall {
		c.readAttrs(a)
		c.readEvents(s.Events())
		for _, problem := range c.problems {
			out.Problem(problem)
		}
	}
	if compacted, _ := a.Bool("gen_ai.conversation.compacted"); compacted && kind == fact.ModelCall {
		f := out.Add(fact.Compaction)
		f.Failed, f.Error, f.ErrorType = false, "", ""
		f.Compacted = &fact.Compacted{Summary: c.summary()}
	}
	f := out.Add(kind)
	if kind == fact.ToolCall {
		readGenAITool(f, s)
	} else {
		c.fill(f)
		readGenAICall(f, s.Scope, a)
	}
	readFailure(f, s)
}

// readGenAICall reads the attributes of a model call or a turn that are no content.
func readGenAICall(f *fact.Fact, scope pcommon.InstrumentationScope, a Attrs) {
	f.Agent = a.First("gen_ai.agent.name", "gen_ai.agent.id", "gen_ai.workflow.name")
	f.Model = genAIModel(a)
	if f.Usage = genAIUsage(a, usageBasis(scope.Name(), a), counterOf(scope)); f.Usage != nil {
		f.Usage.Lifetime = f.Kind == fact.Turn && isStrands(a)
	}
	f.CostUSD = genAICost(a)
	f.Temperature = a.Float("gen_ai.request.temperature")
	f.ResponseID = a.Str("gen_ai.response.id")
	f.ResponseModel = a.Str("gen_ai.response.model")
	for _, key := range []string{"anthropic.message.stop_reason", "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason"} {
		for _, word := range a.Strings(key) {
			if word != "" {
				f.Finish = word
			}
		}
	}
	switch a.Str("gen_ai.response.status") {
	case "cancelled", "canceled":
		f.Aborted = true
	case "failed":
		f.Failed = true
	}
	f.Extra = genAIExtra(a)
}

// Keys of what a span reports of a tool call, the convention's first.
var (
	toolCallIDs = []string{"gen_ai.tool.call.id", "gen_ai.tool.call_id"}
	toolInputs  = []string{"gen_ai.tool.call.arguments", "gen_ai.tool.arguments", "gen_ai.tool.input", "gen_ai.tool.parameters", "tool_arguments"}
	toolOutputs = []string{"gen_ai.tool.call.result", "gen_ai.tool.result", "gen_ai.tool.output", "gen_ai.tool.response", "tool_response"}
)

func readGenAITool(f *fact.Fact, s *Span) {
	a := s.Attrs()
	f.Agent = a.First("gen_ai.agent.name", "gen_ai.agent.id")
	f.CallID = a.First(toolCallIDs...)
	f.Tool = &fact.Tool{Name: a.Str("gen_ai.tool.name"), Input: unwrapped(a.FirstJSON(toolInputs...))}
	if name, ok := strings.CutPrefix(f.Name, "execute_tool "); ok && f.Tool.Name == "" {
		f.Tool.Name = name
	}
	output := a.FirstJSON(toolOutputs...)
	for _, e := range s.Events().All() { // Strands tells a tool by the events of a model call
		ea := attrsOf(e.Attributes())
		switch e.Name() {
		case "gen_ai.tool.message":
			if f.Tool.Input == nil {
				f.Tool.Input = unwrapped(ea.JSON("content"))
			}
		case "gen_ai.choice":
			if output == nil {
				output = ea.FirstJSON("message", "content")
			}
		}
	}
	f.Tool.Succeeded = s.Status().Code() == ptrace.StatusCodeOk
	if output == nil {
		return
	}
	var p fact.Part
	setResult(&p, output, false)
	f.Tool.Output, f.Tool.Denied = p.Output, p.Denied
	if p.Error != "" {
		if f.Failed = f.Failed || !p.Denied; f.Error == "" {
			f.Error = p.Error
		}
	}
}

// aborts are the types of errors that report that somebody stopped the work.
var aborts = map[string]bool{
	"AbortError": true, "CancelledError": true, "asyncio.CancelledError": true, "asyncio.exceptions.CancelledError": true,
	"concurrent.futures._base.CancelledError": true, "context.Canceled": true, "context canceled": true, "canceled": true, "cancelled": true,
	"KeyboardInterrupt": true, "OperationCanceledException": true, "System.OperationCanceledException": true, "System.Threading.Tasks.TaskCanceledException": true,
}

// readFailure reads an error that the span's status does not tell. An exception
// alone is none: it may have been handled.
func readFailure(f *fact.Fact, s *Span) {
	if t := s.Attrs().Str("error.type"); t != "" && !f.Failed && s.Status().Code() != ptrace.StatusCodeOk {
		f.Failed, f.ErrorType = true, t
	}
	if !f.Failed {
		return
	}
	for _, e := range s.Events().All() {
		if e.Name() == "exception" {
			a := attrsOf(e.Attributes())
			if f.Error == "" {
				f.Error = a.Str("exception.message")
			}
			if f.ErrorType == "" {
				f.ErrorType = a.Str("exception.type")
			}
		}
	}
	if f.Error == "" {
		f.Error = s.Attrs().First("error.message", "exception.message")
	}
	f.Aborted = f.Aborted || aborts[f.ErrorType]
}

func genAIModel(a Attrs) *session.Model {
	m := session.Model{
		ProviderID: a.First("gen_ai.provider.name", "gen_ai.system"),
		ModelID:    a.First("gen_ai.request.model", "gen_ai.response.model"),
	}
	if m == (session.Model{}) {
		return nil
	}
	return &m
}

// isGenAIRecord reports whether the record is an event of the conventions that tells
// anything of a conversation.
func isGenAIRecord(r *Record) bool {
	return strings.HasPrefix(r.Event, "gen_ai.") && (messageEvent(r.Event) || r.Event == detailsEvent || r.Event == exceptionEvent)
}

// HasMessage reports whether a record is an event that tells one message of a
// conversation.
func HasMessage(r *Record) bool { return messageEvent(r.Event) }

// readGenAIRecord gives what a record reports as a part of a model call, or of a turn
// where the record names one. The records of a conversation's messages are one
// fact each, whose Input is one message or whose Output is the answer.
func readGenAIRecord(r *Record, out *Emitter) {
	a := r.Attrs()
	var c conversation
	switch {
	case r.Event == exceptionEvent:
		f := out.Add(fact.ModelCall)
		readGenAICall(f, r.Scope, a)
		f.Failed = true
		f.Error = a.First("exception.message", "error.message")
		f.ErrorType = a.First("error.type", "exception.type")
		f.Aborted = f.Aborted || aborts[f.ErrorType]
		return
	case r.Event == detailsEvent:
		if r.Body().Type() == pcommon.ValueTypeMap && !hasContent(a) {
			c.readAttrs(attrsOf(r.Body().Map()))
		}
		c.readAttrs(a)
	case messageEvent(r.Event):
		c.readEvent(r.Event, a, r.Body())
	default:
		return
	}
	for _, problem := range c.problems {
		out.Problem(problem)
	}
	kind := fact.ModelCall
	if k, known := operations[a.Str("gen_ai.operation.name")]; known && k == fact.Turn {
		kind = k
	}
	f := out.Add(kind)
	c.fill(f)
	readGenAICall(f, r.Scope, a)
	if f.Finish == "" {
		f.Finish = c.finish
	}
	if t := a.Str("error.type"); t != "" {
		f.Failed, f.ErrorType, f.Error = true, t, a.First("error.message", "exception.message")
		f.Aborted = f.Aborted || aborts[t]
	}
}
