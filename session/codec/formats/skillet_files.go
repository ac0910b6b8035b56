package formats

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// skilletDecodeFile reads the conversations in path: a state directory or one that holds it, a directory of logs, a
// log, or a store. A conversation that is in the logs and in the store is one session. Sessions come in the order of
// the logs' paths, then those that only the store has. A log that cannot be read is reported and left out.
func skilletDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		logs, store, err := skilletPlaces(path)
		var conversations []skilletConversation
		if err == nil && store != "" {
			conversations, err = skilletReadStore(store)
		}
		if err != nil {
			return err
		}
		seen := make(map[skilletNames]bool)
		for _, path := range logs {
			user, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
			name := skilletNames{strings.ToValidUTF8(user, "\uFFFD"),
				strings.ToValidUTF8(strings.TrimSuffix(file, ".jsonl"), "\uFFFD")}
			d := &skilletLogDecoder{key: name}
			d.Report, d.Place.File = report, filepath.ToSlash(filepath.Join(user, file))
			all, err := d.read(path, conversations)
			if err != nil {
				d.Place.Line = 0
				d.Problem("%v: the log was left out", err)
				continue
			}
			if seen[name] = true; !yield(all[0]) {
				return nil
			}
		}
		for _, c := range conversations {
			if !seen[c.key.sanitized()] && !yield(skilletDecodeItems(c.key, c.items, filepath.Base(store), report)) {
				break
			}
		}
		return nil
	})
}

// read reads the log with what the store has of it. Several names may be one in a path. Then the log is all of theirs,
// and the store of none of them reports it.
func (d *skilletLogDecoder) read(path string, conversations []skilletConversation) ([]*codec.Session, error) {
	text, err := codec.ReadFile(path)
	if err != nil {
		return nil, err
	}
	same := slices.DeleteFunc(slices.Clone(conversations), func(c skilletConversation) bool {
		return c.key.sanitized() != d.key
	})
	if len(same) == 1 {
		d.key, d.store = same[0].key, skilletNewGuide(same[0].items)
	} else if len(same) > 1 {
		d.Problem("%d conversations of the store have this log: none of them was read with it", len(same))
	}
	return d.decode(text)
}

// skilletPlaces finds the logs and the store in path.
func skilletPlaces(path string) (logs []string, store string, err error) {
	info, err := os.Stat(path)
	isStore := false
	if err == nil && !info.IsDir() {
		isStore, err = rows.IsDatabase(path)
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read conversations: %w", err)
	case isStore:
		return nil, path, nil
	case !info.IsDir():
		return []string{path}, "", nil
	}
	logsIn := func(dir string) []string {
		names, _ := filepath.Glob(filepath.Join(GlobEscape(dir), "*", "*.jsonl")) // none, if it cannot be read
		return names
	}
	for _, sub := range []string{".", "state", ".skilled-agent/state"} {
		root := filepath.Join(path, sub)
		database := filepath.Join(root, skilletDatabaseFile)
		if info, err := os.Stat(database); err == nil && info.Mode().IsRegular() && store == "" {
			store = database
		}
		logs = append(logs, logsIn(filepath.Join(root, skilletLogsDir))...)
	}
	if logs == nil && store == "" {
		logs = logsIn(path)
	}
	if logs == nil && store == "" {
		return nil, "", fmt.Errorf("%s: no conversation in it: want a directory with %s or %s", path, skilletLogsDir,
			skilletDatabaseFile)
	}
	return logs, store, nil
}

const skilletSchema = `
CREATE TABLE IF NOT EXISTS session_items (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	user_id TEXT NOT NULL,
	session_name TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	item_json TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_session ON session_items (user_id, session_name, created_at);
`

// skilletConversation is what the store has of one.
type skilletConversation struct {
	key   skilletNames
	items []skilletItem
}

// skilletReadStore returns the conversations of the store in order of their names.
func skilletReadStore(path string) (all []skilletConversation, err error) {
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	const query = `SELECT id, user_id, session_name, created_at, item_json FROM session_items
		ORDER BY user_id, session_name, created_at, id`
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		key := skilletNames{strings.ToValidUTF8(stmt.ColumnText(1), "\uFFFD"),
			strings.ToValidUTF8(stmt.ColumnText(2), "\uFFFD")}
		if len(all) == 0 || all[len(all)-1].key != key {
			all = append(all, skilletConversation{key: key})
		}
		c := &all[len(all)-1]
		c.items = append(c.items, skilletItem{stmt.ColumnInt64(0), stmt.ColumnInt64(3), stmt.ColumnText(4)})
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("read session_items of %s: %w", path, err)
	}
	return all, nil
}

// skilletWriteStore adds a conversation to the store, which is made when it is not there, or replaces the one of its
// names. All of it is written, or nothing, as with an error of last, which is called in the end.
func skilletWriteStore(path string, c skilletConversation, replace bool, last func() error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// SQLite would make a file that others can read. One that is there keeps its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err = sqlitex.ExecuteScript(conn, skilletSchema, nil); err != nil {
		return err
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	there := false
	execute := func(query string, args ...any) {
		if err == nil {
			err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
				Args:       append([]any{c.key.UserID, c.key.SessionName}, args...),
				ResultFunc: func(*sqlite.Stmt) error { there = true; return nil }})
		}
	}
	if replace {
		execute(`DELETE FROM session_items WHERE user_id = ? AND session_name = ?`)
	}
	execute(`SELECT 1 FROM session_items WHERE user_id = ? AND session_name = ? LIMIT 1`)
	if there {
		return fmt.Errorf("session %q of user %q: %w", c.key.SessionName, c.key.UserID, fs.ErrExist)
	}
	for _, i := range c.items {
		execute(`INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`, i.at, i.text)
	}
	if err == nil {
		err = last()
	}
	return err
}

// skilletEncodeFile writes the session: to a store when path ends in .sqlite, and otherwise to a log and a store in a
// state directory, which is made when it is not there. A session without a turn has no log there. It has the names that
// it was read with, or else those of "skillet" and its id.
//
// A log that exists, or a conversation that the store has, is replaced if replace is set, and with an error it is as it
// was. Otherwise it gives an error that is [os.ErrExist].
func skilletEncodeFile(path string, s *codec.Session, replace bool) (err error) {
	defer wrapWriting(s, &err)
	if err := s.CheckTree(); err != nil {
		return err
	}
	c := skilletConversation{skilletNamesOf(&s.Session), skilletItemsOf(s.Transcript)}
	if filepath.Ext(path) == ".sqlite" {
		return skilletWriteStore(path, c, replace, func() error { return nil })
	}
	safe := c.key.sanitized()
	log := filepath.Join(path, skilletLogsDir, safe.UserID, safe.SessionName+".jsonl")
	before, absent := os.ReadFile(log)
	switch {
	case errors.Is(absent, fs.ErrNotExist):
	case !replace:
		return &fs.PathError{Op: "create", Path: log, Err: fs.ErrExist}
	case absent != nil:
		return absent
	}
	placed := false
	// The log takes its place when the store has all but committed, so that there are both or none.
	err = skilletWriteStore(filepath.Join(path, skilletDatabaseFile), c, replace, func() error {
		if len(skilletTurnsOf(s.Transcript)) == 0 { // skillet makes a log with its first entry
			return os.RemoveAll(log)
		}
		err := os.MkdirAll(filepath.Dir(log), 0o700)
		if err == nil {
			err = rows.ReplaceFiles(rows.File{Path: log, Text: skilletEncode(s)})
		}
		placed = err == nil
		return err
	})
	// The commit of the store may fail after the log is written. Then the log is put back, or a conversation would be
	// in the log alone, and a second attempt be refused because the log exists.
	switch {
	case err == nil || !placed:
		return err
	case absent != nil:
		return errors.Join(err, os.RemoveAll(log))
	}
	return errors.Join(err, rows.ReplaceFiles(rows.File{Path: log, Text: before}))
}
