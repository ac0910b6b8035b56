// Package database opens the SQLite databases in which other programs keep their
// sessions.
package database

import (
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// wait is how long a reader waits for a program that is writing.
const wait = 5 * time.Second

// Open opens the database at path for reading. It writes nothing beside it, and another
// process may be writing it. The caller closes the connection. An error is one of the
// file system, or of a file that is no database.
func Open(path string) (*sqlite.Conn, error) {
	if err := checkHeader(path); err != nil {
		return nil, err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err == nil {
		conn.SetBusyTimeout(wait)
		// Only a look into the file tells whether it can be read.
		if err = sqlitex.ExecuteTransient(conn, "SELECT 1 FROM sqlite_schema", nil); err == nil {
			return conn, nil
		}
		err = errors.Join(err, conn.Close())
	}
	// A file in WAL mode cannot be opened where its -shm cannot be made, as in a
	// read-only directory. Without a -wal nobody is writing it.
	if _, statErr := os.Stat(path + "-wal"); !errors.Is(statErr, fs.ErrNotExist) {
		return nil, err
	}
	uri := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "immutable=1"}).String()
	return sqlite.OpenConn(uri, sqlite.OpenReadOnly|sqlite.OpenURI)
}

// checkHeader refuses a file that is something else; an empty one is.
func checkHeader(path string) error {
	const magic = "SQLite format 3\x00"
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	header := make([]byte, len(magic))
	if n, err := io.ReadFull(f, header); string(header[:n]) != magic {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		return errors.New("not an SQLite database")
	}
	return nil
}
