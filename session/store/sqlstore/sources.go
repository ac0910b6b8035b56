package sqlstore

import (
	"context"

	"github.com/agenttrace/agenttrace/session/store"
)

// RecordSources implements [store.ImportSources].
func (w *Writer) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	return w.write(ctx, func(t Tx) error { return store.RecordSources(t, sources...) })
}

// ImportSources implements [store.ImportSources].
func (r *Reader) ImportSources(ctx context.Context, prefix string) ([]store.ImportSource, error) {
	return get(ctx, r, func(conn Conn) ([]store.ImportSource, error) {
		const below = ` WHERE path >= ?1 AND substr(path, 1, length(?1)) = ?1 ORDER BY path`
		found, err := rowsOf(conn, store.SourceTable,
			`SELECT `+store.SourceTable.Prefixed("", "state")+` FROM import_sources`+below, prefix)
		if err != nil {
			return nil, err
		}
		at := make(map[string]*store.ImportSource, len(found))
		for i := range found {
			at[found[i].Path] = &found[i]
		}
		return found, sourceSessions(conn, below, prefix, func(path string) *store.ImportSource { return at[path] })
	})
}

// ImportSource implements [store.ImportSources].
func (r *Reader) ImportSource(ctx context.Context, path string) (store.ImportSource, error) {
	return get(ctx, r, func(conn Conn) (store.ImportSource, error) {
		found, err := only(conn, store.SourceTable, "source", store.SourceTable.ByKey, path)
		if err == nil {
			err = sourceSessions(conn, ` WHERE path = ?1 ORDER BY path`, path,
				func(string) *store.ImportSource { return &found })
		}
		return found, err
	})
}

// sourceSessions reads which sessions the sources are of that where selects by an argument. source returns the one
// with a path, or nil.
func sourceSessions(conn Conn, where, arg string, source func(path string) *store.ImportSource) error {
	return conn.Query(`SELECT path, session_id,
 CASE WHEN EXISTS (SELECT 1 FROM chat_sessions WHERE id = session_id) THEN 1 ELSE 0 END
 FROM import_source_sessions`+where+`, session_id`, func(row store.Row) error {
		s, id := source(row.ColumnText(0)), row.ColumnText(1)
		if s == nil {
			return nil
		}
		s.Sessions = append(s.Sessions, id)
		if !row.ColumnBool(2) {
			s.Deleted = append(s.Deleted, id)
		}
		return nil
	}, arg)
}
