package ingest

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/agenttrace/agenttrace/session/store"
)

// maxRefused is how many spans or records of one request are looked for. A store that
// refuses more refuses everything, as a damaged file does.
const maxRefused = 32

// maxAtOnce is how many spans or records are stored in one transaction. Of a larger request other senders would have to
// wait for the whole.
const maxAtOnce = 1024

// storeAll stores the spans or records of a request from one number until before another. A store that refuses them for
// good refuses one or a few, and does not state which: they are found by halves, and the others are stored. It fails
// when the store may take later what it does not take now, or when it refuses everything. left counts down from
// maxRefused.
func storeAll(from, until int, do func(from, until int) (Report, error), left *int) (Report, error) {
	if until-from <= maxAtOnce {
		r, err := do(from, until)
		if err == nil || mayPass(err) {
			return r, err
		}
		if until-from < 2 {
			*left--
			return r, err
		}
		if *left <= 0 {
			return r, err
		}
	}
	half := from + (until-from)/2
	sum, firstErr := storeAll(from, half, do, left)
	if firstErr != nil && mayPass(firstErr) {
		return sum, firstErr
	}
	other, secondErr := storeAll(half, until, do, left)
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
	known := make(map[string]bool, len(r.Sessions))
	for _, id := range r.Sessions {
		known[id] = true
	}
	r.Sessions = append(r.Sessions, slices.DeleteFunc(o.Sessions, func(id string) bool { return known[id] })...)
}
