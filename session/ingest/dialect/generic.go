package dialect

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Generic is the name of the dialect that reads what no other knows. What it made is marked with
// it.
const Generic = "generic"

// generic reads what no other dialect knows, so that a session of a client that nobody here has
// tried is shown. It goes by what attributes are called, by their last words, and by the shape of
// their values; never by the client. What it makes is marked with its name.
//
// Ordinary spans must not become sessions: a query and its result are a search as well as a
// question and its answer. So attributes of the families of words.txt are not looked at,
// and what remains must be evidence of a model or an agent: see [evidence.conversation].
var generic = Dialect{
	Name:       Generic,
	Title:      "any other client, by the names of its attributes",
	Spans:      isGeneric,
	Records:    isGenericRecord,
	ReadSpan:   readGeneric,
	ReadRecord: readGenericRecord,
}

// evidence is what the names of attributes, and the shapes of their values, report what a span is.
type evidence struct {
	fields   uint64 // bits of field
	ordinary bool   // the span has attributes of a program that is no agent
	roles    bool   // a value holds messages with roles
	kind     genericSpanKind
}

func (e *evidence) has(all ...field) bool {
	for _, f := range all {
		if e.fields&(1<<f) != 0 {
			return true
		}
	}
	return false
}

func (e *evidence) look(m pcommon.Map) {
	for key, v := range m.All() {
		if isOrdinary(key) {
			e.ordinary = true
			continue
		}
		f := fieldOf(key)
		switch {
		case f == fieldNone:
			continue
		case f == fieldKind:
			if v.Type() == pcommon.ValueTypeStr {
				// Several may be on a span, those of what it belongs to among them: an agent's tool
				// is a tool.
				e.kind = max(e.kind, genericKind(v.Str()))
			}
			continue
		case f >= fieldInputTokens && f <= fieldTemperature && f != fieldUsage:
			if t := v.Type(); t == pcommon.ValueTypeMap || t == pcommon.ValueTypeSlice || t == pcommon.ValueTypeEmpty {
				continue
			}
		case !holdsText(v):
			continue
		}
		e.fields |= 1 << f
		if !e.roles && isTalk(f) {
			e.roles = holdsRoles(v)
		}
	}
}

// isTalk reports whether a field is a side of a conversation.
func isTalk(f field) bool {
	return f == fieldInput || f == fieldPrompt || f == fieldOutput || f == fieldAnswer || f == fieldMessages
}

// holdsRoles reports whether a value looks like messages with roles.
func holdsRoles(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		s := strings.TrimLeft(v.Str(), " \t\r\n")
		return s != "" && (s[0] == '[' || s[0] == '{') && strings.Contains(s, `"role"`)
	case pcommon.ValueTypeMap:
		if _, ok := v.Map().Get("role"); ok {
			return true
		}
		for _, e := range v.Map().All() {
			if e.Type() == pcommon.ValueTypeSlice && holdsRoles(e) {
				return true
			}
		}
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0 && v.Slice().At(0).Type() != pcommon.ValueTypeSlice && holdsRoles(v.Slice().At(0))
	}
	return false
}

// conversation reports whether the evidence is of a model or an agent.
func (e *evidence) conversation() bool {
	var (
		answered = e.has(fieldOutput, fieldAnswer)
		asked    = e.has(fieldInput, fieldPrompt, fieldMessages)
		content  = asked || answered || e.has(fieldSystem, fieldReasoning)
		model    = e.has(fieldModel, fieldResponseModel)
		agent    = e.kind != kindUnknown && e.kind != kindOther || e.has(fieldAgent)
	)
	switch {
	case e.roles || e.modelCall(model, content):
		return true
	case e.has(fieldToolName, fieldCallID) && (content || e.has(fieldToolInput, fieldToolOutput)) &&
		(e.own(model, agent) || e.has(fieldCallID)):
		return true
	case e.has(fieldPrompt, fieldAnswer), asked && answered:
		return e.own(model, agent)
	case agent && (content || model), e.has(fieldSession) && content:
		return !e.ordinary
	}
	return false
}

// modelCall reports whether the evidence is of a call of a model: its tokens with the model or
// content, the model with content, or tokens of both directions.
func (e *evidence) modelCall(model, content bool) bool {
	tokens := e.has(fieldInputTokens, fieldOutputTokens) || e.has(fieldUsage) && model
	return tokens && (model || content) || model && content || e.has(fieldInputTokens) && e.has(fieldOutputTokens)
}

// own reports whether the span has what ordinary programs have nothing of, or nothing of an
// ordinary program.
func (e *evidence) own(model, agent bool) bool {
	return !e.ordinary || model || agent || e.has(fieldInputTokens, fieldOutputTokens, fieldSession)
}

// conventionKinds are the keys by which conventions state what a span is.
var conventionKinds = keyLists["kinds"]

// isGeneric reports whether a span is of a conversation. Nearly all that it sees are not: what has
// no attribute but those of ordinary families costs nothing but a look at their first words, which
// was had before.
func isGeneric(s *Span) bool {
	if !s.Has(^MarkOrdinary) && s.Events().Len() == 0 {
		return false
	}
	// A convention that states what the span is, and whose dialect did not take it, shows that it
	// is not part of a session: an embedding, a list of tools.
	if s.Has(^(MarkOrdinary | MarkOther)) && s.Attrs().Str(conventionKinds...) != "" {
		return false
	}
	e := genericEvidence(s)
	return e.conversation() || isGenericSession(s, &e)
}

func genericEvidence(s *Span) evidence {
	var e evidence
	e.look(s.Attributes())
	for _, event := range s.Events().All() {
		if name := event.Name(); name == "exception" || event.Attributes().Len() == 0 {
			continue
		}
		var of evidence
		of.look(event.Attributes())
		speaker := of.has(fieldRole) || isTalk(fieldOf(event.Name()))
		if of.roles || of.has(fieldPrompt, fieldAnswer, fieldMessages) || speaker && of.has(fieldContent) {
			e.fields |= of.fields | 1<<fieldMessages
			e.roles = e.roles || of.has(fieldRole)
		}
	}
	return e
}

// isGenericSession reports whether a span reports nothing but that there is a conversation: a span
// that nothing is above names one, and is no ordinary program's. A session.id alone is every
// browser's too.
func isGenericSession(s *Span, e *evidence) bool {
	return !e.ordinary && e.has(fieldSession) && s.ParentSpanID().IsEmpty() &&
		(e.kind == kindAgent || e.kind == kindModel || e.has(fieldModel, fieldAgent))
}

func readGeneric(s *Span, out *Emitter) {
	e := genericEvidence(s)
	g := collectScope(s.Attrs(), noBody, s.Scope)
	g.events(s)
	out.genericSession(g)
	if !e.conversation() {
		f := out.Add(fact.Session)
		g.about(f, s)
		return
	}
	f := out.Add(g.kindOf(s, &e))
	g.about(f, s)
	if f.Kind == fact.Turn && f.Agent == "" && e.kind == kindAgent && genericKind(s.Name()) == kindUnknown &&
		len(s.Name()) <= 100 {
		f.Agent = Text(s.Name())
	}
	switch f.Kind {
	case fact.ToolCall:
		g.tool(f, Text(s.Name()))
	case fact.Step:
	default:
		g.call(f)
	}
	readFailure(f, s)
	// Laminar reports an error by the exception alone, and leaves the status unset.
	message := ""
	for a := range exceptions(s.Span) {
		message = a.Str("exception.message", "exception.type")
	}
	g.failure(f, message)
}

// genericSession finds the session by the end of a key where no known key names it.
func (f *Emitter) genericSession(g *genericReading) {
	if key := g.keys[fieldSession]; key != "" && f.base.Session == "" {
		// Any known key, wherever it is, is a better one.
		f.base.Session, f.base.SessionKey, f.base.SessionRank = g.str(fieldSession), Text(key), genericSessionRank
	}
}

// genericSessionRank is beyond the rank of every known key in every place.
const genericSessionRank = 1 << 20

// genericReading is what attributes hold, by what they mean.
type genericReading struct {
	values map[field][]pcommon.Value
	keys   map[field]string // of the first value
	// counter is who counts the tokens.
	counter string
	// reported are messages that are in events.
	reported []fact.Message
	flat     []fact.Message
}

// collect reads attributes, and the body of a record.
func collect(a Attrs, body pcommon.Value) *genericReading {
	g := &genericReading{values: make(map[field][]pcommon.Value), keys: make(map[field]string)}
	g.add(a.Map)
	g.add(mapOf(body))
	return g
}

// collectScope does the same with what a span or record of a scope has, and reads the messages that
// are spread over its attributes.
func collectScope(a Attrs, body pcommon.Value, scope pcommon.InstrumentationScope) *genericReading {
	g := collect(a, body)
	g.counter, g.flat = counterOf(scope), flatTalk(a)
	return g
}

// noBody is the body of what has none.
var noBody = pcommon.NewValueEmpty()

var noMap = pcommon.NewMap()

// mapOf returns a value that is a map, or an empty map, which must not be changed.
func mapOf(v pcommon.Value) pcommon.Map {
	if v.Type() == pcommon.ValueTypeMap {
		return v.Map()
	}
	return noMap
}

func (g *genericReading) add(m pcommon.Map) {
	for key, v := range m.All() {
		if isOrdinary(key) || v.Type() == pcommon.ValueTypeEmpty {
			continue
		}
		if f := fieldOf(key); f != fieldNone {
			if len(g.values[f]) == 0 {
				g.keys[f] = key
			}
			g.values[f] = append(g.values[f], v)
		}
	}
}

// all returns the values of fields, those of the first field first.
func (g *genericReading) all(fields ...field) iter.Seq[pcommon.Value] {
	return func(yield func(pcommon.Value) bool) {
		for _, f := range fields {
			for _, v := range g.values[f] {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// structOf returns a value that is an object, or text that is one in JSON.
func structOf(v pcommon.Value) (object, bool) {
	if v.Type() != pcommon.ValueTypeStr && v.Type() != pcommon.ValueTypeMap {
		return nil, false
	}
	return objectOf(valueJSON(v))
}

// flatTalk reads messages that are spread over attributes by their index, as prefix.N.role and
// prefix.N.content.
func flatTalk(a Attrs) []fact.Message {
	prefix := ""
	for key := range a.All() {
		head, ok := strings.CutSuffix(key, ".role")
		if !ok {
			continue
		}
		i := strings.LastIndexByte(head, '.')
		if i <= 0 {
			continue
		}
		if _, err := strconv.Atoi(head[i+1:]); err == nil && (prefix == "" || head[:i+1] < prefix) &&
			isTalk(fieldOf(head[:i])) {
			prefix = head[:i+1]
		}
	}
	if prefix == "" {
		return nil
	}
	messages, _ := FlatMessages(a, prefix)
	return messages
}

// events reads the messages that are in a span's events: a role and a content, or an input or
// output.
func (g *genericReading) events(s *Span) {
	for _, event := range s.Events().All() {
		a := Attrs{event.Attributes()}
		if event.Name() == "exception" || a.Len() == 0 {
			continue
		}
		g.reported = append(g.reported, talkOf(a, noBody, event.Name())...)
	}
}

// talkOf returns the messages of an event or a record: by its attributes, its body or, for whose
// they are, its name.
func talkOf(a Attrs, body pcommon.Value, name string) (messages []fact.Message) {
	g := collect(a, body)
	role := cmp.Or(normalRole(g.str(fieldRole)), namedRoles[fieldOf(name)])
	var content json.RawMessage
	if values := g.values[fieldContent]; len(values) > 0 {
		content = valueJSON(values[0])
	} else if body.Type() == pcommon.ValueTypeStr {
		content = valueJSON(body)
	}
	if role != "" && !isNull(content) {
		r := reader{role: role}
		message := object{"content": content, "role": quoted(role)}
		if id := g.str(fieldCallID); id != "" {
			message["tool_call_id"] = quoted(id)
		}
		return r.message(message)
	}
	messages = g.asked(fieldMessages, fieldPrompt, fieldInput)
	if parts, _ := g.answered(); parts != nil {
		messages = append(messages, fact.Message{Role: "assistant", Parts: parts})
	}
	return messages
}

// namedRoles are whose message an event is by what its name means.
var namedRoles = map[field]string{
	fieldPrompt: "user", fieldInput: "user", fieldAnswer: "assistant", fieldOutput: "assistant",
	fieldSystem: "system", fieldToolOutput: "tool",
}

// str returns the first text of a field.
func (g *genericReading) str(fields ...field) string {
	for v := range g.all(fields...) {
		if v.Type() == pcommon.ValueTypeMap || v.Type() == pcommon.ValueTypeSlice {
			continue
		}
		if s := Text(v.AsString()); strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

// kindOf reports what a span reports: by the client's own word, else by what it has.
func (g *genericReading) kindOf(s *Span, e *evidence) fact.Kind {
	root, name := s.ParentSpanID().IsEmpty(), strings.ToLower(s.Name())
	agent := e.has(fieldAgent) || namesAgent(name)
	model := e.has(fieldModel, fieldResponseModel)
	switch e.kind {
	case kindModel:
		if root && agent && !model {
			return fact.Turn // what an agent does by chatting
		}
		return fact.ModelCall
	case kindTool:
		return fact.ToolCall
	case kindAgent:
		return fact.Turn
	case kindChain:
		if root {
			return fact.Turn
		}
		return fact.Step
	case kindOther:
		return fact.Step
	}
	return g.kindByContent(name, e, root, agent, model)
}

// kindByContent is kindOf where the client has no word for the kind of the span.
func (g *genericReading) kindByContent(name string, e *evidence, root, agent, model bool) fact.Kind {
	tokens := e.has(fieldInputTokens, fieldOutputTokens, fieldUsage)
	switch {
	case e.has(fieldCallID) || e.has(fieldToolName) && !tokens && (e.has(fieldToolInput, fieldToolOutput) || !root):
		return fact.ToolCall
	case !root && !model && !tokens && namesTool(name):
		return fact.ToolCall
	case root && agent && !e.roles:
		return fact.Turn
	case tokens, model, g.isExchange():
		return fact.ModelCall
	case root, agent, e.has(fieldPrompt, fieldAnswer), e.has(fieldSession) && g.plain():
		return fact.Turn
	}
	return fact.Step
}

// namesAgent and namesTool report what a span's name in lower case speaks of.
func namesAgent(name string) bool {
	return strings.Contains(name, "agent") || strings.Contains(name, "workflow") || strings.Contains(name, "turn")
}

func namesTool(name string) bool {
	return strings.HasPrefix(name, "tool") || strings.HasSuffix(name, "tool") ||
		strings.HasPrefix(name, "execute_tool") || strings.HasPrefix(name, "function")
}

func (g *genericReading) isExchange() bool {
	for v := range g.all(fieldOutput, fieldAnswer) {
		if o, _ := structOf(v); o.has("choices", "candidates") || o.has("usage") && o.has("model") {
			return true
		}
	}
	return false
}

// plain reports whether what was asked and answered are texts.
func (g *genericReading) plain() bool {
	text := func(v pcommon.Value) bool {
		return v.Type() == pcommon.ValueTypeStr && !hasPrefix(v.Str(), "{", "[")
	}
	return slices.ContainsFunc(g.values[fieldInput], text) && slices.ContainsFunc(g.values[fieldOutput], text)
}

// about reads whose session it is, and who speaks.
func (g *genericReading) about(f *fact.Fact, s *Span) {
	setUser(f, g.str(fieldUser))
	if agent := g.str(fieldAgent); f.Kind != fact.ToolCall && agent != "" && len(agent) <= 200 {
		f.Agent = agent
	}
	if s != nil && (f.Kind == fact.Turn || f.Kind == fact.Session || f.Kind == fact.ModelCall) &&
		s.Scope.Name() != "" {
		aboutOf(f).Client = strings.TrimSpace(Text(s.Scope.Name()) + " " + Text(s.Scope.Version()))
	}
	if id := g.str(fieldModel, fieldResponseModel); id != "" && f.Kind != fact.ToolCall {
		f.Model = modelOf(g.str(fieldProvider), id)
	}
}

func (g *genericReading) call(f *fact.Fact) {
	order := []field{fieldMessages, fieldPrompt, fieldInput}
	if f.Kind == fact.Turn {
		order = []field{fieldPrompt, fieldInput, fieldMessages}
	}
	asked := g.asked(order...)
	if asked == nil {
		if asked = g.reported; asked == nil {
			asked = g.flat
		}
	}
	parts, finish := g.answered()
	if parts == nil && len(g.reported) > 0 && len(asked) == len(g.reported) {
		asked, parts = splitAnswer(asked) // the messages of events are all that there is
	}
	if system := g.str(fieldSystem); system != "" {
		f.SystemPrompt = SystemInstructions(TextJSON(system))
	}
	ReadInput(f, asked)
	f.Output = append(appendText(nil, fact.PartReasoning, g.str(fieldReasoning)), parts...)
	if f.Finish = finish; finish == "" {
		for v := range g.all(fieldFinish) {
			for _, word := range stringsOf(v) {
				f.Finish = word
			}
		}
	}
	f.ToolCatalog = g.catalog()
	f.Usage = g.usage()
	if f.Kind == fact.ModelCall {
		g.exchange(f)
		f.ResponseID = g.str(fieldResponseID)
	}
	f.ResponseModel = cmp.Or(g.str(fieldResponseModel), f.ResponseModel)
	f.Temperature, f.CostUSD = g.number(fieldTemperature), g.number(fieldCost)
	if f.CostUSD != nil && *f.CostUSD < 0 {
		f.CostUSD = nil
	}
}

// exchange fills in what the request to a provider and its response state, where they were recorded
// as they are.
func (g *genericReading) exchange(f *fact.Fact) {
	body := func(fields ...field) (body object) {
		for v := range g.all(fields...) {
			if o, ok := objectOf(valueJSON(v)); ok {
				return o
			}
		}
		return nil
	}
	request, response := body(fieldInput, fieldPrompt, fieldMessages), body(fieldAnswer, fieldOutput)
	f.Model = cmp.Or(f.Model, modelOf("", request.str("model", "modelId")))
	f.ResponseModel = cmp.Or(f.ResponseModel, response.str("model", "modelVersion"))
	f.ResponseID = cmp.Or(f.ResponseID, response.str("id", "responseId"))
	usage := response.inner("usage", "usageMetadata", "usage_metadata", "token_usage")
	if f.Usage == nil && usage != nil {
		t := make(tally)
		t.object(usage, 2)
		f.Usage = t.usage(g.counter+" response", encode(usage))
	}
}

func (g *genericReading) asked(fields ...field) []fact.Message {
	for _, f := range fields {
		var best []fact.Message
		for _, v := range g.values[f] {
			raw := valueJSON(v)
			messages, ok := Messages(raw)
			if !ok || !talks(messages) {
				messages = nil
				if s := innerText(raw, true, 3); s != "" {
					messages = []fact.Message{{Role: "user", Parts: appendText(nil, fact.PartText, s)}}
				}
			}
			if best == nil || knownOf(messages) > knownOf(best) {
				best = messages
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

func (g *genericReading) answered() (parts []fact.Part, finish string) {
	for _, f := range []field{fieldAnswer, fieldOutput} {
		for _, v := range g.values[f] {
			raw := valueJSON(v)
			more, why, ok := output(raw)
			if !ok || len(more) == 0 {
				more = appendText(nil, fact.PartText, innerText(raw, false, 3))
			}
			if partsKnown(more) > partsKnown(parts) {
				parts = more
			}
			finish = cmp.Or(why, finish)
		}
		if parts != nil {
			break
		}
	}
	return parts, finish
}

// innerText finds the text in an object of no known shape: that of a member that is called as an
// input or output is, or else the object as it is, so that nothing is dropped.
func innerText(raw json.RawMessage, input bool, depth int) string {
	if s := text(raw); s != "" {
		return s
	}
	o, ok := objectOf(raw)
	if !ok || depth == 0 {
		if isNull(raw) || len(raw) <= 2 {
			return ""
		}
		return Text(string(raw))
	}
	wanted := []field{fieldPrompt, fieldInput, fieldMessages, fieldContent}
	if !input {
		wanted = []field{fieldAnswer, fieldOutput, fieldContent}
	}
	for _, f := range wanted {
		for _, key := range sortedKeys(o) {
			if fieldOf(key) == f && o.has(key) {
				if s := innerText(o[key], input, depth-1); s != "" {
					return s
				}
			}
		}
	}
	if len(o) == 0 {
		return ""
	}
	return Text(string(raw))
}

func (g *genericReading) catalog() string {
	for v := range g.all(fieldTools) {
		if c := Catalog(valueJSON(v)); c != "" {
			return c
		}
	}
	for v := range g.all(fieldMessages, fieldInput, fieldPrompt) {
		o, _ := structOf(v)
		if c := Catalog(o.first("tools", "functions")); c != "" {
			return c
		}
	}
	return ""
}

func (g *genericReading) number(f field) *float64 {
	for _, v := range g.values[f] {
		if n := number(v.AsString()); n != nil {
			return n
		}
	}
	return nil
}

// tool reads a call of a tool. spanName is "" for a record.
func (g *genericReading) tool(f *fact.Fact, spanName string) {
	first := func(fields ...field) json.RawMessage {
		for v := range g.all(fields...) {
			if raw := valueJSON(v); !isNull(raw) {
				o, _ := objectOf(raw)
				return firstRaw(typedValue(o), raw)
			}
		}
		return nil
	}
	f.CallID = g.str(fieldCallID)
	f.Tool = &fact.Tool{Name: cmp.Or(g.str(fieldToolName), toolOfName(spanName)),
		Input: unwrapped(first(fieldToolInput, fieldInput, fieldPrompt))}
	if !f.Failed {
		setOutput(f, first(fieldToolOutput, fieldOutput, fieldAnswer))
	}
	f.Tool.Succeeded = !f.Failed && f.Tool.Output != nil
}

// toolOfName returns the name of the tool in the name of its span: what follows "tool", a colon or
// a space.
func toolOfName(name string) string {
	if i := strings.LastIndexByte(name, ':'); i >= 0 && i < len(name)-1 {
		name = name[i+1:]
	}
	for _, prefix := range []string{"execute_tool ", "tool_call ", "tool.", "tool ", "call "} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			return strings.TrimSpace(rest)
		}
	}
	return strings.TrimSpace(name)
}

// failure reads an error that the span's status does not report: an error's text where an answer
// should be.
func (g *genericReading) failure(f *fact.Fact, exception string) {
	message := cmp.Or(g.str(fieldError), exception)
	if message == "" || f.Kind == fact.Step {
		return
	}
	if f.Failed {
		f.Error = cmp.Or(f.Error, message)
	} else if len(f.Output) == 0 && (f.Tool == nil || f.Tool.Output == nil) {
		f.Failed, f.Error = true, message
		if f.Tool != nil {
			f.Tool.Succeeded = false
		}
	}
}
