package dialect

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// read is what a dialect gave of a span or record.
type read struct {
	dialect string
	facts   []fact.Fact
}

func readSpan(s ptrace.Span, scope pcommon.InstrumentationScope, resource pcommon.Resource) read {
	span := NewSpan(s, scope, resource)
	d := OfSpan(&span)
	if d == nil {
		return read{}
	}
	var facts Emitter
	facts.OpenSpan(d, &span, NewKeys(nil))
	d.ReadSpan(&span, &facts)
	return read{d.Name, facts.All}
}

func readRecord(r plog.LogRecord, scope pcommon.InstrumentationScope, resource pcommon.Resource) read {
	record := NewRecord(r, scope, resource)
	d := OfRecord(&record)
	if d == nil {
		return read{}
	}
	var facts Emitter
	facts.OpenRecord(d, &record, NewKeys(nil))
	d.ReadRecord(&record, &facts)
	return read{d.Name, facts.All}
}

// captured reads all bodies of a capture. It gives the facts of the spans, those of
// the records, and how many spans and records there were.
func captured(t *testing.T, dialect, dir string) (spans, records []fact.Fact, spanCount, recordCount int) {
	t.Helper()
	bodies, err := filepath.Glob(filepath.Join("../testdata/captures", dir, "*.json"))
	if err != nil || len(bodies) == 0 {
		t.Fatalf("no bodies in %s: %v", dir, err)
	}
	for _, name := range bodies {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "-traces.json") {
			traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body)
			if err != nil {
				t.Fatal(err)
			}
			for _, rs := range traces.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						got := readSpan(s, ss.Scope(), rs.Resource())
						if got.dialect != dialect {
							t.Errorf("span %s is read by %q", s.Name(), got.dialect)
						}
						spans = append(spans, got.facts...)
						spanCount++
					}
				}
			}
			continue
		}
		logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, rl := range logs.ResourceLogs().All() {
			for _, sl := range rl.ScopeLogs().All() {
				for _, r := range sl.LogRecords().All() {
					got := readRecord(r, sl.Scope(), rl.Resource())
					if got.dialect != dialect {
						t.Errorf("record %s is read by %q", r.EventName(), got.dialect)
					}
					records = append(records, got.facts...)
					recordCount++
				}
			}
		}
	}
	byStart := func(a, b fact.Fact) int { return int(a.Start - b.Start) }
	slices.SortStableFunc(spans, byStart)
	slices.SortStableFunc(records, byStart)
	return spans, records, spanCount, recordCount
}

// spanOf makes a span, recordOf a record, of attributes in Go's types.
func spanOf(t *testing.T, scope, name string, attrs map[string]any) (ptrace.Span, read) {
	t.Helper()
	return spanWith(t, scope, name, attrs, nil)
}

// spanWith is spanOf for a span that needs more than attributes.
func spanWith(t *testing.T, scope, name string, attrs map[string]any, more func(ptrace.Span)) (ptrace.Span, read) {
	t.Helper()
	s := ptrace.NewSpan()
	s.SetName(name)
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetParentSpanID(pcommon.SpanID{3})
	s.SetStartTimestamp(1_790_000_000_000_000_000)
	s.SetEndTimestamp(1_790_000_001_500_000_000)
	if err := s.Attributes().FromRaw(attrs); err != nil {
		t.Fatal(err)
	}
	if more != nil {
		more(s)
	}
	in := pcommon.NewInstrumentationScope()
	in.SetName(scope)
	return s, readSpan(s, in, pcommon.NewResource())
}

func recordOf(t *testing.T, scope, event string, attrs map[string]any) []fact.Fact {
	t.Helper()
	r := plog.NewLogRecord()
	r.SetTimestamp(1_790_000_002_000_000_000)
	if err := r.Attributes().FromRaw(attrs); err != nil {
		t.Fatal(err)
	}
	r.Attributes().PutStr("event.name", event)
	in := pcommon.NewInstrumentationScope()
	in.SetName(scope)
	return readRecord(r, in, pcommon.NewResource()).facts
}

// one returns the only fact.
func one(t *testing.T, facts []fact.Fact) fact.Fact {
	t.Helper()
	if len(facts) != 1 {
		t.Fatalf("%d facts, want 1: %s", len(facts), lines(t, facts))
	}
	return facts[0]
}

// lines writes facts as JSON, one in a line, without what every one of them has.
func lines(t *testing.T, facts []fact.Fact) string {
	t.Helper()
	var b strings.Builder
	for _, f := range facts {
		f.Dialect, f.TraceID, f.SpanID, f.ParentID, f.Start, f.End, f.Session, f.SessionKey, f.SessionRank = "", "", "",
			"",
			0, 0, "", "", 0
		if f.ToolCatalog != "" {
			f.ToolCatalogDigest = "yes"
		}
		if f.SystemPrompt != "" {
			f.SystemPromptDigest = "yes"
		}
		raw, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(raw)
		b.WriteByte('\n')
	}
	return b.String()
}
