package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

func newList() *cobra.Command {
	var q store.SessionQuery
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sessions, newest first",
		Long: `List sessions, newest first: the newest 50 that are neither archived nor of a
sub-agent of another that is listed.

TOKENS are what a session used in all, as show, stats and the exports count it; COST
is of the same. CONTEXT counts the tokens now in the model's context. What a fork
copied from its parent counts in the parent alone. The mark before the title tells
what a session is doing, as far as its agent says: ► busy, ↻ retrying, ? waiting
for a human, ◌ interrupted, which is busy and not heard of for $AGENTTRACE_SILENCE
(default 10m); or of a last run that ended before it was done: ■ aborted, ✗ error.
The same status is shown by status, show and tail. A ! stands beside it where the
session has notices: it is valid, and may not be what happened; check ID and show list
them. A title that begins with "(generic reading)" is of a client that no dialect knows.

With --json it is an array of objects: id, title, agent, model, state, status, usage
(input, output, reasoning, cache_read, cache_write) and total_tokens, its sum, which
are TOKENS; context and context_tokens, which are CONTEXT; cost_usd, parent_id, workspace_root, and created_at, updated_at, archived_at in Unix
milliseconds. state is how the last run ended; one that is "finished" may have
ended to wait for a human; status is what it is doing: see status. What a session does not say is absent.
reading is "generic" where no dialect knows the client; notices counts the notices.

` + pricesHelp + `
In JSON they are estimated_cost_usd, beside cost_usd.`,
		Example: `  agenttrace ls --limit 10
  agenttrace ls --prices prices.json
  agenttrace ls --all --json | jq -r '.[].id'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			if q.Limit < 1 {
				return usagef("--limit is %d; use a number above 0, or --all", q.Limit)
			}
			if all {
				q.Children, q.Archived = true, true
				if !cmd.Flags().Changed("limit") {
					q.Limit = -1
				}
			}
			silent, err := silence(cmd)
			if err != nil {
				return err
			}
			now := time.Now()
			var rows []session.Session
			for s, err := range r.Sessions(cmd.Context(), q) {
				if err != nil {
					return err
				}
				rows = append(rows, s)
			}
			items, err := listItems(cmd, r, rows, p, now, silent)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, items)
			}
			if len(items) == 0 {
				return reportNone(cmd, r, q)
			}
			inspect.Abbreviate(items, func(short, id string) bool {
				found, err := r.Resolve(cmd.Context(), short)
				return err == nil && found == id
			})
			return inspect.RenderSessions(cmd.OutOrStdout(), items, terminal(cmd))
		},
	}
	f := cmd.Flags()
	f.IntVarP(&q.Limit, "limit", "n", 50, "list this many at most")
	f.StringVar(&q.Agent, "agent", "", "only sessions of this `agent`")
	f.BoolVar(&q.Children, "children", false, "also sessions of sub-agents")
	f.BoolVar(&q.Archived, "archived", false, "also archived sessions")
	f.BoolVarP(&all, "all", "a", false, "all of them: --children, --archived and no limit")
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	pricesFlag(cmd)
	return cmd
}

// reportNone says of which sessions there are none, and whether the store has others.
func reportNone(cmd *cobra.Command, r *sqlite.Reader, q store.SessionQuery) error {
	of := ""
	if q.Agent != "" {
		of = fmt.Sprintf(" of agent %s", inspect.Sanitize(fmt.Sprintf("%q", q.Agent)))
	}
	w := cmd.ErrOrStderr()
	for _, other := range []struct {
		query store.SessionQuery
		where string
	}{
		{store.SessionQuery{Agent: q.Agent, Children: true, Archived: true, Limit: 1}, "all of them are archived or of sub-agents; --all lists them"},
		{store.SessionQuery{Children: true, Archived: true, Limit: 1}, "there are some of other agents; leave out --agent, or --all lists them"},
	} {
		for _, err := range r.Sessions(cmd.Context(), other.query) {
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "no sessions%s to list in %s: %s\n", of, r.Path(), other.where)
			return err
		}
	}
	_, err := fmt.Fprintf(w, "no sessions in %s\n", r.Path())
	return err
}

// listItems makes a list of sessions with what each of them used, and names the models that p,
// which may be nil, has no price for.
func listItems(cmd *cobra.Command, r *sqlite.Reader, rows []session.Session, p *prices, now time.Time, silent time.Duration) ([]inspect.Item, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	var price store.Price
	if p != nil {
		price = p.Estimate
	}
	spent, err := r.Spent(cmd.Context(), ids, price)
	if err != nil {
		return nil, err
	}
	doubtful, err := r.MayHaveNotices(cmd.Context(), ids)
	if err != nil {
		return nil, err
	}
	items := make([]inspect.Item, len(rows))
	unpriced := map[string]bool{}
	for i := range rows {
		s := spent[rows[i].ID]
		t, err := r.LastTurn(cmd.Context(), rows[i].ID)
		if errors.Is(err, store.ErrNotFound) {
			t = nil // deleted since it was listed
		} else if err != nil {
			return nil, err
		}
		items[i] = inspect.NewItem(&rows[i], t, &s, now, silent)
		if doubtful[rows[i].ID] {
			if items[i].Notices, err = countNotices(cmd.Context(), r, rows[i].ID, silent); err != nil {
				return nil, err
			}
		}
		if _, whole := s.Cost(&rows[i]); !whole {
			for _, model := range s.Unpriced {
				unpriced[model] = true
			}
		}
	}
	if p == nil {
		return items, nil
	}
	return items, p.lacking(cmd, slices.Sorted(maps.Keys(unpriced)))
}

// countNotices counts what is doubtful in a session of the store.
func countNotices(ctx context.Context, r *sqlite.Reader, id string, silent time.Duration) (int, error) {
	t, err := r.Transcript(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	links, err := r.Spans(ctx, id)
	return len(noticesOf(t, links, silent)), err
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
