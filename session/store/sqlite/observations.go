package sqlite

import (
	"encoding/json"
	"fmt"
	"math/bits"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
)

const attributionColumns = `owner, dialect, span_id, parent_span_id, start_nano, end_nano, error, opens, declared_session, declared_rank, default_session,
 orphan_call, calls_json, session_id, message_id, others_json, part_id, decision_id, kind, session_attrs_json, usage_counter, usage_proof`

const observationColumns = attributionColumns + `, data, trace_id, source, until_nano`

func scanObservation(stmt *sqlite.Stmt) (store.ObservationRow, error) {
	r := store.ObservationRow{Owner: stmt.ColumnText(0), Observation: store.Observation{
		Dialect: stmt.ColumnText(1), SpanID: stmt.ColumnText(2), ParentSpanID: stmt.ColumnText(3),
		Start: stmt.ColumnInt64(4), End: stmt.ColumnInt64(5), Error: stmt.ColumnBool(6), Opens: stmt.ColumnBool(7),
		Session: stmt.ColumnText(8), Rank: int(stmt.ColumnInt64(9)), Own: stmt.ColumnText(10), Call: stmt.ColumnText(11),
		TraceID: stmt.ColumnText(23), Source: stmt.ColumnText(24), Until: stmt.ColumnInt64(25),
		Attribution: store.Attribution{
			SessionID: stmt.ColumnText(13), MessageID: stmt.ColumnText(14), PartID: stmt.ColumnText(16), DecisionID: stmt.ColumnText(17),
			Kind: stmt.ColumnText(18), UsageProof: store.UsageProof{Counter: stmt.ColumnText(20), Proof: stmt.ColumnInt64(21)},
		},
	}}
	r.Data = make([]byte, stmt.ColumnLen(22))
	stmt.ColumnBytes(22, r.Data)
	for _, column := range []struct {
		index int
		dst   any
	}{{12, &r.Calls}, {15, &r.Attribution.Others}, {19, &r.Attribution.SessionAttrs}} {
		if stmt.ColumnIsNull(column.index) {
			continue
		}
		if err := json.Unmarshal([]byte(stmt.ColumnText(column.index)), column.dst); err != nil {
			return r, fmt.Errorf("read observation %s of trace %s: %w", r.Source, r.TraceID, err)
		}
	}
	return r, nil
}

func bindJSON(stmt *sqlite.Stmt, param int, absent bool, v any) {
	if absent {
		stmt.BindNull(param)
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic("sqlite: encode: " + err.Error()) // plain structs always encode
	}
	stmt.BindText(param, string(b))
}

func bindAttribution(stmt *sqlite.Stmt, param int, p *store.Attribution) {
	bindText(stmt, param, p.SessionID)
	bindText(stmt, param+1, p.MessageID)
	bindJSON(stmt, param+2, len(p.Others) == 0, p.Others)
	bindText(stmt, param+3, p.PartID)
	bindText(stmt, param+4, p.DecisionID)
	bindText(stmt, param+5, p.Kind)
	bindJSON(stmt, param+6, p.SessionAttrs == nil, p.SessionAttrs)
}

func (t *tx) observations(stmt *sqlite.Stmt) ([]store.ObservationRow, error) {
	var all []store.ObservationRow
	err := each(stmt, func() error {
		r, err := scanObservation(stmt)
		all = append(all, r)
		return err
	})
	return all, err
}

func (t *tx) Observation(traceID, source string) (*store.ObservationRow, error) {
	stmt := t.conn.Prep(`SELECT ` + observationColumns + ` FROM observations WHERE trace_id = ? AND source = ?`)
	stmt.BindText(1, traceID)
	stmt.BindText(2, source)
	all, err := t.observations(stmt)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
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
	stmt := t.conn.Prep(`INSERT INTO observations(` + observationColumns + `, reach) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`)
	if old != nil {
		stmt = t.conn.Prep(`UPDATE observations SET owner=?, dialect=?, span_id=?, parent_span_id=?, start_nano=?, end_nano=?, error=?, opens=?,
 declared_session=?, declared_rank=?, default_session=?, orphan_call=?, calls_json=?, session_id=?, message_id=?, others_json=?, part_id=?, decision_id=?, kind=?,
 session_attrs_json=?, usage_counter=?, usage_proof=?, data=?23, until_nano=?26, reach=?27 WHERE trace_id=?24 AND source=?25`)
	}
	stmt.BindText(1, o.Owner)
	stmt.BindText(2, o.Dialect)
	bindText(stmt, 3, o.SpanID)
	bindText(stmt, 4, o.ParentSpanID)
	stmt.BindInt64(5, o.Start)
	stmt.BindInt64(6, o.End)
	stmt.BindBool(7, o.Error)
	stmt.BindBool(8, o.Opens)
	bindText(stmt, 9, o.Session)
	stmt.BindInt64(10, int64(o.Rank))
	stmt.BindText(11, o.Own)
	bindText(stmt, 12, o.Call)
	bindJSON(stmt, 13, len(o.Calls) == 0, o.Calls)
	bindAttribution(stmt, 14, &o.Attribution)
	bindUsageProof(stmt, 21, o.Attribution.UsageProof)
	stmt.BindBytes(23, o.Data)
	stmt.BindText(24, o.TraceID)
	stmt.BindText(25, o.Source)
	stmt.BindInt64(26, o.End)
	stmt.BindInt64(27, reach(o.Start, o.End))
	if err := exec(stmt); err != nil {
		return err
	}
	if old != nil {
		for _, call := range old.Calls {
			stmt := t.conn.Prep(`DELETE FROM tool_call_requests WHERE call_id = ? AND start_nano = ? AND trace_id = ? AND source = ?`)
			bindRequestedCall(stmt, call, old)
			if err := exec(stmt); err != nil {
				return err
			}
		}
	}
	for _, call := range o.Calls {
		stmt := t.conn.Prep(`INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source) VALUES (?,?,?,?) ON CONFLICT DO NOTHING`)
		bindRequestedCall(stmt, call, &o.Observation)
		if err := exec(stmt); err != nil {
			return err
		}
	}
	return nil
}

func bindRequestedCall(stmt *sqlite.Stmt, call string, o *store.Observation) {
	stmt.BindText(1, call)
	stmt.BindInt64(2, o.Start)
	stmt.BindText(3, o.TraceID)
	stmt.BindText(4, o.Source)
}

func (t *tx) SpanTime(traceID, spanID string) (*store.SpanTime, error) {
	stmt := t.conn.Prep(`SELECT start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations INDEXED BY idx_observations_below
  WHERE trace_id = ?1 AND iif(source = span_id, parent_span_id, span_id) = ?2 AND NOT opens
 ) FROM observations WHERE trace_id = ?1 AND source = ?2`)
	stmt.BindText(1, traceID)
	stmt.BindText(2, spanID)
	return one(stmt, func(stmt *sqlite.Stmt) store.SpanTime {
		return store.SpanTime{Start: stmt.ColumnInt64(0), End: stmt.ColumnInt64(1), Until: stmt.ColumnInt64(2), LastBelow: stmt.ColumnInt64(3)}
	})
}

func (t *tx) SetUntil(traceID, spanID string, at *store.SpanTime) error {
	stmt := t.conn.Prep(`UPDATE observations SET until_nano = ?, reach = ? WHERE trace_id = ? AND source = ?`)
	stmt.BindInt64(1, at.Until)
	stmt.BindInt64(2, reach(at.Start, at.Until))
	stmt.BindText(3, traceID)
	stmt.BindText(4, spanID)
	return exec(stmt)
}

func (t *tx) SetTraceOwner(traceID, owner string) error {
	stmt := t.conn.Prep(`UPDATE observations SET owner = ? WHERE trace_id = ?`)
	stmt.BindText(1, owner)
	stmt.BindText(2, traceID)
	return exec(stmt)
}

func (t *tx) Place(o *store.Observation, attribution *store.Attribution) error {
	stmt := t.conn.Prep(`UPDATE observations SET session_id=?, message_id=?, others_json=?, part_id=?, decision_id=?, kind=?, session_attrs_json=?
 WHERE trace_id=? AND source=?`)
	bindAttribution(stmt, 1, attribution)
	stmt.BindText(8, o.TraceID)
	stmt.BindText(9, o.Source)
	return exec(stmt)
}

func bindUsageProof(stmt *sqlite.Stmt, param int, p store.UsageProof) {
	bindText(stmt, param, p.Counter)
	stmt.BindInt64(param+1, p.Proof)
	if p.Counter == "" {
		stmt.BindNull(param + 1)
	}
}

func (t *tx) PutUsageProof(o *store.Observation, p store.UsageProof) error {
	stmt := t.conn.Prep(`UPDATE observations SET usage_counter=?, usage_proof=? WHERE trace_id=? AND source=?`)
	bindUsageProof(stmt, 1, p)
	stmt.BindText(3, o.TraceID)
	stmt.BindText(4, o.Source)
	return exec(stmt)
}

// UsageProofs goes from each counter to the next one in the index, and of each from one
// proof to the next.
func (t *tx) UsageProofs(owner string) (proofs []store.UsageProof, err error) {
	const proven = ` FROM observations INDEXED BY idx_observations_usage_proof WHERE owner = ? AND usage_counter `
	for last := ""; ; {
		stmt := t.conn.Prep(`SELECT usage_counter` + proven + `> ? ORDER BY usage_counter LIMIT 1`)
		stmt.BindText(1, owner)
		stmt.BindText(2, last)
		counter, err := one(stmt, func(stmt *sqlite.Stmt) string { return stmt.ColumnText(0) })
		if err != nil || counter == nil {
			return proofs, err
		}
		p := store.UsageProof{Counter: *counter}
		for from := int64(0); ; {
			stmt := t.conn.Prep(`SELECT usage_proof` + proven + `= ? AND usage_proof > ? ORDER BY usage_proof LIMIT 1`)
			stmt.BindText(1, owner)
			stmt.BindText(2, p.Counter)
			stmt.BindInt64(3, from)
			proof, ok, err := nano(stmt)
			if err != nil {
				return proofs, err
			}
			if !ok {
				break
			}
			p.Proof |= proof
			from = proof
		}
		if last = p.Counter; p.Proof != 0 {
			proofs = append(proofs, p)
		}
	}
}

func (t *tx) Counted(owner string) (from, to int64, ok bool, err error) {
	stmt := t.conn.Prep(`SELECT min(start_nano), max(end_nano) FROM observations INDEXED BY idx_observations_usage_proof
 WHERE owner = ? AND usage_counter IS NOT NULL`)
	stmt.BindText(1, owner)
	err = each(stmt, func() error {
		ok = !stmt.ColumnIsNull(0)
		from, to = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
		return nil
	})
	return from, to, ok, err
}

func (t *tx) TraceObservations(traceID string) ([]store.ObservationRow, error) {
	stmt := t.conn.Prep(`SELECT ` + attributionColumns + `, x'', trace_id, source, until_nano FROM observations WHERE trace_id = ? ORDER BY source`)
	stmt.BindText(1, traceID)
	return t.observations(stmt)
}

func (t *tx) TraceOwner(traceID string) (string, bool, error) {
	stmt := t.conn.Prep(`SELECT owner FROM observations WHERE trace_id = ? LIMIT 1`)
	stmt.BindText(1, traceID)
	found, err := one(stmt, func(stmt *sqlite.Stmt) string { return stmt.ColumnText(0) })
	if found == nil {
		return "", false, err
	}
	return *found, true, err
}

func (t *tx) TraceKey(traceID string) (string, int, error) {
	stmt := t.conn.Prep(`SELECT declared_session, declared_rank FROM observations INDEXED BY idx_observations_declared
 WHERE trace_id = ? AND declared_session IS NOT NULL ORDER BY declared_rank, start_nano, declared_session LIMIT 1`)
	stmt.BindText(1, traceID)
	id, rank := "", 0
	err := each(stmt, func() error {
		id, rank = stmt.ColumnText(0), int(stmt.ColumnInt64(1))
		return nil
	})
	return id, rank, err
}

func (t *tx) TraceOwn(traceID string) (string, error) {
	stmt := t.conn.Prep(`SELECT default_session FROM observations WHERE trace_id = ? ORDER BY source LIMIT 1`)
	stmt.BindText(1, traceID)
	return text(stmt)
}

func (t *tx) OrphanCalls(traceID string) ([]store.OrphanCall, error) {
	stmt := t.conn.Prep(`SELECT orphan_call, start_nano, end_nano FROM observations INDEXED BY idx_observations_orphan_trace
 WHERE trace_id = ? AND orphan_call IS NOT NULL ORDER BY start_nano, source`)
	stmt.BindText(1, traceID)
	return all(stmt, func(stmt *sqlite.Stmt) store.OrphanCall {
		return store.OrphanCall{Call: stmt.ColumnText(0), Start: stmt.ColumnInt64(1), End: stmt.ColumnInt64(2)}
	})
}

// text returns the first column of the first row, or "".
func text(stmt *sqlite.Stmt) (string, error) {
	found, err := one(stmt, func(stmt *sqlite.Stmt) string { return stmt.ColumnText(0) })
	if found == nil {
		return "", err
	}
	return *found, err
}

func texts(stmt *sqlite.Stmt) ([]string, error) {
	return all(stmt, func(stmt *sqlite.Stmt) string { return stmt.ColumnText(0) })
}

func (t *tx) TraceSessions(traceID string) ([]string, error) {
	stmt := t.conn.Prep(`SELECT session_id FROM session_traces t WHERE trace_id = ?1 AND EXISTS (
 SELECT 1 FROM span_refs l WHERE l.session_id = t.session_id AND l.trace_id = ?1 AND l.dialect = '` + store.DialectSDK + `') ORDER BY session_id`)
	stmt.BindText(1, traceID)
	return texts(stmt)
}

func (t *tx) Observations(owner string, from, to int64) ([]store.Observation, error) {
	stmt := t.conn.Prep(`SELECT ` + observationColumns + ` FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ? AND start_nano >= ? AND start_nano < ?`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, from)
	stmt.BindInt64(3, to)
	var all []store.Observation
	err := each(stmt, func() error {
		r, err := scanObservation(stmt)
		all = append(all, r.Observation)
		return err
	})
	return all, err
}

// nano returns the first column of the first row, if there is one.
func nano(stmt *sqlite.Stmt) (int64, bool, error) {
	found, err := one(stmt, func(stmt *sqlite.Stmt) int64 { return stmt.ColumnInt64(0) })
	if found == nil {
		return 0, false, err
	}
	return *found, true, err
}

func (t *tx) OpenerBefore(owner string, before int64) (int64, bool, error) {
	stmt := t.conn.Prep(`SELECT start_nano FROM observations INDEXED BY idx_observations_opens
 WHERE owner = ? AND start_nano < ? AND opens ORDER BY start_nano DESC LIMIT 1`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, before)
	return nano(stmt)
}

func (t *tx) OpenerFrom(owner string, from int64) (int64, bool, error) {
	stmt := t.conn.Prep(`SELECT start_nano FROM observations INDEXED BY idx_observations_opens
 WHERE owner = ? AND start_nano >= ? AND opens ORDER BY start_nano LIMIT 1`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, from)
	return nano(stmt)
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
	stmt := t.conn.Prep(`WITH RECURSIVE ` + reaches + `SELECT min(o.start_nano), max(o.until_nano) ` + acrossAt)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, at)
	err = each(stmt, func() error {
		ok = !stmt.ColumnIsNull(0)
		from, to = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
		return nil
	})
	return from, to, ok, err
}

func (t *tx) Around(owner string, at int64) ([]store.Observation, error) {
	stmt := t.conn.Prep(`WITH RECURSIVE ` + reaches + `SELECT ` + observationColumns + ` ` + acrossAt + ` ORDER BY start_nano, trace_id, source`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, at)
	rows, err := t.observations(stmt)
	all := make([]store.Observation, len(rows))
	for i := range rows {
		all[i] = rows[i].Observation
	}
	return all, err
}

func (t *tx) NthBefore(owner string, before int64, n int) (int64, bool, error) {
	stmt := t.conn.Prep(`SELECT start_nano FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ? AND start_nano < ? ORDER BY start_nano DESC LIMIT 1 OFFSET ?`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, before)
	stmt.BindInt64(3, int64(n-1))
	return nano(stmt)
}

func scanCut(stmt *sqlite.Stmt) store.Cut {
	c := store.Cut{At: stmt.ColumnInt64(0), Carry: make([]byte, stmt.ColumnLen(1))}
	stmt.ColumnBytes(1, c.Carry)
	return c
}

func (t *tx) CutBefore(owner string, before int64) (*store.Cut, error) {
	stmt := t.conn.Prep(`SELECT at_nano, carry FROM observation_windows WHERE owner = ? AND at_nano < ? ORDER BY at_nano DESC LIMIT 1`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, before)
	return one(stmt, scanCut)
}

func (t *tx) Cuts(owner string, from, to int64) ([]store.Cut, error) {
	stmt := t.conn.Prep(`SELECT at_nano, carry FROM observation_windows WHERE owner = ? AND at_nano >= ? AND at_nano < ? ORDER BY at_nano`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, from)
	stmt.BindInt64(3, to)
	return all(stmt, scanCut)
}

func (t *tx) PutCut(owner string, c *store.Cut) error {
	stmt := t.conn.Prep(`INSERT INTO observation_windows(owner, at_nano, carry) VALUES (?,?,?) ON CONFLICT DO UPDATE SET carry = excluded.carry`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, c.At)
	stmt.BindBytes(3, c.Carry)
	return exec(stmt)
}

func (t *tx) DeleteCut(owner string, at int64) error {
	stmt := t.conn.Prep(`DELETE FROM observation_windows WHERE owner = ? AND at_nano = ?`)
	stmt.BindText(1, owner)
	stmt.BindInt64(2, at)
	return exec(stmt)
}

func (t *tx) Requester(callID, notTrace string, by, until int64) (*store.Requester, error) {
	// Calls of tools are found in the order of the index, however often an id was used.
	order := `ORDER BY c.start_nano DESC, c.trace_id, c.source LIMIT 1`
	if until != 0 {
		order = `ORDER BY o.owner = o.default_session, c.start_nano DESC, c.trace_id, c.source LIMIT 1`
	}
	stmt := t.conn.Prep(`SELECT c.trace_id, o.owner FROM tool_call_requests c CROSS JOIN observations o ON o.trace_id = c.trace_id AND o.source = c.source
 WHERE c.call_id = ?1 AND c.start_nano <= ?2 AND c.start_nano > ?2 - ?3 AND c.trace_id <> ?4 AND (c.trace_id <> '' OR o.owner <> '')
 AND (?5 = 0 OR o.end_nano >= ?5)
 ` + order)
	stmt.BindText(1, callID)
	stmt.BindInt64(2, by)
	stmt.BindInt64(3, store.CallLife)
	stmt.BindText(4, notTrace)
	stmt.BindInt64(5, until)
	return one(stmt, func(stmt *sqlite.Stmt) store.Requester {
		return store.Requester{TraceID: stmt.ColumnText(0), Owner: stmt.ColumnText(1)}
	})
}

// OrphanTraces looks at a few of those who asked later: where they are all of one
// trace, more orphans than need be are found, and none too few.
func (t *tx) OrphanTraces(callID string, at, until int64) ([]string, error) {
	if until != 0 {
		return t.orphanTraces(callID, at, until+1)
	}
	until = at + store.CallLife
	stmt := t.conn.Prep(`SELECT start_nano, trace_id FROM tool_call_requests
 WHERE call_id = ? AND start_nano > ? AND start_nano < ? AND trace_id <> '' ORDER BY start_nano, trace_id LIMIT 64`)
	stmt.BindText(1, callID)
	stmt.BindInt64(2, at)
	stmt.BindInt64(3, until)
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
	stmt := t.conn.Prep(`SELECT DISTINCT trace_id FROM observations INDEXED BY idx_observations_orphan
 WHERE orphan_call = ? AND start_nano >= ? AND start_nano < ? AND trace_id <> '' ORDER BY trace_id`)
	stmt.BindText(1, callID)
	stmt.BindInt64(2, at)
	stmt.BindInt64(3, until)
	return texts(stmt)
}

func (t *tx) Abouts(sessionID string) ([]store.SessionAttrs, error) {
	stmt := t.conn.Prep(`SELECT start_nano, end_nano, session_attrs_json FROM observations INDEXED BY idx_observations_session
 WHERE session_id = ? ORDER BY start_nano, trace_id, source`)
	stmt.BindText(1, sessionID)
	return abouts(stmt, sessionID)
}

func (t *tx) LastAbouts(sessionID string, limit int) ([]store.SessionAttrs, error) {
	stmt := t.conn.Prep(`SELECT start_nano, end_nano, session_attrs_json FROM observations INDEXED BY idx_observations_session_end
 WHERE session_id = ? ORDER BY max(start_nano, end_nano) DESC LIMIT ?`)
	stmt.BindText(1, sessionID)
	stmt.BindInt64(2, int64(limit))
	return abouts(stmt, sessionID)
}

func abouts(stmt *sqlite.Stmt, sessionID string) ([]store.SessionAttrs, error) {
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

func (t *tx) HasLinks(sessionID string) (bool, error) {
	stmt := t.conn.Prep(`SELECT 1 FROM span_refs WHERE session_id = ? AND dialect = '` + store.DialectSDK + `' LIMIT 1`)
	stmt.BindText(1, sessionID)
	_, ok, err := nano(stmt)
	return ok, err
}

func (t *tx) PruneTrace(traceID, sessionID string) error {
	stmt := t.conn.Prep(`DELETE FROM session_traces WHERE trace_id = ?1 AND session_id = ?2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = ?2 AND trace_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_session WHERE session_id = ?2 AND trace_id = ?1)`)
	stmt.BindText(1, traceID)
	stmt.BindText(2, sessionID)
	return exec(stmt)
}

func (t *tx) DeletePart(id string) error {
	stmt := t.conn.Prep(`DELETE FROM chat_parts WHERE id = ?`)
	stmt.BindText(1, id)
	return exec(stmt)
}

func (t *tx) DeleteDecision(id string) error {
	stmt := t.conn.Prep(`DELETE FROM permission_decisions WHERE id = ?`)
	stmt.BindText(1, id)
	return exec(stmt)
}

func (t *tx) DeleteSession(id string) error {
	for _, query := range []string{
		`DELETE FROM session_state WHERE session_id = ?`, // so that what is not attributed yet stays: see the schema's trigger
		`DELETE FROM chat_sessions WHERE id = ?`,
	} {
		stmt := t.conn.Prep(query)
		stmt.BindText(1, id)
		if err := exec(stmt); err != nil {
			return err
		}
	}
	return nil
}
