package testscale

import (
	"errors"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Script executes SQL on the SQLite database at a path, as another program does. It makes the database if there is none.
func Script(t testing.TB, path, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Query returns the rows that a query finds in the SQLite database at a path, with | between the columns.
func Query(t testing.TB, path, query string) (rows []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		columns := make([]string, stmt.ColumnCount())
		for i := range columns {
			columns[i] = stmt.ColumnText(i)
		}
		rows = append(rows, strings.Join(columns, "|"))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
