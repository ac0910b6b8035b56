package sqlite

import (
	"errors"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// tx implements [sqlstore.Tx] on one connection.
type tx struct {
	conn    *sqlite.Conn
	dialect *store.Dialect
	// files and spans are the times that the outboxes are stamped with, Unix milliseconds; 0 where there is none.
	files, spans int64
	// file is what is read, nil in a transaction that writes.
	file *file
	// shared reports that the transaction has the changes of several requests, which only its end undoes.
	shared bool
}

var (
	_ sqlstore.Tx         = (*tx)(nil)
	_ sqlstore.PartFilter = (*tx)(nil)
)

func (t *tx) prep(query string, args ...any) *sqlite.Stmt { return prep(t.conn, query, args...) }

// Dialect implements [sqlstore.Conn].
func (t *tx) Dialect() *store.Dialect { return t.dialect }

// Query implements [sqlstore.Conn].
func (t *tx) Query(query string, fn func(store.Row) error, args ...any) error {
	stmt, err := t.conn.Prepare(query)
	if err != nil {
		return err
	}
	bind(stmt, args)
	return each(stmt, func() error { return fn(stmt) })
}

// Exec implements [sqlstore.Tx].
func (t *tx) Exec(query string, args ...any) (int64, error) {
	if err := exec(t.prep(query, args...)); err != nil {
		return 0, err
	}
	return int64(t.conn.Changes()), nil
}

// Undo implements [store.Tx].
func (t *tx) Undo() error {
	if t.shared {
		return errShared
	}
	if err := exec(t.conn.Prep("ROLLBACK")); err != nil {
		return err
	}
	return exec(t.conn.Prep("BEGIN IMMEDIATE"))
}

var errShared = errors.New("the transaction is shared")

// Do implements [store.Tx]. SQLite is in the same process, so each statement is executed at once.
func (t *tx) Do(add func(store.Statements)) error {
	s := &statements{tx: t}
	add(s)
	return s.err
}

// statements implements [store.Statements]. After the first error, which it keeps, it does nothing more.
type statements struct {
	*tx
	err error
}

// Stamps implements [store.Statements].
func (s *statements) Stamps() (files, spans int64) { return s.files, s.spans }

// Name implements [store.Statements]. A file has one writer.
func (s *statements) Name(store.NameKind, ...string) {}

// Select implements [store.Statements].
func (s *statements) Select(query string, fn func(store.Row) error, args ...any) {
	if s.err == nil {
		s.err = s.Query(query, fn, args...)
	}
}

// SelectKeys implements [store.Statements].
func (s *statements) SelectKeys(query string, fn func(store.Row) error, columns ...[]string) {
	key := make([]any, len(columns))
	for i := range columns[0] {
		for k := range columns {
			key[k] = columns[k][i]
		}
		s.Select(query, fn, key...)
	}
}

// Exec implements [store.Statements].
func (s *statements) Exec(query string, args ...any) {
	if s.err == nil {
		s.err = exec(s.prep(query, args...))
	}
}

// Put implements [store.Statements].
func (s *statements) Put(refused *error, query string, args ...any) {
	if s.err != nil {
		return
	}
	err := exec(s.prep(query, args...))
	switch {
	case refused == nil:
		s.err = err
	case errors.Is(err, store.ErrRefused):
		*refused = err
	case err == nil && s.conn.Changes() == 0:
		*refused = store.ErrRefused
	default:
		s.err = err
	}
}
