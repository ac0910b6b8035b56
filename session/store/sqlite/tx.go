package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// tx implements [store.Tx] on one connection. The connection caches statements
// by their text, so each query is a constant at its one place of use.
type tx struct {
	conn *sqlite.Conn
	// now is the time that the outbox is stamped with, Unix milliseconds; 0 when
	// there is no outbox.
	now int64
}

var _ store.Tx = (*tx)(nil)

// exec runs a statement that returns no rows.
func exec(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	if err != nil {
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint || sqlite.ErrCode(err).ToPrimary() == sqlite.ResultTooBig {
			return fmt.Errorf("%w: %w", store.ErrRefused, err)
		}
	}
	return err
}

// each runs a query and calls fn for each row.
func each(stmt *sqlite.Stmt, fn func() error) error {
	for {
		row, err := stmt.Step()
		if err == nil && row {
			err = fn()
		}
		if err != nil || !row {
			if resetErr := stmt.Reset(); err == nil {
				err = resetErr
			}
			return err
		}
	}
}

// one returns the row of a query that has one at most, all every row.
func one[T any](stmt *sqlite.Stmt, scan func(*sqlite.Stmt) T) (*T, error) {
	var found *T
	err := each(stmt, func() error {
		row := scan(stmt)
		found = &row
		return nil
	})
	return found, err
}

func all[T any](stmt *sqlite.Stmt, scan func(*sqlite.Stmt) T) ([]T, error) {
	var rows []T
	err := each(stmt, func() error {
		rows = append(rows, scan(stmt))
		return nil
	})
	return rows, err
}

func bindPtr(stmt *sqlite.Stmt, param int, s *string) {
	if s == nil {
		stmt.BindNull(param)
		return
	}
	stmt.BindText(param, *s)
}

func bindText(stmt *sqlite.Stmt, param int, s string) {
	if s == "" {
		stmt.BindNull(param)
		return
	}
	stmt.BindText(param, s)
}

func bindInt(stmt *sqlite.Stmt, param int, n *int64) {
	if n == nil {
		stmt.BindNull(param)
		return
	}
	stmt.BindInt64(param, *n)
}

func textPtr(stmt *sqlite.Stmt, col int) *string {
	if stmt.ColumnIsNull(col) {
		return nil
	}
	s := stmt.ColumnText(col)
	return &s
}

func intPtr(stmt *sqlite.Stmt, col int) *int64 {
	if stmt.ColumnIsNull(col) {
		return nil
	}
	n := stmt.ColumnInt64(col)
	return &n
}

const sessionColumns = `s.id, s.title, s.agent, s.workspace_id, s.workspace_root, s.model_json, s.mode, s.parent_id, s.parent_message_id,
 s.permissions_json, s.metadata_json, s.prompt_tokens, s.completion_tokens, s.reasoning_tokens, s.cache_read, s.cache_write,
 s.total_tokens, s.cost_usd, s.created_at, s.updated_at, s.archived_at`

const sessionColumnCount = 21

func scanSession(stmt *sqlite.Stmt) session.Session {
	return session.Session{
		ID: stmt.ColumnText(0), Title: stmt.ColumnText(1), Agent: stmt.ColumnText(2),
		WorkspaceID: textPtr(stmt, 3), WorkspaceRoot: textPtr(stmt, 4), ModelJSON: textPtr(stmt, 5), Mode: textPtr(stmt, 6),
		ParentID: textPtr(stmt, 7), ParentMessageID: textPtr(stmt, 8),
		PermissionsJSON: stmt.ColumnText(9), MetadataJSON: stmt.ColumnText(10),
		PromptTokens: stmt.ColumnInt64(11), CompletionTokens: stmt.ColumnInt64(12), ReasoningTokens: stmt.ColumnInt64(13),
		CacheRead: stmt.ColumnInt64(14), CacheWrite: stmt.ColumnInt64(15), TotalTokens: stmt.ColumnInt64(16), CostUSD: stmt.ColumnFloat(17),
		CreatedAt: stmt.ColumnInt64(18), UpdatedAt: stmt.ColumnInt64(19), ArchivedAt: intPtr(stmt, 20),
	}
}

func (t *tx) Session(id string) (*store.SessionRow, error) {
	stmt := t.conn.Prep(`SELECT ` + sessionColumns + `, st.state_json
 FROM chat_sessions s LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ?`)
	stmt.BindText(1, id)
	var row *store.SessionRow
	err := each(stmt, func() error {
		row = &store.SessionRow{Session: scanSession(stmt)}
		if state := stmt.ColumnText(sessionColumnCount); state != "" {
			if err := json.Unmarshal([]byte(state), &row.State); err != nil {
				return fmt.Errorf("read state of session %s: %w", id, err)
			}
		}
		return nil
	})
	return row, err
}

func (t *tx) PutSession(r *store.SessionRow, insert bool) error {
	stmt := t.conn.Prep(`INSERT INTO chat_sessions(title, agent, workspace_id, workspace_root, model_json, mode, parent_id, parent_message_id,
 permissions_json, metadata_json, prompt_tokens, completion_tokens, reasoning_tokens, cache_read, cache_write, total_tokens, cost_usd,
 created_at, updated_at, archived_at, id) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`)
	if !insert {
		stmt = t.conn.Prep(`UPDATE chat_sessions SET title=?, agent=?, workspace_id=?, workspace_root=?, model_json=?, mode=?, parent_id=?,
 parent_message_id=?, permissions_json=?, metadata_json=?, prompt_tokens=?, completion_tokens=?, reasoning_tokens=?, cache_read=?,
 cache_write=?, total_tokens=?, cost_usd=?, created_at=?, updated_at=?, archived_at=? WHERE id=?`)
	}
	stmt.BindText(1, r.Title)
	stmt.BindText(2, r.Agent)
	bindPtr(stmt, 3, r.WorkspaceID)
	bindPtr(stmt, 4, r.WorkspaceRoot)
	bindPtr(stmt, 5, r.ModelJSON)
	bindPtr(stmt, 6, r.Mode)
	bindPtr(stmt, 7, r.ParentID)
	bindPtr(stmt, 8, r.ParentMessageID)
	stmt.BindText(9, r.PermissionsJSON)
	stmt.BindText(10, r.MetadataJSON)
	for i, n := range []int64{r.PromptTokens, r.CompletionTokens, r.ReasoningTokens, r.CacheRead, r.CacheWrite, r.TotalTokens} {
		stmt.BindInt64(11+i, n)
	}
	stmt.BindFloat(17, r.CostUSD)
	stmt.BindInt64(18, r.CreatedAt)
	stmt.BindInt64(19, r.UpdatedAt)
	bindInt(stmt, 20, r.ArchivedAt)
	stmt.BindText(21, r.ID)
	if err := exec(stmt); err != nil {
		return err
	}
	stmt = t.conn.Prep(`INSERT INTO session_state(session_id, state_json, forked_from) VALUES (?, ?, ?)
 ON CONFLICT(session_id) DO UPDATE SET state_json = excluded.state_json, forked_from = excluded.forked_from`)
	stmt.BindText(1, r.ID)
	stmt.BindText(2, string(r.State.Encode()))
	if stmt.BindNull(3); r.State.Fork != nil {
		stmt.BindText(3, r.State.Fork.From)
	}
	return exec(stmt)
}

func (t *tx) Forks(parentID string) ([]store.ForkRef, error) {
	stmt := t.conn.Prep(`SELECT session_id, state_json FROM session_state WHERE forked_from = ? ORDER BY session_id`)
	stmt.BindText(1, parentID)
	var refs []store.ForkRef
	err := each(stmt, func() error {
		ref := store.ForkRef{Session: stmt.ColumnText(0)}
		var state store.State
		if err := json.Unmarshal([]byte(stmt.ColumnText(1)), &state); err != nil {
			return fmt.Errorf("read state of session %s: %w", ref.Session, err)
		}
		if state.Fork != nil {
			ref.Message = state.Fork.Message
		}
		refs = append(refs, ref)
		return nil
	})
	return refs, err
}

const messageColumns = `id, session_id, role, metadata_json, hidden_at, created_at, updated_at`

func scanMessage(stmt *sqlite.Stmt) session.Message {
	return session.Message{
		ID: stmt.ColumnText(0), SessionID: stmt.ColumnText(1), Role: stmt.ColumnText(2), MetadataJSON: stmt.ColumnText(3),
		HiddenAt: intPtr(stmt, 4), CreatedAt: stmt.ColumnInt64(5), UpdatedAt: stmt.ColumnInt64(6),
	}
}

func (t *tx) Message(id string) (*session.Message, error) {
	stmt := t.conn.Prep(`SELECT ` + messageColumns + ` FROM chat_messages WHERE id = ?`)
	stmt.BindText(1, id)
	return one(stmt, scanMessage)
}

func (t *tx) PutMessage(m *session.Message, insert bool) error {
	stmt := t.conn.Prep(`INSERT INTO chat_messages(session_id, role, metadata_json, hidden_at, created_at, updated_at, id) VALUES (?,?,?,?,?,?,?)`)
	if !insert {
		stmt = t.conn.Prep(`UPDATE chat_messages SET session_id=?, role=?, metadata_json=?, hidden_at=?, created_at=?, updated_at=? WHERE id=?`)
	}
	stmt.BindText(1, m.SessionID)
	stmt.BindText(2, m.Role)
	stmt.BindText(3, m.MetadataJSON)
	bindInt(stmt, 4, m.HiddenAt)
	stmt.BindInt64(5, m.CreatedAt)
	stmt.BindInt64(6, m.UpdatedAt)
	stmt.BindText(7, m.ID)
	return exec(stmt)
}

func (t *tx) DeleteMessage(id string) error {
	stmt := t.conn.Prep(`DELETE FROM chat_messages WHERE id = ?`)
	stmt.BindText(1, id)
	return exec(stmt)
}

func (t *tx) MessagesFrom(sessionID string, from store.Position) ([]session.Message, error) {
	stmt := t.conn.Prep(`SELECT ` + messageColumns + ` FROM chat_messages
 WHERE session_id = ?1 AND created_at >= ?2 AND (created_at > ?2 OR id >= ?3) ORDER BY created_at, id`)
	stmt.BindText(1, sessionID)
	stmt.BindInt64(2, from.At)
	stmt.BindText(3, from.ID)
	return all(stmt, scanMessage)
}

const partColumns = `id, message_id, session_id, "index", type, data_json, tool_call_id, tool_state, continuation_run_id, created_at, updated_at`

func scanPart(stmt *sqlite.Stmt) session.Part {
	return session.Part{
		ID: stmt.ColumnText(0), MessageID: stmt.ColumnText(1), SessionID: stmt.ColumnText(2), Index: stmt.ColumnInt64(3),
		Type: stmt.ColumnText(4), DataJSON: stmt.ColumnText(5), ToolCallID: textPtr(stmt, 6), ToolState: textPtr(stmt, 7),
		ContinuationRunID: textPtr(stmt, 8), CreatedAt: stmt.ColumnInt64(9), UpdatedAt: stmt.ColumnInt64(10),
	}
}

func (t *tx) InsertPart(p *session.Part) (bool, error) {
	stmt := t.conn.Prep(`INSERT INTO chat_parts(` + partColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`)
	stmt.BindText(1, p.ID)
	stmt.BindText(2, p.MessageID)
	stmt.BindText(3, p.SessionID)
	stmt.BindInt64(4, p.Index)
	stmt.BindText(5, p.Type)
	stmt.BindText(6, p.DataJSON)
	bindPtr(stmt, 7, p.ToolCallID)
	bindPtr(stmt, 8, p.ToolState)
	bindPtr(stmt, 9, p.ContinuationRunID)
	stmt.BindInt64(10, p.CreatedAt)
	stmt.BindInt64(11, p.UpdatedAt)
	if err := exec(stmt); err != nil {
		return false, err
	}
	return t.conn.Changes() > 0, nil
}

func (t *tx) parts(stmt *sqlite.Stmt, arg string) ([]session.Part, error) {
	stmt.BindText(1, arg)
	return all(stmt, scanPart)
}

func (t *tx) Part(id string) (*session.Part, error) {
	stmt := t.conn.Prep(`SELECT ` + partColumns + ` FROM chat_parts WHERE id = ?`)
	stmt.BindText(1, id)
	return one(stmt, scanPart)
}

func (t *tx) Parts(messageID string) ([]session.Part, error) {
	return t.parts(t.conn.Prep(`SELECT `+partColumns+` FROM chat_parts WHERE message_id = ? ORDER BY "index"`), messageID)
}

func (t *tx) PartsFrom(messageID string, index int64) ([]session.Part, error) {
	stmt := t.conn.Prep(`SELECT ` + partColumns + ` FROM chat_parts WHERE message_id = ?1 AND "index" >= ?2 ORDER BY "index"`)
	stmt.BindInt64(2, index)
	return t.parts(stmt, messageID)
}

func (t *tx) Places(messageID string) ([]store.Place, error) {
	stmt := t.conn.Prep(`SELECT id, "index" FROM chat_parts WHERE message_id = ?`)
	stmt.BindText(1, messageID)
	var all []store.Place
	err := each(stmt, func() error {
		all = append(all, store.Place{ID: stmt.ColumnText(0), Index: stmt.ColumnInt64(1)})
		return nil
	})
	return all, err
}

func (t *tx) Extent(messageID string) (count, next int64, err error) {
	stmt := t.conn.Prep(`SELECT count(*), coalesce(max("index") + 1, 0) FROM chat_parts WHERE message_id = ?`)
	stmt.BindText(1, messageID)
	err = each(stmt, func() error {
		count, next = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
		return nil
	})
	return count, next, err
}

func (t *tx) Compactions(sessionID, messageID string) ([]session.Part, error) {
	const query = `SELECT ` + partColumns + ` FROM chat_parts INDEXED BY idx_chat_parts_compaction
 WHERE session_id = ? AND type = 'data-compaction'`
	if messageID == "" {
		return t.parts(t.conn.Prep(query), sessionID)
	}
	stmt := t.conn.Prep(query + ` AND message_id = ?`)
	stmt.BindText(2, messageID)
	return t.parts(stmt, sessionID)
}

func (t *tx) PutPart(p *session.Part) error {
	stmt := t.conn.Prep(`UPDATE chat_parts SET type=?, data_json=?, tool_call_id=?, tool_state=?, continuation_run_id=?, created_at=?, updated_at=? WHERE id=?`)
	stmt.BindText(1, p.Type)
	stmt.BindText(2, p.DataJSON)
	bindPtr(stmt, 3, p.ToolCallID)
	bindPtr(stmt, 4, p.ToolState)
	bindPtr(stmt, 5, p.ContinuationRunID)
	stmt.BindInt64(6, p.CreatedAt)
	stmt.BindInt64(7, p.UpdatedAt)
	stmt.BindText(8, p.ID)
	return exec(stmt)
}

func (t *tx) RequestedIndexes(messageID string) (map[string]int64, error) {
	stmt := t.conn.Prep(`SELECT part_id, requested_index FROM requested_indexes WHERE message_id = ?`)
	stmt.BindText(1, messageID)
	var requestedIndexes map[string]int64
	err := each(stmt, func() error {
		if requestedIndexes == nil {
			requestedIndexes = make(map[string]int64)
		}
		requestedIndexes[stmt.ColumnText(0)] = stmt.ColumnInt64(1)
		return nil
	})
	return requestedIndexes, err
}

func (t *tx) PutRequestedIndex(messageID, partID string, requested int64) error {
	stmt := t.conn.Prep(`INSERT INTO requested_indexes(message_id, part_id, requested_index) VALUES (?,?,?)
 ON CONFLICT(message_id, part_id) DO UPDATE SET requested_index = excluded.requested_index`)
	stmt.BindText(1, messageID)
	stmt.BindText(2, partID)
	stmt.BindInt64(3, requested)
	return exec(stmt)
}

// Move moves the parts out of the way first, below zero, because the index on
// (message_id, "index") is checked row by row.
func (t *tx) Move(messageID string, index map[string]int64) error {
	for _, away := range []bool{true, false} {
		for id, i := range index {
			if away {
				i = -1 - i
			}
			stmt := t.conn.Prep(`UPDATE chat_parts SET "index" = ? WHERE id = ?`)
			stmt.BindInt64(1, i)
			stmt.BindText(2, id)
			if err := exec(stmt); err != nil {
				return err
			}
		}
	}
	return nil
}

const linkColumns = `session_id, trace_id, span_id, parent_span_id, message_id, part_id, kind, dialect, start_nano, end_nano, error, facts_json`

func bindLink(stmt *sqlite.Stmt, l *store.SpanRef) {
	stmt.BindText(1, l.SessionID)
	stmt.BindText(2, l.TraceID)
	stmt.BindText(3, l.SpanID)
	bindText(stmt, 4, l.ParentSpanID)
	bindText(stmt, 5, l.MessageID)
	bindText(stmt, 6, l.PartID)
	stmt.BindText(7, l.Kind)
	stmt.BindText(8, l.Dialect)
	stmt.BindInt64(9, l.StartNano)
	stmt.BindInt64(10, l.EndNano)
	stmt.BindBool(11, l.Error)
	if facts := l.EncodeFacts(); facts != nil {
		stmt.BindText(12, string(facts))
	} else {
		stmt.BindNull(12)
	}
}

func scanLink(stmt *sqlite.Stmt) (store.SpanRef, error) {
	l := store.SpanRef{
		SessionID: stmt.ColumnText(0), TraceID: stmt.ColumnText(1), SpanID: stmt.ColumnText(2), ParentSpanID: stmt.ColumnText(3),
		MessageID: stmt.ColumnText(4), PartID: stmt.ColumnText(5), Kind: stmt.ColumnText(6), Dialect: stmt.ColumnText(7),
		StartNano: stmt.ColumnInt64(8), EndNano: stmt.ColumnInt64(9), Error: stmt.ColumnBool(10),
	}
	if !stmt.ColumnIsNull(11) {
		l.TurnStats = new(store.TurnStats)
		if err := json.Unmarshal([]byte(stmt.ColumnText(11)), l.TurnStats); err != nil {
			return l, fmt.Errorf("read facts of span %s: %w", l.SpanID, err)
		}
	}
	return l, nil
}

func (t *tx) InsertLink(l *store.SpanRef) (bool, error) {
	stmt := t.conn.Prep(`INSERT INTO span_refs(` + linkColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`)
	bindLink(stmt, l)
	if err := exec(stmt); err != nil {
		return false, err
	}
	return t.conn.Changes() > 0, nil
}

func (t *tx) links(stmt *sqlite.Stmt) ([]store.SpanRef, error) {
	var all []store.SpanRef
	err := each(stmt, func() error {
		l, err := scanLink(stmt)
		all = append(all, l)
		return err
	})
	return all, err
}

func (t *tx) SpanRef(sessionID, traceID, spanID string) (*store.SpanRef, error) {
	stmt := t.conn.Prep(`SELECT ` + linkColumns + ` FROM span_refs WHERE session_id = ? AND trace_id = ? AND span_id = ?`)
	stmt.BindText(1, sessionID)
	stmt.BindText(2, traceID)
	stmt.BindText(3, spanID)
	all, err := t.links(stmt)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (t *tx) PutLink(l *store.SpanRef) error {
	stmt := t.conn.Prep(`INSERT INTO span_refs(` + linkColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(session_id, trace_id, span_id) DO UPDATE SET
 parent_span_id=excluded.parent_span_id, message_id=excluded.message_id, part_id=excluded.part_id, kind=excluded.kind, dialect=excluded.dialect,
 start_nano=excluded.start_nano, end_nano=excluded.end_nano, error=excluded.error, facts_json=excluded.facts_json`)
	bindLink(stmt, l)
	return exec(stmt)
}

func (t *tx) PutTrace(traceID, sessionID string) error {
	stmt := t.conn.Prep(`INSERT INTO session_traces(trace_id, session_id) VALUES (?,?) ON CONFLICT DO NOTHING`)
	stmt.BindText(1, traceID)
	stmt.BindText(2, sessionID)
	return exec(stmt)
}

func (t *tx) TurnStats(sessionID, messageID string) ([]store.SpanRef, error) {
	stmt := t.conn.Prep(`SELECT ` + linkColumns + ` FROM span_refs INDEXED BY idx_span_refs_facts
 WHERE message_id = ?2 AND facts_json IS NOT NULL AND session_id = ?1`)
	stmt.BindText(1, sessionID)
	stmt.BindText(2, messageID)
	return t.links(stmt)
}

const decisionColumns = `session_id, message_id, part_id, tool_call_id, tool_id, pattern, action, source, outcome, reply, reason, waited_ms, decided_at, trace_id, span_id, id`

func bindDecision(stmt *sqlite.Stmt, d *store.Decision) {
	stmt.BindText(1, d.SessionID)
	for i, s := range []string{d.MessageID, d.PartID, d.ToolCallID} {
		bindText(stmt, 2+i, s)
	}
	stmt.BindText(5, d.ToolID)
	bindText(stmt, 6, d.Pattern)
	stmt.BindText(7, d.Action)
	for i, s := range []string{d.Source, d.Outcome, d.Reply, d.Reason} {
		bindText(stmt, 8+i, s)
	}
	bindInt(stmt, 12, d.WaitedMS)
	stmt.BindInt64(13, d.DecidedAt)
	bindText(stmt, 14, d.TraceID)
	bindText(stmt, 15, d.SpanID)
	stmt.BindText(16, d.ID)
}

func scanDecision(stmt *sqlite.Stmt) store.Decision {
	return store.Decision{
		SessionID: stmt.ColumnText(0), MessageID: stmt.ColumnText(1), PartID: stmt.ColumnText(2), ToolCallID: stmt.ColumnText(3),
		ToolID: stmt.ColumnText(4), Pattern: stmt.ColumnText(5), Action: stmt.ColumnText(6), Source: stmt.ColumnText(7),
		Outcome: stmt.ColumnText(8), Reply: stmt.ColumnText(9), Reason: stmt.ColumnText(10), WaitedMS: intPtr(stmt, 11),
		DecidedAt: stmt.ColumnInt64(12), TraceID: stmt.ColumnText(13), SpanID: stmt.ColumnText(14), ID: stmt.ColumnText(15),
	}
}

func (t *tx) InsertDecision(d *store.Decision) (bool, error) {
	stmt := t.conn.Prep(`INSERT INTO permission_decisions(` + decisionColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`)
	bindDecision(stmt, d)
	if err := exec(stmt); err != nil {
		return false, err
	}
	return t.conn.Changes() > 0, nil
}

func (t *tx) Decision(id string) (*store.Decision, error) {
	stmt := t.conn.Prep(`SELECT ` + decisionColumns + ` FROM permission_decisions WHERE id = ?`)
	stmt.BindText(1, id)
	return one(stmt, scanDecision)
}

func (t *tx) PutDecision(d *store.Decision) error {
	stmt := t.conn.Prep(`UPDATE permission_decisions SET session_id=?, message_id=?, part_id=?, tool_call_id=?, tool_id=?, pattern=?, action=?,
 source=?, outcome=?, reply=?, reason=?, waited_ms=?, decided_at=?, trace_id=?, span_id=? WHERE id=?`)
	bindDecision(stmt, d)
	return exec(stmt)
}

// PutBlob keeps the better of two bodies: an exact one, else the longer, else
// the greater.
func (t *tx) PutBlob(b *store.Blob) (bool, error) {
	var stmt *sqlite.Stmt
	const onConflict = ` ON CONFLICT(digest) DO UPDATE SET body = excluded.body, exact = excluded.exact
 WHERE (excluded.exact, length(excluded.body), excluded.body) > (exact, length(body), body)`
	switch b.Kind {
	case store.BlobSystemPrompt:
		stmt = t.conn.Prep(`INSERT INTO system_prompts(digest, body, exact) VALUES (?,?,?)` + onConflict)
	case store.BlobToolCatalog:
		stmt = t.conn.Prep(`INSERT INTO tool_catalogs(digest, body, exact) VALUES (?,?,?)` + onConflict)
	default:
		return false, errors.New("unknown kind of blob " + string(b.Kind))
	}
	stmt.BindText(1, b.Digest)
	stmt.BindText(2, b.Body)
	stmt.BindBool(3, b.Exact)
	if err := exec(stmt); err != nil {
		return false, err
	}
	return t.conn.Changes() > 0, nil
}

func (t *tx) Touch(sessionID string) error {
	if t.now == 0 {
		return nil
	}
	stmt := t.conn.Prep(`INSERT INTO export_outbox(session_id, touched_at) VALUES (?,?)
 ON CONFLICT(session_id) DO UPDATE SET touched_at = excluded.touched_at`)
	stmt.BindText(1, sessionID)
	stmt.BindInt64(2, t.now)
	return exec(stmt)
}
