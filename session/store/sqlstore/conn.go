package sqlstore

import (
	"context"
	"fmt"

	"github.com/agenttrace/agenttrace/session/store"
)

// Conn is a connection in a transaction. In SQL, parameters are written ? or ?1, one kind in a query, whatever the
// engine's own way is.
type Conn interface {
	// Query calls fn for each row of the result. fn must not use the connection, nor retain the row. Its error
	// ends the query and is returned.
	Query(query string, fn func(store.Row) error, args ...any) error
	// Dialect states in what the SQL of the engine, and the content of this store, differ.
	Dialect() *store.Dialect
}

// Tx is a transaction that writes.
type Tx interface {
	store.Tx
	Conn
	// Exec runs a statement without a result. It returns how many rows a DELETE, UPDATE or INSERT changed, without
	// those that foreign keys and triggers change with them.
	Exec(query string, args ...any) (changed int64, err error)
}

// PartFilter is a [Conn] that knows of many parts, without reading them, that they cannot have a text.
type PartFilter interface {
	// FilterParts calls fn with ranges of parts by [store.Dialect.Stored], the last parts first, that together have all
	// parts with each of the texts, upper and lower case alike. It ends with the error of fn.
	FilterParts(texts []string, fn func(PartRange) error) error
}

// PartRange are the parts that were stored above one number, up to another. If they are Listed, none but Parts can
// have the texts, the last first.
type PartRange struct {
	Above, UpTo int64
	Listed      bool
	Parts       []int64
}

// Source is a store as a [Reader] sees it.
type Source interface {
	// Name is the path or the address of the store, without any password, for errors.
	Name() string
	// Read calls fn in a transaction that reads one state of the store. Where fn fails because ctx has ended, it
	// returns the error of ctx.
	Read(ctx context.Context, fn func(Conn) error) error
}

// rowsOf returns every row of a query that selects the columns of a table.
func rowsOf[R any](conn Conn, t *store.Table[R], query string, args ...any) ([]R, error) {
	var rows []R
	err := conn.Query(query, t.AppendTo(&rows), args...)
	return rows, err
}

// only returns the row of a table that a query selects. The error if there is none names what was looked for, by the
// first argument.
func only[R any](conn Conn, t *store.Table[R], what, query string, args ...any) (row R, _ error) {
	rows, err := rowsOf(conn, t, query, args...)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%s %v: %w", what, args[0], store.ErrNotFound)
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

// first calls scan with the row of a query that has one at most, and reports whether it has.
func first(conn Conn, query string, scan func(store.Row), args ...any) (found bool, err error) {
	err = conn.Query(query, func(row store.Row) error {
		scan(row)
		found = true
		return nil
	}, args...)
	return found, err
}

// texts returns the first column of a query's rows.
func texts(conn Conn, query string, args ...any) (all []string, err error) {
	err = conn.Query(query, func(row store.Row) error {
		all = append(all, row.ColumnText(0))
		return nil
	}, args...)
	return all, err
}

// number returns the first column of a query's one row.
func number(conn Conn, query string, args ...any) (n int64, err error) {
	_, err = first(conn, query, func(row store.Row) { n = row.ColumnInt64(0) }, args...)
	return n, err
}
