package sqlite

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// tx implements [sqlstore.Tx] on one connection.
type tx struct {
	conn    *sqlite.Conn
	dialect *sqlstore.Dialect
	// now is the time that the outbox is stamped with, Unix milliseconds; 0 when
	// there is no outbox.
	now int64
	// file is what is read, nil in a transaction that writes.
	file *file
	// shared reports that the transaction has the changes of several requests, which only its end undoes.
	shared bool
}

var (
	_ sqlstore.Tx         = (*tx)(nil)
	_ sqlstore.PartFilter = (*tx)(nil)
)

func (t *tx) prep(query string, args ...any) *sqlite.Stmt { return prep(t.conn, query, args...) }

// Dialect implements [sqlstore.Conn].
func (t *tx) Dialect() *sqlstore.Dialect { return t.dialect }

// Query implements [sqlstore.Conn].
func (t *tx) Query(query string, fn func(sqlstore.Row) error, args ...any) error {
	stmt, err := t.conn.Prepare(query)
	if err != nil {
		return err
	}
	bind(stmt, args)
	return each(stmt, func() error { return fn(stmt) })
}

// Exec implements [sqlstore.Tx].
func (t *tx) Exec(query string, args ...any) (int64, error) {
	if err := exec(t.prep(query, args...)); err != nil {
		return 0, err
	}
	return int64(t.conn.Changes()), nil
}

// Undo implements [store.Tx].
func (t *tx) Undo() error {
	if t.shared {
		return errShared
	}
	if err := exec(t.conn.Prep("ROLLBACK")); err != nil {
		return err
	}
	return exec(t.conn.Prep("BEGIN IMMEDIATE"))
}

var errShared = errors.New("the transaction is shared")

// Do implements [store.Tx]. SQLite is in the same process, so each change and each query is a statement or a few.
func (t *tx) Do(c *store.Changes, queries []store.Query) error {
	if c != nil {
		if err := t.write(c); err != nil {
			return err
		}
	}
	for _, q := range queries {
		if err := t.answer(q); err != nil {
			return err
		}
	}
	return nil
}

// write applies changes. Deletions come first, for they make room.
func (t *tx) write(c *store.Changes) error {
	w := &writing{tx: t}
	sessionID := func(s *store.SessionRow) string { return s.ID }
	// The state goes first, so that what is not attributed yet stays: see the schema's trigger.
	deleted(w, `DELETE FROM session_state WHERE session_id = ?`, c.Sessions, sessionID)
	deleted(w, `DELETE FROM chat_sessions WHERE id = ?`, c.Sessions, sessionID)
	deleted(w, `DELETE FROM chat_messages WHERE id = ?`, c.Messages, func(m *session.Message) string { return m.ID })
	deleted(w, `DELETE FROM chat_parts WHERE id = ?`, c.Parts, func(p *session.Part) string { return p.ID })
	deleted(w, `DELETE FROM permission_decisions WHERE id = ?`, c.Decisions,
		func(d *store.Decision) string { return d.ID })
	puts(w, c.Sessions, t.putSession)
	puts(w, c.Messages, into(t, sqlstore.MessageTable))
	w.moveParts(c.Moved)
	puts(w, c.Parts, into(t, sqlstore.PartTable))
	for _, r := range c.Requested {
		w.execFollowing(sqlstore.IndexTable.Insert+
			` ON CONFLICT(message_id, part_id) DO UPDATE SET requested_index = excluded.requested_index`,
			r.MessageID, r.PartID, r.RequestedIndex)
	}
	puts(w, c.SpanRefs, into(t, sqlstore.SpanTable))
	puts(w, c.Decisions, into(t, sqlstore.DecisionTable))
	puts(w, c.Annotations, into(t, sqlstore.AnnotationTable))
	puts(w, c.Blobs, t.putBlob)
	w.observations(c)
	for i := range c.Traces {
		w.noteTrace(&c.Traces[i])
	}
	for _, id := range c.Touched {
		w.touch(id)
	}
	for _, s := range c.Sources {
		w.putSource(s)
	}
	return w.err
}

// writing applies changes one after the other. After the first error, which it keeps, it does nothing more.
type writing struct {
	*tx
	err error
}

// exec runs a statement without a result.
func (w *writing) exec(query string, args ...any) {
	if w.err == nil {
		w.err = exec(w.prep(query, args...))
	}
}

// execFollowing is exec for a row that refers to another: it is left out where that one was refused.
func (w *writing) execFollowing(query string, args ...any) {
	if w.err != nil {
		return
	}
	if err := exec(w.prep(query, args...)); !errors.Is(err, store.ErrRefused) {
		w.err = err
	}
}

// putRow inserts or updates a row, whether or not that changes anything.
func putRow[Row any](w *writing, table *sqlstore.Table[Row], row *Row, insert bool) {
	if w.err == nil {
		_, w.err = put(w.conn, table, row, insert)
	}
}

// deleted deletes the rows that are to be deleted by a statement whose parameter is their id.
func deleted[Row any](w *writing, statement string, rows []store.Put[Row], id func(*Row) string) {
	for i := range rows {
		if rows[i].Op == store.Delete {
			w.exec(statement, id(rows[i].Row))
		}
	}
}

// puts inserts and updates rows, and notes which are refused.
func puts[Row any](w *writing, rows []store.Put[Row], put func(*store.Put[Row]) error) {
	for i := range rows {
		p := &rows[i]
		if p.Op == store.Delete || w.err != nil {
			continue
		}
		if p.Refused = put(p); !errors.Is(p.Refused, store.ErrRefused) {
			w.err = p.Refused
		}
	}
}

func into[Row any](t *tx, table *sqlstore.Table[Row]) func(*store.Put[Row]) error {
	return func(p *store.Put[Row]) error { return refused(put(t.conn, table, p.Row, p.Op == store.Insert)) }
}

// selecting executes statements that select at once. After the first error, which it keeps, it does nothing more.
type selecting struct {
	*tx
	err error
}

// Select implements [sqlstore.Statements].
func (s *selecting) Select(query string, fn func(sqlstore.Row) error, args ...any) {
	if s.err == nil {
		s.err = s.Query(query, fn, args...)
	}
}

// SelectKeys implements [sqlstore.Statements].
func (s *selecting) SelectKeys(query string, fn func(sqlstore.Row) error, keys []string) {
	for _, key := range keys {
		s.Select(query, fn, key)
	}
}

// answer sets the results of a query.
func (t *tx) answer(q store.Query) (err error) {
	if s := (selecting{tx: t}); sqlstore.Ask(&s, q) {
		return s.err
	}
	switch q := q.(type) {
	case *store.PartsByKey:
		return t.parts(q)
	case *store.SpanRefsByKey:
		q.Rows, err = byKeys(t, sqlstore.SpanTable, q.Keys, func(stmt *sqlite.Stmt, k store.SpanKey) {
			stmt.BindText(1, k.SessionID)
			stmt.BindText(2, k.TraceID)
			stmt.BindText(3, k.SpanID)
		})
	case *store.AnnotationsByKey:
		q.Rows, err = byKeys(t, sqlstore.AnnotationTable, q.Keys, func(stmt *sqlite.Stmt, k store.AnnotationKey) {
			stmt.BindText(1, k.SessionID)
			stmt.BindText(2, k.ID)
		})
	default:
		return t.answerObservations(q)
	}
	return err
}

// byKeys returns the rows with the keys.
func byKeys[Row, Key any](t *tx, table *sqlstore.Table[Row], keys []Key, bind func(*sqlite.Stmt, Key)) ([]Row, error) {
	return byStatement(t, table, table.ByKey, keys, bind)
}

// byStatement returns the rows of a query for each of the keys, which bind makes its parameters.
func byStatement[Row, Key any](t *tx, table *sqlstore.Table[Row], query string, keys []Key,
	bind func(*sqlite.Stmt, Key)) (all []Row, err error) {
	for _, key := range keys {
		stmt := t.conn.Prep(query)
		bind(stmt, key)
		if all, err = appendRows(all, table, stmt); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// refused returns an error where a row that must be there, or must not, was not put.
func refused(changed bool, err error) error {
	if err == nil && !changed {
		return store.ErrRefused
	}
	return err
}

// partAtQuery selects the part at an index.
var partAtQuery = `SELECT ` + sqlstore.PartTable.List + ` FROM chat_parts WHERE message_id = ? AND "index" = ?`

func (t *tx) putSession(p *store.Put[store.SessionRow]) error {
	r := p.Row
	if err := refused(put(t.conn, sqlstore.SessionTable, &r.Session, p.Op == store.Insert)); err != nil {
		return err
	}
	var forkedFrom any
	if r.State.Fork != nil {
		forkedFrom = r.State.Fork.From
	}
	return exec(t.prep(`INSERT INTO session_state(session_id, state_json, forked_from) VALUES (?, ?, ?)
 ON CONFLICT(session_id) DO UPDATE SET state_json = excluded.state_json, forked_from = excluded.forked_from`,
		r.ID, string(r.State.Encode()), forkedFrom))
}

func (w *writing) touch(sessionID string) {
	if w.now != 0 {
		w.exec(`INSERT INTO export_outbox(session_id, touched_at) VALUES (?,?)
 ON CONFLICT(session_id) DO UPDATE SET touched_at = excluded.touched_at`, sessionID, w.now)
	}
}

func (t *tx) parts(q *store.PartsByKey) error {
	for _, k := range q.Keys {
		p, err := get(t.conn, sqlstore.PartTable, k.ID)
		if err == nil && p == nil && q.MessageID != "" {
			p, err = row(sqlstore.PartTable, t.prep(partAtQuery, q.MessageID, k.Index))
		}
		if err != nil {
			return err
		}
		if p != nil {
			q.Rows = append(q.Rows, *p)
		}
	}
	return nil
}

// moveParts moves the parts out of the way first, below zero, because the index on
// (message_id, "index") is checked row by row.
func (w *writing) moveParts(moved []store.PartIndex) {
	for _, away := range []bool{true, false} {
		for _, p := range moved {
			if away {
				p.Index = -1 - p.Index
			}
			w.exec(`UPDATE chat_parts SET "index" = ? WHERE id = ?`, p.Index, p.ID)
		}
	}
}

func (w *writing) noteTrace(s *store.SessionTrace) {
	if s.Pruned {
		w.exec(`DELETE FROM session_traces WHERE trace_id = ?1 AND session_id = ?2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = ?2 AND trace_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_spans
  WHERE session_id = ?2 AND trace_id = ?1)`, s.TraceID, s.SessionID)
		return
	}
	w.execFollowing(`INSERT INTO session_traces(trace_id, session_id) VALUES (?,?) ON CONFLICT DO NOTHING`,
		s.TraceID, s.SessionID)
}

func (t *tx) putBlob(p *store.Put[store.Blob]) error {
	table := sqlstore.BlobTables[p.Row.Kind]
	if table == nil {
		return fmt.Errorf("unknown kind of blob %s", p.Row.Kind)
	}
	return into(t, table)(p)
}

// putSource replaces a source, and which sessions it is a source of.
func (w *writing) putSource(s *store.ImportSource) {
	w.exec(`DELETE FROM import_sources WHERE path = ?`, s.Path)
	w.exec(`DELETE FROM import_source_sessions WHERE path = ?`, s.Path)
	putRow(w, sqlstore.SourceTable, s, true)
	for _, id := range s.Sessions {
		w.exec(`INSERT INTO import_source_sessions(session_id, path) VALUES (?, ?) ON CONFLICT DO NOTHING`, id, s.Path)
	}
}
