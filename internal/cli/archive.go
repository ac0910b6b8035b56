package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/web"
)

func newArchive() *cobra.Command {
	var undo, asJSON bool
	cmd := described("archive", flags{"undo": &undo, "json": &asJSON}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              atLeastOne("one session or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withWriter(cmd, func(ctx context.Context, s store.Service) error {
				ids, err := resolveAll(ctx, s, args)
				if err != nil {
					return err
				}
				for _, id := range ids {
					if err := s.Archive(ctx, id, !undo, time.Now()); err != nil {
						return err
					}
				}
				if asJSON {
					return writeJSON(cmd, struct {
						Archived bool     `json:"archived"`
						Sessions []string `json:"sessions"`
					}{!undo, ids})
				}
				did := "archived"
				if undo {
					did = "taken back from the archive"
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", counted(len(ids), "session"), did)
				return nil
			})
		},
	})
	return cmd
}

// withWriter opens a store that is there for writing and calls fn with it. If a
// collector holds it, the collector does what fn asks for; a store that another
// process holds is refused, with that process's name.
func withWriter(cmd *cobra.Command, fn func(ctx context.Context, s store.Service) error) error {
	address, path, err := place(cmd)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); address == "" && stores.IsFile(path) && errors.Is(err, fs.ErrNotExist) {
		return noStore(path)
	}
	s, err := openWriter(cmd)
	if err != nil {
		return err
	}
	err = fn(cmd.Context(), s)
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

// openWriter opens or creates the store, or reaches the collector to ask or that holds it.
func openWriter(cmd *cobra.Command) (store.Service, error) {
	address, path, err := place(cmd)
	if err != nil {
		return nil, err
	}
	if address != "" {
		return dial(cmd, address)
	}
	s, err := stores.Open(cmd.Context(), path, stores.Options{})
	if err == nil {
		return s, nil
	}
	if socket := stores.Socket(path); errors.Is(err, store.ErrLocked) && socket != "" {
		// A process without a server, or that has ended meanwhile, is the error that matters.
		if c, dialErr := web.Dial(cmd.Context(), "unix://"+socket, ""); dialErr == nil {
			return c, nil
		}
	}
	return nil, err
}

// resolveAll resolves each name, and each session once.
func resolveAll(ctx context.Context, r store.Reader, names []string) ([]string, error) {
	var ids []string
	for _, name := range names {
		id, err := r.Resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// atLeastOne wants arguments.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s takes %s; %s --help shows examples", cmd.Name(), what, cmd.CommandPath())
		}
		return nil
	}
}
