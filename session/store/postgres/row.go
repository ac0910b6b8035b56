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
