package ingest

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/store"
)

// Options configure an [Ingester]. The zero value is ready for use.
type Options struct {
	// SessionKeys are the attribute keys under which a session's id is looked up
	// on spans that are not the SDK's, the first that is set winning. Nil means
	// DefaultSessionKeys.
	SessionKeys []string
}

// DefaultSessionKeys are the keys that agents and back ends use for the id of a
// session, the most exact first.
var DefaultSessionKeys = []string{"session.id", "gen_ai.conversation.id", "session_id", "conversation.id", "thread_id", "langfuse.session.id"}

// Ingester writes telemetry into a store. It is safe for concurrent use.
type Ingester struct {
	writer store.Writer
	keys   []string
	pool   sync.Pool
}

// New returns an Ingester that writes to w.
func New(w store.Writer, o Options) *Ingester {
	keys := o.SessionKeys
	if keys == nil {
		keys = DefaultSessionKeys
	}
	return &Ingester{writer: w, keys: keys, pool: sync.Pool{New: func() any { return new(builder) }}}
}

// Report counts what a delivery held.
type Report struct {
	// Spans and Records are how many spans and log records there were.
	Spans, Records int
	// Placed carried a fact of a session; Ignored carried none; Malformed had a
	// flaw, and are counted as placed or ignored too.
	Placed, Ignored, Malformed int
	// Rows were written, Refused could not be held by the store.
	Rows, Refused int64
}

// Traces places every span and returns when its rows are committed. The error
// is the store's, and then nothing was stored; no span is an error of itself.
// It does not change td.
func (i *Ingester) Traces(ctx context.Context, td ptrace.Traces) (Report, error) {
	b := i.pool.Get().(*builder)
	defer func() {
		b.reset()
		i.pool.Put(b)
	}()
	var r Report
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				r.Spans++
				in := span{Span: s, scope: ss.Scope(), resource: rs.Resource()}
				d := recognize(&in)
				if d == nil {
					r.Ignored++
					continue
				}
				b.problems = b.problems[:0]
				if d.place(b, &in) {
					r.Placed++
				} else {
					r.Ignored++
				}
				if len(b.problems) > 0 {
					r.Malformed++
				}
			}
		}
	}
	result, err := i.writer.Apply(ctx, &b.batch)
	r.Rows, r.Refused = result.Rows, result.Refused
	return r, err
}

// Logs accepts log records. No dialect reads them yet, so all are counted as
// ignored.
func (i *Ingester) Logs(_ context.Context, ld plog.Logs) (Report, error) {
	n := ld.LogRecordCount()
	return Report{Records: n, Ignored: n}, nil
}
