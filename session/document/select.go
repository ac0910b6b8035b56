package document

import (
	"context"
	"errors"
	"iter"

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

// Select returns the sessions of a query that have a status, one of [Statuses], or all if it is "". A session is
// interrupted depending on the time, so the status is computed session by session: see [StatusOf]. The query's limit is
// that of the sessions that are returned.
func (r Reader) Select(ctx context.Context, q store.SessionQuery, status string) (rows []session.Session, err error) {
	for s, err := range r.selected(ctx, q, status) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, s)
	}
	return rows, nil
}

// selected yields what Select returns.
func (r Reader) selected(ctx context.Context, q store.SessionQuery, status string) iter.Seq2[session.Session, error] {
	if status == "" {
		return r.Sessions(ctx, q)
	}
	return func(yield func(session.Session, error) bool) {
		limit := q.Limit
		if limit == 0 {
			limit = 50
		}
		q.Limit = -1
		now, idleTimeout := r.limits()
		if seen := now.Add(-idleTimeout); (status == string(ActivityBusy) || status == string(ActivityRetrying)) &&
			idleTimeout > 0 && q.Since.Before(seen) {
			q.Since = seen // one that was not updated since then is interrupted
		}
		for s, err := range r.Sessions(ctx, q) {
			if err != nil {
				yield(s, err)
				return
			}
			st, err := r.StatusOf(ctx, &s)
			if errors.Is(err, store.ErrNotFound) {
				continue // deleted meanwhile
			} else if err != nil {
				yield(session.Session{}, err)
				return
			}
			state, _ := stateOfSession(&s)
			if string(st.State) != status && string(state) != status {
				continue
			}
			if limit--; !yield(s, nil) || limit == 0 {
				return
			}
		}
	}
}

// SelectIDs returns the ids of the sessions that a filter and a status select, archived ones and children included.
// They are read first: the store goes on changing, and a listing that is used slowly would hold back its log.
func (r Reader) SelectIDs(ctx context.Context, f store.SessionFilter, status string) ([]string, error) {
	ids := []string{} // nil would be all of them, as a filter
	q := store.SessionQuery{SessionFilter: f, Limit: -1, Children: true, Archived: true}
	for s, err := range r.selected(ctx, q, status) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, s.ID)
	}
	return ids, nil
}

// Exclusion is a filter of a query that selects nothing.
type Exclusion struct {
	// Filter is the name of the filter and Value what it selects by, empty for one that is on or off.
	Filter string `json:"filter"`
	Value  string `json:"value,omitempty"`
	// Without is the number of sessions that match without this filter; [MaxExcluded] stands for more, too.
	Without int `json:"sessions_without"`
}

// MaxExcluded bounds how many sessions are counted to explain why there are none.
const MaxExcluded = 1000

// Exclusions explain why a query and a status select no session: for each filter that is set, how many there are
// without it. others reports that archived sessions or children match.
func (r Reader) Exclusions(ctx context.Context, q store.SessionQuery, status string) (all []Exclusion, others bool,
	err error) {
	count := func(q store.SessionQuery, status string, limit int) (n int, err error) {
		q.Limit, q.Before = limit, nil
		for _, err := range r.selected(ctx, q, status) {
			if err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	}
	exclude := func(name, value string, f store.SessionFilter, status string) error {
		without := q
		without.SessionFilter = f
		n, err := count(without, status, MaxExcluded)
		all = append(all, Exclusion{name, value, n})
		return err
	}
	for _, f := range q.Set() {
		if err := exclude(f.Name, f.Value, f.Without, status); err != nil {
			return nil, false, err
		}
	}
	if status != "" {
		if err := exclude("status", status, q.SessionFilter, ""); err != nil {
			return nil, false, err
		}
	}
	if !q.Children || !q.Archived {
		q.Children, q.Archived = true, true
		n, err := count(q, status, 1)
		return all, n > 0, err
	}
	return all, false, nil
}
