package ingest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
)

// Options configure an [Ingester]. The zero value is ready for use.
type Options struct {
	// SessionKeys are the attribute keys under which a session's id is looked up
	// on what is not the SDK's: on the span or record, its scope and its resource,
	// and on any other of the same trace. The first that is set wins. Nil means
	// [dialect.SessionKeys].
	SessionKeys []string
	// Redactor takes secrets out of everything that is stored, omits what is not
	// wanted and cuts what is too long. Ids, states, types and the names of tools and
	// models stay as they are. Nil stores everything as it came.
	Redactor *redact.Redactor
}

// DefaultMaxBytes is where values are cut by default, by a caller that makes a
// Redactor for an Ingester: far beyond what a person reads.
const DefaultMaxBytes = 1 << 20

// Ingester writes telemetry into a store. It is safe for concurrent use.
type Ingester struct {
	writer   store.Writer
	keys     *dialect.Keys
	redactor *redact.Redactor
	pool     sync.Pool
}

// New returns an Ingester that writes to w.
func New(w store.Writer, o Options) *Ingester {
	return &Ingester{writer: w, keys: dialect.NewKeys(o.SessionKeys), redactor: o.Redactor,
		pool: sync.Pool{New: func() any { return newBuilder() }}}
}

// Report counts what a delivery held.
type Report struct {
	// Spans and Records are how many spans and log records there were.
	Spans, Records int
	// Accepted carried a fact of a session; Ignored carried none; Malformed had a
	// problem, and are counted as accepted or ignored too.
	Accepted, Ignored, Malformed int
	// Problems state what was wrong with the first of those that had one.
	Problems []string
	// Dialects counts those that carried a fact by the dialect that they were read
	// by.
	Dialects map[string]int
	// Pending had a fact that is not attributed to a session yet; they are counted as
	// accepted too.
	Pending int64
	// Redacted, Omitted and Truncated are how many values secrets were removed from,
	// how many were left out, and how many were truncated.
	Redacted, Omitted, Truncated int
	// Unrecognized counts the spans and records that no dialect of a client recognizes, by
	// the scope that made them. Those of ordinary programs are not among them.
	Unrecognized map[Scope]ScopeCounts
	// Rows were written, Refused could not be held by the store.
	Rows, Refused int64
	// Sessions are the ids of the sessions that were reported.
	Sessions []string
}

// Scope is an instrumentation scope.
type Scope struct{ Name, Version string }

// ScopeCounts counts what a scope that no dialect recognizes sent. Read are those that the
// generic reading found something of a session in.
type ScopeCounts struct{ Spans, Records, Read int }

// Add adds other counts.
func (c ScopeCounts) Add(o ScopeCounts) ScopeCounts {
	return ScopeCounts{c.Spans + o.Spans, c.Records + o.Records, c.Read + o.Read}
}

func (r *Report) unrecognized(s pcommon.InstrumentationScope, c ScopeCounts, read bool) {
	if r.Unrecognized == nil {
		r.Unrecognized = make(map[Scope]ScopeCounts)
	}
	if read {
		c.Read = 1
	}
	key := Scope{s.Name(), s.Version()}
	r.Unrecognized[key] = r.Unrecognized[key].Add(c)
}

// Traces places every span and returns when its rows are committed. The error
// is the store's, and then nothing was stored, or a part of a large request, which may be delivered
// again; no span is an error of itself.
// Where the store refuses a request for good, its spans are stored without those that
// it refuses, which the report counts. It does not change td.
func (i *Ingester) Traces(ctx context.Context, td ptrace.Traces) (Report, error) {
	n, left, withRows := td.SpanCount(), maxRefused, 0
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				if carriesRows(s) {
					withRows++
				}
			}
		}
	}
	some := func(n int, meant func(ptrace.Span) bool) (Report, error) {
		return storeAll(0, n, func(from, until int) (Report, error) { return i.traces(ctx, td, meant, from, until) }, &left)
	}
	if withRows == 0 || withRows == n {
		return some(n, func(ptrace.Span) bool { return true })
	}
	// Rows of another store are stored as they are, and what agents report beside them of the same sessions is merged:
	// so they do not share a transaction.
	r, err := some(n-withRows, func(s ptrace.Span) bool { return !carriesRows(s) })
	if err != nil {
		return r, err
	}
	rows, err := some(withRows, carriesRows)
	r.add(rows)
	return r, err
}

// traces stores some spans of a request: of those that are meant, the ones from one number until before another.
func (i *Ingester) traces(ctx context.Context, td ptrace.Traces, meant func(ptrace.Span) bool,
	from, until int) (Report, error) {
	b := i.builder()
	defer i.release(b)
	var r Report
	n := -1 // the number of the span among those that are meant
	for _, rs := range td.ResourceSpans().All() {
		resource := rs.Resource()
		for _, ss := range rs.ScopeSpans().All() {
			scope := ss.Scope()
			for _, s := range ss.Spans().All() {
				if !meant(s) {
					continue
				}
				if n++; n < from || n >= until {
					continue
				}
				r.Spans++
				b.problems = b.problems[:0]
				name, ok := b.attributeSpan(s, scope, resource)
				b.count(&r, name, ok)
				if name == "" && b.foreign.HasOther() || name == dialect.Generic {
					r.unrecognized(scope, ScopeCounts{Spans: 1}, ok)
				}
				b.explain(&r, "span", s.Name(), s.SpanID())
			}
		}
	}
	return i.apply(ctx, b, r)
}

// Logs places every log record, as Traces does spans.
func (i *Ingester) Logs(ctx context.Context, ld plog.Logs) (Report, error) {
	left := maxRefused
	return storeAll(0, ld.LogRecordCount(),
		func(from, until int) (Report, error) { return i.logs(ctx, ld, from, until) }, &left)
}

// logs does the same with log records.
func (i *Ingester) logs(ctx context.Context, ld plog.Logs, from, until int) (Report, error) {
	b := i.builder()
	defer i.release(b)
	var r Report
	n := -1
	for _, rl := range ld.ResourceLogs().All() {
		resource := rl.Resource()
		for _, sl := range rl.ScopeLogs().All() {
			b.beginRecords()
			scope := sl.Scope()
			for _, rec := range sl.LogRecords().All() {
				if n++; n < from || n >= until {
					continue
				}
				r.Records++
				b.problems = b.problems[:0]
				name, ok := b.attributeRecord(rec, scope, resource)
				b.count(&r, name, ok)
				if name == dialect.Generic {
					r.unrecognized(scope, ScopeCounts{Records: 1}, ok)
				}
				b.explain(&r, "log record", rec.EventName(), rec.SpanID())
			}
		}
	}
	return i.apply(ctx, b, r)
}

// attributeSpan adds what a span reports to the batch, and returns the dialect that read it
// and whether it reported anything.
func (b *builder) attributeSpan(s ptrace.Span, scope pcommon.InstrumentationScope,
	resource pcommon.Resource) (name string, accepted bool) {
	defer b.survive(&accepted)
	if recognizeAgenttrace(s, scope) {
		return dialectAgenttrace, attributeAgenttrace(b, s)
	}
	b.foreign = dialect.NewSpan(s, scope, resource)
	return b.observeSpan(&b.foreign)
}

// attributeRecord does the same with a log record.
func (b *builder) attributeRecord(rec plog.LogRecord, scope pcommon.InstrumentationScope,
	resource pcommon.Resource) (name string, accepted bool) {
	defer b.survive(&accepted)
	foreign := dialect.NewRecord(rec, scope, resource)
	if recognizeLive(&foreign) {
		return dialectAgenttrace, attributeLive(b, &foreign)
	}
	return b.observeRecord(&foreign)
}

// survive keeps a mistake of ours in reading one span from ending the process, and the
// rest of the request with it. It is deferred.
func (b *builder) survive(accepted *bool) {
	if p := recover(); p != nil {
		clear(b.facts.All)
		b.facts.All = b.facts.All[:0]
		b.problem(fmt.Sprintf("it cannot be read, which is a defect of agenttrace: %v", p))
		*accepted = false
	}
}

func (i *Ingester) builder() *builder {
	b := i.pool.Get().(*builder)
	b.keys = i.keys
	b.redaction = redaction{Redactor: i.redactor}
	return b
}

func (i *Ingester) release(b *builder) {
	b.reset()
	i.pool.Put(b)
}

// count adds the span or record at hand to the report.
func (b *builder) count(r *Report, dialect string, accepted bool) {
	if len(b.problems) > 0 {
		r.Malformed++
	}
	if !accepted {
		r.Ignored++
		return
	}
	r.Accepted++
	if r.Dialects == nil {
		r.Dialects = make(map[string]int)
	}
	r.Dialects[dialect]++
}

// explain states what is wrong with the span or record at hand, of the first few.
func (b *builder) explain(r *Report, kind, name string, id pcommon.SpanID) {
	const limit, maxOfOne = 20, 3
	if len(b.problems) == 0 || len(r.Problems) >= limit {
		return
	}
	what := kind
	if name != "" {
		what += " " + b.redaction.Text(name)
	}
	if !id.IsEmpty() {
		what += " " + id.String()
	}
	what += ": " + strings.Join(b.problems[:min(maxOfOne, len(b.problems))], "; ")
	if more := len(b.problems) - maxOfOne; more > 0 {
		what += "; and " + strconv.Itoa(more) + " more"
	}
	r.Problems = append(r.Problems, what)
}

// Complete sets the functions of a batch by which a store makes rows of its observations. Those of an Ingester have
// them; one that comes from another process has not.
func Complete(b *store.Batch) {
	b.Assemble, b.Adopt, b.Threads = assembleWindow, adoptTranscript, dialect.HasThreads
}

// Resume has the store rebuild what a process that ended has left. Otherwise that is done after the first delivery.
func (i *Ingester) Resume(ctx context.Context) error {
	var nothing store.Batch
	Complete(&nothing)
	_, err := i.writer.Apply(ctx, &nothing)
	return err
}

func (i *Ingester) apply(ctx context.Context, b *builder, r Report) (Report, error) {
	Complete(&b.batch)
	if x := &b.redaction; x.Redactor != nil {
		x.batch(&b.batch)
		r.Redacted, r.Omitted, r.Truncated = x.redacted, x.omitted, x.truncated
	}
	result, err := i.writer.Apply(ctx, &b.batch)
	r.Rows, r.Refused, r.Pending, r.Sessions = result.Rows, result.Refused, result.Pending, result.Sessions
	return r, err
}
