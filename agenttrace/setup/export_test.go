package setup

import (
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// SetMaxQuiet makes shutdown give up sooner.
func SetMaxQuiet(d time.Duration) (reset func()) {
	before := maxQuiet
	maxQuiet = d
	return func() { maxQuiet = before }
}

// SpanBatches are the options of the span processor.
var SpanBatches = spanBatches

// CountSpans is what Init has around the exporter of spans.
func CountSpans(to sdktrace.SpanExporter) sdktrace.SpanExporter {
	return spanExporter{to, newDelivery("spans")}
}
