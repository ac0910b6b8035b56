package sqlite

import (
	"context"
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

// ImportAll implements [store.Store]. Several sessions share a transaction, until one of them fails.
func (s *Store) ImportAll(ctx context.Context, sessions iter.Seq[*store.Imported],
	done func(*store.Imported, store.ImportResult, error) bool) {
	for group := range store.ImportGroups(sessions, importsAhead, importBytes) {
		results := make([]store.ImportResult, len(group))
		together := s.run(ctx, func(t *tx) (err error) {
			t.shared = true
			for i, in := range group {
				if results[i], err = store.Import(t, in); err != nil {
					return err
				}
			}
			return nil
		})
		ended := false
		for i, in := range group {
			var err error
			if together != nil {
				results[i], err = s.Import(ctx, in)
			}
			ended = !done(in, results[i], err) || ended
		}
		if ended {
			return
		}
	}
}
