package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
)

func (t *tx) Observation(traceID, source string) (*store.ObservationRow, error) {
	return observationTable.get(t.conn, traceID, source)
}

// reach is the least even n for which a time is shorter than 2ⁿ nanoseconds, 62 at
// most; 0 when it is but an instant. See [tx.Across].
func reach(from, until int64) int64 {
	if until <= from {
		return 0
	}
	n := bits.Len64(uint64(until - from))
	return int64(min(n+n%2, 62))
}

func (t *tx) PutObservation(o *store.ObservationRow, old *store.Observation) error {
	row := reachingRow{*o, reach(o.Start, o.End)}
	row.Until = o.End
	if err := refused(reachingTable.put(t.conn, &row, old == nil)); err != nil {
		return err
	}
	if old != nil {
		for _, call := range old.Calls {
			if err := exec(t.prep(`DELETE FROM tool_call_requests WHERE call_id = ? AND start_nano = ? AND trace_id = ? AND source = ?`,
				call, old.Start, old.TraceID, old.Source)); err != nil {
				return err
			}
		}
	}
	for _, call := range o.Calls {
		if err := exec(t.prep(`INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source) VALUES (?,?,?,?) ON CONFLICT DO NOTHING`,
			call, o.Start, o.TraceID, o.Source)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) SpanTime(traceID, spanID string) (*store.SpanTime, error) {
	stmt := t.prep(`SELECT start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations INDEXED BY idx_observations_below
  WHERE trace_id = ?1 AND iif(source = span_id, parent_span_id, span_id) = ?2 AND NOT opens
 ) FROM observations WHERE trace_id = ?1 AND source = ?2`, traceID, spanID)
	return one(stmt, func(stmt *sqlite.Stmt) store.SpanTime {
		return store.SpanTime{Start: stmt.ColumnInt64(0), End: stmt.ColumnInt64(1), Until: stmt.ColumnInt64(2), LastBelow: stmt.ColumnInt64(3)}
	})
}

func (t *tx) SetUntil(traceID, spanID string, at *store.SpanTime) error {
	return exec(t.prep(`UPDATE observations SET until_nano = ?, reach = ? WHERE trace_id = ? AND source = ?`,
		at.Until, reach(at.Start, at.Until), traceID, spanID))
}

func (t *tx) Attribute(o *store.Observation, attributed *store.Attribution) error {
	_, err := attributionTable.put(t.conn, &attributionRow{*attributed, o.TraceID, o.Source}, false)
	return err
}

func (t *tx) PutUsageProof(o *store.Observation, p store.UsageProof) error {
	_, err := proofTable.put(t.conn, &proofRow{p, o.TraceID, o.Source}, false)
	return err
}

// UsageProofs goes from each counter to the next one in the index, and of each from one
// proof to the next.
func (t *tx) UsageProofs(owner string) (proofs []store.UsageProof, err error) {
	const proven = ` FROM observations INDEXED BY idx_observations_usage_proof WHERE owner = ? AND usage_counter `
	for last := ""; ; {
		counter, err := texts(t.prep(`SELECT usage_counter`+proven+`> ? ORDER BY usage_counter LIMIT 1`, owner, last))
		if err != nil || len(counter) == 0 {
			return proofs, err
		}
		p := store.UsageProof{Counter: counter[0]}
		for from, ok := int64(0), true; ok; p.Proof |= from {
			from, ok, err = nano(t.prep(`SELECT usage_proof`+proven+`= ? AND usage_proof > ? ORDER BY usage_proof LIMIT 1`,
				owner, p.Counter, from))
			if err != nil {
				return proofs, err
			}
		}
		if last = p.Counter; p.Proof != 0 {
			proofs = append(proofs, p)
		}
	}
}

func (t *tx) Counted(owner string) (from, to int64, ok bool, err error) {
	return bounds(t.prep(`SELECT min(start_nano), max(end_nano) FROM observations INDEXED BY idx_observations_usage_proof
 WHERE owner = ? AND usage_counter IS NOT NULL`, owner))
}

// bounds returns the columns of the one row of a query. They are not ok if they are NULL.
func bounds(stmt *sqlite.Stmt) (from, to int64, ok bool, err error) {
	err = each(stmt, func() error {
		from, to, ok = stmt.ColumnInt64(0), stmt.ColumnInt64(1), !stmt.ColumnIsNull(0)
		return nil
	})
	return from, to, ok, err
}

func (t *tx) TraceOwner(traceID string) (owner, own string, ok bool, err error) {
	stmt := t.prep(`SELECT owner, default_session FROM observations WHERE trace_id = ? ORDER BY source LIMIT 1`, traceID)
	err = each(stmt, func() error {
		owner, own, ok = stmt.ColumnText(0), stmt.ColumnText(1), true
		return nil
	})
	return owner, own, ok, err
}

func (t *tx) SetTraceOwner(traceID, owner string) error {
	return exec(t.prep(`UPDATE observations SET owner = ? WHERE trace_id = ?`, owner, traceID))
}

func (t *tx) ThreadOwner(sessionID, dialect string) (owner string, ok bool, err error) {
	stmt := t.prep(`SELECT owner FROM observations INDEXED BY idx_observations_guest
 WHERE declared_session = ? AND declared_session <> owner AND dialect = ? AND trace_id <> '' AND owner <> ''
 ORDER BY start_nano, trace_id, source LIMIT 1`, sessionID, dialect)
	err = each(stmt, func() error {
		owner, ok = stmt.ColumnText(0), true
		return nil
	})
	return owner, ok, err
}

func (t *tx) ThreadRecords(sessionID, dialect, owner string) ([]store.ObservationRow, error) {
	columns := observationTable.prefixed("", "data")
	return observationTable.all(t.prep(`SELECT `+columns+` FROM observations INDEXED BY idx_observations_guest
 WHERE declared_session = ?1 AND declared_session <> owner AND trace_id = '' AND dialect = ?2 AND owner <> ?3 UNION ALL
 SELECT `+columns+` FROM observations INDEXED BY idx_observations_owner_start
 WHERE ?3 <> ?1 AND owner = ?1 AND declared_session = ?1 AND trace_id = '' AND dialect = ?2 ORDER BY source`,
		sessionID, dialect, owner))
}

func (t *tx) SetRecordOwner(source, owner string) error {
	return exec(t.prep(`UPDATE observations SET owner = ? WHERE trace_id = '' AND source = ?`, owner, source))
}

func (t *tx) TraceObservations(traceID string) ([]store.ObservationRow, error) {
	return observationTable.all(t.prep(`SELECT `+observationTable.prefixed("", "data")+` FROM observations WHERE trace_id = ? ORDER BY source`,
		traceID))
}

func (t *tx) TraceKey(traceID string) (id string, rank int, err error) {
	stmt := t.prep(`SELECT declared_session, declared_rank FROM observations INDEXED BY idx_observations_declared
 WHERE trace_id = ? AND declared_session IS NOT NULL ORDER BY declared_rank, start_nano, declared_session LIMIT 1`, traceID)
	err = each(stmt, func() error {
		id, rank = stmt.ColumnText(0), stmt.ColumnInt(1)
		return nil
	})
	return id, rank, err
}

func (t *tx) TraceSessions(traceID string) ([]string, error) {
	return texts(t.prep(`SELECT session_id FROM session_traces t WHERE trace_id = ?1 AND EXISTS (
 SELECT 1 FROM span_refs l WHERE l.session_id = t.session_id AND l.trace_id = ?1 AND l.dialect = '`+store.DialectSDK+`') ORDER BY session_id`,
		traceID))
}

func (t *tx) OrphanCalls(traceID string) ([]store.OrphanCall, error) {
	stmt := t.prep(`SELECT orphan_call, start_nano, end_nano FROM observations INDEXED BY idx_observations_orphan_trace
 WHERE trace_id = ? AND orphan_call IS NOT NULL ORDER BY start_nano, source`, traceID)
	return all(stmt, func(stmt *sqlite.Stmt) store.OrphanCall {
		return store.OrphanCall{Call: stmt.ColumnText(0), Start: stmt.ColumnInt64(1), End: stmt.ColumnInt64(2)}
	})
}

func (t *tx) Requester(callID, notTrace string, by, until int64) (*store.Requester, error) {
	// Calls of tools are found in the order of the index, however often an id was used.
	order := `ORDER BY c.start_nano DESC, c.trace_id, c.source LIMIT 1`
	if until != 0 {
		order = `ORDER BY o.owner = o.default_session, c.start_nano DESC, c.trace_id, c.source LIMIT 1`
	}
	stmt := t.prep(`SELECT c.trace_id, o.owner FROM tool_call_requests c CROSS JOIN observations o ON o.trace_id = c.trace_id AND o.source = c.source
 WHERE c.call_id = ?1 AND c.start_nano <= ?2 AND c.start_nano > ?2 - ?3 AND c.trace_id <> ?4 AND (c.trace_id <> '' OR o.owner <> '')
 AND (?5 = 0 OR o.end_nano >= ?5)
 `+order, callID, by, int64(store.CallLife), notTrace, until)
	return one(stmt, func(stmt *sqlite.Stmt) store.Requester {
		return store.Requester{TraceID: stmt.ColumnText(0), Owner: stmt.ColumnText(1)}
	})
}

// OrphanTraces looks at a few of those that requested the call later: if they are all of
// one trace, it finds more orphans than need be, and none too few.
func (t *tx) OrphanTraces(callID string, at, until int64) ([]string, error) {
	if until != 0 {
		return t.orphanTraces(callID, at, until+1)
	}
	until = at + store.CallLife
	stmt := t.prep(`SELECT start_nano, trace_id FROM tool_call_requests
 WHERE call_id = ? AND start_nano > ? AND start_nano < ? AND trace_id <> '' ORDER BY start_nano, trace_id LIMIT 64`, callID, at, until)
	first, second := "", false // one of them may be the orphan's own trace, which does not count
	err := each(stmt, func() error {
		switch trace := stmt.ColumnText(1); {
		case first == "":
			first = trace
		case trace != first && !second:
			until, second = stmt.ColumnInt64(0), true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t.orphanTraces(callID, at, until)
}

// orphanTraces returns the traces with an orphan of the call that begins in [at, until).
func (t *tx) orphanTraces(callID string, at, until int64) ([]string, error) {
	return texts(t.prep(`SELECT DISTINCT trace_id FROM observations INDEXED BY idx_observations_orphan
 WHERE orphan_call = ? AND start_nano >= ? AND start_nano < ? AND trace_id <> '' ORDER BY trace_id`, callID, at, until))
}

// withoutOwner returns the observations of rows that are all of one owner.
func withoutOwner(rows []store.ObservationRow, err error) ([]store.Observation, error) {
	all := make([]store.Observation, len(rows))
	for i := range rows {
		all[i] = rows[i].Observation
	}
	return all, err
}

func (t *tx) Observations(owner string, from, to int64) ([]store.Observation, error) {
	return withoutOwner(observationTable.all(t.prep(`SELECT `+observationTable.list+` FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ? AND start_nano >= ? AND start_nano < ?`, owner, from, to)))
}

func (t *tx) Start(owner string, at int64, n int, opens bool) (int64, bool, error) {
	query := `SELECT start_nano FROM observations INDEXED BY idx_observations_owner_start WHERE owner = ? AND `
	if opens {
		query = `SELECT start_nano FROM observations INDEXED BY idx_observations_opens WHERE opens AND owner = ? AND `
	}
	if n < 0 {
		return nano(t.prep(query+`start_nano < ? ORDER BY start_nano DESC LIMIT 1 OFFSET ?`, owner, at, -n-1))
	}
	return nano(t.prep(query+`start_nano >= ? ORDER BY start_nano LIMIT 1 OFFSET ?`, owner, at, n-1))
}

// reaches are the reaches that observations of the owner ?1 have, acrossAt joins
// them with those that are across the time ?2.
const (
	reaches = `reaches(n) AS (
  SELECT min(reach) FROM observations INDEXED BY idx_observations_across WHERE owner = ?1 AND reach > 0
  UNION ALL
  SELECT (SELECT min(reach) FROM observations INDEXED BY idx_observations_across WHERE owner = ?1 AND reach > n AND reach > 0) FROM reaches WHERE n IS NOT NULL
 ) `
	acrossAt = `FROM reaches CROSS JOIN observations o INDEXED BY idx_observations_across
 WHERE n IS NOT NULL AND o.owner = ?1 AND o.reach = n AND o.reach > 0 AND o.start_nano < ?2 AND o.start_nano > ?2 - (1 << n) AND o.until_nano > ?2`
)

// Across looks among those of each reach by themselves: one that is shorter than
// 2ⁿ nanoseconds and reaches across a time began no longer than that before it.
// Of each reach those few are looked at that could, wherever in a long session the
// time is.
func (t *tx) Across(owner string, at int64) (from, to int64, ok bool, err error) {
	return bounds(t.prep(`WITH RECURSIVE `+reaches+`SELECT min(o.start_nano), max(o.until_nano) `+acrossAt, owner, at))
}

func (t *tx) Around(owner string, at int64) ([]store.Observation, error) {
	return withoutOwner(observationTable.all(t.prep(`WITH RECURSIVE `+reaches+`SELECT `+observationTable.list+` `+acrossAt+
		` ORDER BY start_nano, trace_id, source`, owner, at)))
}

func scanCut(stmt *sqlite.Stmt) store.Cut {
	return store.Cut{At: stmt.ColumnInt64(0), Carry: columnBytes(stmt, 1, nil)}
}

func (t *tx) CutBefore(owner string, before int64) (*store.Cut, error) {
	return one(t.prep(`SELECT at_nano, carry FROM observation_windows WHERE owner = ? AND at_nano < ? ORDER BY at_nano DESC LIMIT 1`,
		owner, before), scanCut)
}

func (t *tx) ReplaceCuts(owner string, from, to int64, cuts []store.Cut) error {
	old, err := all(t.prep(`SELECT at_nano, carry FROM observation_windows WHERE owner = ? AND at_nano >= ? AND at_nano < ? ORDER BY at_nano`,
		owner, from, to), scanCut)
	if err != nil {
		return err
	}
	changed := slices.Clone(cuts)
	for _, c := range old {
		i := slices.IndexFunc(changed, func(n store.Cut) bool { return n.At == c.At })
		if i >= 0 && bytes.Equal(changed[i].Carry, c.Carry) {
			changed = slices.Delete(changed, i, i+1)
		} else if i < 0 {
			if err := exec(t.prep(`DELETE FROM observation_windows WHERE owner = ? AND at_nano = ?`, owner, c.At)); err != nil {
				return err
			}
		}
	}
	for _, c := range changed {
		if err := exec(t.prep(`INSERT INTO observation_windows(owner, at_nano, carry) VALUES (?,?,?)
 ON CONFLICT DO UPDATE SET carry = excluded.carry`, owner, c.At, c.Carry)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) SessionAttrs(sessionID string, limit int) ([]store.SessionAttrs, error) {
	stmt := t.prep(`SELECT start_nano, end_nano, session_attrs_json FROM observations INDEXED BY idx_observations_session_end
 WHERE session_id = ? ORDER BY max(start_nano, end_nano) DESC LIMIT ?`, sessionID, limit)
	var all []store.SessionAttrs
	err := each(stmt, func() error {
		a := store.SessionAttrs{Start: stmt.ColumnInt64(0), End: stmt.ColumnInt64(1)}
		if !stmt.ColumnIsNull(2) {
			if err := json.Unmarshal([]byte(stmt.ColumnText(2)), &a.SessionAttrs); err != nil {
				return fmt.Errorf("read observations of session %s: %w", sessionID, err)
			}
		}
		all = append(all, a)
		return nil
	})
	return all, err
}
