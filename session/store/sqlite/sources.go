package sqlite

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

var _ store.ImportSources = (*Store)(nil)

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

// RecordSources implements [store.ImportSources].
func (s *Store) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	return s.Transact(ctx, func(t store.Tx) error { return store.RecordSources(t, sources...) })
}

// ImportSources implements [store.ImportSources].
func (r *Reader) ImportSources(ctx context.Context, prefix string) iter.Seq2[store.ImportSource, error] {
	return func(yield func(store.ImportSource, error) bool) {
		var found []store.ImportSource
		err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
			columns := make([]string, 0, len(sqlstore.SourceTable.Columns))
			for _, name := range sqlstore.SourceTable.Columns.Names() {
				if name == "state" {
					name = "NULL"
				}
				columns = append(columns, name)
			}
			found, err = rows(sqlstore.SourceTable, prep(conn, `SELECT `+strings.Join(columns, ", ")+` FROM import_sources
 WHERE path >= ?1 AND substr(path, 1, length(?1)) = ?1 ORDER BY path`, prefix))
			if err != nil {
				return err
			}
			at := make(map[string]*store.ImportSource, len(found))
			for i := range found {
				at[found[i].Path] = &found[i]
			}
			stmt := prep(conn, `SELECT path, session_id FROM import_source_sessions
 WHERE path >= ?1 AND substr(path, 1, length(?1)) = ?1 ORDER BY path, session_id`, prefix)
			return each(stmt, func() error {
				if s := at[stmt.ColumnText(0)]; s != nil {
					s.Sessions = append(s.Sessions, stmt.ColumnText(1))
				}
				return nil
			})
		})
		if err != nil {
			yield(store.ImportSource{}, err)
			return
		}
		for i := range found {
			if !yield(found[i], nil) {
				return
			}
		}
	}
}

// ImportSource implements [store.ImportSources].
func (r *Reader) ImportSource(ctx context.Context, path string) (found store.ImportSource, err error) {
	err = r.read(ctx, func(conn *sqlite.Conn) error {
		s, err := get(conn, sqlstore.SourceTable, path)
		if err != nil {
			return err
		}
		if s == nil {
			return fmt.Errorf("source %s: %w", path, store.ErrNotFound)
		}
		found = *s
		found.Sessions, err = texts(prep(conn, `SELECT session_id FROM import_source_sessions WHERE path = ? ORDER BY session_id`,
			path))
		return err
	})
	return found, err
}
