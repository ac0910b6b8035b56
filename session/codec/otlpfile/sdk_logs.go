package otlpfile

import (
	"context"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

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
