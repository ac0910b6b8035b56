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
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables of a store, or bring them up to date",
		Long: `Create the tables of a store, or bring them up to date.

Whatever opens a store for writing does this too. The command is for a PostgreSQL database
in which collectors have the rights to change rows, but not tables: run it as the owner,
and GRANT SELECT, INSERT, UPDATE, DELETE on the tables to the collectors. Several programs
may start at the same time. Tables of a newer version are an error.

--print prints the SQL and changes nothing. --distribute distributes the tables over the
nodes of a Citus cluster, by session or trace; tables that are distributed stay as they
are. --search-index makes an index with which "agenttrace search" finds rare words at once.
In a database it needs the extension pg_trgm, and room and time for each part that is
written. That of a file is a directory beside it, which "search" extends by what was written
since; it may be made while a collector writes the file.`,
		Example: `  agenttrace migrate --store postgres://owner@db.example.com/agenttrace
  agenttrace migrate --print | psql agenttrace`,
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
	}
	cmd.Flags().BoolVar(&distribute, "distribute", false, "distribute the tables of a Citus cluster")
	cmd.Flags().BoolVar(&searchIndex, "search-index", false, "make an index for agenttrace search")
	cmd.Flags().BoolVar(&printed, "print", false, "print the SQL for PostgreSQL")
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
