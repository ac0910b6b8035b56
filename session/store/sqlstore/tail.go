package sqlstore

import (
	"context"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// SessionsSince implements [store.Reader].
func (r *Reader) SessionsSince(ctx context.Context, at int64) ([]session.Session, error) {
	all, err := get(ctx, r, func(conn Conn) ([]session.Session, error) {
		return rowsOf(conn, SessionTable, `SELECT `+conn.Dialect().SessionColumns+` FROM chat_sessions s
 WHERE s.updated_at >= ? ORDER BY s.updated_at, s.id`, at)
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", r.Name(), err)
	}
	return all, nil
}

// Tail implements [store.Reader].
func (r *Reader) Tail(ctx context.Context, id string, from store.Position) (t *session.Transcript,
	decisions []store.Decision, err error) {
	err = r.source.Read(ctx, func(conn Conn) (err error) {
		if t, err = transcript(conn, id, from, ""); err != nil || conn.Dialect().Foreign {
			return err
		}
		decisions, err = rowsOf(conn, DecisionTable, `SELECT `+DecisionTable.List+` FROM permission_decisions
 WHERE session_id = ? AND decided_at >= ? ORDER BY decided_at, id`, id, from.At)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return t, decisions, nil
}

// TurnStart implements [store.Reader].
func (r *Reader) TurnStart(ctx context.Context, id string, n int) (store.Position, error) {
	return get(ctx, r, func(conn Conn) (store.Position, error) { return turnStart(conn, id, n) })
}

func turnStart(conn Conn, id string, n int) (p store.Position, err error) {
	contains := conn.Dialect().Contains
	_, err = first(conn, `SELECT created_at, id FROM chat_messages
 WHERE session_id = ? AND role = 'user' AND hidden_at IS NULL
 AND NOT `+contains("metadata_json", `"hidden_at"`)+` AND NOT `+contains("metadata_json", `"queued_at"`)+`
 ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?`, func(row Row) {
		p = store.Position{At: row.ColumnInt64(0), ID: row.ColumnText(1)}
	}, id, int64(max(n, 1)-1))
	return p, err
}

// LastTurn implements [store.Reader].
func (r *Reader) LastTurn(ctx context.Context, id string) (*session.Transcript, error) {
	return get(ctx, r, func(conn Conn) (*session.Transcript, error) {
		from, err := turnStart(conn, id, 1)
		if err != nil {
			return nil, err
		}
		return transcript(conn, id, from, `AND (p.type = 'data-compaction'
 OR coalesce(p.tool_state, '') NOT IN ('output-available', 'output-error', 'output-denied', '')
 OR p.tool_state IS NULL AND `+conn.Dialect().Contains("p.data_json", `"streaming"`)+`)`)
	})
}
