package agenttracetest

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer implements [trace.TracerProvider].
func (r *Recorder) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return r.provider.Tracer(name, options...)
}

// processor records the spans of a provider, and decides which there are.
type processor struct{ *Recorder }

// ShouldSample implements [sdktrace.Sampler].
func (r processor) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drop != nil && r.drop(p.Name) {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}

// Description implements [sdktrace.Sampler].
func (processor) Description() string { return "Recorder" }

// OnStart implements [sdktrace.SpanProcessor].
func (r processor) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[s.SpanContext().SpanID()] = s.Name()
}

// OnEnd implements [sdktrace.SpanProcessor].
func (r processor) OnEnd(s sdktrace.ReadOnlySpan) {
	span := Span{
		Name: s.Name(), Kind: s.SpanKind(), SpanContext: s.SpanContext(), Parent: s.Parent(), Start: s.StartTime(),
		End: s.EndTime(), Attributes: s.Attributes(), Status: s.Status().Code, StatusText: s.Status().Description,
	}
	for _, l := range s.Links() {
		span.Links = append(span.Links, trace.Link{SpanContext: l.SpanContext, Attributes: l.Attributes})
	}
	for _, e := range s.Events() {
		span.Events = append(span.Events, SpanEvent{e.Name, e.Time, e.Attributes})
	}
	span.decode()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, span.SpanContext.SpanID())
	r.ended = append(r.ended, span)
}

// Shutdown implements [sdktrace.SpanProcessor].
func (processor) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdktrace.SpanProcessor].
func (processor) ForceFlush(context.Context) error { return nil }
