package sqlite

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	// CanonicalVersion is PRAGMA user_version: that of the three tables, as the reference program counts it.
	CanonicalVersion = 3
	// SchemaVersion is that of the tables that agenttrace adds.
	SchemaVersion = 9
)

// Durability is what survives what.
const (
	// SynchronousNormal survives the death of the process; a power failure may take the last commits, never the file.
	SynchronousNormal = "normal"
	// SynchronousFull survives a power failure too.
	SynchronousFull = "full"
)

// Options configure a writer. The zero value is ready for use.
type Options struct {
	// Synchronous is SynchronousNormal when empty.
	Synchronous string
	// Outbox makes the store remember which sessions changed, for [Store.Outbox]; SpanOutbox, for [store.Store.Unsent].
	Outbox, SpanOutbox bool
	// MaxBytes limits the size of the file and of its log, which may exceed it by the changes of one transaction: a
	// commit beyond it fails with store.ErrUnavailable, as on a full disk. 0 means no limit.
	MaxBytes int64
}

// pageSize is that of a new file, in bytes. A part of a few KB fills a page of 8 KB badly: such a file is 15 % larger,
// and costs more CPU to write.
const pageSize = 16 << 10

// checkPath refuses a URI, which SQLite's own tools accept and the operating system would
// take for a path below the working directory.
func checkPath(path string) error {
	if scheme, _, ok := strings.Cut(path, ":"); ok && (scheme == "file" || strings.Contains(path, "://")) {
		return fmt.Errorf("open store %s: %w: a store is named by its path, not by a URI", path, store.ErrNotStore)
	}
	return nil
}

// busyTimeout has a connection wait for others, in milliseconds.
const busyTimeout = "PRAGMA busy_timeout = 5000"

// logPages is how many pages the write-ahead log has before they are copied into the file.
const logPages = 4000

// openWriter opens or creates the database at path, which the caller has locked, and returns the size in bytes up to
// which its log is to grow: in a file with a limit an eighth of that, if it is less.
func openWriter(ctx context.Context, path string, o Options) (_ *sqlite.Conn, log int64, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, 0, classify(fmt.Errorf("open store %s: %w", path, err))
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	conn.SetInterrupt(ctx.Done())
	defer conn.SetInterrupt(nil)
	synchronous := "NORMAL"
	if o.Synchronous == SynchronousFull {
		synchronous = "FULL"
	}
	// The page size must be set before the first table, and before WAL.
	if err := execute(conn, fmt.Sprintf("PRAGMA page_size = %d", pageSize), busyTimeout); err != nil {
		return nil, 0, openError(path, err)
	}
	if err := checkOurs(conn, path, true); err != nil {
		return nil, 0, err
	}
	err = execute(conn, "PRAGMA journal_mode = WAL", "PRAGMA synchronous = "+synchronous, "PRAGMA foreign_keys = ON",
		"PRAGMA secure_delete = ON", "PRAGMA cache_size = -16384",
		"PRAGMA temp_store = MEMORY")
	if err == nil {
		err = migrate(conn)
	}
	var size int64 // of an older file, or of another program's, another than ours
	if err == nil {
		size, err = pragmaInt(conn, "page_size")
	}
	pages := int64(logPages)
	if err == nil && o.MaxBytes > 0 {
		pages = max(1, min(pages, o.MaxBytes/size/8))
		err = execute(conn, fmt.Sprintf("PRAGMA max_page_count = %d", max(1, o.MaxBytes/size-pages)))
	}
	if err == nil {
		err = execute(conn, fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", pages),
			fmt.Sprintf("PRAGMA journal_size_limit = %d", pages*size))
	}
	if err != nil {
		return nil, 0, openError(path, err)
	}
	return conn, pages * size, nil
}

// execute runs statements without a result, one after the other.
func execute(conn *sqlite.Conn, statements ...string) error {
	for _, statement := range statements {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader refuses a file that is not empty and does not begin like a
// database. SQLite itself takes one of a few bytes for empty and writes over it.
func checkHeader(path string, f *os.File) error {
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	n, err := f.ReadAt(head, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF), string(head) == magic:
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return classifyFile(fmt.Errorf("open store %s: %w", path, err))
	}
	return fmt.Errorf("open store %s: %w: it begins with %q; name another file", path, store.ErrNotStore, head[:n])
}

// required are the columns without which a file is not a session store: those of
// the reference program's first version, which lacks the columns that migrations.sql adds.
var required = map[string]func() []string{
	"chat_sessions": func() []string { return without("mode", session.SessionColumns().Names()) },
	"chat_messages": func() []string { return session.MessageColumns().Names() },
	"chat_parts":    func() []string { return without("continuation_run_id", session.PartColumns().Names()) },
}

func without(column string, columns []string) []string {
	return slices.DeleteFunc(columns, func(name string) bool { return name == column })
}

// checkOurs refuses a file that is no session store, or one of a newer version. An empty database is one in the making.
func checkOurs(conn *sqlite.Conn, path string, writer bool) error {
	version, err := pragmaInt(conn, "user_version")
	if err != nil {
		return openError(path, err)
	}
	tables, err := names(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		return openError(path, err)
	}
	if len(tables) == 0 && version == 0 {
		return nil
	}
	for _, table := range []string{"chat_sessions", "chat_messages", "chat_parts"} {
		columns, err := columnsOf(conn, table)
		if err != nil {
			return openError(path, err)
		}
		for _, column := range required[table]() {
			if !slices.Contains(columns, column) {
				return fmt.Errorf("open store %s: %w: the database has no column %s.%s; name another file",
					path, store.ErrNotStore, table, column)
			}
		}
	}
	if version > CanonicalVersion {
		return fmt.Errorf("open store %s: %w: user_version %d, this program knows %d; use a newer agenttrace",
			path, store.ErrNewer, version, CanonicalVersion)
	}
	if slices.Contains(tables, "agenttrace_schema") {
		ours, err := sqlitex.ResultInt64(conn.Prep("SELECT coalesce(max(version), 0) FROM agenttrace_schema"))
		if err != nil {
			return openError(path, err)
		}
		if ours > SchemaVersion {
			return fmt.Errorf("open store %s: %w: schema version %d, this program knows %d; use a newer agenttrace",
				path, store.ErrNewer, ours, SchemaVersion)
		}
		if slices.Contains(tables, "span_links") && !writer { // as versions 1 and 2 named one
			return fmt.Errorf("%w: schema version %d, this program reads %d; upgrade it with: "+
				"agenttrace store migrate --store %s", store.ErrOlder, ours, SchemaVersion, path)
		}
	}
	return nil
}

func pragmaInt(conn *sqlite.Conn, name string) (int64, error) {
	stmt, err := conn.Prepare("PRAGMA " + name)
	if err != nil {
		return 0, err
	}
	return sqlitex.ResultInt64(stmt)
}

func names(conn *sqlite.Conn, query string) ([]string, error) {
	var all []string
	err := sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		all = append(all, stmt.ColumnText(0))
		return nil
	}})
	return all, err
}

func columnsOf(conn *sqlite.Conn, table string) ([]string, error) {
	return names(conn, "SELECT name FROM pragma_table_info('"+table+"')")
}

// openError words what is wrong with a file that cannot be opened.
func openError(path string, err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return fmt.Errorf("open store %s: %w: %w; name another file", path, store.ErrNotStore, err)
	case sqlite.ResultReadOnly:
		return fmt.Errorf("open store %s: %w: %w: the file or its directory is read-only; "+
			"make it writable or name another", path, store.ErrUnavailable, err)
	}
	return classify(fmt.Errorf("open store %s: %w", path, err))
}

// classify marks errors that may pass.
func classify(err error) error {
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull:
		return fmt.Errorf("%w: %w; free space on that disk, or name a store on another", store.ErrUnavailable, err)
	case sqlite.ResultIOErr:
		return fmt.Errorf("%w: %w; look for a quota, a limit of the size of files, or a fault of the disk",
			store.ErrUnavailable, err)
	case sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultReadOnly,
		sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultInterrupt, sqlite.ResultProtocol:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

func classifyFile(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w; make it writable or name another file", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

//go:embed schema.sql
var schema string

// migrations bring a file up to date, in their order and in one transaction. Then the schema makes what is not there: all
// of an empty file. A migration is for a file with a table t of which its first line is true. What a file has decides and
// not its version, because the reference program makes files too, and a file may have lost a column or a table by another
// program's doing.
//
//go:embed migrations.sql
var migrations string

// migrate brings the schema up to date.
func migrate(conn *sqlite.Conn) (err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	for _, m := range strings.Split(migrations, "\n-- IF ")[1:] {
		condition, statements, _ := strings.Cut(m, "\n")
		found, err := names(conn, "SELECT t.name FROM sqlite_schema t WHERE t.type = 'table' AND "+condition)
		if err == nil && len(found) > 0 {
			err = sqlitex.ExecuteScript(conn, statements, nil)
		}
		if err != nil {
			return fmt.Errorf("upgrade schema: %w", err)
		}
	}
	if err := sqlitex.ExecuteScript(conn, schema, nil); err != nil {
		return fmt.Errorf("upgrade schema: %w", err)
	}
	statements := []string{sealSegments, "DELETE FROM agenttrace_schema",
		fmt.Sprintf("INSERT INTO agenttrace_schema(version) VALUES (%d)", SchemaVersion)}
	if version, err := pragmaInt(conn, "user_version"); err != nil {
		return err
	} else if version < CanonicalVersion { // setting it writes to the file
		statements = append(statements, fmt.Sprintf("PRAGMA user_version = %d", CanonicalVersion))
	}
	return execute(conn, statements...)
}

// lockSuffix names the lock file beside the database. Whoever holds the lock writes its name into the file; the lock
// itself ends with its process, however that dies.
const lockSuffix = ".lock"

// writerLock is the lock of the one writer of a database. There are two, for a database has more than one name:
//
//   - A file beside the database that a path leads to, with the name of its holder. It is the same one for every path
//     and symbolic link to the database, from any working directory, and through a bind mount of the directory.
//   - The database itself, by device and inode, which a hard link and a bind mount of the
//     file share and the file beside it is not: see lockInode.
type writerLock struct {
	beside *flock.Flock
	inode  *os.File
	owner  string // the line of the file that names the holder
}

// lock takes the writer's lock of the store at path and makes the file where there is none.
func lock(path string) (*writerLock, error) {
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	real, err := realPath(path)
	if err != nil {
		return nil, classifyFile(fmt.Errorf("open store %s: %w", path, err))
	}
	l := &writerLock{beside: flock.New(real+lockSuffix, flock.SetPermissions(0o600))}
	got, err := l.beside.TryLock()
	if err != nil {
		return nil, classifyFile(fmt.Errorf("lock store %s: %w", path, err))
	}
	if !got {
		return nil, lockedError(path, holder(real+lockSuffix))
	}
	if err := l.lockFile(path, real); err != nil {
		_ = l.unlock()
		return nil, err
	}
	l.owner = self() + time.Now().UTC().Format(time.RFC3339) + "\n"
	// The name is a courtesy to the next one who asks: the lock holds without it.
	_ = os.WriteFile(real+lockSuffix, []byte(l.owner), 0o600)
	return l, nil
}

// lockFile locks the inode of the database.
func (l *writerLock) lockFile(path, real string) error {
	f, err := files.open(real)
	if err != nil {
		return classifyFile(fmt.Errorf("open store %s: %w", path, err))
	}
	if err = checkHeader(path, f); err == nil && !lockInode(f) {
		err = lockedError(path, unknownHolder+", it uses another name of the file")
	}
	if err != nil {
		files.close(f)
		return err
	}
	l.inode = f
	return nil
}

func (l *writerLock) unlock() (err error) {
	if l.inode != nil {
		err = unlockInode(l.inode)
		files.close(l.inode)
		l.inode = nil
	}
	return errors.Join(err, l.beside.Unlock())
}

// release unlocks the store when its writing connection is closed.
func (l *writerLock) release() error {
	err := l.unlock()
	files.connect(-1)
	return err
}

func lockedError(path, owner string) error {
	return fmt.Errorf("open store %s: %w: %s; stop it or use another store", path, store.ErrLocked, owner)
}

const unknownHolder = "its name is not known"

func holder(name string) string {
	b, err := os.ReadFile(name)
	if b, _, _ = bytes.Cut(bytes.TrimSpace(b), []byte("\n")); err != nil || len(b) == 0 {
		return unknownHolder
	}
	if strings.HasPrefix(string(b), self()) {
		return "it is " + string(b) + ", this process: another of its components has the store"
	}
	return "it is " + string(b)
}

// self begins what a lock file has of this process.
func self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d (%s) on %s since ", os.Getpid(), filepath.Base(os.Args[0]), host)
}

// socketPrefix begins the line of a lock file that names a socket.
const socketPrefix = "socket "

// Advertise has the store's lock file name the Unix socket on which this process changes sessions for others, until the
// store is closed. See [Socket].
func (s *Store) Advertise(socket string) error {
	real, err := realPath(s.Path())
	if err == nil {
		err = os.WriteFile(real+lockSuffix, []byte(s.lock.owner+socketPrefix+socket+"\n"), 0o600)
	}
	if err != nil {
		return classifyFile(fmt.Errorf("name the socket of store %s in its lock file: %w", s.Path(), err))
	}
	return nil
}

// Socket returns the Unix socket on which the process that holds the store at path changes sessions for others, "" if
// it names none.
func Socket(path string) string {
	real, err := realPath(path)
	if err != nil {
		return ""
	}
	b, _ := os.ReadFile(real + lockSuffix)
	for line := range strings.Lines(string(b)) {
		if socket, ok := strings.CutPrefix(line, socketPrefix); ok {
			return strings.TrimSpace(socket)
		}
	}
	return ""
}

// realPath returns the path that symbolic links lead to, the path itself if nothing is there.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return real, err
}

// createFile makes the database, also where a symbolic link leads to, unless it is there. It is private to the user:
// prompts are sensitive.
func createFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return classifyFile(fmt.Errorf("create directory of store %s: %w", path, err))
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return classifyFile(fmt.Errorf("create store %s: %w", path, err))
	}
	files.close(f)
	return nil
}

// checkRegular refuses what is there and no regular file, such as a device.
func checkRegular(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil // what is not there will be made, and what cannot be seen fails when it is opened
	case info.IsDir():
		return fmt.Errorf("open store %s: %w: it is a directory; name a file in it", path, store.ErrNotStore)
	case !info.Mode().IsRegular():
		return fmt.Errorf("open store %s: %w: it is not a regular file; name another", path, store.ErrNotStore)
	}
	return nil
}

// files are the databases that are open besides SQLite's own connections, to look at them and to lock them.
//
// POSIX drops all locks that a process has on a file when the process closes any descriptor of it. SQLite's locks are
// such: closing one here would let another process believe that nobody has the database open, and remove the log that
// our writer is writing. So a file is closed when the process has no connection any more, and is used again until then.
var files openFiles

type openFiles struct {
	mu          sync.Mutex
	connections int
	kept        []*os.File
}

// open opens a file for reading.
func (o *openFiles) open(path string) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if named, err := os.Stat(path); err == nil {
		for i, f := range o.kept {
			if info, err := f.Stat(); err == nil && os.SameFile(info, named) {
				o.kept = slices.Delete(o.kept, i, i+1)
				return f, nil
			}
		}
	}
	return os.Open(path)
}

// close closes a file, or keeps it for as long as there are connections.
func (o *openFiles) close(f *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.connections == 0 || runtime.GOOS == "windows" {
		_ = f.Close()
	} else {
		o.kept = append(o.kept, f)
	}
}

// connect counts connections: n more, or less.
func (o *openFiles) connect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.connections += n; o.connections == 0 {
		for _, f := range o.kept {
			_ = f.Close()
		}
		o.kept = nil
	}
}
