package ingest

import (
	"context"
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

// DefaultMaxBytes is where values are cut unless told otherwise, by whoever makes a
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
	return &Ingester{writer: w, keys: dialect.NewKeys(o.SessionKeys), redactor: o.Redactor, pool: sync.Pool{New: func() any { return new(builder) }}}
}

// Report counts what a delivery held.
type Report struct {
	// Spans and Records are how many spans and log records there were.
	Spans, Records int
	// Placed carried a fact of a session; Ignored carried none; Malformed had a
	// flaw, and are counted as placed or ignored too.
	Placed, Ignored, Malformed int
	// Flaws say what was wrong with the first of those that had one.
	Flaws []string
	// Dialects counts those that carried a fact by the dialect that they were read
	// by.
	Dialects map[string]int
	// Parked carried a fact of which no session can tell yet; they are counted as
	// placed too.
	Parked int64
	// Redacted, Omitted and Truncated are how many values secrets were taken out of,
	// how many were not wanted at all, and how many were cut.
	Redacted, Omitted, Truncated int
	// Rows were written, Refused could not be held by the store.
	Rows, Refused int64
	// Sessions are the ids of the sessions that were told of.
	Sessions []string
}

// Traces places every span and returns when its rows are committed. The error
// is the store's, and then nothing was stored; no span is an error of itself.
// It does not change td.
func (i *Ingester) Traces(ctx context.Context, td ptrace.Traces) (Report, error) {
	b := i.builder()
	defer i.release(b)
	var r Report
	for _, rs := range td.ResourceSpans().All() {
		resource := boundResource(rs.Resource())
		for _, ss := range rs.ScopeSpans().All() {
			scope := boundScope(ss.Scope())
			for _, s := range ss.Spans().All() {
				r.Spans++
				b.problems = b.problems[:0]
				s, cut := boundSpan(s)
				b.flawDeep(cut)
				b.ours = span{Span: s, scope: scope, resource: resource}
				if recognizeAgenttrace(&b.ours) {
					b.count(&r, dialectAgenttrace, placeAgenttrace(b, &b.ours))
					b.explain(&r, "span", s.Name(), s.SpanID())
					continue
				}
				b.foreign = dialect.NewSpan(s, scope, resource)
				name, ok := b.observeSpan(&b.foreign)
				b.count(&r, name, ok)
				b.explain(&r, "span", s.Name(), s.SpanID())
			}
		}
	}
	return i.apply(ctx, b, r)
}

// Logs places every log record, as Traces does spans.
func (i *Ingester) Logs(ctx context.Context, ld plog.Logs) (Report, error) {
	b := i.builder()
	defer i.release(b)
	var r Report
	for _, rl := range ld.ResourceLogs().All() {
		resource := boundResource(rl.Resource())
		for _, sl := range rl.ScopeLogs().All() {
			scope := boundScope(sl.Scope())
			for _, rec := range sl.LogRecords().All() {
				r.Records++
				b.problems = b.problems[:0]
				rec, cut := boundRecord(rec)
				b.flawDeep(cut)
				foreign := dialect.NewRecord(rec, scope, resource)
				if recognizeLive(&foreign) {
					b.count(&r, dialectAgenttrace, placeLive(b, &foreign))
					b.explain(&r, "log record", rec.EventName(), rec.SpanID())
					continue
				}
				name, ok := b.observeRecord(&foreign)
				b.count(&r, name, ok)
				b.explain(&r, "log record", rec.EventName(), rec.SpanID())
			}
		}
	}
	return i.apply(ctx, b, r)
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
func (b *builder) count(r *Report, dialect string, placed bool) {
	if len(b.problems) > 0 {
		r.Malformed++
	}
	if !placed {
		r.Ignored++
		return
	}
	r.Placed++
	if r.Dialects == nil {
		r.Dialects = make(map[string]int)
	}
	r.Dialects[dialect]++
}

// explain says what is wrong with the span or record at hand, of the first few.
func (b *builder) explain(r *Report, kind, name string, id pcommon.SpanID) {
	const most, mostOfOne = 20, 3
	if len(b.problems) == 0 || len(r.Flaws) >= most {
		return
	}
	what := kind
	if name != "" {
		what += " " + name
	}
	if !id.IsEmpty() {
		what += " " + id.String()
	}
	what += ": " + strings.Join(b.problems[:min(mostOfOne, len(b.problems))], "; ")
	if more := len(b.problems) - mostOfOne; more > 0 {
		what += "; and " + strconv.Itoa(more) + " more"
	}
	r.Flaws = append(r.Flaws, what)
}

func (i *Ingester) apply(ctx context.Context, b *builder, r Report) (Report, error) {
	b.batch.Assemble = assembleObservations
	if x := &b.redaction; x.Redactor != nil {
		x.batch(&b.batch)
		r.Redacted, r.Omitted, r.Truncated = x.redacted, x.omitted, x.truncated
	}
	result, err := i.writer.Apply(ctx, &b.batch)
	r.Rows, r.Refused, r.Parked, r.Sessions = result.Rows, result.Refused, result.Parked, result.Sessions
	return r, err
}
