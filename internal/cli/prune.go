package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/store"
)

func newPrune() *cobra.Command {
	var olderThan string
	var archived, dryRun, yes, asJSON bool
	var x filters
	cmd := described("prune", flags{
		"older-than": &olderThan, "archived": &archived, "dry-run": &dryRun, "yes": &yes, "json": &asJSON,
	}, &cobra.Command{
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan == "" && !x.given(cmd) {
				return usagef("prune does not know what is old; add --older-than 30d")
			}
			if err := x.read(cmd); err != nil {
				return err
			}
			before := time.UnixMilli(1<<53 - 1) // whatever a clock was set to
			for flag, age := range map[string]string{"older-than": olderThan, "since": x.since, "until": x.until} {
				if err := store.AmbiguousAge(age); err != nil {
					return usagef("--%s %w", flag, err)
				}
			}
			if olderThan != "" {
				var err error
				if before, err = store.ParseAge(olderThan, time.Now()); err != nil {
					return usagef("--older-than %w", err)
				}
			}
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			sessions, err := r.Stale(cmd.Context(), before, archived)
			if err == nil && x.any() {
				sessions, err = x.families(cmd.Context(), r, sessions)
			}
			if err != nil {
				return err
			}
			if olderThan != "" {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s, last updated before %s (%s ago)\n",
					counted(len(sessions), "session"), before.Format("2006-01-02 15:04:05 MST"), olderThan)
				if err != nil {
					return err
				}
			}
			if len(sessions) == 0 && !asJSON && x.any() {
				return x.reportNone(cmd, r, store.SessionQuery{Children: true, Archived: true})
			}
			if len(sessions) == 0 && !asJSON {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no session is older than %s\n", olderThan)
				return err
			}
			if !dryRun {
				return deleteSessions(cmd, sessions, yes, asJSON)
			}
			r.IdleTimeout = -1 // they are old
			items, err := listItems(cmd, r, sessions, nil)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, items)
			}
			return printList(cmd, r, items, nil)
		},
	})
	addFilters(cmd, &x)
	return cmd
}
