package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session"
)

// Row is a row of a result. Columns count from 0. Text and numbers are converted where a column has another type
// than is asked for; NULL is the zero value. The methods are those of the SQLite driver's statement.
type Row interface {
	ColumnText(col int) string
	ColumnInt(col int) int
	ColumnInt64(col int) int64
	ColumnFloat(col int) float64
	// ColumnBool reports whether a number is not 0.
	ColumnBool(col int) bool
	ColumnIsNull(col int) bool
	// ColumnLen is the length of a text or of bytes, ColumnBytes copies as much of it as buf can hold and returns
	// how much that is.
	ColumnLen(col int) int
	ColumnBytes(col int, buf []byte) int
}

// Table reads and writes the rows of a table. Its SQL, and which parameter or result has which field of a row,
// follow from the fields of the row's type: see [session.Columns]. So neither has a list of columns of its own:
//
//	query := "SELECT " + store.PartTable().List + " FROM chat_parts WHERE message_id = ?"
//	…
//	var p session.Part
//	err := store.PartTable().Scan(row, &p) // row is the engine's
type Table[R any] struct{ tableSQL }

type tableSQL struct {
	Columns session.Columns
	// List has the columns for a SELECT, ByKey selects the row with a key, Delete deletes it.
	List, ByKey, Delete string
	// InsertNew inserts a row by its Values, unless there is such a row. Update changes the columns that may change, of
	// the row with the same key.
	InsertNew, Update string
	// updated are the columns that Update has as parameters, in their order.
	updated []int
}

// The tables whose rows are values of a type. Each is made when it is first asked for.
var (
	SessionTable  = newTable[session.Session]("chat_sessions", "id")
	MessageTable  = newTable[session.Message]("chat_messages", "id", "session_id")
	PartTable     = newTable[session.Part]("chat_parts", "id", "message_id", "session_id", "index")
	DecisionTable = newTable[Decision]("permission_decisions", "id")
	// AnnotationTable has keys that contain the session, so that an engine may place rows by it.
	AnnotationTable = newTable[Annotation]("annotations", "session_id,id")
	SpanTable       = newTable[SpanRef]("span_refs", "session_id,trace_id,span_id")
	BlobTables      = map[BlobKind]func() *Table[Blob]{
		BlobSystemPrompt: newTable[Blob](string(BlobSystemPrompt), "digest"),
		BlobToolCatalog:  newTable[Blob](string(BlobToolCatalog), "digest"),
	}
	SourceTable      = newTable[ImportSource]("import_sources", "path")
	IndexTable       = newTable[RequestedIndex]("requested_indexes", "message_id,part_id")
	ObservationTable = newTable[ObservationRow]("observations", "trace_id,source")
	// Rows of observations are written with more columns than are read, or with fewer.
	reachingTable    = newTable[reachingRow]("observations", "trace_id,source")
	attributionTable = newTable[attributionRow]("observations", "trace_id,source", "usage_counter", "usage_proof")
	unbuiltTable     = newTable[UnbuiltTurns]("unbuilt_turns", "owner")
	// What is read of observations by columns of its own.
	orphanTable     = newTable[orphanCall]("observations", "orphan_call")
	attrsTable      = newTable[sessionAttrs]("observations", "")
	attributedTable = newTable[attributedSpan]("observations", "")
	spanTimeTable   = newTable[spanTime]("observations", "trace_id,source")
	requestTable    = newTable[ObservationKey]("tool_call_requests", "")
)

// newTable returns the table of a name. key are the columns of its key, with commas between them, fixed others that
// an update leaves as they are.
func newTable[R any](name, key string, fixed ...string) func() *Table[R] {
	return sync.OnceValue(func() *Table[R] {
		return &Table[R]{tableOf(session.ColumnsOf[R](), name, strings.Split(key, ","), fixed)}
	})
}

func tableOf(columns session.Columns, name string, keys, fixed []string) tableSQL {
	t := tableSQL{Columns: columns}
	t.List = t.Prefixed("")
	var set, where []string
	for i, column := range columns.Names() {
		if slices.Contains(fixed, column) {
			continue
		}
		t.updated = append(t.updated, i)
		assignment := fmt.Sprintf("%s=?%d", quoted(column), len(t.updated))
		if slices.Contains(keys, column) {
			where = append(where, assignment)
		} else {
			set = append(set, assignment)
		}
	}
	values := strings.Repeat("?,", len(columns)-1) + "?"
	t.InsertNew = "INSERT INTO " + name + "(" + t.List + ") VALUES (" + values + ") ON CONFLICT DO NOTHING"
	byKey := " FROM " + name + " WHERE " + strings.Join(keys, " = ? AND ") + " = ?"
	t.ByKey, t.Delete = "SELECT "+t.List+byKey, "DELETE"+byKey
	t.Update = "UPDATE " + name + " SET " + strings.Join(set, ", ") + " WHERE " + strings.Join(where, " AND ")
	return t
}

// quoted is the name of a column in SQL.
func quoted(column string) string {
	if column == "index" {
		return `"index"`
	}
	return column
}

// Prefixed is the list of columns for a SELECT, each with a prefix such as "s.", with NULL for those that are absent.
func (t *tableSQL) Prefixed(prefix string, absent ...string) string {
	names := t.Columns.Names()
	for i, column := range names {
		if names[i] = prefix + quoted(column); slices.Contains(absent, column) {
			names[i] = "NULL"
		}
	}
	return strings.Join(names, ", ")
}

// without are the columns that are not among those.
func (t *tableSQL) without(columns []string) []string {
	return slices.DeleteFunc(t.Columns.Names(), func(name string) bool { return slices.Contains(columns, name) })
}

// Values are the values of the columns of a row, as parameters of InsertNew.
func (t *tableSQL) Values(row any) []any {
	values := make([]any, len(t.Columns))
	for i := range t.Columns {
		values[i] = t.Columns[i].Value(row)
	}
	return values
}

// put inserts or updates a row.
func (t *tableSQL) put(s Statements, row any, isNew bool, refused *error) {
	if isNew {
		s.Put(refused, t.InsertNew, t.Values(row)...)
		return
	}
	values := make([]any, len(t.updated))
	for i, column := range t.updated {
		values[i] = t.Columns[column].Value(row)
	}
	s.Put(refused, t.Update, values...)
}

// Scan sets a row, which is zero, to the row of a SELECT that begins with the columns.
func (t *Table[R]) Scan(from Row, row *R) error { return t.scan(from, row) }

func (t *tableSQL) scan(from Row, row any) error {
	for i := range t.Columns {
		switch v := t.Columns[i].Field(row).(type) {
		case *string:
			*v = from.ColumnText(i)
		case **string:
			*v = TextPtr(from, i)
		case *int:
			*v = from.ColumnInt(i)
		case *int64:
			*v = from.ColumnInt64(i)
		case **int64:
			if !from.ColumnIsNull(i) {
				n := from.ColumnInt64(i)
				*v = &n
			}
		case *float64:
			*v = from.ColumnFloat(i)
		case **float64:
			if !from.ColumnIsNull(i) {
				*v = new(from.ColumnFloat(i))
			}
		case *bool:
			*v = from.ColumnBool(i)
		case *[]byte:
			*v = Bytes(from, i, nil)
		default:
			if from.ColumnIsNull(i) {
				continue
			}
			if err := json.Unmarshal([]byte(from.ColumnText(i)), v); err != nil {
				return fmt.Errorf("read %s: %w", t.Columns[i].Name, err)
			}
		}
	}
	return nil
}

// AppendTo returns a function that appends the rows of a SELECT to some, for [Statements] and other queries.
func (t *Table[R]) AppendTo(rows *[]R) func(Row) error {
	return func(row Row) error {
		*rows = append(*rows, *new(R))
		return t.Scan(row, &(*rows)[len(*rows)-1])
	}
}

// TextPtr returns the text of a column, nil for NULL.
func TextPtr(from Row, col int) *string {
	if from.ColumnIsNull(col) {
		return nil
	}
	s := from.ColumnText(col)
	return &s
}

// Bytes reads a column into a buffer that is large enough, which may be buf.
func Bytes(from Row, col int, buf []byte) []byte {
	if n := from.ColumnLen(col); n > cap(buf) {
		buf = make([]byte, n)
	} else {
		buf = buf[:n]
	}
	from.ColumnBytes(col, buf)
	return buf
}

// Dialect is in what engines differ where they share SQL.
type Dialect struct {
	// Foreign reports that the store has the three canonical tables only: another program wrote it.
	Foreign bool
	// Distributed reports that rows are distributed over several nodes.
	Distributed bool
	// Unannotated reports that it has no annotations: an early version or another program wrote it.
	Unannotated bool
	// SessionColumns and PartColumns are the columns of a session s and a part p, NULL for those that an old file
	// lacks.
	SessionColumns, PartColumns string
	// AnnotationColumns are likewise those of annotations.
	AnnotationColumns string
	// SameSession is a condition beside the join of a message with what is of it, beginning with AND: an engine that
	// distributes sessions over nodes has to know that the rows are of one. "" for a file, where another program may
	// have written something else.
	SameSession func(a, b string) string
	// NoSession is a condition: there is no session with the id in a column.
	NoSession func(column string) string

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
	// Figures reports that the store keeps figures of sessions, in session_stats. NewRows selects the sessions of which
	// they may be out of date all the same, and SettleFigures are statements after which none is; both are empty where
	// that cannot be. ClaimFigures makes the row of a session, whose id is the parameter: until the end of the
	// transaction nobody changes the session unnoticed. A row without turns has no figures. Where NewRows is empty,
	// writers do so, too.
	Figures       bool
	NewRows       string
	SettleFigures []string
	ClaimFigures  string
	// SpanTimes selects the times of an observation by its trace and source: start_nano, end_nano, until_nano and
	// last_below.
	SpanTimes string
}

// Contains is a condition: a text contains a literal.
func (d *Dialect) Contains(column, literal string) string {
	return d.Find + "(" + column + ", '" + strings.ReplaceAll(literal, "'", "''") + "') > 0"
}

// Having returns the dialect for tables chat_sessions, chat_parts and annotations that have these columns only, as an
// earlier version or another program made them.
func (d Dialect) Having(sessions, parts, annotations []string) Dialect {
	d.SessionColumns = SessionTable().Prefixed("s.", SessionTable().without(sessions)...)
	d.PartColumns = PartTable().Prefixed("p.", PartTable().without(parts)...)
	d.AnnotationColumns = AnnotationTable().Prefixed("", AnnotationTable().without(annotations)...)
	d.Unannotated = len(annotations) == 0
	return d
}
