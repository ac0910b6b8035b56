package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// Stale returns the sessions that were last seen before a time, oldest first.
// A session, its forks and its sub-agents' are stale together, when all of them
// are: none of them loses what it came from. With archived those families are meant
// of which the oldest is archived.
func (r *Reader) Stale(ctx context.Context, before time.Time, archived bool) ([]session.Session, error) {
	type family struct {
		updated  int64
		archived bool
	}
	var stale []session.Session
	err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
		parents := map[string]string{}
		stmt := conn.Prep(`SELECT id, coalesce(parent_id, '') FROM chat_sessions`)
		if err := each(stmt, func() error {
			parents[stmt.ColumnText(0)] = stmt.ColumnText(1)
			return nil
		}); err != nil {
			return err
		}
		// head is the session that a family begins with. Parents that are gone, and
		// circles, end the way up.
		head := func(id string) string {
			at := id
			for range len(parents) {
				up, known := parents[parents[at]]
				if !known {
					return at
				}
				if at = parents[at]; up == "" {
					return at
				}
			}
			return id
		}
		families := map[string]*family{}
		stmt = conn.Prep(`SELECT id, updated_at, archived_at IS NOT NULL FROM chat_sessions`)
		if err := each(stmt, func() error {
			id := stmt.ColumnText(0)
			h := head(id)
			if families[h] == nil {
				families[h] = new(family)
			}
			f := families[h]
			f.updated = max(f.updated, stmt.ColumnInt64(1))
			if id == h {
				f.archived = stmt.ColumnBool(2)
			}
			return nil
		}); err != nil {
			return err
		}
		stale, err = rows(sqlstore.SessionTable, prep(conn, `SELECT `+r.sessionColumns+` FROM chat_sessions s WHERE s.updated_at < ?`,
			before.UnixMilli()))
		stale = slices.DeleteFunc(stale, func(s session.Session) bool {
			f := families[head(s.ID)]
			return f.updated >= before.UnixMilli() || archived && !f.archived
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", r.path, err)
	}
	slices.SortFunc(stale, func(a, b session.Session) int {
		return cmp.Or(cmp.Compare(a.UpdatedAt, b.UpdatedAt), cmp.Compare(a.ID, b.ID))
	})
	return stale, nil
}
