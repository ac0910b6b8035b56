package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/store"
)

func newBackup() *cobra.Command {
	var asJSON bool
	cmd := described("backup", flags{"json": &asJSON}, &cobra.Command{
		Args: exactly(1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := ownStore(cmd); err != nil {
				return err
			}
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			b, ok := r.(store.Backuper)
			if !ok {
				return usagef("backup copies a store that is a file; "+
					"copy %s with the tools of its database, such as pg_dump",
					r.Name())
			}
			err = b.Backup(cmd.Context(), args[0])
			if errors.Is(err, fs.ErrExist) {
				return usagef("%s is there already; name another file", args[0])
			}
			err = unwritten(args[0], err)
			if err == nil && asJSON {
				info, err := os.Stat(args[0])
				if err != nil {
					return err
				}
				return writeJSON(cmd, struct {
					Store string `json:"store"`
					Copy  string `json:"copy"`
					Bytes int64  `json:"bytes"`
				}{r.Name(), args[0], info.Size()})
			}
			if err == nil {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s copied to %s\n", r.Name(), args[0])
			}
			return err
		},
	})
	return cmd
}
