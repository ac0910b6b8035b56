package cli

import (
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

func newDiff() *cobra.Command {
	var full, unified, asJSON bool
	var format string
	var out output
	formats := []string{"text", "html", "json"}
	var ignoreUsage bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show where two sessions part ways",
		Long: `Show where two sessions part ways: the first divergence, and the differences of each
turn in the user's text, the system prompt, the model, the tools, the input, outcome and
output of each call, the answer, and the tokens.

Turns are aligned by the user's text, and those of a fork and its parent by the turns that
the fork copied. Ids, times, durations and costs are not compared; the totals of both
sessions are printed first. The first divergence is the first difference in content; a
difference in tokens alone counts only if nothing else differs.

The sessions are printed side by side on 100 columns or more, and otherwise, or with
--unified, one below the other. Long texts are clipped unless --full is given.

--format html writes one page that loads and runs nothing, with the sessions side by side,
different words marked, and equal parts folded. --output names a file to write to. An
existing file is not replaced without --force.

--format json, or --json, prints one object: a, b, equal, first_divergence, and turns with
their changes. The exit code is 0 if nothing differs, and 1 otherwise.`,
		Example: `  agenttrace diff last 1fa2bdc08
  agenttrace diff 1fa2bdc08 1fa2bdc57 --unified --ignore-usage
  agenttrace diff 1fa2bdc08 1fa2bdc57 --format html --output diff.html
  agenttrace diff 1fa2bdc08 1fa2bdc57 --json | jq .first_divergence`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeSessions(cmd, nil, typed)
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
			out.source = r.Name()
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
			d := document.Compare(timelines[0], timelines[1], ignoreUsage)
			err = out.write(cmd, out.path, format == "json", func(w io.Writer) error {
				switch format {
				case "json":
					return encodeJSON(w, d)
				case "html":
					return render.HTMLDiff(w, d, timelines[0], timelines[1], document.Words{Full: full, Zone: time.Local})
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
	f.BoolVar(&ignoreUsage, "ignore-usage", false, "do not compare tokens")
	f.StringVar(&format, "format", formats[0], either(formats))
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	f.StringVarP(&out.path, "output", "o", "", "`file` to write to instead of standard output")
	f.BoolVar(&out.force, "force", false, "replace the file if it exists")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
