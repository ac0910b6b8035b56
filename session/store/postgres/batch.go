package postgres

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agenttrace/agenttrace/session/store"
)

// batch implements [store.Statements]: it collects statements, which are sent together and answered together.
type batch struct {
	pgx.Batch
	tx *tx
}

// errRefusedRow ends a batch whose transaction the server has given up for a row. The row has its Refused.
var errRefusedRow = errors.New("a row was refused")

// add adds a statement in PostgreSQL's own spelling. result reads what it returned.
func (b *batch) add(result func(pgx.BatchResults) error, query string, args ...any) {
	b.Queue(query, args...).Fn = result
}

// Select implements [store.Statements].
func (b *batch) Select(query string, fn func(store.Row) error, args ...any) {
	b.add(func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		return each(rows, fn)
	}, numbered(query), args...)
}

// SelectKeys implements [store.Statements]: by one statement, which has the values of each column as a list.
func (b *batch) SelectKeys(query string, fn func(store.Row) error, columns ...[]string) {
	query = numbered(query)
	args := make([]any, len(columns))
	for i, values := range columns {
		param := "$" + strconv.Itoa(i+1)
		query = strings.Replace(query, "= "+param, "= ANY("+param+"::text[])", 1)
		args[i] = values
	}
	b.Select(query, fn, args...)
}

// Exec implements [store.Statements].
func (b *batch) Exec(query string, args ...any) {
	b.add(func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return err
	}, numbered(query), args...)
}

// Put implements [store.Statements]. A row that the server refuses with an error ends the transaction, and so the
// batch.
func (b *batch) Put(refused *error, query string, args ...any) {
	if refused == nil {
		b.Exec(query, args...)
		return
	}
	b.add(func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		switch {
		case isRefused(err):
			*refused = fmt.Errorf("%w: %w", store.ErrRefused, err)
			return errRefusedRow
		case err == nil && tag.RowsAffected() == 0:
			*refused = store.ErrRefused // another row is in its place, or it is gone
		}
		return err
	}, numbered(query), args...)
}

// Dialect implements [store.Statements].
func (b *batch) Dialect() *store.Dialect { return b.tx.dialect }

// Stamps implements [store.Statements].
func (b *batch) Stamps() (files, spans int64) { return b.tx.files, b.tx.spans }

// Name implements [store.Statements].
func (b *batch) Name(kind store.NameKind, names ...string) { b.tx.needed.add(kind, names...) }

// each calls fn for each row of a result.
func each(rows pgx.Rows, fn func(store.Row) error) error {
	r := &row{fields: rows.FieldDescriptions()}
	for rows.Next() {
		r.values = rows.RawValues()
		if err := fn(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// row is a row of a result as the server sent it. Its values are valid until the next row.
type row struct {
	fields []pgconn.FieldDescription
	values [][]byte
}

var _ store.Row = (*row)(nil)

// ColumnIsNull implements [store.Row], and so do the other methods.
func (r *row) ColumnIsNull(i int) bool { return r.values[i] == nil }

func (r *row) ColumnLen(i int) int { return len(r.values[i]) }

func (r *row) ColumnBytes(i int, buf []byte) int { return copy(buf, r.values[i]) }

func (r *row) ColumnText(i int) string {
	if r.fields[i].DataTypeOID == pgtype.BoolOID {
		return strconv.FormatInt(r.ColumnInt64(i), 10)
	}
	return string(r.values[i])
}

func (r *row) ColumnInt(i int) int { return int(r.ColumnInt64(i)) }

func (r *row) ColumnBool(i int) bool { return r.ColumnInt64(i) != 0 }

func (r *row) ColumnInt64(i int) int64 {
	if r.fields[i].DataTypeOID == pgtype.BoolOID && string(r.values[i]) == "t" {
		return 1
	}
	n, err := strconv.ParseInt(string(r.values[i]), 10, 64)
	if err != nil {
		return int64(r.ColumnFloat(i))
	}
	return n
}

func (r *row) ColumnFloat(i int) float64 {
	f, _ := strconv.ParseFloat(string(r.values[i]), 64)
	return f
}

// asText has the server send numbers and booleans as text.
func asText(types *pgtype.Map) {
	for _, oid := range []uint32{pgtype.Int8OID, pgtype.Int4OID, pgtype.Int2OID, pgtype.Float8OID, pgtype.BoolOID} {
		if t, ok := types.TypeForOID(oid); ok {
			types.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: &pgtype.TextFormatOnlyCodec{Codec: t.Codec}})
		}
	}
}
