package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
)

func newList() *cobra.Command {
	var q store.SessionQuery
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sessions, newest first",
		Example: `  agenttrace ls --limit 10
  agenttrace ls --all --json | jq -r '.[].id'`,
		Args: exactly(0, "no session"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			if all {
				q.Children, q.Archived = true, true
				if !cmd.Flags().Changed("limit") {
					q.Limit = -1
				}
			}
			items := []inspect.Item{}
			for s, err := range r.Sessions(cmd.Context(), q) {
				if err != nil {
					return err
				}
				items = append(items, inspect.NewItem(&s))
			}
			if asJSON {
				return writeJSON(cmd, items)
			}
			return inspect.RenderSessions(cmd.OutOrStdout(), items, terminal(cmd))
		},
	}
	f := cmd.Flags()
	f.IntVarP(&q.Limit, "limit", "n", 50, "list this many at most")
	f.StringVar(&q.Agent, "agent", "", "only sessions of this `agent`")
	f.BoolVar(&q.Children, "children", false, "also sessions of sub-agents and forks")
	f.BoolVar(&q.Archived, "archived", false, "also archived sessions")
	f.BoolVarP(&all, "all", "a", false, "all of them: --children, --archived and no limit")
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func writeJSON(cmd *cobra.Command, v any) error {
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func newCollect(version string) *cobra.Command { return collector.Command(version) }
