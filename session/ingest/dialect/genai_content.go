package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// Events that do not have a single message.
const (
	detailsEvent   = "gen_ai.client.inference.operation.details"
	exceptionEvent = "gen_ai.client.operation.exception"
)

func messageEvent(name string) bool {
	switch name {
	case "gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message",
		"gen_ai.choice", "gen_ai.content.prompt", "gen_ai.content.completion":
		return true
	}
	return false
}

// conversation gathers the content of a model call or turn from the places where the versions of
// the conventions put it. What was found in one place is not read again from a later one.
type conversation struct {
	system   string
	catalog  string
	input    []fact.Message
	output   []fact.Part
	finish   string
	problems []string
}

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

func hasContent(a Attrs) bool {
	return a.JSON("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions") != nil
}

func (c *conversation) readAttrs(a Attrs) {
	if c.system == "" {
		c.system = SystemInstructions(a.JSON("gen_ai.system_instructions", "gen_ai.system.instructions",
			"system_prompt"))
	}
	if c.catalog == "" {
		c.catalog = Catalog(a.JSON("gen_ai.tool.definitions", "gen_ai.request.tools",
			"gen_ai.request.available_tools", "gen_ai.agent.tools"))
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
		c.readWhole(a.JSON("pydantic_ai.all_messages", "all_messages_events", "events"))
	}
}

func (c *conversation) readInput(raw json.RawMessage) {
	if raw == nil {
		return
	}
	messages, ok := Messages(raw)
	if c.input = append(c.input, messages...); !ok {
		c.problems = append(c.problems, "the input messages could not be read whole")
	}
}

func (c *conversation) readOutput(raw json.RawMessage) {
	if raw == nil {
		return
	}
	parts, finish, ok := output(raw)
	c.output, c.finish = append(c.output, parts...), cmp.Or(finish, c.finish)
	if !ok {
		c.problems = append(c.problems, "the output messages could not be read whole")
	}
}

// readWhole reads a conversation that goes on to its answer, as Pydantic AI keeps it: what follows
// the last message of the user is the answer.
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
	if messages, _ := Messages(raw); messages != nil {
		c.input, c.output = splitAnswer(messages)
	}
}

// readEvents reads the events of a span, unless its attributes had the same.
func (c *conversation) readEvents(events ptrace.SpanEventSlice) {
	asked, answered := c.input != nil, c.output != nil
	for _, e := range events.All() {
		a := Attrs{e.Attributes()}
		name := e.Name()
		has := asked
		if name == "gen_ai.choice" || name == "gen_ai.content.completion" {
			has = answered
		}
		switch {
		case name == detailsEvent:
			c.readAttrs(a)
		case messageEvent(name) && !has:
			c.readEvent(name, a, pcommon.NewValueEmpty())
		}
	}
}

func (c *conversation) readEvent(name string, a Attrs, body pcommon.Value) {
	switch name {
	case "gen_ai.content.prompt":
		c.readInput(firstRaw(a.JSON("gen_ai.prompt"), bodyJSON(body)))
		return
	case "gen_ai.content.completion":
		c.readOutput(firstRaw(a.JSON("gen_ai.completion"), bodyJSON(body)))
		return
	}
	o, ok := objectOf(bodyJSON(body))
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
		if text := bodyJSON(body); text != nil && !o.has("content") {
			o["content"] = text
		}
	}
	c.readMessage(name, o)
}

// readMessage reads the message that an event of this name reports.
func (c *conversation) readMessage(name string, o object) {
	r := reader{role: "assistant"}
	if name == "gen_ai.choice" {
		r.sawFinish(o)
		in := o.inner("message")
		switch {
		case in == nil:
			if o["role"] = quoted("assistant"); o.has("message") {
				o["content"] = o["message"]
			}
		case in.str("role") == "":
			in["role"] = quoted("assistant")
			fallthrough
		default:
			o = in
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
	if messages := r.message(o); len(messages) > 1 || talks(messages) {
		c.input = append(c.input, messages...)
	}
}

// bodyJSON returns a record's body as JSON, nil if there is none.
func bodyJSON(v pcommon.Value) json.RawMessage {
	if v.Type() == pcommon.ValueTypeStr && v.Str() == "" {
		return nil
	}
	return valueJSON(v)
}

// Catalog returns the tools that a source offers a model as a JSON array of objects, as
// [fact.Fact.ToolCatalog] has them: raw is that array, or one whose elements are JSON texts, names
// of tools or both, or an object that maps names to tools, or is one. It returns "" for anything
// else, and for no tools.
func Catalog(raw json.RawMessage) string {
	if s := strings.TrimSpace(text(raw)); s != "" {
		raw = json.RawMessage(s)
	}
	if !json.Valid(raw) {
		return ""
	}
	list, _ := elements(raw)
	if o, ok := objectOf(raw); ok {
		_, isTool := objectOf(o["function"])
		if inside, ok := elements(o["tools"]); ok {
			list = inside
		} else if isTool || text(o["name"]) != "" {
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
