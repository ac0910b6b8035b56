package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/inspect"
)

func newDiff() *cobra.Command {
	var full, unified, asJSON bool
	var o inspect.DiffOptions
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show where two sessions part ways",
		Long: `Show where two sessions part ways: the first divergence, and then turn by turn
what differs of what the user said, the system prompt, the model, the tools, each
call's input, outcome and output, the answer, and the tokens.

Turns are aligned by what the user said; a fork and its parent by the turns that
the fork copied. Ids, times, durations and costs are not compared. The first
divergence is the first of what was said or done; tokens alone only count as one
where nothing else differs.

On 100 columns or more the sessions stand side by side, otherwise, or with
--unified, below each other. Long texts are clipped unless --full is given.

With --json it is one object: a, b, equal, first_divergence, and turns with their
changes. The exit code is 0 where nothing differs and 1 where something does.`,
		Example: `  agenttrace diff last 1fa2bdc08
  agenttrace diff 1fa2bdc08 1fa2bdc57 --unified --ignore-usage
  agenttrace diff 1fa2bdc08 1fa2bdc57 --json | jq .first_divergence`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeSessions(cmd, nil, toComplete)
		},
		Args: exactly(2, "two sessions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			var timelines [2]*inspect.Timeline
			for i, name := range args {
				id, err := r.Resolve(cmd.Context(), name)
				if err != nil {
					return err
				}
				in, err := inspect.Collect(cmd.Context(), r, id)
				if err != nil {
					return err
				}
				in.Now = time.Now()
				timelines[i] = inspect.Build(in)
			}
			d := inspect.Compare(timelines[0], timelines[1], o)
			if asJSON {
				err = writeJSON(cmd, d)
			} else {
				t := terminal(cmd)
				t.Full = full
				err = d.Render(cmd.OutOrStdout(), t, unified)
			}
			if err == nil && !d.Equal {
				err = errFinding
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "clip nothing")
	f.BoolVarP(&unified, "unified", "u", false, "below each other, also on a wide terminal")
	f.BoolVar(&o.IgnoreUsage, "ignore-usage", false, "leave tokens out")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}
