package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// The commands below "store", which work on a store as a whole. "store check" has a file of its own.

func newStore() *cobra.Command {
	cmd := described("store", nil, onlyCommands, func(cmd *cobra.Command, _ []string) error {
		address, path, err := place(cmd)
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(address, stores.Name(path)))
		}
		return err
	})
	cmd.AddCommand(newCheck(), newCollectGarbage(), newBackup(), newMigrate())
	return cmd
}

func newBackup() *cobra.Command {
	var x struct{ JSON bool }
	return described("store backup", &x, exactly(1, "one file"), func(cmd *cobra.Command, args []string) error {
		if _, err := ownStore(cmd); err != nil {
			return err
		}
		r, err := openStore(cmd)
		if err != nil {
			return err
		}
		defer r.Close()
		b, ok := r.(store.Backuper)
		if !ok {
			return usagef("backup copies a store that is a file; copy %s with the tools of its database, such as pg_dump",
				r.Name())
		}
		err = b.Backup(cmd.Context(), args[0])
		if errors.Is(err, fs.ErrExist) {
			return usagef("%s is there already; name another file", args[0])
		}
		if err != nil {
			return unwritten(args[0], err)
		}
		info, err := os.Stat(args[0])
		if err != nil {
			return err
		}
		return answer(cmd, x.JSON, struct {
			Store string `json:"store"`
			Copy  string `json:"copy"`
			Bytes int64  `json:"bytes"`
		}{r.Name(), args[0], info.Size()}, "%s copied to %s\n", r.Name(), args[0])
	})
}

// settled is how long nothing may have happened before prompts that nobody names
// are taken for left over: a turn that has not ended may still name them.
const settled = time.Hour

func newCollectGarbage() *cobra.Command {
	var x struct{ DryRun, Vacuum, JSON bool }
	return described("store gc", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			file, ok := s.(store.Compacter)
			if _, here := s.(store.Store); x.Vacuum && !here {
				return usagef("--vacuum rewrites the store, which a collector is using; stop it, or leave out --vacuum")
			}
			if x.Vacuum && !ok {
				return usagef("--vacuum rewrites a store that is a file; %s gets its space back without it", s.Name())
			}
			g, err := s.Collect(ctx, time.Now().Add(-settled), x.DryRun)
			if err == nil && x.Vacuum {
				err = file.Compact(ctx)
			}
			if err != nil {
				return err
			}
			if x.JSON {
				return writeJSON(cmd, g)
			}
			return note(cmd, "%s", phrases.Text("collected", struct {
				store.Garbage
				DryRun bool
			}{g, x.DryRun}))
		})
	})
}

func newMigrate() *cobra.Command {
	var x struct{ Distribute, SearchIndex, Print bool }
	return described("store migrate", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		if x.Print {
			_, err := fmt.Fprint(cmd.OutOrStdout(), stores.MigrationSQL())
			return err
		}
		location, err := ownStore(cmd)
		if err != nil {
			return err
		}
		if x.Distribute && stores.IsFile(location) {
			return usagef("--distribute is for a PostgreSQL database; %s is a file", location)
		}
		err = stores.Migrate(cmd.Context(), location, x.Distribute, x.SearchIndex)
		if errors.Is(err, store.ErrLocked) && x.SearchIndex {
			err = nil // the process that writes the file has brought its tables up to date
		}
		if err == nil && x.SearchIndex {
			err = makeSearchIndex(cmd, location)
		}
		if err != nil {
			return err
		}
		return note(cmd, "the tables of %s are up to date\n", stores.Name(location))
	})
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
	var shown time.Time
	err = indexer.UpdateSearchIndex(cmd.Context(), func(done, total int) bool {
		if isTerminal(cmd.ErrOrStderr()) && time.Since(shown) > 100*time.Millisecond {
			shown = time.Now()
			_ = note(cmd, "\r%d of %d parts are in the search index", done, total)
		}
		return true
	})
	if !shown.IsZero() {
		_ = note(cmd, "\r\x1b[K")
	}
	return err
}
