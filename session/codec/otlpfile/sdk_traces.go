package otlpfile

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// Bits of an OTLP span's flags in addition to those of W3C.
const (
	flagRemoteIsKnown = 1 << 8
	flagIsRemote      = 1 << 9
)

// Traces converts spans. It does not retain them, and skips nil spans.
func Traces(all []sdktrace.ReadOnlySpan) ptrace.Traces {
	td := ptrace.NewTraces()
	var in groups[ptrace.ResourceSpans, ptrace.ScopeSpans]
	for _, s := range all {
		if s != nil {
			ss := in.of(s.Resource(), s.InstrumentationScope(), td.ResourceSpans().AppendEmpty,
				func(rs ptrace.ResourceSpans) ptrace.ScopeSpans { return rs.ScopeSpans().AppendEmpty() })
			putSpan(ss.Spans().AppendEmpty(), s)
		}
	}
	return td
}

func putSpan(dst ptrace.Span, s sdktrace.ReadOnlySpan) {
	sc := s.SpanContext()
	dst.SetTraceID(pcommon.TraceID(sc.TraceID()))
	dst.SetSpanID(pcommon.SpanID(sc.SpanID()))
	dst.SetParentSpanID(pcommon.SpanID(s.Parent().SpanID()))
	dst.TraceState().FromRaw(sc.TraceState().String())
	dst.SetFlags(flags(sc, s.Parent()))
	dst.SetName(s.Name())
	dst.SetKind(ptrace.SpanKind(s.SpanKind())) // the API numbers kinds as OTLP does
	dst.SetStartTimestamp(timestamp(s.StartTime()))
	dst.SetEndTimestamp(timestamp(s.EndTime()))
	dst.Status().SetMessage(s.Status().Description)
	dst.Status().SetCode(statusCodes[s.Status().Code])
	PutAttributes(dst.Attributes(), s.Attributes())
	dst.SetDroppedAttributesCount(count(s.DroppedAttributes()))
	for _, e := range s.Events() {
		event := dst.Events().AppendEmpty()
		event.SetName(e.Name)
		event.SetTimestamp(timestamp(e.Time))
		PutAttributes(event.Attributes(), e.Attributes)
		event.SetDroppedAttributesCount(count(e.DroppedAttributeCount))
	}
	dst.SetDroppedEventsCount(count(s.DroppedEvents()))
	for _, l := range s.Links() {
		link := dst.Links().AppendEmpty()
		link.SetTraceID(pcommon.TraceID(l.SpanContext.TraceID()))
		link.SetSpanID(pcommon.SpanID(l.SpanContext.SpanID()))
		link.SetFlags(flags(l.SpanContext, l.SpanContext))
		PutAttributes(link.Attributes(), l.Attributes)
		link.SetDroppedAttributesCount(count(l.DroppedAttributeCount))
	}
	dst.SetDroppedLinksCount(count(s.DroppedLinks()))
}

// flags returns the flags of a span, or of a link to sc. remote reports whether the parent is remote.
func flags(sc, parent trace.SpanContext) uint32 {
	f := uint32(sc.TraceFlags()) | flagRemoteIsKnown
	if parent.IsRemote() {
		f |= flagIsRemote
	}
	return f
}

var statusCodes = map[codes.Code]ptrace.StatusCode{codes.Ok: ptrace.StatusCodeOk, codes.Error: ptrace.StatusCodeError}

// Spans converts the output of [Traces] back to spans for a [sdktrace.SpanExporter], so
// the SDK's exporter can send stored spans. An OTLP exporter sends the same as for the
// original spans. The number of children is not restored, because OTLP does not have it.
func Spans(td ptrace.Traces) []sdktrace.ReadOnlySpan {
	all := make(tracetest.SpanStubs, 0, td.SpanCount())
	for _, rs := range td.ResourceSpans().All() {
		res := resource.NewWithAttributes(rs.SchemaUrl(), attributes(rs.Resource().Attributes())...)
		for _, ss := range rs.ScopeSpans().All() {
			scope := instrumentation.Scope{Name: ss.Scope().Name(), Version: ss.Scope().Version(), SchemaURL: ss.SchemaUrl(),
				Attributes: attribute.NewSet(attributes(ss.Scope().Attributes())...)}
			for _, s := range ss.Spans().All() {
				stub := stubOf(s)
				stub.Resource, stub.InstrumentationScope = res, scope
				all = append(all, stub)
			}
		}
	}
	return all.Snapshots()
}

func stubOf(s ptrace.Span) tracetest.SpanStub {
	state, _ := trace.ParseTraceState(s.TraceState().AsRaw()) // it was a valid one before
	stub := tracetest.SpanStub{
		Name:        s.Name(),
		SpanContext: spanContext(s.TraceID(), s.SpanID(), s.Flags()).WithRemote(false).WithTraceState(state),
		SpanKind:    trace.SpanKind(s.Kind()),
		StartTime:   instant(s.StartTimestamp()), EndTime: instant(s.EndTimestamp()),
		Attributes:        attributes(s.Attributes()),
		DroppedAttributes: int(s.DroppedAttributesCount()), DroppedEvents: int(s.DroppedEventsCount()),
		DroppedLinks: int(s.DroppedLinksCount()),
		Status:       sdktrace.Status{Description: s.Status().Message()},
	}
	if !s.ParentSpanID().IsEmpty() {
		stub.Parent = spanContext(s.TraceID(), s.ParentSpanID(), s.Flags())
	}
	for code, c := range statusCodes {
		if c == s.Status().Code() {
			stub.Status.Code = code
		}
	}
	for _, e := range s.Events().All() {
		stub.Events = append(stub.Events, sdktrace.Event{Name: e.Name(), Time: instant(e.Timestamp()),
			Attributes:            attributes(e.Attributes()),
			DroppedAttributeCount: int(e.DroppedAttributesCount())})
	}
	for _, l := range s.Links().All() {
		stub.Links = append(stub.Links, sdktrace.Link{
			SpanContext: spanContext(l.TraceID(), l.SpanID(), l.Flags()),
			Attributes:  attributes(l.Attributes()), DroppedAttributeCount: int(l.DroppedAttributesCount())})
	}
	return stub
}

// spanContext is the context of a span, or of the one that it has the flags of.
func spanContext(traceID pcommon.TraceID, spanID pcommon.SpanID, flags uint32) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(traceID), SpanID: trace.SpanID(spanID),
		TraceFlags: trace.TraceFlags(flags), Remote: flags&flagIsRemote != 0})
}
