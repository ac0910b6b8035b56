// Package ingest turns telemetry into sessions.
//
// A span or log record of the SDK becomes changes: what it reports of a session, a message, a part or a decision. One
// of another agent is recognized by a dialect and becomes an observation, from which package assemble builds the rows
// of its session. Either is a [store.Batch], which the store merges into its rows.
//
// Nothing is held in memory between calls. A span is written when it arrives, whether or not its parent or its session
// is known: there is no end-of-trace marker to wait for. What a span reports is never dropped because something in it
// is wrong: a value of the wrong type stays unset, text that should be JSON is kept as text, and the message reports so
// under agenttrace.problems.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/store"
)

// Options configure an [Ingester]. The zero value is ready for use.
type Options struct {
	// SessionKeys are the attribute keys under which a session's id is looked up on what is not the SDK's: on the span
	// or record, its scope and its resource, and on any other of the same trace. The first that is set wins. Nil means
	// [dialect.SessionKeys].
	SessionKeys []string
	// Redactor takes secrets out of everything that is stored, omits what is not wanted and cuts what is too long. Ids,
	// states, types and the names of tools and models stay as they are. Nil stores everything as it came.
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
	received int64 // after all times that receive has returned
	mu       sync.Mutex
}

// receive returns the time in Unix nanoseconds, so that as many from it on are no others'.
func (i *Ingester) receive(items int) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := max(time.Now().UnixNano(), i.received)
	i.received = at + int64(items)
	return at
}

// New returns an Ingester that writes to w.
func New(w store.Writer, o Options) *Ingester {
	return &Ingester{writer: w, keys: dialect.NewKeys(o.SessionKeys), redactor: o.Redactor}
}

// Report counts what a delivery held.
type Report struct {
	// Spans and Records are how many spans and log records there were.
	Spans, Records int
	// Accepted carried a fact of a session; Ignored carried none; Malformed had a
	// problem, and are counted as one of these or refused too.
	Accepted, Ignored, Malformed int
	// Problems state what was wrong with the first of those that had one.
	Problems []string
	// Dialects counts those that carried a fact by the dialect that they were read by.
	Dialects map[string]int
	// Pending had a fact that is not attributed to a session yet; they are counted as accepted too.
	Pending int64
	// Redacted, Omitted and Truncated are how many values secrets were removed from,
	// how many were left out, and how many were truncated.
	Redacted, Omitted, Truncated int
	// Unrecognized counts the spans and records that no dialect of a client recognizes, by
	// the scope that made them. Those of ordinary programs are not among them.
	Unrecognized map[Scope]ScopeCounts
	// Rows were written, Refused could not be held by the store: spans and records that are neither Accepted nor
	// Ignored, and rows of others. Refusals state why, of the first.
	Rows, Refused int64
	Refusals      []string
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

// tally sets a key of a map that may not be made yet.
func tally[K comparable, V any](m *map[K]V, key K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = v
}

// add adds what another delivery held.
func (r *Report) add(o Report) {
	for _, n := range [...][2]*int{{&r.Spans, &o.Spans}, {&r.Records, &o.Records}, {&r.Accepted, &o.Accepted},
		{&r.Ignored, &o.Ignored}, {&r.Malformed, &o.Malformed}, {&r.Redacted, &o.Redacted}, {&r.Omitted, &o.Omitted},
		{&r.Truncated, &o.Truncated}} {
		*n[0] += *n[1]
	}
	r.Pending += o.Pending
	r.Rows += o.Rows
	r.Refused += o.Refused
	r.Problems, r.Refusals = append(r.Problems, o.Problems...), append(r.Refusals, o.Refusals...)
	for name, n := range o.Dialects {
		tally(&r.Dialects, name, r.Dialects[name]+n)
	}
	for scope, c := range o.Unrecognized {
		tally(&r.Unrecognized, scope, r.Unrecognized[scope].Add(c))
	}
	known := func(id string) bool { return slices.Contains(r.Sessions, id) }
	r.Sessions = append(r.Sessions, slices.DeleteFunc(o.Sessions, known)...)
}

// item is a span or a log record of a delivery.
type item struct {
	span     ptrace.Span
	record   plog.LogRecord
	resource pcommon.Resource
	scope    pcommon.InstrumentationScope
	// block is 0 for a span. The records of one scope in a delivery have one of their own.
	block int
}

// Traces places every span and returns when its rows are committed. The error is the store's, and then nothing was
// stored, or a part of a large request, which may be delivered again; no span is an error of itself. Where the store
// refuses a request for good, its spans are stored without those that it refuses, which the report counts. It does not
// change td.
func (i *Ingester) Traces(ctx context.Context, td ptrace.Traces) (Report, error) {
	reported, rows := make([]item, 0, td.SpanCount()), []item(nil)
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				it := item{span: s, scope: ss.Scope(), resource: rs.Resource()}
				if carriesRows(s) {
					rows = append(rows, it)
				} else {
					reported = append(reported, it)
				}
			}
		}
	}
	// Rows of another store are stored as they are, and what agents report beside them of the same sessions is merged:
	// so they do not share a transaction.
	return i.deliver(ctx, reported, rows)
}

// Logs places every log record, as Traces does spans.
func (i *Ingester) Logs(ctx context.Context, ld plog.Logs) (Report, error) {
	items, block := make([]item, 0, ld.LogRecordCount()), 0
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			block++
			for _, rec := range sl.LogRecords().All() {
				items = append(items, item{record: rec, scope: sl.Scope(), resource: rl.Resource(), block: block})
			}
		}
	}
	return i.deliver(ctx, items)
}

// deliver stores items, those of each list in transactions of their own.
func (i *Ingester) deliver(ctx context.Context, lists ...[]item) (sum Report, err error) {
	left := maxRefused
	for _, items := range lists {
		if len(items) == 0 {
			continue
		}
		r, err := i.storeAll(ctx, items, &left)
		if sum.add(r); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// maxRefused is how many spans or records of one request are looked for. A store that
// refuses more refuses everything, as a damaged file does.
const maxRefused = 32

// maxAtOnce is how many spans or records are stored in one transaction. Of a larger request other senders would have to
// wait for the whole.
const maxAtOnce = 1024

// storeAll stores items. A store that refuses them for good refuses one or a few, and does not state which: they are
// found by halves, and the others are stored. It fails when the store may take later what it does not take now, or when
// it refuses everything. left counts down from maxRefused.
func (i *Ingester) storeAll(ctx context.Context, items []item, left *int) (Report, error) {
	if len(items) <= maxAtOnce {
		r, err := i.store(ctx, items)
		if len(items) == 1 && err != nil && !mayPass(err) {
			*left--
		}
		if err == nil || mayPass(err) || len(items) == 1 || *left <= 0 {
			return r, err
		}
	}
	half := len(items) / 2
	sum, firstErr := i.storeAll(ctx, items[:half], left)
	if firstErr != nil && mayPass(firstErr) {
		return sum, firstErr
	}
	other, secondErr := i.storeAll(ctx, items[half:], left)
	sum.add(other)
	if secondErr != nil && (firstErr != nil || mayPass(secondErr)) {
		return sum, secondErr
	}
	if err := errors.Join(firstErr, secondErr); err != nil {
		sum.Refused++
		sum.Refusals = append(sum.Refusals, "the store refuses it: "+err.Error())
	}
	return sum, nil
}

// mayPass reports whether an error is not the request's fault.
func mayPass(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// store stores items in one transaction.
func (i *Ingester) store(ctx context.Context, items []item) (Report, error) {
	b := i.builder()
	var r Report
	block, received := 0, i.receive(len(items))
	for k := range items {
		it := &items[k]
		b.received = received + int64(k)
		if it.block != block {
			block = it.block
			clear(b.seen) // a block of one scope begins
		}
		b.problems = b.problems[:0]
		var counts ScopeCounts
		var kind, what string
		var id pcommon.SpanID
		if it.block == 0 {
			r.Spans++
			counts.Spans, kind, what, id = 1, "span", it.span.Name(), it.span.SpanID()
		} else {
			r.Records++
			counts.Records, kind, what, id = 1, "log record", it.record.EventName(), it.record.SpanID()
		}
		name, accepted := b.attribute(it)
		if accepted {
			counts.Read = 1
		}
		b.count(&r, name, accepted)
		if name == dialect.Generic || name == "" && it.block == 0 && b.foreign.HasOther() {
			scope := Scope{it.scope.Name(), it.scope.Version()}
			tally(&r.Unrecognized, scope, r.Unrecognized[scope].Add(counts))
		}
		b.explain(&r, kind, what, id)
	}
	return i.apply(ctx, b, r)
}

// attribute adds what a span or record reports to the batch, and returns the dialect that read it and whether it
// reported anything. A mistake of ours in reading one must not end the process, and the rest of the request with it.
func (b *builder) attribute(it *item) (name string, accepted bool) {
	defer func() {
		if p := recover(); p != nil {
			b.problem(fmt.Sprintf("it cannot be read, which is a defect of agenttrace: %v", p))
			accepted = false
		}
	}()
	if it.block == 0 {
		if recognizeAgenttrace(it.span, it.scope) {
			name, accepted = dialectAgenttrace, attributeAgenttrace(b, it.span)
		} else {
			b.foreign = dialect.NewSpan(it.span, it.scope, it.resource)
			name, accepted = b.observeSpan(&b.foreign)
		}
		if b.observeEvaluations(it) && !accepted {
			name, accepted = dialect.GenAI, true
		}
		return name, accepted
	}
	foreign := dialect.NewRecord(it.record, it.scope, it.resource)
	if recognizeLive(&foreign) {
		return dialectAgenttrace, attributeLive(b, &foreign)
	}
	return b.observeRecord(&foreign)
}

func (i *Ingester) builder() *builder {
	return &builder{keys: i.keys, redaction: redaction{Redactor: i.redactor}, noted: make(map[noted]bool),
		seen: make(map[string]int)}
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
	tally(&r.Dialects, dialect, r.Dialects[dialect]+1)
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
	r.Accepted, r.Refusals = max(0, r.Accepted-int(result.RefusedReports)), result.Refusals
	return r, err
}

// builder collects the changes of one delivery.
type builder struct {
	batch store.Batch
	// redaction takes out what may not be stored.
	redaction redaction
	// problems are those of the span at hand.
	problems []string
	keys     *dialect.Keys
	// noted are sessions that were named by spans which report nothing else.
	noted map[noted]bool
	// seen counts the records that report a message by their digest: of the scope at hand, for a delivery may hold what
	// was delivered before, as a block of its own.
	seen map[string]int
	// received is when the span or record at hand came.
	received int64
	// foreign is the span at hand that is not the SDK's, here so that it is not allocated.
	foreign dialect.Span
}

// problem notes what is wrong with the span at hand.
func (b *builder) problem(problem string) {
	const limit = 200 // an error may quote a value of any length
	if b.redaction.Redactor != nil {
		problem = b.redaction.Text(problem) // before a cut makes a secret unlike one
	}
	if len(problem) > limit {
		problem = strings.ToValidUTF8(problem[:limit], "") + "…"
	}
	b.problems = append(b.problems, problem)
}

// takeProblems returns the problems for storing, a few at most: the count of a broken emitter's problems has no bound.
func (b *builder) takeProblems() []string {
	const limit = 8
	return append([]string(nil), b.problems[:min(len(b.problems), limit)]...)
}

// session adds a change of a session, which is valid until the next one. from and to are Unix nanoseconds; 0 is unset.
func (b *builder) session(id string, from, to int64) *store.SessionChange {
	b.batch.Sessions = append(b.batch.Sessions, store.SessionChange{ID: id, Start: from / 1e6, End: to / 1e6})
	return &b.batch.Sessions[len(b.batch.Sessions)-1]
}

// reported is a value that was reported at a time, nil without a text.
func reported(text string, at int64, rank store.Rank) *store.Value {
	if text == "" {
		return nil
	}
	return &store.Value{Text: text, At: at, Rank: rank}
}

// stub reports that a message exists.
func (b *builder) stub(sessionID, messageID string, from, to int64) {
	b.batch.Messages = append(b.batch.Messages, store.MessageChange{
		ID: messageID, SessionID: sessionID, CreatedAt: from / 1e6, UpdatedAt: to / 1e6, Rank: store.RankStub,
	})
}

// blob stores a text and returns the digest that it is kept by: the one that its source gives it, or else its own.
func (b *builder) blob(kind store.BlobKind, digest, body string) string {
	if body == "" {
		return digest
	}
	own := session.Digest(body)
	blob := store.Blob{Kind: kind, Digest: cmp.Or(digest, own), Body: body}
	if blob.Exact = blob.Digest == own; !slices.Contains(b.batch.Blobs, blob) {
		b.batch.Blobs = append(b.batch.Blobs, blob)
	}
	return blob.Digest
}
