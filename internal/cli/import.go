package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
)

func imported(f *formats.Format) bool { return f.Imported != "" }

func newImport() *cobra.Command {
	var format string
	var asJSON, quiet, secrets, invalid, discover, yes, again, watch bool
	cmd := described("import", flags{
		"format": &format, "json": &asJSON, "quiet": &quiet, "keep-secrets": &secrets, "invalid": &invalid,
		"discover": &discover, "again": &again, "watch": &watch, "yes": &yes,
	}, &cobra.Command{
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			address, path, err := place(cmd)
			if err != nil {
				return err
			}
			path = cmp.Or(address, path)
			o := importer.Options{Open: func(context.Context) (store.Service, error) { return openWriter(cmd) },
				KeepSecrets: secrets, Invalid: invalid, Again: again}
			if format != "" {
				if o.Format = formats.Named(format, imported); o.Format == nil {
					return usagef("unknown format %q: use %s", format, either(formatNames(imported)))
				}
			}
			warn := cmd.ErrOrStderr()
			o.Warn = func(text string) {
				fmt.Fprintf(warn, "agenttrace: %s\n", document.Line(text))
			}
			if watch {
				return watchFiles(cmd, path, o, args, asJSON)
			}
			im, err := importer.New(path, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, im.Close()) }()
			inputs, err := importInputs(cmd, im, args, discover, yes, asJSON)
			if err != nil || inputs == nil {
				return err
			}
			var line *progress
			if !quiet && isTerminal(warn) {
				line = newProgress(warn, inputs)
				im.Observe(line)
				warn = line
			}
			defer collectLess(inputs)()
			failed, err := im.Run(cmd.Context(), inputs)
			line.clear()
			if err == nil {
				err = findNotices(cmd.Context(), im)
			}
			if err != nil {
				if n := len(im.Summary.Total.Sessions); n > 0 {
					o.Warn(counted(n, "session") + " stored so far; the same import goes on from there")
				}
				return err
			}
			if asJSON {
				err = writeJSON(cmd, &im.Summary)
			} else {
				err = printImport(cmd.OutOrStdout(), &im.Summary)
			}
			err = cmp.Or(err, failed)
			if err == nil && im.Summary.Total.Damaged > 0 {
				return errFinding
			}
			return err
		},
	})
	complete(cmd, "format", formatNames(imported))
	return cmd
}

// collectLess has garbage collected less often, unless the environment decides on it, or an input
// is so large that this would take much memory. Files are read one after the other, so what is in
// use is about the size of one, and a collection for each costs a tenth of the time. It returns
// what takes it back.
func collectLess(inputs []importer.Input) func() {
	const most, percent = 16 << 20, 200
	_, decided := os.LookupEnv("GOGC")
	if decided || slices.ContainsFunc(inputs, func(in importer.Input) bool { return in.Size > most || in.Size == 0 }) {
		return func() {}
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}

func formatList() string {
	var b strings.Builder
	for _, f := range formats.Filter(imported) {
		fmt.Fprintf(&b, "  %-11s  %s\n", f.Name, f.Imported)
	}
	return b.String()
}

// importInputs returns what a command line names: the arguments, standard input, or what is
// discovered. It returns nil after it has listed the latter.
func importInputs(cmd *cobra.Command, im *importer.Importer, args []string, discover, yes, asJSON bool) (
	[]importer.Input, error) {
	if yes && !discover {
		return nil, usagef("--yes is for what --discover lists; add --discover, or leave out --yes")
	}
	if discover {
		if len(args) > 0 {
			return nil, usagef("--discover looks in the usual places; leave %q out, or leave out --discover", args[0])
		}
		places, err := importer.Discover()
		if err != nil {
			return nil, err
		}
		if inputs := importer.InputsOf(places); yes && len(inputs) > 0 {
			return inputs, nil
		}
		if asJSON {
			return nil, writeJSON(cmd, listed(places))
		}
		return nil, printPlaces(cmd.OutOrStdout(), places)
	}
	if len(args) == 0 {
		if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(f.Fd()) {
			return nil, usagef("import what? name files, or pipe something in")
		}
		args = []string{"-"}
	}
	return im.Inputs(cmd.Context(), args, cmd.InOrStdin())
}

// findNotices adds the notices on the sessions whose telemetry was read to the summary.
func findNotices(ctx context.Context, im *importer.Importer) error {
	s := im.Store()
	if s == nil || im.Summary.Total.Accepted == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(im.Summary.Total.Sessions)) {
		notices, err := document.Reader{Reader: s}.Notices(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue // its telemetry has moved to another session
		} else if err != nil {
			return err
		}
		for _, n := range notices {
			im.Summary.Notices = append(im.Summary.Notices, noticeLine(id, &n))
		}
	}
	return nil
}
