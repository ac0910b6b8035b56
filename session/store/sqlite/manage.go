package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/store"
)

// ForkOptions are those of [store.ForkSession].
type ForkOptions = store.ForkOptions

// Rewound is the result of [store.RewindSession].
type Rewound = store.Rewound

// Errors of [Store.Fork], [Store.Rewind] and [Store.Unrewind].
var (
	ErrHidden   = store.ErrHidden
	ErrNotUsers = store.ErrNotUsers
	ErrNoRewind = store.ErrNoRewind
)

// Fork makes a fork, as [store.ForkSession] describes, and returns its id when it is committed.
func (s *Store) Fork(ctx context.Context, o ForkOptions) (string, error) {
	return committed(ctx, s, func(t store.Tx) (string, error) { return store.ForkSession(t, o) })
}

// Rewind hides messages, as [store.RewindSession] describes.
func (s *Store) Rewind(ctx context.Context, id, to string, now time.Time) (Rewound, error) {
	return committed(ctx, s, func(t store.Tx) (Rewound, error) { return store.RewindSession(t, id, to, now) })
}

// Unrewind undoes a rewind, as [store.UnrewindSession] describes.
func (s *Store) Unrewind(ctx context.Context, id string) (Rewound, error) {
	return committed(ctx, s, func(t store.Tx) (Rewound, error) { return store.UnrewindSession(t, id) })
}

// committed returns what do returned when it is committed, and nothing with an error.
func committed[T any](ctx context.Context, s *Store, do func(store.Tx) (T, error)) (result T, _ error) {
	err := s.Transact(ctx, func(t store.Tx) (err error) {
		result, err = do(t)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

// Archive sets or takes back that a session is archived, as said at the time now.
// Telemetry that says otherwise counts if it is of a later time; that of an earlier
// one, delivered again, does not. The error for a session that is not there wraps
// store.ErrNotFound.
func (s *Store) Archive(ctx context.Context, id string, archived bool, now time.Time) error {
	v := &store.Value{Text: "0", At: now.UnixNano(), Rank: store.RankFinal}
	if archived {
		v.Text = "1"
	}
	return s.Transact(ctx, func(t store.Tx) error { return store.Amend(t, store.SessionChange{ID: id, Archived: v}) })
}

// SetTitle names a session, as said at the time now; see [Store.Archive].
func (s *Store) SetTitle(ctx context.Context, id, title string, now time.Time) error {
	v := &store.Value{Text: title, At: now.UnixNano(), Rank: store.RankFinal}
	return s.Transact(ctx, func(t store.Tx) error { return store.Amend(t, store.SessionChange{ID: id, Title: v}) })
}

// Delete deletes a session with its messages, parts, decisions, spans and
// observations, in one transaction. Sessions that have it as their parent stay,
// and so do prompts and catalogs: see [Store.Collect]. The error for a session that
// is not there wraps store.ErrNotFound.
//
// Nothing remembers what was deleted: telemetry that is delivered again, or that
// comes late, makes the session again of what it reports.
func (s *Store) Delete(ctx context.Context, id string) error {
	return s.run(ctx, func(t *tx) error {
		stmt := prep(t.conn, `DELETE FROM export_outbox WHERE session_id = ?`, id)
		if err := exec(stmt); err != nil {
			return err
		}
		stmt = t.conn.Prep(`DELETE FROM chat_sessions WHERE id = ?`) // and all that refers to it, by keys and a trigger
		stmt.BindText(1, id)
		if err := exec(stmt); err != nil {
			return err
		}
		if t.conn.Changes() == 0 {
			return fmt.Errorf("session %s: %w", id, store.ErrNotFound)
		}
		return nil
	})
}

// deleteObservations deletes those that a condition on observations names, with the
// calls that they announced.
func (t *tx) deleteObservations(where string) error {
	for _, query := range []string{
		`DELETE FROM tool_call_requests WHERE (call_id, start_nano, trace_id, source) IN
 (SELECT c.value, o.start_nano, o.trace_id, o.source FROM observations o, json_each(o.calls_json) c WHERE o.calls_json IS NOT NULL AND (` + where + `))`,
		// What is carried from window to window would speak of them still.
		`DELETE FROM observation_windows WHERE owner IN (SELECT owner FROM observations WHERE ` + where + `)`,
		`DELETE FROM observations WHERE ` + where,
	} {
		if err := exec(t.conn.Prep(query)); err != nil {
			return err
		}
	}
	return nil
}

// Garbage counts what no session needs.
type Garbage struct {
	SystemPrompts int64 `json:"system_prompts"`
	ToolCatalogs  int64 `json:"tool_catalogs"`
	// Observations are those of sessions that are gone.
	Observations int64 `json:"observations"`
	// Kept reports that prompts and catalogs were not looked at, because something was
	// going on too short a time ago: a turn that has not ended may name them.
	Kept bool `json:"prompts_kept,omitempty"`
}

// Collect deletes the system prompts and tool catalogs that no message and no span
// names, and the observations of sessions that are gone. With dryRun it counts
// only. Prompts and catalogs are kept as long as a session, or an observation that
// no session reports yet, is younger than recent: their text is sent once, and may
// come before the turn that names it.
func (s *Store) Collect(ctx context.Context, recent time.Time, dryRun bool) (Garbage, error) {
	var g Garbage
	err := s.run(ctx, func(t *tx) (err error) {
		g = Garbage{}
		defer sqlitex.Save(t.conn)(&err)
		const orphans = `session_id IS NOT NULL AND session_id NOT IN (SELECT id FROM chat_sessions)`
		if err := exec(
			t.conn.Prep(`CREATE TEMP TABLE IF NOT EXISTS named (digest TEXT PRIMARY KEY) WITHOUT ROWID`)); err != nil {
			return err
		}
		if err := exec(t.conn.Prep(`DELETE FROM temp.named`)); err != nil {
			return err
		}
		if g.Observations, err = sqlitex.ResultInt64(
			t.conn.Prep(`SELECT count(*) FROM observations WHERE ` + orphans)); err != nil {
			return err
		}
		if !dryRun {
			if err := t.deleteObservations(orphans); err != nil {
				return err
			}
			if err := exec(
				t.conn.Prep(`DELETE FROM export_outbox WHERE session_id NOT IN (SELECT id FROM chat_sessions)`)); err != nil {
				return err
			}
		}
		busy := prep(t.conn, `SELECT EXISTS (SELECT 1 FROM chat_sessions WHERE updated_at >= ?1)
 OR EXISTS (SELECT 1 FROM observations WHERE session_id IS NULL AND end_nano >= ?1 * 1000000)`, recent.UnixMilli())
		young, err := sqlitex.ResultInt64(busy)
		if err != nil {
			return err
		}
		if g.Kept = young != 0; g.Kept {
			return nil
		}
		for _, query := range []string{
			`INSERT OR IGNORE INTO temp.named SELECT value FROM chat_messages m, json_each(json_array(
 json_extract(m.metadata_json, '$.system_prompt_digest'), json_extract(m.metadata_json, '$.agenttrace.tool_catalog_digest')))
 WHERE m.role <> 'user' AND json_valid(m.metadata_json) AND value IS NOT NULL`,
			`INSERT OR IGNORE INTO temp.named SELECT value FROM span_refs l, json_each(json_array(
 json_extract(l.facts_json, '$.system_prompt_digest'), json_extract(l.facts_json, '$.agenttrace.tool_catalog_digest')))
 WHERE l.facts_json IS NOT NULL AND value IS NOT NULL`,
		} {
			if err := exec(t.conn.Prep(query)); err != nil {
				return err
			}
		}
		for _, kind := range []struct {
			table string
			n     *int64
		}{{"system_prompts", &g.SystemPrompts}, {"tool_catalogs", &g.ToolCatalogs}} {
			rest := ` FROM ` + kind.table + ` WHERE digest NOT IN (SELECT digest FROM temp.named)`
			if *kind.n, err = sqlitex.ResultInt64(t.conn.Prep(`SELECT count(*)` + rest)); err != nil {
				return err
			}
			if !dryRun {
				if err := exec(t.conn.Prep(`DELETE` + rest)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return g, err
}

// Compact gives the space of what was deleted back to the file system. It needs as
// much room again as the store takes while it works, and fails with
// store.ErrUnavailable while somebody reads.
func (s *Store) Compact(ctx context.Context) (err error) {
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
	if err != nil {
		return openError(s.path, err)
	}
	defer func() {
		if closeErr := conn.Close(); err == nil && closeErr != nil {
			err = classify(fmt.Errorf("compact store %s: %w", s.path, closeErr))
		}
	}()
	conn.SetInterrupt(ctx.Done())
	for _, statement := range []string{"PRAGMA busy_timeout = 5000", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return classify(fmt.Errorf("compact store %s: %w", s.path, err))
		}
	}
	return nil
}

// backupPages is how many pages are copied before ctx is looked at.
const backupPages = 1024

// Backup copies the store into a new file, private to the user, also while another
// process writes it: the copy is one state of the store. It is complete when it
// appears under its name; the error for a name that is taken wraps fs.ErrExist.
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
	defer func() {
		if closeErr := to.Close(); err == nil {
			err = closeErr
		}
	}()
	backup, err := sqlite.NewBackup(to, "main", from, "main")
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := backup.Close(); err == nil {
			err = closeErr
		}
	}()
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
