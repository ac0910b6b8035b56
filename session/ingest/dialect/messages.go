package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Messages reads the messages of a conversation in any of the shapes in which clients write them: those of the GenAI
// conventions, the AI SDK (model and UI messages, prompt objects), OpenAI (chat and responses), Anthropic, Gemini,
// Bedrock, Genkit and LangChain, requests and responses that hold them, plain text, one message instead of a list, and
// JSON in a JSON string. Which shape it is, is asked of each message and each part, never of the client.
//
// Roles come out as user, assistant, system and tool. What has no role is the user's, unless its parts can only be an
// assistant's or a tool's. Results of tools that are in a message of the user become messages of role tool. Parts
// without anything in them are dropped; a message that had nothing else stays, without parts. A message of the system
// that calls tools is the assistant's.
//
// It is not ok when raw is nothing of all that, or was cut short: then messages is what is before the cut, with as much
// of the last text as there is.
func Messages(raw json.RawMessage) (messages []fact.Message, ok bool) {
	r := reader{role: "user"}
	return r.read(raw)
}

// nameResults gives the results that name no call the ids of the calls before them, in their order, or that of the
// call of the tool that they name: OpenLIT and Langfuse write the message of a tool without the call that it answers.
func nameResults(messages []fact.Message) {
	var calls []*fact.Part
	for _, m := range messages {
		if m.Role != "tool" {
			calls = nil
		}
		for i := range m.Parts {
			p := &m.Parts[i]
			if p.Kind == fact.PartCall && p.CallID != "" {
				calls = append(calls, p)
			} else if p.Kind == fact.PartResult {
				at := slices.IndexFunc(calls, func(c *fact.Part) bool {
					return c.CallID == p.CallID || p.CallID == "" && (p.Name == "" || p.Name == c.Name)
				})
				if at >= 0 {
					p.CallID = calls[at].CallID
					calls = slices.Delete(calls, at, at+1)
				}
			}
		}
	}
}

// answersCall makes the result of a tool of a message behind an answer whose calls are not all answered yet, where the
// message has no role, or the name of one of the tools for its role: so Langfuse writes LangChain's messages of tools.
func answersCall(before []fact.Message, o object, m *fact.Message) {
	at, open := len(before)-1, 0
	for ; at >= 0 && before[at].Role == "tool"; at-- {
		open -= len(before[at].Parts)
	}
	if name := o.str("role"); at >= 0 && o.has("content") && !o.has("type") && normalRole(name) == "" {
		named := name == ""
		for _, p := range before[at].Parts {
			if p.Kind == fact.PartCall {
				open, named = open+1, named || p.Name == name
			}
		}
		if named && open > 0 {
			p := fact.Part{Kind: fact.PartResult, Name: name}
			setResult(&p, o["content"], o.str("status") == "error")
			*m = fact.Message{Role: "tool", ID: m.ID, Parts: []fact.Part{p}}
		}
	}
}

// Output reads what a model or an agent answered, in any of the shapes that [Messages] knows: the parts of all messages
// in order, and the last finish reason that is in them, in the source's own word. It is ok as Messages is. Plain text
// is one text part. Messages of the user, and what comes before the last of them, are no answer and left out, and so
// are those of the system, unless there is nothing else: Gemini CLI calls the model so.
func Output(raw json.RawMessage) (parts []fact.Part, finish string, ok bool) {
	r := reader{role: "assistant"}
	messages, ok := r.read(raw)
	asked, parts := splitAnswer(messages)
	if parts == nil {
		parts = fact.PartsOf(messages[len(asked):])
	}
	return parts, r.finish, ok
}

// splitAnswer splits a conversation into what was asked and the answer, which is what follows the last message of the
// user: a graph returns its whole state, earlier turns included. What the system adds to the answer is left out.
func splitAnswer(messages []fact.Message) (asked []fact.Message, answer []fact.Part) {
	_, end := fact.UserRun(messages)
	for _, m := range messages[end:] {
		if m.Role != "system" {
			answer = append(answer, m.Parts...)
		}
	}
	return messages[:end:end], answer
}

// SystemInstructions returns the text of instructions that stand by themselves: a text, a list of texts or parts, or a
// message of any role.
func SystemInstructions(raw json.RawMessage) string {
	r := reader{role: "system"}
	messages, _ := r.read(raw)
	return textOf(messages, "")
}

// recentSize is about how much of a conversation [Recent] keeps after the messages of the user, in bytes of content.
const recentSize = 32 << 10

// Recent returns the messages that were probably not reported before: the last consecutive messages of the user and
// everything after them, or everything where there is none of the user. history counts the others. Messages of the
// system are in neither, and do not part messages of the user.
//
// What comes after the user's messages is kept up to some 32 KiB, the oldest going first. The last message of the
// assistant and what comes after it are kept whatever their size, and so are the user's own. The result shares the
// parts of messages.
func Recent(messages []fact.Message) (recent []fact.Message, history int) {
	talk := slices.DeleteFunc(slices.Clone(messages), func(m fact.Message) bool { return m.Role == "system" })
	start, end := fact.UserRun(talk)
	answer := func(m fact.Message) bool { return m.Role == "assistant" }
	size, free := 0, slices.ContainsFunc(talk[end:], answer) // free is what is kept whatever its size
	from := len(talk)
	for ; from > end; from-- {
		m := talk[from-1]
		size += len(m.Role) + len(m.ID)
		for i := range m.Parts {
			p := &m.Parts[i]
			size += len(p.Text) + len(p.CallID) + len(p.Name) + len(p.Input) + len(p.Output) + len(p.Error) +
				len(p.MediaType) + len(p.URL) + len(p.Data)
		}
		if size > recentSize && !free {
			break
		}
		free = free && !answer(m)
	}
	recent = slices.Concat(talk[start:end], talk[from:])
	return recent, len(talk) - len(recent)
}

// textOf returns the text of the messages of a role, "" for all, with an empty line between any two of its parts.
func textOf(messages []fact.Message, role string) string {
	var texts []string
	for m, p := range fact.EachPart(messages) {
		if p.Kind == fact.PartText && (role == "" || m.Role == role) {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// ReadInput stores a conversation as what was asked: the recent messages in Input, the counts of those before in
// History, Before and BeforeTurns, and the system's text in SystemPrompt where nothing else has it.
func ReadInput(f *fact.Fact, messages []fact.Message) {
	f.Input, f.History = Recent(messages)
	if f.Kind == fact.ModelCall && len(f.Input) == 1 { // its messages are what they are
		f.Input[0].Literal = ""
	}
	f.CountBefore(messages)
	f.SystemPrompt = cmp.Or(f.SystemPrompt, textOf(messages, "system"))
}

// userMessages is a message of the user, or nil when nothing is known of it.
func userMessages(text, id string) []fact.Message {
	if text == "" && id == "" {
		return nil
	}
	return []fact.Message{{Role: "user", ID: id, Parts: appendText(nil, fact.PartText, text)}}
}

func talks(messages []fact.Message) bool {
	return slices.ContainsFunc(messages, func(m fact.Message) bool { return len(m.Parts) > 0 })
}

// knownOf weighs how much a conversation reports: its parts, and the ids of the calls and the files in them. Parts that
// no rule can read count for nothing.
func knownOf(messages []fact.Message) int { return partsKnown(fact.PartsOf(messages)) }

func partsKnown(parts []fact.Part) (n int) {
	for i := range parts {
		if parts[i].Kind != fact.PartOther {
			n++
		}
		if parts[i].CallID != "" || parts[i].URL != "" {
			n++
		}
	}
	return n
}

type reader struct {
	// role is that of a message without a role, and without anything that shows it.
	role string
	// finish is the last finish reason that was seen.
	finish string
	// cut reports that the text was cut short, so that its last message may lack what makes it one.
	cut bool
	// answer is how the answer ended that was read last, "" if something else was.
	answer string
}

// isAlternative reports whether a message is another candidate for the answer, by its number or behind one. Each states
// why the model stopped, which the steps of an agent do as well, but between those are results of tools.
func (r *reader) isAlternative(o object) bool {
	before, end := r.answer, ""
	if r.role == "assistant" {
		end = fact.FinishReason(finishOf(o))
	}
	if end != "" && o.isNumbered() {
		return true
	}
	r.answer = end
	return before != "" && end != "" && (before == "tool-calls") == (end == "tool-calls")
}

// isNumbered reports whether an answer has a number, and is not the first.
func (o object) isNumbered() bool { return session.Deref(number(string(o["index"]))) > 0 }

func (r *reader) read(raw json.RawMessage) ([]fact.Message, bool) {
	const depth = 8 // how deep wrappers and encodings may be nested in each other
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return nil, false
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if !jsonscan.IsValue(raw, maxNesting) {
		raw, r.cut = closeCut(raw), true
	}
	messages, ok := r.value(raw, depth)
	nameResults(messages)
	if ok && len(messages) == 1 && messages[0].Role == "user" && len(raw) < recentSize {
		if literal := cmp.Or(text(raw), string(raw)); literal != textOf(messages, "") {
			messages[0].Literal = literal
		}
	}
	return messages, ok && !r.cut
}

// value reads a list of messages, a message, what holds messages, or text.
func (r *reader) value(raw json.RawMessage, depth int) ([]fact.Message, bool) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || depth == 0 {
		return nil, false
	}
	if raw[0] == '"' {
		return r.text(text(raw), depth)
	}
	if o, ok := objectOf(raw); ok {
		return r.object(o, raw, depth)
	}
	list, ok := elements(raw)
	if !ok {
		return nil, false
	}
	return r.list(list, depth)
}

// text reads text that holds messages, or is one.
func (r *reader) text(s string, depth int) ([]fact.Message, bool) {
	inner := strings.TrimSpace(s)
	if inner == "" {
		return nil, true
	}
	if strings.IndexByte(`[{"`, inner[0]) >= 0 {
		raw := json.RawMessage(inner)
		cut := !json.Valid(raw)
		if cut && inner[0] != '"' {
			raw = closeCut(raw)
		}
		if messageLike(raw) || raw != nil && !cut && inner[0] == '"' {
			r.cut = r.cut || cut
			if messages, ok := r.value(raw, depth-1); ok {
				return messages, true
			}
		}
	}
	return []fact.Message{{Role: r.role, Parts: appendText(nil, fact.PartText, s)}}, true
}

// list reads the elements of an array. Elements without a role are parts of one message as long as they can be:
// instructions are written so, and the items of OpenAI's responses.
func (r *reader) list(list []json.RawMessage, depth int) (messages []fact.Message, read bool) {
	open := false
	r.answer = ""
	for i, raw := range list {
		raw = bytes.TrimSpace(raw)
		o, isObject := objectOf(raw)
		if r.isAlternative(o) {
			continue
		}
		if !isObject || o.isMessage() || o.isWrapper() || o.isCandidate() {
			open = false
			var more []fact.Message
			var ok bool
			if isObject {
				more, ok = r.object(o, raw, depth-1)
			} else {
				more, ok = r.value(raw, depth-1)
			}
			if len(more) == 1 {
				answersCall(messages, o, &more[0])
			}
			messages, read = append(messages, more...), read || ok
			continue
		}
		if r.cut && i == len(list)-1 && !o.has("type") {
			continue
		}
		parts := appendPart(nil, raw)
		if len(parts) == 0 || parts[0].Kind == fact.PartOther && !o.has("type") {
			read = read || len(parts) == 0
			continue
		}
		read = true
		one := fact.Message{Role: roleOf(parts, r.role), Parts: parts}
		answersCall(messages, o, &one)
		role, parts := one.Role, one.Parts
		if n := len(messages) - 1; open && messages[n].Role == role {
			messages[n].Parts = append(messages[n].Parts, parts...)
		} else {
			messages = append(messages, one)
		}
		open = true
	}
	return messages, read || len(list) == 0
}

// object reads an object: a message, a part, or what holds messages.
func (r *reader) object(o object, raw json.RawMessage, depth int) ([]fact.Message, bool) {
	if depth == 0 {
		return nil, false
	}
	r.sawFinish(o)
	if value := typedValue(o); value != nil && o.str("type") != "text" {
		return r.value(value, depth-1)
	}
	if args, ok := elements(o["args"]); ok && len(o) == 1 && len(args) > 0 { // LangSmith: of a call with options
		return r.value(args[0], depth-1)
	}
	switch data, serialized := o.inner("data"), o.has("kwargs") && o.has("lc"); {
	case serialized: // by LangChain: the class names the role
		in, ok := objectOf(o["kwargs"])
		if !ok {
			return nil, false
		}
		if class, _ := elements(o["id"]); len(class) > 0 && !in.has("role") {
			in["role"] = class[len(class)-1]
		}
		return r.message(in), true
	case !o.isMessage():
	case data.has("content") && !o.has("content"): // by LangChain's messages_to_dict
		if !data.has("role") {
			data["role"] = o["type"]
		}
		return r.message(data), true
	default:
		return r.message(o), true
	}
	switch {
	case o.isWrapper():
		return r.wrapped(o, depth)
	case o.isCandidate():
		return r.message(o.inner("content")), true
	}
	parts := appendPart(nil, raw)
	if len(parts) == 0 || parts[0].Kind == fact.PartOther {
		return nil, false
	}
	return []fact.Message{{Role: roleOf(parts, r.role), Parts: parts}}, true
}

// wrappers are the keys under which requests and responses hold messages, in the order in which they are read.
var wrappers = []string{"messages", "contents", "candidates", "choices", "generations", "replies", "tool_messages",
	"message", "output", "prompt", "kwargs", "data", "input"}

// wrapped reads a request or a response: its instructions, and the first member that holds messages.
func (r *reader) wrapped(o object, depth int) (messages []fact.Message, ok bool) {
	defer func(was string) { r.role = was }(r.role)
	own := r.role
	r.role = "system"
	for _, key := range []string{"system", "systemInstruction", "system_instruction", "instructions"} {
		instructions, _ := r.value(o[key], depth-1)
		if parts := appendText(nil, fact.PartText, textOf(instructions, "")); parts != nil {
			messages = append(messages, fact.Message{Role: "system", Parts: parts})
		}
	}
	for _, key := range wrappers {
		if !o.has(key) {
			continue
		}
		r.role = own
		switch key {
		case "prompt", "input":
			if s := text(o[key]); s != "" { // what was typed, whatever it looks like
				return append(messages, fact.Message{Role: own, Parts: appendText(nil, fact.PartText, s)}), true
			}
		case "output", "choices", "candidates", "generations", "replies":
			r.role = "assistant"
		}
		if more, ok := r.value(o[key], depth-1); ok {
			return append(messages, more...), true
		}
	}
	return messages, messages != nil
}

// message reads a message. It returns several where results of tools are among the user's parts.
func (r *reader) message(o object) []fact.Message {
	r.sawFinish(o)
	role := cmp.Or(normalRole(o.str("role")), normalRole(o.str("type")))
	callID := o.str("tool_call_id", "toolCallId", "tool_use_id")
	parts := appendText(nil, fact.PartReasoning, o.str("reasoning_content", "reasoning", "thinking"))
	if in := o.inner("additional_kwargs"); len(parts) == 0 && in != nil { // LangChain
		parts = appendText(parts, fact.PartReasoning, plainText(in.first("reasoning_content", "reasoning")))
	}
	body := o["content"]
	if o.has("parts") {
		body = o["parts"]
	} else if !o.has("content") {
		body = o.first("text", "blocks")
	}
	// A content that is made of results of tools need not be taken for one.
	isResult := func(p fact.Part) bool { return p.Kind == fact.PartResult }
	if role == "tool" && (callID != "" || !slices.ContainsFunc(appendBody(nil, body), isResult)) {
		p := fact.Part{Kind: fact.PartResult, CallID: callID, Name: o.str("name", "tool_name", "toolName")}
		setResult(&p, body, o.str("status") == "error" || o.truth("is_error", "isError"))
		parts = append(parts, p)
	} else {
		parts = appendBody(parts, body)
	}
	parts = appendCalls(parts, o)
	parts = appendText(parts, fact.PartText, o.str("refusal"))
	role = cmp.Or(role, roleOf(parts, r.role))
	if role == "system" && roleOf(parts, role) == "assistant" { // Gemini CLI
		role = "assistant"
	}
	id := o.str("id")
	if role != "user" || len(parts) == 0 {
		return []fact.Message{{Role: role, Parts: parts, ID: id}}
	}
	// Anthropic and Gemini send the results of tools in the same message as the user's own parts.
	var messages []fact.Message
	for i := 0; i < len(parts); {
		j, result := i+1, isResult(parts[i])
		for j < len(parts) && isResult(parts[j]) == result {
			j++
		}
		m := fact.Message{Role: "user", Parts: parts[i:j:j], ID: id}
		if result {
			m.Role = "tool"
		}
		messages = append(messages, m)
		i = j
	}
	return messages
}

// roleOf returns the role that the kinds of parts show, and the other one if they show none.
func roleOf(parts []fact.Part, other string) string {
	for _, p := range parts {
		switch p.Kind {
		case fact.PartCall, fact.PartReasoning:
			return "assistant"
		case fact.PartResult:
			return "tool"
		}
	}
	return other
}

func (r *reader) sawFinish(o object) { r.finish = cmp.Or(finishOf(o), r.finish) }

// finishOf returns why the model stopped, as a message or a response states it.
func finishOf(o object) string {
	keys := []string{"finish_reason", "finishReason", "stop_reason", "stopReason"}
	s := cmp.Or(o.str(keys...), o.inner("response_metadata", "meta").str(keys...)) // of LangChain and Haystack
	if s == "" && (o.str("object") == "response" || o.has("incomplete_details") && o.has("status")) {
		// OpenAI's responses have a state instead of a reason.
		s = cmp.Or(o.inner("incomplete_details").str("reason"), o.str("status"))
	}
	return s
}

// roles are the words for a role, in lower case.
var roles = meanings[string]("roles")

// normalRole returns the role that a word means, or "".
func normalRole(word string) string {
	if role, ok := roles()[word]; ok {
		return role
	}
	return roles()[strings.ToLower(word)]
}

// messageLike reports whether JSON in a string is messages rather than text that happens to be JSON.
func messageLike(raw json.RawMessage) bool {
	if list, ok := elements(bytes.TrimSpace(raw)); ok {
		return len(list) == 0 || messageLike(list[0])
	}
	o, _ := objectOf(raw)
	return o.isMessage() || o.isWrapper() || shapes()[o.str("type")] != ""
}

// isMessage reports whether the object is a message: it has a role or parts, or is of a type that is a role.
func (o object) isMessage() bool {
	t := o.str("type")
	switch {
	case normalRole(o.str("role")) != "", t == "" && o.has("parts"), t == "message" && o.has("content"),
		len(o) == 1 && objectsOf(o["tool_calls"]) != nil,
		o.has("role") && o.has("content", "parts", "tool_calls", "function_call", "toolInvocations", "text",
			"reasoning_content", "refusal"):
		return true
	}
	return t != "function" && normalRole(t) != "" && o.has("content", "data")
}

// isCandidate reports whether the object is a candidate of Gemini, whose content is a message.
func (o object) isCandidate() bool { return o.inner("content").isMessage() }

func (o object) isWrapper() bool {
	return o.has(wrappers[:8]...) || o.has("kwargs") && o.has("lc") ||
		!o.has("type") && (o.has("prompt", "output") || o.has("input") && o.has("instructions", "model"))
}

// typedValue returns the value of an object that states of which type the one beside it is, as LangWatch writes inputs
// and outputs, or nil.
func typedValue(o object) json.RawMessage {
	if len(o) == 2 && slices.Contains([]string{"chat_messages", "json", "list", "raw", "text"}, o.str("type")) {
		return o.first("value")
	}
	return nil
}
