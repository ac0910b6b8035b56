package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// Reader reads a store. It is safe for concurrent use.
type Reader struct {
	sqlstore.Reader
	pool    *pgxpool.Pool
	dialect *store.Dialect
}

// OpenReader opens the store of a DSN for reading. The error for a database without our tables wraps
// [store.ErrNotFound]; other errors are those of [Open].
func OpenReader(ctx context.Context, dsn string) (*Reader, error) {
	pool, name, err := connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	version, err := schemaVersion(ctx, pool)
	switch {
	case err != nil:
		err = explain("open store", name, err)
	case version == 0:
		err = fmt.Errorf("open store %s: %w: the database has no sessions; run `agenttrace store migrate` or a collector",
			name, store.ErrNotFound)
	default:
		err = checkVersion(name, version)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	r, err := newReader(ctx, pool, name, version)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &r, nil
}

// figuresSince is the version of the tables from which on figures of sessions are kept.
const figuresSince = 12

func newReader(ctx context.Context, pool *pgxpool.Pool, name string, version int) (Reader, error) {
	distributed, err := isDistributed(ctx, pool)
	if err != nil {
		return Reader{}, explain("open store", name, err)
	}
	base := dialect()
	if distributed {
		base = distributedDialect()
	}
	columns := map[string][]string{}
	rows, err := pool.Query(ctx, `SELECT relname, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
 WHERE attrelid IN (to_regclass('chat_sessions'), to_regclass('chat_parts'), to_regclass('annotations'))
 AND attnum > 0 AND NOT attisdropped`)
	if err == nil {
		var table, column string
		_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
			columns[table] = append(columns[table], column)
			return nil
		})
	}
	if err != nil {
		return Reader{}, explain("open store", name, err)
	}
	d := base.Having(columns["chat_sessions"], columns["chat_parts"], columns["annotations"])
	d.Figures = !distributed && version >= figuresSince
	return Reader{sqlstore.NewReader(&source{pool, name, &d}), pool, &d}, nil
}

// Close closes the connections.
func (r *Reader) Close() error {
	r.pool.Close()
	return nil
}

// Store is a writer and reader of a session store, one of any number. It is safe for concurrent use.
type Store struct {
	Reader
	sqlstore.Writer
	options Options
	clock   func() time.Time
}

var _ store.Store = (*Store)(nil)

// Open opens the store of a DSN for writing, and brings its tables up to date.
//
// Errors name the server and the database, never a password. They wrap [store.ErrNewer], or [store.ErrUnavailable] for
// what may pass.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	pool, name, err := connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	s := &Store{options: o, clock: time.Now}
	s.Writer = sqlstore.NewWriter(importsAtOnce, func(ctx context.Context, do func(sqlstore.Tx) error) func() error {
		done := make(chan error, 1)
		go func() { done <- s.write(ctx, do) }()
		return func() error { return <-done }
	})
	if err = migrate(ctx, pool, name, o); err == nil {
		s.Reader, err = newReader(ctx, pool, name, SchemaVersion)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// Close rebuilds the turns that are left, and closes the connections.
func (s *Store) Close() error {
	s.Finish()
	return s.Reader.Close()
}

// importsAtOnce is how many sessions are imported at the same time: the server works on one while another is read.
const importsAtOnce = 4

// attempts is how often a transaction is done that another one was in the way of.
const attempts = 12

// commitTimeout is how long a commit may take whose caller does not wait any more.
const commitTimeout = 30 * time.Second

// write has do executed in a transaction and returns when it is committed. With an error, nothing that do changed
// is, unless the connection broke during the commit: then nobody knows, and the batch is to be delivered again, which
// does no harm. do may be called several times.
//
// Before a transaction reads, it locks what the queries name, in a fixed order. If it needs more later, two may wait
// for one another: the server ends one, which is done again and then locks all that it needed at first.
func (s *Store) write(ctx context.Context, do func(sqlstore.Tx) error) error {
	needed := lockKeys{}
	for attempt := 0; ; attempt++ {
		err := s.transact(ctx, needed, do)
		if err == nil {
			return nil
		}
		if !isConflict(err) || attempt == attempts-1 || wait(ctx, attempt) != nil {
			return explain("write store", s.Name(), err)
		}
	}
}

func (s *Store) transact(ctx context.Context, needed lockKeys, do func(sqlstore.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes a connection that is not idle
	t := &tx{querying: querying{ctx, conn.Conn(), s.dialect}, needed: needed, held: lockKeys{}}
	if s.options.Outbox {
		t.files = s.clock().UnixMilli()
	}
	if s.options.SpanOutbox {
		t.spans = s.clock().UnixMilli()
	}
	if err := sqlstore.Guarded(func() error { return do(t) }); err != nil {
		if t.begun && !t.conn.IsClosed() {
			_, rollbackErr := t.conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
			if rollbackErr != nil {
				err = errors.Join(err, rollbackErr)
			}
		}
		return err
	}
	if !t.begun {
		return nil
	}
	commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	tag, err := t.conn.Exec(commit, "COMMIT")
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil && code(err) == "" {
		return fmt.Errorf("%w: %w; whether it was stored is unknown", store.ErrUnavailable, err)
	}
	return err
}

// wide are the columns that take the most room, by their tables.
var wide = [][2]string{{"chat_parts", "data_json"}, {"chat_messages", "metadata_json"}, {"span_refs", "facts_json"},
	{"observations", "data"}, {"session_state", "state_json"},
	{"system_prompts", "body"}, {"tool_catalogs", "body"}}

// Size implements [store.Sizer]: the values of the wide columns as they are compressed, and of each row a little for
// the others. The size of the tables' files does not count, for it stays when rows are deleted. Of a large table a
// sample of its pages is read, always the same ones.
func (s *Store) Size(ctx context.Context) (size int64, err error) {
	relationSize := "pg_relation_size"
	if s.dialect.Distributed {
		relationSize = "citus_relation_size"
	}
	const sampled, otherColumns = 160 << 20, 150 // bytes
	for _, column := range wide {
		var percent float64
		err := s.pool.QueryRow(ctx, `SELECT least(100, 100.0 * $2 / greatest(`+relationSize+
			`($1::regclass), 1))::float8`, column[0], sampled).Scan(&percent)
		if err != nil {
			return 0, explain("measure store", s.Name(), err)
		}
		var n int64
		err = s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT
 (coalesce(sum(coalesce(pg_column_size(%[2]s), 0) + %[3]d), 0) * 100 / %[4]g)::bigint
 FROM %[1]s TABLESAMPLE SYSTEM (%[4]g) REPEATABLE (1)`, column[0], column[1], otherColumns, percent)).Scan(&n)
		if err != nil {
			return 0, explain("measure store", s.Name(), err)
		}
		size += n
	}
	return size, nil
}

// pollInterval is how often a [Follower] asks the server at most.
const pollInterval = time.Second

// Follower implements [store.Follower]: it asks the server once a second at most whether anything was written. It does
// not LISTEN, because then every writer had to NOTIFY, and PostgreSQL lets those commit only one after the other.
type Follower struct {
	dsn    string
	reader *Reader
	// at is the position of the log that was seen last, asked when.
	at    string
	asked time.Time
}

// Follow returns a Follower of the store of a DSN, whose server need not answer yet.
func Follow(dsn string) *Follower { return &Follower{dsn: dsn} }

// Poll implements [store.Follower].
func (f *Follower) Poll(ctx context.Context) (store.Reader, store.Change, error) {
	if f.reader != nil && time.Since(f.asked) < pollInterval {
		return f.reader, store.Unchanged, nil
	}
	f.asked = time.Now()
	if f.reader == nil {
		r, err := OpenReader(ctx, f.dsn)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnavailable) {
			return nil, store.Unchanged, nil
		}
		if err != nil {
			return nil, store.Unchanged, err
		}
		f.reader = r
		f.at, _ = f.position(ctx)
		return f.reader, store.Opened, nil
	}
	at, err := f.position(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return f.reader, store.Unchanged, ctx.Err()
	case err != nil && mayPass(err):
		return nil, store.Gone, f.Close()
	case err != nil:
		return f.reader, store.Changed, nil // an engine without such a log: everything is read again
	case at == f.at:
		return f.reader, store.Unchanged, nil
	}
	f.at = at
	return f.reader, store.Changed, nil
}

// position is where the server's log ends: it moves with every commit.
func (f *Follower) position(ctx context.Context) (at string, err error) {
	err = f.reader.pool.QueryRow(ctx, `SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
 ELSE pg_current_wal_insert_lsn() END)::text`).Scan(&at)
	return at, err
}

// Close closes the connections.
func (f *Follower) Close() error {
	if f.reader == nil {
		return nil
	}
	r := f.reader
	f.reader = nil
	return r.Close()
}
