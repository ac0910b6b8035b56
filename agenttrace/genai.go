package agenttrace

import (
	"bytes"
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

// capture adds the content of the call to its span: the turn so far, newest last, within
// the limit of a part, and what was added since the call began. Parallel calls of a turn
// cannot be distinguished; of side calls nothing is known.
func (c *ModelCall) capture(record *spans.ModelCall) {
	t := c.turn
	f := &t.run.sess.tracer.filter
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.side {
		return
	}
	if t.prompt != "" {
		_, text := t.run.sess.tracer.digests.of(f, t.prompt)
		record.SystemInstructions = string(append(spans.AppendJSONMember(
			[]byte(`[{"type":"text"`), "content", text), "}]"...))
	}
	if t.catalog != nil {
		record.ToolDefinitions = definitions(t.catalog.json)
	}
	first := min(c.firstPart, len(t.parts))
	answered := contentOf(t.parts[:first])
	var asked history
	for i := range t.user.Parts {
		asked.add("user", t.user.Parts[i].Data)
	}
	record.InputMessages = append(asked, answered...).within(f.limit)
	record.OutputMessages = contentOf(t.parts[first:]).within(f.limit)
}

// definitions makes the tools of a catalog those of the GenAI conventions.
func definitions(catalog string) string {
	var tools []json.RawMessage
	if json.Unmarshal([]byte(catalog), &tools) != nil {
		return ""
	}
	b := []byte{'['}
	for i, tool := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"type":"function",`...), bytes.TrimPrefix(tool, []byte{'{'})...)
	}
	return string(append(b, ']'))
}

// message is a message of the GenAI conventions.
type message struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

type history []message

// contentOf returns the parts of an answer as messages: those of the assistant and, after
// its calls, those of the tools.
func contentOf(parts []part) (all history) {
	for _, p := range parts {
		all.add("assistant", p.content())
	}
	return all
}

// add adds an AI SDK part. The result of a tool follows its call, as a message of the tool.
func (m *history) add(role string, data []byte) {
	var p struct {
		Type, Text, MediaType, URL, Filename string
		ToolCallID, ToolName, ErrorText      string
		Input, Output                        json.RawMessage
	}
	if json.Unmarshal(data, &p) != nil || p.Type == "step-start" {
		return
	}
	name, isTool := strings.CutPrefix(p.Type, "tool-")
	if p.Type == "dynamic-tool" {
		name, isTool = p.ToolName, true
	}
	b := []byte{'{'}
	switch {
	case p.Type == "text" || p.Type == "reasoning":
		b = spans.AppendJSONMember(spans.AppendJSONMember(b, "type", p.Type), "content", p.Text)
	case p.Type == "file":
		b = spans.AppendJSONMember(spans.AppendJSONMember(b, "type", "uri"), "mime_type", p.MediaType)
		b = spans.AppendJSONMember(b, "uri", p.URL)
	case isTool:
		b = spans.AppendJSONMember(spans.AppendJSONMember(b, "type", "tool_call"), "id", p.ToolCallID)
		b = spans.AppendJSONMember(b, "name", name)
		if len(p.Input) > 0 {
			b = append(append(b, `,"arguments":`...), p.Input...)
		}
	default:
		m.part(role, data) // of the host's own kind
		return
	}
	m.part(role, append(b, '}'))
	if len(p.Output) == 0 && p.ErrorText == "" {
		return
	}
	r := spans.AppendJSONMember([]byte(`{"type":"tool_call_response"`), "id", p.ToolCallID)
	if p.ErrorText != "" {
		r = spans.AppendJSONMember(r, "response", p.ErrorText)
	} else {
		r = append(append(r, `,"response":`...), p.Output...)
	}
	m.part("tool", append(r, '}'))
}

// part adds a part to the last message, if that has the role, or begins another.
func (m *history) part(role string, part json.RawMessage) {
	if n := len(*m); n > 0 && (*m)[n-1].Role == role {
		(*m)[n-1].Parts = append((*m)[n-1].Parts, part)
		return
	}
	*m = append(*m, message{role, []json.RawMessage{part}})
}

// within returns the newest messages that fit into the limit, "" if there are none.
func (m history) within(limit int) string {
	var kept []json.RawMessage
	for size, i := 2, len(m)-1; i >= 0; i-- {
		b, err := json.Marshal(m[i])
		if size += len(b) + 1; err != nil || limit > 0 && size > limit {
			break
		}
		kept = append(kept, b)
	}
	if len(kept) == 0 {
		return ""
	}
	slices.Reverse(kept)
	b, err := json.Marshal(kept)
	if err != nil {
		return ""
	}
	return string(b)
}
