package cli

import (
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/html"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/document/diff"
	"github.com/agenttrace/agenttrace/session/render"
)

func newDiff() *cobra.Command {
	var full, unified, asJSON bool
	var format string
	var out output
	formats := []string{"text", "html", "json"}
	var o diff.Options
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show where two sessions part ways",
		Long: `Show where two sessions part ways: the first divergence, and then turn by turn
what differs of what the user said, the system prompt, the model, the tools, each
call's input, outcome and output, the answer, and the tokens.

Turns are aligned by what the user said; a fork and its parent by the turns that
the fork copied. Ids, times, durations and costs are not compared; the sums of both
sessions stand on top. The first divergence is the first of what was said or done;
tokens alone only count as one where nothing else differs.

On 100 columns or more the sessions stand side by side, otherwise, or with
--unified, below each other. Long texts are clipped unless --full is given.

With --format html it is a page to send to a person: one file that loads and runs
nothing, with the two side by side, words that differ marked, and what is equal
folded. --output names a file to write it to, which is not replaced without --force.

With --format json, or --json, it is one object: a, b, equal, first_divergence, and
turns with their changes. The exit code is 0 where nothing differs and 1 where
something does.`,
		Example: `  agenttrace diff last 1fa2bdc08
  agenttrace diff 1fa2bdc08 1fa2bdc57 --unified --ignore-usage
  agenttrace diff 1fa2bdc08 1fa2bdc57 --format html --output diff.html
  agenttrace diff 1fa2bdc08 1fa2bdc57 --json | jq .first_divergence`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeSessions(cmd, nil, toComplete)
		},
		Args: exactly(2, "two sessions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !slices.Contains(formats, format):
				return usagef("--format %q is unknown; use %s", format, either(formats))
			case asJSON && cmd.Flags().Changed("format") && format != "json":
				return usagef("--json and --format %s exclude each other; use one of them", format)
			case asJSON:
				format = "json"
			}
			if unified && format != "text" {
				return usagef("--unified is for text; leave it out with --format %s", format)
			}
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			out.source = r.Path()
			var timelines [2]*document.Document
			for i, name := range args {
				id, err := r.Resolve(cmd.Context(), name)
				if err != nil {
					return err
				}
				in, err := document.Collect(cmd.Context(), r, id)
				if err != nil {
					return err
				}
				in.Now = time.Now()
				timelines[i] = document.Build(in)
			}
			d := diff.Compare(timelines[0], timelines[1], o)
			err = out.write(cmd, out.path, format == "json", func(w io.Writer) error {
				switch format {
				case "json":
					return encodeJSON(w, d)
				case "html":
					return html.EncodeDiff(w, d, timelines[0], timelines[1], html.Options{Full: full, Zone: time.Local})
				}
				t := terminal(cmd)
				t.Full = full
				t.Color = t.Color && (out.path == "" || out.path == "-")
				return render.Diff(w, d, t, unified)
			})
			if err == nil && !d.Equal {
				err = errFinding
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "do not clip long texts")
	f.BoolVarP(&unified, "unified", "u", false, "print one below the other, even on a wide terminal")
	f.BoolVar(&o.IgnoreUsage, "ignore-usage", false, "do not compare tokens")
	f.StringVar(&format, "format", formats[0], either(formats))
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	f.StringVarP(&out.path, "output", "o", "", "`file` to write to instead of standard output")
	f.BoolVar(&out.force, "force", false, "replace the file if it exists")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
