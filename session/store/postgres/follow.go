package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

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
