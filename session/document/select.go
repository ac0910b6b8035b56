package document

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Statuses are what sessions can be selected by: what they do, and how their last run ended.
func Statuses() []string {
	return []string{
		string(ActivityIdle), string(ActivityBusy), string(ActivityRetrying), string(ActivityWaitingApproval),
		string(ActivityWaitingUserInput), string(ActivityInterrupted), string(StateFinished), string(StateAborted),
		string(StateError),
	}
}

// Select yields the sessions of a query that have a status, one of [Statuses], or all if it is "". A session is
// interrupted depending on the time, so the status is computed session by session: see [StatusOf] for now and
// idleTimeout. The query's limit is that of the sessions that are yielded.
func Select(ctx context.Context, r store.Reader, q store.SessionQuery, status string, now time.Time,
	idleTimeout time.Duration) iter.Seq2[session.Session, error] {
	if status == "" {
		return r.Sessions(ctx, q)
	}
	return func(yield func(session.Session, error) bool) {
		limit := q.Limit
		if limit == 0 {
			limit = 50
		}
		q.Limit = -1
		if seen := now.Add(-idleTimeout); (status == string(ActivityBusy) || status == string(ActivityRetrying)) &&
			!now.IsZero() && idleTimeout > 0 && q.Since.Before(seen) {
			q.Since = seen // one that was not updated since then is interrupted
		}
		for s, err := range r.Sessions(ctx, q) {
			if err != nil {
				yield(s, err)
				return
			}
			t, err := LastTurn(ctx, r, s.ID)
			if errors.Is(err, store.ErrNotFound) {
				continue // deleted meanwhile
			} else if err != nil {
				yield(session.Session{}, err)
				return
			}
			state, _ := stateOfSession(&s)
			if string(StatusOf(&s, t, nil, now, idleTimeout).State) != status && string(state) != status {
				continue
			}
			if limit--; !yield(s, nil) || limit == 0 {
				return
			}
		}
	}
}
