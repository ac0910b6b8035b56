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
	// undo are the statements that take back what was done since the transaction was handed out.
	undo []string
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
	for _, statement := range t.undo {
		if err := exec(t.conn.Prep(statement)); err != nil {
			return err
		}
	}
	return nil
}

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
	deletions := errors.Join(
		deleted(t, "chat_sessions", c.Sessions, func(s *store.SessionRow) string { return s.ID }),
		deleted(t, "chat_messages", c.Messages, func(m *session.Message) string { return m.ID }),
		deleted(t, "chat_parts", c.Parts, func(p *session.Part) string { return p.ID }),
		deleted(t, "permission_decisions", c.Decisions, func(d *store.Decision) string { return d.ID }))
	if deletions != nil {
		return deletions
	}
	if err := puts(c.Sessions, t.putSession); err != nil {
		return err
	}
	if err := puts(c.Messages, into(t, sqlstore.MessageTable)); err != nil {
		return err
	}
	if err := t.moveParts(c.Moved); err != nil {
		return err
	}
	if err := puts(c.Parts, into(t, sqlstore.PartTable)); err != nil {
		return err
	}
	for i := range c.Requested {
		if err := exec(t.prep(sqlstore.IndexTable.Insert+
			` ON CONFLICT(message_id, part_id) DO UPDATE SET requested_index = excluded.requested_index`,
			c.Requested[i].MessageID, c.Requested[i].PartID, c.Requested[i].RequestedIndex)); err != nil &&
			!errors.Is(err, store.ErrRefused) {
			return err
		}
	}
	if err := puts(c.SpanRefs, into(t, sqlstore.SpanTable)); err != nil {
		return err
	}
	if err := puts(c.Decisions, into(t, sqlstore.DecisionTable)); err != nil {
		return err
	}
	if err := puts(c.Annotations, into(t, sqlstore.AnnotationTable)); err != nil {
		return err
	}
	if err := puts(c.Blobs, t.putBlob); err != nil {
		return err
	}
	if err := t.changeObservations(c); err != nil {
		return err
	}
	for i := range c.Traces {
		if err := t.noteTrace(&c.Traces[i]); err != nil {
			return err
		}
	}
	for _, id := range c.Touched {
		if err := t.touch(id); err != nil {
			return err
		}
	}
	for _, s := range c.Sources {
		if err := t.putSource(s); err != nil {
			return err
		}
	}
	return nil
}

// deleted deletes the rows of a table that are to be deleted.
func deleted[Row any](t *tx, table string, rows []store.Put[Row], id func(*Row) string) error {
	for i := range rows {
		if rows[i].Op != store.Delete {
			continue
		}
		if table == "chat_sessions" {
			// So that what is not attributed yet stays: see the schema's trigger.
			if err := exec(t.prep(`DELETE FROM session_state WHERE session_id = ?`, id(rows[i].Row))); err != nil {
				return err
			}
		}
		if err := exec(t.prep(`DELETE FROM `+table+` WHERE id = ?`, id(rows[i].Row))); err != nil {
			return err
		}
	}
	return nil
}

// puts inserts and updates rows, and notes which are refused.
func puts[Row any](rows []store.Put[Row], put func(row *Row, insert bool) error) error {
	for i := range rows {
		p := &rows[i]
		if p.Op == store.Delete {
			continue
		}
		if p.Refused = put(p.Row, p.Op == store.Insert); p.Refused != nil && !errors.Is(p.Refused, store.ErrRefused) {
			return p.Refused
		}
	}
	return nil
}

func into[Row any](t *tx, table *sqlstore.Table[Row]) func(*Row, bool) error {
	return func(row *Row, insert bool) error { return refused(put(t.conn, table, row, insert)) }
}

// answer sets the results of a query.
func (t *tx) answer(q store.Query) (err error) {
	switch q := q.(type) {
	case *store.SessionsByID:
		return t.sessions(q)
	case *store.MessagesByID:
		q.Rows, err = byKeys(t, sqlstore.MessageTable, q.IDs, bindText)
	case *store.PartsByKey:
		return t.parts(q)
	case *store.SpanRefsByKey:
		q.Rows, err = byKeys(t, sqlstore.SpanTable, q.Keys, func(stmt *sqlite.Stmt, k store.SpanKey) {
			stmt.BindText(1, k.SessionID)
			stmt.BindText(2, k.TraceID)
			stmt.BindText(3, k.SpanID)
		})
	case *store.DecisionsByID:
		q.Rows, err = byKeys(t, sqlstore.DecisionTable, q.IDs, bindText)
	case *store.AnnotationsByKey:
		q.Rows, err = byKeys(t, sqlstore.AnnotationTable, q.Keys, func(stmt *sqlite.Stmt, k store.AnnotationKey) {
			stmt.BindText(1, k.SessionID)
			stmt.BindText(2, k.ID)
		})
	case *store.AnnotationsOf:
		q.Rows, err = rows(sqlstore.AnnotationTable, t.prep(`SELECT `+sqlstore.AnnotationTable.List+` FROM annotations
 WHERE session_id = ? ORDER BY id`, q.SessionID))
	case *store.BlobsByDigest:
		if sqlstore.BlobTables[q.Kind] != nil {
			q.Rows, err = byKeys(t, sqlstore.BlobTables[q.Kind], q.Digests, bindText)
		}
	case *store.MessagesFrom:
		q.Rows, err = t.messagesFrom(q.SessionID, q.From)
	case *store.PartsFrom:
		q.Rows, err = rows(sqlstore.PartTable, t.prep(partsQuery, q.MessageID, q.From))
	case *store.Extent:
		return t.extent(q)
	case *store.Compactions:
		return t.compactions(q)
	case *store.StatsOf:
		q.Rows, err = rows(sqlstore.SpanTable, t.prep(turnStatsQuery, q.SessionID, q.MessageID))
	default:
		return t.answerObservations(q)
	}
	return err
}

// byKeys returns the rows with the keys.
func byKeys[Row, Key any](t *tx, table *sqlstore.Table[Row], keys []Key, bind func(*sqlite.Stmt, Key)) ([]Row, error) {
	var rows []Row
	for _, key := range keys {
		stmt := t.conn.Prep(table.ByKey)
		bind(stmt, key)
		err := each(stmt, func() error {
			rows = append(rows, *new(Row))
			return table.Scan(stmt, &rows[len(rows)-1])
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func bindText(stmt *sqlite.Stmt, key string) { stmt.BindText(1, key) }

// refused returns an error where a row that must be there, or must not, was not put.
func refused(changed bool, err error) error {
	if err == nil && !changed {
		return store.ErrRefused
	}
	return err
}

// Queries of every batch.
var (
	sessionQuery = `SELECT ` + sessionColumns + `, st.state_json
 FROM chat_sessions s LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ?`
	partsQuery = `SELECT ` + sqlstore.PartTable.List + ` FROM chat_parts
 WHERE message_id = ? AND "index" >= ? ORDER BY "index"`
	partAtQuery    = `SELECT ` + sqlstore.PartTable.List + ` FROM chat_parts WHERE message_id = ? AND "index" = ?`
	turnStatsQuery = `SELECT ` + sqlstore.SpanTable.List + ` FROM span_refs INDEXED BY idx_span_refs_facts
 WHERE message_id = ?2 AND facts_json IS NOT NULL AND session_id = ?1`
)

func (t *tx) sessions(q *store.SessionsByID) error {
	if q.Forks {
		q.ForksOf = make(map[string][]store.ForkRef)
	}
	if q.Children {
		q.Transcripts = make(map[string][]string)
	}
	for _, id := range q.IDs {
		row, err := t.session(id)
		if err != nil {
			return err
		}
		if row != nil {
			q.Rows = append(q.Rows, *row)
		}
		if q.Forks {
			if err := t.forks(id, q.ForksOf); err != nil {
				return err
			}
		}
		if q.Children {
			if q.Transcripts[id], err = texts(t.prep(`SELECT id FROM chat_sessions INDEXED BY idx_chat_sessions_transcripts
 WHERE parent_id = ? AND instr(metadata_json, '"transcript"') > 0 ORDER BY id`, id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// session returns the row of a session, nil if there is none.
func (t *tx) session(id string) (*store.SessionRow, error) {
	stmt := t.prep(sessionQuery, id)
	var row *store.SessionRow
	err := each(stmt, func() error {
		row = new(store.SessionRow)
		if err := sqlstore.SessionTable.Scan(stmt, &row.Session); err != nil {
			return err
		}
		if state := stmt.ColumnText(len(sqlstore.SessionTable.Columns)); state != "" {
			return sqlstore.ReadState(id, state, &row.State)
		}
		return nil
	})
	return row, err
}

// forks adds the forks of a session, which have their parent in a column of its own.
func (t *tx) forks(parentID string, forks map[string][]store.ForkRef) error {
	stmt := t.prep(`SELECT session_id, state_json FROM session_state WHERE forked_from = ? ORDER BY session_id`, parentID)
	return each(stmt, func() error {
		ref := store.ForkRef{Session: stmt.ColumnText(0)}
		var state store.State
		if err := sqlstore.ReadState(ref.Session, stmt.ColumnText(1), &state); err != nil {
			return err
		}
		if state.Fork != nil {
			ref.Message = state.Fork.Message
		}
		forks[parentID] = append(forks[parentID], ref)
		return nil
	})
}

func (t *tx) putSession(r *store.SessionRow, insert bool) error {
	if err := refused(put(t.conn, sqlstore.SessionTable, &r.Session, insert)); err != nil {
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

func (t *tx) touch(sessionID string) error {
	if t.now == 0 {
		return nil
	}
	return exec(t.prep(`INSERT INTO export_outbox(session_id, touched_at) VALUES (?,?)
 ON CONFLICT(session_id) DO UPDATE SET touched_at = excluded.touched_at`, sessionID, t.now))
}

func (t *tx) messagesFrom(sessionID string, from store.Position) ([]session.Message, error) {
	return rows(sqlstore.MessageTable, t.prep(sqlstore.MessagesQuery, sessionID, from.At, from.ID))
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

func (t *tx) extent(q *store.Extent) error {
	stmt := t.prep(`SELECT count(*), coalesce(max("index") + 1, 0) FROM chat_parts WHERE message_id = ?`, q.MessageID)
	err := each(stmt, func() error {
		q.Count, q.Next = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
		return nil
	})
	if err == nil && q.WithRequested {
		q.Requested, err = rows(sqlstore.IndexTable, t.prep(`SELECT `+sqlstore.IndexTable.List+`
 FROM requested_indexes WHERE message_id = ?`, q.MessageID))
	}
	return err
}

func (t *tx) compactions(q *store.Compactions) error {
	query := `SELECT ` + sqlstore.PartTable.List + ` FROM chat_parts INDEXED BY idx_chat_parts_compaction
 WHERE session_id = ? AND type = 'data-compaction'`
	if len(q.MessageIDs) == 0 {
		var err error
		q.Rows, err = rows(sqlstore.PartTable, t.prep(query, q.SessionID))
		return err
	}
	for _, id := range q.MessageIDs {
		some, err := rows(sqlstore.PartTable, t.prep(query+` AND message_id = ?`, q.SessionID, id))
		if err != nil {
			return err
		}
		q.Rows = append(q.Rows, some...)
	}
	return nil
}

// moveParts moves the parts out of the way first, below zero, because the index on
// (message_id, "index") is checked row by row.
func (t *tx) moveParts(moved []store.PartIndex) error {
	for _, away := range []bool{true, false} {
		for _, p := range moved {
			if away {
				p.Index = -1 - p.Index
			}
			if err := exec(t.prep(`UPDATE chat_parts SET "index" = ? WHERE id = ?`, p.Index, p.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tx) noteTrace(s *store.SessionTrace) error {
	if s.Pruned {
		return exec(t.prep(`DELETE FROM session_traces WHERE trace_id = ?1 AND session_id = ?2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = ?2 AND trace_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_session WHERE session_id = ?2 AND trace_id = ?1)`,
			s.TraceID, s.SessionID))
	}
	err := exec(t.prep(`INSERT INTO session_traces(trace_id, session_id) VALUES (?,?) ON CONFLICT DO NOTHING`, s.TraceID,
		s.SessionID))
	if errors.Is(err, store.ErrRefused) {
		return nil // the session was
	}
	return err
}

func (t *tx) putBlob(b *store.Blob, insert bool) error {
	table := sqlstore.BlobTables[b.Kind]
	if table == nil {
		return fmt.Errorf("unknown kind of blob %s", b.Kind)
	}
	return refused(put(t.conn, table, b, insert))
}

// putSource replaces a source, and which sessions it is a source of.
func (t *tx) putSource(s *store.ImportSource) error {
	for _, stmt := range []*sqlite.Stmt{
		t.prep(`DELETE FROM import_sources WHERE path = ?`, s.Path),
		t.prep(`DELETE FROM import_source_sessions WHERE path = ?`, s.Path),
	} {
		if err := exec(stmt); err != nil {
			return err
		}
	}
	if _, err := put(t.conn, sqlstore.SourceTable, s, true); err != nil {
		return err
	}
	for _, id := range s.Sessions {
		if err := exec(t.prep(`INSERT INTO import_source_sessions(session_id, path) VALUES (?, ?) ON CONFLICT DO NOTHING`,
			id, s.Path)); err != nil {
			return err
		}
	}
	return nil
}
