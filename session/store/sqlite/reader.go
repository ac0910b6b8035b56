package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// readers is how many connections a Reader keeps.
const readers = 4

// Reader reads a session store, agenttrace's own or one that the reference
// program wrote. It never writes to the file, and sees what other processes
// commit. It is safe for concurrent use.
type Reader struct {
	path string

	once, closed sync.Once
	pool         *sqlitex.Pool
	err          error
	// ours is false when the file has only the three canonical tables.
	ours bool
	// observes is false when it was written before there were observations.
	observes bool
	// sessionColumns and partColumns are what to select, with null for the columns
	// that an old file lacks.
	sessionColumns, partColumns string
}

var _ store.Reader = (*Reader)(nil)

// OpenReader opens the store at path for reading. It never creates the file:
// the error for one that is not there wraps store.ErrNotFound. Other errors are
// those of [Open].
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	r := newReader(path)
	if err := r.read(ctx, func(*sqlite.Conn) error { return nil }); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func newReader(path string) *Reader { return &Reader{path: path} }

// Path returns the path that the reader was opened with.
func (r *Reader) Path() string { return r.path }

// Close closes the reader's connections.
func (r *Reader) Close() error {
	r.once.Do(func() { r.err = ErrClosed })
	if r.pool == nil {
		return nil
	}
	err := r.pool.Close()
	r.closed.Do(func() { files.connect(-1) })
	return err
}

// read runs fn with a connection, in one read transaction.
func (r *Reader) read(ctx context.Context, fn func(*sqlite.Conn) error) (err error) {
	r.once.Do(r.open)
	if r.err != nil {
		return r.err
	}
	conn, err := r.pool.Take(ctx)
	if err != nil {
		return openError(r.path, err)
	}
	defer r.pool.Put(conn)
	defer sqlitex.Transaction(conn)(&err)
	if err := fn(conn); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

func (r *Reader) open() {
	_, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.err = fmt.Errorf("open store %s: %w: no such file", r.path, store.ErrNotFound)
	case err != nil:
		r.err = fmt.Errorf("open store %s: %w", r.path, err)
	default:
		r.err = checkRegular(r.path)
	}
	if r.err == nil {
		r.err = r.checkHeader()
	}
	if r.err != nil {
		return
	}
	if r.err = r.openPool(r.path, sqlite.OpenReadOnly); r.err == nil || !isCantOpen(r.err) {
		return
	}
	// A file in WAL mode cannot be opened where its -shm cannot be made, as in a
	// read-only directory. Without a -wal nobody is writing it, so it can be read
	// as it lies there.
	if _, err := os.Stat(r.path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		uri := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: r.path}).EscapedPath(), RawQuery: "immutable=1"}).String()
		r.err = r.openPool(uri, sqlite.OpenReadOnly|sqlite.OpenURI)
	}
}

func (r *Reader) checkHeader() error {
	f, err := files.open(r.path)
	if err != nil {
		return classifyFile(fmt.Errorf("open store %s: %w", r.path, err))
	}
	defer files.close(f)
	return checkHeader(r.path, f)
}

func isCantOpen(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCantOpen, sqlite.ResultReadOnly:
		return true
	}
	return false
}

func (r *Reader) openPool(uri string, flags sqlite.OpenFlags) error {
	pool, err := sqlitex.NewPool(uri, sqlitex.PoolOptions{
		Flags: flags, PoolSize: readers,
		PrepareConn: func(conn *sqlite.Conn) error {
			for _, pragma := range []string{"PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON",
				"PRAGMA cache_size = -16384"} {
				if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return openError(r.path, err)
	}
	conn, err := pool.Take(context.Background())
	if err == nil {
		err = checkOurs(conn, r.path, false)
		var tables []string
		if err == nil {
			tables, err = names(conn,
				"SELECT name FROM sqlite_schema WHERE name IN ('agenttrace_schema', 'chat_sessions', 'observations')")
		}
		r.observes = slices.Contains(tables, "observations")
		r.ours = slices.Contains(tables, "agenttrace_schema") && slices.Contains(tables, "chat_sessions")
		if err == nil {
			err = r.chooseColumns(conn)
		}
		if err == nil && len(tables) == 0 {
			err = fmt.Errorf("open store %s: %w: the database is empty; name another file", r.path, store.ErrNotStore)
		}
		pool.Put(conn)
	}
	if err != nil {
		pool.Close()
		if errors.Is(err, store.ErrNotStore) || errors.Is(err, store.ErrNewer) {
			return err
		}
		return openError(r.path, err)
	}
	r.pool = pool
	files.connect(+1)
	return nil
}

// chooseColumns finds out which columns the file has.
func (r *Reader) chooseColumns(conn *sqlite.Conn) error {
	var absent []string
	for _, c := range added {
		columns, err := columnsOf(conn, c.table)
		if err != nil {
			return err
		}
		if !slices.Contains(columns, c.column) {
			absent = append(absent, c.column)
		}
	}
	r.sessionColumns, r.partColumns = sqlstore.SessionTable.Prefixed("s.", absent...), sqlstore.PartTable.Prefixed("p.", absent...)
	return nil
}

// Sessions implements [store.Reader].
func (r *Reader) Sessions(ctx context.Context, q store.SessionQuery) iter.Seq2[session.Session, error] {
	return func(yield func(session.Session, error) bool) {
		err := r.read(ctx, func(conn *sqlite.Conn) error {
			where := []string{"1"}
			var args []string
			if q.Agent != "" {
				where, args = append(where, "s.agent = ?"), append(args, q.Agent)
			}
			switch {
			case q.ParentID != "":
				where, args = append(where, "s.parent_id = ?"), append(args, q.ParentID)
			case !q.Children:
				where = append(where, r.leading())
			}
			if !q.Archived {
				where = append(where, "s.archived_at IS NULL")
			}
			if q.Before != nil {
				where = append(where, fmt.Sprintf("(s.updated_at, s.id) < (%d, ?)", q.Before.UpdatedAt))
				args = append(args, q.Before.ID)
			}
			limit := q.Limit
			if limit == 0 {
				limit = 50
			}
			// The order is that of the index on (updated_at, id). Where another
			// condition selects few rows, its own index is the better one.
			table := "chat_sessions s"
			if q.ParentID == "" && q.Agent == "" && r.ours {
				table += " INDEXED BY idx_chat_sessions_updated"
			}
			stmt, err := conn.Prepare("SELECT " + r.sessionColumns + " FROM " + table + " WHERE " + strings.Join(where,
				" AND ") +
				fmt.Sprintf(" ORDER BY s.updated_at DESC, s.id DESC LIMIT %d", limit))
			if err != nil {
				return err
			}
			for i, a := range args {
				stmt.BindText(1+i, a)
			}
			return each(stmt, func() error {
				var row session.Session
				if err := sqlstore.SessionTable.Scan(stmt, &row); err != nil {
					return err
				}
				if !yield(row, nil) {
					return errStop
				}
				return nil
			})
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(session.Session{}, fmt.Errorf("list sessions of %s: %w", r.path, err))
		}
	}
}

// leading is the condition on a session s that no other one leads to: it has no parent,
// or has lost it, or is a fork, with which somebody goes on.
func (r *Reader) leading() string {
	const orphan = "s.parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM chat_sessions p WHERE p.id = s.parent_id)"
	// The forks of other programs are known by their copies, which are older than they are.
	const copies = "EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = s.id AND m.created_at < s.created_at)"
	if !r.ours {
		return "(" + orphan + " OR " + copies + ")"
	}
	return "(" + orphan +
		" OR EXISTS (SELECT 1 FROM session_state f WHERE f.session_id = s.id AND f.forked_from IS NOT NULL) OR " + copies +
		")"
}

// errStop ends an iteration that its consumer has left.
var errStop = errors.New("stop")

// Session implements [store.Reader].
func (r *Reader) Session(ctx context.Context, id string) (session.Session, error) {
	var s session.Session
	err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
		s, err = r.session(conn, id)
		return err
	})
	return s, err
}

func (r *Reader) session(conn *sqlite.Conn, id string) (session.Session, error) {
	s, err := row(sqlstore.SessionTable, prep(conn, `SELECT `+r.sessionColumns+` FROM chat_sessions s WHERE s.id = ?`, id))
	if err != nil {
		return session.Session{}, err
	}
	if s == nil {
		return session.Session{}, fmt.Errorf("session %s: %w", id, store.ErrNotFound)
	}
	return *s, nil
}

// Transcript implements [store.Reader]. It reads in one transaction, so it is
// one state of the session, also while a collector writes.
func (r *Reader) Transcript(ctx context.Context, id string) (*session.Transcript, error) {
	t := new(session.Transcript)
	err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
		if t.Session, err = r.session(conn, id); err != nil {
			return err
		}
		reading := &tx{conn: conn}
		messages, err := reading.messagesFrom(id, store.Position{})
		if err != nil {
			return err
		}
		t.Messages = make([]session.MessageAndParts, len(messages))
		place := make(map[string]int, len(messages))
		for i, m := range messages {
			t.Messages[i].Message = m
			place[m.ID] = i
		}
		stmt := prep(conn, `SELECT `+r.partColumns+` FROM chat_messages m JOIN chat_parts p ON p.message_id = m.id
 WHERE m.session_id = ? ORDER BY m.created_at, m.id, p."index"`, id)
		return each(stmt, func() error {
			var p session.Part
			err := sqlstore.PartTable.Scan(stmt, &p)
			m := &t.Messages[place[p.MessageID]]
			m.Parts = append(m.Parts, p)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Decisions implements [store.Reader].
func (r *Reader) Decisions(ctx context.Context, sessionID string) ([]store.Decision, error) {
	return ours(ctx, r, func(conn *sqlite.Conn) ([]store.Decision, error) {
		return rows(sqlstore.DecisionTable, prep(conn, `SELECT `+sqlstore.DecisionTable.List+` FROM permission_decisions
 WHERE session_id = ? ORDER BY decided_at, id`, sessionID))
	})
}

// SpanRefs implements [store.Reader].
func (r *Reader) SpanRefs(ctx context.Context, sessionID string) ([]store.SpanRef, error) {
	return ours(ctx, r, func(conn *sqlite.Conn) ([]store.SpanRef, error) {
		query := `SELECT ` + sqlstore.SpanTable.List + ` FROM span_refs WHERE session_id = ?1`
		if r.observes {
			query += ` UNION ALL SELECT ` + sqlstore.SpanTable.Prefixed("", "facts_json") + ` FROM observations WHERE session_id = ?1`
		}
		return rows(sqlstore.SpanTable, prep(conn, query+` ORDER BY start_nano, trace_id, span_id, kind, message_id, part_id`,
			sessionID))
	})
}

// spansQuery is what the view session_spans selects, for files that were written
// before there was one.
var spansQuery = func() string {
	_, query, _ := strings.Cut(schema, "CREATE VIEW IF NOT EXISTS session_spans AS\n")
	query, _, _ = strings.Cut(query, ";")
	return query
}()

// Spans implements [store.Reader].
func (r *Reader) Spans(ctx context.Context, sessionID string) ([]store.SpanRef, error) {
	return ours(ctx, r, func(conn *sqlite.Conn) ([]store.SpanRef, error) { return r.spans(conn, sessionID) })
}

func (r *Reader) spans(conn *sqlite.Conn, sessionID string) ([]store.SpanRef, error) {
	query := `SELECT ` + sqlstore.SpanTable.List + ` FROM span_refs WHERE session_id = ?1 ORDER BY start_nano, trace_id, span_id`
	if r.observes {
		query = `SELECT ` + strings.Replace(sqlstore.SpanTable.Prefixed("s."), "s.facts_json", "l.facts_json", 1) + ` FROM (` + spansQuery + `) s
 LEFT JOIN span_refs l USING (session_id, trace_id, span_id) WHERE s.session_id = ?1 ORDER BY s.start_nano, s.trace_id, s.span_id`
	}
	return rows(sqlstore.SpanTable, prep(conn, query, sessionID))
}

// MayHaveNotices returns those of the sessions of which [session.Notices] may find
// something, or which have a span without a message. The transcript and the spans tell
// whether it is so.
func (r *Reader) MayHaveNotices(ctx context.Context, ids []string) (map[string]bool, error) {
	may := make(map[string]bool)
	query := `SELECT 1 WHERE EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = ?1 AND m.role = 'assistant' AND m.hidden_at IS NULL
 AND (instr(m.metadata_json, '"problems"') OR instr(m.metadata_json, '"incomplete"')
 OR NOT EXISTS (SELECT 1 FROM chat_parts p WHERE p.message_id = m.id)))
 OR EXISTS (SELECT 1 FROM chat_messages m WHERE m.session_id = ?1 AND instr(m.metadata_json, '"history"')
 AND 1 + max(1, coalesce(json_extract(iif(json_valid(m.metadata_json), m.metadata_json, '{}'), '$.agenttrace.history.turns'), 1))
 > (SELECT count(*) FROM chat_messages u WHERE u.session_id = ?1 AND u.role = 'user' AND u.created_at <= m.created_at))
 OR EXISTS (SELECT 1 FROM chat_messages WHERE session_id = ?1 AND instr(metadata_json, '"response_id"')
 GROUP BY json_extract(iif(json_valid(metadata_json), metadata_json, '{}'), '$.agenttrace.response_id') HAVING count(*) > 1)
 OR EXISTS (SELECT 1 FROM chat_parts WHERE session_id = ?1 AND tool_state = 'input-available')
 OR EXISTS (SELECT 1 FROM chat_parts WHERE session_id = ?1 AND tool_call_id IS NOT NULL
 GROUP BY tool_call_id HAVING count(DISTINCT message_id) > 1)
 OR EXISTS (SELECT 1 FROM chat_parts WHERE session_id = ?1 AND type = 'text'
 GROUP BY message_id, trim(json_extract(iif(json_valid(data_json), data_json, '{}'), '$.text'), char(9, 10, 13, 32)) HAVING count(*) > 1)`
	if r.observes {
		query += `
 OR EXISTS (SELECT 1 FROM observations WHERE session_id = ?1 AND coalesce(message_id, '') = '' AND kind IN ('session.turn', 'chat', 'tool.call'))`
	}
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		stmt := conn.Prep(query)
		for _, id := range ids {
			stmt.BindText(1, id)
			if err := each(stmt, func() error {
				may[id] = true
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return may, err
}

// Observed counts the observations that a session was built from.
func (r *Reader) Observed(ctx context.Context, sessionID string) (int, error) {
	return ours(ctx, r, func(conn *sqlite.Conn) (int, error) {
		if !r.observes {
			return 0, nil
		}
		n, _, err := nano(prep(conn, `SELECT count(*) FROM observations WHERE session_id = ?`, sessionID))
		return int(n), err
	})
}

// Pending counts the observations that no session reports: they wait for what
// belongs to them, or are of a trace that tells no session.
func (r *Reader) Pending(ctx context.Context) (int64, error) {
	return ours(ctx, r, func(conn *sqlite.Conn) (int64, error) {
		if !r.observes {
			return 0, nil
		}
		return sqlitex.ResultInt64(conn.Prep(`SELECT count(*) FROM observations WHERE session_id IS NULL`))
	})
}

// Blob implements [store.Reader].
func (r *Reader) Blob(ctx context.Context, kind store.BlobKind, digest string) (store.Blob, error) {
	found, err := ours(ctx, r, func(conn *sqlite.Conn) (*store.Blob, error) {
		return get(conn, sqlstore.BlobTables[kind], digest)
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%s %s: %w", kind, digest, store.ErrNotFound)
	}
	if err != nil {
		return store.Blob{Kind: kind}, err
	}
	found.Kind = kind
	return *found, nil
}

// readOurs reads tables that only agenttrace's own files have; from another file
// it reads nothing.
func (r *Reader) readOurs(ctx context.Context, fn func(*sqlite.Conn) error) error {
	return r.read(ctx, func(conn *sqlite.Conn) error {
		if !r.ours {
			return nil
		}
		return fn(conn)
	})
}

// ours returns what fn reads as [Reader.readOurs] does.
func ours[T any](ctx context.Context, r *Reader, fn func(*sqlite.Conn) (T, error)) (v T, err error) {
	err = r.readOurs(ctx, func(conn *sqlite.Conn) (err error) {
		v, err = fn(conn)
		return err
	})
	return v, err
}

// Resolve implements [store.Reader].
func (r *Reader) Resolve(ctx context.Context, name string) (string, error) {
	var found []string
	collect := func(conn *sqlite.Conn, query string, args ...string) error {
		if len(found) > 0 {
			return nil
		}
		stmt := conn.Prep(query)
		for i, a := range args {
			stmt.BindText(1+i, a)
		}
		return each(stmt, func() error {
			found = append(found, stmt.ColumnText(0))
			return nil
		})
	}
	err := r.read(ctx, func(conn *sqlite.Conn) error {
		if name == "last" {
			return collect(conn, `SELECT s.id FROM chat_sessions s WHERE `+r.leading()+
				` AND s.archived_at IS NULL ORDER BY s.updated_at DESC, s.id DESC LIMIT 1`)
		}
		if err := collect(conn, `SELECT id FROM chat_sessions WHERE id = ?`, name); err != nil {
			return err
		}
		if name == "" {
			return nil
		}
		const byPrefix = `SELECT id FROM chat_sessions WHERE id >= ?1 AND id < ?1 || x'f48fbfbf' LIMIT 3`
		if err := collect(conn, byPrefix, name); err != nil {
			return err
		}
		if err := collect(conn, byPrefix, "ses_"+name); err != nil {
			return err
		}
		if !r.ours || len(name) < 8 || strings.Trim(strings.ToLower(name), "0123456789abcdef") != "" {
			return nil
		}
		// A trace may hold several sessions, those of sub-agents: the one that is
		// nobody's child stands for it. Several traces may be of one session.
		stmt := prep(conn, `SELECT t.trace_id, t.session_id FROM session_traces t JOIN chat_sessions s ON s.id = t.session_id
 WHERE t.trace_id >= ?1 AND t.trace_id < ?1 || 'g' ORDER BY t.trace_id, s.parent_id IS NOT NULL, s.created_at, s.id LIMIT 1000`,
			strings.ToLower(name))
		trace := ""
		return each(stmt, func() error {
			if t := stmt.ColumnText(0); t != trace {
				trace = t
				if id := stmt.ColumnText(1); !slices.Contains(found, id) {
					found = append(found, id)
				}
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("session %q: %w in %s", name, store.ErrNotFound, r.path)
	case len(found) > 1:
		return "", fmt.Errorf("session %q: %w: %s", name, store.ErrAmbiguous, strings.Join(found, ", "))
	}
	return found[0], nil
}
