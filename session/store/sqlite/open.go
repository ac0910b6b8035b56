package sqlite

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	// CanonicalVersion is PRAGMA user_version: that of the three tables, as the
	// reference program counts it.
	CanonicalVersion = 3
	// SchemaVersion is that of the tables that agenttrace adds.
	SchemaVersion = 7
)

//go:embed schema.sql
var schema string

// Durability is what survives what.
const (
	// SynchronousNormal survives the death of the process; a power failure may
	// take the last commits, never the file.
	SynchronousNormal = "normal"
	// SynchronousFull survives a power failure too.
	SynchronousFull = "full"
)

// Options configure a writer. The zero value is ready for use.
type Options struct {
	// Synchronous is SynchronousNormal when empty.
	Synchronous string
	// Outbox makes the store remember which sessions changed, for [Store.Outbox].
	Outbox bool
	// MaxBytes limits the size of the file: a commit that would exceed it fails
	// with store.ErrUnavailable, as on a full disk. 0 means no limit.
	MaxBytes int64
}

// pageSize is that of a new file, in bytes. A part of a few KB fills a page of 8 KB badly: such a file is 15 % larger,
// and costs more CPU to write.
const pageSize = 16 << 10

// checkPath refuses a URI, which SQLite's own tools accept and the operating system would
// take for a path below the working directory.
func checkPath(path string) error {
	if scheme, _, ok := strings.Cut(path, ":"); ok && (scheme == "file" || strings.Contains(path, "://")) {
		return fmt.Errorf("open store %s: %w: a store is named by its path, not by a URI", path, store.ErrNotStore)
	}
	return nil
}

// openWriter opens or creates the database at path, which the caller has locked.
func openWriter(ctx context.Context, path string, o Options) (_ *sqlite.Conn, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, classify(fmt.Errorf("open store %s: %w", path, err))
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	conn.SetInterrupt(ctx.Done())
	defer conn.SetInterrupt(nil)
	synchronous := "NORMAL"
	if o.Synchronous == SynchronousFull {
		synchronous = "FULL"
	}
	// The page size must be set before the first table, and before WAL.
	if err := execute(conn, fmt.Sprintf("PRAGMA page_size = %d", pageSize), "PRAGMA busy_timeout = 5000"); err != nil {
		return nil, openError(path, err)
	}
	if err := checkOurs(conn, path, true); err != nil {
		return nil, err
	}
	err = execute(conn, "PRAGMA journal_mode = WAL", "PRAGMA synchronous = "+synchronous, "PRAGMA foreign_keys = ON",
		"PRAGMA cache_size = -16384", "PRAGMA wal_autocheckpoint = 4000", "PRAGMA temp_store = MEMORY")
	if err == nil {
		err = migrate(conn)
	}
	if err == nil && o.MaxBytes > 0 {
		var size int64 // of an older file, or of another program's, another than ours
		if size, err = pragmaInt(conn, "page_size"); err == nil {
			err = execute(conn, fmt.Sprintf("PRAGMA max_page_count = %d", max(1, o.MaxBytes/size)))
		}
	}
	if err != nil {
		return nil, openError(path, err)
	}
	return conn, nil
}

// execute runs statements without a result, one after the other.
func execute(conn *sqlite.Conn, statements ...string) error {
	for _, statement := range statements {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return err
		}
	}
	return nil
}

// createFile makes the file, private to the user: prompts are sensitive.
func createFile(path, real string) error {
	f, err := os.OpenFile(real, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return classifyFile(fmt.Errorf("create store %s: %w", path, err))
	}
	return f.Close() // nobody has it open: it was not there
}

// checkHeader refuses a file that is not empty and does not begin like a
// database. SQLite itself takes one of a few bytes for empty and writes over it.
func checkHeader(path string, f *os.File) error {
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	n, err := f.ReadAt(head, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF), string(head) == magic:
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return classifyFile(fmt.Errorf("open store %s: %w", path, err))
	}
	return fmt.Errorf("open store %s: %w: it begins with %q; name another file", path, store.ErrNotStore, head[:n])
}

// migrate brings the schema up to date. It renames what earlier versions named differently,
// and adds what they lack.
func migrate(conn *sqlite.Conn) (err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	if err = upgradeOurs(conn); err == nil {
		err = addColumns(conn)
	}
	if err != nil {
		return fmt.Errorf("upgrade schema: %w", err)
	}
	if err := sqlitex.ExecuteScript(conn, schema, nil); err != nil {
		return fmt.Errorf("create schema: %w", err)
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

// addColumns adds the columns that tables lack.
func addColumns(conn *sqlite.Conn) error {
	for _, c := range added {
		columns, err := columnsOf(conn, c.table)
		if err != nil {
			return err
		}
		if len(columns) == 0 || slices.Contains(columns, c.column) {
			continue
		}
		if err := execute(conn, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", c.table, c.column, c.kind)); err != nil {
			return err
		}
	}
	return nil
}

// renamed are the tables and columns of ours that had another name in versions 1 and 2, a
// table before its columns.
var renamed = []struct{ table, column, to string }{
	{"span_links", "", "span_refs"},
	{"part_claims", "", "requested_indexes"},
	{"requested_indexes", "claim", "requested_index"},
	{"announced_calls", "", "tool_call_requests"},
	{"observations", "home", "owner"},
	{"observations", "said_session", "declared_session"},
	{"observations", "said_rank", "declared_rank"},
	{"observations", "own", "default_session"},
	{"observations", "stray_call", "orphan_call"},
	{"observations", "about_json", "session_attrs_json"},
	{"observation_windows", "home", "owner"},
}

// upgradeOurs brings the tables of ours in a file of an earlier version up to date.
func upgradeOurs(conn *sqlite.Conn) error {
	old, err := isOlder(conn)
	if err != nil {
		return err
	}
	if old {
		if err := renameOurs(conn); err != nil {
			return err
		}
	}
	// Earlier versions made them. idx_chat_parts_session stays where it is: it is also the reference program's.
	if err := execute(conn, "DROP INDEX IF EXISTS idx_chat_parts_approval",
		"DROP INDEX IF EXISTS idx_span_refs_facts", "DROP INDEX IF EXISTS idx_observations_session"); err != nil {
		return err
	}
	columns, err := columnsOf(conn, "observations")
	if err != nil || len(columns) == 0 || slices.Contains(columns, "until_nano") {
		return err
	}
	return execute(conn, // version 3
		"DROP INDEX IF EXISTS idx_observations_reach",
		"ALTER TABLE observations ADD COLUMN until_nano INTEGER NOT NULL DEFAULT 0",
		"UPDATE observations SET until_nano = end_nano")
}

// renameOurs renames what is named otherwise in a file of versions 1 and 2. Views, triggers
// and indexes that have old names in them are dropped, and made again with the schema.
func renameOurs(conn *sqlite.Conn) error {
	if err := execute(conn, "DROP VIEW IF EXISTS session_spans", "DROP TRIGGER IF EXISTS delete_observations",
		"DROP INDEX IF EXISTS idx_span_links_facts", "DROP INDEX IF EXISTS idx_observations_home_start",
		"DROP INDEX IF EXISTS idx_observations_said", "DROP INDEX IF EXISTS idx_observations_stray",
		"DROP INDEX IF EXISTS idx_observations_stray_trace"); err != nil {
		return err
	}
	for _, r := range renamed {
		columns, err := columnsOf(conn, r.table)
		if err != nil {
			return err
		}
		statement := fmt.Sprintf("ALTER TABLE %s RENAME TO %s", r.table, r.to)
		if r.column != "" {
			statement = fmt.Sprintf("ALTER TABLE %s RENAME COLUMN %s TO %s", r.table, r.column, r.to)
		}
		if len(columns) == 0 || r.column != "" && !slices.Contains(columns, r.column) {
			continue
		}
		if err := execute(conn, statement); err != nil {
			return err
		}
	}
	return nil
}

// isOlder reports whether a file has tables of ours with the names of versions 1 and 2.
func isOlder(conn *sqlite.Conn) (bool, error) {
	old, err := names(conn,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('span_links', 'part_claims')")
	return len(old) > 0, err
}

// required are the columns without which a file is not a session store: those of
// the reference program's first version, which lacks the columns that were added.
var required = map[string][]string{
	"chat_sessions": without(session.SessionColumns.Names()),
	"chat_messages": without(session.MessageColumns.Names()),
	"chat_parts":    without(session.PartColumns.Names()),
}

func without(columns []string) []string {
	return slices.DeleteFunc(columns, func(name string) bool {
		return slices.ContainsFunc(added, func(c addedColumn) bool { return c.column == name })
	})
}

// addedColumn is a column that a later version added at the end of a table.
type addedColumn struct{ table, column, kind string }

// added are the columns that later versions have. A reader takes those that a file lacks as NULL.
var added = []addedColumn{
	{"chat_sessions", "mode", "TEXT"}, {"chat_parts", "continuation_run_id", "TEXT"},
	{"observations", "usage_counter", "TEXT"}, {"observations", "usage_proof", "INTEGER"},
}

// checkOurs refuses a file that is no session store, or one of a newer version.
// An empty database is one in the making; so is one that has some of a store's tables and no
// others, whose making was interrupted: a writer completes it.
func checkOurs(conn *sqlite.Conn, path string, writer bool) error {
	version, err := pragmaInt(conn, "user_version")
	if err != nil {
		return openError(path, err)
	}
	tables, err := names(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		return openError(path, err)
	}
	if len(tables) == 0 && version == 0 {
		return nil
	}
	inTheMaking := writer && version <= CanonicalVersion && !slices.ContainsFunc(tables, func(name string) bool {
		return !strings.Contains(schema, "CREATE TABLE IF NOT EXISTS "+name+" (")
	})
	for _, table := range []string{"chat_sessions", "chat_messages", "chat_parts"} {
		columns, err := columnsOf(conn, table)
		if err != nil {
			return openError(path, err)
		}
		if len(columns) == 0 && inTheMaking {
			continue
		}
		for _, column := range required[table] {
			if !slices.Contains(columns, column) {
				return fmt.Errorf("open store %s: %w: the database has no column %s.%s; name another file",
					path, store.ErrNotStore, table, column)
			}
		}
	}
	if version > CanonicalVersion {
		return fmt.Errorf("open store %s: %w: user_version %d, this program knows %d; use a newer agenttrace",
			path, store.ErrNewer, version, CanonicalVersion)
	}
	if slices.Contains(tables, "agenttrace_schema") {
		ours, err := sqlitex.ResultInt64(conn.Prep("SELECT coalesce(max(version), 0) FROM agenttrace_schema"))
		if err != nil {
			return openError(path, err)
		}
		if ours > SchemaVersion {
			return fmt.Errorf("open store %s: %w: schema version %d, this program knows %d; use a newer agenttrace",
				path, store.ErrNewer, ours, SchemaVersion)
		}
		if old, err := isOlder(conn); err != nil {
			return openError(path, err)
		} else if old && !writer {
			return fmt.Errorf("it has schema version %d, this program reads %d; upgrade it with: "+
				"agenttrace gc --store %s", ours, SchemaVersion, path)
		}
	}
	return nil
}

func pragmaInt(conn *sqlite.Conn, name string) (int64, error) {
	var n int64
	read := func(stmt *sqlite.Stmt) error {
		n = stmt.ColumnInt64(0)
		return nil
	}
	err := sqlitex.ExecuteTransient(conn, "PRAGMA "+name, &sqlitex.ExecOptions{ResultFunc: read})
	return n, err
}

func names(conn *sqlite.Conn, query string) ([]string, error) {
	var all []string
	err := sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		all = append(all, stmt.ColumnText(0))
		return nil
	}})
	return all, err
}

func columnsOf(conn *sqlite.Conn, table string) ([]string, error) {
	return names(conn, "SELECT name FROM pragma_table_info('"+table+"')")
}

// openError words what is wrong with a file that cannot be opened.
func openError(path string, err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return fmt.Errorf("open store %s: %w: %w; name another file", path, store.ErrNotStore, err)
	case sqlite.ResultReadOnly:
		return fmt.Errorf("open store %s: %w: %w: the file or its directory is read-only; "+
			"make it writable or name another", path, store.ErrUnavailable, err)
	}
	return classify(fmt.Errorf("open store %s: %w", path, err))
}

// classify marks errors that may pass.
func classify(err error) error {
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultReadOnly,
		sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultInterrupt, sqlite.ResultProtocol:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

func classifyFile(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w; make it writable or name another file", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}
