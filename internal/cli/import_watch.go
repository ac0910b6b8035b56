package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/importer"
)

// watchFiles imports what arguments of the command line name, or what known agents keep, and
// what changes there, until the command is interrupted. Then it prints what it did.
func watchFiles(cmd *cobra.Command, path string, o importer.Options, args []string, asJSON bool) error {
	if slices.Contains(args, "-") {
		return usagef("--watch is for files and directories; leave \"-\" out, or leave out --watch")
	}
	total := importer.Summary{Store: path, Files: []*importer.Tally{}}
	w := importer.Watch{Paths: args, Discover: len(args) == 0, Format: o.Format, Warn: o.Warn,
		New: func() (*importer.Importer, error) {
			im, err := importer.New(path, o)
			o.Again = false // that was for what is there in the beginning
			return im, err
		},
		Imported: func(s *importer.Summary) error {
			var b strings.Builder
			for _, t := range s.Files {
				if t.Same {
					continue
				}
				total.Total.Include(t)
				if !asJSON && t.Error == "" {
					printTally(&b, t, t.File)
				}
			}
			_, err := io.WriteString(cmd.OutOrStdout(), b.String())
			return err
		},
	}
	if !asJSON {
		fmt.Fprintf(cmd.ErrOrStderr(), "agenttrace: importing into %s what changes; interrupt to end\n", path)
	}
	err := w.Run(cmd.Context())
	if asJSON {
		return errors.Join(err, writeJSON(cmd, &total))
	}
	var b strings.Builder
	printTally(&b, &total.Total, "total")
	_, writeErr := io.WriteString(cmd.OutOrStdout(), b.String())
	return errors.Join(err, writeErr)
}
