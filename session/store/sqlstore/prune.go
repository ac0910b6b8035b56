package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Stale implements [store.Reader].
func (r *Reader) Stale(ctx context.Context, before time.Time, archived bool) ([]session.Session, error) {
	stale, err := get(ctx, r, func(conn Conn) ([]session.Session, error) {
		var all []session.Session
		archives := make(map[string]bool)
		err := conn.Query(`SELECT id, parent_id, updated_at, archived_at IS NOT NULL FROM chat_sessions`,
			func(row store.Row) error {
				s := session.Session{ID: row.ColumnText(0), ParentID: store.TextPtr(row, 1), UpdatedAt: row.ColumnInt64(2)}
				all, archives[s.ID] = append(all, s), row.ColumnBool(3)
				return nil
			})
		if err != nil {
			return nil, err
		}
		heads, kept := store.FamilyHeads(all), make(map[string]bool)
		for _, s := range all {
			if head := heads[s.ID]; s.UpdatedAt >= before.UnixMilli() || archived && !archives[head] {
				kept[head] = true
			}
		}
		stale, err := rowsOf(conn, store.SessionTable, `SELECT `+conn.Dialect().SessionColumns+` FROM chat_sessions s
 WHERE s.updated_at < ? ORDER BY s.updated_at, s.id`, before.UnixMilli())
		return slices.DeleteFunc(stale, func(s session.Session) bool { return kept[heads[s.ID]] }), err
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", r.Name(), err)
	}
	return stale, nil
}
