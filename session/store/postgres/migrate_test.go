//go:build long

package postgres_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// emptied returns the DSN of an empty database: of the cluster that a variable names, or of a server of its own.
func emptied(t *testing.T) (dsn string, distribute bool) {
	dsn = os.Getenv("AGENTTRACE_CITUS_DSN")
	if dsn == "" {
		return storetest.StartPostgres(t, fast...).Create(t), false
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	testscale.Must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	statements := []string{`DROP VIEW IF EXISTS session_spans`, `DROP FUNCTION IF EXISTS json_int, json_text`}
	for _, table := range tableNames(t, conn) {
		statements = append(statements, `DROP TABLE `+table+` CASCADE`)
	}
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return dsn, true
}

// migrateTo makes the tables of an earlier version.
func migrateTo(t *testing.T, version int, dsn string, o postgres.Options) {
	t.Helper()
	newest := postgres.SchemaVersion
	defer func() { postgres.SchemaVersion = newest }()
	postgres.SchemaVersion = version
	testscale.Must(t, postgres.Migrate(t.Context(), dsn, o))
}

// annotate stores a score for each session and reads it.
func annotate(t *testing.T, s *postgres.Store) {
	t.Helper()
	sessions := storetest.Sessions(t, s)
	for _, row := range sessions {
		n := store.Annotation{SessionID: row.ID, Kind: store.AnnotationScore, Name: "good", Label: "pass"}
		n.Identify()
		testscale.Must(t, s.Annotate(t.Context(), []store.Annotation{n}))
		all, err := s.Annotations(t.Context(), row.ID)
		if err != nil || len(all) != 1 || all[0] != n {
			t.Errorf("annotations %v, %v", all, err)
		}
	}
	if len(sessions) == 0 {
		t.Error("no sessions")
	}
}

// checkDistributed reports tables that are on the coordinator alone but belong on the nodes.
func checkDistributed(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	testscale.Must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, table := range tableNames(t, conn) {
		want := table != "writer_locks" && table != "agenttrace_schema"
		var is bool
		if err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_dist_partition
 WHERE logicalrelid = $1::regclass AND partmethod = 'h')`, table).Scan(&is); err != nil || is != want {
			t.Errorf("table %s is distributed: %v, want %v (%v)", table, is, want, err)
		}
		var size int64 // of the coordinator's file, which has what was not moved
		if err := conn.QueryRow(t.Context(), `SELECT pg_relation_size($1::regclass)`, table).Scan(&size); err != nil ||
			want && size > 0 {
			t.Errorf("%d bytes of table %s are on the coordinator (%v)", size, table, err)
		}
	}
}

// Tables of version 1 have no annotations. They are read as they are, and upgraded by writers, of which several may
// start together. Those of a cluster get tables that are distributed, without being asked to.
func TestStoreOfAnEarlierVersionIsReadAndUpgraded(t *testing.T) {
	dsn, distribute := emptied(t)
	migrateTo(t, 1, dsn, postgres.Options{Distribute: distribute})
	r, err := postgres.OpenReader(t.Context(), dsn)
	testscale.Must(t, err)
	defer r.Close()
	if all, err := r.Annotations(t.Context(), "ses_1"); err != nil || len(all) > 0 {
		t.Errorf("annotations %v, %v", all, err)
	}
	stores := make([]*postgres.Store, 4)
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { s.Close() })
			stores[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i, s := range stores {
		if _, err := s.Apply(t.Context(), turnOf(0, i)); err != nil {
			t.Fatal(err)
		}
	}
	annotate(t, stores[0])
	if distribute {
		checkDistributed(t, dsn)
	}
}

// A column that a later version adds is NULL for readers of tables that lack it.
func TestReadersOfTablesWithoutANewColumn(t *testing.T) {
	dsn, distribute := emptied(t)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Distribute: distribute})
	testscale.Must(t, err)
	defer s.Close()
	if _, err := s.Apply(t.Context(), turnOf(0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"ALTER TABLE chat_sessions DROP COLUMN mode", "ALTER TABLE chat_parts DROP COLUMN continuation_run_id",
	} {
		execute(t, dsn, statement)
	}
	r, err := postgres.OpenReader(t.Context(), dsn)
	testscale.Must(t, err)
	defer r.Close()
	all := storetest.Sessions(t, r)
	for _, row := range all {
		storetest.Transcript(t, r, row.ID)
	}
	if len(all) == 0 {
		t.Error("there is no session")
	}
}

// A store of which some tables are distributed, or none, with rows in any of them, is distributed as a whole. Every row
// is still there, and once.
func TestStoreThatIsHalfDistributedIsDistributed(t *testing.T) {
	if os.Getenv("AGENTTRACE_CITUS_DSN") == "" {
		t.Skip("AGENTTRACE_CITUS_DSN names no cluster")
	}
	annotations := testscale.ReadFile(t, "migrations/0002_annotations.sql")
	for _, test := range []struct {
		name     string
		complete bool     // distributed as a whole at first
		undo     []string // makes it half
	}{
		{"tables on one node", false, nil},
		{"tables that the nodes lack functions for", false, []string{
			"SELECT run_command_on_workers('DROP FUNCTION json_int; DROP FUNCTION json_text')",
			"DELETE FROM pg_dist_object WHERE classid = 'pg_proc'::regclass",
		}},
		{"one table on one node", true, append([]string{"DROP TABLE annotations"},
			strings.SplitAfter(string(annotations), ";")...)},
		{"one distributed table", true, []string{
			"SELECT undistribute_table('observations')",
			"SELECT undistribute_table('chat_sessions', cascade_via_foreign_keys => true)",
			"SELECT create_distributed_table('chat_sessions', 'id', colocate_with => 'none')",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dsn, _ := emptied(t)
			testscale.Must(t, postgres.Migrate(t.Context(), dsn, postgres.Options{Distribute: test.complete}))
			s := open(t, dsn)
			for i := range 4 {
				if _, err := s.Apply(t.Context(), turnOf(0, i)); err != nil {
					t.Fatal(err)
				}
			}
			want := storetest.Lines(t, s)
			for _, statement := range test.undo {
				execute(t, dsn, statement)
			}
			for range 2 { // the second time there is nothing to do
				testscale.Must(t, postgres.Migrate(t.Context(), dsn, postgres.Options{Distribute: true}))
			}
			checkDistributed(t, dsn)
			s = open(t, dsn)
			if diff := cmp.Diff(want, storetest.Lines(t, s)); diff != "" {
				t.Errorf("sessions after (+) differ from those before (-):\n%s", diff)
			}
			if _, err := s.Stats(t.Context(), store.StatsQuery{}); err != nil {
				t.Error(err)
			}
			if _, err := s.Apply(t.Context(), turnOf(0, 5)); err != nil {
				t.Error(err)
			}
			annotate(t, s)
			for _, row := range storetest.List(t, s, store.SessionQuery{}) {
				if err := s.Delete(t.Context(), row.ID); err != nil { // which needs the tables of a trace on one node
					t.Error(err)
				}
			}
		})
	}
}
