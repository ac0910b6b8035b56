package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

const envStore = collector.EnvStore

// storePath is where the store is: as --store says, as the environment says, or
// in the usual place.
func storePath(cmd *cobra.Command) (string, error) {
	if path, _ := cmd.Flags().GetString("store"); path != "" {
		return path, nil
	}
	if path := os.Getenv(envStore); path != "" {
		return path, nil
	}
	return collector.DefaultStore()
}

// openStore opens the store for reading.
func openStore(cmd *cobra.Command) (*sqlite.Reader, error) {
	path, err := storePath(cmd)
	if err != nil {
		return nil, err
	}
	r, err := sqlite.OpenReader(cmd.Context(), path)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noStoreError{fmt.Errorf("there is no session store at %s", path)}
	}
	return r, err
}

// withSession opens the store and calls fn with the session that name means.
func withSession(cmd *cobra.Command, name string, fn func(ctx context.Context, r *sqlite.Reader, id string) error) error {
	r, err := openStore(cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	id, err := r.Resolve(cmd.Context(), name)
	if err != nil {
		return err
	}
	return fn(cmd.Context(), r, id)
}

// completeSessions offers the newest sessions' ids to the shell.
func completeSessions(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	r, err := openStore(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer r.Close()
	names := []string{"last\tthe newest session"}
	for s, err := range r.Sessions(cmd.Context(), store.SessionQuery{Limit: 100, Children: true}) {
		if err != nil {
			break
		}
		names = append(names, s.ID+"\t"+s.Title)
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
