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

// dialect is one way of telling a session in spans.
type dialect struct {
	// name is stored with everything that was read by the dialect.
	name string
	// recognize says whether the span is of the dialect. It must be cheap: it
	// sees every span that passes.
	recognize func(*span) bool
	// place adds what the span says to the batch, and reports whether it said
	// anything of a session.
	place func(*builder, *span) bool
}

// dialects are tried in order; the first that recognizes a span reads it.
var dialects = []dialect{
	{name: dialectAgenttrace, recognize: recognizeAgenttrace, place: placeAgenttrace},
}

func recognize(s *span) *dialect {
	for i := range dialects {
		if dialects[i].recognize(s) {
			return &dialects[i]
		}
	}
	return nil
}
