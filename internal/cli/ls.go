package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
)

func (p *program) ls() *cobra.Command {
	var q store.SessionQuery
	var all, asJSON bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sessions, the latest first",
		Long: `List sessions, the latest first: the newest 50 that are neither archived nor
children (forks, sub-agents) of another.

TOKENS are those that count towards the model's context now. A mark before the
title tells how the last run ended: ✓ finished, ■ aborted, ✗ error.

With --json there is one JSON object per line: id, title, agent, model, state,
usage (input, output, reasoning, cache_read, cache_write), total_tokens, cost_usd,
parent_id, workspace_root, and created_at, updated_at, archived_at in Unix
milliseconds.`,
		Example: `  agenttrace ls
  agenttrace ls --agent codeagent --limit 10
  agenttrace ls --all --json | jq -r 'select(.state=="error").id'`,
		Args: arguments(cobra.NoArgs, "ls takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				if cmd.Flags().Changed("limit") {
					return usageError("--all and --limit contradict each other", "use one of them")
				}
				q.Limit = -1
			} else if q.Limit < 1 {
				return usageError(fmt.Sprintf("--limit is %d", q.Limit), "use a number above 0, or --all")
			}
			return p.with(cmd.Context(), func(r store.Reader) error {
				var items []inspect.Item
				out := json.NewEncoder(p.rows())
				out.SetEscapeHTML(false)
				for s, err := range r.Sessions(cmd.Context(), q) {
					if err != nil {
						return err
					}
					item := inspect.NewItem(&s)
					if !asJSON {
						items = append(items, item)
						continue
					}
					if err := out.Encode(item); err != nil {
						return err
					}
				}
				switch {
				case asJSON:
					return nil
				case len(items) == 0:
					path, _ := p.path()
					fmt.Fprintf(p.stderr, "no sessions in %s\n", path)
					return nil
				}
				return inspect.RenderSessions(p.stdout, items, p.options())
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&all, "all", false, "list all, not only the newest")
	f.StringVar(&q.Agent, "agent", "", "list sessions of this `agent` only")
	f.IntVar(&q.Limit, "limit", 50, "list at most this `number`")
	f.BoolVar(&q.Children, "children", false, "list forks and sub-agents too")
	f.BoolVar(&q.Archived, "archived", false, "list archived sessions too")
	f.BoolVar(&asJSON, "json", false, "print JSON, one session per line")
	return c
}

// completeIDs offers the ids of the newest sessions, with their titles.
func (p *program) completeIDs(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	r, err := p.reader(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer r.Close()
	var ids []string
	if strings.HasPrefix("last", toComplete) {
		ids = append(ids, cobra.CompletionWithDesc("last", "the latest session"))
	}
	for s, err := range r.Sessions(cmd.Context(), store.SessionQuery{Limit: 200, Children: true}) {
		if err != nil {
			break
		}
		if strings.HasPrefix(s.ID, toComplete) {
			title := strings.ReplaceAll(inspect.Sanitize(s.Title), "\n", " ")
			ids = append(ids, cobra.CompletionWithDesc(inspect.Sanitize(s.ID), title))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
