package ingest_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// A session that was read generically is read by its dialect when its telemetry comes
// again after an upgrade, whichever came first, and keeps nothing of the first reading.
func TestLaterReadingReplacesTheGenericOne(t *testing.T) {
	all := readCapture(t, "testdata/captures/langfuse-js-5.11.1/chat")
	s := openStore(t)
	deliver(t, s, all)
	want := dump(t, s.Path())

	// Before the upgrade the client's own attribute of its kind was not known.
	before := readCapture(t, "testdata/captures/langfuse-js-5.11.1/chat")
	for _, r := range before {
		testscale.EachSpan(r.traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
			if v, ok := s.Attributes().Get("langfuse.observation.type"); ok {
				kind := v.Str()
				s.Attributes().Remove("langfuse.observation.type")
				s.Attributes().PutStr("x.span.type", kind+strings.Repeat(" ", 2000)) // longer data counted for more
				s.Attributes().PutStr("x.kind", kind)
			}
		})
	}
	for name, order := range map[string][]request{"upgrade": append(before, all...),
		"older telemetry comes later": append(all, before...)} {
		s := openStore(t)
		report := deliver(t, s, order)
		if report.Dialects["generic"] == 0 || report.Dialects["langfuse"] == 0 {
			t.Fatalf("%s: read by %v, want both", name, report.Dialects)
		}
		if got := dump(t, s.Path()); got != want {
			t.Errorf("%s (-read once +read twice):\n%s", name,
				differ(want, got))
		}
	}
}
