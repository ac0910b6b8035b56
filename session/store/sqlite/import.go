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
	// They are submitted together: the writer commits what waits, and would not wait for more.
	all := func() {
		for _, w := range queue {
			w.r, w.err = s.submit(ctx, func(t *tx) (err error) {
				w.result, err = store.Import(t, w.in)
				return err
			})
		}
		for _, w := range queue {
			settle(w)
		}
		queue = queue[:0]
	}
	for in := range sessions {
		if queue = append(queue, &waiting{in: in}); len(queue) == importsAhead {
			all()
		}
		if ended {
			break
		}
	}
	all()
}
