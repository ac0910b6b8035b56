package sqlite

import (
	"context"

	"github.com/agenttrace/agenttrace/session/store"
)

// Import merges a session that a file holds into the store, as [store.Import]
// says, and returns when it is committed, or with an error when none of it is.
// It does not change or retain in.
func (s *Store) Import(ctx context.Context, in *store.Imported) (store.ImportResult, error) {
	var result store.ImportResult
	err := s.run(ctx, func(t *tx) (err error) {
		result, err = store.Import(t, in)
		return err
	})
	if err != nil {
		return store.ImportResult{}, err
	}
	return result, nil
}
