package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

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

// metrics are the client metrics of the GenAI conventions, by their names in the release or on the main branch, and
// the counters that sessions add. Runs that are not recorded have none, as they have no spans.
type metrics struct {
	filter *filter

	call, firstChunk, execution, invocation metric.Float64Histogram
	// tokens is of the release; usage, which replaces it, has a counter per kind of token.
	tokens metric.Int64Histogram
	usage  []metric.Int64Counter
	// inferences and executions are how often a run called a model, and tools.
	inferences, executions metric.Int64Histogram

	loops, denials metric.Int64Counter
}

// Attributes that only metrics have.
const (
	tokenTypeKey     = attribute.Key("gen_ai.token.type")
	tokenModalityKey = attribute.Key("gen_ai.token.modality")
)

// Boundaries that the conventions recommend.
var (
	durationBounds = metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12,
		10.24, 20.48, 40.96, 81.92)
	chunkBounds = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
		0.75, 1, 2.5, 5, 7.5, 10)
	tokenBounds = metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576,
		4194304, 16777216, 67108864)
	callBounds = metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128)
)

// nowhere is the context in which meters are asked whether anything reads them: most often
// nothing does, and then a measurement costs no allocation.
var nowhere = context.Background()

func newMetrics(o Options, names genAI, f *filter) *metrics {
	provider := cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	meter := provider.Meter(semconv.ScopeName, metric.WithSchemaURL(semconv.SchemaURL),
		metric.WithInstrumentationVersion(version()))
	m := &metrics{filter: f}
	seconds := func(name, what string, bounds metric.HistogramOption) metric.Float64Histogram {
		return made(meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), bounds))
	}
	count := func(name, unit, what string) metric.Int64Counter {
		return made(meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what)))
	}
	numbers := func(name, unit, what string, bounds metric.HistogramOption) metric.Int64Histogram {
		return made(meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(what), bounds))
	}
	prefix := "gen_ai.client.operation"
	if names.latest {
		prefix = "gen_ai.client.inference"
		for _, kind := range []string{"input", "output", "cache_read.input", "cache_write.input", "reasoning.output"} {
			m.usage = append(m.usage, count(prefix+".usage."+kind+"_tokens", "{token}", "Tokens of model calls."))
		}
	} else {
		m.tokens = numbers("gen_ai.client.token.usage", "{token}", "Tokens of model calls.", tokenBounds)
	}
	m.call = seconds(prefix+".duration", "Duration of model calls.", durationBounds)
	m.firstChunk = seconds(prefix+".time_to_first_chunk", "Time to the first part of a streamed response.", chunkBounds)
	m.execution = seconds("gen_ai.execute_tool.duration", "Duration of the execution of tools.", durationBounds)
	m.invocation = seconds("gen_ai.invoke_agent.duration", "Duration of runs.", durationBounds)
	m.inferences = numbers("gen_ai.invoke_agent.inference_calls", "{inference_call}", "Model calls of runs.", callBounds)
	m.executions = numbers("gen_ai.invoke_agent.tool_calls", "{tool_call}", "Tool calls of runs.", callBounds)
	m.loops = count("agenttrace.loop.warnings", "{warning}", "Loops of repeated calls.")
	m.denials = count("agenttrace.permission.denials", "{call}", "Tool calls that were denied.")
	return m
}

// made returns an instrument, which works also where the provider reports an error.
func made[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// attributes returns those that are not empty, as they may be sent.
func (m *metrics) attributes(all ...attribute.KeyValue) metric.MeasurementOption {
	kvs := all[:0]
	for _, kv := range all {
		if kv.Value.AsString() != "" {
			kvs = append(kvs, kv)
		}
	}
	return metric.WithAttributes(m.filter.attributes(kvs)...)
}

// modelCall reports a model call that has ended. failed is the class of its error.
func (m *metrics) modelCall(c *ModelCall, responseModel, failed string, tokens *spans.Tokens, now time.Time) {
	c.turn.run.inferences.Add(1)
	if !m.call.Enabled(nowhere) {
		return
	}
	ctx := trace.ContextWithSpan(nowhere, c.span) // for exemplars
	attrs := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return m.attributes(append(more, semconv.GenAIOperationNameKey.String(semconv.OperationChat),
			semconv.GenAIProviderNameKey.String(c.model.Provider), semconv.GenAIRequestModelKey.String(c.model.ID),
			semconv.GenAIResponseModelKey.String(cloneText(responseModel)))...)
	}
	m.call.Record(ctx, max(0, now.Sub(c.started)).Seconds(), attrs(semconv.ErrorTypeKey.String(failed)))
	if first := time.Duration(c.firstChunk.Load()); first > 0 {
		m.firstChunk.Record(ctx, first.Seconds(), attrs())
	}
	if tokens == nil {
		return
	}
	input, output := tokens.Input+tokens.CacheRead+tokens.CacheWrite, tokens.Output+tokens.Reasoning
	if m.tokens != nil {
		m.tokens.Record(ctx, input, attrs(tokenTypeKey.String("input")))
		m.tokens.Record(ctx, output, attrs(tokenTypeKey.String("output")))
		return
	}
	for i, n := range []int64{input, output, tokens.CacheRead, tokens.CacheWrite, tokens.Reasoning} {
		if n > 0 {
			m.usage[i].Add(ctx, n, attrs(tokenModalityKey.String("text")))
		}
	}
}

// duration records how long what has a span took, and count counts for one.
func (m *metrics) duration(h metric.Float64Histogram, span trace.Span, took time.Duration, all ...attribute.KeyValue) {
	if h.Enabled(nowhere) {
		h.Record(trace.ContextWithSpan(nowhere, span), max(0, took).Seconds(), m.attributes(all...))
	}
}

func (m *metrics) count(c metric.Int64Counter, span trace.Span, all ...attribute.KeyValue) {
	if c.Enabled(nowhere) {
		c.Add(trace.ContextWithSpan(nowhere, span), 1, m.attributes(all...))
	}
}

// tool reports the execution of a tool. failed is the class of its error.
func (m *metrics) tool(c *ToolCall, took time.Duration, failed string) {
	if !c.p.ProviderExecuted {
		c.turn.run.executions.Add(1)
	}
	m.duration(m.execution, c.span, took, semconv.GenAIOperationNameKey.String(semconv.OperationExecuteTool),
		semconv.GenAIToolNameKey.String(c.p.Name), semconv.GenAIToolTypeKey.String(c.toolType()),
		semconv.ErrorTypeKey.String(failed))
}

// run reports a run that has ended.
func (m *metrics) run(r *Run, failed string, now time.Time) {
	m.duration(m.invocation, r.span, now.Sub(r.started),
		semconv.GenAIOperationNameKey.String(semconv.OperationInvokeAgent),
		semconv.GenAIAgentNameKey.String(r.sess.st.Agent), semconv.ErrorTypeKey.String(failed))
	if !m.inferences.Enabled(nowhere) {
		return
	}
	ctx, agent := trace.ContextWithSpan(nowhere, r.span), m.attributes(semconv.GenAIAgentNameKey.String(r.sess.st.Agent))
	m.inferences.Record(ctx, r.inferences.Load(), agent)
	m.executions.Record(ctx, r.executions.Load(), agent)
}

// loop reports a loop that was found.
func (m *metrics) loop(r *Run) {
	m.count(m.loops, r.span, semconv.GenAIAgentNameKey.String(r.sess.st.Agent))
}

// denial reports a tool call that was denied.
func (m *metrics) denial(c *ToolCall, d *Decision) {
	m.count(m.denials, c.span, semconv.GenAIToolNameKey.String(c.p.Name),
		semconv.PermissionActionKey.String(string(d.Action)), semconv.PermissionSourceKey.String(string(d.Source)))
}
