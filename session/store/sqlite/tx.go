package sqlite

import (
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// tx implements [store.Tx] on one connection.
type tx struct {
	conn *sqlite.Conn
	// now is the time that the outbox is stamped with, Unix milliseconds; 0 when
	// there is no outbox.
	now int64
}

var _ store.Tx = (*tx)(nil)

func (t *tx) prep(query string, args ...any) *sqlite.Stmt { return prep(t.conn, query, args...) }

func (t *tx) Delete(table store.Table, id string) error {
	if table == store.TableSessions {
		// So that what is not attributed yet stays: see the schema's trigger.
		if err := exec(t.prep(`DELETE FROM session_state WHERE session_id = ?`, id)); err != nil {
			return err
		}
	}
	return exec(t.prep(`DELETE FROM `+string(table)+` WHERE id = ?`, id))
}

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
	messagesQuery = `SELECT ` + messageTable.list + ` FROM chat_messages
 WHERE session_id = ?1 AND created_at >= ?2 AND (created_at > ?2 OR id >= ?3) ORDER BY created_at, id`
	turnStatsQuery = `SELECT ` + spanTable.list + ` FROM span_refs INDEXED BY idx_span_refs_facts
 WHERE message_id = ?2 AND facts_json IS NOT NULL AND session_id = ?1`
)

func (t *tx) Session(id string) (*store.SessionRow, error) {
	stmt := t.prep(sessionQuery, id)
	var row *store.SessionRow
	err := each(stmt, func() error {
		row = new(store.SessionRow)
		if err := sessionTable.scan(stmt, &row.Session); err != nil {
			return err
		}
		if state := stmt.ColumnText(len(sessionTable.columns)); state != "" {
			return readState(id, state, &row.State)
		}
		return nil
	})
	return row, err
}

func readState(sessionID, text string, state *store.State) error {
	if err := json.Unmarshal([]byte(text), state); err != nil {
		return fmt.Errorf("read state of session %s: %w", sessionID, err)
	}
	return nil
}

func (t *tx) PutSession(r *store.SessionRow, insert bool) error {
	if err := refused(sessionTable.put(t.conn, &r.Session, insert)); err != nil {
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

func (t *tx) TranscriptChildren(parentID string) ([]string, error) {
	return texts(t.prep(`SELECT id FROM chat_sessions INDEXED BY idx_chat_sessions_transcripts
 WHERE parent_id = ? AND instr(metadata_json, '"transcript"') > 0 ORDER BY id`, parentID))
}

func (t *tx) Forks(parentID string) ([]store.ForkRef, error) {
	stmt := t.prep(`SELECT session_id, state_json FROM session_state WHERE forked_from = ? ORDER BY session_id`, parentID)
	var refs []store.ForkRef
	err := each(stmt, func() error {
		ref := store.ForkRef{Session: stmt.ColumnText(0)}
		var state store.State
		if err := readState(ref.Session, stmt.ColumnText(1), &state); err != nil {
			return err
		}
		if state.Fork != nil {
			ref.Message = state.Fork.Message
		}
		refs = append(refs, ref)
		return nil
	})
	return refs, err
}

func (t *tx) Touch(sessionID string) error {
	if t.now == 0 {
		return nil
	}
	return exec(t.prep(`INSERT INTO export_outbox(session_id, touched_at) VALUES (?,?)
 ON CONFLICT(session_id) DO UPDATE SET touched_at = excluded.touched_at`, sessionID, t.now))
}

func (t *tx) Message(id string) (*session.Message, error) {
	return messageTable.get(t.conn, id)
}

func (t *tx) PutMessage(m *session.Message, insert bool) error {
	return refused(messageTable.put(t.conn, m, insert))
}

func (t *tx) MessagesFrom(sessionID string, from store.Position) ([]session.Message, error) {
	return messageTable.all(t.prep(messagesQuery, sessionID, from.At, from.ID))
}

func (t *tx) Part(id string) (*session.Part, error) {
	return partTable.get(t.conn, id)
}

func (t *tx) PutPart(p *session.Part, insert bool) (bool, error) {
	return partTable.put(t.conn, p, insert)
}

func (t *tx) Parts(messageID string, from int64) ([]session.Part, error) {
	return partTable.all(t.prep(`SELECT `+partTable.list+` FROM chat_parts WHERE message_id = ? AND "index" >= ? ORDER BY "index"`,
		messageID, from))
}

func (t *tx) Extent(messageID string) (count, next int64, err error) {
	stmt := t.prep(`SELECT count(*), coalesce(max("index") + 1, 0) FROM chat_parts WHERE message_id = ?`, messageID)
	err = each(stmt, func() error {
		count, next = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
		return nil
	})
	return count, next, err
}

func (t *tx) Compactions(sessionID, messageID string) ([]session.Part, error) {
	query := `SELECT ` + partTable.list + ` FROM chat_parts INDEXED BY idx_chat_parts_compaction
 WHERE session_id = ? AND type = 'data-compaction'`
	if messageID == "" {
		return partTable.all(t.prep(query, sessionID))
	}
	return partTable.all(t.prep(query+` AND message_id = ?`, sessionID, messageID))
}

func (t *tx) RequestedIndexes(messageID string) (map[string]int64, error) {
	rows, err := indexTable.all(t.prep(`SELECT `+indexTable.list+` FROM requested_indexes WHERE message_id = ?`, messageID))
	requested := make(map[string]int64, len(rows))
	for _, r := range rows {
		requested[r.PartID] = r.RequestedIndex
	}
	return requested, err
}

// MoveParts moves the parts out of the way first, below zero, because the index on
// (message_id, "index") is checked row by row.
func (t *tx) MoveParts(messageID string, index, requested map[string]int64) error {
	for _, away := range []bool{true, false} {
		for id, i := range index {
			if away {
				i = -1 - i
			}
			if err := exec(t.prep(`UPDATE chat_parts SET "index" = ? WHERE id = ?`, i, id)); err != nil {
				return err
			}
		}
	}
	for id, i := range requested {
		if err := exec(t.prep(`INSERT INTO requested_indexes(message_id, part_id, requested_index) VALUES (?,?,?)
 ON CONFLICT(message_id, part_id) DO UPDATE SET requested_index = excluded.requested_index`, messageID, id, i)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) SpanRef(sessionID, traceID, spanID string) (*store.SpanRef, error) {
	return spanTable.get(t.conn, sessionID, traceID, spanID)
}

func (t *tx) PutSpanRef(l *store.SpanRef, insert bool) (bool, error) {
	return spanTable.put(t.conn, l, insert)
}

func (t *tx) TurnStats(sessionID, messageID string) ([]store.SpanRef, error) {
	return spanTable.all(t.prep(turnStatsQuery, sessionID, messageID))
}

func (t *tx) HasSpans(sessionID string) (bool, error) {
	_, ok, err := nano(t.prep(`SELECT 1 FROM span_refs WHERE session_id = ? AND dialect = '`+store.DialectSDK+`' LIMIT 1`, sessionID))
	return ok, err
}

func (t *tx) PutTrace(traceID, sessionID string) error {
	return exec(t.prep(`INSERT INTO session_traces(trace_id, session_id) VALUES (?,?) ON CONFLICT DO NOTHING`, traceID, sessionID))
}

func (t *tx) PruneTrace(traceID, sessionID string) error {
	return exec(t.prep(`DELETE FROM session_traces WHERE trace_id = ?1 AND session_id = ?2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = ?2 AND trace_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_session WHERE session_id = ?2 AND trace_id = ?1)`,
		traceID, sessionID))
}

func (t *tx) Decision(id string) (*store.Decision, error) {
	return decisionTable.get(t.conn, id)
}

func (t *tx) PutDecision(d *store.Decision, insert bool) (bool, error) {
	return decisionTable.put(t.conn, d, insert)
}

// PutBlob keeps the better of two bodies: an exact one, else the longer, else
// the greater.
func (t *tx) PutBlob(b *store.Blob) (bool, error) {
	table := blobTables[b.Kind]
	if table == nil {
		return false, fmt.Errorf("unknown kind of blob %s", b.Kind)
	}
	err := exec(t.prep(table.insert+` ON CONFLICT(digest) DO UPDATE SET body = excluded.body, exact = excluded.exact
 WHERE (excluded.exact, length(excluded.body), excluded.body) > (exact, length(body), body)`, b.Digest, b.Body, b.Exact))
	return t.conn.Changes() > 0 && err == nil, err
}
