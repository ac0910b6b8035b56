// SQLite: this file reads the sessions in a session store that another program, or another collector, has written, and
// writes such stores. FORMAT.md of the store states what a session has in it, and what comes of telemetry that arrives
// later.

package formats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// sqliteDecodeFile reads every session in the store at path, archived ones and children included, the oldest first. It
// does not write to the file, and another process may be writing it: each session is as it was when it was read.
//
// A session that cannot be read is reported and left out, as is a prompt or a catalog; report may be nil. An error is
// yielded, last and with a nil session, when the file is not a store or its sessions cannot be listed to the end; it
// wraps store.ErrNotStore, store.ErrNewer or store.ErrNotFound where it is that. The sequence can be ranged over more
// than once. The caller owns what it yields.
func sqliteDecodeFile(ctx context.Context, path string, _ codec.Wanted,
	report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return codec.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		r, err := sqlitestore.OpenOnce(ctx, path)
		if err != nil {
			return err
		}
		defer r.Close()
		// The list is read first, for a reader of it could keep others waiting.
		var ids []string
		var failed error
		for s, err := range r.Sessions(ctx, store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
			if failed = err; err == nil {
				ids = append(ids, s.ID)
			}
		}
		for _, id := range slices.Backward(ids) {
			s, err := ReadStored(ctx, r, id, report)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, store.ErrNotFound): // somebody has deleted it meanwhile
			case err != nil:
				report(codec.Problem{Record: "session " + id, Reason: fmt.Sprintf("it is left out: %v", err)})
			default:
				if !yield(s) {
					return nil
				}
			}
		}
		return failed
	})
}

// StoreSource is what [ReadStored] reads from, such as a [sqlitestore.Reader].
type StoreSource interface {
	Transcript(ctx context.Context, id string) (*session.Transcript, error)
	Decisions(ctx context.Context, sessionID string) ([]store.Decision, error)
	Annotations(ctx context.Context, sessionIDs ...string) ([]store.Annotation, error)
	Origin(ctx context.Context, in *store.Imported) error
	Blob(ctx context.Context, kind store.BlobKind, digest string) (store.Blob, error)
}

// ReadStored reads one session of a store. A prompt or a catalog that cannot be read is reported and left out; report
// may be nil. The error for a session that is not there wraps store.ErrNotFound.
func ReadStored(ctx context.Context, r StoreSource, id string, report func(codec.Problem)) (*codec.Session, error) {
	if report == nil {
		report = func(codec.Problem) {}
	}
	t, err := r.Transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &codec.Session{Transcript: t}
	if s.Decisions, err = r.Decisions(ctx, id); err != nil {
		return nil, err
	}
	if s.Annotations, err = r.Annotations(ctx, id); err != nil {
		return nil, err
	}
	if err := r.Origin(ctx, s); err != nil {
		return nil, err
	}
	for named := range document.NamedBlobs(t, s.SpanRefs) {
		b, err := r.Blob(ctx, named.Kind, named.Digest)
		switch {
		case err == nil:
			s.Blobs = append(s.Blobs, b)
		case !errors.Is(err, store.ErrNotFound):
			report(codec.Problem{Record: string(named.Kind) + " " + named.Digest,
				Reason: fmt.Sprintf("it is left out: %v", err)})
		}
	}
	return s, nil
}

// sqliteTables lists the tables of an SQLite database by name, by which its program is known. It
// does not write to the file.
func sqliteTables(path string) (names []string, err error) {
	err = rows.QueryDatabase(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
		func(row *sqlite.Stmt) { names = append(names, row.ColumnText(0)) })
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", path, err)
	}
	return names, nil
}

// sqliteEncodeFile writes sessions to a new session store at path, private to the user. The store imports them one by
// one, so that the rows of each are what they were, byte for byte, and as many may follow one another as the disk
// holds. The file is there whole or not at all, and nothing is left beside it. EncodeFile takes nothing of the sessions
// into keeping, and does not change them.
//
// It stops at an error of the sequence. A session that the store cannot hold whole, because its rows make no tree or
// one has an id that another session has, is left out whole, and left is called with its id and what is wrong with it;
// where left is nil, that is the error of EncodeFile. The error for a path that is taken wraps fs.ErrExist.
func sqliteEncodeFile(
	ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error], left func(sessionID string, err error),
) error {
	var failed error // which says itself where it happened
	err := rows.CreateDatabase(path, func(temporary string) error {
		failed = sqliteFill(ctx, temporary, sessions, left)
		return failed
	})
	if err != nil && failed == nil {
		err = fmt.Errorf("write store %s: %w", path, err)
	}
	return err
}

// sqliteFill makes a store. When it returns without an error all of it is in the one file.
func sqliteFill(
	ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error], left func(sessionID string, err error),
) (err error) {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var failed error
	// refuse reports whether the others follow.
	refuse := func(id string, err error) bool {
		err = fmt.Errorf("%w; export it to a store of its own, or in another format", err)
		if left == nil {
			failed = fmt.Errorf("encode session %s: %w", id, err)
			return false
		}
		left(id, err)
		return true
	}
	s.ImportAll(ctx, func(yield func(*store.Imported) bool) {
		for one, err := range sessions {
			if err != nil {
				failed = err
				return
			}
			if err := one.CheckTree(); err != nil {
				if !refuse(one.Session.ID, err) {
					return
				}
				continue
			}
			in := *one
			in.AsGiven = true
			if !yield(&in) {
				return
			}
		}
	}, func(in *store.Imported, _ store.ImportResult, err error) bool {
		if refused, ok := errors.AsType[*store.NotWholeError](err); ok && failed == nil {
			return refuse(in.Session.ID, refused)
		}
		failed = cmp.Or(failed, err)
		return err == nil
	})
	return failed
}

// SettleStore moves what is in the log of the database at path into its file, and removes the log, which readers leave
// behind: so the file can be replaced. Where another process has the database open the log stays.
func SettleStore(path string) error {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err == nil { // the log goes when the last connection that has read is closed
		err = errors.Join(sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM sqlite_schema", nil), conn.Close())
	}
	if err != nil {
		return fmt.Errorf("settle %s: %w", path, err)
	}
	return nil
}
