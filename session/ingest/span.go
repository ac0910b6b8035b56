package ingest

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// span is a span with its scope and resource.
type span struct {
	ptrace.Span
	scope    pcommon.InstrumentationScope
	resource pcommon.Resource
}
