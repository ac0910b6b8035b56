package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
)

// prep returns a statement with its parameters bound. The connection caches statements by their text.
func prep(conn *sqlite.Conn, query string, args ...any) *sqlite.Stmt {
	stmt := conn.Prep(query)
	bind(stmt, args)
	return stmt
}

// bind binds parameters in their order.
func bind(stmt *sqlite.Stmt, args []any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			stmt.BindText(1+i, v)
		case int64:
			stmt.BindInt64(1+i, v)
		case int:
			stmt.BindInt64(1+i, int64(v))
		case float64:
			stmt.BindFloat(1+i, v)
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
