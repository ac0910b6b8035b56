package sqlite

import (
	"bytes"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// observations applies the changes of observations.
func (w *writing) observations(c *store.Changes) {
	puts(w, c.Observations, w.putObservation)
	for _, at := range c.SpanTimes {
		w.exec(`UPDATE observations SET until_nano = ?, reach = ? WHERE trace_id = ? AND source = ?`,
			at.Until, sqlstore.Reach(at.Start, at.Until), at.TraceID, at.Source)
	}
	for _, n := range c.Owners {
		if n.TraceID != "" {
			w.exec(`UPDATE observations SET owner = ? WHERE trace_id = ?`, n.Owner, n.TraceID)
		} else {
			w.exec(`UPDATE observations SET owner = ? WHERE trace_id = '' AND source = ?`, n.Owner, n.Source)
		}
	}
	for i := range c.Proofs {
		putRow(w, sqlstore.ProofTable, &c.Proofs[i], false)
	}
	for _, n := range c.Attributed {
		row := sqlstore.AttributionRow{Attribution: *n.Attribution, ObservationKey: n.ObservationKey}
		putRow(w, sqlstore.AttributionTable, &row, false)
	}
	for i := range c.Cuts {
		w.replaceCuts(&c.Cuts[i])
	}
}

// answerObservations sets the results of a query about observations.
func (t *tx) answerObservations(q store.Query) (err error) {
	switch q := q.(type) {
	case *store.ObservationsByKey:
		q.Rows, err = byKeys(t, sqlstore.ObservationTable, q.Keys, bindObservation)
	case *store.SpanTimes:
		q.Rows, err = byStatement(t, sqlstore.SpanTimeTable, spanTimesQuery, q.Keys, bindObservation)
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

func (t *tx) putObservation(p *store.Put[store.ObservationRow]) error {
	o, old, row := p.Row, p.Old, sqlstore.Reaching(p.Row)
	if err := refused(put(t.conn, sqlstore.ReachingTable, &row, p.Op == store.Insert)); err != nil {
		return err
	}
	calls := writing{tx: t}
	if old != nil {
		for _, call := range old.Calls {
			calls.exec(`DELETE FROM tool_call_requests
 WHERE call_id = ? AND start_nano = ? AND trace_id = ? AND source = ?`, call, old.Start, old.TraceID, old.Source)
		}
	}
	for _, call := range o.Calls {
		calls.exec(`INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source) VALUES (?,?,?,?)
 ON CONFLICT DO NOTHING`, call, o.Start, o.TraceID, o.Source)
	}
	return calls.err
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

// spanTimesQuery selects the columns of [sqlstore.SpanTimeTable].
const spanTimesQuery = `SELECT trace_id, source, start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations INDEXED BY idx_observations_below
  WHERE trace_id = ?1 AND iif(source = span_id, parent_span_id, span_id) = ?2 AND NOT opens
 ) FROM observations WHERE trace_id = ?1 AND source = ?2`

func bindObservation(stmt *sqlite.Stmt, k store.ObservationKey) {
	stmt.BindText(1, k.TraceID)
	stmt.BindText(2, k.Source)
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

// replaceCuts leaves alone the cuts that stay as they are: most do, and each carries much.
func (w *writing) replaceCuts(r *store.CutRange) {
	if w.err != nil {
		return
	}
	var old []store.Cut
	old, w.err = rows(sqlstore.CutTable, w.prep(`SELECT at_nano, carry FROM observation_windows
 WHERE owner = ? AND at_nano >= ? AND at_nano < ? ORDER BY at_nano`, r.Owner, r.From, r.To))
	changed := slices.Clone(r.Cuts)
	for _, c := range old {
		i := slices.IndexFunc(changed, func(n store.Cut) bool { return n.At == c.At })
		if i < 0 {
			w.exec(`DELETE FROM observation_windows WHERE owner = ? AND at_nano = ?`, r.Owner, c.At)
		} else if bytes.Equal(changed[i].Carry, c.Carry) {
			changed = slices.Delete(changed, i, i+1)
		}
	}
	for _, c := range changed {
		w.exec(`INSERT INTO observation_windows(owner, at_nano, carry) VALUES (?,?,?)
 ON CONFLICT DO UPDATE SET carry = excluded.carry`, r.Owner, c.At, c.Carry)
	}
}
