// Package agenttracetest lets the tests of an agent see what the agent records:
// a tracer and logger provider that keeps spans and events in memory, decoded.
//
//	rec := agenttracetest.NewRecorder()
//	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec, LoggerProvider: rec})
//	… run the agent …
//	for _, call := range rec.All().ToolCalls("bash") { … }
//	for _, st := range rec.Events().Statuses() { … }
//	if err := rec.Err(); err != nil { … }
//
// It asserts nothing. A method that is called on a turn or a tool call after its end changes no span: Dropped of the
// tracer counts the call, and the handler of [go.opentelemetry.io/otel.SetErrorHandler] gets an error, as for values
// that are no JSON.
package agenttracetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	logembedded "go.opentelemetry.io/otel/log/embedded"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Recorder is a tracer provider that keeps every span that ends, and a logger
// provider that keeps every event. It is safe for concurrent use.
type Recorder struct {
	embedded.TracerProvider
	logembedded.LoggerProvider
	provider trace.TracerProvider

	mu     sync.Mutex
	ended  []Span
	open   map[trace.SpanID]string
	drop   func(name string) bool
	events Events
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	r := &Recorder{open: make(map[trace.SpanID]string)}
	r.provider = sdktrace.NewTracerProvider(sdktrace.WithSampler(processor{r}), sdktrace.WithSpanProcessor(processor{r}))
	return r
}

// Drop makes the recorder leave out spans, as a sampler would, and events: those that begin
// while drop returns true for their name are not recorded. Nil leaves out none.
func (r *Recorder) Drop(drop func(name string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop = drop
}

// Span is a span that has ended.
type Span struct {
	Name        string
	Kind        trace.SpanKind
	SpanContext trace.SpanContext
	// Parent is invalid for the root of a trace.
	Parent     trace.SpanContext
	Links      []trace.Link
	Start, End time.Time
	// Attributes are in the order in which they were first set.
	Attributes []attribute.KeyValue
	Status     codes.Code
	StatusText string
	// Events are those on the span itself, in the order in which they were added.
	Events []SpanEvent

	// Record is the decoded span, nil if it is not one of agenttrace's.
	Record spans.SpanData
	// Err states what is wrong with the span: attributes that do not decode, or what [spans.Record] Validate finds.
	Err error
}

// SpanEvent is an event on a span.
type SpanEvent struct {
	Name       string
	Time       time.Time
	Attributes []attribute.KeyValue
}

// LoopWarnings returns the warnings on the span about repeated calls. What does not decode is left out.
func (s *Span) LoopWarnings() []spans.LoopWarning {
	var out []spans.LoopWarning
	for _, e := range s.Events {
		var w spans.LoopWarning
		if e.Name == semconv.SpanEventLoopWarning && spans.Decode(&w, e.Attributes) == nil {
			out = append(out, w)
		}
	}
	return out
}

// SessionID returns the span's session.id.
func (s *Span) SessionID() string {
	for _, kv := range s.Attributes {
		if kv.Key == semconv.SessionIDKey {
			return kv.Value.AsString()
		}
	}
	return ""
}

// Recording is a list of spans, in the order in which they ended.
type Recording []Span

// All returns every span that has ended.
func (r *Recorder) All() Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// Session returns the spans of one session.
func (r *Recorder) Session(id string) Recording {
	return where(r.All(), func(s *Span) bool { return s.SessionID() == id })
}

// Sessions returns the ids of the sessions that spans were recorded of, each
// once, in the order in which their first spans ended.
func (r *Recorder) Sessions() []string {
	var ids []string
	for _, s := range r.All() {
		if id := s.SessionID(); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Open returns the names of the spans that have begun and not ended, sorted.
func (r *Recorder) Open() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.open))
	for _, name := range r.open {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Reset forgets every span that has ended, and every event.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.events = nil, nil
}

// Err joins what is wrong with the spans and events recorded, each with its name.
func (r *Recorder) Err() error {
	var errs []error
	for _, s := range r.All() {
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", s.Name, s.SpanContext.SpanID(), s.Err))
		}
	}
	for _, e := range r.Events() {
		if e.Err != nil {
			errs = append(errs, fmt.Errorf("event %s at %v: %w", e.Name, e.Time, e.Err))
		}
	}
	return errors.Join(errs...)
}

// where returns the elements that keep accepts.
func where[S ~[]E, E any](all S, keep func(*E) bool) S {
	var out S
	for i := range all {
		if keep(&all[i]) {
			out = append(out, all[i])
		}
	}
	return out
}

// Named returns the spans of that name.
func (rec Recording) Named(name string) Recording {
	return where(rec, func(s *Span) bool { return s.Name == name })
}

// records returns the decoded records of one kind.
func records[R spans.SpanData](rec Recording, keep func(R) bool) []R {
	var out []R
	for _, s := range rec {
		if r, ok := s.Record.(R); ok && (keep == nil || keep(r)) {
			out = append(out, r)
		}
	}
	return out
}

// Runs returns the session.run spans, those without a duration included.
func (rec Recording) Runs() []*spans.Run { return records[*spans.Run](rec, nil) }

// Operations returns the session.run spans of one operation, such as "rewind".
func (rec Recording) Operations(operation string) []*spans.Run {
	return records(rec, func(r *spans.Run) bool { return r.Operation == operation })
}

// Turns returns the session.turn spans.
func (rec Recording) Turns() []*spans.Turn { return records[*spans.Turn](rec, nil) }

// ToolCalls returns the tool.call spans of the tools named, or all.
func (rec Recording) ToolCalls(tools ...string) []*spans.ToolCall {
	return records(rec, func(c *spans.ToolCall) bool { return len(tools) == 0 || slices.Contains(tools, c.ToolID) })
}

// Permissions returns the permission.evaluate spans.
func (rec Recording) Permissions() []*spans.Permission { return records[*spans.Permission](rec, nil) }

// Compactions returns the compaction.run spans.
func (rec Recording) Compactions() []*spans.Compaction { return records[*spans.Compaction](rec, nil) }

// ModelCalls returns the "chat {model}" spans.
func (rec Recording) ModelCalls() []*spans.ModelCall { return records[*spans.ModelCall](rec, nil) }

// decode fills in Record and Err.
func (s *Span) decode() {
	if s.Record = spans.New(s.Name); s.Record == nil {
		if s.Name != spans.KindModelCall && !strings.HasPrefix(s.Name, spans.KindModelCall+" ") {
			return
		}
		s.Record = new(spans.ModelCall)
	}
	s.Err = errors.Join(spans.Decode(s.Record, s.Attributes), s.Record.Validate())
}

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
