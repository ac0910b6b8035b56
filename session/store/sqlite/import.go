package sqlite

import (
	"context"
	"errors"
	"iter"

	"github.com/agenttrace/agenttrace/session/store"
)

// importsAhead is how many sessions wait to be committed together, and importBytes about how many bytes they have:
// enough to share the cost of a transaction and of the pages that all of them change, and few, for a session may be
// large.
const (
	importsAhead = 48
	importBytes  = 8 << 20
)

// ImportAll implements [store.Store]. Several sessions share a transaction.
func (s *Store) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	type waiting struct {
		result store.ImportResult
		r      *request
		err    error
	}
	for group := range store.ImportGroups(sessions, importsAhead, importBytes) {
		queue := make([]waiting, len(group))
		// Most often all can be stored: with a savepoint for each, pages that two of them change would be copied.
		together := s.run(ctx, func(t *tx) (err error) {
			for i := range queue {
				if queue[i].result, err = store.Import(lasting{t}, group[i]); err != nil {
					break
				}
			}
			return err
		})
		if together != nil {
			for i := range queue {
				w := &queue[i]
				w.r, w.err = s.submit(ctx, func(t *tx) (err error) {
					w.result, err = store.Import(t, group[i])
					return err
				})
			}
		}
		ended := false
		for i := range queue {
			w := &queue[i]
			if w.r != nil {
				w.err = w.r.wait(ctx)
			}
			if w.err != nil {
				w.result = store.ImportResult{}
			}
			ended = !done(group[i], w.result, w.err) || ended
		}
		if ended {
			return
		}
	}
}

// lasting is a transaction that cannot be undone, because it has sessions that are imported before.
type lasting struct{ *tx }

// Undo implements [store.Tx].
func (lasting) Undo() error { return errShared }

var errShared = errors.New("the transaction is shared")
