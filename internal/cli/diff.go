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
	cmd := described("diff", flags{
		"full": &full, "unified": &unified, "ignore-usage": &ignoreUsage, "format": &format, "json": &asJSON,
		"output": &out.path, "force": &out.force,
	}, &cobra.Command{
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
	})
	complete(cmd, "format", formats)
	return cmd
}
