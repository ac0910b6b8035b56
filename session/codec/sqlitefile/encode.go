package sqlitefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// EncodeFile writes sessions to a new session store at path, private to the user.
// The store imports them one by one, so that the rows of each are what they were,
// byte for byte, and as many may follow one another as the disk holds. The file is
// there whole or not at all, and nothing is left beside it. EncodeFile takes nothing
// of the sessions into keeping, and does not change them.
//
// It stops at an error of the sequence. A session that the store cannot hold whole, because
// its rows make no tree or one has an id that another session has, is left out whole, and left
// is called with its id and what is wrong with it; where left is nil, that is the error of
// EncodeFile. The error for a path that is taken wraps fs.ErrExist.
func EncodeFile(
	ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error], left func(sessionID string, err error),
) error {
	var failed error // which says itself where it happened
	err := rows.CreateDatabase(path, func(temporary string) error {
		failed = fill(ctx, temporary, sessions, left)
		return failed
	})
	if err != nil && failed == nil {
		err = fmt.Errorf("write store %s: %w", path, err)
	}
	return err
}

// fill makes a store. When it returns without an error all of it is in the one file.
func fill(
	ctx context.Context, path string, sessions iter.Seq2[*codec.Session, error], left func(sessionID string, err error),
) (err error) {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}()
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

// Settle moves what is in the log of the database at path into its file, and removes
// the log, which readers leave behind: so the file can be replaced. Where another
// process has the database open the log stays.
func Settle(path string) error {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return fmt.Errorf("settle %s: %w", path, err)
	}
	// The log goes when the last connection that has read is closed.
	err = sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM sqlite_schema", nil)
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("settle %s: %w", path, err)
	}
	return nil
}

// Explain lists what of a session a store does not hold that was written by
// [EncodeFile]: nothing that was reported in it, but what only later telemetry needs.
// foreign is how many spans and records of agents without the SDK the session was
// built from.
func Explain(_ *codec.Session, foreign int) []codec.Loss {
	return codec.AddLoss(nil, "spans and records of an agent without the SDK, word for word",
		"the rows built from them, and their traces", foreign)
}
