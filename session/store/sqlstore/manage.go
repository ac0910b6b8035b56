package sqlstore

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// Writer has the methods of [store.Store] that write, for any engine that speaks SQL. Each is one transaction.
type Writer struct {
	start     func(ctx context.Context, do func(Tx) error) (wait func() error)
	imports   int
	rebuilder *rebuilder
}

// NewWriter returns a Writer. start has do executed in a transaction, which others may share. wait returns when it is
// committed, or with an error if nothing that do changed is. imports is how many sessions are imported at a time.
func NewWriter(imports int, start func(ctx context.Context, do func(Tx) error) (wait func() error)) Writer {
	return Writer{start, imports, new(rebuilder)}
}

func (w *Writer) write(ctx context.Context, do func(Tx) error) error { return w.start(ctx, do)() }

// Transact implements [store.Store].
func (w *Writer) Transact(ctx context.Context, do func(store.Tx) error) error {
	return w.write(ctx, func(t Tx) error { return do(t) })
}

// Guarded runs what is done in a transaction. A panic becomes an error: no batch may take the writer with it.
func Guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("apply changes: %v\n%s", p, debug.Stack())
		}
	}()
	return do()
}

// committed returns what do returned when it is committed, and nothing with an error.
func committed[T any](ctx context.Context, w *Writer, do func(Tx) (T, error)) (result T, _ error) {
	err := w.write(ctx, func(t Tx) (err error) {
		result, err = do(t)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

// Apply implements [store.Writer].
func (w *Writer) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	if b.Len() == 0 {
		if b.Assemble != nil {
			w.applied(b, false)
		}
		return store.Result{}, nil
	}
	some := *b
	some.Defer = b.Assemble != nil
	result, err := committed(ctx, w, func(t Tx) (store.Result, error) { return store.Apply(t, &some) })
	if err == nil && some.Defer {
		w.applied(b, result.Unbuilt)
	}
	return result, err
}

// Import implements [store.Store].
func (w *Writer) Import(ctx context.Context, in *store.Imported) (store.ImportResult, error) {
	return committed(ctx, w, func(t Tx) (store.ImportResult, error) { return store.Import(t, in) })
}

// importBytes is about how many bytes the sessions have that are imported at a time: few, for a session may be large.
const importBytes = 8 << 20

// ImportAll implements [store.Store].
func (w *Writer) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	for group := range store.ImportGroups(sessions, w.imports, importBytes) {
		results, waits := make([]store.ImportResult, len(group)), make([]func() error, len(group))
		for i, in := range group {
			waits[i] = w.start(ctx, func(t Tx) (err error) {
				results[i], err = store.Import(t, in)
				return err
			})
		}
		more := true
		for i, in := range group {
			err := waits[i]()
			if err != nil {
				results[i] = store.ImportResult{}
			}
			more = done(in, results[i], err) && more
		}
		if !more {
			return
		}
	}
}

// Fork implements [store.Store].
func (w *Writer) Fork(ctx context.Context, o store.ForkOptions) (string, error) {
	return committed(ctx, w, func(t Tx) (string, error) { return store.ForkSession(t, o) })
}

// Rewind implements [store.Store].
func (w *Writer) Rewind(ctx context.Context, id, to string, now time.Time) (store.Rewound, error) {
	return committed(ctx, w, func(t Tx) (store.Rewound, error) { return store.RewindSession(t, id, to, now) })
}

// Unrewind implements [store.Store].
func (w *Writer) Unrewind(ctx context.Context, id string) (store.Rewound, error) {
	return committed(ctx, w, func(t Tx) (store.Rewound, error) { return store.UnrewindSession(t, id) })
}

// Archive implements [store.Store].
func (w *Writer) Archive(ctx context.Context, id string, archived bool, now time.Time) error {
	v := &store.Value{Text: "0", At: now.UnixNano(), Rank: store.RankFinal}
	if archived {
		v.Text = "1"
	}
	return w.amend(ctx, store.SessionChange{ID: id, Archived: v})
}

// SetTitle implements [store.Store].
func (w *Writer) SetTitle(ctx context.Context, id, title string, now time.Time) error {
	v := &store.Value{Text: title, At: now.UnixNano(), Rank: store.RankFinal}
	return w.amend(ctx, store.SessionChange{ID: id, Title: v})
}

// Annotate implements [store.Store].
func (w *Writer) Annotate(ctx context.Context, annotations []store.Annotation) error {
	return w.write(ctx, func(t Tx) error { return store.Annotate(t, annotations) })
}

func (w *Writer) amend(ctx context.Context, c store.SessionChange) error {
	return w.write(ctx, func(t Tx) error { return store.Amend(t, c) })
}

// Exported implements [store.Store].
func (w *Writer) Exported(ctx context.Context, sessionID string, touchedAt int64) error {
	return w.write(ctx, func(t Tx) error {
		_, err := t.Exec(`DELETE FROM export_outbox WHERE session_id = ? AND touched_at <= ?`, sessionID, touchedAt)
		return err
	})
}

// Delete implements [store.Store]. Foreign keys delete all else that refers to the session. Its row in the outbox of
// files stays until its file is removed.
func (w *Writer) Delete(ctx context.Context, id string) error {
	return w.write(ctx, func(t Tx) error {
		found := false
		err := t.Do(func(s store.Statements) {
			s.Name(store.NameSession, id)
			s.Select(`SELECT 1 FROM chat_sessions WHERE id = ?`, func(store.Row) error {
				found = true
				return nil
			}, id)
			files, _ := s.Stamps()
			store.Note(s, "export_outbox", id, files)
		})
		if err == nil && !found {
			err = fmt.Errorf("session %s: %w", id, store.ErrNotFound)
		}
		if err == nil {
			err = deleteObservations(t, `session_id = ?1 OR owner = ?1 AND session_id IS NULL`, id)
		}
		for _, statement := range []string{
			`DELETE FROM tool_call_requests WHERE call_id IN (SELECT '` + store.ResponsePrefix + `' || ` +
				t.Dialect().JSON("facts_json", "agenttrace", "response_id") + ` FROM span_refs WHERE session_id = ?1)
 AND (trace_id, source) IN (SELECT trace_id, span_id FROM span_refs WHERE session_id = ?1)`,
			`DELETE FROM unbuilt_turns WHERE owner = ?1`,
			`DELETE FROM span_outbox WHERE session_id = ?1`,
			`DELETE FROM session_state WHERE session_id = ?1`,
			`DELETE FROM chat_sessions WHERE id = ?1`,
		} {
			if err == nil {
				_, err = t.Exec(statement, id)
			}
		}
		return err
	})
}

// Collect implements [store.Store].
func (w *Writer) Collect(ctx context.Context, recent time.Time, dryRun bool) (store.Garbage, error) {
	return committed(ctx, w, func(t Tx) (g store.Garbage, err error) {
		if g.Observations, err = number(t, `SELECT count(*) FROM observations WHERE `+ofGoneSessions); err != nil {
			return g, err
		}
		if !dryRun {
			if err := deleteObservations(t, ofGoneSessions); err != nil {
				return g, err
			}
			if _, err := t.Exec(`DELETE FROM span_outbox WHERE session_id NOT IN (SELECT id FROM chat_sessions)`); err != nil {
				return g, err
			}
		}
		busy, err := number(t, `SELECT CASE WHEN EXISTS (SELECT 1 FROM chat_sessions WHERE updated_at >= ?)
 OR EXISTS (SELECT 1 FROM observations WHERE session_id IS NULL AND end_nano >= ?) THEN 1 ELSE 0 END`,
			recent.UnixMilli(), recent.UnixMilli()*1e6)
		if g.Kept = busy != 0; g.Kept || err != nil {
			return g, err
		}
		for _, b := range blobKinds {
			n, err := collectBlobs(t, b.kind, b.key, dryRun)
			if err != nil {
				return g, err
			}
			switch b.kind {
			case store.BlobSystemPrompt:
				g.SystemPrompts = n
			case store.BlobToolCatalog:
				g.ToolCatalogs = n
			}
		}
		return g, nil
	})
}

// ofGoneSessions is a condition on observations.
const ofGoneSessions = `session_id IS NOT NULL AND session_id NOT IN (SELECT id FROM chat_sessions)`

// deleteObservations deletes those that match a condition, and the calls that they requested.
func deleteObservations(t Tx, where string, args ...any) error {
	_, err := t.Exec(`DELETE FROM tool_call_requests WHERE (call_id, start_nano, trace_id, source) IN
 (SELECT c.value, o.start_nano, o.trace_id, o.source FROM observations o, `+t.Dialect().Elements("o.calls_json", "c")+`
 WHERE o.calls_json IS NOT NULL AND (`+where+`))`, args...)
	if err == nil {
		_, err = t.Exec(`DELETE FROM observations WHERE `+where, args...)
	}
	return err
}

// collectBlobs deletes the blobs whose digest neither a message nor a span names under the key, or counts them.
func collectBlobs(t Tx, kind store.BlobKind, key []string, dryRun bool) (int64, error) {
	ofMessage, ofSpan := t.Dialect().JSON("metadata_json", key...), t.Dialect().JSON("facts_json", key...)
	unnamed := ` FROM ` + string(kind) + ` WHERE digest NOT IN (
 SELECT ` + ofMessage + ` FROM chat_messages WHERE role <> 'user' AND ` + ofMessage + ` IS NOT NULL
 UNION SELECT ` + ofSpan + ` FROM span_refs WHERE facts_json IS NOT NULL AND ` + ofSpan + ` IS NOT NULL)`
	if dryRun {
		return number(t, `SELECT count(*)`+unnamed)
	}
	return t.Exec(`DELETE` + unnamed)
}

// RecordSources implements [store.ImportSources].
func (w *Writer) RecordSources(ctx context.Context, sources ...*store.ImportSource) error {
	return w.write(ctx, func(t Tx) error { return store.RecordSources(t, sources...) })
}

// ImportSources implements [store.ImportSources].
func (r *Reader) ImportSources(ctx context.Context, prefix string) ([]store.ImportSource, error) {
	return get(ctx, r, func(conn Conn) ([]store.ImportSource, error) {
		const below = ` WHERE path >= ?1 AND substr(path, 1, length(?1)) = ?1 ORDER BY path`
		found, err := rowsOf(conn, store.SourceTable(),
			`SELECT `+store.SourceTable().Prefixed("", "state")+` FROM import_sources`+below, prefix)
		if err != nil {
			return nil, err
		}
		at := make(map[string]*store.ImportSource, len(found))
		for i := range found {
			at[found[i].Path] = &found[i]
		}
		return found, sourceSessions(conn, below, prefix, func(path string) *store.ImportSource { return at[path] })
	})
}

// ImportSource implements [store.ImportSources].
func (r *Reader) ImportSource(ctx context.Context, path string) (store.ImportSource, error) {
	return get(ctx, r, func(conn Conn) (store.ImportSource, error) {
		found, err := only(conn, store.SourceTable(), "source", store.SourceTable().ByKey, path)
		if err == nil {
			err = sourceSessions(conn, ` WHERE path = ?1 ORDER BY path`, path,
				func(string) *store.ImportSource { return &found })
		}
		return found, err
	})
}

// sourceSessions reads which sessions the sources are of that where selects by an argument. source returns the one
// with a path, or nil.
func sourceSessions(conn Conn, where, arg string, source func(path string) *store.ImportSource) error {
	return conn.Query(`SELECT path, session_id,
 CASE WHEN EXISTS (SELECT 1 FROM chat_sessions WHERE id = session_id) THEN 1 ELSE 0 END
 FROM import_source_sessions`+where+`, session_id`, func(row store.Row) error {
		s, id := source(row.ColumnText(0)), row.ColumnText(1)
		if s == nil {
			return nil
		}
		s.Sessions = append(s.Sessions, id)
		if !row.ColumnBool(2) {
			s.Deleted = append(s.Deleted, id)
		}
		return nil
	}, arg)
}
