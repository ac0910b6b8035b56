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
	cmd := described("stats", flags{"by": &by, "since": &since, "json": &asJSON}, &cobra.Command{
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
	})
	addFilters(cmd, &x)
	pricesFlag(cmd)
	complete(cmd, "by", store.StatsKeys())
	return cmd
}
