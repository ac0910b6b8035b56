package ingest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

var emptyFile = testscale.Copies(func(path string) error {
	s, err := sqlitestore.Open(context.Background(), path, sqlitestore.Options{})
	if err != nil {
		return err
	}
	return s.Close()
})

// openStore is a new store, which is closed when the test ends.
func openStore(t testing.TB) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(context.Background(), emptyFile(t), sqlitestore.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ingestAll delivers each request in turn.
func ingestAll(t testing.TB, s *sqlitestore.Store, requests ...ptrace.Traces) ingest.Report {
	t.Helper()
	in := ingest.New(s, ingest.Options{})
	var sum ingest.Report
	for _, td := range requests {
		r, err := in.Traces(context.Background(), td)
		testscale.Must(t, err)
		sum.Spans += r.Spans
		sum.Accepted += r.Accepted
		sum.Ignored += r.Ignored
		sum.Malformed += r.Malformed
		sum.Refused += r.Refused
	}
	return sum
}

// dump is every row of every table, in a fixed order.
func dump(t testing.TB, path string) string {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	testscale.Must(t, err)
	defer conn.Close()
	var tables []string
	err = sqlitex.ExecuteTransient(conn,
		"SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
		&sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error { tables = append(tables, stmt.ColumnText(0)); return nil }})
	testscale.Must(t, err)
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&b, "== %s\n", table)
		var rows []string
		err := sqlitex.ExecuteTransient(conn, "SELECT * FROM "+table,
			&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
				cols := make([]string, stmt.ColumnCount())
				for i := range cols {
					if table == "observations" && (stmt.ColumnName(i) == "id" || stmt.ColumnName(i) == "received_nano") {
						continue // what came first
					}
					cols[i] = stmt.ColumnName(i) + "=" + stmt.ColumnText(i)
					if stmt.ColumnIsNull(i) {
						cols[i] = stmt.ColumnName(i) + " null"
					}
				}
				rows = append(rows, strings.Join(cols, " | "))
				return nil
			}})
		testscale.Must(t, err)
		// Which row came first is not part of a table.
		slices.Sort(rows)
		for _, r := range rows {
			b.WriteString(r + "\n")
		}
	}
	return b.String()
}

// rowsOf are the sessions of a store with their messages, in the same order.
func rowsOf(t testing.TB, r store.Reader) (all []*session.Transcript) {
	t.Helper()
	for _, row := range storetest.Sessions(t, r) {
		all = append(all, storetest.Transcript(t, r, row.ID))
	}
	return all
}

// differ returns the lines that differ.
func differ(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}

// TestOrderAndRedelivery: any permutation, batching and redelivery of the spans
// of several runs gives the same bytes in every table.
func TestOrderAndRedelivery(t *testing.T) {
	all := whole().spans
	reference := openStore(t)
	report := ingestAll(t, reference, traces(all...))
	if report.Malformed != 0 || report.Refused != 0 || report.Accepted != len(all) {
		t.Fatalf("the scenario itself has a problem: %+v", report)
	}
	storetest.CheckSessions(t, reference)
	testOrder(t, []request{{traces: traces(all...)}}, testscale.Rounds(5, 20))
}
