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
	cmd := &cobra.Command{
		Use:   "import [FILE]...",
		Short: "Read telemetry and sessions from files into the store",
		Long: `Read telemetry and sessions from files into the store, which is created if it does
not exist.

A FILE may be "-" for standard input, which is also read if no file is named and it is a
pipe. A named pipe is read to its end, as in agenttrace import <(zcat spans.json.gz). A FILE may
be a directory: the data directory of an agent's program is read as a whole;
in any other, and in the directories below it that are not hidden, files are read that end in
` + importer.Extensions() + `,
in the order of their names. Files of other formats, pipes and devices are left out. The formats are:

` + formatList() + `
The format is detected from the content. A file may be compressed with gzip or zstd;
telemetry may be one body, JSON lines, or frames. Importing a file again changes nothing. The
store remembers its files: one that did not change is not read, unless with --again. A session
that was deleted from the store comes back only if its file is named, or with --again, or when
it went on.

Secrets are removed before anything is stored, also from ids and names, and values of
telemetry over 1 MiB are truncated, as in a collector. --keep-secrets stores everything
unchanged.

Values of sessions are stored whole. If the store has the session, the two are merged: the
later version of each message and part takes precedence, and what only one of them has is
kept. A session that breaks a rule of "agenttrace check" is left out; --invalid imports it
and names the rules. A transcript is merged with what the program's telemetry reports of the
same session, in any order, and so are those of its sub-agents. --discover lists the files
that known agents keep in their usual places, and imports them with --yes.

With --watch, everything is imported that is in the directories which are named, or in the
usual places of known agents, and then what changes there, until SIGINT or SIGTERM. The store is
held only while something is imported; while another writer, such as a collector, holds it, what
changed waits. A collector can import transcripts itself: see "transcripts" in its exporter's README.

A damaged piece is reported and left out, and the exit code is 1. If a file cannot be read,
the others are still read, and the exit code is 5.`,
		Example: `  agenttrace import traces.json
  agenttrace import --store old.db exported/ more.jsonl.zst
  agenttrace import ~/.agentdbg other-machine.db
  agenttrace import --watch
  kubectl exec collector -- cat /data/otlp.jsonl | agenttrace import`,
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
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "", either(formatNames(imported))+", instead of detecting the format")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	f.BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	f.BoolVar(&secrets, "keep-secrets", false, "do not remove secrets or truncate long values")
	f.BoolVar(&invalid, "invalid", false, "import sessions that violate rules as well")
	f.BoolVar(&discover, "discover", false, "list session files of known agents in their usual places")
	f.BoolVar(&again, "again", false, "read files that did not change since they were imported as well")
	f.BoolVar(&watch, "watch", false, "import what changes in the directories, or in those of known agents")
	f.BoolVar(&yes, "yes", false, "import what --discover lists")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(imported),
		cobra.ShellCompDirectiveNoFileComp))
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
