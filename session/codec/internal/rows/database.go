package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// lockWait is how long a reader waits for a program that is writing.
const lockWait = 5 * time.Second

// OpenDatabase opens the database at path for reading. It leaves nothing beside it, and another process may be writing
// it. The caller closes the connection. An error is one of the file system, or of a file that is not a database.
func OpenDatabase(path string) (*sqlite.Conn, error) {
	if ok, err := IsDatabase(path); err != nil || !ok {
		return nil, cmp.Or(err, errors.New("not an SQLite database"))
	}
	address, flags := sqlitestore.Undisturbed(path)
	conn, err := sqlite.OpenConn(address, flags)
	if err != nil {
		return nil, err
	}
	conn.SetBusyTimeout(lockWait)
	// Only a look into the file reports whether it can be read.
	if err := sqlitex.ExecuteTransient(conn, "SELECT 1 FROM sqlite_schema", nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// QueryDatabase calls each for the rows of a query in the database at path, up to the error, if there is one.
func QueryDatabase(path, query string, each func(row *sqlite.Stmt)) error {
	conn, err := OpenDatabase(path)
	if err != nil {
		return err
	}
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		each(row)
		return nil
	}})
	return errors.Join(err, conn.Close())
}

// SnapshotDatabase is [OpenDatabase] for reading one state of the database, whatever is written meanwhile, until ctx
// ends.
func SnapshotDatabase(ctx context.Context, path string) (*sqlite.Conn, error) {
	conn, err := OpenDatabase(path)
	if err != nil {
		return nil, err
	}
	conn.SetInterrupt(ctx.Done())
	if err := sqlitex.ExecuteTransient(conn, "BEGIN", nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// CreateDatabase puts a database at path that fill writes to another name, in an empty directory of its own where
// whatever it leaves beside is gone afterwards. The file is there whole or not at all, and private to the user. The
// error for a path that is taken wraps fs.ErrExist.
func CreateDatabase(path string, fill func(temporary string) error) (err error) {
	taken := fmt.Errorf("%w: remove it or choose another path", fs.ErrExist)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	temporary := filepath.Join(dir, "new.db")
	if err := fill(temporary); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o600); err != nil {
		return err
	}
	if err := session.PlaceFile(temporary, path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return taken
}

// DatabaseHeader is how an SQLite database begins.
const DatabaseHeader = "SQLite format 3\x00"

// DatabaseFiles lists a directory, or a database with what SQLite keeps beside it.
func DatabaseFiles(path string) []string { return []string{path, path + "-wal", path + "-journal"} }

// IsDatabase reports whether the file at path is an SQLite database. An empty file is not.
func IsDatabase(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, int64(len(DatabaseHeader))))
	return string(head) == DatabaseHeader, err
}
