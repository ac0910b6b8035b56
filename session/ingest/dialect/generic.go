package dialect

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Generic is the name of the dialect that reads what no other knows. What it made is marked with it.
const Generic = "generic"

// generic reads what no other dialect knows, so that a session of a client that nobody here has tried is shown. It goes
// by what attributes are called, by their last words, and by the shape of their values; never by the client. What it
// makes is marked with its name.
//
// Ordinary spans must not become sessions: a query and its result are a search as well as a question and its answer. So
// attributes of the families of words.txt are not looked at, and what remains must be evidence of a model or an agent:
// see [genericReading.conversation].
var generic = Dialect{
	Name:       Generic,
	Spans:      isGeneric,
	Records:    isGenericRecord,
	ReadSpan:   readGeneric,
	ReadRecord: readGenericRecord,
}

// genericReading is what attributes hold, by what they mean.
type genericReading struct {
	values map[string][]pcommon.Value
	keys   map[string]string // of the first value

	// What the names, and the shapes of the values, are evidence of.
	held     map[string]bool // the fields with something in them
	ordinary bool            // there are attributes of a program that is no agent
	roles    bool            // a value holds messages with roles
	kind     string
	called   string // the name of the span
	template bool   // it is a template, which states the kind
	fault    string // an error in the place of an answer

	counter        string         // who counts the tokens
	reported, flat []fact.Message // those in events, and those that are spread over attributes
}

// noBody is the body of what has none.
var noBody, noMap = pcommon.NewValueEmpty(), pcommon.NewMap()

// mapOf returns a value that is a map, or an empty map, which must not be changed.
func mapOf(v pcommon.Value) pcommon.Map {
	if v.Type() == pcommon.ValueTypeMap {
		return v.Map()
	}
	return noMap
}

// collect reads attributes, and the body of a record.
func collect(a Attrs, body pcommon.Value) *genericReading {
	g := &genericReading{values: map[string][]pcommon.Value{}, keys: map[string]string{}, held: map[string]bool{}}
	g.add(a.Map)
	g.add(mapOf(body))
	return g
}

// collectScope does the same with what a span or record of a scope has, and reads the messages that are spread over its
// attributes.
func collectScope(a Attrs, body pcommon.Value, scope pcommon.InstrumentationScope) *genericReading {
	g := collect(a, body)
	g.counter, g.flat = counterOf(scope), flatTalk(a)
	return g
}

func (g *genericReading) add(m pcommon.Map) {
	for key, v := range m.All() {
		if isOrdinary(key) {
			g.ordinary = true
			continue
		}
		f := fieldOf(key)
		if f == "" || v.Type() == pcommon.ValueTypeEmpty {
			continue
		}
		if g.values[f] = append(g.values[f], v); len(g.values[f]) == 1 {
			g.keys[f] = key
		}
		holds := holdsText(v)
		switch {
		case f == "kind":
			// Several may be on a span, those of what it belongs to among them: an agent's tool is a tool.
			if kind := genericKind(v.Str()); slices.Index(kindOrder, kind) > slices.Index(kindOrder, g.kind) {
				g.kind = kind
			}
			holds = false
		case f == "cost", f == "temperature", slices.Contains(tokenFields, f):
			holds = v.Type() != pcommon.ValueTypeMap && v.Type() != pcommon.ValueTypeSlice
		}
		g.held[f] = g.held[f] || holds
		g.roles = g.roles || holds && isTalk(f) && holdsRoles(v)
	}
}

func (g *genericReading) has(fields ...string) bool {
	return slices.ContainsFunc(fields, func(f string) bool { return g.held[f] })
}

// isTalk reports whether a field is a side of a conversation.
func isTalk(f string) bool {
	return slices.Contains([]string{"input", "prompt", "output", "answer", "messages"}, f)
}

func holdsText(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return strings.TrimSpace(v.Str()) != ""
	case pcommon.ValueTypeMap:
		return v.Map().Len() > 0
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0
	}
	return false
}

// holdsRoles reports whether a value looks like messages with roles.
func holdsRoles(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return hasPrefix(strings.TrimLeft(v.Str(), " \t\r\n"), "[", "{") && strings.Contains(v.Str(), `"role"`)
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
func (g *genericReading) conversation() bool {
	var (
		answered = g.has("output", "answer")
		asked    = g.has("input", "prompt", "messages")
		content  = asked || answered || g.has("system", "reasoning")
		model    = g.has("model", "response_model")
		tokens   = g.has("input_tokens", "output_tokens")
		agent    = g.has("agent") || !slices.Contains([]string{"", "other"}, g.kind)
		// own is what ordinary programs have nothing of, or nothing of an ordinary program.
		own = !g.ordinary || model || agent || tokens || g.has("session")
	)
	switch isTool := g.has("tool_name") && own || g.has("call_id"); {
	case g.roles, model && (content || tokens || g.has("usage")), tokens && content,
		g.has("input_tokens") && g.has("output_tokens"), isTool && (content || g.has("tool_input", "tool_output")):
		return true
	case g.has("prompt", "answer"), asked && answered:
		return own
	}
	return (agent && (content || model) || g.has("session") && content) && !g.ordinary
}

// isGeneric reports whether a span is of a conversation. Nearly all that it sees are not: what has no attribute of a
// conversation costs nothing but a look at their names.
func isGeneric(s *Span) bool {
	weak := []string{"", "session", "user"} // what is no evidence by itself
	some := s.Events().Len() > 0 || strings.Contains(s.Name(), "{name")
	for key := range s.Attributes().All() {
		some = some || !isOrdinary(key) && !slices.Contains(weak, fieldOf(key))
	}
	if !some {
		return false
	}
	// A convention that states what the span is, and whose dialect did not take it, shows that it is not part of a
	// session: an embedding, a list of tools.
	if s.Attrs().Str(sections()["keys"]["kinds"]...) != "" {
		return false
	}
	g := collectSpan(s)
	// A span that nothing is above may report nothing but that there is a conversation: it names one, and is no
	// ordinary program's. A session.id alone is every browser's too.
	return g.conversation() || g.template || !g.ordinary && g.has("session") && s.ParentSpanID().IsEmpty() &&
		(g.kind == "agent" || g.kind == "model" || g.has("model", "agent"))
}

// collectSpan reads the attributes of a span, and the evidence in its events.
func collectSpan(s *Span) *genericReading {
	g := collect(s.Attrs(), noBody)
	g.readName(s)
	for name, a := range talkEvents(s) {
		of := collect(a, noBody)
		speaker := of.has("role") || isTalk(fieldOf(name))
		if of.roles || of.has("prompt", "answer", "messages") || speaker && of.has("content") {
			maps.Copy(g.held, of.held)
			g.held["messages"] = true
			g.roles = g.roles || of.has("role")
		}
	}
	return g
}

// readName reads the name of a span. Logfire's may be the template of a message, which is no name of anything. Those of
// its spans of OpenAI's agents state what the attribute name is the name of:
//
//	OpenAI Agents trace: {name}    Agent run: {name!r}    Function: {name}
func (g *genericReading) readName(s *Span) {
	a := s.Attrs()
	head, field, template := strings.Cut(s.Name(), "{")
	if g.called = Text(s.Name()); !template || !a.Any("logfire.msg_template", "logfire.msg") {
		return
	}
	g.called = a.Str("name", "logfire.msg")
	kind, key := genericKind(head), "name"
	f := map[string]string{"tool": "tool_name", "agent": "agent"}[kind]
	if f == "" || !strings.HasPrefix(field, "name") {
		return
	}
	if g.kind, g.template = kind, true; strings.HasSuffix(head, "trace: ") { // of a workflow
		f, key, g.called = "session", "group_id", ""
	}
	if v, ok := a.Value(key); ok && v.AsString() != "null" {
		g.values[f], g.keys[f], g.held[f] = []pcommon.Value{v}, key, true
	}
}

// talkEvents are the events of a span that may have messages, by their names.
func talkEvents(s *Span) iter.Seq2[string, Attrs] {
	return func(yield func(string, Attrs) bool) {
		for _, e := range s.Events().All() {
			if e.Name() != "exception" && e.Attributes().Len() > 0 && !yield(e.Name(), Attrs{e.Attributes()}) {
				return
			}
		}
	}
}

func readGeneric(s *Span, out *Emitter) {
	g := collectSpan(s)
	g.counter, g.flat = counterOf(s.Scope), flatTalk(s.Attrs())
	for name, a := range talkEvents(s) {
		g.reported = append(g.reported, talkOf(a, noBody, name)...)
	}
	out.genericSession(g)
	if !g.conversation() && !g.template {
		g.about(out.Add(fact.Session), s)
		return
	}
	f := out.Add(g.kindOf(s))
	g.about(f, s)
	if f.Kind == fact.Turn && f.Agent == "" && g.kind == "agent" && genericKind(g.called) == "" &&
		len(g.called) <= 100 {
		f.Agent = g.called
	}
	// Laminar reports an error by the exception alone, and leaves the status unset.
	message := ""
	for a := range exceptions(s.Span) {
		message = a.Str("exception.message", "exception.type")
	}
	switch f.Kind {
	case fact.ToolCall:
		if g.template && message != "" { // the output is what the model is told of it, and the status that it failed
			f.Failed, f.Error = true, message
		}
		g.tool(f, g.called)
	case fact.Step:
	default:
		g.call(f)
	}
	readFailure(f, s)
	g.failure(f, message)
	for v := range g.all("output") { // of Haystack's component that calls tools
		o, _ := structOf(v)
		messages, _ := Messages(o["tool_messages"])
		for _, p := range fact.PartsOf(messages) {
			if p.Kind == fact.PartResult {
				f := out.Add(fact.ToolCall)
				f.CallID, f.Tool = p.CallID, &fact.Tool{Name: p.Name, Output: p.Output, Succeeded: p.Error == ""}
				f.Failed, f.Error = p.Error != "", p.Error
			}
		}
	}
}

// genericSession finds the session by the end of a key where no known key names it.
func (f *Emitter) genericSession(g *genericReading) {
	const rank = 1 << 20 // beyond that of every known key in every place, which are better ones
	if key := g.keys["session"]; key != "" && f.base.Session == "" {
		f.base.Session, f.base.SessionKey, f.base.SessionRank = g.str("session"), Text(key), rank
	}
}

// isGenericRecord reports whether a log record is of a conversation. Programs log much, and a text in a record is not
// necessarily a message: it needs a role, or a name that nothing else has.
func isGenericRecord(r *Record) bool {
	if r.Attributes().Len() == 0 && r.Body().Type() != pcommon.ValueTypeMap {
		return false
	}
	g := collect(r.Attrs(), r.Body())
	if g.ordinary && !g.has("session", "model") {
		return false
	}
	if isAPIError(r) && (g.has("model") || g.has("session") && !g.ordinary) {
		return true
	}
	content := g.has("content") || r.Body().Type() == pcommon.ValueTypeStr
	switch {
	case g.roles, g.has("role") && content && normalRole(g.str("role")) != "":
		return true
	case g.has("model", "response_model") && g.has("input_tokens", "output_tokens", "usage",
		"prompt", "answer", "messages"):
		return true
	case g.isToolRecord():
		return true
	}
	return g.has("prompt", "answer") && (g.has("session") || g.kind != "" || !r.TraceID().IsEmpty())
}

// isAPIError reports whether the record is, by its name, that of a request to a model that failed.
func isAPIError(r *Record) bool { return strings.HasSuffix(r.Event, "api_error") }

func (g *genericReading) isToolRecord() bool {
	return g.has("tool_name") && g.has("tool_input", "tool_output", "call_id")
}

// readGenericRecord reads a record as a part of a model call, of a turn or of a tool's call. Messages of the user or
// answers of the model alone are facts of their own.
func readGenericRecord(r *Record, out *Emitter) {
	g := collectScope(r.Attrs(), r.Body(), r.Scope)
	out.genericSession(g)
	out.base.RequestID = r.Attrs().Str("request_id", "request.id", "requestId")
	if g.isToolRecord() && !g.roles {
		f := out.Add(fact.ToolCall)
		g.about(f, nil)
		g.tool(f, "")
		return
	}
	if isAPIError(r) {
		a := r.Attrs()
		f := out.Add(fact.ModelCall)
		g.about(f, nil)
		g.call(f)
		f.ErrorType = a.Str("error.type", "error_type", "error_class", "error.code", "error_code", "status_code")
		f.Failed = true
		f.Error = cmp.Or(a.Str("error.message", "error_message", "error", "message"), g.str("error"), f.ErrorType)
		f.Aborted = aborts()[f.ErrorType]
		return
	}
	g.reported = talkOf(r.Attrs(), r.Body(), r.Event)
	has := func(role string) bool {
		return slices.ContainsFunc(g.reported, func(m fact.Message) bool { return m.Role == role })
	}
	measured := g.has("model", "response_model", "input_tokens", "output_tokens", "usage")
	kind := fact.ModelCall
	switch asked, answered := has("user"), has("assistant"); {
	case measured || asked == answered:
	case asked:
		kind = fact.Prompt
	default:
		kind = fact.Answer
	}
	f := out.Add(kind)
	g.about(f, nil)
	switch kind {
	case fact.Prompt:
		ReadInput(f, g.reported)
	case fact.Answer:
		f.Output = fact.PartsOf(g.reported)
	default:
		g.call(f)
	}
	g.failure(f, "")
}

// all returns the values of fields, those of the first field first.
func (g *genericReading) all(fields ...string) iter.Seq[pcommon.Value] {
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

// str returns the first text of a field.
func (g *genericReading) str(fields ...string) string {
	for v := range g.all(fields...) {
		if v.Type() == pcommon.ValueTypeMap || v.Type() == pcommon.ValueTypeSlice {
			continue
		}
		s := Text(v.AsString())
		if plain := text(json.RawMessage(s)); plain != "" { // some write every value as JSON
			s = plain
		}
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

func (g *genericReading) number(f string) *float64 {
	for _, v := range g.values[f] {
		o, _ := structOf(v) // {"input_cost": 0.01, "total_cost": 0.03}
		if n := number(cmp.Or(string(o.first("total_cost", "total")), v.AsString())); n != nil {
			return n
		}
	}
	return nil
}

// structOf returns a value that is an object, or text that is one in JSON.
func structOf(v pcommon.Value) (object, bool) {
	if v.Type() != pcommon.ValueTypeStr && v.Type() != pcommon.ValueTypeMap {
		return nil, false
	}
	return objectOf(valueJSON(v))
}

// flatTalk reads messages that are spread over attributes by their index, as prefix.N.role and prefix.N.content.
func flatTalk(a Attrs) []fact.Message {
	prefix := ""
	for key := range a.All() {
		head, ok := strings.CutSuffix(key, ".role")
		i := strings.LastIndexByte(head, '.')
		if !ok || i <= 0 || prefix != "" && head[:i+1] >= prefix {
			continue
		}
		if _, err := strconv.Atoi(head[i+1:]); err == nil && isTalk(fieldOf(head[:i])) {
			prefix = head[:i+1]
		}
	}
	if prefix == "" {
		return nil
	}
	messages, _ := FlatMessages(a, prefix)
	return messages
}

// namedRoles are whose message an event is by what its name means.
var namedRoles = map[string]string{
	"prompt": "user", "input": "user", "answer": "assistant", "output": "assistant",
	"system": "system", "tool_output": "tool",
}

// talkOf returns the messages of an event or a record, a role and a content or an input or output: by its attributes,
// its body or, for whose they are, its name.
func talkOf(a Attrs, body pcommon.Value, name string) (messages []fact.Message) {
	g := collect(a, body)
	role := cmp.Or(normalRole(g.str("role")), namedRoles[fieldOf(name)])
	// The body may say what the record is, where an attribute has the text.
	own := map[string][]string{"user": {"messages", "prompt", "input"}, "assistant": {"messages", "answer"}}[role]
	var content json.RawMessage
	if values := g.values["content"]; len(values) > 0 {
		content = valueJSON(values[0])
	} else if body.Type() == pcommon.ValueTypeStr && !g.has(own...) {
		content = valueJSON(body)
	}
	if role != "" && !isNull(content) {
		message := object{"content": content, "role": quoted(role)}
		if id := g.str("call_id"); id != "" {
			message["tool_call_id"] = quoted(id)
		}
		return new(reader).message(message)
	}
	messages = g.asked("messages", "prompt", "input")
	if parts, _ := g.answered(); parts != nil {
		messages = append(messages, fact.Message{Role: "assistant", Parts: parts})
	}
	return messages
}

// genericFacts are what kinds of spans report.
var genericFacts = map[string]fact.Kind{"model": fact.ModelCall, "tool": fact.ToolCall, "agent": fact.Turn,
	"chain": fact.Step, "other": fact.Step}

// kindOf reports what a span reports: by the client's own word, else by what it has.
func (g *genericReading) kindOf(s *Span) fact.Kind {
	root, name := s.ParentSpanID().IsEmpty(), strings.ToLower(s.Name())
	agent := g.has("agent") || strings.Contains(name, "agent") || strings.Contains(name, "workflow") ||
		strings.Contains(name, "turn")
	model := g.has("model", "response_model")
	switch named := genericFacts[g.kind]; {
	case g.kind == "model" && root && agent && !model, g.kind == "chain" && root:
		return fact.Turn // what an agent does by chatting, or by a chain
	case named != "":
		return named
	}
	tokens := g.has("input_tokens", "output_tokens", "usage")
	isTool := hasPrefix(name, "tool", "execute_tool", "function") || strings.HasSuffix(name, "tool")
	switch {
	case g.has("call_id"), g.has("tool_name") && !tokens && (!root || g.has("tool_input", "tool_output")),
		isTool && !root && !model && !tokens:
		return fact.ToolCall
	case root && agent && !g.roles:
		return fact.Turn
	case tokens, model, g.isExchange():
		return fact.ModelCall
	case root, agent, g.has("prompt", "answer"), g.has("session") && g.plain():
		return fact.Turn
	}
	return fact.Step
}

func (g *genericReading) isExchange() bool {
	for v := range g.all("output", "answer") {
		if o, _ := structOf(v); o.has("choices", "candidates", "replies") || o.has("usage") && o.has("model") {
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
	return slices.ContainsFunc(g.values["input"], text) && slices.ContainsFunc(g.values["output"], text)
}

// about reads whose session it is, and who speaks.
func (g *genericReading) about(f *fact.Fact, s *Span) {
	setUser(f, g.str("user"))
	if f.Kind == fact.ToolCall {
		return
	}
	if agent := g.str("agent"); agent != "" && len(agent) <= 200 {
		f.Agent = agent
	}
	if s != nil && f.Kind != fact.Step && s.Scope.Name() != "" {
		aboutOf(f).Client = strings.TrimSpace(Text(s.Scope.Name()) + " " + Text(s.Scope.Version()))
	}
	if id := g.str("model", "response_model"); id != "" {
		f.Model = modelOf(g.str("provider"), id)
	}
}

func (g *genericReading) call(f *fact.Fact) {
	order := []string{"messages", "prompt", "input"}
	if f.Kind == fact.Turn {
		order = []string{"prompt", "input", "messages"}
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
	if system := g.str("system"); system != "" {
		f.SystemPrompt = SystemInstructions(TextJSON(system))
	}
	ReadInput(f, asked)
	f.Output = append(appendText(nil, fact.PartReasoning, g.str("reasoning")), parts...)
	f.Finish = finish
	for v := range g.all("finish") {
		if words := stringsOf(v); finish == "" && len(words) > 0 {
			f.Finish = words[len(words)-1]
		}
	}
	f.ToolCatalog = g.catalog()
	f.Usage = g.usage()
	if f.Kind == fact.ModelCall {
		g.exchange(f)
		f.ResponseID = g.str("response_id")
	}
	f.ResponseModel = cmp.Or(g.str("response_model"), f.ResponseModel)
	f.Temperature = g.number("temperature")
	if cost := g.number("cost"); cost != nil && *cost >= 0 {
		f.CostUSD = cost
	}
}

// exchange fills in what the request to a provider and its response state, where they were recorded as they are.
func (g *genericReading) exchange(f *fact.Fact) {
	body := func(fields ...string) (body object) {
		for v := range g.all(fields...) {
			if o, ok := objectOf(valueJSON(v)); ok {
				return o
			}
		}
		return nil
	}
	request, response := body("input", "prompt", "messages"), body("answer", "output")
	f.Model = cmp.Or(f.Model, modelOf("", request.str("model", "modelId")))
	// Haystack's generators state what they know of a reply in it, or where it is a text beside it.
	replies := append(objectsOf(response["replies"]), objectsOf(response["meta"])...)
	if len(replies) > 0 && response.has("replies") {
		if response = replies[0]; response.has("meta") {
			response = response.inner("meta")
		}
		f.Model = cmp.Or(f.Model, modelOf("", response.str("model")))
		f.Finish = cmp.Or(f.Finish, finishOf(response))
	}
	f.ResponseModel = cmp.Or(f.ResponseModel, response.str("model", "modelVersion"))
	usage := response.inner("usage", "usageMetadata", "usage_metadata", "token_usage")
	if f.Usage == nil && usage != nil {
		t := make(tally)
		t.object(usage, 2)
		f.Usage = t.usage(g.counter+" response", encode(usage))
	}
}

// usage reads the counts of tokens of a call or a turn, nil if there are none.
func (g *genericReading) usage() *fact.Usage {
	t, raw := make(tally), object{}
	for _, f := range tokenFields {
		for _, v := range g.values[f] {
			if n, ok := intOf(v); ok && t.add(f, n) {
				raw[Text(g.keys[f])] = valueJSON(v)
			}
		}
	}
	for _, v := range g.values["usage"] {
		if o, ok := structOf(v); ok {
			t.object(o, 2)
			raw[Text(g.keys["usage"])] = valueJSON(v)
		}
	}
	return t.usage(g.counter, encode(raw))
}

func (g *genericReading) asked(fields ...string) []fact.Message {
	for _, f := range fields {
		var best []fact.Message
		for _, v := range g.values[f] {
			raw := ofComponent(valueJSON(v))
			messages, ok := Messages(raw)
			if !ok || !talks(messages) {
				messages = userMessages(innerText(raw, true, 3), "")
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
	for _, f := range []string{"answer", "output"} {
		for _, v := range g.values[f] {
			raw := ofComponent(valueJSON(v))
			if o, _ := objectOf(raw); len(o) == 1 && o.str("error") != "" {
				g.fault = o.str("error")
				continue
			}
			more, why, ok := Output(raw)
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

// ofComponent returns what the first of the components of a pipeline was given, or returned, that takes part in a
// conversation, of an object of objects by the names of components, and of all else what it got.
func ofComponent(raw json.RawMessage) json.RawMessage {
	all, _ := objectOf(raw)
	for _, name := range sortedKeys(all) {
		o, ok := objectOf(all[name])
		if !ok || isTalk(fieldOf(name)) || all.isMessage() || all.isWrapper() {
			return raw
		}
		for key := range o {
			if isTalk(fieldOf(key)) || o.isWrapper() {
				return all[name]
			}
		}
	}
	return raw
}

// innerText finds the text in an object of no known shape: that of a member that is called as an input or output is, or
// else the object as it is, so that nothing is dropped.
func innerText(raw json.RawMessage, input bool, depth int) string {
	if input {
		raw = arguments(raw)
	}
	if s := text(raw); s != "" {
		return s
	}
	o, ok := objectOf(raw)
	if isNull(raw) || len(raw) <= 2 || ok && len(o) == 0 {
		return ""
	}
	wanted := []string{"prompt", "input", "messages", "content"}
	if !input {
		wanted = []string{"answer", "output", "content"}
	}
	keys := sortedKeys(o)
	if len(keys) == 1 && len(o[keys[0]]) <= 2 { // an empty list of messages
		return text(o[keys[0]])
	}
	for _, f := range wanted {
		for _, key := range keys {
			if fieldOf(key) == f && o.has(key) && depth > 0 {
				if s := innerText(o[key], input, depth-1); s != "" {
					return s
				}
			}
		}
	}
	return Text(string(raw))
}

func (g *genericReading) catalog() string {
	for v := range g.all("tools") {
		if c := Catalog(valueJSON(v)); c != "" {
			return c
		}
	}
	for v := range g.all("messages", "input", "prompt") {
		o, _ := structOf(v)
		if c := Catalog(o.first("tools", "functions")); c != "" {
			return c
		}
	}
	return ""
}

// tool reads a call of a tool. spanName is "" for a record.
func (g *genericReading) tool(f *fact.Fact, spanName string) {
	first := func(fields ...string) json.RawMessage {
		for v := range g.all(fields...) {
			if raw := valueJSON(v); !isNull(raw) {
				o, _ := objectOf(raw)
				return firstRaw(typedValue(o), raw)
			}
		}
		return nil
	}
	f.CallID = g.str("call_id")
	f.Tool = &fact.Tool{Name: cmp.Or(g.str("tool_name"), toolOfName(spanName)),
		Input: arguments(unwrapped(first("tool_input", "input", "prompt")))}
	if !f.Failed {
		setOutput(f, first("tool_output", "output", "answer"))
	}
	f.Tool.Succeeded = !f.Failed && f.Tool.Output != nil
}

// toolOfName returns the name of the tool in the name of its span: what follows "tool", a colon or a space.
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

// failure reads an error that the span's status does not report: an error's text where an answer should be.
func (g *genericReading) failure(f *fact.Fact, exception string) {
	message := cmp.Or(g.str("error"), exception, g.fault)
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

// names are what the last words of names mean to the generic reading, ordinary the first words of those that mean
// nothing to it, and genericKinds kinds of spans. Of several kinds that a span's attributes name, the last in kindOrder
// takes precedence.
var (
	names, genericKinds = meanings[string]("fields"), meanings[string]("kinds")
	ordinary            = setOf("ordinary")
	kindOrder           = []string{"", "agent", "chain", "other", "tool", "model"}
)

// isOrdinary reports whether a key is of a program that is no agent. A key with an underscore belongs to the family
// before that too: db_statement, http_request.
func isOrdinary(key string) bool {
	if f := family(key); f != "" {
		return ordinary()[f]
	}
	return hasPrefix(key, "http_", "db_", "sql_", "rpc_", "grpc_", "url_", "net_", "k8s_", "aws_", "kafka_", "redis_")
}

// wordBytes is how much of a name counts: its end.
const wordBytes = 96

// words is a name in lower case without separators, and where its words begin. Making one allocates
// nothing, for every name is looked at of what no dialect knows.
type words struct {
	text   [wordBytes]byte
	begins [wordBytes]uint8
	n, len int
}

func (w *words) read(name string) {
	if len(name) > wordBytes {
		name = name[len(name)-wordBytes:]
	}
	before := byte('.')
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '.' || c == ':' || c == '_' || c == '-' || c == '/' || c == ' ':
			before = '.'
			continue
		case before == '.', c >= 'A' && c <= 'Z' && (before < 'A' || before > 'Z'):
			w.begins[w.len] = uint8(w.n)
			w.len++
		}
		before = c
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		w.text[w.n] = c
		w.n++
	}
}

// fieldOf returns what a name of an attribute, or of a member of JSON, means by the longest of its ends that means
// anything.
func fieldOf(name string) string {
	const maxWords = 4
	var w words
	w.read(name)
	for from := max(0, w.len-maxWords); from < w.len; from++ {
		if f, known := names()[string(w.text[w.begins[from]:w.n])]; known {
			return f
		}
	}
	return ""
}

// genericKind returns the kind of span that a client calls by a word.
func genericKind(word string) string {
	if len(word) > 40 {
		return ""
	}
	var w words
	w.read(strings.Trim(word, `"`)) // some write every value as JSON
	return genericKinds()[string(w.text[:w.n])]
}
