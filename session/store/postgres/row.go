package postgres

import (
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agenttrace/agenttrace/session/store"
)

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
	if r.values[i] == nil {
		return ""
	}
	switch r.fields[i].DataTypeOID {
	case pgtype.Int8OID, pgtype.Int4OID, pgtype.Int2OID, pgtype.BoolOID:
		return strconv.FormatInt(r.ColumnInt64(i), 10)
	case pgtype.Float8OID, pgtype.Float4OID:
		return strconv.FormatFloat(r.ColumnFloat(i), 'g', -1, 64)
	}
	return string(r.values[i])
}

func (r *row) ColumnInt(i int) int { return int(r.ColumnInt64(i)) }

func (r *row) ColumnBool(i int) bool { return r.ColumnInt64(i) != 0 }

// scan reads a value of the server's type, and leaves dst if it is NULL.
func (r *row) scan(i int, dst any) {
	if r.values[i] != nil {
		_ = types.Scan(r.fields[i].DataTypeOID, r.fields[i].Format, r.values[i], dst)
	}
}

var types = pgtype.NewMap()

func (r *row) ColumnInt64(i int) (n int64) {
	switch r.fields[i].DataTypeOID {
	case pgtype.Int8OID, pgtype.Int4OID, pgtype.Int2OID:
		r.scan(i, &n)
	case pgtype.BoolOID:
		var is bool
		if r.scan(i, &is); is {
			n = 1
		}
	case pgtype.Float8OID, pgtype.Float4OID:
		n = int64(r.ColumnFloat(i))
	default:
		n, _ = strconv.ParseInt(string(r.values[i]), 10, 64)
	}
	return n
}

func (r *row) ColumnFloat(i int) (f float64) {
	switch r.fields[i].DataTypeOID {
	case pgtype.Float8OID, pgtype.Float4OID:
		r.scan(i, &f)
	case pgtype.Int8OID, pgtype.Int4OID, pgtype.Int2OID:
		f = float64(r.ColumnInt64(i))
	default:
		f, _ = strconv.ParseFloat(string(r.values[i]), 64)
	}
	return f
}
