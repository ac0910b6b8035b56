package sqlite

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
)

// dialect is that of a file with the tables and columns of this version.
var dialect = sync.OnceValue(func() *store.Dialect {
	return &store.Dialect{
		SessionColumns: store.SessionTable().Prefixed("s."),
		PartColumns:    store.PartTable().Prefixed("p."),

		AnnotationColumns: store.AnnotationTable().List,
		SameSession:       func(_, _ string) string { return "" },
		NoSession: func(column string) string {
			return "NOT EXISTS (SELECT 1 FROM chat_sessions p WHERE p.id = " + column + ")"
		},
		Find:       "instr",
		MayContain: func(_, _ string) string { return "" }, // the rows are here
		JSON:       extract,
		JSONInt:    extract,
		Elements:   func(column, name string) string { return "json_each(" + column + ") AS " + name },
		Greatest:   "max",
		PutRequested: `INSERT INTO requested_indexes(message_id, part_id, requested_index)
 SELECT id, ?2, ?3 FROM chat_messages WHERE id = ?1
 ON CONFLICT (message_id, part_id) DO UPDATE SET requested_index = excluded.requested_index`,
		Opens:   "opens AND opens = 1", // the index has the first
		Figures: true, NewRows: newRows,
		SettleFigures: []string{
			`UPDATE session_stats SET data = x'', turns = NULL WHERE session_id IN (` + newRows + `) AND turns IS NOT NULL`,
			`INSERT OR REPLACE INTO stats_read_to
 SELECT * FROM (SELECT 'chat_sessions', rowid, id FROM chat_sessions ORDER BY rowid DESC LIMIT 1) UNION ALL
 SELECT * FROM (SELECT 'chat_messages', rowid, id FROM chat_messages ORDER BY rowid DESC LIMIT 1) UNION ALL
 SELECT * FROM (SELECT 'chat_parts', rowid, id FROM chat_parts ORDER BY rowid DESC LIMIT 1)`,
		},
		ClaimFigures: `INSERT OR IGNORE INTO session_stats(session_id, data) SELECT id, x'' FROM chat_sessions WHERE id = ?`,
		SpanTimes: `SELECT trace_id, source, start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations INDEXED BY idx_observations_below
  WHERE trace_id = ?1 AND iif(source = span_id, parent_span_id, span_id) = ?2 AND NOT opens
 ) FROM observations WHERE trace_id = ?1 AND source = ?2`,
	}
})

// newRows selects the sessions that were inserted since figures were settled, or with such messages or parts: after the
// row that was the last one then. If that has another number or is gone, all rows may be new.
const newRows = `SELECT session_id FROM chat_messages NOT INDEXED WHERE rowid > coalesce((
   SELECT last_row FROM stats_read_to JOIN chat_messages m ON m.rowid = last_row AND m.id = last_id
   WHERE source = 'chat_messages'), -1 << 63)
 UNION SELECT session_id FROM chat_parts NOT INDEXED WHERE rowid > coalesce((
   SELECT last_row FROM stats_read_to JOIN chat_parts p ON p.rowid = last_row AND p.id = last_id
   WHERE source = 'chat_parts'), -1 << 63)
 UNION SELECT id FROM chat_sessions NOT INDEXED WHERE rowid > coalesce((
   SELECT last_row FROM stats_read_to JOIN chat_sessions s ON s.rowid = last_row AND s.id = last_id
   WHERE source = 'chat_sessions'), -1 << 63)`

// extract is the value at a path in a column of JSON. Other programs may have written what is not JSON.
func extract(column string, path ...string) string {
	return "json_extract(iif(json_valid(" + column + "), " + column + ", '{}'), '$." + strings.Join(path, ".") + "')"
}

// dialectOf finds out what a file has. tables are some of those that it has.
func dialectOf(conn *sqlite.Conn, tables []string) (store.Dialect, error) {
	d := *dialect()
	d.Foreign = !slices.Contains(tables, "agenttrace_schema") || !slices.Contains(tables, "chat_sessions")
	columns := map[string][]string{}
	for _, table := range []string{"chat_sessions", "chat_parts", "annotations", "session_stats"} {
		var err error
		if columns[table], err = columnsOf(conn, table); err != nil {
			return d, err
		}
	}
	d.Figures = slices.Contains(columns["session_stats"], "turns")
	return d.Having(columns["chat_sessions"], columns["chat_parts"], columns["annotations"]), nil
}

// prep returns a statement with its parameters bound. The connection caches statements by their text.
func prep(conn *sqlite.Conn, query string, args ...any) *sqlite.Stmt {
	stmt := conn.Prep(query)
	bind(stmt, args)
	return stmt
}

// bind binds parameters in their order.
func bind(stmt *sqlite.Stmt, args []any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			stmt.BindText(1+i, v)
		case int64:
			stmt.BindInt64(1+i, v)
		case int:
			stmt.BindInt64(1+i, int64(v))
		case float64:
			stmt.BindFloat(1+i, v)
		case bool:
			stmt.BindBool(1+i, v)
		case []byte:
			stmt.BindBytes(1+i, v)
		case nil:
			stmt.BindNull(1 + i)
		default:
			panic("sqlite: cannot bind a value of this type") // naming it would allocate every argument
		}
	}
}

// exec runs a statement that returns no rows.
func exec(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultConstraint, sqlite.ResultTooBig:
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
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
