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
		var f families
		if err := f.read(conn); err != nil {
			return nil, err
		}
		stale, err := rowsOf(conn, store.SessionTable, `SELECT `+conn.Dialect().SessionColumns+` FROM chat_sessions s
 WHERE s.updated_at < ? ORDER BY s.updated_at, s.id`, before.UnixMilli())
		return slices.DeleteFunc(stale, func(s session.Session) bool {
			head := f.members[f.head(s.ID)]
			return head.familyUpdated >= before.UnixMilli() || archived && !head.archived
		}), err
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", r.Name(), err)
	}
	return stale, nil
}

// families are sessions with their forks and the sessions of their sub-agents.
type families struct{ members map[string]*member }

type member struct {
	parent   string
	archived bool
	// familyUpdated is when any session of the family was last updated, if this one is its head.
	familyUpdated int64
}

func (f *families) read(conn Conn) error {
	f.members = map[string]*member{}
	updated := map[string]int64{}
	err := conn.Query(`SELECT id, coalesce(parent_id, ''), updated_at, archived_at IS NOT NULL FROM chat_sessions`,
		func(row store.Row) error {
			id := row.ColumnText(0)
			f.members[id] = &member{parent: row.ColumnText(1), archived: row.ColumnBool(3)}
			updated[id] = row.ColumnInt64(2)
			return nil
		})
	for id, at := range updated {
		head := f.members[f.head(id)]
		head.familyUpdated = max(head.familyUpdated, at)
	}
	return err
}

// head is the session that the family of a session begins with. Parents that are gone, and circles, end the way up.
func (f *families) head(id string) string {
	at := id
	for range f.members {
		up := f.members[at].parent
		if f.members[up] == nil {
			return at
		}
		at = up
	}
	return id
}
