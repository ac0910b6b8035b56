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
	cmd.Flags().Duration("idle-timeout", document.DefaultIdleTimeout,
		"report a busy session as interrupted after this `duration` without an update (default $"+envIdleTimeout+
			", then 10m)")
	cmd.Flags().Lookup("idle-timeout").DefValue = "0s" // the text states what it is
}

func newStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Report what a session is doing",
		Long: `Report what a session is doing: idle, busy, retrying, waiting_on_approval,
waiting_on_user_input, error or interrupted.

The agent reports its own state. A session that is busy or retrying and has no update
for --idle-timeout is reported as interrupted: its agent died or cannot reach the
collector. The SDK with a LoggerProvider sends a heartbeat; such a session is
interrupted after three missed heartbeats, 45 seconds by default. The state is computed
when it is read, and nothing is stored. Open tool calls are listed in their last state.

If the agent reports no state, it is derived from the messages of the last turn: a tool
call that waits for approval, an open tool call in an unfinished turn, an error at the
end; otherwise the session is idle.

The exit code is 1 if the state is error or interrupted, and 0 otherwise.

--json prints one object with the keys
  session_id, title, agent, state
  since         when the state began
  declared      whether the agent reported the state itself
  was           the state before an interruption
  attempt, detail, tool_call_id
  open_calls    call_id, tool, state, input, created_at, updated_at
  last_message  id, role, text, incomplete, created_at, updated_at
  updated_at
  heartbeat     interval of the agent's heartbeat, in milliseconds
Times are in Unix milliseconds. Values that are not known are absent.`,
		Example: `  agenttrace status last
  agenttrace status last --idle-timeout 1m
  agenttrace status last --json | jq -r .state`,
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
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	idleTimeoutFlag(cmd)
	return cmd
}
