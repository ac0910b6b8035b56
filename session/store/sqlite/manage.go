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
	err = execute(conn, "PRAGMA busy_timeout = 5000", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
	if err != nil {
		return classify(fmt.Errorf("compact store %s: %w", s.path, err))
	}
	return nil
}

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
	defer os.Remove(partial) // a copy that is complete has another name
	if err := f.Close(); err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
	}
	if err = r.copyTo(ctx, partial); err != nil && ctx.Err() != nil {
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

// copyTo copies the database into an empty file, as one state of it.
func (r *Reader) copyTo(ctx context.Context, path string) error {
	conn, err := r.pool.Take(ctx)
	if err != nil {
		return err
	}
	defer r.pool.Put(conn)
	return sqlitex.ExecuteTransient(conn, "VACUUM INTO ?", &sqlitex.ExecOptions{Args: []any{path}})
}

// Size implements [store.Sizer]: the pages that are not free.
func (s *Store) Size(ctx context.Context) (size int64, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		pages, err := pragmaInt(conn, "page_count")
		free, freeErr := pragmaInt(conn, "freelist_count")
		page, sizeErr := pragmaInt(conn, "page_size")
		size = (pages - free) * page
		return errors.Join(err, freeErr, sizeErr)
	})
	return size, err
}
