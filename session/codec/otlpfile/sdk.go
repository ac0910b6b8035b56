package otlpfile

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// scopeKey identifies the groups of a batch: one per resource and scope.
type scopeKey struct {
	resource attribute.Distinct
	scope    instrumentation.Scope
}

// groups finds what the spans or records of a resource, and of a scope in it, are added to.
type groups[R resourceGroup, S scopeGroup] struct {
	resources map[attribute.Distinct]R
	scopes    map[scopeKey]S
}

type resourceGroup interface {
	SetSchemaUrl(string)
	Resource() pcommon.Resource
}

type scopeGroup interface {
	SetSchemaUrl(string)
	Scope() pcommon.InstrumentationScope
}

// of returns the group of a resource and a scope, which it adds if it is not there.
func (g *groups[R, S]) of(r *resource.Resource, scope instrumentation.Scope, addResource func() R,
	addScope func(R) S) S {
	key := scopeKey{r.Equivalent(), scope}
	if s, ok := g.scopes[key]; ok {
		return s
	}
	if g.scopes == nil {
		g.resources, g.scopes = make(map[attribute.Distinct]R), make(map[scopeKey]S)
	}
	group, ok := g.resources[key.resource]
	if !ok {
		group = addResource()
		group.SetSchemaUrl(r.SchemaURL())
		PutAttributes(group.Resource().Attributes(), r.Attributes())
		g.resources[key.resource] = group
	}
	s := addScope(group)
	s.SetSchemaUrl(scope.SchemaURL)
	s.Scope().SetName(scope.Name)
	s.Scope().SetVersion(scope.Version)
	PutAttributes(s.Scope().Attributes(), scope.Attributes.ToSlice())
	g.scopes[key] = s
	return s
}

// PutAttributes adds attributes to dst.
func PutAttributes(dst pcommon.Map, all []attribute.KeyValue) {
	dst.EnsureCapacity(len(all))
	for _, kv := range all {
		putValue(dst.PutEmpty(string(kv.Key)), kv.Value)
	}
}

// putValue sets an empty dst.
func putValue(dst pcommon.Value, v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		dst.SetBool(v.AsBool())
	case attribute.INT64:
		dst.SetInt(v.AsInt64())
	case attribute.FLOAT64:
		dst.SetDouble(v.AsFloat64())
	case attribute.STRING:
		dst.SetStr(v.AsString())
	case attribute.BYTESLICE:
		dst.SetEmptyBytes().FromRaw(v.AsByteSlice())
	case attribute.BOOLSLICE:
		appendAll(dst, v.AsBoolSlice(), pcommon.Value.SetBool)
	case attribute.INT64SLICE:
		appendAll(dst, v.AsInt64Slice(), pcommon.Value.SetInt)
	case attribute.FLOAT64SLICE:
		appendAll(dst, v.AsFloat64Slice(), pcommon.Value.SetDouble)
	case attribute.STRINGSLICE:
		appendAll(dst, v.AsStringSlice(), pcommon.Value.SetStr)
	case attribute.SLICE:
		appendAll(dst, v.AsSlice(), putValue)
	case attribute.MAP:
		PutAttributes(dst.SetEmptyMap(), v.AsMap())
	case attribute.EMPTY:
	default:
		dst.SetStr("INVALID") // as OTLP exporters do
	}
}

func appendAll[T any](dst pcommon.Value, all []T, set func(pcommon.Value, T)) {
	s := dst.SetEmptySlice()
	s.EnsureCapacity(len(all))
	for _, v := range all {
		set(s.AppendEmpty(), v)
	}
}

// attributes is the inverse of [PutAttributes].
func attributes(m pcommon.Map) []attribute.KeyValue {
	if m.Len() == 0 {
		return nil
	}
	all := make([]attribute.KeyValue, 0, m.Len())
	for key, v := range m.All() {
		all = append(all, attribute.KeyValue{Key: attribute.Key(key), Value: value(v)})
	}
	return all
}

// value is the inverse of putValue, with one exception: OTLP does not distinguish a list of values of one type from a
// list of any values. value returns the former, and a list of strings for an empty list.
func value(v pcommon.Value) attribute.Value {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return attribute.BoolValue(v.Bool())
	case pcommon.ValueTypeInt:
		return attribute.Int64Value(v.Int())
	case pcommon.ValueTypeDouble:
		return attribute.Float64Value(v.Double())
	case pcommon.ValueTypeStr:
		return attribute.StringValue(v.Str())
	case pcommon.ValueTypeBytes:
		return attribute.ByteSliceValue(v.Bytes().AsRaw())
	case pcommon.ValueTypeMap:
		return attribute.MapValue(attributes(v.Map())...)
	case pcommon.ValueTypeSlice:
		return list(v.Slice())
	}
	return attribute.Value{}
}

func list(s pcommon.Slice) attribute.Value {
	kind := pcommon.ValueTypeStr
	for i, v := range s.All() {
		if i == 0 {
			kind = v.Type()
		} else if v.Type() != kind {
			kind = pcommon.ValueTypeEmpty
		}
	}
	switch kind {
	case pcommon.ValueTypeBool:
		return attribute.BoolSliceValue(each(s, pcommon.Value.Bool))
	case pcommon.ValueTypeInt:
		return attribute.Int64SliceValue(each(s, pcommon.Value.Int))
	case pcommon.ValueTypeDouble:
		return attribute.Float64SliceValue(each(s, pcommon.Value.Double))
	case pcommon.ValueTypeStr:
		return attribute.StringSliceValue(each(s, pcommon.Value.Str))
	}
	return attribute.SliceValue(each(s, value)...)
}

func each[T any](s pcommon.Slice, get func(pcommon.Value) T) []T {
	all := make([]T, 0, s.Len())
	for _, v := range s.All() {
		all = append(all, get(v))
	}
	return all
}

// timestamp returns 0 for the zero time and for a time that OTLP cannot represent.
func timestamp(t time.Time) pcommon.Timestamp { return pcommon.Timestamp(max(0, t.UnixNano())) }

// instant is the inverse of timestamp.
func instant(t pcommon.Timestamp) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.AsTime()
}

func count(n int) uint32 { return uint32(min(max(0, int64(n)), math.MaxUint32)) }

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

// Logs converts log records. It does not retain them.
func Logs(all []sdklog.Record) plog.Logs {
	ld := plog.NewLogs()
	var in groups[plog.ResourceLogs, plog.ScopeLogs]
	for i := range all {
		sl := in.of(all[i].Resource(), all[i].InstrumentationScope(), ld.ResourceLogs().AppendEmpty,
			func(rl plog.ResourceLogs) plog.ScopeLogs { return rl.ScopeLogs().AppendEmpty() })
		putRecord(sl.LogRecords().AppendEmpty(), &all[i])
	}
	return ld
}

func putRecord(dst plog.LogRecord, r *sdklog.Record) {
	dst.SetEventName(r.EventName())
	dst.SetTimestamp(timestamp(r.Timestamp()))
	dst.SetObservedTimestamp(timestamp(r.ObservedTimestamp()))
	// The API numbers severities as OTLP does. Other numbers are unset.
	if s := r.Severity(); s >= log.SeverityTrace1 && s <= log.SeverityFatal4 {
		dst.SetSeverityNumber(plog.SeverityNumber(s))
	}
	dst.SetSeverityText(r.SeverityText())
	putValue(dst.Body(), r.Body())
	dst.Attributes().EnsureCapacity(r.AttributesLen())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		putValue(dst.Attributes().PutEmpty(string(kv.Key)), kv.Value)
		return true
	})
	dst.SetDroppedAttributesCount(count(r.DroppedAttributes()))
	dst.SetTraceID(pcommon.TraceID(r.TraceID()))
	dst.SetSpanID(pcommon.SpanID(r.SpanID()))
	dst.SetFlags(plog.LogRecordFlags(r.TraceFlags()))
}

// Records converts the output of [Logs] back to records for a [sdklog.Exporter]. The SDK does not allow two things: the
// number of dropped attributes becomes 0, and the SDK adds the attributes in this process's OTEL_RESOURCE_ATTRIBUTES to
// the resource, if it does not have them.
func Records(ld plog.Logs) []sdklog.Record {
	var all collected
	for _, rl := range ld.ResourceLogs().All() {
		provider := sdklog.NewLoggerProvider(
			sdklog.WithResource(resource.NewWithAttributes(rl.SchemaUrl(), attributes(rl.Resource().Attributes())...)),
			sdklog.WithProcessor(&all), sdklog.WithAttributeCountLimit(-1), sdklog.WithAttributeValueLengthLimit(-1))
		for _, sl := range rl.ScopeLogs().All() {
			scope := sl.Scope()
			logger := provider.Logger(scope.Name(), log.WithInstrumentationVersion(scope.Version()),
				log.WithSchemaURL(sl.SchemaUrl()),
				log.WithInstrumentationAttributes(attributes(scope.Attributes())...))
			for _, r := range sl.LogRecords().All() {
				emit(logger, r)
			}
		}
	}
	return all.records
}

func emit(logger log.Logger, r plog.LogRecord) {
	var out log.Record
	out.SetEventName(r.EventName())
	out.SetTimestamp(instant(r.Timestamp()))
	out.SetObservedTimestamp(instant(r.ObservedTimestamp()))
	out.SetSeverity(log.Severity(r.SeverityNumber()))
	out.SetSeverityText(r.SeverityText())
	out.SetBody(value(r.Body()))
	out.AddAttributes(attributes(r.Attributes())...)
	sc := spanContext(r.TraceID(), r.SpanID(), uint32(r.Flags()))
	logger.Emit(trace.ContextWithSpanContext(context.Background(), sc), out)
}

// collected is a processor that stores records.
type collected struct{ records []sdklog.Record }

func (c *collected) OnEmit(_ context.Context, r *sdklog.Record) error {
	c.records = append(c.records, *r)
	return nil
}

func (*collected) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (*collected) Shutdown(context.Context) error                         { return nil }
func (*collected) ForceFlush(context.Context) error                       { return nil }
