package testscale

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// EachSpan calls f with each span of a request, its scope and its resource.
func EachSpan(td ptrace.Traces, f func(ptrace.Span, pcommon.InstrumentationScope, pcommon.Resource)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				f(s, ss.Scope(), rs.Resource())
			}
		}
	}
}

// EachRecord calls f with each log record of a request, its scope and its resource.
func EachRecord(ld plog.Logs, f func(plog.LogRecord, pcommon.InstrumentationScope, pcommon.Resource)) {
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				f(r, sl.Scope(), rl.Resource())
			}
		}
	}
}
