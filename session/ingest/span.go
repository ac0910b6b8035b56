package ingest

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// span is a span where it stood.
type span struct {
	ptrace.Span
	scope    pcommon.InstrumentationScope
	resource pcommon.Resource
}
