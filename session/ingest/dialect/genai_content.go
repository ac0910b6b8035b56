package dialect

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Events that are none of a single message.
const (
	detailsEvent   = "gen_ai.client.inference.operation.details"
	exceptionEvent = "gen_ai.client.operation.exception"
)

// messageEvent reports whether an event of this name tells a message, or some.
func messageEvent(name string) bool {
	switch name {
	case "gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message", "gen_ai.choice",
		"gen_ai.content.prompt", "gen_ai.content.completion":
		return true
	}
	return false
}

// conversation gathers the content of a model call or turn from the places where
// the versions of the conventions put it. What a place says is not read again from
// a later one.
type conversation struct {
	system   string
	catalog  string
	input    []fact.Message
	output   []fact.Part
	finish   string
	problems []string
}

// fill stores the content.
func (c *conversation) fill(f *fact.Fact) {
	f.SystemPrompt, f.ToolCatalog = c.system, c.catalog
	ReadInput(f, c.input)
	f.Output, f.Finish = c.output, c.finish
}

// summary returns the text of the last compaction in what was asked.
func (c *conversation) summary() (text string) {
	for _, m := range c.input {
		for _, p := range m.Parts {
			if p.Kind == fact.PartCompaction {
				text = p.Text
			}
		}
	}
	return text
}

// hasContent reports whether the attributes hold any message.
func hasContent(a Attrs) bool {
	return a.FirstJSON("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions") != nil
}

func (c *conversation) readAttrs(a Attrs) {
	if c.system == "" {
		c.system = SystemInstructions(a.FirstJSON("gen_ai.system_instructions", "gen_ai.system.instructions", "system_prompt"))
	}
	if c.catalog == "" {
		c.catalog = Catalog(a.FirstJSON("gen_ai.tool.definitions", "gen_ai.request.tools", "gen_ai.request.available_tools", "gen_ai.agent.tools"))
	}
	if c.input == nil {
		c.readInput(a.FirstJSON("gen_ai.input.messages", "gen_ai.request.messages", "gen_ai.prompt"))
	}
	if c.input == nil {
		c.input, _ = FlatMessages(a, "gen_ai.prompt.")
	}
	if c.output == nil {
		c.readOutput(a.FirstJSON("gen_ai.output.messages", "gen_ai.completion", "gen_ai.response.text"))
		if raw := a.JSON("gen_ai.response.tool_calls"); raw != nil && a.JSON("gen_ai.output.messages") == nil {
			c.output = appendCalls(c.output, object{"tool_calls": raw})
		}
	}
	if c.output == nil {
		messages, finish := FlatMessages(a, "gen_ai.completion.")
		for _, m := range messages {
			c.output = append(c.output, m.Parts...)
		}
		if c.finish == "" {
			c.finish = finish
		}
	}
	if c.input == nil && c.output == nil {
		c.readWhole(a.FirstJSON("pydantic_ai.all_messages", "all_messages_events", "events"))
	}
}

func (c *conversation) readInput(raw json.RawMessage) {
	if raw == nil {
		return
	}
	messages, ok := Messages(raw)
	if c.input = messages; !ok {
		c.problems = append(c.problems, "the input messages could not be read whole")
	}
}

func (c *conversation) readOutput(raw json.RawMessage) {
	if raw == nil {
		return
	}
	parts, finish, ok := output(raw)
	if c.output = append(c.output, parts...); finish != "" {
		c.finish = finish
	}
	if !ok {
		c.problems = append(c.problems, "the output messages could not be read whole")
	}
}

// readWhole reads a conversation that goes on to its answer, as Pydantic AI keeps
// it: what follows the last message of the user is the answer.
func (c *conversation) readWhole(raw json.RawMessage) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' {
		return
	}
	var events []object
	if json.Unmarshal(raw, &events) == nil && len(events) > 0 && events[0].has("event.name") {
		for _, o := range events {
			name := o.str("event.name")
			delete(o, "event.name")
			if messageEvent(name) {
				c.readMessage(name, o)
			}
		}
		return
	}
	messages, ok := Messages(raw)
	if !ok && messages == nil {
		return
	}
	_, end := userRun(messages)
	c.input = messages[:end]
	for _, m := range messages[end:] {
		if m.Role != "system" {
			c.output = append(c.output, m.Parts...)
		}
	}
}

// readEvents reads the events of a span, unless its attributes said the same.
func (c *conversation) readEvents(events ptrace.SpanEventSlice) {
	asked, answered := c.input != nil, c.output != nil
	for _, e := range events.All() {
		a := attrsOf(e.Attributes())
		name := e.Name()
		switch {
		case name == detailsEvent:
			c.readAttrs(a)
		case !messageEvent(name):
		case name == "gen_ai.choice" || name == "gen_ai.content.completion":
			if !answered {
				c.readEvent(name, a, pcommon.NewValueEmpty())
			}
		case !asked:
			c.readEvent(name, a, pcommon.NewValueEmpty())
		}
	}
}

// readEvent reads an event that reports messages, in its body or attributes.
func (c *conversation) readEvent(name string, a Attrs, body pcommon.Value) {
	switch name {
	case "gen_ai.content.prompt":
		messages, ok := Messages(firstRaw(a.JSON("gen_ai.prompt"), bodyJSON(body)))
		c.input = append(c.input, messages...)
		if !ok {
			c.problems = append(c.problems, "the input messages could not be read whole")
		}
		return
	case "gen_ai.content.completion":
		c.readOutput(firstRaw(a.JSON("gen_ai.completion"), bodyJSON(body)))
		return
	}
	o, ok := membersOf(bodyJSON(body))
	if !ok {
		o, ok = membersOf(a.JSON("gen_ai.event.content"))
	}
	if !ok {
		o = object{}
		for key := range a.All() {
			if raw := a.JSON(key); raw != nil {
				o[key] = raw
			}
		}
		if text := bodyJSON(body); text != nil && !o.has("content") {
			o["content"] = text
		}
	}
	c.readMessage(name, o)
}

// readMessage reads the message that an event of this name tells.
func (c *conversation) readMessage(name string, o object) {
	r := reader{role: "assistant"}
	if name == "gen_ai.choice" {
		r.sawFinish(o)
		if in := o.inner("message"); in != nil {
			if in.str("role") == "" {
				in["role"] = json.RawMessage(`"assistant"`)
			}
			o = in
		} else if o.has("message") {
			o["content"] = o["message"]
			o["role"] = json.RawMessage(`"assistant"`)
		} else {
			o["role"] = json.RawMessage(`"assistant"`)
		}
		for _, m := range r.message(o) {
			c.output = append(c.output, m.Parts...)
		}
		if r.finish != "" {
			c.finish = r.finish
		}
		return
	}
	role := strings.TrimSuffix(strings.TrimPrefix(name, "gen_ai."), ".message")
	if normalRole(o.str("role")) == "" {
		o["role"], _ = json.Marshal(role)
	}
	if role == "tool" && !o.has("tool_call_id") {
		o["tool_call_id"] = o["id"]
	}
	delete(o, "id") // of the call, or of nothing
	if messages := r.message(o); len(messages) > 1 || len(messages) == 1 && len(messages[0].Parts) > 0 {
		c.input = append(c.input, messages...)
	}
}

func firstRaw(all ...json.RawMessage) json.RawMessage {
	for _, raw := range all {
		if raw != nil {
			return raw
		}
	}
	return nil
}

// bodyJSON returns a record's body as JSON, nil where there is none.
func bodyJSON(v pcommon.Value) json.RawMessage {
	if v.Type() == pcommon.ValueTypeStr && v.Str() == "" {
		return nil
	}
	return valueJSON(v)
}

// Catalog returns the tools that a source offers a model as a JSON array of
// objects, as [fact.Fact.ToolCatalog] has them: raw is that array, or one whose
// elements are JSON texts, names of tools or both, or an object that maps names to
// tools, or is one. It returns "" for anything else, and for no tools.
func Catalog(raw json.RawMessage) string {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return ""
	}
	if raw[0] == '"' {
		inner := strings.TrimSpace(text(raw))
		if inner == "" || inner[0] != '[' && inner[0] != '{' {
			return ""
		}
		raw = json.RawMessage(inner)
	}
	if !json.Valid(raw) {
		return ""
	}
	var list []json.RawMessage
	switch raw[0] {
	case '[':
		list, _ = elements(raw)
	case '{':
		o, ok := membersOf(raw)
		if !ok {
			return ""
		}
		if inside, ok := elements(o["tools"]); ok {
			list = inside
			break
		}
		if _, isTool := membersOf(o["function"]); isTool || text(o["name"]) != "" {
			list = append(list, raw)
			break
		}
		for _, name := range sortedKeys(o) {
			tool, ok := membersOf(o[name])
			if !ok {
				return ""
			}
			if !tool.has("name") {
				tool["name"], _ = json.Marshal(name)
			}
			e, _ := json.Marshal(tool)
			list = append(list, e)
		}
	}
	tools := list[:0]
	for _, e := range list {
		if s := text(e); s != "" {
			if e = TextJSON(s); e[0] == '"' {
				e, _ = json.Marshal(map[string]string{"name": s})
			}
		}
		if _, ok := membersOf(e); ok {
			tools = append(tools, e)
		}
	}
	if len(tools) == 0 {
		return ""
	}
	all, err := json.Marshal(tools)
	if err != nil {
		return ""
	}
	return string(all)
}

func sortedKeys(o object) []string { return slices.Sorted(maps.Keys(o)) }
