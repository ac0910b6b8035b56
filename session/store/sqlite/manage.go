package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"
)

// Compact implements [store.Compacter].
func (s *Store) Compact(ctx context.Context) error {
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
	if err != nil {
		return openError(s.path, err)
	}
	conn.SetInterrupt(ctx.Done())
	err = execute(conn, "PRAGMA busy_timeout = 5000", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
	if err = cmp.Or(err, conn.Close()); err != nil {
		return classify(fmt.Errorf("compact store %s: %w", s.path, err))
	}
	return nil
}

// backupPages is how many pages are copied before ctx is looked at.
const backupPages = 1024

// Backup implements [store.Backuper]. It copies pages: VACUUM INTO may number rows anew, by which the search index knows
// parts, and a backup may take the place of the store that the index is of.
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
		pages, err := pragmaInt(conn, "page_count")
		free, freeErr := pragmaInt(conn, "freelist_count")
		page, sizeErr := pragmaInt(conn, "page_size")
		size = (pages - free) * page
		return errors.Join(err, freeErr, sizeErr)
	})
	return size, err
}
