package sqlite

import (
	"context"
	"iter"

	"zombiezen.com/go/sqlite"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// Import merges a session that a file holds into the store, as [store.Import]
// says, and returns when it is committed, or with an error when none of it is.
// It does not change or retain in.
func (s *Store) Import(ctx context.Context, in *store.Imported) (store.ImportResult, error) {
	return committed(ctx, s, func(t store.Tx) (store.ImportResult, error) { return store.Import(t, in) })
}

// importsAhead is how many sessions wait to be committed together: enough to share the
// cost of a transaction, and few, for a session may be large.
const importsAhead = 16

// ImportAll imports sessions in their order, each as Import does: whole or not at all.
// Several share a transaction. done is called for each, in order, when it is
// committed or has failed, and ends the import by returning false; what was taken
// from the sequence by then is imported all the same. ImportAll returns when all of
// it is, and holds a few sessions at a time: they must not change before they are done.
func (s *Store) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	type waiting struct {
		in     *store.Imported
		result store.ImportResult
		r      *request
		err    error
	}
	var queue []*waiting
	ended := false
	settle := func(w *waiting) {
		if w.err == nil {
			w.err = w.r.wait(ctx)
		}
		if w.err != nil {
			w.result = store.ImportResult{}
		}
		ended = !done(w.in, w.result, w.err) || ended
	}
	for in := range sessions {
		w := &waiting{in: in}
		w.r, w.err = s.submit(ctx, func(t *tx) (err error) {
			w.result, err = store.Import(t, in)
			return err
		})
		if queue = append(queue, w); len(queue) == importsAhead {
			settle(queue[0])
			queue = append(queue[:0], queue[1:]...)
		}
		if ended {
			break
		}
	}
	for _, w := range queue {
		settle(w)
	}
}

// Origin adds to a session what the store remembers of how it came about: the spans
// that it was built from, as [Reader.Spans] returns them; the ids of its traces; what
// another store can take of its state; and the indexes that displaced parts asked for.
// A store written by another program remembers nothing.
func (r *Reader) Origin(ctx context.Context, in *store.Imported) error {
	return r.readOurs(ctx, func(conn *sqlite.Conn) error {
		id := in.Session.ID
		links, err := r.spans(conn, id)
		if err != nil {
			return err
		}
		traces, err := texts(prep(conn, `SELECT trace_id FROM session_traces WHERE session_id = ? ORDER BY trace_id`, id))
		if err != nil {
			return err
		}
		stmt := prep(conn, `SELECT state_json FROM session_state WHERE session_id = ?`, id)
		var state *store.State
		err = each(stmt, func() error {
			state = new(store.State)
			return sqlstore.ReadState(id, stmt.ColumnText(0), state)
		})
		if err != nil {
			return err
		}
		in.RequestedIndexes, err = rows(sqlstore.IndexTable, prep(conn, `SELECT `+sqlstore.IndexTable.Prefixed("c.")+` FROM chat_messages m
 CROSS JOIN requested_indexes c ON c.message_id = m.id WHERE m.session_id = ? ORDER BY c.message_id, c.part_id`, id))
		in.SpanRefs, in.Traces, in.State = links, traces, state.Portable()
		return err
	})
}
