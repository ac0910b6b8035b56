package agenttrace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

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
	provider := o.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
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
