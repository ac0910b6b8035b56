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
		in     *store.Imported
		result store.ImportResult
		r      *request
		err    error
	}
	var queue []*waiting
	size, ended := 0, false
	all := func() {
		// Most often all can be stored: with a savepoint for each, pages that two of them change would be copied.
		together := s.run(ctx, func(t *tx) (err error) {
			for _, w := range queue {
				if w.result, err = store.Import(lasting{t}, w.in); err != nil {
					break
				}
			}
			return err
		})
		if together != nil {
			for _, w := range queue {
				w.r, w.err = s.submit(ctx, func(t *tx) (err error) {
					w.result, err = store.Import(t, w.in)
					return err
				})
			}
		}
		for _, w := range queue {
			if w.r != nil {
				w.err = w.r.wait(ctx)
			}
			if w.err != nil {
				w.result = store.ImportResult{}
			}
			ended = !done(w.in, w.result, w.err) || ended
		}
		queue, size = queue[:0], 0
	}
	for in := range sessions {
		queue, size = append(queue, &waiting{in: in}), size+sizeOf(in)
		if len(queue) == importsAhead || size >= importBytes {
			all()
		}
		if ended {
			break
		}
	}
	if len(queue) > 0 {
		all()
	}
}

// sizeOf is about how many bytes a session has.
func sizeOf(in *store.Imported) (n int) {
	if in.Transcript == nil {
		return 0
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		n += len(m.Message.MetadataJSON)
		for k := range m.Parts {
			n += len(m.Parts[k].DataJSON)
		}
	}
	return n
}

// lasting is a transaction that cannot be undone, because it has sessions that are imported before.
type lasting struct{ *tx }

// Undo implements [store.Tx].
func (lasting) Undo() error { return errShared }

var errShared = errors.New("the transaction is shared")
