package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// answerObservations sets the results of a query about observations.
func (t *tx) answerObservations(q store.Query) (err error) {
	switch q := q.(type) {
	case *store.WindowFrom:
		return t.windowFrom(q)
	case *store.WindowTo:
		q.Start, q.OK, err = nano(t.prep(openings+`start_nano >= ? ORDER BY start_nano LIMIT 1`, q.Owner, q.At))
		if err == nil && q.OK {
			q.Across, err = t.across(q.Owner, q.Start)
		}
	case *store.ObservationsIn:
		return t.observationsIn(q)
	case *store.Proven:
		if q.Proofs, err = t.usageProofs(q.Owner); err == nil && q.WithCounted {
			q.Counted, err = bounds(t.prep(`SELECT min(start_nano), max(end_nano)
 FROM observations INDEXED BY idx_observations_usage_proof WHERE owner = ? AND usage_counter IS NOT NULL`, q.Owner))
		}
	default:
		return fmt.Errorf("unknown query %T", q)
	}
	return err
}

// usageProofs goes from each counter to the next one in the index, and of each from one
// proof to the next.
func (t *tx) usageProofs(owner string) (proofs []store.UsageProof, err error) {
	const proven = ` FROM observations INDEXED BY idx_observations_usage_proof WHERE owner = ? AND usage_counter `
	for last := ""; ; {
		counter, err := texts(t.prep(`SELECT usage_counter`+proven+`> ? ORDER BY usage_counter LIMIT 1`, owner, last))
		if err != nil || len(counter) == 0 {
			return proofs, err
		}
		p := store.UsageProof{Counter: counter[0]}
		for from, ok := int64(0), true; ok; p.Proof |= from {
			from, ok, err = nano(t.prep(`SELECT usage_proof`+proven+`= ? AND usage_proof > ?
 ORDER BY usage_proof LIMIT 1`, owner, p.Counter, from))
			if err != nil {
				return proofs, err
			}
		}
		if last = p.Counter; p.Proof != 0 {
			proofs = append(proofs, p)
		}
	}
}

// bounds returns the columns of the one row of a query, nil if they are NULL.
func bounds(stmt *sqlite.Stmt) (found *store.TimeRange, _ error) {
	return found, each(stmt, func() error {
		if !stmt.ColumnIsNull(0) {
			found = &store.TimeRange{From: stmt.ColumnInt64(0), To: stmt.ColumnInt64(1)}
		}
		return nil
	})
}

// traceRank is the least rank of the keys by which the observations of a trace name a session.
func (t *tx) traceRank(traceID string) (rank int, err error) {
	n, named, err := nano(t.prep(`SELECT declared_rank FROM observations INDEXED BY idx_observations_declared
 WHERE trace_id = ? AND declared_session IS NOT NULL ORDER BY declared_rank LIMIT 1`, traceID))
	if !named {
		return store.NoRank, err
	}
	return int(n), err
}

func (t *tx) observationsIn(q *store.ObservationsIn) (err error) {
	ranks := make(map[string]int)
	// read reads rows that are all of one owner.
	read := func(stmt *sqlite.Stmt) ([]store.Observation, error) {
		rows, err := rows(sqlstore.ObservationTable, stmt)
		some := make([]store.Observation, len(rows))
		for i := range rows {
			n := &rows[i].Observation
			if n.TraceRank = n.Rank; n.TraceID != "" && err == nil {
				rank, known := ranks[n.TraceID]
				if !known {
					rank, err = t.traceRank(n.TraceID)
					ranks[n.TraceID] = rank
				}
				n.TraceRank = rank
			}
			some[i] = *n
		}
		return some, err
	}
	q.Rows, err = read(t.prep(`SELECT `+sqlstore.ObservationTable.List+`
 FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ? AND start_nano >= ? AND start_nano < ?`, q.Owner, q.From, q.To))
	if err == nil && q.Around {
		q.AroundRows, err = read(t.prep(`WITH RECURSIVE `+reaches+`SELECT `+sqlstore.ObservationTable.List+` `+acrossAt+
			` ORDER BY start_nano, trace_id, source`, q.Owner, q.From))
	}
	return err
}

// openings are the starts of the observations of an owner that open a turn.
const openings = `SELECT start_nano FROM observations INDEXED BY idx_observations_opens WHERE opens AND owner = ? AND `

func (t *tx) windowFrom(q *store.WindowFrom) error {
	settled, ok, err := nano(t.prep(`SELECT start_nano FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ? AND start_nano < ? ORDER BY start_nano DESC LIMIT 1 OFFSET ?`, q.Owner, q.CutAt, store.CutLookahead-1))
	if err != nil {
		return err
	}
	if ok {
		q.Cut, err = row(sqlstore.CutTable, t.prep(`SELECT at_nano, carry FROM observation_windows
 WHERE owner = ? AND at_nano < ? ORDER BY at_nano DESC LIMIT 1`, q.Owner, settled))
		if err != nil {
			return err
		}
	}
	q.Start, q.OK, err = nano(t.prep(openings+`start_nano < ? ORDER BY start_nano DESC LIMIT 1`, q.Owner, q.At))
	if err == nil && q.OK && (q.Cut == nil || q.Start > q.Cut.At) {
		q.Across, err = t.across(q.Owner, q.Start)
	}
	return err
}

// reaches are the reaches that observations of the owner ?1 have, acrossAt joins
// them with those that are across the time ?2.
const (
	reaches = `reaches(n) AS (
  SELECT min(reach) FROM observations INDEXED BY idx_observations_across WHERE owner = ?1 AND reach > 0
  UNION ALL
  SELECT (SELECT min(reach) FROM observations INDEXED BY idx_observations_across
   WHERE owner = ?1 AND reach > n AND reach > 0) FROM reaches WHERE n IS NOT NULL
 ) `
	acrossAt = `FROM reaches CROSS JOIN observations o INDEXED BY idx_observations_across
 WHERE n IS NOT NULL AND o.owner = ?1 AND o.reach = n AND o.reach > 0
  AND o.start_nano < ?2 AND o.start_nano > ?2 - (1 << n) AND o.until_nano > ?2`
)

// across bounds the observations that begin before a time and last until after it. It looks among those of each reach
// by themselves: one that is shorter than 2ⁿ nanoseconds and reaches across a time began no longer than that before it.
// Of each reach those few are looked at that could, wherever in a long session the time is.
func (t *tx) across(owner string, at int64) (*store.TimeRange, error) {
	return bounds(t.prep(`WITH RECURSIVE `+reaches+`SELECT min(o.start_nano), max(o.until_nano) `+acrossAt, owner, at))
}
