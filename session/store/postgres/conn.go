package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// dialect is PostgreSQL's part of the SQL that engines share. The planner needs no hints. The columns of JSON are
// text, because what was written has to be read byte for byte.
var dialect = sync.OnceValue(func() *store.Dialect {
	return &store.Dialect{
		SessionColumns: store.SessionTable().Prefixed("s."),
		PartColumns:    store.PartTable().Prefixed("p."),
		SameSession:    func(a, b string) string { return " AND " + a + ".session_id = " + b + ".session_id" },
		NoSession: func(column string) string {
			return "NOT EXISTS (SELECT 1 FROM chat_sessions p WHERE p.id = " + column + ")"
		},
		Find: "strpos",
		// As the index is that Migrate makes for searching.
		MayContain: func(column, param string) string {
			return `lower(` + column + `) LIKE '%' || regexp_replace(` + param + `, '([\\%_])', '\\\1', 'g') || '%'`
		},
		JSON:    func(column string, path ...string) string { return at("json_text", column, path) },
		JSONInt: func(column string, path ...string) string { return at("json_int", column, path) },
		Elements: func(column, name string) string {
			return `json_array_elements_text((` + column + `)::json) AS ` + name + `(value)`
		},
		Greatest: "greatest",
		PutRequested: `INSERT INTO requested_indexes(session_id, message_id, part_id, requested_index)
 SELECT session_id, id, ?2::text, ?3::bigint FROM chat_messages WHERE id = ?1
 ON CONFLICT (message_id, part_id, session_id) DO UPDATE SET requested_index = excluded.requested_index`,
		Opens: "opens = 1",
		ClaimFigures: `INSERT INTO session_stats(session_id, data) SELECT id, '' FROM chat_sessions WHERE id = ?1
 ON CONFLICT (session_id) DO UPDATE SET data = '', turns = NULL WHERE session_stats.data <> ''`,
		SpanTimes: `SELECT trace_id, source, start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations WHERE trace_id = ?1 AND opens = 0
   AND (CASE WHEN source = span_id THEN parent_span_id ELSE span_id END) = ?2)
 FROM observations WHERE trace_id = ?1 AND source = ?2`,
	}
})

// at calls a function of the schema.
func at(function, column string, path []string) string {
	return function + `(` + column + `, '{` + strings.Join(path, ",") + `}')`
}

// distributedDialect is that of tables which are distributed: no session is compared with one on another node, except
// by a list that is made first.
var distributedDialect = sync.OnceValue(func() *store.Dialect {
	d := *dialect()
	d.Distributed = true
	d.NoSession = func(column string) string {
		return column + ` NOT IN (SELECT p.id FROM chat_sessions p WHERE p.id = ANY(ARRAY(
 SELECT parent_id FROM chat_sessions WHERE parent_id IS NOT NULL)))`
	}
	return &d
})

// placeholder matches parameters, hints, which the planner of PostgreSQL does not need, and what is within quotes.
var placeholder = lazy.Regexp(` INDEXED BY \w+| NOT INDEXED|'[^']*'|"[^"]*"|\?[1-9]?`)

// numberedQueries has the queries of this program by their texts, which are few.
var numberedQueries sync.Map

// numbered replaces the parameters ? and ?1 of a query by $1, $2, …, except within quotes, and leaves out hints.
func numbered(query string) string {
	if known, ok := numberedQueries.Load(query); ok {
		return known.(string)
	}
	n := 0
	text := placeholder().ReplaceAllStringFunc(query, func(found string) string {
		switch {
		case found == "?":
			n++
			return "$" + strconv.Itoa(n)
		case found[0] == '?':
			return "$" + found[1:]
		case found[0] == ' ':
			return ""
		}
		return found
	})
	numberedQueries.Store(query, text)
	return text
}

// querying runs queries of the shared SQL on a connection.
type querying struct {
	ctx     context.Context
	conn    *pgx.Conn
	dialect *store.Dialect
}

// Dialect implements [sqlstore.Conn].
func (q querying) Dialect() *store.Dialect { return q.dialect }

// Query implements [sqlstore.Conn]. If fn fails before the end, the connection is closed: the rest of the result is
// not waited for.
func (q querying) Query(query string, fn func(store.Row) error, args ...any) error {
	ctx, cancel := context.WithCancel(q.ctx)
	defer cancel()
	rows, err := q.conn.Query(ctx, numbered(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return each(rows, func(r store.Row) error {
		err := fn(r)
		if err != nil {
			cancel()
		}
		return err
	})
}

// source implements [sqlstore.Source].
type source struct {
	pool    *pgxpool.Pool
	name    string
	dialect *store.Dialect
}

// Name implements [sqlstore.Source].
func (s *source) Name() string { return s.name }

// Read implements [sqlstore.Source]. It blocks no writer, and none blocks it.
func (s *source) Read(ctx context.Context, fn func(sqlstore.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return explain("read store", s.name, err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return explain("read store", s.name, err)
	}
	err = fn(querying{ctx, conn.Conn(), s.dialect})
	if endErr := tx.Rollback(context.WithoutCancel(ctx)); err == nil {
		err = endErr
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Keep implements [sqlstore.Keeper].
func (s *source) Keep(ctx context.Context, fn func(sqlstore.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(own pgx.Tx) error {
		if _, err := own.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
			return err
		}
		return fn(&tx{querying: querying{ctx, own.Conn(), s.dialect}, begun: true})
	})
}

// code returns the SQLSTATE of an error of the server, "" of any other.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// isRefused reports whether the server cannot hold the row of a statement: it violates a constraint, or is too large,
// or has a text that PostgreSQL does not allow.
func isRefused(err error) bool {
	switch c := code(err); {
	case strings.HasPrefix(c, "23"), strings.HasPrefix(c, "54"):
		return true
	default:
		return c == "22021" || c == "22P05" || c == "22P02" || c == "22003"
	}
}

// isConflict reports whether the server ended a transaction because of another one. It may succeed when it is
// repeated. 55P03 is a lock that could not be had in time.
func isConflict(err error) bool {
	switch code(err) {
	case "40001", "40P01", "55P03", "CR000":
		return true
	}
	return false
}

// mayPass reports whether what failed may succeed later, without anybody changing the request or the configuration.
func mayPass(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
		return false
	}
	if isConflict(err) {
		return true
	}
	switch c := code(err); {
	case c == "":
		// The server sent no code: it was not reached, or the connection broke.
		var network net.Error
		var connect *pgconn.ConnectError
		return errors.As(err, &network) || errors.As(err, &connect) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) ||
			errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "conn closed") ||
			strings.Contains(err.Error(), "unexpected EOF")
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "53"), strings.HasPrefix(c, "57"), strings.HasPrefix(c, "58"):
		return true
	default:
		// A standby cannot write until it is the primary; an old one may lack what was committed.
		return c == "25006" || c == "25P02" || c == "25P03"
	}
}

// wait waits before the next attempt: longer each time, and not as long as others do.
func wait(ctx context.Context, attempt int) error {
	timer := time.NewTimer(rand.N(2 * time.Millisecond << min(attempt, 8)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remedies state what a user can do, by SQLSTATE.
var remedies = map[string]string{
	"28P01": "check the user and the password (PGPASSWORD, PGPASSFILE or a service file)",
	"28000": "check the user and pg_hba.conf",
	"3D000": "create the database first: createdb",
	"42501": "let an owner of the tables run `agenttrace store migrate`, and GRANT SELECT, INSERT, UPDATE, DELETE on them",
	"42P01": "run `agenttrace store migrate`",
	"53100": "make room on the server's disk",
	"53200": "the server is out of memory or of locks: raise max_locks_per_transaction",
	"53300": "raise max_connections, or lower pool_max_conns of the collectors",
	"57014": "raise statement_timeout, or make batches smaller",
	"55P03": "other writers hold the same sessions for long; raise lock_timeout",
	"25006": "the server is read-only, such as a standby: connect to the primary, " +
		"or set target_session_attrs=read-write",
}

// explain returns the error with the store's name and what can be done. One that may pass wraps [store.ErrUnavailable].
func explain(what, name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) && code(err) == "" {
		return err
	}
	remedy := remedies[code(err)]
	if remedy != "" {
		remedy = "; " + remedy
	}
	if errors.Is(err, pgx.ErrTxClosed) || mayPass(err) {
		return fmt.Errorf("%s %s: %w: %w%s", what, name, store.ErrUnavailable, err, remedy)
	}
	switch c := code(err); {
	case strings.HasPrefix(c, "28"), strings.HasPrefix(c, "3D"), strings.HasPrefix(c, "3F"), c == "42501", c == "42P01":
		return fmt.Errorf("%s %s: %w: %w%s", what, name, store.ErrDenied, err, remedy)
	}
	return fmt.Errorf("%s %s: %w%s", what, name, err, remedy)
}
