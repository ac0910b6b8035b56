package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
)

// Follower is a [store.Follower] of a file. It costs next to nothing as long as nobody writes.
type Follower struct {
	path    string
	reader  *Reader
	conn    *sqlite.Conn
	file    fs.FileInfo
	version int64
	// still reports that the file is read as it lies there, see file.open.
	still bool
}

// Follow returns a Follower of the store at path, which need not be there.
func Follow(path string) *Follower { return &Follower{path: path} }

// Poll implements [store.Follower]. A file that is no session store is an error, and so is whatever hinders reading; an
// empty file is one that its writer has just made, and counts as none.
func (f *Follower) Poll(ctx context.Context) (store.Reader, store.Change, error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, f.lose(), nil
	case err != nil:
		return nil, store.Unchanged, fmt.Errorf("follow store %s: %w", f.path, err)
	}
	if f.reader != nil && os.SameFile(info, f.file) {
		version, err := f.dataVersion()
		if err != nil {
			f.close()
			return nil, store.Unchanged, openError(f.path, err)
		}
		// A file that nobody keeps a log beside changes by itself.
		same := version == f.version && info.Size() == f.file.Size() && info.ModTime().Equal(f.file.ModTime())
		f.version, f.file = version, info
		switch {
		case same:
			return f.reader, store.Unchanged, nil
		case !f.still:
			return f.reader, store.Changed, nil
		}
	}
	lost := f.lose()
	if err := f.open(ctx); err != nil {
		f.close()
		if errors.Is(err, errEmpty) || errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		return nil, lost, err
	}
	f.file = info
	return f.reader, store.Opened, nil
}

func (f *Follower) open(ctx context.Context) (err error) {
	if f.reader, err = OpenReader(ctx, f.path); err != nil {
		return err
	}
	if f.conn, err = sqlite.OpenConn(f.path, sqlite.OpenReadOnly); err == nil {
		f.version, err = f.dataVersion()
	}
	if f.still = err != nil && isCantOpen(err); f.still {
		return nil
	} else if err != nil {
		return openError(f.path, err)
	}
	return nil
}

// dataVersion is a number that changes when another connection commits.
func (f *Follower) dataVersion() (int64, error) {
	if f.still {
		return 0, nil
	}
	return pragmaInt(f.conn, "data_version")
}

// lose closes what is open, and states what that means.
func (f *Follower) lose() store.Change {
	if f.reader == nil {
		return store.Unchanged
	}
	f.close()
	return store.Gone
}

func (f *Follower) close() {
	if f.reader != nil {
		f.reader.Close()
	}
	if f.conn != nil {
		f.conn.Close()
	}
	f.reader, f.conn, f.still = nil, nil, false
}

// Close closes the store.
func (f *Follower) Close() error {
	f.close()
	return nil
}
