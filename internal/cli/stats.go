package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newStats() *cobra.Command {
	var by []string
	var since string
	var asJSON bool
	var x filters
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count turns, tokens, calls and time over all sessions",
		Long: `Count turns, tokens, cost, tool calls, errors and durations over all sessions,
including archived sessions, forks and sub-agents. Messages that a fork copied from its
parent count once. Rewound and compacted turns count, because they took place.

TURNS counts answers. ERRORS counts tool calls, model calls and turns that ended in an
error, FAILED the tool calls among them; tool calls that a rule or a person refused are
no errors: DENIED counts those. CACHED is the share of input tokens read from a cache.
MEDIAN and P95 are durations of turns, or of calls with --by tool. On narrow screens the
least important columns are omitted. With several --by, each combination is a row.

--json prints an object: total, and with --by groups; both have key, keys (the value of
each --by), sessions, turns, errors, usage (input, output, reasoning, cache_read, cache_write),
total_tokens, cost_usd, cache_hit_rate, tool_calls, failed_tool_calls,
denied_tool_calls, median_ms and p95_ms, estimated_cost_usd if a cost was estimated,
and unpriced if a model has no price; unpriced_models is next to total.

` + filtersHelp + `
--since and --until leave out the turns before and after, too.

` + pricesHelp + `
Compactions do not say their model and are not estimated.`,
		Example: `  agenttrace stats
  agenttrace stats --by day --since 7d
  agenttrace stats --by project --by week --since 4w
  agenttrace stats --by model --prices prices.json
  agenttrace stats --by tool --json | jq '.groups[] | select(.failed_tool_calls > 0)'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := store.StatsQuery{Location: time.Local}
			var err error
			if q.By, err = store.ParseStatsBy(by...); err != nil {
				return usagef("--by %w", err)
			}
			if q.Since, err = parseTime("since", since); err != nil {
				return err
			}
			if err := x.read(cmd); err != nil {
				return err
			}
			q.Sessions, q.Until = x.SessionFilter, x.Until
			q.Sessions.Since = q.Since
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			q.Price = p.estimate()
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			if x.status != "" {
				if q.Sessions.IDs, err = x.ids(cmd.Context(), r); err != nil {
					return err
				}
			}
			s, err := r.Stats(cmd.Context(), q)
			if err != nil {
				return err
			}
			if err := p.lacking(cmd, s.UnpricedModels); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, s)
			}
			if s.Total.Sessions == 0 && x.any() {
				x.Since = q.Since
				return x.reportNone(cmd, r, store.SessionQuery{SessionFilter: x.SessionFilter, Children: true,
					Archived: true})
			}
			if q.By != nil && len(s.Groups) == 0 {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "nothing to count in %s\n", r.Name())
				return err
			}
			o := terminal(cmd)
			o.Prices = p.asOf()
			return render.Stats(cmd.OutOrStdout(), &s, q.By, o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&by, "by", nil, "group by `key`: day, week, model, agent, project or tool; may be repeated")
	f.StringVar(&since, "since", "", "count only turns since this `time`, or a duration before now such as 12h or 7d")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	addFilters(cmd, &x)
	pricesFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(store.StatsKeys(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
