package codectest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const databaseMagic = "SQLite format 3\x00"

// query runs a statement on the database at path and gives its rows to row.
func query(path, statement string, row func(*sqlite.Stmt), args ...any) (err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return sqlitex.ExecuteTransient(conn, statement,
		&sqlitex.ExecOptions{Args: args, ResultFunc: func(stmt *sqlite.Stmt) error {
			if row != nil {
				row(stmt)
			}
			return nil
		}})
}

// dump is the schema of a database and all of its rows, which have no order but that of
// their columns.
func dump(path string) (string, error) {
	var b strings.Builder
	var tables []string
	err := query(path, "SELECT name, type, sql FROM sqlite_schema ORDER BY name", func(stmt *sqlite.Stmt) {
		fmt.Fprintf(&b, "%s %s %s\n", stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2))
		// The shadow tables of a search index are reported by the index.
		if stmt.ColumnText(1) == "table" && !strings.Contains(stmt.ColumnText(0), "fts") {
			tables = append(tables, stmt.ColumnText(0))
		}
	})
	for _, table := range tables {
		if err != nil {
			break
		}
		fmt.Fprintf(&b, "table %s\n", table)
		var rows []string
		err = query(path, `SELECT * FROM "`+table+`"`, func(stmt *sqlite.Stmt) {
			var row strings.Builder
			for i := range stmt.ColumnCount() {
				fmt.Fprintf(&row, "%s:%q ", stmt.ColumnType(i), stmt.ColumnText(i))
			}
			rows = append(rows, row.String()+"\n")
		})
		slices.Sort(rows)
		b.WriteString(strings.Join(rows, ""))
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return b.String(), nil
}
