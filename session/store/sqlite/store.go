// Package sqlite keeps sessions in one SQLite file: the three canonical tables that any SQLite tool reads, and beside
// them what agenttrace adds. FORMAT.md describes the file.
//
// One process writes ([Open]), holding a lock file beside the database; any
// number read ([OpenReader]), also while it writes. The driver is pure Go.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// Store is the one writer of a session store, and a reader of it. It is safe for concurrent use.
//
// Concurrent calls of Apply share a transaction: one goroutine owns the writing connection and commits whatever waits.
type Store struct {
	*Reader
	sqlstore.Writer
	options Options
	lock    *writerLock

	requests chan *request
	done     chan struct{}

	mu     sync.RWMutex // held for reading while a request is sent
	closed bool

	// conn and what follows belong to the writing goroutine. touched is the stamp last written to an outbox, log the
	// size up to which the log is to grow, and trimAt the one from which it is emptied.
	conn        *sqlite.Conn
	touched     int64
	log, trimAt int64
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Compacter = (*Store)(nil)
)

// request is work for the writing goroutine.
type request struct {
	do func(sqlstore.Tx) error
	// claimed decides between the writer and a caller who no longer waits: who sets it has the request.
	claimed atomic.Bool
	result  chan error
}

func (r *request) claim() (mine bool) { return r.claimed.CompareAndSwap(false, true) }

const (
	// maxRequests is how many requests share a transaction.
	maxRequests = 64
	// importsAtOnce is how many sessions are imported at a time: enough to share the cost of a transaction and of the
	// pages that all of them change.
	importsAtOnce = 48
)

// Open opens the store at path for writing, creating the file (0600) and its
// directory (0700) if need be, and brings its schema up to date.
//
// Errors wrap store.ErrLocked (naming the process that holds the store), store.ErrNotStore, store.ErrNewer, or
// store.ErrUnavailable for what may pass. A file that is refused is not changed.
func Open(ctx context.Context, path string, o Options) (_ *Store, err error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	l, err := lock(path)
	if err != nil {
		return nil, err
	}
	files.connect(+1)
	s := &Store{options: o, lock: l, requests: make(chan *request, maxRequests), done: make(chan struct{})}
	defer func() {
		if err != nil {
			if s.conn != nil {
				s.conn.Close()
			}
			_ = l.release()
		}
	}()
	if s.conn, s.log, err = openWriter(ctx, path, o); err != nil {
		return nil, err
	}
	s.touched, err = sqlitex.ResultInt64(s.conn.Prep(`SELECT coalesce(max(touched_at), 0) FROM (
 SELECT touched_at FROM export_outbox UNION ALL SELECT touched_at FROM span_outbox)`))
	if err != nil {
		return nil, openError(path, err)
	}
	if s.Reader, err = OpenReader(ctx, path); err != nil {
		return nil, err
	}
	s.Writer = sqlstore.NewWriter(importsAtOnce, s.start)
	go s.write()
	return s, nil
}

// Close commits what was accepted, closes the file and releases its lock. Calls after the first do nothing.
func (s *Store) Close() error {
	s.Finish()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	close(s.requests)
	s.mu.Unlock()
	<-s.done
	_, _, _ = s.cleanIndex(context.Background()) // what remains is deleted when the index is extended
	return errors.Join(s.Reader.Close(), s.conn.Close(), s.lock.release())
}

// start has do executed in a transaction, after what was started before it.
func (s *Store) start(ctx context.Context, do func(sqlstore.Tx) error) (wait func() error) {
	r := &request{do: do, result: make(chan error, 1)}
	wait = func() error { return r.wait(ctx) }
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		err := fmt.Errorf("write store %s: %w", s.path, store.ErrClosed)
		return func() error { return err }
	}
	select {
	case s.requests <- r:
	case <-ctx.Done(): // wait finds out, too
	}
	return wait
}

// wait returns when the request is committed, or has failed. One that has not begun when ctx ends never does.
func (r *request) wait(ctx context.Context) error {
	select {
	case err := <-r.result:
		return err
	case <-ctx.Done():
		if r.claim() {
			return ctx.Err()
		}
		return <-r.result
	}
}

// write is the writing goroutine.
func (s *Store) write() {
	defer close(s.done)
	var group []*request
	for r := range s.requests {
		group = group[:0]
		for r != nil {
			if r.claim() {
				group = append(group, r)
			}
			r = nil
			if len(group) < maxRequests {
				select {
				case r = <-s.requests:
				default:
				}
			}
		}
		if len(group) > 0 {
			s.commit(group)
		}
		clear(group)
	}
}

// commit executes a group of requests in one transaction and answers each. If one of them fails, it executes each in a
// transaction of its own. A savepoint for each would cost more: SQLite then copies, in memory, every page that two of
// them change.
func (s *Store) commit(group []*request) {
	begun := false
	err := s.transaction(func(t *tx) error {
		begun = true
		t.shared = len(group) > 1
		for _, r := range group {
			if err := sqlstore.Guarded(func() error { return r.do(t) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && begun && len(group) > 1 {
		for i := range group {
			s.commit(group[i : i+1])
		}
		return
	}
	if err != nil {
		err = s.explain(err)
	}
	for _, r := range group {
		r.result <- err
	}
}

// explain names the store, and the limit that was set for it where it is that which was reached.
func (s *Store) explain(err error) error {
	if s.options.MaxBytes > 0 && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull {
		return classify(fmt.Errorf("write store %s: %w: it may have %d MiB; raise the limit or delete sessions",
			s.path, err, s.options.MaxBytes>>20))
	}
	return classify(fmt.Errorf("write store %s: %w", s.path, err))
}

func (s *Store) transaction(do func(*tx) error) (err error) {
	if err := cmp.Or(s.InPlace(), s.trim()); err != nil {
		return err
	}
	if err := exec(s.conn.Prep("BEGIN IMMEDIATE")); err != nil {
		return err
	}
	t := &tx{conn: s.conn, dialect: dialect()}
	// Every transaction has a stamp of its own, also within a millisecond and
	// when the clock steps back, so that Exported forgets no later change.
	s.touched = max(s.touched+1, time.Now().UnixMilli())
	if s.options.Outbox {
		t.files = s.touched
	}
	if s.options.SpanOutbox {
		t.spans = s.touched
	}
	if err = do(t); err == nil {
		err = exec(s.conn.Prep(sealSegments))
	}
	if err == nil {
		err = exec(s.conn.Prep("COMMIT"))
	}
	if err != nil && !s.conn.AutocommitEnabled() {
		if rollbackErr := exec(s.conn.Prep("ROLLBACK")); rollbackErr != nil {
			err = errors.Join(err, rollbackErr)
		}
	}
	_ = s.trim() // if the log is too long, the next transaction says so
	return err
}

// trim empties the log if it is longer than it is to be: SQLite begins it anew only when nobody reads, and never makes
// it shorter than one large transaction left it. Its error is that the store has more than it may have.
func (s *Store) trim() error {
	size := sizeOf(s.path + "-wal")
	if size <= max(s.trimAt, s.log+s.log/4) {
		return nil
	}
	const briefly = "PRAGMA busy_timeout = 100" // those who read
	_ = errors.Join(execute(s.conn, briefly, "PRAGMA wal_checkpoint(TRUNCATE)"), execute(s.conn, busyTimeout))
	left := sizeOf(s.path + "-wal")
	if limit := s.options.MaxBytes; limit > 0 && left == size && left+sizeOf(s.path) > limit {
		return fmt.Errorf("%w: file and log have more than %d MiB while others read; try again", store.ErrUnavailable,
			limit>>20)
	}
	if s.trimAt = 0; left == size {
		s.trimAt = size + s.log/4 // until then, do not make writers wait again
	}
	return nil
}

// sizeOf is the size of a file, 0 if it cannot be seen.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// tx implements [sqlstore.Tx] on one connection.
type tx struct {
	conn    *sqlite.Conn
	dialect *store.Dialect
	// files and spans are the times that the outboxes are stamped with, Unix milliseconds; 0 where there is none.
	files, spans int64
	// file is what is read, nil in a transaction that writes.
	file *file
	// shared reports that the transaction has the changes of several requests, which only its end undoes.
	shared bool
}

var (
	_ sqlstore.Tx         = (*tx)(nil)
	_ sqlstore.PartFilter = (*tx)(nil)
)

func (t *tx) prep(query string, args ...any) *sqlite.Stmt { return prep(t.conn, query, args...) }

// Dialect implements [sqlstore.Conn].
func (t *tx) Dialect() *store.Dialect { return t.dialect }

// Query implements [sqlstore.Conn].
func (t *tx) Query(query string, fn func(store.Row) error, args ...any) error {
	stmt, err := t.conn.Prepare(query)
	if err != nil {
		return err
	}
	bind(stmt, args)
	return each(stmt, func() error { return fn(stmt) })
}

// Exec implements [sqlstore.Tx].
func (t *tx) Exec(query string, args ...any) (int64, error) {
	if err := exec(t.prep(query, args...)); err != nil {
		return 0, err
	}
	return int64(t.conn.Changes()), nil
}

// Undo implements [store.Tx].
func (t *tx) Undo() error {
	if t.shared {
		return errShared
	}
	if err := exec(t.conn.Prep("ROLLBACK")); err != nil {
		return err
	}
	return exec(t.conn.Prep("BEGIN IMMEDIATE"))
}

var errShared = errors.New("the transaction is shared")

// Do implements [store.Tx]. SQLite is in the same process, so each statement is executed at once.
func (t *tx) Do(add func(store.Statements)) error {
	s := &statements{tx: t}
	add(s)
	return s.err
}

// statements implements [store.Statements]. After the first error, which it keeps, it does nothing more.
type statements struct {
	*tx
	err error
}

// Stamps implements [store.Statements].
func (s *statements) Stamps() (files, spans int64) { return s.files, s.spans }

// Name implements [store.Statements]. A file has one writer.
func (s *statements) Name(store.NameKind, ...string) {}

// Select implements [store.Statements].
func (s *statements) Select(query string, fn func(store.Row) error, args ...any) {
	if s.err == nil {
		s.err = s.Query(query, fn, args...)
	}
}

// SelectKeys implements [store.Statements].
func (s *statements) SelectKeys(query string, fn func(store.Row) error, columns ...[]string) {
	key := make([]any, len(columns))
	for i := range columns[0] {
		for k := range columns {
			key[k] = columns[k][i]
		}
		s.Select(query, fn, key...)
	}
}

// Exec implements [store.Statements].
func (s *statements) Exec(query string, args ...any) {
	if s.err == nil {
		s.err = exec(s.prep(query, args...))
	}
}

// Put implements [store.Statements].
func (s *statements) Put(refused *error, query string, args ...any) {
	if s.err != nil {
		return
	}
	err := exec(s.prep(query, args...))
	switch {
	case refused == nil:
		s.err = err
	case errors.Is(err, store.ErrRefused):
		*refused = err
	case err == nil && s.conn.Changes() == 0:
		*refused = store.ErrRefused
	default:
		s.err = err
	}
}

// Compact implements [store.Compacter].
func (s *Store) Compact(ctx context.Context) error {
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
	if err != nil {
		return openError(s.path, err)
	}
	conn.SetInterrupt(ctx.Done())
	err = execute(conn, busyTimeout, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
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
	if err := session.PlaceFile(partial, path); err != nil {
		return fmt.Errorf("back up to %s: %w", path, err)
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
