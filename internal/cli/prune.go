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
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE | FILTER...",
		Short: "Delete old sessions",
		Long: `Delete sessions whose last update is older than AGE, as rm does. AGE is a number with
a unit, such as 12h, 30d, 8w, 6mo (months) or 1y; 6m, which could also be minutes, is
refused. The date that it comes to is printed first. A session is deleted together with
its forks and sub-agents, once all of them are that old. With filters, only such sessions
are deleted of which the oldest of its family matches; then --older-than may be left out.

` + filtersHelp + `

--dry-run lists them and deletes nothing; with --json, as ls does. Otherwise prune asks for
confirmation; without a terminal, --yes is required. --json prints an object: deleted, the
ids of the deleted sessions. "gc --vacuum" then returns the space.`,
		Example: `  agenttrace prune --older-than 30d --dry-run
  agenttrace prune --older-than 8w --archived --yes && agenttrace gc --vacuum`,
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
	}
	f := cmd.Flags()
	f.StringVar(&olderThan, "older-than", "", "minimum `age` of the sessions to delete")
	addFilters(cmd, &x)
	f.BoolVar(&archived, "archived", false, "only archived sessions, with their forks and sub-agents")
	f.BoolVar(&dryRun, "dry-run", false, "list what would be deleted")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&asJSON, "json", false, "print a JSON object; with --dry-run, an array")
	return cmd
}
