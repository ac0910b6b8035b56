package agenttrace

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// genAI states how spans of model calls follow the GenAI conventions of OpenTelemetry,
// which were renamed after their last release.
type genAI struct {
	// latest uses the names after that.
	latest bool
	// content adds messages, the system prompt and tools.
	content bool
}

func newGenAI(o Options) genAI {
	var g genAI
	for name := range strings.SplitSeq(os.Getenv("OTEL_SEMCONV_STABILITY_OPT_IN"), ",") {
		g.latest = g.latest || strings.TrimSpace(name) == "gen_ai_latest_experimental"
	}
	switch strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"))) {
	case "true", "span_only", "span_and_event":
		g.content = true
	}
	g.content = g.content || o.CaptureContent
	return g
}

// rename gives the usage its names, in place, or takes it out.
func (g genAI) rename(attrs []attribute.KeyValue, usage bool) []attribute.KeyValue {
	if !usage {
		return slices.DeleteFunc(attrs, func(kv attribute.KeyValue) bool {
			return strings.HasPrefix(string(kv.Key), "gen_ai.usage.")
		})
	}
	for i := range attrs {
		if !g.latest && attrs[i].Key == semconv.GenAIUsageCacheWriteKey {
			attrs[i].Key = spans.CacheCreationKey
		}
	}
	return attrs
}

// version is that of this module in the program, "" if it is not known.
var version = sync.OnceValue(func() string {
	const module = "github.com/agenttrace/agenttrace"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && m.Version != "(devel)" {
			return m.Version
		}
	}
	return ""
})

// capture adds the content of the call to its span: the turn so far, newest last, within the limit of a part, and what
// was added since the call began. Parallel calls of a turn cannot be distinguished; of side calls nothing is known.
func (c *ModelCall) capture(record *spans.ModelCall) {
	t := c.turn
	limit := t.run.sess.tracer.filter.limit
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.side {
		return
	}
	if t.prompt != nil {
		record.SystemInstructions = encodeJSON([]messagePart{{Type: "text", Content: t.prompt.text}})
	}
	var tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	if t.catalog != nil && json.Unmarshal([]byte(t.catalog.text), &tools) == nil {
		for i := range tools {
			tools[i].Type = "function"
		}
		record.ToolDefinitions = encodeJSON(tools)
	}
	var asked history
	for i := range t.user.Parts {
		asked.add("user", t.user.Parts[i].Data)
	}
	first := min(c.firstPart, len(t.parts))
	for _, p := range t.parts[:first] {
		asked.add("assistant", p.content())
	}
	var answered history
	for _, p := range t.parts[first:] {
		answered.add("assistant", p.content())
	}
	record.InputMessages, record.OutputMessages = asked.within(limit), answered.within(limit)
}

// message is a message of the GenAI conventions.
type message struct {
	Role  string `json:"role"`
	Parts []any  `json:"parts"`
}

// messagePart is a part of one.
type messagePart struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	MIMEType  string          `json:"mime_type,omitempty"`
	URI       string          `json:"uri,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  any             `json:"response,omitempty"`
}

type history []message

// add adds an AI SDK part. The result of a tool follows its call, as a message of the tool.
func (m *history) add(role string, data []byte) {
	var p struct {
		Type, Text, MediaType, URL      string
		ToolCallID, ToolName, ErrorText string
		Input, Output                   json.RawMessage
	}
	if json.Unmarshal(data, &p) != nil || p.Type == "step-start" {
		return
	}
	name, isTool := strings.CutPrefix(p.Type, "tool-")
	if p.Type == "dynamic-tool" {
		name, isTool = p.ToolName, true
	}
	switch {
	case p.Type == "text" || p.Type == "reasoning":
		m.part(role, messagePart{Type: p.Type, Content: p.Text})
	case p.Type == "file":
		m.part(role, messagePart{Type: "uri", MIMEType: p.MediaType, URI: p.URL})
	case !isTool: // of the host's own kind
		m.part(role, json.RawMessage(data))
	default:
		m.part(role, messagePart{Type: "tool_call", ID: p.ToolCallID, Name: name, Arguments: p.Input})
		if p.ErrorText != "" {
			m.part("tool", messagePart{Type: "tool_call_response", ID: p.ToolCallID, Response: p.ErrorText})
		} else if len(p.Output) > 0 {
			m.part("tool", messagePart{Type: "tool_call_response", ID: p.ToolCallID, Response: p.Output})
		}
	}
}

// part adds a part to the last message, if that has the role, or begins another.
func (m *history) part(role string, part any) {
	if n := len(*m); n > 0 && (*m)[n-1].Role == role {
		(*m)[n-1].Parts = append((*m)[n-1].Parts, part)
		return
	}
	*m = append(*m, message{role, []any{part}})
}

// within returns the newest messages that fit into the limit, "" if there are none.
func (m history) within(limit int) string {
	first, size := len(m), 2
	for first > 0 {
		size += len(encodeJSON(m[first-1])) + 1
		if limit > 0 && size > limit {
			break
		}
		first--
	}
	if first == len(m) {
		return ""
	}
	return encodeJSON(m[first:])
}
