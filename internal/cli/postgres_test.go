//go:build long

package cli_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/postgres/postgrestest"
)

// TestCommandsOnPostgres: every command prints of a database what it prints of a file with the same sessions, those
// that change something included, and ends with the same exit code.
func TestCommandsOnPostgres(t *testing.T) {
	server := postgrestest.Start(t, "fsync = off", "synchronous_commit = off", "full_page_writes = off")
	file := filepath.Join(t.TempDir(), "s.db")
	dsn := server.Create(t)
	if err := makeStore(file, fixture()); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), fixture()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	commands := slices.Concat(reading, changes, importing(t), rewinding)
	compareOutputs(t, commands,
		place{"a file", map[string]string{"AGENTTRACE_STORE": file}, strings.NewReplacer(file, "STORE")},
		place{"a database", map[string]string{"AGENTTRACE_STORE": dsn}, strings.NewReplacer(dsn, "STORE",
			"postgres://postgres@127.0.0.1:"+fmt.Sprint(server.Port)+"/d1", "STORE")})
}
