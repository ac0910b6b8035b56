package cli

import (
	"context"
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
	w := importer.Watch{
		Warn: o.Warn,
		Directories: func() ([]importer.Directory, error) {
			if len(args) > 0 {
				return importer.NamedDirectories(args)
			}
			places, err := importer.Discover()
			return importer.Directories(places), err
		},
		Inputs: func() ([]importer.Input, error) {
			if len(args) > 0 {
				return importer.Inputs(args, nil, o.Format), nil
			}
			places, err := importer.Discover()
			return importer.InputsOf(places), err
		},
		Import: func(ctx context.Context, inputs []importer.Input) error {
			err := importChanged(ctx, path, o, inputs, &total, cmd.OutOrStdout(), asJSON)
			if err == nil {
				o.Again = false // that was for what is there in the beginning
			}
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

// importChanged imports inputs and adds to the total what was made of them.
func importChanged(ctx context.Context, path string, o importer.Options, inputs []importer.Input,
	total *importer.Summary, out io.Writer, asJSON bool) (err error) {
	im, err := importer.New(path, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, im.Close()) }()
	failed, err := im.Run(ctx, inputs)
	if err != nil {
		return err
	}
	if failed != nil && len(inputs) == 1 { // of several, each was reported
		o.Warn(failed.Error())
	}
	var b strings.Builder
	for _, t := range im.Summary.Files {
		if t.Same {
			continue
		}
		total.Total.Include(t)
		if !asJSON && t.Error == "" {
			printTally(&b, t, t.File)
		}
	}
	_, err = io.WriteString(out, b.String())
	return err
}
