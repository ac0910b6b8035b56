package postgres

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"
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

func (r *row) ColumnInt64(i int) int64 {
	v, oid := r.values[i], r.fields[i].DataTypeOID
	switch {
	case v == nil:
		return 0
	case r.fields[i].Format == pgx.BinaryFormatCode && oid == pgtype.Int8OID:
		return int64(binary.BigEndian.Uint64(v))
	case r.fields[i].Format == pgx.BinaryFormatCode && oid == pgtype.Int4OID:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case r.fields[i].Format == pgx.BinaryFormatCode && oid == pgtype.Int2OID:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case oid == pgtype.BoolOID:
		if len(v) == 1 && (v[0] == 1 || v[0] == 't') {
			return 1
		}
		return 0
	case oid == pgtype.Float8OID:
		return int64(r.ColumnFloat(i))
	}
	n, _ := strconv.ParseInt(string(v), 10, 64)
	return n
}

func (r *row) ColumnFloat(i int) float64 {
	v, oid := r.values[i], r.fields[i].DataTypeOID
	switch {
	case v == nil:
		return 0
	case r.fields[i].Format == pgx.BinaryFormatCode && oid == pgtype.Float8OID:
		return math.Float64frombits(binary.BigEndian.Uint64(v))
	case oid == pgtype.Int8OID || oid == pgtype.Int4OID || oid == pgtype.Int2OID:
		return float64(r.ColumnInt64(i))
	}
	f, _ := strconv.ParseFloat(string(v), 64)
	return f
}
