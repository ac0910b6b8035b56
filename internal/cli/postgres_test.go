//go:build long

package cli_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestCommandsOnPostgres: every command prints of a database what it prints of a file with the same sessions, those
// that change something included, and ends with the same exit code.
func TestCommandsOnPostgres(t *testing.T) {
	server := storetest.StartPostgres(t, "fsync = off", "synchronous_commit = off", "full_page_writes = off")
	file := filepath.Join(t.TempDir(), "s.db")
	dsn := server.Create(t)
	newStore(t, file, fixture())
	fillDatabase(t, dsn, fixture())
	commands := slices.Concat(reading, changes, importing(t), rewinding)
	compareOutputs(t, commands,
		place{"a file", map[string]string{"AGENTTRACE_STORE": file}, strings.NewReplacer(file, "STORE")},
		place{"a database", map[string]string{"AGENTTRACE_STORE": dsn}, strings.NewReplacer(dsn, "STORE",
			"postgres://postgres@127.0.0.1:"+fmt.Sprint(server.Port)+"/d1", "STORE")})
	analyze(t, server.Create(t))
}

func fillDatabase(t *testing.T, dsn string, b *store.Batch) {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	testscale.Must(t, err)
	if _, err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	testscale.Must(t, s.Close())
}

// analyze compares the answers that the queries of docs/analysis.md have in a file and in a database.
func analyze(t *testing.T, dsn string) {
	queries, ofFile := analysis(t, filepath.Join(t.TempDir(), "analyzed.db"))
	fillDatabase(t, dsn, queried())
	importQueried(t, dsn)
	database, err := pgx.Connect(t.Context(), dsn)
	testscale.Must(t, err)
	defer database.Close(t.Context())
	for i, query := range queries {
		rows, err := database.Query(t.Context(), query)
		if err != nil {
			t.Fatalf("%v of %s", err, query)
		}
		var ofDatabase [][]any
		for rows.Next() {
			row, err := rows.Values()
			testscale.Must(t, err)
			ofDatabase = append(ofDatabase, row)
		}
		if rows.Err() != nil {
			t.Errorf("%v of %s", rows.Err(), query)
		}
		if d := cmp.Diff(ofFile[i], ofDatabase); d != "" {
			t.Errorf("%s(-file +database):\n%s", query, d)
		}
	}
}
