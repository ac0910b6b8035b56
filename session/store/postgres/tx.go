package postgres

import (
	"errors"
	"maps"
	"slices"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// tx implements [sqlstore.Tx] on one connection. All statements of a call of Do are sent together and answered
// together: one round trip.
type tx struct {
	querying
	// begun reports that the server has a transaction. It is begun with the first statements.
	begun bool
	// needed are the keys that were locked in this transaction, or before it was undone or repeated; held those that
	// are locked now.
	needed, held lockKeys
	// files and spans are the times that the outboxes are stamped with, Unix milliseconds; 0 where there is none.
	files, spans int64
}

var _ sqlstore.Tx = (*tx)(nil)

// Undo implements [store.Tx]. The locks are lost with the transaction; the next statements take them again, all at
// once.
func (t *tx) Undo() error {
	if !t.begun {
		return nil
	}
	t.begun, t.held = false, lockKeys{}
	_, err := t.conn.Exec(t.ctx, "ROLLBACK")
	return err
}

// begin begins the transaction, where no changes or queries have done so.
func (t *tx) begin() error {
	if t.begun {
		return nil
	}
	return t.Do(func(store.Statements) {})
}

// Query implements [sqlstore.Conn].
func (t *tx) Query(query string, fn func(store.Row) error, args ...any) error {
	if err := t.begin(); err != nil {
		return err
	}
	return t.querying.Query(query, fn, args...)
}

// Exec implements [sqlstore.Tx].
func (t *tx) Exec(query string, args ...any) (changed int64, err error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	tag, err := t.conn.Exec(t.ctx, numbered(query), args...)
	return tag.RowsAffected(), err
}

// Do implements [store.Tx]. What the statements name is known when they are added, and locked before they are executed.
func (t *tx) Do(add func(store.Statements)) error {
	b, begin := &batch{tx: t}, &batch{tx: t}
	add(b)
	if !t.begun {
		begin.Exec("BEGIN ISOLATION LEVEL READ COMMITTED")
		begin.Exec("SET LOCAL agenttrace.writer = 'on'") // see the trigger empty_session_stats
	}
	if keys := t.needed.sorted(t.held); len(keys) > 0 {
		begin.Exec(lockQuery, keys)
	}
	b.QueuedQueries = append(begin.QueuedQueries, b.QueuedQueries...)
	err := t.conn.SendBatch(t.ctx, &b.Batch).Close()
	t.begun = true
	maps.Copy(t.held, t.needed)
	if errors.Is(err, errRefusedRow) {
		return nil // the caller looks at the rows, and undoes everything
	}
	return err
}

// lockBits bounds the keys of writer_locks to 2^lockBits rows. Two keys with one number wait for one another without
// need, which of a few hundred keys of a batch happens now and then.
const lockBits = 20

// lockQuery locks the rows of sorted keys, and makes those that are missing. DO UPDATE locks a row also where its
// condition is false; nothing is written then. Every writer locks in the order of the keys, so no two wait for each
// other, unless one needs more keys later: see [Store.Transact].
const lockQuery = `INSERT INTO writer_locks(key) SELECT unnest($1::bigint[])
 ON CONFLICT (key) DO UPDATE SET key = excluded.key WHERE false`

// lockKeys are the keys of what changes and queries name.
type lockKeys map[int64]bool

// add adds the keys of names.
func (k lockKeys) add(kind store.NameKind, names ...string) {
	for _, name := range names {
		if name != "" {
			k[lockKey(kind, name)] = true
		}
	}
}

// lockKey is the number of a key. It is the same in every program: FNV-1a, folded.
func lockKey(kind store.NameKind, name string) int64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (uint64(offset) ^ uint64(kind)) * prime
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return int64((h ^ h>>lockBits ^ h>>(2*lockBits)) & (1<<lockBits - 1))
}

// sorted are the keys that are not held yet, in order.
func (k lockKeys) sorted(held lockKeys) []int64 {
	var keys []int64
	for key := range k {
		if !held[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
