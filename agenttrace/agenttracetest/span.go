package agenttracetest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracer implements [trace.TracerProvider].
func (r *Recorder) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return &recordingTracer{recorder: r}
}

type recordingTracer struct {
	embedded.Tracer
	recorder *Recorder
}

// ids counts spans and traces over the process, so that ids of two recorders
// never collide.
var ids atomic.Uint64

// Start implements [trace.Tracer].
func (t *recordingTracer) Start(
	ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span,
) {
	c := trace.NewSpanStartConfig(opts...)
	r := t.recorder
	parent := trace.SpanContextFromContext(ctx)
	if c.NewRoot() {
		parent = trace.SpanContext{}
	}
	r.mu.Lock()
	dropped := r.drop != nil && r.drop(name)
	r.mu.Unlock()

	n := ids.Add(1)
	config := trace.SpanContextConfig{TraceID: parent.TraceID(), TraceFlags: trace.FlagsSampled}
	if !parent.IsValid() {
		binary.BigEndian.PutUint64(config.TraceID[8:], n)
	}
	binary.BigEndian.PutUint64(config.SpanID[:], n)
	if dropped {
		config.TraceFlags = 0
		sc := trace.NewSpanContext(config)
		ctx = trace.ContextWithSpanContext(ctx, sc)
		return ctx, &droppedSpan{Span: noop.Span{}, sc: sc}
	}
	s := &recordingSpan{recorder: r, span: Span{
		Name: name, Kind: c.SpanKind(), SpanContext: trace.NewSpanContext(config), Parent: parent, Links: c.Links(),
		Start: c.Timestamp(),
	}}
	if s.span.Kind == trace.SpanKindUnspecified {
		s.span.Kind = trace.SpanKindInternal
	}
	if s.span.Start.IsZero() {
		s.span.Start = time.Now()
	}
	s.set(c.Attributes())
	r.mu.Lock()
	r.open[config.SpanID] = name
	r.mu.Unlock()
	return trace.ContextWithSpan(ctx, s), s
}

// droppedSpan is a span that was sampled out.
type droppedSpan struct {
	trace.Span
	sc trace.SpanContext
}

func (s *droppedSpan) SpanContext() trace.SpanContext { return s.sc }

type recordingSpan struct {
	embedded.Span
	recorder *Recorder

	mu    sync.Mutex // guards what follows
	span  Span
	ended bool
}

func (s *recordingSpan) End(opts ...trace.SpanEndOption) {
	c := trace.NewSpanEndConfig(opts...)
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	s.span.End = c.Timestamp()
	if s.span.End.IsZero() {
		s.span.End = time.Now()
	}
	s.span.decode()
	done := s.span
	s.mu.Unlock()

	r := s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, done.SpanContext.SpanID())
	r.ended = append(r.ended, done)
}

// change runs f unless the span has ended.
func (s *recordingSpan) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		f()
	}
}

// set adds attributes; of one key the last counts. The caller holds mu or owns
// s.
func (s *recordingSpan) set(attrs []attribute.KeyValue) {
	for _, kv := range attrs {
		same := func(have attribute.KeyValue) bool { return have.Key == kv.Key }
		if i := slices.IndexFunc(s.span.Attributes, same); i >= 0 {
			s.span.Attributes[i] = kv
			continue
		}
		s.span.Attributes = append(s.span.Attributes, kv)
	}
}

func (s *recordingSpan) SetAttributes(attrs ...attribute.KeyValue) { s.change(func() { s.set(attrs) }) }

func (s *recordingSpan) AddLink(l trace.Link) {
	s.change(func() { s.span.Links = append(s.span.Links, l) })
}

func (s *recordingSpan) SetStatus(code codes.Code, text string) {
	s.change(func() { s.span.Status, s.span.StatusText = code, text })
}

func (s *recordingSpan) AddEvent(name string, opts ...trace.EventOption) {
	c := trace.NewEventConfig(opts...)
	s.change(func() { s.span.Events = append(s.span.Events, SpanEvent{name, c.Timestamp(), c.Attributes()}) })
}

func (s *recordingSpan) SetName(name string) { s.change(func() { s.span.Name = name }) }

func (s *recordingSpan) IsRecording() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended
}

func (s *recordingSpan) SpanContext() trace.SpanContext                { return s.span.SpanContext }
func (s *recordingSpan) RecordError(err error, _ ...trace.EventOption) {}
func (s *recordingSpan) TracerProvider() trace.TracerProvider          { return s.recorder }
