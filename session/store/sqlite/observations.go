package sqlite

import (
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
)

const placedColumns = `home, dialect, span_id, parent_span_id, start_nano, end_nano, error, opens, said_session, said_rank, own,
 stray_call, calls_json, session_id, message_id, others_json, part_id, decision_id, kind, about_json`

const observationColumns = placedColumns + `, data, trace_id, source`

func scanObservation(stmt *sqlite.Stmt) (store.ObservationRow, error) {
	r := store.ObservationRow{Home: stmt.ColumnText(0), Observation: store.Observation{
		Dialect: stmt.ColumnText(1), SpanID: stmt.ColumnText(2), ParentSpanID: stmt.ColumnText(3),
		Start: stmt.ColumnInt64(4), End: stmt.ColumnInt64(5), Error: stmt.ColumnBool(6), Opens: stmt.ColumnBool(7),
		Session: stmt.ColumnText(8), Rank: int(stmt.ColumnInt64(9)), Own: stmt.ColumnText(10), Call: stmt.ColumnText(11),
		TraceID: stmt.ColumnText(21), Source: stmt.ColumnText(22),
		Placed: store.Placement{
			SessionID: stmt.ColumnText(13), MessageID: stmt.ColumnText(14), PartID: stmt.ColumnText(16), DecisionID: stmt.ColumnText(17),
			Kind: stmt.ColumnText(18),
		},
	}}
	r.Data = make([]byte, stmt.ColumnLen(20))
	stmt.ColumnBytes(20, r.Data)
	for _, column := range []struct {
		index int
		dst   any
	}{{12, &r.Calls}, {15, &r.Placed.Others}, {19, &r.Placed.About}} {
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

func bindPlacement(stmt *sqlite.Stmt, param int, p *store.Placement) {
	bindText(stmt, param, p.SessionID)
	bindText(stmt, param+1, p.MessageID)
	bindJSON(stmt, param+2, len(p.Others) == 0, p.Others)
	bindText(stmt, param+3, p.PartID)
	bindText(stmt, param+4, p.DecisionID)
	bindText(stmt, param+5, p.Kind)
	bindJSON(stmt, param+6, p.About == nil, p.About)
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

func (t *tx) PutObservation(o *store.ObservationRow, insert bool) error {
	stmt := t.conn.Prep(`INSERT INTO observations(` + observationColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`)
	if !insert {
		stmt = t.conn.Prep(`UPDATE observations SET home=?, dialect=?, span_id=?, parent_span_id=?, start_nano=?, end_nano=?, error=?, opens=?,
 said_session=?, said_rank=?, own=?, stray_call=?, calls_json=?, session_id=?, message_id=?, others_json=?, part_id=?, decision_id=?, kind=?,
 about_json=?, data=? WHERE trace_id=? AND source=?`)
	}
	stmt.BindText(1, o.Home)
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
	bindPlacement(stmt, 14, &o.Placed)
	stmt.BindBytes(21, o.Data)
	stmt.BindText(22, o.TraceID)
	stmt.BindText(23, o.Source)
	if err := exec(stmt); err != nil {
		return err
	}
	for _, call := range o.Calls {
		stmt := t.conn.Prep(`INSERT INTO announced_calls(call_id, trace_id, start_nano) VALUES (?,?,?)
 ON CONFLICT(call_id, trace_id) DO UPDATE SET start_nano = min(start_nano, excluded.start_nano)`)
		stmt.BindText(1, call)
		stmt.BindText(2, o.TraceID)
		stmt.BindInt64(3, o.Start)
		if err := exec(stmt); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) SetHome(traceID, source, home string) error {
	stmt := t.conn.Prep(`UPDATE observations SET home = ? WHERE trace_id = ? AND source = ?`)
	stmt.BindText(1, home)
	stmt.BindText(2, traceID)
	stmt.BindText(3, source)
	return exec(stmt)
}

func (t *tx) Place(o *store.Observation, placed *store.Placement) error {
	stmt := t.conn.Prep(`UPDATE observations SET session_id=?, message_id=?, others_json=?, part_id=?, decision_id=?, kind=?, about_json=?
 WHERE trace_id=? AND source=?`)
	bindPlacement(stmt, 1, placed)
	stmt.BindText(8, o.TraceID)
	stmt.BindText(9, o.Source)
	return exec(stmt)
}

func (t *tx) TraceObservations(traceID string) ([]store.ObservationRow, error) {
	stmt := t.conn.Prep(`SELECT ` + placedColumns + `, x'', trace_id, source FROM observations WHERE trace_id = ? ORDER BY source`)
	stmt.BindText(1, traceID)
	return t.observations(stmt)
}

func (t *tx) TraceHome(traceID string) (string, error) {
	stmt := t.conn.Prep(`SELECT home FROM observations WHERE trace_id = ? LIMIT 1`)
	stmt.BindText(1, traceID)
	return text(stmt)
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

func (t *tx) TraceTold(traceID string) ([]string, error) {
	stmt := t.conn.Prep(`SELECT session_id FROM session_traces t WHERE trace_id = ?1 AND EXISTS (
 SELECT 1 FROM span_links l WHERE l.session_id = t.session_id AND l.trace_id = ?1) ORDER BY session_id`)
	stmt.BindText(1, traceID)
	return texts(stmt)
}

func (t *tx) Observations(home string, from, to int64) ([]store.Observation, error) {
	stmt := t.conn.Prep(`SELECT ` + observationColumns + ` FROM observations INDEXED BY idx_observations_home_start
 WHERE home = ? AND start_nano >= ? AND start_nano < ?`)
	stmt.BindText(1, home)
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

func (t *tx) OpenerBefore(home string, before int64) (int64, bool, error) {
	stmt := t.conn.Prep(`SELECT start_nano FROM observations INDEXED BY idx_observations_home_start
 WHERE home = ? AND start_nano < ? AND opens ORDER BY start_nano DESC LIMIT 1`)
	stmt.BindText(1, home)
	stmt.BindInt64(2, before)
	return nano(stmt)
}

func (t *tx) OpenerFrom(home string, from int64) (int64, bool, error) {
	stmt := t.conn.Prep(`SELECT start_nano FROM observations INDEXED BY idx_observations_home_start
 WHERE home = ? AND start_nano >= ? AND opens ORDER BY start_nano LIMIT 1`)
	stmt.BindText(1, home)
	stmt.BindInt64(2, from)
	return nano(stmt)
}

// FirstAcross goes by the end: few observations end after one of the last turns
// of a session, while most begin before it.
func (t *tx) FirstAcross(home string, at int64) (int64, bool, error) {
	stmt := t.conn.Prep(`SELECT min(start_nano) FROM observations INDEXED BY idx_observations_home_end
 WHERE home = ?1 AND end_nano > ?2 AND start_nano < ?2 HAVING count(*) > 0`)
	stmt.BindText(1, home)
	stmt.BindInt64(2, at)
	return nano(stmt)
}

// A tool runs within a day of the model's asking for it, however long a person
// takes to approve it. Ids of calls are not unique for longer.
const callLife = 24 * 60 * 60 * 1_000_000_000

func (t *tx) Announcer(callID, notTrace string, before int64) (string, error) {
	stmt := t.conn.Prep(`SELECT (SELECT home FROM observations o WHERE o.trace_id = c.trace_id LIMIT 1) FROM announced_calls c
 WHERE call_id = ? AND trace_id <> ? AND start_nano <= ?3 AND start_nano > ?3 - ?4 ORDER BY start_nano DESC, trace_id LIMIT 1`)
	stmt.BindText(1, callID)
	stmt.BindText(2, notTrace)
	stmt.BindInt64(3, before)
	stmt.BindInt64(4, callLife)
	return text(stmt)
}

func (t *tx) StrayTraces(callID string) ([]string, error) {
	stmt := t.conn.Prep(`SELECT DISTINCT trace_id FROM observations INDEXED BY idx_observations_stray WHERE stray_call = ? ORDER BY trace_id`)
	stmt.BindText(1, callID)
	return texts(stmt)
}

func (t *tx) Abouts(sessionID string) ([]store.About, error) {
	stmt := t.conn.Prep(`SELECT start_nano, end_nano, about_json FROM observations INDEXED BY idx_observations_session
 WHERE session_id = ? ORDER BY start_nano, trace_id, source`)
	stmt.BindText(1, sessionID)
	var all []store.About
	err := each(stmt, func() error {
		a := store.About{Start: stmt.ColumnInt64(0), End: stmt.ColumnInt64(1)}
		if !stmt.ColumnIsNull(2) {
			if err := json.Unmarshal([]byte(stmt.ColumnText(2)), &a.About); err != nil {
				return fmt.Errorf("read observations of session %s: %w", sessionID, err)
			}
		}
		all = append(all, a)
		return nil
	})
	return all, err
}

func (t *tx) HasLinks(sessionID string) (bool, error) {
	stmt := t.conn.Prep(`SELECT 1 FROM span_links WHERE session_id = ? LIMIT 1`)
	stmt.BindText(1, sessionID)
	_, ok, err := nano(stmt)
	return ok, err
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
	stmt := t.conn.Prep(`DELETE FROM chat_sessions WHERE id = ?`)
	stmt.BindText(1, id)
	return exec(stmt)
}
