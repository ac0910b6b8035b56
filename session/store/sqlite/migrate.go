package sqlite

import (
	_ "embed"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed schema.sql
var schema string

// migration changes the schema of a file that needs it: one for which a query has a row, or every one if it is "".
// What a file has decides and not its version, because the reference program makes files too, and a file may have lost
// a column or a table by another program's doing.
type migration struct{ needed, statements string }

// migrations bring a file up to date, in their order and in one transaction. The last one makes what is not there: all
// of an empty file.
var migrations = []migration{
	// Versions 1 and 2 named our tables and columns differently. Views, triggers and indexes that have old names in them
	// are dropped, and made again with the schema.
	{isOlder, `
DROP VIEW IF EXISTS session_spans;
DROP TRIGGER IF EXISTS delete_observations;
DROP INDEX IF EXISTS idx_span_links_facts;
DROP INDEX IF EXISTS idx_observations_home_start;
DROP INDEX IF EXISTS idx_observations_said;
DROP INDEX IF EXISTS idx_observations_stray;
DROP INDEX IF EXISTS idx_observations_stray_trace;
ALTER TABLE span_links RENAME TO span_refs;
ALTER TABLE part_claims RENAME TO requested_indexes;
ALTER TABLE requested_indexes RENAME COLUMN claim TO requested_index;
ALTER TABLE announced_calls RENAME TO tool_call_requests;
ALTER TABLE observations RENAME COLUMN home TO owner;
ALTER TABLE observations RENAME COLUMN said_session TO declared_session;
ALTER TABLE observations RENAME COLUMN said_rank TO declared_rank;
ALTER TABLE observations RENAME COLUMN own TO default_session;
ALTER TABLE observations RENAME COLUMN stray_call TO orphan_call;
ALTER TABLE observations RENAME COLUMN about_json TO session_attrs_json;`},
	// Until version 7 long turns were built in windows.
	{`SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'observation_windows'`, `
DROP TRIGGER IF EXISTS delete_observations;
DROP TABLE observation_windows;`},
	{lacks("observations", "until_nano"), `
DROP INDEX IF EXISTS idx_observations_reach;
ALTER TABLE observations ADD COLUMN until_nano INTEGER NOT NULL DEFAULT 0;
UPDATE observations SET until_nano = end_nano;`},
	{lacks("observations", "usage_counter"), `
ALTER TABLE observations ADD COLUMN usage_counter TEXT;
ALTER TABLE observations ADD COLUMN usage_proof INTEGER;`},
	// Until version 8 a long turn was built outside of the transaction that stored its rows.
	{`SELECT c.name FROM pragma_table_info('unbuilt_turns') c WHERE c.name = 'version'`, `
DROP TRIGGER IF EXISTS delete_observations;
ALTER TABLE unbuilt_turns DROP COLUMN version;`},
	{lacks("observations", "received_nano"),
		`ALTER TABLE observations ADD COLUMN received_nano INTEGER NOT NULL DEFAULT 0;`},
	// Earlier versions have scores that are numbers alone.
	{lacks("annotations", "label"), `
ALTER TABLE annotations RENAME COLUMN value TO number;
ALTER TABLE annotations ADD COLUMN value REAL;
UPDATE annotations SET value = number;
ALTER TABLE annotations DROP COLUMN number;
ALTER TABLE annotations ADD COLUMN label TEXT;`},
	// The reference program's versions 1 and 2 lack these.
	{lacks("chat_sessions", "mode"), `ALTER TABLE chat_sessions ADD COLUMN mode TEXT;`},
	{lacks("chat_parts", "continuation_run_id"), `ALTER TABLE chat_parts ADD COLUMN continuation_run_id TEXT;`},
	// Figures without sums, which are made again, and triggers that removed their rows.
	{lacks("session_stats", "turns"), `
DROP TABLE session_stats;
DROP TRIGGER stats_message_updated;
DROP TRIGGER stats_message_deleted;
DROP TRIGGER stats_part_updated;
DROP TRIGGER stats_part_deleted;`},
	// Earlier versions made these. idx_chat_parts_session stays where it is: it is also the reference program's.
	{"", `
DROP INDEX IF EXISTS idx_chat_parts_approval;
DROP INDEX IF EXISTS idx_span_refs_facts;
DROP INDEX IF EXISTS idx_observations_session;
DROP INDEX IF EXISTS idx_observations_session_end;
DROP TRIGGER IF EXISTS forget_sources;`},
	{"", schema},
}

// isOlder has a row for a file whose tables have the names of versions 1 and 2.
const isOlder = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'span_links'`

// lacks is a query that has a row for a file with a table that has no such column.
func lacks(table, column string) string {
	return fmt.Sprintf(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name = '%s'
 AND NOT EXISTS (SELECT 1 FROM pragma_table_info('%s') c WHERE c.name = '%s')`, table, table, column)
}

// migrate brings the schema up to date.
func migrate(conn *sqlite.Conn) (err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	for _, m := range migrations {
		if m.needed != "" {
			if found, err := names(conn, m.needed); err != nil {
				return fmt.Errorf("upgrade schema: %w", err)
			} else if len(found) == 0 {
				continue
			}
		}
		if err := sqlitex.ExecuteScript(conn, m.statements, nil); err != nil {
			return fmt.Errorf("upgrade schema: %w", err)
		}
	}
	statements := []string{sealSegments, "DELETE FROM agenttrace_schema",
		fmt.Sprintf("INSERT INTO agenttrace_schema(version) VALUES (%d)", SchemaVersion)}
	if version, err := pragmaInt(conn, "user_version"); err != nil {
		return err
	} else if version < CanonicalVersion { // setting it writes to the file
		statements = append(statements, fmt.Sprintf("PRAGMA user_version = %d", CanonicalVersion))
	}
	return execute(conn, statements...)
}
