package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newList() *cobra.Command {
	var x filters
	var limit int
	var children, archived, all, asJSON bool
	var after string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sessions, newest first",
		Long: `List sessions, newest first. By default at most 50 are listed, without archived
sessions and sessions of sub-agents.

TOKENS and COST cover the whole session, counted as in show, stats and the exports.
CONTEXT counts the tokens now in the model's context window. Messages that a fork
copied from its parent count in the parent only.

The mark before the title is the session's status, as in status, show and tail:
► busy, ↻ retrying, ? waiting for a human, ◌ interrupted (busy, without an update for
$AGENTTRACE_IDLE_TIMEOUT, default 10m), ■ aborted, ✗ error. A ! beside it marks a
session with notices: the rows are valid, but may not be what happened. check ID and
show list the notices. A title that begins with "(generic reading)" belongs to a client
that no dialect recognizes. Tags and scores of the session follow its title.

--json prints an array of objects with the keys
  id, title, agent, model
  state             how the last run ended; "finished" can mean that it waits for a human
  status            what the session is doing: see "agenttrace status"
  usage             input, output, reasoning, cache_read, cache_write
  total_tokens      the sum of usage: TOKENS
  context           like usage, for CONTEXT; context_tokens is its sum
  turns             the number of turns
  errors            tool calls, model calls and turns that ended in an error, without denied calls
  denied_tool_calls calls that a rule or a person refused
  cost_usd
  notices           the number of notices
  annotations       tags, notes and scores: see "agenttrace annotate"
  reading           "generic" if no dialect recognizes the client
  parent_id, workspace_root
  created_at, updated_at, archived_at    Unix milliseconds
Values that are not known are absent.

` + filtersHelp + `

--after continues a list: it begins after the session with this id, in the same --sort.

` + pricesHelp + `
In JSON they are estimated_cost_usd, beside cost_usd.`,
		Example: `  agenttrace ls --limit 10
  agenttrace ls --prices prices.json
  agenttrace ls --project . --status interrupted
  agenttrace ls --tag good --score 'quality>=0.8' --since 30d
  agenttrace ls --all --json | jq -r '.[].id'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := x.read(cmd); err != nil {
				return err
			}
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			q := x.query()
			if q.Limit, q.Children, q.Archived = limit, children, archived; limit < 1 {
				return usagef("--limit is %d; use a number above 0, or --all", limit)
			}
			if after != "" {
				id, err := r.Resolve(cmd.Context(), after)
				if err != nil {
					return err
				}
				s, err := r.Session(cmd.Context(), id)
				if err != nil {
					return err
				}
				q.Before = &store.Cursor{UpdatedAt: s.UpdatedAt, ID: id}
			}
			if all {
				q.Children, q.Archived = true, true
				if !cmd.Flags().Changed("limit") {
					q.Limit = -1
				}
			}
			rows, err := r.Select(cmd.Context(), q, x.status)
			if err != nil {
				return err
			}
			items, err := listItems(cmd, r, rows, p)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, items)
			}
			switch {
			case len(items) > 0:
			case x.any():
				return x.reportNone(cmd, r, q)
			case after != "":
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no sessions after %s\n", shown(after))
				return err
			default:
				return reportEmpty(cmd, r)
			}
			return printList(cmd, r, items, p)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&limit, "limit", "n", 50, "maximum number of sessions")
	addFilters(cmd, &x)
	addSort(cmd, &x)
	f.StringVar(&after, "after", "", "begin after the session with this `id`")
	f.BoolVar(&children, "children", false, "include sessions of sub-agents")
	f.BoolVar(&archived, "archived", false, "include archived sessions")
	f.BoolVarP(&all, "all", "a", false, "list every session: --children, --archived and no limit")
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	pricesFlag(cmd)
	return cmd
}

// printList prints a list of sessions, with ids that are as short as the store allows.
func printList(cmd *cobra.Command, r store.Reader, items []document.Item, p *prices) error {
	document.Abbreviate(items, func(short, id string) bool {
		found, err := r.Resolve(cmd.Context(), short)
		return err == nil && found == id
	})
	o := terminal(cmd)
	o.Prices = p.asOf()
	return render.Sessions(cmd.OutOrStdout(), items, o)
}

// reportEmpty states that there are no sessions to list, and whether the store has others.
func reportEmpty(cmd *cobra.Command, r store.Reader) error {
	w := cmd.ErrOrStderr()
	for _, err := range r.Sessions(cmd.Context(), store.SessionQuery{Children: true, Archived: true, Limit: 1}) {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "no sessions to list in %s: all of them are archived or of sub-agents; add --all\n",
			r.Name())
		return err
	}
	_, err := fmt.Fprintf(w, "no sessions in %s\n", r.Name())
	return err
}

// listItems makes a list of sessions with what each of them used, and names the models that p,
// which may be nil, has no price for.
func listItems(cmd *cobra.Command, r document.Reader, rows []session.Session, p *prices) ([]document.Item, error) {
	r.Price = p.estimate()
	items, unpriced, err := r.Items(cmd.Context(), rows)
	if err != nil {
		return nil, err
	}
	return items, p.lacking(cmd, unpriced)
}

func writeJSON(cmd *cobra.Command, v any) error { return encodeJSON(jsonOutput(cmd), v) }

func encodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func newCollect(version string) *cobra.Command {
	c := collector.Command(version)
	// The collector handles signals itself. With a context that the same signal
	// ends it would have no time left to store what it has accepted.
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SetContext(context.WithoutCancel(cmd.Context()))
		return run(cmd, args)
	}
	for _, cmd := range append(c.Commands(), c) {
		cmd.Args = exactly(0, "no arguments")
	}
	return c
}
