package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

const envIdleTimeout = "AGENTTRACE_IDLE_TIMEOUT"

// idleTimeout is how long a busy session may go without an update before it counts as
// interrupted: as --idle-timeout says, where the command has that flag, or the
// environment, or by default.
func idleTimeout(cmd *cobra.Command) (time.Duration, error) {
	if f := cmd.Flags().Lookup("idle-timeout"); f != nil && f.Changed {
		d, err := cmd.Flags().GetDuration("idle-timeout")
		if err == nil && d <= 0 {
			return 0, usagef("--idle-timeout is %s; use a duration above 0, such as 10m", d)
		}
		return d, err
	}
	text := os.Getenv(envIdleTimeout)
	if text == "" {
		return document.DefaultIdleTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usagef("%s is %q; use a duration above 0, such as 10m", envIdleTimeout, text)
	}
	return d, nil
}

func idleTimeoutFlag(cmd *cobra.Command) {
	flags{"idle-timeout": new(time.Duration)}.of("(idle-timeout)", cmd.Flags())
	cmd.Flags().Lookup("idle-timeout").DefValue = "0s" // the text states what it is
}

func newStatus() *cobra.Command {
	var asJSON bool
	cmd := described("status", flags{"json": &asJSON}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              exactly(1, "one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			idleTimeout, err := idleTimeout(cmd)
			if err != nil {
				return err
			}
			return withSession(cmd, args[0], func(ctx context.Context, r store.Reader, id string) error {
				st, err := document.Reader{Reader: r, IdleTimeout: idleTimeout}.LoadStatus(ctx, id)
				if err != nil {
					return err
				}
				if asJSON {
					err = writeJSON(cmd, st)
				} else {
					err = render.Status(cmd.OutOrStdout(), &st, terminal(cmd))
				}
				if err == nil && st.State.Trouble() {
					err = errFinding
				}
				return err
			})
		},
	})
	idleTimeoutFlag(cmd)
	return cmd
}
