package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

func newMigrate() *cobra.Command {
	var distribute, searchIndex, printed bool
	to := flags{"distribute": &distribute, "search-index": &searchIndex, "print": &printed}
	cmd := described("migrate", to, &cobra.Command{
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printed {
				_, err := fmt.Fprint(cmd.OutOrStdout(), stores.MigrationSQL())
				return err
			}
			location, err := ownStore(cmd)
			if err != nil {
				return err
			}
			if distribute && stores.IsFile(location) {
				return usagef("--distribute is for a PostgreSQL database; %s is a file", location)
			}
			err = stores.Migrate(cmd.Context(), location, distribute, searchIndex)
			if errors.Is(err, store.ErrLocked) && searchIndex {
				err = nil // the process that writes the file has brought its tables up to date
			}
			if err == nil && searchIndex {
				err = makeSearchIndex(cmd, location)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "the tables of %s are up to date\n", stores.Name(location))
			return err
		},
	})
	return cmd
}

// makeSearchIndex makes the search index of a store that is a file. A database has made its own.
func makeSearchIndex(cmd *cobra.Command, location string) error {
	r, err := stores.OpenReader(cmd.Context(), location)
	if err != nil {
		return err
	}
	defer r.Close()
	indexer, ok := r.(store.SearchIndexer)
	if !ok {
		return nil
	}
	out := cmd.ErrOrStderr()
	var shown time.Time
	err = indexer.UpdateSearchIndex(cmd.Context(), func(done, total int) bool {
		if isTerminal(out) && time.Since(shown) > 100*time.Millisecond {
			shown = time.Now()
			fmt.Fprintf(out, "\r%d of %d parts are in the search index", done, total)
		}
		return true
	})
	if !shown.IsZero() {
		fmt.Fprint(out, "\r\x1b[K")
	}
	return err
}
