package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync/atomic"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// readers is how many connections a Reader keeps.
const readers = 4

// Reader reads a session store, agenttrace's own or one that the reference program wrote. It never writes to the file,
// except figures that [Reader.Stats] keeps where it can, and sees what other processes commit. It is safe for
// concurrent use.
type Reader struct {
	sqlstore.Reader
	*file
}

var (
	_ store.Reader   = (*Reader)(nil)
	_ store.Backuper = (*Reader)(nil)
)

// file is a store that is read.
type file struct {
	path    string
	info    os.FileInfo // as it was opened
	closed  atomic.Bool
	pool    *sqlitex.Pool
	dialect store.Dialect
	once    bool
}

// OpenReader opens the store at path for reading. It never creates the file: the error for one that is not there wraps
// store.ErrNotFound. Other errors are those of [Open].
func OpenReader(ctx context.Context, path string) (*Reader, error) { return openFile(ctx, path, false) }

// OpenOnce is [OpenReader] of a file that is read once: see [Undisturbed].
func OpenOnce(ctx context.Context, path string) (*Reader, error) { return openFile(ctx, path, true) }

func openFile(ctx context.Context, path string, once bool) (*Reader, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	f := &file{path: path, once: once}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	return &Reader{sqlstore.NewReader(f), f}, nil
}

// Name implements [store.Reader]: it is the path.
func (r *Reader) Name() string { return r.path }

// Path returns the path that the reader was opened with.
func (r *Reader) Path() string { return r.path }

// Close closes the reader's connections.
func (r *Reader) Close() error {
	if !r.closed.CompareAndSwap(false, true) {
		return nil
	}
	err := r.pool.Close()
	files.connect(-1)
	return err
}

// Name implements [sqlstore.Source].
func (f *file) Name() string { return f.path }

// Read implements [sqlstore.Source].
func (f *file) Read(ctx context.Context, fn func(sqlstore.Conn) error) error {
	return f.read(ctx, func(conn *sqlite.Conn) error { return fn(&tx{conn: conn, dialect: &f.dialect, file: f}) })
}

// InPlace returns an error when the path does not lead to the file that is open any more. What is read of that file
// then, nobody finds who opens the path, and what is written is lost.
func (f *file) InPlace() error {
	if info, err := os.Stat(f.path); err != nil || !os.SameFile(info, f.info) {
		return fmt.Errorf("%w: the file was moved or replaced; put it back or restart", store.ErrUnavailable)
	}
	return nil
}

// Keep implements [sqlstore.Keeper], with a connection of its own.
func (f *file) Keep(ctx context.Context, fn func(sqlstore.Tx) error) (err error) {
	conn, err := sqlite.OpenConn(f.path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetInterrupt(ctx.Done())
	if err := execute(conn, "PRAGMA busy_timeout = 1000", "PRAGMA foreign_keys = ON"); err != nil {
		return err
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	return fn(&tx{conn: conn, dialect: &f.dialect})
}

// read runs fn with a connection, in one read transaction.
func (f *file) read(ctx context.Context, fn func(*sqlite.Conn) error) (err error) {
	if f.closed.Load() {
		return fmt.Errorf("read store %s: %w", f.path, store.ErrClosed)
	}
	if err := f.InPlace(); err != nil {
		return fmt.Errorf("read store %s: %w", f.path, err)
	}
	conn, err := f.pool.Take(ctx)
	if err != nil {
		return openError(f.path, err)
	}
	defer f.pool.Put(conn)
	defer sqlitex.Transaction(conn)(&err)
	if err := fn(conn); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

func (f *file) open(ctx context.Context) (err error) {
	if f.info, err = os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open store %s: %w: no such file", f.path, store.ErrNotFound)
	} else if err != nil {
		return classifyFile(fmt.Errorf("open store %s: %w", f.path, err))
	}
	if err := checkRegular(f.path); err != nil {
		return err
	}
	opened, err := files.open(f.path)
	if err != nil {
		return classifyFile(fmt.Errorf("open store %s: %w", f.path, err))
	}
	err = checkHeader(f.path, opened)
	files.close(opened)
	if err == nil {
		address, flags := f.path, sqlite.OpenReadOnly
		if f.once {
			address, flags = Undisturbed(f.path)
		}
		err = f.openPool(ctx, address, flags)
	}
	if err == nil || !isCantOpen(err) {
		return err
	}
	// A file in WAL mode cannot be opened where its -shm cannot be made, as in a read-only directory.
	if address, flags := Undisturbed(f.path); address != f.path {
		return f.openPool(ctx, address, flags)
	}
	return err
}

// Undisturbed returns how to open a database of another program for reading. One in WAL mode that no program has open
// is read as it lies there, because a connection that only reads would leave a -wal and a -shm beside it.
func Undisturbed(path string) (address string, flags sqlite.OpenFlags) {
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + suffix); err == nil {
			return path, sqlite.OpenReadOnly
		}
	}
	head := make([]byte, 20)
	if f, err := os.Open(path); err == nil {
		_, _ = f.Read(head)
		f.Close()
	}
	if head[19] != 2 { // another mode
		return path, sqlite.OpenReadOnly
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "immutable=1"}).String(),
		sqlite.OpenReadOnly | sqlite.OpenURI
}

func isCantOpen(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCantOpen, sqlite.ResultReadOnly:
		return true
	}
	return false
}

// errEmpty is the error for a file that has no tables, such as one that its writer has just made.
var errEmpty = fmt.Errorf("%w: the database is empty; name another file", store.ErrNotStore)

func (f *file) openPool(ctx context.Context, uri string, flags sqlite.OpenFlags) error {
	pool, err := sqlitex.NewPool(uri, sqlitex.PoolOptions{
		Flags: flags, PoolSize: readers,
		PrepareConn: func(conn *sqlite.Conn) error {
			return execute(conn, busyTimeout, "PRAGMA cache_size = -16384")
		},
	})
	if err != nil {
		return openError(f.path, err)
	}
	conn, err := pool.Take(ctx)
	if err == nil {
		err = f.look(conn)
		pool.Put(conn)
	}
	if err != nil {
		pool.Close()
		if errors.Is(err, store.ErrNotStore) || errors.Is(err, store.ErrNewer) {
			return err
		}
		return openError(f.path, err)
	}
	f.pool = pool
	files.connect(+1)
	return nil
}

// look finds out what the file has, and refuses one that is no store.
func (f *file) look(conn *sqlite.Conn) error {
	if err := checkOurs(conn, f.path, false); err != nil {
		return err
	}
	tables, err := names(conn, `SELECT name FROM sqlite_schema WHERE name IN ('agenttrace_schema', 'chat_sessions')`)
	if err != nil {
		return err
	} else if len(tables) == 0 {
		return fmt.Errorf("open store %s: %w", f.path, errEmpty)
	}
	f.dialect, err = dialectOf(conn, tables)
	return err
}

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
