package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

func newRewind() *cobra.Command {
	var to string
	var turn int
	var undo, asJSON bool
	cmd := described("rewind", flags{"to": &to, "turn": &turn, "undo": &undo, "json": &asJSON}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              exactly(1, "one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			switch err := onePlace(cmd, "to"); {
			case err != nil:
				return err
			case undo && (f.Changed("to") || f.Changed("turn")):
				return usagef("--undo takes back the last rewind; leave out --to and --turn")
			case !undo && !f.Changed("to") && !f.Changed("turn"):
				return usagef("rewind does not know where to; " +
					"add --turn with the number of a turn, or --to with a user's message")
			}
			return withIdle(cmd, args[0], func(ctx context.Context, s store.Service, c *web.Conversation) error {
				var done *web.Rewound
				var err error
				if undo {
					done, err = c.Unrewind(ctx, s)
				} else {
					done, err = c.Rewind(ctx, s, placeOf(cmd, "to", &to, &turn), time.Now())
				}
				if err != nil {
					return err
				}
				return reportRewind(cmd, done, asJSON)
			})
		},
	})
	return cmd
}

// reportRewind states what a rewind hid, or what its undoing brought back.
func reportRewind(cmd *cobra.Command, done *web.Rewound, asJSON bool) error {
	if asJSON {
		return writeJSON(cmd, done)
	}
	out := cmd.ErrOrStderr()
	id := document.Sanitize(done.SessionID)
	var err error
	switch where := turnRange(done.Turns); {
	case len(done.Messages) == 0 && done.Undone:
		_, err = fmt.Fprintf(out, "the last rewind of %s is undone; what it hid an earlier one hides too\n", id)
	case len(done.Messages) == 0:
		_, err = fmt.Fprintf(out, "nothing comes after turn %d of %s\n", done.Turn, id)
	case done.Undone:
		_, err = fmt.Fprintf(out, "%s of %s brought back\n", counted(len(done.Messages), "message"), where)
	default:
		_, err = fmt.Fprintf(out, "%s of %s hidden; agenttrace rewind --undo %s brings them back\n",
			counted(len(done.Messages), "message"), where, id)
	}
	return err
}

// turnRange names turns in order.
func turnRange(turns []int) string {
	switch len(turns) {
	case 0:
		return "no turn"
	case 1:
		return "turn " + strconv.Itoa(turns[0])
	}
	return fmt.Sprintf("turns %d to %d", turns[0], turns[len(turns)-1])
}
