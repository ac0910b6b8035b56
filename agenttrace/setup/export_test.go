package setup

import "time"

// SetMaxQuiet makes shutdown give up sooner.
func SetMaxQuiet(d time.Duration) (reset func()) {
	before := maxQuiet
	maxQuiet = d
	return func() { maxQuiet = before }
}

// SpanBatches are the options of the span processor.
var SpanBatches = spanBatches
