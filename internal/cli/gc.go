package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// settled is how long nothing may have happened before prompts that nobody names
// are taken for left over: a turn that has not ended may still name them.
const settled = time.Hour

func newCollectGarbage() *cobra.Command {
	var dryRun, vacuum, asJSON bool
	cmd := described("gc", flags{"dry-run": &dryRun, "vacuum": &vacuum, "json": &asJSON}, &cobra.Command{
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun && vacuum {
				return usagef("--dry-run and --vacuum exclude each other; use one of them")
			}
			return withWriter(cmd, func(ctx context.Context, s store.Service) error {
				file, ok := s.(store.Compacter)
				if _, held := s.(*web.Client); vacuum && held {
					return usagef("--vacuum rewrites the store, which a collector is using; " +
						"stop it, or leave out --vacuum")
				}
				if vacuum && !ok {
					return usagef("--vacuum rewrites a store that is a file; %s gets its space back without it",
						s.Name())
				}
				g, err := s.Collect(ctx, time.Now().Add(-settled), dryRun)
				if err == nil && vacuum {
					err = file.Compact(ctx)
				}
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd, g)
				}
				done := "deleted"
				if dryRun {
					done = "would be deleted"
				}
				out := cmd.ErrOrStderr()
				fmt.Fprintf(out, "%s, %s and %s %s\n", counted(int(g.SystemPrompts), "system prompt"),
					counted(int(g.ToolCatalogs), "tool catalog"),
					counted(int(g.Observations), "observation"), done)
				if g.Kept {
					fmt.Fprintln(out,
						"prompts and catalogs were kept: something was going on within the last hour, "+
							"and may still name them")
				}
				return nil
			})
		},
	})
	return cmd
}
