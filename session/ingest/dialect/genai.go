package dialect

import (
	"cmp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// genAI reads the GenAI conventions of OpenTelemetry in their versions so far, with the keys that
// clients use beside them. It is one of the last in the table and so reads agents that no client's
// dialect recognizes.
var genAI = Dialect{
	Name:       "gen-ai",
	Title:      "OpenTelemetry GenAI conventions",
	Spans:      isGenAI,
	Records:    isGenAIRecord,
	ReadSpan:   readGenAI,
	ReadRecord: readGenAIRecord,
}

// operations are the values of gen_ai.operation.name and what they report. What maps to nothing is
// not part of a session.
var operations = valuesOf("operations", func(name string) fact.Kind {
	if name == "none" {
		return ""
	}
	return fact.Kind(name)
})

// isGenAI reports whether the span is part of an agent's work. A single attribute of the family on
// a span of something else does not make it one.
func isGenAI(s *Span) bool { return s.Has(MarkGenAI|MarkMCP) && genAIKind(s) != "" }

// genAIKind returns what a span reports, "" for nothing.
//
// Of a tool call by MCP there may be the client's span and the span of the tool around it: without
// the id of the call, which joins the two, the client's is only a step. The server's always is,
// because it reports a call that some client makes.
func genAIKind(s *Span) fact.Kind {
	a := s.Attrs()
	method := a.Str("mcp.method.name")
	if method != "" && (s.Kind() == ptrace.SpanKindServer || s.Kind() == ptrace.SpanKindClient) {
		switch {
		case method != "tools/call":
			return ""
		case s.Kind() == ptrace.SpanKindClient && a.Str(toolCallIDs...) != "":
			return fact.ToolCall
		}
		return fact.Step
	}
	operation := a.Str("gen_ai.operation.name")
	if kind, known := operations[operation]; known {
		if kind == fact.Step && a.Str(toolCallIDs...) != "" {
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
	has := a.Any
	switch {
	case has("agent_loop.cycle_id", "event_loop.cycle_id"):
		return fact.Step // Strands repeats the conversation in it
	case has("gen_ai.tool.name") && (has(toolCallIDs...) || has(toolInputs...) || has(toolOutputs...)):
		return fact.ToolCall
	case has("pydantic_ai.all_messages", "all_messages_events"):
		return fact.Turn
	case has("gen_ai.agent.name", "gen_ai.agent.id") && has("gen_ai.input.messages", "gen_ai.output.messages") &&
		!has("gen_ai.response.id", "gen_ai.response.finish_reasons"):
		return fact.Turn
	case has("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion",
		"gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.completion.0.content"):
		return fact.ModelCall
	case has("gen_ai.request.model", "gen_ai.response.model") && (has(inputTokens...) || has(outputTokens...) ||
		has("gen_ai.response.finish_reasons", "gen_ai.response.id")):
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

// readGenAI gives the fact of a span, and one more of the compaction that a model call reports.
func readGenAI(s *Span, out *Emitter) {
	kind := genAIKind(s)
	if kind == "" {
		return
	}
	a := s.Attrs()
	if kind == fact.Step {
		f := out.Add(kind)
		f.Agent = a.Str("gen_ai.agent.name", "gen_ai.agent.id")
		// The AI SDK is the one that ends the work of every agent in steps.
		f.RequiresTurn = s.Scope.Name() == "gen_ai" && a.Str("gen_ai.operation.name") == "agent_step"
		readFailure(f, s)
		return
	}
	if kind == fact.ToolCall {
		f := out.Add(kind)
		readGenAITool(f, s)
		readFailure(f, s)
		return
	}
	addGenAI(s, out, kind, true)
}

// addGenAI adds the fact of a model call or a turn that the conventions describe, and before it one
// of the compaction that a model call reports. Its content may be in events.
func addGenAI(s *Span, out *Emitter, kind fact.Kind, events bool) *fact.Fact {
	a := s.Attrs()
	var c conversation
	if c.readAttrs(a); events {
		c.readEvents(s.Events())
	}
	out.Problem(c.problems...)
	if events && a.True("gen_ai.conversation.compacted") && kind == fact.ModelCall {
		f := out.Add(fact.Compaction)
		clearFailure(f)
		f.Compacted = &fact.Compacted{Summary: c.summary()}
	}
	f := out.Add(kind)
	c.fill(f)
	readGenAICall(f, s.Scope, a)
	readFailure(f, s)
	return f
}

// readGenAICall reads the attributes of a model call or a turn that are no content.
func readGenAICall(f *fact.Fact, scope pcommon.InstrumentationScope, a Attrs) {
	f.Agent = a.Str("gen_ai.agent.name", "gen_ai.agent.id", "gen_ai.workflow.name")
	f.Model = genAIModel(a)
	if f.Usage = genAIUsage(a, usageBasis(scope.Name(), a), counterOf(scope)); f.Usage != nil {
		f.Usage.Lifetime = f.Kind == fact.Turn && isStrands(a)
	}
	f.CostUSD = genAICost(a)
	f.Temperature = a.Float("gen_ai.request.temperature")
	f.ResponseID, f.TurnID = a.Str("gen_ai.response.id"), a.Str("github.copilot.interaction_id")
	f.ResponseModel = a.Str("gen_ai.response.model")
	f.Finish = cmp.Or(a.Last("anthropic.message.stop_reason", "gen_ai.response.finish_reasons",
		"gen_ai.response.finish_reason"), f.Finish)
	status := a.Str("gen_ai.response.status")
	f.Aborted = f.Aborted || isAbort(status)
	f.Failed = f.Failed || status == "failed"
	extra := object{}
	for _, key := range extras {
		if v, ok := a.Value(key); ok && len(v.AsString()) <= 256 {
			extra[key] = valueJSON(v)
		}
	}
	f.Extra = encode(extra)
}

// extras are what no field of a fact holds and a person may ask for.
var extras = keyLists["extras"]

// Keys of what a span reports of a tool call, the convention's first.
var toolCallIDs, toolInputs, toolOutputs = keyLists["tool_call_ids"], keyLists["tool_inputs"], keyLists["tool_outputs"]

func readGenAITool(f *fact.Fact, s *Span) {
	a := s.Attrs()
	f.Agent = a.Str("gen_ai.agent.name", "gen_ai.agent.id")
	f.CallID = a.Str(toolCallIDs...)
	f.Tool = &fact.Tool{Name: a.Str("gen_ai.tool.name"), Input: unwrapped(a.JSON(toolInputs...))}
	if name, ok := strings.CutPrefix(f.Name, "execute_tool "); ok && f.Tool.Name == "" {
		f.Tool.Name = name
	}
	output := a.JSON(toolOutputs...)
	for _, e := range s.Events().All() { // Strands reports a tool by the events of a model call
		ea := Attrs{e.Attributes()}
		switch e.Name() {
		case "gen_ai.tool.message":
			f.Tool.Input = firstRaw(f.Tool.Input, unwrapped(ea.JSON("content")))
		case "gen_ai.choice":
			output = firstRaw(output, ea.JSON("message", "content"))
		}
	}
	f.Tool.Succeeded = s.Status().Code() == ptrace.StatusCodeOk
	setOutput(f, output)
}

// isAbort reports whether a word for how something ended means that somebody stopped it.
func isAbort(word string) bool { return fact.FinishReason(word) == "abort" }

// clearFailure takes the failure of a span off a fact that has none itself.
func clearFailure(f *fact.Fact) { f.Failed, f.Error, f.ErrorType = false, "", "" }

// aborts are the types of errors that report that somebody stopped the work.
var aborts = map[string]bool{
	"AbortError": true, "CancelledError": true, "asyncio.CancelledError": true,
	"asyncio.exceptions.CancelledError": true, "concurrent.futures._base.CancelledError": true,
	"context.Canceled": true, "context canceled": true, "canceled": true, "cancelled": true,
	"KeyboardInterrupt": true, "OperationCanceledException": true, "System.OperationCanceledException": true,
	"System.Threading.Tasks.TaskCanceledException": true,
}

// readFailure reads an error that the span's status does not report. An exception alone is not an
// error: it may have been handled.
func readFailure(f *fact.Fact, s *Span) {
	if t := s.Attrs().Str("error.type"); t != "" && !f.Failed && s.Status().Code() != ptrace.StatusCodeOk {
		f.Failed, f.ErrorType = true, t
	}
	if !f.Failed {
		return
	}
	for a := range exceptions(s.Span) {
		f.Error = cmp.Or(f.Error, a.Str("exception.message"))
		f.ErrorType = cmp.Or(f.ErrorType, a.Str("exception.type"))
	}
	f.Error = cmp.Or(f.Error, s.Attrs().Str("error.message", "exception.message"))
	f.Aborted = f.Aborted || aborts[f.ErrorType]
}

func genAIModel(a Attrs) *session.Model {
	return modelOf(a.Str("gen_ai.provider.name", "gen_ai.system"),
		a.Str("gen_ai.request.model", "gen_ai.response.model"))
}

// modelOf returns a model of which something is known, or nil.
func modelOf(provider, id string) *session.Model {
	if provider == "" && id == "" {
		return nil
	}
	return &session.Model{ProviderID: provider, ModelID: id}
}

// isGenAIRecord reports whether the record is an event of the conventions that is part of a
// conversation.
func isGenAIRecord(r *Record) bool {
	return messageEvent(r.Event) || r.Event == detailsEvent || r.Event == exceptionEvent
}

// HasMessage reports whether a record is an event that has one message of a conversation.
func HasMessage(r *Record) bool { return messageEvent(r.Event) }

// readGenAIRecord gives what a record reports as a part of a model call, or of a turn where the
// record names one. The records of a conversation's messages are one fact each, whose Input is one
// message or whose Output is the answer.
func readGenAIRecord(r *Record, out *Emitter) {
	a := r.Attrs()
	var c conversation
	switch {
	case r.Event == exceptionEvent:
	case r.Event == detailsEvent:
		if r.Body().Type() == pcommon.ValueTypeMap && !hasContent(a) {
			c.readAttrs(Attrs{r.Body().Map()})
		}
		c.readAttrs(a)
	case messageEvent(r.Event):
		c.readEvent(r.Event, a, r.Body())
	default:
		return
	}
	out.Problem(c.problems...)
	kind := fact.ModelCall
	if operations[a.Str("gen_ai.operation.name")] == fact.Turn && r.Event != exceptionEvent {
		kind = fact.Turn
	}
	f := out.Add(kind)
	c.fill(f)
	readGenAICall(f, r.Scope, a)
	if t := a.Str("error.type"); t != "" || r.Event == exceptionEvent {
		f.Failed, f.ErrorType, f.Error = true, t, a.Str("error.message", "exception.message")
	}
	if r.Event == exceptionEvent {
		f.Error = a.Str("exception.message", "error.message")
		f.ErrorType = cmp.Or(f.ErrorType, a.Str("exception.type"))
	}
	f.Aborted = f.Aborted || aborts[f.ErrorType]
}
