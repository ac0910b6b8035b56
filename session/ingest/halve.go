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
	first, second = ptrace.NewTraces(), ptrace.NewTraces()
	n, half := 0, td.SpanCount()/2
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			var to [2]ptrace.SpanSlice
			var has [2]bool
			for _, s := range ss.Spans().All() {
				side := 0
				if n >= half {
					side = 1
				}
				n++
				if !has[side] {
					dst := []ptrace.Traces{first, second}[side].ResourceSpans().AppendEmpty()
					boundResource(rs.Resource()).CopyTo(dst.Resource())
					scope := dst.ScopeSpans().AppendEmpty()
					boundScope(ss.Scope()).CopyTo(scope.Scope())
					to[side], has[side] = scope.Spans(), true
				}
				bounded, _ := boundSpan(s)
				bounded.CopyTo(to[side].AppendEmpty())
			}
		}
	}
	return first, second
}

func halveLogs(ld plog.Logs) (first, second plog.Logs) {
	first, second = plog.NewLogs(), plog.NewLogs()
	n, half := 0, ld.LogRecordCount()/2
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			var to [2]plog.LogRecordSlice
			var has [2]bool
			for _, r := range sl.LogRecords().All() {
				side := 0
				if n >= half {
					side = 1
				}
				n++
				if !has[side] {
					dst := []plog.Logs{first, second}[side].ResourceLogs().AppendEmpty()
					boundResource(rl.Resource()).CopyTo(dst.Resource())
					scope := dst.ScopeLogs().AppendEmpty()
					boundScope(sl.Scope()).CopyTo(scope.Scope())
					to[side], has[side] = scope.LogRecords(), true
				}
				bounded, _ := boundRecord(r)
				bounded.CopyTo(to[side].AppendEmpty())
			}
		}
	}
	return first, second
}
