package postgres

import (
	"errors"
	"maps"

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
