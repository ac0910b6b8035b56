package skillet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

const schema = `
CREATE TABLE IF NOT EXISTS session_items (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	user_id TEXT NOT NULL,
	session_name TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	item_json TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_session ON session_items (user_id, session_name, created_at);
`

// conversation is what the store has of one.
type conversation struct {
	key   names
	items []item
}

const selectItems = `SELECT id, user_id, session_name, created_at, item_json FROM session_items
	ORDER BY user_id, session_name, created_at, id`

// readStore returns the conversations of the store in order of their names.
func readStore(path string) (all []conversation, err error) {
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = sqlitex.ExecuteTransient(conn, selectItems, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		key := names{strings.ToValidUTF8(stmt.ColumnText(1), "\uFFFD"),
			strings.ToValidUTF8(stmt.ColumnText(2), "\uFFFD")}
		if len(all) == 0 || all[len(all)-1].key != key {
			all = append(all, conversation{key: key})
		}
		c := &all[len(all)-1]
		c.items = append(c.items, item{stmt.ColumnInt64(0), stmt.ColumnInt64(3), stmt.ColumnText(4)})
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("read session_items of %s: %w", path, err)
	}
	slices.SortStableFunc(all, func(a, b conversation) int {
		return cmp.Or(cmp.Compare(a.key.UserID, b.key.UserID), cmp.Compare(a.key.SessionName, b.key.SessionName))
	})
	return all, nil
}

const (
	countItems  = `SELECT count(*) FROM session_items WHERE user_id = ? AND session_name = ?`
	deleteItems = `DELETE FROM session_items WHERE user_id = ? AND session_name = ?`
	insertItem  = `INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`
)

// writeStore adds a conversation to the store, which is made when it is not there,
// or replaces the one of its names. All of it is written, or nothing, as with an error
// of last, which is called in the end.
func writeStore(path string, c conversation, replace bool, last func() error) (err error) {
	// SQLite would make a file that others can read. One that is there keeps its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := sqlitex.ExecuteScript(conn, schema, nil); err != nil {
		return fmt.Errorf("make session_items in %s: %w", path, err)
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer end(&err)
	key := []any{c.key.UserID, c.key.SessionName}
	if replace {
		if err := sqlitex.Execute(conn, deleteItems, &sqlitex.ExecOptions{Args: key}); err != nil {
			return fmt.Errorf("write session_items of %s: %w", path, err)
		}
	}
	there := int64(0)
	err = sqlitex.Execute(conn, countItems, &sqlitex.ExecOptions{
		Args:       key,
		ResultFunc: func(stmt *sqlite.Stmt) error { there = stmt.ColumnInt64(0); return nil },
	})
	switch {
	case err != nil:
		return fmt.Errorf("read session_items of %s: %w", path, err)
	case there > 0:
		return fmt.Errorf("write %s: session %q of user %q: %w", path, c.key.SessionName, c.key.UserID, fs.ErrExist)
	}
	for _, i := range c.items {
		err := sqlitex.Execute(conn, insertItem, &sqlitex.ExecOptions{Args: append(key[:2:2], i.at, i.text)})
		if err != nil {
			return fmt.Errorf("write session_items of %s: %w", path, err)
		}
	}
	return last()
}
