package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// SessionsSince returns the sessions that were seen at that time or later,
// Unix milliseconds, in order of (updated_at, id). Children and archived ones are
// among them.
func (r *Reader) SessionsSince(ctx context.Context, at int64) ([]session.Session, error) {
	var all []session.Session
	err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
		all, err = rows(sqlstore.SessionTable, prep(conn, `SELECT `+r.sessionColumns+` FROM chat_sessions s
 WHERE s.updated_at >= ? ORDER BY s.updated_at, s.id`, at))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", r.path, err)
	}
	return all, nil
}

// Tail returns the end of a session: its row, the messages from a position on
// with their parts, and the decisions made since that time, all of one state of
// the store. Its cost depends on what it returns, not on the session. The error
// for a session that is not there wraps store.ErrNotFound.
func (r *Reader) Tail(ctx context.Context, id string, from store.Position) (*session.Transcript, []store.Decision,
	error) {
	t := new(session.Transcript)
	var decisions []store.Decision
	err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
		if t.Session, err = r.session(conn, id); err != nil {
			return err
		}
		if err := r.messagesFrom(conn, t, from, ""); err != nil {
			return err
		}
		if !r.ours {
			return nil
		}
		decisions, err = rows(sqlstore.DecisionTable, prep(conn, `SELECT `+sqlstore.DecisionTable.List+` FROM permission_decisions
 WHERE session_id = ? AND decided_at >= ? ORDER BY decided_at, id`, id, from.At))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return t, decisions, nil
}

// TurnStart is the position of a session's nth last user message that is neither
// hidden nor queued, n from 1; of its first message where it has not so many, and the
// zero position where it has none.
func (r *Reader) TurnStart(ctx context.Context, id string, n int) (p store.Position, err error) {
	err = r.read(ctx, func(conn *sqlite.Conn) (err error) {
		p, err = turnStart(conn, id, n)
		return err
	})
	return p, err
}

func turnStart(conn *sqlite.Conn, id string, n int) (p store.Position, err error) {
	stmt := prep(conn, `SELECT created_at, id FROM chat_messages WHERE session_id = ? AND role = 'user' AND hidden_at IS NULL
 AND NOT instr(metadata_json, '"hidden_at"') AND NOT instr(metadata_json, '"queued_at"')
 ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?`, id, int64(max(n, 1)-1))
	err = each(stmt, func() error {
		p = store.Position{At: stmt.ColumnInt64(0), ID: stmt.ColumnText(1)}
		return nil
	})
	return p, err
}

// LastTurn returns of a session what reports what it is doing: its row, and the messages of
// its last visible turn. Of their parts it has those that may be open or streaming, and
// the markers of compactions. The error for a session that is not there wraps
// store.ErrNotFound.
func (r *Reader) LastTurn(ctx context.Context, id string) (*session.Transcript, error) {
	t := new(session.Transcript)
	err := r.read(ctx, func(conn *sqlite.Conn) (err error) {
		if t.Session, err = r.session(conn, id); err != nil {
			return err
		}
		from, err := turnStart(conn, id, 1)
		if err != nil {
			return err
		}
		return r.messagesFrom(conn, t, from, `AND (p.type = 'data-compaction'
 OR coalesce(p.tool_state, '') NOT IN ('output-available', 'output-error', 'output-denied', '')
 OR p.tool_state IS NULL AND instr(p.data_json, '"streaming"'))`)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// messagesFrom reads the messages of a session from a position on, with those of their
// parts that match a condition.
func (r *Reader) messagesFrom(conn *sqlite.Conn, t *session.Transcript, from store.Position, condition string) error {
	messages, err := (&tx{conn: conn}).messagesFrom(t.Session.ID, from)
	if err != nil {
		return err
	}
	t.Messages = make([]session.MessageAndParts, len(messages))
	query := `SELECT ` + r.partColumns + ` FROM chat_parts p WHERE p.message_id = ? ` + condition + ` ORDER BY p."index"`
	for i, m := range messages {
		t.Messages[i].Message = m
		if t.Messages[i].Parts, err = rows(sqlstore.PartTable, prep(conn, query, m.ID)); err != nil {
			return err
		}
	}
	return nil
}

// Change is what a [Follower] finds.
type Change int

// Changes.
const (
	// Unchanged: nobody has committed anything.
	Unchanged Change = iota
	// Changed: somebody may have.
	Changed
	// Opened: the store is there, for the first time or again, perhaps as another
	// file: all that was read before may be different now.
	Opened
	// Gone: there is no store any more.
	Gone
)

// Follower watches a store that other processes write. It costs next to nothing
// as long as nobody writes, waits for a file that is not there yet, and goes on
// with another that takes its place. It is used by one goroutine.
type Follower struct {
	path    string
	reader  *Reader
	conn    *sqlite.Conn
	file    fs.FileInfo
	version int64
	// still reports that the file is read as it lies there, see Reader.open.
	still bool
}

// Follow returns a Follower of the store at path, which need not be there.
func Follow(path string) *Follower { return &Follower{path: path} }

// Poll looks whether the store has changed since the last Poll. The reader is nil
// while there is no store, and otherwise valid until the next Poll that finds
// another one, or Close.
//
// A file that is no session store is an error, and so is whatever hinders reading;
// an empty file is one that its writer has just made, and counts as none. After an
// error Poll may be called again.
func (f *Follower) Poll(ctx context.Context) (*Reader, Change, error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, f.lose(), nil
	case err != nil:
		return nil, Unchanged, fmt.Errorf("follow store %s: %w", f.path, err)
	}
	if f.reader != nil && os.SameFile(info, f.file) {
		version, err := pragmaInt(f.conn, "data_version")
		if err != nil {
			f.close()
			return nil, Unchanged, openError(f.path, err)
		}
		// A file that nobody keeps a log beside changes by itself.
		same := version == f.version && info.Size() == f.file.Size() && info.ModTime().Equal(f.file.ModTime())
		f.version, f.file = version, info
		switch {
		case same:
			return f.reader, Unchanged, nil
		case !f.still:
			return f.reader, Changed, nil
		}
	}
	lost := f.lose()
	if err := f.open(ctx); err != nil {
		f.close()
		if empty(f.path) {
			return nil, lost, nil
		}
		return nil, lost, err
	}
	f.file = info
	return f.reader, Opened, nil
}

func (f *Follower) open(ctx context.Context) (err error) {
	if f.reader, err = OpenReader(ctx, f.path); err != nil {
		return err
	}
	f.conn, err = sqlite.OpenConn(f.path, sqlite.OpenReadOnly)
	if err == nil {
		f.version, err = pragmaInt(f.conn, "data_version")
	}
	if f.still = err != nil && isCantOpen(err); f.still {
		if f.conn != nil {
			f.conn.Close()
		}
		if f.conn, err = sqlite.OpenConn(":memory:"); err == nil {
			f.version, err = pragmaInt(f.conn, "data_version")
		}
	}
	if err != nil {
		return openError(f.path, err)
	}
	return nil
}

// lose closes what is open, and states what that means.
func (f *Follower) lose() Change {
	if f.reader == nil {
		return Unchanged
	}
	f.close()
	return Gone
}

func (f *Follower) close() {
	if f.reader != nil {
		f.reader.Close()
	}
	if f.conn != nil {
		f.conn.Close()
	}
	f.reader, f.conn = nil, nil
}

// Close closes the store.
func (f *Follower) Close() error {
	f.close()
	return nil
}

// empty reports that the file has no tables yet, or is not there any more.
func empty(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if info.IsDir() {
		return false
	}
	if info.Size() == 0 {
		return true
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return false
	}
	defer conn.Close()
	tables, err := names(conn, "SELECT name FROM sqlite_schema")
	return err == nil && len(tables) == 0
}
