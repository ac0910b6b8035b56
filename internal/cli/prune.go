package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newPrune() *cobra.Command {
	var olderThan string
	var archived, dryRun, yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Delete old sessions",
		Long: `Delete sessions whose last update is older than AGE, as rm does. AGE is a number of
days or weeks, or a duration: 30d, 8w, 12h. A session is deleted together with its forks
and sub-agents, once all of them are that old.

--dry-run lists them and deletes nothing; with --json, as ls does. Otherwise prune asks for
confirmation; without a terminal, --yes is required. --json prints an object: deleted, the
ids of the deleted sessions. "gc --vacuum" then returns the space.`,
		Example: `  agenttrace prune --older-than 30d --dry-run
  agenttrace prune --older-than 8w --archived --yes && agenttrace gc --vacuum`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan == "" {
				return usagef("prune does not know what is old; add --older-than 30d")
			}
			age, ok := days(olderThan)
			if !ok {
				var err error
				if age, err = time.ParseDuration(olderThan); err != nil || age < 0 {
					return usagef("--older-than %q is not an age; use one such as 30d, 8w or 12h", olderThan)
				}
			}
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			now := time.Now()
			sessions, err := r.Stale(cmd.Context(), now.Add(-age), archived)
			if err != nil {
				return err
			}
			if len(sessions) == 0 && !asJSON {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no session is older than %s\n", olderThan)
				return err
			}
			if !dryRun {
				return deleteSessions(cmd, sessions, yes, asJSON)
			}
			items, err := listItems(cmd, r, sessions, nil, now, 0)
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
	f.BoolVar(&archived, "archived", false, "only archived sessions, with their forks and sub-agents")
	f.BoolVar(&dryRun, "dry-run", false, "list what would be deleted")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&asJSON, "json", false, "print a JSON object; with --dry-run, an array")
	return cmd
}
