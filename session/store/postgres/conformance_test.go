//go:build long

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// fast makes a server for tests that do not end it.
var fast = []string{"fsync = off", "synchronous_commit = off", "full_page_writes = off", "autovacuum = off"}

func TestConformance(t *testing.T) {
	storetest.Run(t, stores(t))
}

// What other programs write is read as it is.
func TestSQL(t *testing.T) {
	storetest.RunSQL(t, stores(t))
}

// stores returns a function that opens stores without rows, one after the other, in one database.
func stores(t *testing.T) func(*testing.T) storetest.Store {
	dsn := database(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	testscale.Must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	tables := tableNames(t, conn)
	var clear strings.Builder
	for _, table := range tables {
		if table != "agenttrace_schema" && table != "writer_locks" {
			fmt.Fprintf(&clear, "DELETE FROM %s;", table)
		}
	}
	return func(t *testing.T) storetest.Store {
		if _, err := conn.Exec(t.Context(), clear.String()); err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		testscale.Must(t, err)
		return dumped{s, conn, tables}
	}
}

// database is one with tables: of a server of its own, or the one that a variable names, whose tables are distributed.
func database(t *testing.T) string {
	dsn, o := os.Getenv("AGENTTRACE_CITUS_DSN"), postgres.Options{Distribute: true}
	if dsn == "" {
		dsn, o = storetest.StartPostgres(t, fast...).Create(t), postgres.Options{}
	}
	testscale.Must(t, postgres.Migrate(t.Context(), dsn, o))
	return dsn
}

func tableNames(t *testing.T, conn *pgx.Conn) []string {
	rows, err := conn.Query(t.Context(), `SELECT relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE relkind = 'r' AND nspname = 'public' ORDER BY relname`)
	testscale.Must(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testscale.Must(t, err)
	return names
}

// dumped is a store of which the suite compares every table.
type dumped struct {
	*postgres.Store
	conn   *pgx.Conn
	tables []string
}

// Script implements [storetest.SQL].
func (d dumped) Script(statements string) error {
	_, err := d.conn.Exec(context.Background(), statements)
	return err
}

// Dump writes every row of every table, except the locks of writers, which stay.
func (d dumped) Dump() (string, error) {
	var lines []string
	for _, table := range d.tables {
		query := "SELECT row_to_json(c)::text FROM " + table + " c"
		switch table {
		case "writer_locks", "session_stats": // what is kept depends on when it was asked for
			continue
		case "requested_indexes": // a claim of the place that the part has says nothing
			query += ` WHERE requested_index <> (SELECT "index" FROM chat_parts p WHERE p.id = c.part_id AND ` +
				`p.session_id = c.session_id)`
		}
		rows, err := d.conn.Query(context.Background(), query)
		if err != nil {
			return "", err
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return "", err
		}
		for _, line := range all {
			lines = append(lines, table+" "+line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", nil
}
