package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
)

// output is where a command writes what it makes: standard output, or a file that
// appears only when it is whole and replaces none unless it is told to.
type output struct {
	path  string
	force bool
	// source is the path of the store that is read, which is never replaced.
	source string
	// isDatabase says that the file is a database, which another program may have open.
	isDatabase bool
}

// database is the same for a file that is a database.
func (o output) database() output {
	o.isDatabase = true
	return o
}

// write calls fn with standard output, where the path is none or "-", or with the
// file. json says that what is written is JSON.
func (o output) write(cmd *cobra.Command, path string, json bool, fn func(io.Writer) error) error {
	switch {
	case path != "" && path != "-":
		return o.file(path, fn)
	case json:
		return fn(jsonOutput(cmd))
	}
	return fn(cmd.OutOrStdout())
}

// file calls fn with the file of the path.
func (o output) file(path string, fn func(io.Writer) error) error {
	return o.place(path, func(temporary string) error {
		f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // prompts are sensitive
		if err != nil {
			return err
		}
		err = fn(f)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
}

// place has fn write a file under a name that nothing has, and gives it its own when
// it is whole.
func (o output) place(path string, fn func(temporary string) error) error {
	exists := usagef("write %s: it exists; choose another name or add --force", path)
	if sameFile(path, o.source) {
		return usagef("write %s: it is the store that is read; choose another name", path)
	}
	if _, err := os.Lstat(path); err == nil && !o.force {
		return exists
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return usagef("write %s: there is no directory %s; create it first", path, dir)
	}
	if o.isDatabase && hasLog(path) {
		return usagef("write %s: a program has the database open, or left its log there; choose another name", path)
	}
	room, err := os.MkdirTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.RemoveAll(room)
	// The name keeps its end, by which a format may go.
	temporary := filepath.Join(room, "new"+filepath.Ext(path))
	if err := fn(temporary); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if !o.force {
		// A link, unlike a rename, does not replace what appeared meanwhile. Where
		// the file system has no links, the look from before must do.
		switch err := os.Link(temporary, path); {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrExist):
			return exists
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// hasLog says whether the database at path has a log that another program needs.
func hasLog(path string) bool {
	log := path + "-wal"
	if _, err := os.Lstat(log); err != nil {
		return false
	}
	if _, err := os.Lstat(path); err == nil {
		_ = sqlitefile.Settle(path) // of what is no database the log stays
	}
	_, err := os.Lstat(log)
	return err == nil
}

// sameFile says whether two paths name one file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
