package sqlite

import (
	"context"
	"iter"

	"github.com/agenttrace/agenttrace/session/store"
)

// importsAhead is how many sessions wait to be committed together: enough to share the
// cost of a transaction, and few, for a session may be large.
const importsAhead = 16

// ImportAll implements [store.Store]. Several sessions share a transaction.
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
