package sqlstore

import (
	"context"

	"github.com/agenttrace/agenttrace/session/store"
)

// Conn is a connection in a transaction. In SQL, parameters are written ? or ?1, one kind in a query, whatever the
// engine's own way is.
type Conn interface {
	// Query calls fn for each row of the result. fn must not use the connection, nor retain the row. Its error
	// ends the query and is returned.
	Query(query string, fn func(Row) error, args ...any) error
	// Dialect states in what the SQL of the engine, and the content of this store, differ.
	Dialect() *Dialect
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
	// FilterParts calls fn with ranges of parts by [Dialect.Stored], the last parts first, that together have all
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

// Dialect is in what engines differ where they share SQL.
type Dialect struct {
	// Foreign reports that the store has the three canonical tables only: another program wrote it. Unobserved
	// reports that it has no observations: an early version wrote it.
	Foreign, Unobserved bool
	// Distributed reports that rows are distributed over several nodes: there are no recursive queries.
	Distributed bool
	// Unannotated reports that it has no annotations: an early version or another program wrote it.
	Unannotated bool
	// SessionColumns and PartColumns are the columns of a session s and a part p, NULL for those that an old file
	// lacks.
	SessionColumns, PartColumns string
	// SameSession is a condition beside the join of a message with what is of it, beginning with AND: an engine that
	// distributes sessions over nodes has to know that the rows are of one. "" for a file, where another program may
	// have written something else.
	SameSession func(a, b string) string
	// NoSession is a condition: there is no session with the id in a column.
	NoSession func(column string) string

	// Stored is the column of chat_sessions and chat_parts that orders rows by when they were stored.
	Stored string
	// Index follows a table that is to be read by an index, NoIndex one that is to be read from its beginning
	// to its end. An engine that needs no such hints leaves out both.
	Index   func(name string) string
	NoIndex string
	// Contains is a condition: a text contains a literal.
	Contains func(column, literal string) string
	// Find is the function that finds where a text, the first argument, contains another: 0 if it does not.
	Find string
	// MayContain is a condition: a text in lower case, of which ASCII counts only, contains the parameter. It
	// saves sending rows from a server that Go code would leave out. "" where there is no server.
	MayContain func(column, param string) string
	// JSON is the text at a path of keys in a column of JSON, NULL where there is none or the column has no JSON.
	// JSONInt is the whole number there, and 0 or 1 for a boolean.
	JSON, JSONInt func(column string, path ...string) string
	// Elements follows FROM for the texts of a list in a column of JSON: the column value of a table with a name.
	Elements func(column, name string) string
	// Greatest is the function for the greatest of several values.
	Greatest string
	// PutRequested notes which index a part of a message requested: its parameters are the ids of both and the index.
	PutRequested string
	// Opens is the condition for an observation to open a turn, as the indexes have it.
	Opens string
	// SpanTimes selects the columns of [SpanTimeTable], by a trace and a source.
	SpanTimes string
}

// touch notes in the outbox when a session changed: later than before, whatever the clock says.
func (d *Dialect) touch() string {
	return `INSERT INTO export_outbox(session_id, touched_at) VALUES (?, ?) ON CONFLICT (session_id)
 DO UPDATE SET touched_at = ` + d.Greatest + `(excluded.touched_at, export_outbox.touched_at + 1)`
}

// Having returns the dialect for tables chat_sessions and chat_parts that have these columns only, as an earlier
// version or another program made them.
func (d Dialect) Having(sessions, parts []string) Dialect {
	d.SessionColumns = SessionTable.Prefixed("s.", SessionTable.without(sessions)...)
	d.PartColumns = PartTable.Prefixed("p.", PartTable.without(parts)...)
	return d
}

// rowsOf returns every row of a query that selects the columns of a table.
func rowsOf[R any](conn Conn, t *Table[R], query string, args ...any) ([]R, error) {
	var rows []R
	err := conn.Query(query, func(row Row) error {
		rows = append(rows, *new(R))
		return t.Scan(row, &rows[len(rows)-1])
	}, args...)
	return rows, err
}

// first calls scan with the row of a query that has one at most, and reports whether it has.
func first(conn Conn, query string, scan func(Row), args ...any) (found bool, err error) {
	err = conn.Query(query, func(row Row) error {
		scan(row)
		found = true
		return nil
	}, args...)
	return found, err
}

// texts returns the first column of a query's rows.
func texts(conn Conn, query string, args ...any) (all []string, err error) {
	err = conn.Query(query, func(row Row) error {
		all = append(all, row.ColumnText(0))
		return nil
	}, args...)
	return all, err
}

// number returns the first column of a query's one row.
func number(conn Conn, query string, args ...any) (n int64, err error) {
	_, err = first(conn, query, func(row Row) { n = row.ColumnInt64(0) }, args...)
	return n, err
}
