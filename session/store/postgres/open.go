package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/store"
)

// Options configure a writer. The zero value is ready for use.
type Options struct {
	// Outbox makes the store remember which sessions changed, for [Store.Outbox]; SpanOutbox, for [store.Store.Unsent].
	Outbox, SpanOutbox bool
	// Distribute makes the tables that are on one node distributed ones of Citus, and moves their rows. Without it,
	// only tables that a new version adds to distributed ones are.
	Distribute bool
	// SearchIndex makes an index of the texts of parts, by which [Store.Search] need not read them all. It takes
	// as much room as the texts and some of the server's time for each part that is written.
	SearchIndex bool
}

// Connections that a program may open if the DSN has no pool_max_conns, and what it asks of a new one unless the DSN
// says otherwise. A batch waits for others that touch the same sessions; it does not wait forever.
const (
	maxConns    = 8
	lockTimeout = "20s"
	idleTimeout = "60s"
)

// settings reads a DSN: a URL as libpq takes it. What it leaves out comes from the environment (PGHOST, PGUSER,
// PGPASSWORD, …), the password file and the service file. The error never has the DSN, which may have a password.
func settings(dsn string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the DSN of the PostgreSQL store is not valid (it is not shown, for it may contain a" +
			" password): want postgres://user@host:port/database?sslmode=…")
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	if !strings.Contains(dsn, "pool_max_conn_idle_time") {
		config.MaxConnIdleTime = 5 * time.Minute
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, 10*time.Second)
	params := config.ConnConfig.RuntimeParams
	params["application_name"] = cmp.Or(params["application_name"], "agenttrace")
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		asText(conn.TypeMap())
		// As statements, because poolers such as PgBouncer refuse these parameters of a connection.
		var set strings.Builder
		for _, p := range [][2]string{
			{"lock_timeout", lockTimeout}, {"idle_in_transaction_session_timeout", idleTimeout},
		} {
			if params[p[0]] == "" {
				fmt.Fprintf(&set, "SET %s = '%s';", p[0], p[1])
			}
		}
		_, err := conn.PgConn().Exec(ctx, set.String()).ReadAll()
		return err
	}
	return config, nil
}

// nameOf is the address of a database without its password, for messages.
func nameOf(c *pgconn.Config) string {
	host := c.Host
	if strings.HasPrefix(host, "/") {
		host = url.PathEscape(host) // a directory with a socket
	} else {
		host = net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
	}
	name := "postgres://"
	if c.User != "" {
		name += url.User(c.User).String() + "@"
	}
	return name + host + "/" + url.PathEscape(c.Database)
}

// connect opens the pool and takes a first connection, to find out at once what is wrong.
func connect(ctx context.Context, dsn string) (*pgxpool.Pool, string, error) {
	config, err := settings(dsn)
	if err != nil {
		return nil, "", err
	}
	name := nameOf(&config.ConnConfig.Config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		if err = pool.Ping(ctx); err != nil {
			pool.Close()
		}
	}
	if err != nil {
		return nil, name, explain("open store", name, err)
	}
	return pool, name, nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// SchemaVersion is that of the tables: how many migrations there are.
var SchemaVersion = func() int {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		panic(err) // they are embedded
	}
	return len(files)
}()

// migrationLock is the key of the lock that one program holds while it changes the schema: "agttrace" in ASCII. It is
// held until the end of the transaction.
const migrationLock = 0x6167747472616365

// Migrate brings the tables up to date, also while others start. The statements of a version are one transaction: a
// version is there as a whole or not at all. The error for tables of a newer version wraps [store.ErrNewer].
func Migrate(ctx context.Context, dsn string, o Options) error {
	pool, name, err := connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrate(ctx, pool, name, o)
}

func migrate(ctx context.Context, pool *pgxpool.Pool, name string, o Options) error {
	version, err := schemaVersion(ctx, pool)
	for attempt := 0; err == nil && version < SchemaVersion; attempt++ {
		err = alone(ctx, pool, upgrade)
		if isConflict(err) || code(err) == "42P07" || code(err) == "23505" { // where there are no such locks
			if attempt < 10 && wait(ctx, attempt) == nil {
				err = nil
			}
		}
		if err == nil {
			version, err = schemaVersion(ctx, pool)
		}
	}
	switch {
	case err != nil:
		return explain("create the tables of", name, err)
	case o.Distribute:
		if err := alone(ctx, pool, distribute); err != nil {
			return explain("distribute the tables of", name, err)
		}
	}
	if o.SearchIndex {
		if err := indexTexts(ctx, pool); err != nil {
			return explain("index the texts of", name, err)
		}
	}
	return checkVersion(name, version)
}

func checkVersion(name string, version int) error {
	if version <= SchemaVersion {
		return nil
	}
	return fmt.Errorf("open store %s: %w: version %d, this program knows %d; update it", name, store.ErrNewer, version,
		SchemaVersion)
}

// alone runs a change of the schema in a transaction, while no other program is at one.
func alone(ctx context.Context, pool *pgxpool.Pool, change func(context.Context, pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		return change(ctx, tx)
	})
}

// oneStatement matches one statement of a migration and the comments before it.
var oneStatement = lazy.Regexp(`(?s)(--[^\n]*|\$\$.*?\$\$|'[^']*'|[^;])*;`)

// upgrade brings the tables to the next version, unless another program was faster. What it adds to tables that are
// distributed is distributed too.
func upgrade(ctx context.Context, tx pgx.Tx) error {
	current, err := schemaVersion(ctx, tx)
	if err != nil || current >= SchemaVersion {
		return err
	}
	distributed, err := isDistributed(ctx, tx)
	if err == nil && distributed {
		_, err = tx.Exec(ctx, sequential)
	}
	if err != nil {
		return err
	}
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	text, err := migrations.ReadFile("migrations/" + files[current].Name())
	if err != nil {
		return err
	}
	for _, s := range oneStatement().FindAllString(string(text), -1) {
		// Citus sends the text that it received to the nodes, which take a single statement. In this protocol every
		// server insists on that.
		if _, err := tx.Conn().PgConn().ExecParams(ctx, s, nil, nil, nil, nil).Close(); err != nil {
			return err
		}
	}
	if distributed {
		if err := distributeTables(ctx, tx); err != nil {
			return err
		}
	}
	return setVersion(ctx, tx, current+1)
}

// SQL is what makes the tables in an empty database.
func SQL() string {
	var b strings.Builder
	files, _ := migrations.ReadDir("migrations")
	for _, f := range files {
		text, _ := migrations.ReadFile("migrations/" + f.Name())
		b.Write(text)
	}
	for _, statement := range versionIs(len(files)) {
		b.WriteString("\n" + statement + ";\n")
	}
	return b.String()
}

// queryer is a pool, a connection or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// schemaVersion is the version of the tables, 0 where there are none.
func schemaVersion(ctx context.Context, q queryer) (version int, err error) {
	var there bool
	err = q.QueryRow(ctx, `SELECT to_regclass('agenttrace_schema') IS NOT NULL`).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM agenttrace_schema`).Scan(&version)
	return version, err
}

// versionIs are the statements that note the version of the tables.
func versionIs(version int) []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS agenttrace_schema (version BIGINT NOT NULL)`,
		`DELETE FROM agenttrace_schema`,
		`INSERT INTO agenttrace_schema VALUES (` + strconv.Itoa(version) + `)`,
	}
}

func setVersion(ctx context.Context, q queryer, version int) error {
	for _, statement := range versionIs(version) {
		if _, err := q.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// placed is a table, and the column by which Citus places its rows.
type placed struct{ table, column string }

// distribution are the tables in groups: rows with one value of their columns are on one node, those of a session or
// those of a trace. Foreign keys need the first table of a group.
var distribution = [][]placed{
	{{"chat_sessions", "id"}, {"chat_messages", "session_id"}, {"chat_parts", "session_id"},
		{"permission_decisions", "session_id"}, {"annotations", "session_id"}, {"span_refs", "session_id"},
		{"session_traces", "session_id"}, {"session_state", "session_id"}, {"requested_indexes", "session_id"},
		{"export_outbox", "session_id"}, {"span_outbox", "session_id"}, {"sent_spans", "session_id"},
		{"unbuilt_turns", "owner"}, {"session_stats", "session_id"}},
	{{"observations", "trace_id"}, {"tool_call_requests", "trace_id"}},
	{{"import_sources", "path"}, {"import_source_sessions", "path"}},
	{{"system_prompts", "digest"}},
	{{"tool_catalogs", "digest"}},
}

// tablesOf are the names of the tables of groups.
func tablesOf(groups ...[]placed) (names []string) {
	for _, t := range slices.Concat(groups...) {
		names = append(names, t.table)
	}
	return names
}

// indexTexts makes the index for searching, while others write.
func indexTexts(ctx context.Context, pool *pgxpool.Pool) error {
	for _, statement := range []string{
		`CREATE EXTENSION IF NOT EXISTS pg_trgm`,
		`CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_chat_parts_texts ON chat_parts
 USING gin (lower(data_json) gin_trgm_ops)`,
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// ourTables selects those of our tables that Citus has distributed by a hash.
const ourTables = ` FROM pg_dist_partition JOIN unnest($1::text[]) t ON logicalrelid = to_regclass(t)
 WHERE partmethod = 'h'`

// sequential makes a transaction change one shard after the other. Citus refuses many statements after one that changed
// several shards at a time.
const sequential = `SET LOCAL citus.multi_shard_modify_mode = 'sequential'`

// isDistributed reports whether any of the tables is a distributed one.
func isDistributed(ctx context.Context, q queryer) (is bool, err error) {
	var citus bool
	err = q.QueryRow(ctx, `SELECT to_regclass('pg_dist_partition') IS NOT NULL`).Scan(&citus)
	if err != nil || !citus {
		return false, err
	}
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT 1`+ourTables+`)`, tablesOf(distribution...)).Scan(&is)
	return is, err
}

// distribute distributes the tables that are on one node, and removes the copies of their rows that Citus leaves on the
// coordinator, where nothing reads them.
func distribute(ctx context.Context, tx pgx.Tx) error {
	for _, statement := range []string{sequential, `DROP TRIGGER IF EXISTS empty_session_stats ON chat_messages`,
		`DROP TRIGGER IF EXISTS empty_session_stats ON chat_parts`,
		`DROP TRIGGER IF EXISTS empty_session_stats ON chat_sessions`} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := distributeTables(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT truncate_local_data_after_distributing_table(logicalrelid)`+ourTables+
		` AND pg_relation_size(logicalrelid) > 0`, tablesOf(distribution...))
	return err
}

// distributeTables distributes the tables that are there and on one node, with their rows, and the functions that
// queries call on the nodes: Citus does not have those that are older than its extension.
func distributeTables(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `SELECT create_distributed_function(oid) FROM pg_proc
 WHERE proname IN ('json_text', 'json_int') AND pg_function_is_visible(oid)`); err != nil {
		return err
	}
	for _, group := range distribution {
		for _, t := range group {
			// Any table of a group may be the one that is distributed.
			if _, err := tx.Exec(ctx, `SELECT create_distributed_table(name, $3, colocate_with => coalesce((
 SELECT logicalrelid::text`+ourTables+` ORDER BY logicalrelid = to_regclass($4) DESC LIMIT 1), 'none'))
 FROM to_regclass($2) name WHERE name IS NOT NULL AND NOT EXISTS (
 SELECT 1 FROM pg_dist_partition WHERE logicalrelid = name)`,
				tablesOf(group), t.table, t.column, group[0].table); err != nil {
				return err
			}
		}
	}
	return nil
}
