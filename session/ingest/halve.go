package ingest

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/store"
)

// maxRefused is how many spans or records of one request are looked for. A store that
// refuses more refuses everything, as a damaged file does.
const maxRefused = 32

// storeAll stores a request. A store that refuses it for good refuses one or a few of
// its spans, and does not state which: they are found by halves, and the others are
// stored. It fails when the store may take later what it does not take now, or when
// it refuses everything. left counts down from maxRefused.
func storeAll[T any](
	ctx context.Context, request T, do func(context.Context, T) (Report, error), count func(T) int,
	halve func(T) (T, T), left *int,
) (Report, error) {
	r, err := do(ctx, request)
	if err == nil || mayPass(err) {
		return r, err
	}
	if count(request) < 2 {
		*left--
		return r, err
	}
	if *left <= 0 {
		return r, err
	}
	first, second := halve(request)
	sum, firstErr := storeAll(ctx, first, do, count, halve, left)
	if firstErr != nil && mayPass(firstErr) {
		return sum, firstErr
	}
	other, secondErr := storeAll(ctx, second, do, count, halve, left)
	sum.add(other)
	if secondErr != nil && (firstErr != nil || mayPass(secondErr)) {
		return sum, secondErr
	}
	if err := errors.Join(firstErr, secondErr); err != nil {
		sum.Refused++
		sum.Problems = append(sum.Problems, "the store refuses it: "+err.Error())
	}
	return sum, nil
}

// mayPass reports whether an error is not the request's fault.
func mayPass(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// add adds what another delivery held.
func (r *Report) add(o Report) {
	r.Spans += o.Spans
	r.Records += o.Records
	r.Accepted += o.Accepted
	r.Ignored += o.Ignored
	r.Malformed += o.Malformed
	r.Problems = append(r.Problems, o.Problems...)
	if r.Dialects == nil {
		r.Dialects = maps.Clone(o.Dialects)
	} else {
		for name, n := range o.Dialects {
			r.Dialects[name] += n
		}
	}
	for scope, c := range o.Unrecognized {
		if r.Unrecognized == nil {
			r.Unrecognized = make(map[Scope]ScopeCounts)
		}
		r.Unrecognized[scope] = r.Unrecognized[scope].Add(c)
	}
	r.Pending += o.Pending
	r.Redacted += o.Redacted
	r.Omitted += o.Omitted
	r.Truncated += o.Truncated
	r.Rows += o.Rows
	r.Refused += o.Refused
	for _, id := range o.Sessions {
		if !slices.Contains(r.Sessions, id) {
			r.Sessions = append(r.Sessions, id)
		}
	}
}

func halveTraces(td ptrace.Traces) (first, second ptrace.Traces) {
	n := td.SpanCount()
	return spansOf(td, 0, n/2), spansOf(td, n/2, n)
}

// spansOf returns the spans of a request from one number until before another.
func spansOf(td ptrace.Traces, from, until int) ptrace.Traces {
	some, n := ptrace.NewTraces(), 0
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			first := max(from-n, 0)
			n += ss.Spans().Len()
			if last := ss.Spans().Len() - max(n-until, 0); first < last {
				to := some.ResourceSpans().AppendEmpty()
				boundResource(rs.Resource()).CopyTo(to.Resource())
				scope := to.ScopeSpans().AppendEmpty()
				boundScope(ss.Scope()).CopyTo(scope.Scope())
				for i := first; i < last; i++ {
					bounded, _ := boundSpan(ss.Spans().At(i))
					bounded.CopyTo(scope.Spans().AppendEmpty())
				}
			}
		}
	}
	return some
}

func halveLogs(ld plog.Logs) (first, second plog.Logs) {
	n := ld.LogRecordCount()
	return recordsOf(ld, 0, n/2), recordsOf(ld, n/2, n)
}

// recordsOf does the same with log records.
func recordsOf(ld plog.Logs, from, until int) plog.Logs {
	some, n := plog.NewLogs(), 0
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			first := max(from-n, 0)
			n += sl.LogRecords().Len()
			if last := sl.LogRecords().Len() - max(n-until, 0); first < last {
				to := some.ResourceLogs().AppendEmpty()
				boundResource(rl.Resource()).CopyTo(to.Resource())
				scope := to.ScopeLogs().AppendEmpty()
				boundScope(sl.Scope()).CopyTo(scope.Scope())
				for i := first; i < last; i++ {
					bounded, _ := boundRecord(sl.LogRecords().At(i))
					bounded.CopyTo(scope.LogRecords().AppendEmpty())
				}
			}
		}
	}
	return some
}
