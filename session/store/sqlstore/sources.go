package sqlstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/agenttrace/agenttrace/session/store"
)

// RecordSources implements [store.ImportSources].
func (w *Writer) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	return w.write(ctx, func(t Tx) error { return store.RecordSources(t, sources...) })
}

// ImportSources implements [store.ImportSources].
func (r *Reader) ImportSources(ctx context.Context, prefix string) iter.Seq2[store.ImportSource, error] {
	return func(yield func(store.ImportSource, error) bool) {
		found, err := get(ctx, r, func(conn Conn) ([]store.ImportSource, error) {
			const below = ` WHERE path >= ?1 AND substr(path, 1, length(?1)) = ?1 ORDER BY path`
			found, err := rowsOf(conn, SourceTable,
				`SELECT `+SourceTable.Prefixed("", "state")+` FROM import_sources`+below, prefix)
			if err != nil {
				return nil, err
			}
			at := make(map[string]*store.ImportSource, len(found))
			for i := range found {
				at[found[i].Path] = &found[i]
			}
			return found, conn.Query(`SELECT path, session_id FROM import_source_sessions`+below+`, session_id`,
				func(row Row) error {
					if s := at[row.ColumnText(0)]; s != nil {
						s.Sessions = append(s.Sessions, row.ColumnText(1))
					}
					return nil
				}, prefix)
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
func (r *Reader) ImportSource(ctx context.Context, path string) (store.ImportSource, error) {
	return get(ctx, r, func(conn Conn) (store.ImportSource, error) {
		found, err := rowsOf(conn, SourceTable, SourceTable.ByKey, path)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("source %s: %w", path, store.ErrNotFound)
		}
		if err != nil {
			return store.ImportSource{}, err
		}
		found[0].Sessions, err = texts(conn,
			`SELECT session_id FROM import_source_sessions WHERE path = ? ORDER BY session_id`, path)
		return found[0], err
	})
}
