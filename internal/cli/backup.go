package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
)

func newBackup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the store into a file",
		Long: `Copy the store into a new file, also while a collector writes it. The copy is one
state of the store, complete when it appears under its name, and readable by nobody
else: it has all that was said. It is a store itself, which --store names.`,
		Example: `  agenttrace backup sessions-$(date +%F).db
  agenttrace --store sessions-2026-11-20.db ls`,
		Args: exactly(1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			err = r.Backup(cmd.Context(), args[0])
			if errors.Is(err, fs.ErrExist) {
				return usagef("%s is there already; name another file", args[0])
			}
			if err == nil {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s copied to %s\n", r.Path(), args[0])
			}
			return err
		},
	}
}
