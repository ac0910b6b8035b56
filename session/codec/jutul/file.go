package jutul

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// FileName is what jutul-agent calls the trace in a session's directory.
const FileName = "trace.sqlite"

const schema = `
CREATE TABLE events (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	timestamp    TEXT NOT NULL,
	kind         TEXT NOT NULL,
	payload_json TEXT NOT NULL
);
CREATE INDEX events_kind_idx ON events (kind);`

// DecodeFile reads the trace at path, which may be a session's directory with a
// [FileName] in it. It yields one session, as a trace holds one. It does not
// write to the file, which jutul-agent may be writing meanwhile.
//
// Edge cases:
//   - a session without an event that names it gets an id derived from its first
//     event; a trace without events gives a session without messages;
//   - what cannot be read of an event is kept as text and reported;
//   - where the file is damaged, the events before the damage are read and the
//     rest is reported; when none can be read, that is an error;
//   - a file that is not an SQLite database, or has no table events, is an error.
//
// The sequence can be ranged over once. The caller owns what it yields.
func DecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		file := path
		if info, err := os.Stat(path); err != nil {
			return fmt.Errorf("open trace: %w", err)
		} else if info.IsDir() {
			file = filepath.Join(path, FileName)
		}
		conn, err := rows.OpenDatabase(file)
		if err != nil {
			return fmt.Errorf("open trace %s: %w", file, err)
		}
		var p parser
		if err = errors.Join(readEvents(conn, p.add), conn.Close()); err != nil {
			if len(p.parsed) == 0 {
				return fmt.Errorf("read trace %s: %w", file, err)
			}
			report(codec.Problem{Record: fmt.Sprintf("event %d", p.parsed[len(p.parsed)-1].id),
				Reason: fmt.Sprintf("the last that could be read: %v", err)})
		}
		yield(p.decode(report))
		return nil
	})
}

// readEvents calls fn with the events up to the error, if there is one.
func readEvents(conn *sqlite.Conn, fn func(event)) error {
	return sqlitex.ExecuteTransient(conn, "SELECT id, timestamp, kind, payload_json FROM events ORDER BY id",
		&sqlitex.ExecOptions{
			ResultFunc: func(row *sqlite.Stmt) error {
				fn(event{id: row.ColumnInt64(0), timestamp: row.ColumnText(1), kind: row.ColumnText(2),
					payload: row.ColumnText(3)})
				return nil
			},
		})
}

// EncodeFile writes the session as a trace to path, which must not exist. The
// file is there whole or not at all. Like jutul-agent's own it is in WAL mode, so
// whoever reads it must be able to write in its directory.
//
// EncodeFile refuses rows without an id or under a row that they do not name
// (see [session.Transcript.CheckTree]).
func EncodeFile(path string, s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	if err := rows.CreateDatabase(path, func(temporary string) error {
		return writeEvents(temporary, encode(s))
	}); err != nil {
		return fmt.Errorf("write trace %s: %w", path, err)
	}
	return nil
}

func writeEvents(path string, events []event) (err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return err
	}
	// Closing the last connection moves the WAL into the file.
	defer func() { err = errors.Join(err, conn.Close()) }()
	defer sqlitex.Save(conn)(&err)
	if err := sqlitex.ExecuteScript(conn, schema, nil); err != nil {
		return err
	}
	for _, e := range events {
		err := sqlitex.Execute(conn, "INSERT INTO events (id, timestamp, kind, payload_json) VALUES (?, ?, ?, ?)",
			&sqlitex.ExecOptions{Args: []any{e.id, e.timestamp, e.kind, e.payload}})
		if err != nil {
			return err
		}
	}
	return nil
}
