package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

const envSilence = "AGENTTRACE_SILENCE"

// silence is how long a session that works may be silent before it counts as
// interrupted: as --silence says, where the command has that flag, or the
// environment, or by default.
func silence(cmd *cobra.Command) (time.Duration, error) {
	if f := cmd.Flags().Lookup("silence"); f != nil && f.Changed {
		d, err := cmd.Flags().GetDuration("silence")
		if err == nil && d <= 0 {
			return 0, usagef("--silence is %s; use a duration above 0, such as 10m", d)
		}
		return d, err
	}
	text := os.Getenv(envSilence)
	if text == "" {
		return inspect.DefaultSilence, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usagef("%s is %q; use a duration above 0, such as 10m", envSilence, text)
	}
	return d, nil
}

func silenceFlag(cmd *cobra.Command) {
	cmd.Flags().Duration("silence", inspect.DefaultSilence, "take a session for interrupted that is busy and not heard of for this `long` (default $"+envSilence+", then 10m)")
	cmd.Flags().Lookup("silence").DefValue = "0s" // the text says what it is
}

func newStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Tell what a session is doing",
		Long: `Tell what a session is doing: idle, busy, retrying, waiting_on_approval,
waiting_on_user_input or error, as its agent said last. A session that is busy or
retrying and has not been heard of for --silence is interrupted: its agent died,
or cannot be heard. An agent with a heartbeat, as the SDK's with a LoggerProvider,
is interrupted when it misses three: after 45 seconds by default. Nothing is written
for that; the calls that were open are listed in the state in which they were seen
last.

An agent that does not say what it does is known by its messages: a call that
waits for an approval, one that is open in a turn that has not ended, an error at
the end. Otherwise it counts as idle.

The exit code is 0 when the session is idle, busy, retrying or waiting, and 1 when
its state is error or interrupted.

With --json it is one object: session_id, title, agent, state, since, said (whether
the agent said so), was (the state before an interruption), attempt, detail,
tool_call_id, open_calls (call_id, tool, state, input, created_at, updated_at),
last_message (id, role, text, incomplete, created_at, updated_at), updated_at,
heartbeat (how often the agent repeats its state, in milliseconds).
Times are in Unix milliseconds; what is not known is absent.`,
		Example: `  agenttrace status last
  agenttrace status last --silence 1m
  agenttrace status last --json | jq -r .state`,
		ValidArgsFunction: completeSessions,
		Args:              exactly(1, "one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			silent, err := silence(cmd)
			if err != nil {
				return err
			}
			return withSession(cmd, args[0], func(ctx context.Context, r *sqlite.Reader, id string) error {
				t, err := r.Transcript(ctx, id)
				if err != nil {
					return err
				}
				decisions, err := r.Decisions(ctx, id)
				if err != nil {
					return err
				}
				st := inspect.StatusOf(&t.Session, t, decisions, time.Now(), silent)
				if asJSON {
					err = writeJSON(cmd, st)
				} else {
					err = st.Render(cmd.OutOrStdout(), terminal(cmd))
				}
				if err == nil && st.State.Trouble() {
					err = errFinding
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	silenceFlag(cmd)
	return cmd
}
