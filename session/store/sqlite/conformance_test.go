package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, dump)
}

// What other programs write is read as it is.
func TestSQL(t *testing.T) {
	storetest.RunSQL(t, dump)
}

var emptyFile = testscale.Copies(func(path string) error {
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return err
	}
	return s.Close()
})

// empty is a new store.
func empty(t *testing.T) *sqlite.Store {
	s, err := sqlite.Open(t.Context(), emptyFile(t), sqlite.Options{})
	testscale.Must(t, err)
	return s
}

// dumped is a store of which the suite compares every table, by a connection beside it.
type dumped struct {
	*sqlite.Store
	conn *zombie.Conn
}

func dump(t *testing.T) storetest.Store {
	s := empty(t)
	conn, err := zombie.OpenConn(s.Path(), zombie.OpenReadWrite)
	testscale.Must(t, err)
	return dumped{s, conn}
}

func (d dumped) Close() error { return errors.Join(d.conn.Close(), d.Store.Close()) }

// Script implements [storetest.SQL].
func (d dumped) Script(statements string) error {
	return sqlitex.ExecuteScript(d.conn, statements, nil)
}

// Dump writes every row of every table, except ids that count what came first.
func (d dumped) Dump() (string, error) {
	var lines []string
	// What statistics have kept depends on when they were asked for.
	tables := "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%stats%'"
	err := sqlitex.ExecuteTransient(d.conn, tables, &sqlitex.ExecOptions{ResultFunc: func(table *zombie.Stmt) error {
		name := table.ColumnText(0)
		query := "SELECT * FROM " + name
		if name == "requested_indexes" { // a claim of the place that the part has says nothing
			query += ` c WHERE requested_index <> (SELECT "index" FROM chat_parts WHERE id = c.part_id)`
		}
		return sqlitex.ExecuteTransient(d.conn, query, &sqlitex.ExecOptions{ResultFunc: func(row *zombie.Stmt) error {
			line := name
			for i := range row.ColumnCount() {
				if name == "observations" && row.ColumnName(i) == "id" {
					continue
				}
				line += fmt.Sprintf(" %s=%q", row.ColumnName(i), row.ColumnText(i))
			}
			lines = append(lines, line)
			return nil
		}})
	}})
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", err
}
