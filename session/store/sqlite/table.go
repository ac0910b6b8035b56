package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// table reads and writes the rows of a table. Its SQL, and which parameter or result has
// which field of a row, follow from the fields of the row's type: see [session.Columns].
type table[Row any] struct {
	columns session.Columns[Row]
	// list has the columns for a SELECT, byKey selects the row with a key.
	list, byKey string
	// insert, insertNew and update write a row that bind has bound. insertNew does nothing
	// if there is such a row. update changes the columns that may change, of the row with
	// the same key.
	insert, insertNew, update string
}

var (
	sessionTable  = newTable[session.Session]("chat_sessions", "id")
	messageTable  = newTable[session.Message]("chat_messages", "id", "session_id")
	partTable     = newTable[session.Part]("chat_parts", "id", "message_id", "session_id", "index")
	decisionTable = newTable[store.Decision]("permission_decisions", "id")
	spanTable     = newTable[store.SpanRef]("span_refs", "session_id,trace_id,span_id")
	blobTables    = map[store.BlobKind]*table[store.Blob]{
		store.BlobSystemPrompt: newTable[store.Blob](string(store.BlobSystemPrompt), "digest"),
		store.BlobToolCatalog:  newTable[store.Blob](string(store.BlobToolCatalog), "digest"),
	}
	indexTable       = newTable[store.RequestedIndex]("requested_indexes", "message_id,part_id")
	observationTable = newTable[store.ObservationRow]("observations", "trace_id,source")
	// Rows of observations are written with more columns than are read, or with fewer.
	reachingTable    = newTable[reachingRow]("observations", "trace_id,source")
	attributionTable = newTable[attributionRow]("observations", "trace_id,source", "usage_counter", "usage_proof")
	proofTable       = newTable[store.Proof]("observations", "trace_id,source")
)

// sessionColumns are those of a table that is named s in a query.
var sessionColumns = sessionTable.prefixed("s.")

type reachingRow struct {
	store.ObservationRow
	Reach int64 `column:"reach"`
}

type attributionRow struct {
	store.Attribution
	store.ObservationKey
}

// newTable returns the table of a name. key are the columns of its key, with commas between
// them, fixed others that an update leaves as they are.
func newTable[Row any](name, key string, fixed ...string) *table[Row] {
	t := &table[Row]{columns: session.ColumnsOf[Row]()}
	t.list = t.prefixed("")
	keys := strings.Split(key, ",")
	var set, where []string
	for i, column := range t.columns.Names() {
		assignment := fmt.Sprintf("%s=?%d", quoted(column), i+1)
		switch {
		case slices.Contains(keys, column):
			where = append(where, assignment)
		case !slices.Contains(fixed, column):
			set = append(set, assignment)
		}
	}
	values := strings.Repeat("?,", len(t.columns)-1) + "?"
	t.insert = "INSERT INTO " + name + "(" + t.list + ") VALUES (" + values + ")"
	t.insertNew = t.insert + " ON CONFLICT DO NOTHING"
	t.byKey = "SELECT " + t.list + " FROM " + name + " WHERE " + strings.ReplaceAll(key, ",", " = ? AND ") + " = ?"
	t.update = "UPDATE " + name + " SET " + strings.Join(set, ", ") + " WHERE " + strings.Join(where, " AND ")
	return t
}

// quoted is the name of a column in SQL.
func quoted(column string) string {
	if column == "index" {
		return `"index"`
	}
	return column
}

// prefixed is the list of columns for a SELECT, each with a prefix such as "s.", with NULL
// for those that are absent.
func (t *table[Row]) prefixed(prefix string, absent ...string) string {
	names := t.columns.Names()
	for i, column := range names {
		if names[i] = prefix + quoted(column); slices.Contains(absent, column) {
			names[i] = "NULL"
		}
	}
	return strings.Join(names, ", ")
}

// bind binds the columns of a row to parameters, in their order.
func (t *table[Row]) bind(stmt *sqlite.Stmt, row *Row) {
	for i := range t.columns {
		param := i + 1
		switch v := t.columns.Field(row, i).(type) {
		case *string:
			if t.columns[i].Optional && *v == "" {
				stmt.BindNull(param)
			} else {
				stmt.BindText(param, *v)
			}
		case **string:
			if *v == nil {
				stmt.BindNull(param)
			} else {
				stmt.BindText(param, **v)
			}
		case *int:
			stmt.BindInt64(param, int64(*v))
		case *int64:
			stmt.BindInt64(param, *v)
		case **int64:
			if *v == nil {
				stmt.BindNull(param)
			} else {
				stmt.BindInt64(param, **v)
			}
		case *float64:
			stmt.BindFloat(param, *v)
		case *bool:
			stmt.BindBool(param, *v)
		case *[]byte:
			stmt.BindBytes(param, *v)
		default:
			if text := t.columns.JSON(row, i); text != "" {
				stmt.BindText(param, text)
			} else {
				stmt.BindNull(param)
			}
		}
	}
}

// scan sets a row, which is zero, to the row of a SELECT that begins with the columns.
func (t *table[Row]) scan(stmt *sqlite.Stmt, row *Row) error {
	for i := range t.columns {
		switch v := t.columns.Field(row, i).(type) {
		case *string:
			*v = stmt.ColumnText(i)
		case **string:
			*v = textPtr(stmt, i)
		case *int:
			*v = stmt.ColumnInt(i)
		case *int64:
			*v = stmt.ColumnInt64(i)
		case **int64:
			*v = intPtr(stmt, i)
		case *float64:
			*v = stmt.ColumnFloat(i)
		case *bool:
			*v = stmt.ColumnBool(i)
		case *[]byte:
			*v = columnBytes(stmt, i, nil)
		default:
			if stmt.ColumnIsNull(i) {
				continue
			}
			if err := json.Unmarshal([]byte(stmt.ColumnText(i)), v); err != nil {
				return fmt.Errorf("read %s: %w", t.columns[i].Name, err)
			}
		}
	}
	return nil
}

// all returns every row of a query, one the row of a query that has one at most.
func (t *table[Row]) all(stmt *sqlite.Stmt) ([]Row, error) {
	var rows []Row
	err := each(stmt, func() error {
		rows = append(rows, *new(Row))
		return t.scan(stmt, &rows[len(rows)-1])
	})
	return rows, err
}

func (t *table[Row]) one(stmt *sqlite.Stmt) (*Row, error) {
	var found *Row
	err := each(stmt, func() error {
		found = new(Row)
		return t.scan(stmt, found)
	})
	return found, err
}

// get returns the row with a key, nil if there is none.
func (t *table[Row]) get(conn *sqlite.Conn, key ...any) (*Row, error) {
	return t.one(prep(conn, t.byKey, key...))
}

// put inserts or updates a row. It reports whether that changed anything: nothing is
// inserted where the row, or another in its place, is there.
func (t *table[Row]) put(conn *sqlite.Conn, row *Row, insert bool) (bool, error) {
	query := t.update
	if insert {
		query = t.insertNew
	}
	stmt := conn.Prep(query)
	t.bind(stmt, row)
	if err := exec(stmt); err != nil {
		return false, err
	}
	return conn.Changes() > 0, nil
}

// prep returns a statement with its parameters bound. The connection caches statements by
// their text.
func prep(conn *sqlite.Conn, query string, args ...any) *sqlite.Stmt {
	stmt := conn.Prep(query)
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			stmt.BindText(1+i, v)
		case int64:
			stmt.BindInt64(1+i, v)
		case int:
			stmt.BindInt64(1+i, int64(v))
		case bool:
			stmt.BindBool(1+i, v)
		case []byte:
			stmt.BindBytes(1+i, v)
		case nil:
			stmt.BindNull(1 + i)
		default:
			panic("sqlite: cannot bind a value of this type") // naming it would allocate every argument
		}
	}
	return stmt
}

// exec runs a statement that returns no rows.
func exec(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultConstraint, sqlite.ResultTooBig:
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return err
}

// each runs a query and calls fn for each row.
func each(stmt *sqlite.Stmt, fn func() error) error {
	for {
		row, err := stmt.Step()
		if err == nil && row {
			err = fn()
		}
		if err != nil || !row {
			if resetErr := stmt.Reset(); err == nil {
				err = resetErr
			}
			return err
		}
	}
}

// one returns the row of a query that has one at most, all every row.
func one[T any](stmt *sqlite.Stmt, scan func(*sqlite.Stmt) T) (*T, error) {
	var found *T
	err := each(stmt, func() error {
		row := scan(stmt)
		found = &row
		return nil
	})
	return found, err
}

func all[T any](stmt *sqlite.Stmt, scan func(*sqlite.Stmt) T) ([]T, error) {
	var rows []T
	err := each(stmt, func() error {
		rows = append(rows, scan(stmt))
		return nil
	})
	return rows, err
}

// nano returns the first column of the first row, if there is one; texts that of all rows.
func nano(stmt *sqlite.Stmt) (int64, bool, error) {
	found, err := one(stmt, func(stmt *sqlite.Stmt) int64 { return stmt.ColumnInt64(0) })
	if found == nil {
		return 0, false, err
	}
	return *found, true, err
}

func texts(stmt *sqlite.Stmt) ([]string, error) {
	return all(stmt, func(stmt *sqlite.Stmt) string { return stmt.ColumnText(0) })
}

func textPtr(stmt *sqlite.Stmt, col int) *string {
	if stmt.ColumnIsNull(col) {
		return nil
	}
	s := stmt.ColumnText(col)
	return &s
}

func intPtr(stmt *sqlite.Stmt, col int) *int64 {
	if stmt.ColumnIsNull(col) {
		return nil
	}
	n := stmt.ColumnInt64(col)
	return &n
}
