package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/printable"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

const envStore = collector.EnvStore

// storePath is where the store is, a path or an address: as --store says, as the
// environment says, or in the usual place.
func storePath(cmd *cobra.Command) (string, error) {
	path, _ := cmd.Flags().GetString("store")
	if path != "" {
		return path, nil
	}
	if cmd.Flags().Changed("store") {
		return "", usagef("--store is empty; name a file, or leave the flag out")
	}
	if path := os.Getenv(envStore); path != "" {
		return path, nil
	}
	return collector.DefaultStore()
}

// openStore opens the store for reading.
func openStore(cmd *cobra.Command) (store.Reader, error) {
	path, err := storePath(cmd)
	if err != nil {
		return nil, err
	}
	r, err := stores.OpenReader(cmd.Context(), path)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noStoreError{fmt.Errorf("there is no session store at %s", stores.Name(path))}
	}
	return r, err
}

// withSession opens the store and calls fn with the session that name means.
func withSession(cmd *cobra.Command, name string,
	fn func(ctx context.Context, r store.Reader, id string) error) error {
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

// completions is how many sessions are looked through: all of them once something is typed.
func completions(toComplete string) int {
	if toComplete != "" {
		return -1
	}
	return 100
}

// completeSessions offers the newest sessions' ids to the shell.
func completeSessions(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "check" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, err := openStore(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer r.Close()
	var names []string
	if strings.HasPrefix("last", toComplete) {
		names = append(names, cobra.CompletionWithDesc("last", "the newest session"))
	}
	for s, err := range r.Sessions(cmd.Context(), store.SessionQuery{Limit: completions(toComplete), Children: true,
		Archived: true}) {
		if err != nil {
			break
		}
		// What ls prints for an id has not the prefix that every session has.
		name := s.ID
		if bare, ours := strings.CutPrefix(s.ID, "ses_"); ours && toComplete != "" && strings.HasPrefix(bare, toComplete) {
			name = bare
		}
		if strings.HasPrefix(name, toComplete) {
			title := strings.ReplaceAll(printable.Sanitize(s.Title), "\n", " ")
			names = append(names, cobra.CompletionWithDesc(printable.Sanitize(name), title))
		}
	}
	if cmd.Name() == "check" { // it takes files too
		return names, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
