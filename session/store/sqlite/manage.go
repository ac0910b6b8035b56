package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Compact implements [store.Compacter].
func (s *Store) Compact(ctx context.Context) (err error) {
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
	if err != nil {
		return openError(s.path, err)
	}
	defer func() {
		if closeErr := conn.Close(); err == nil && closeErr != nil {
			err = classify(fmt.Errorf("compact store %s: %w", s.path, closeErr))
		}
	}()
	conn.SetInterrupt(ctx.Done())
	for _, statement := range []string{"PRAGMA busy_timeout = 5000", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return classify(fmt.Errorf("compact store %s: %w", s.path, err))
		}
	}
	return nil
}

// backupPages is how many pages are copied before ctx is looked at.
const backupPages = 1024

// Backup implements [store.Backuper].
func (r *Reader) Backup(ctx context.Context, path string) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("back up to %s: %w", path, fs.ErrExist)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".agenttrace-*") // mode 0600, and short however long the name is
	if err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
	}
	partial := f.Name()
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(partial + suffix) // of a copy that is complete none is left
		}
	}()
	if err := f.Close(); err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
	}
	err = r.read(ctx, func(conn *sqlite.Conn) error { return copyDatabase(ctx, partial, conn) })
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // not what being interrupted looks like to SQLite
	}
	if err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
	}
	// Unlike Rename, Link fails where another has taken the name meanwhile.
	if err := os.Link(partial, path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("back up to %s: %w", path, fs.ErrExist)
	} else if err != nil {
		if err := os.Rename(partial, path); err != nil { // a file system without links
			return fmt.Errorf("back up to %s: %w", path, err)
		}
	}
	return nil
}

func copyDatabase(ctx context.Context, path string, from *sqlite.Conn) (err error) {
	to, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	backup, err := sqlite.NewBackup(to, "main", from, "main")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backup.Close()) }()
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if more, err = backup.Step(backupPages); err != nil {
			return err
		}
	}
	return nil
}

// Size implements [store.Sizer]: the pages that are not free.
func (s *Store) Size(ctx context.Context) (size int64, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		for i, pragma := range []string{"page_count", "freelist_count", "page_size"} {
			n, err := pragmaInt(conn, pragma)
			if err != nil {
				return err
			}
			switch i {
			case 0:
				size = n
			case 1:
				size -= n
			case 2:
				size *= n
			}
		}
		return nil
	})
	return size, err
}
