package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// genAI reads the GenAI conventions of OpenTelemetry in their versions so far, with the keys that clients use beside
// them. It is one of the last in the table and so reads agents that no client's dialect recognizes.
var genAI = Dialect{
	Name: GenAI,
	Spans: func(s *Span) bool {
		return s.Has("gen_ai", "mcp") && genAIKind(s) != "" || isClaudePlatform(s.Scope)
	},
	Records:    isGenAIRecord,
	ReadSpan:   readAnyGenAI,
	ReadRecord: readGenAIRecord,
}

// isClaudePlatform reports whether Anthropic's interface itself emits: beside its model calls and those of its tools it
// has spans of requests, which tie them to what the SDK reports of the request.
func isClaudePlatform(scope pcommon.InstrumentationScope) bool {
	return strings.HasPrefix(scope.Name(), "com.anthropic.claude-platform")
}

// GenAI is the name of the dialect of the conventions.
const GenAI = "gen-ai"

// operations are what values of gen_ai.operation.name report, "" where that is not part of a session.
var operations = meanings[fact.Kind]("operations")

// Keys of what a span reports of a tool call, the convention's first, and of an agent.
var (
	toolCallIDs = listOf("keys", "tool_call_ids")
	toolInputs  = listOf("keys", "tool_inputs")
	toolOutputs = listOf("keys", "tool_outputs")
	agentNames  = []string{"gen_ai.agent.name", "gen_ai.agent.id"}
)

// genAIKind returns what a span reports, "" for nothing, also where a single attribute of the family is on a span of
// something else.
//
// Of a tool call by MCP there may be the client's span and the span of the tool around it: without the id of the call,
// which joins the two, the client's is only a step. The server's always is, because it reports a call that some client
// makes.
func genAIKind(s *Span) fact.Kind {
	a := s.Attrs()
	method := a.Str("mcp.method.name")
	if client := s.Kind() == ptrace.SpanKindClient; method != "" && (client || s.Kind() == ptrace.SpanKindServer) {
		switch {
		case method != "tools/call":
			return ""
		case client && a.Str(toolCallIDs()...) != "":
			return fact.ToolCall
		}
		return fact.Step
	}
	operation := a.Str("gen_ai.operation.name")
	kind, known := operations()[operation]
	switch {
	case operation == "invoke_workflow" && a.Any("lk.agent_label"):
		return fact.Step // LiveKit's agent_session: the conversation, with all its turns
	case known && kind == fact.Step && a.Str(toolCallIDs()...) != "":
		return fact.ToolCall
	case known:
		return kind
	}
	if kind = genAIKindOf(s, a); kind == "" && operation != "" {
		return fact.Step
	}
	return kind
}

// genAIKindOf reports what a span reports by the attributes that it has.
func genAIKindOf(s *Span, a Attrs) fact.Kind {
	has := a.Any
	switch {
	case has("agent_loop.cycle_id", "event_loop.cycle_id"):
		return fact.Step // Strands repeats the conversation in it
	case has("gen_ai.tool.name") && (has(toolCallIDs()...) || has(toolInputs()...) || has(toolOutputs()...)),
		has("spring.ai.tool.definition.name"):
		return fact.ToolCall
	case has("pydantic_ai.all_messages", "all_messages_events"):
		return fact.Turn
	case has(agentNames...) && has("gen_ai.input.messages", "gen_ai.output.messages") &&
		!has("gen_ai.response.id", "gen_ai.response.finish_reasons"):
		return fact.Turn
	case has("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion",
		"gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.completion.0.content"):
		return fact.ModelCall
	case has("gen_ai.request.model", "gen_ai.response.model") && (has(inputTokens()...) || has(outputTokens()...) ||
		has("gen_ai.response.finish_reasons", "gen_ai.response.id")):
		return fact.ModelCall
	case a.True("gen_ai.conversation.compacted"):
		return fact.Compaction // a span of nothing else
	case !has("gen_ai.request.model", "gen_ai.system", "gen_ai.provider.name"):
		return ""
	}
	for _, e := range s.Events().All() {
		if messageEvents()[e.Name()] {
			return fact.ModelCall
		}
	}
	if has("gen_ai.request.model") && s.Status().Code() == ptrace.StatusCodeError {
		return fact.Step // what failed below it
	}
	return ""
}

// readAnyGenAI is readGenAI for spans of no other dialect. Pipecat's have their messages in attributes that are of no
// convention and no client: input, output, tools.
func readAnyGenAI(s *Span, out *Emitter) {
	readGenAI(s, out)
	if len(out.All) == 0 {
		return
	}
	f, a := &out.All[len(out.All)-1], s.Attrs()
	if (f.Kind == fact.ModelCall || f.Kind == fact.Turn) && f.Input == nil && f.History == 0 && f.Output == nil {
		named := pcommon.NewMap()
		for key, v := range a.All() {
			if !strings.Contains(key, ".") {
				v.CopyTo(named.PutEmpty(key))
			}
		}
		g := collect(Attrs{named}, noBody)
		ReadInput(f, g.asked("messages", "prompt", "input"))
		parts, finish := g.answered()
		if !a.object("final_result").has("approvals") { // Pydantic AI's requests of calls, which the model's answer has
			f.Output, f.Finish = parts, cmp.Or(f.Finish, finish)
		}
		f.ToolCatalog = cmp.Or(f.ToolCatalog, g.catalog())
	}
}

// readGenAI gives the fact of a span, and one more of a compaction before a model call.
func readGenAI(s *Span, out *Emitter) {
	a := s.Attrs()
	kind := genAIKind(s)
	if kind == "" && isClaudePlatform(s.Scope) {
		kind = fact.Step
	}
	switch kind {
	case "":
	case fact.Compaction:
		addCompacted(out, a, false)
	case fact.Step:
		f := out.Add(kind)
		f.Agent = a.Str(agentNames...)
		// The AI SDK is the one that ends the work of every agent in steps.
		f.RequiresTurn = s.Scope.Name() == "gen_ai" && a.Str("gen_ai.operation.name") == "agent_step"
		readFailure(f, s)
	case fact.ToolCall:
		f := out.Add(kind)
		readGenAITool(f, s)
		readFailure(f, s)
	default:
		addGenAI(s, out, kind, true)
	}
}

// addGenAI adds the fact of a model call or a turn that the conventions describe, and after it one of the compaction
// that a model call reports. Its content may be in events. It returns the former.
func addGenAI(s *Span, out *Emitter, kind fact.Kind, events bool) *fact.Fact {
	a := s.Attrs()
	var c conversation
	if c.readAttrs(a); events {
		c.readEvents(s.Events())
	}
	// Content that is kept elsewhere has an address. As a message, that of each call in a turn would be another prompt.
	file := fact.Part{Kind: fact.PartFile, URL: a.Str("gen_ai.output.messages_ref"), MediaType: "application/json"}
	if c.output == nil && file.URL != "" {
		c.output = []fact.Part{file}
	}
	file.URL = a.Str("gen_ai.input.messages_ref")
	if c.input == nil && file.URL != "" && (kind == fact.Turn || s.ParentSpanID().IsEmpty()) {
		c.input = []fact.Message{{Role: "user", Parts: []fact.Part{file}}}
	}
	out.Problem(c.problems...)
	compacted, summary := c.takeCompaction()
	f := out.Add(kind)
	c.fill(f)
	readGenAICall(f, s.Scope, a)
	if a.Str("openai.api.type") == "responses" && strings.HasPrefix(s.Scope.Name(), "@openlit/") {
		f.SplitPrompts() // the history has lost its answers, which came before all prompts but the last
		f.Unanswered = nil
	}
	for _, e := range s.Events().All() {
		if counts := (Attrs{e.Attributes()}); counts.Any(inputTokens()...) || counts.Any(outputTokens()...) {
			reported := genAIUsage(counts, usageBasis(s.Scope.Name(), a), counterOf(s.Scope))
			if f.Usage == nil || c.counted && reported != nil { // the last one counts
				f.Usage, c.counted = reported, true
			}
		}
	}
	readFailure(f, s)
	if events && kind == fact.ModelCall && compacted != known &&
		(compacted == news || a.True("gen_ai.conversation.compacted")) {
		at := len(out.All) - 1
		addCompacted(out, a, true).Summary = summary
		f = &out.All[at]
	}
	return f
}

// What the messages of a call show of a compaction: nothing, one that the calls before have seen, or one that they may
// not have.
const (
	nothing = iota
	known
	news
)

// takeCompaction takes the summaries of compactions out of the messages, which have them where the conversation was
// compacted. Each call since the compaction has that. So the last is known where an answer and another question follow.
func (c *conversation) takeCompaction() (shown int, summary string) {
	answered := false
	isSummary := func(p fact.Part) bool {
		if p.Kind == fact.PartCompaction {
			shown, summary, answered = news, p.Text, false
		}
		return p.Kind == fact.PartCompaction
	}
	input := c.input[:0]
	for _, m := range c.input {
		if answered = answered || m.Role == session.RoleAssistant; answered && m.Role == session.RoleUser && shown == news {
			shown = known
		}
		had := len(m.Parts)
		if m.Parts = slices.DeleteFunc(m.Parts, isSummary); had == 0 || len(m.Parts) > 0 {
			input = append(input, m)
		}
	}
	c.input = input
	c.output = slices.DeleteFunc(c.output, isSummary)
	return shown, summary
}

// addCompacted adds a compaction. since reports that the span began after it.
func addCompacted(out *Emitter, a Attrs, since bool) *fact.Compacted {
	f := out.Add(fact.Compaction)
	f.Compacted = &fact.Compacted{Since: since, Trigger: a.Str("compaction.trigger", "compaction.strategy"),
		TokensBefore: a.Int("compaction.tokens_before"), TokensAfter: a.Int("compaction.tokens_after"),
		SummarizedMessages: a.Int("compaction.messages_before")}
	if since {
		clearFailure(f)
		f.End = f.Start
		f.Usage = a.counts("anthropic.usage.compaction.input_tokens", "anthropic.usage.compaction.output_tokens", "",
			"").Usage(0)
	}
	return f.Compacted
}

// readGenAICall reads the attributes of a model call or a turn that are no content.
func readGenAICall(f *fact.Fact, scope pcommon.InstrumentationScope, a Attrs) {
	f.Agent = a.Str(agentNames...)
	f.Model = genAIModel(a)
	if f.Kind == fact.ModelCall {
		f.Scope = scope.Name()
	}
	if f.Usage = genAIUsage(a, usageBasis(scope.Name(), a), counterOf(scope)); f.Usage != nil {
		f.Usage.Lifetime = f.Kind == fact.Turn && isStrands(a)
	}
	f.CostUSD = genAICost(a)
	f.Temperature = a.Float("gen_ai.request.temperature")
	f.ResponseID, f.TurnID = a.Str("gen_ai.response.id"), a.Str("github.copilot.interaction_id", "lk.speech_id")
	f.RequestID = a.Str("anthropic.request.id")
	f.ResponseModel = a.Str("gen_ai.response.model")
	f.Finish = cmp.Or(a.Last("anthropic.message.stop_reason", "anthropic.session.turn.stop_reason",
		"gen_ai.response.finish_reasons",
		"gen_ai.response.finish_reason"), f.Finish)
	status := a.Str("gen_ai.response.status")
	f.Aborted, f.Failed = f.Aborted || isAbort(status), f.Failed || status == "failed"
	extra := object{}
	for _, key := range sections()["keys"]["extras"] {
		if v, ok := a.Value(key); ok && len(v.AsString()) <= 256 {
			extra[key] = valueJSON(v)
		}
	}
	f.Extra = encode(extra)
}

func readGenAITool(f *fact.Fact, s *Span) {
	a := s.Attrs()
	f.Agent, f.CallID = a.Str(agentNames...), a.Str(toolCallIDs()...)
	f.Tool = &fact.Tool{Name: a.Str("gen_ai.tool.name", "spring.ai.tool.definition.name"),
		Input: unwrapped(a.JSON(toolInputs()...)), Succeeded: s.Status().Code() == ptrace.StatusCodeOk}
	if name, ok := strings.CutPrefix(f.Name, "execute_tool "); ok && f.Tool.Name == "" {
		f.Tool.Name = name
	}
	if f.Tool.Name == "DynamicStructuredTool" { // LangChain's class: OpenLIT gives a call that fails the id of its run
		f.Tool.Name = ""
		if f.Failed {
			f.CallID = ""
		}
	}
	output := a.JSON(toolOutputs()...)
	if text(output) == "[object ToolMessage]" {
		output = nil // LangChain's message as OpenLIT writes it
	}
	if f.Tool.Input == nil {
		f.Tool.Input = toolContent(a.JSON("gen_ai.input.messages"), fact.PartCall, f.CallID)
	}
	output = firstRaw(output, toolContent(a.JSON("gen_ai.output.messages"), fact.PartResult, f.CallID))
	var contents []json.RawMessage
	for _, e := range s.Events().All() { // Strands reports a tool by the events of a model call
		switch ea := (Attrs{e.Attributes()}); e.Name() {
		case "gen_ai.tool.message":
			if content := ea.JSON("content"); content != nil {
				contents = append(contents, content)
			}
		case "gen_ai.choice":
			output = firstRaw(output, ea.JSON("message", "content"))
		}
	}
	if f.Tool.Input == nil && len(contents) > 0 {
		f.Tool.Input, contents = unwrapped(contents[0]), contents[1:]
	}
	if output == nil && len(contents) > 0 {
		output = contents[len(contents)-1]
	}
	setOutput(f, output)
}

// toolContent returns what a tool was given or answered that the messages of its span report: by a part of the kind, or
// as the content of the only message.
func toolContent(raw json.RawMessage, kind, callID string) json.RawMessage {
	if raw == nil {
		return nil
	}
	list, _ := elements(raw)
	for i, e := range list { // what a tool is given is no result, whatever the role
		if o, ok := objectOf(e); ok && kind == fact.PartCall {
			o["role"] = quoted("assistant")
			list[i] = encode(o)
		}
	}
	if list != nil {
		raw, _ = json.Marshal(list)
	}
	messages, _ := Messages(raw)
	for _, p := range fact.PartsOf(messages) {
		switch {
		case p.Kind == kind && callID != "" && p.CallID != "" && p.CallID != callID: // of another call
		case len(messages) > 1 && (p.Kind != kind || p.CallID == ""):
		case p.Kind == fact.PartCall:
			return p.Input
		case p.Kind == fact.PartResult && p.Error != "":
			return encode(object{"type": quoted("error-text"), "value": quoted(p.Error)})
		case p.Kind == fact.PartResult:
			return p.Output
		case p.Kind == fact.PartText:
			return TextJSON(p.Text)
		case p.Kind == fact.PartOther:
			return p.Data
		}
	}
	return nil
}

// isAbort reports whether a word for how something ended means that somebody stopped it.
func isAbort(word string) bool { return fact.FinishReason(word) == "abort" }

// clearFailure takes the failure of a span off a fact that has none itself.
func clearFailure(f *fact.Fact) { f.Failed, f.Error, f.ErrorType = false, "", "" }

// aborts are the types of errors that report that somebody stopped the work.
var aborts = setOf("aborts")

// readFailure reads an error that the span's status does not report. An exception alone is not an error: it may have
// been handled.
func readFailure(f *fact.Fact, s *Span) {
	a := s.Attrs()
	if t := a.Str("error.type"); t != "" && !f.Failed && s.Status().Code() != ptrace.StatusCodeOk {
		f.Failed, f.ErrorType = true, t
	}
	if !f.Failed {
		return
	}
	for e := range exceptions(s.Span) {
		f.Error = cmp.Or(f.Error, e.Str("exception.message"))
		f.ErrorType = cmp.Or(f.ErrorType, e.Str("exception.type"))
	}
	f.Error = cmp.Or(f.Error, a.Str("error.message", "exception.message"))
	f.Aborted = f.Aborted || aborts()[f.ErrorType] || f.ErrorType == "context canceled"
}

func genAIModel(a Attrs) *session.Model {
	return modelOf(a.Str("gen_ai.provider.name", "gen_ai.system"),
		a.Str("gen_ai.request.model", "gen_ai.response.model", "gen_ai.model_name"))
}

// modelOf returns a model of which something is known, or nil.
func modelOf(provider, id string) *session.Model {
	if provider == "" && id == "" {
		return nil
	}
	return &session.Model{ProviderID: provider, ModelID: id}
}

// Events of the conventions: those that have a message of a conversation, and two that do not have a single one.
var messageEvents = setOf("message_events")

const (
	detailsEvent   = "gen_ai.client.inference.operation.details"
	exceptionEvent = "gen_ai.client.operation.exception"
)

// HasMessage reports whether a record is an event that has one message of a conversation.
func HasMessage(r *Record) bool { return messageEvents()[r.Event] }

// isGenAIRecord reports whether the record is an event of the conventions that is part of a conversation.
func isGenAIRecord(r *Record) bool {
	return HasMessage(r) || r.Event == detailsEvent || r.Event == exceptionEvent
}

// readGenAIRecord gives what a record reports as a part of a model call, or of a turn where the record names one. The
// records of a conversation's messages are one fact each, whose Input is one message or whose Output is the answer.
func readGenAIRecord(r *Record, out *Emitter) {
	a, exception := r.Attrs(), r.Event == exceptionEvent
	c := conversation{blocks: strings.HasSuffix(r.Scope.Name(), ".anthropic")} // OpenLLMetry's
	switch {
	case r.Event == semconv.EventEvaluation:
		addEvaluation(out, a, r.Scope, r.Resource)
		return
	case exception:
	case r.Event == detailsEvent:
		if !a.Any("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions") {
			c.readAttrs(Attrs{mapOf(r.Body())})
		}
		c.readAttrs(a)
	default:
		if c.readEvent(r.Event, a, r.Body()); c.alternative {
			return
		}
	}
	out.Problem(c.problems...)
	kind := fact.ModelCall
	if operations()[a.Str("gen_ai.operation.name")] == fact.Turn && !exception {
		kind = fact.Turn
	}
	f := out.Add(kind)
	c.fill(f)
	readGenAICall(f, r.Scope, a)
	if t := a.Str("error.type"); t != "" || exception {
		f.Failed, f.ErrorType, f.Error = true, t, a.Str("error.message", "exception.message")
	}
	if exception {
		f.Error = a.Str("exception.message", "error.message")
		f.ErrorType = cmp.Or(f.ErrorType, a.Str("exception.type"))
	}
	f.Aborted = f.Aborted || aborts()[f.ErrorType] || f.ErrorType == "context canceled"
}

// Evaluations gives the facts of the scores that are events of a span, of any client.
func Evaluations(s *Span, keys *Keys) []fact.Fact {
	var out Emitter
	for _, e := range s.Events().All() {
		if e.Name() != semconv.EventEvaluation {
			continue
		}
		at := cmp.Or(Nanos(e.Timestamp()), Nanos(s.EndTimestamp()))
		out.open(fact.Fact{Dialect: genAI.Name, Name: semconv.EventEvaluation, TraceID: s.TraceID().String(),
			SpanID: s.SpanID().String(), Start: at, End: at}, e.DroppedAttributesCount(), keys, e.Attributes(), s.Scope,
			s.Resource)
		if b := &out.base; b.Session == "" {
			b.Session, b.SessionKey, b.SessionRank = keys.Find(s.Attributes())
		}
		addEvaluation(&out, Attrs{e.Attributes()}, s.Scope, s.Resource)
	}
	return out.All
}

// addEvaluation adds the score that an event reports. One that failed has none.
func addEvaluation(out *Emitter, a Attrs, scope pcommon.InstrumentationScope, resource pcommon.Resource) {
	author := Text(scope.Name())
	if author == semconv.ScopeName {
		author = "" // the SDK, and not who uses it
	}
	text := func(key attribute.Key) string { return a.Str(string(key)) }
	score := fact.Evaluated{
		Name:        cmp.Or(text(semconv.GenAIEvaluationNameKey), "evaluation"),
		Value:       a.Float(string(semconv.GenAIEvaluationValueKey)),
		Label:       text(semconv.GenAIEvaluationLabelKey),
		Explanation: text(semconv.GenAIEvaluationExplanationKey),
		Author:      cmp.Or(text(semconv.EvaluationAuthorKey), author, Service(resource)),
		MessageID:   text(semconv.MessageIDKey), Rows: text(semconv.ReplayKey),
	}
	if score.MessageID != "" {
		score.PartID = text(semconv.PartIDKey)
	}
	if score.Value == nil && score.Label == "" {
		return
	}
	f := out.Add(fact.Evaluation)
	f.ResponseID, f.Evaluation = a.Str("gen_ai.response.id"), &score
}

// conversation gathers the content of a model call or turn from the places where the versions of the conventions put
// it. What was found in one place is not read again from a later one.
type conversation struct {
	system, catalog string
	input           []fact.Message
	output          []fact.Part
	finish          string
	problems        []string
	counted         bool // the usage is that of an event
	alternative     bool // there is another candidate for the answer, which was left out
	blocks          bool // choices are numbered that are parts of one
}

func (c *conversation) fill(f *fact.Fact) {
	f.SystemPrompt, f.ToolCatalog = c.system, c.catalog
	ReadInput(f, c.input)
	f.Output, f.Finish = c.output, c.finish
}

func (c *conversation) readAttrs(a Attrs) {
	if c.system == "" {
		c.system = SystemInstructions(a.JSON(sections()["keys"]["system_prompts"]...))
	}
	if c.catalog == "" {
		c.catalog = Catalog(a.JSON(sections()["keys"]["tool_catalogs"]...))
	}
	if c.input == nil {
		c.readInput(a.JSON("gen_ai.input.messages", "gen_ai.request.messages", "gen_ai.prompt"))
	}
	if c.input == nil {
		c.input, _ = FlatMessages(a, "gen_ai.prompt.")
	}
	if c.output == nil {
		c.readOutput(a.JSON("gen_ai.output.messages", "gen_ai.completion", "gen_ai.response.text"))
		if raw := a.JSON("gen_ai.response.tool_calls"); raw != nil && a.JSON("gen_ai.output.messages") == nil {
			c.output = appendCalls(c.output, object{"tool_calls": raw})
		}
	}
	if c.output == nil {
		messages, finish := FlatMessages(a, "gen_ai.completion.")
		c.output, c.finish = fact.PartsOf(messages), cmp.Or(c.finish, finish)
	}
	if c.input == nil && c.output == nil {
		c.readWhole(a.JSON("pydantic_ai.all_messages", "all_messages_events", "events"),
			a.Int("pydantic_ai.new_message_index"))
	}
}

func (c *conversation) readInput(raw json.RawMessage) {
	messages, ok := Messages(raw)
	if c.input = append(c.input, messages...); !ok && raw != nil {
		c.problems = append(c.problems, "the input messages could not be read whole")
	}
}

func (c *conversation) readOutput(raw json.RawMessage) {
	parts, finish, ok := Output(raw)
	c.output, c.finish = append(c.output, parts...), cmp.Or(finish, c.finish)
	if !ok && raw != nil {
		c.problems = append(c.problems, "the output messages could not be read whole")
	}
}

// readWhole reads a conversation that goes on to its answer, as Pydantic AI keeps it: what follows the last message of
// the user is the answer. The messages of this run are those from begun on: where it goes on from results of tools, what
// follows them is.
func (c *conversation) readWhole(raw json.RawMessage, begun int64) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' {
		return
	}
	var events []object
	if json.Unmarshal(raw, &events) == nil && len(events) > 0 && events[0].has("event.name") {
		for _, o := range events {
			name := o.str("event.name")
			if delete(o, "event.name"); messageEvents()[name] {
				c.readMessage(name, o)
			}
		}
		return
	}
	messages, _ := Messages(raw)
	if messages != nil {
		c.input, c.output = splitAnswer(messages)
	}
	// A request with a system prompt counts as one message and is two, and results may have been added to the last one.
	i := int(begun)
	if i <= 0 || i >= len(messages) {
		return
	}
	if last := i == len(messages)-1; messages[i].Role == "assistant" && last {
		i--
	} else if messages[i].Role == "assistant" {
		i++
	}
	if messages[i].Role == "tool" {
		c.input, c.output = messages[:i+1:i+1], fact.PartsOf(messages[i+1:])
	}
}

// readEvents reads the events of a span, unless its attributes had the same.
func (c *conversation) readEvents(events ptrace.SpanEventSlice) {
	asked, answered, chosen := c.input != nil, c.output != nil, false
	for _, e := range events.All() {
		a, name, has := Attrs{e.Attributes()}, e.Name(), asked
		if name == "gen_ai.choice" || name == "gen_ai.content.completion" {
			has, chosen = answered, true
		}
		switch {
		case name == "gen_ai.tool.message" && (chosen || asked) && a.Any("tool_call_id") && a.Any("content"):
			// What a call of the answer came to.
			if id := a.Str("tool_call_id"); chosen || !slices.ContainsFunc(fact.PartsOf(c.input),
				func(p fact.Part) bool { return p.CallID == id }) {
				c.output = appendResult(c.output, object{"call_id": quoted(id), "content": a.JSON("content")})
			}
		case name == detailsEvent:
			c.readAttrs(a)
		case name == "gen_ai.tool.message" && !a.Any("content", "gen_ai.event.content", "parts"):
			// It names a call whose result is withheld.
		case messageEvents()[name] && !has:
			c.readEvent(name, a, noBody)
		}
	}
}

func (c *conversation) readEvent(name string, a Attrs, body pcommon.Value) {
	content := valueJSON(body)
	if body.Type() == pcommon.ValueTypeStr && body.Str() == "" {
		content = nil
	}
	switch name {
	case "gen_ai.content.prompt":
		prompt := firstRaw(a.JSON("gen_ai.prompt"), content)
		c.readInput(firstRaw(spoken(text(prompt)), prompt))
		return
	case "gen_ai.content.completion":
		c.readOutput(firstRaw(a.JSON("gen_ai.completion"), content))
		return
	}
	o, ok := objectOf(content)
	if !ok {
		o, ok = objectOf(a.JSON("gen_ai.event.content"))
	}
	if !ok {
		o = object{}
		for key := range a.All() {
			if raw := a.JSON(key); raw != nil {
				o[key] = raw
			}
		}
		if content != nil && !o.has("content") {
			o["content"] = content
		}
	}
	c.readMessage(name, o)
}

var speaker = lazy.Regexp(`(?m)^(system|developer|user|assistant|tool): ?`)

// spoken returns the messages of a text that has all of them, each behind its role, as OpenLIT writes a prompt; nil for
// another text.
func spoken(text string) json.RawMessage {
	begins := speaker().FindAllStringSubmatchIndex(text, -1)
	if len(begins) == 0 || begins[0][0] > 0 {
		return nil
	}
	var all []object
	for i, at := range begins {
		end := len(text)
		if i+1 < len(begins) {
			end = begins[i+1][0] - 1
		}
		all = append(all, object{"role": quoted(text[at[2]:at[3]]), "content": quoted(text[at[1]:end])})
	}
	list, _ := json.Marshal(all)
	return list
}

// readMessage reads the message that an event of this name reports.
func (c *conversation) readMessage(name string, o object) {
	r := reader{role: "assistant"}
	if name == "gen_ai.choice" {
		if c.alternative = o.isNumbered() && !c.blocks; c.alternative {
			return
		}
		r.sawFinish(o)
		if in := o.inner("message"); in != nil {
			o = in
		} else if delete(o, "role"); o.has("message") {
			o["content"] = o["message"]
		}
		if o.str("role") == "" {
			o["role"] = quoted("assistant")
		}
		c.output, c.finish = append(c.output, fact.PartsOf(r.message(o))...), cmp.Or(r.finish, c.finish)
		return
	}
	role := strings.TrimSuffix(strings.TrimPrefix(name, "gen_ai."), ".message")
	if normalRole(o.str("role")) == "" {
		o["role"] = quoted(role)
	}
	if role == "tool" && !o.has("tool_call_id") {
		o["tool_call_id"] = o["id"]
	}
	delete(o, "id") // of the call, or of nothing
	messages := r.message(o)
	if role == "user" && o.has("content") && talks(messages) && partsKnown(fact.PartsOf(messages)) == 0 {
		messages = userMessages(string(o["content"]), "") // a prompt that is JSON
	}
	if len(messages) > 1 || talks(messages) {
		c.input = append(c.input, messages...)
	}
}

// Catalog returns the tools that a source offers a model as a JSON array of objects, as [fact.Fact.ToolCatalog] has
// them: raw is that array, or one whose elements are JSON texts, names of tools or both, or an object that maps names
// to tools, or is one. It returns "" for anything else, and for no tools.
func Catalog(raw json.RawMessage) string {
	if s := strings.TrimSpace(text(raw)); s != "" {
		raw = json.RawMessage(s)
	}
	if !json.Valid(raw) {
		return ""
	}
	list, _ := elements(raw)
	if o, ok := objectOf(raw); ok {
		if inside, ok := elements(o["tools"]); ok {
			list = inside
		} else if o.inner("function") != nil || o.str("name") != "" {
			list = append(list, raw)
		} else {
			for _, name := range sortedKeys(o) {
				tool, ok := objectOf(o[name])
				if !ok {
					return ""
				}
				if !tool.has("name") {
					tool["name"] = quoted(name)
				}
				list = append(list, encode(tool))
			}
		}
	}
	tools := list[:0]
	for _, e := range list {
		if s := text(e); s != "" {
			if e = TextJSON(s); e[0] == '"' {
				e = encode(object{"name": quoted(s)})
			}
		}
		if _, ok := objectOf(e); ok {
			tools = append(tools, e)
		}
	}
	if len(tools) == 0 {
		return ""
	}
	all, _ := json.Marshal(tools)
	return string(all)
}
