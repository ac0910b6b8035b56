package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/printable"
	"github.com/agenttrace/agenttrace/session/service"
	"github.com/agenttrace/agenttrace/session/store"
)

func newRewind() *cobra.Command {
	var to string
	var turn int
	var undo, asJSON bool
	cmd := &cobra.Command{
		Use:   "rewind ID --turn N",
		Short: "Hide the messages after a question",
		Long: `Hide the messages after a question: the question of turn N, or the user message that
--to names, is the last visible message. Nothing is deleted, and show --full prints all of
it. The effects of tools are not undone.

--undo shows again what the last rewind hid; repeated, what the one before it hid. A busy
session cannot be rewound.

--json prints an object: session_id, undone, to_message_id, turn, the messages that were
hidden or shown, and their turns.`,
		Example: `  agenttrace rewind last --turn 3
  agenttrace rewind 1fa2bdc08 --to msg_1fa2bdc1a
  agenttrace rewind --undo last`,
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
				return usagef("rewind does not know where to; add --turn with the number of a turn, or --to with a user's message")
			}
			return withIdle(cmd, args[0], func(ctx context.Context, s service.Service, c *conversation) error {
				done, err := rewind(ctx, s, c, to, turn, undo)
				if err != nil {
					return err
				}
				return reportRewind(cmd, c, done, undo, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "the last user `message` that stays visible")
	f.IntVar(&turn, "turn", 0, "the turn whose question stays visible, as numbered by show")
	f.BoolVar(&undo, "undo", false, "bring back what the last rewind hid")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func rewind(ctx context.Context, s service.Service, c *conversation, to string, turn int, undo bool) (store.Rewound,
	error) {
	if undo {
		done, err := s.Unrewind(ctx, c.id)
		if errors.Is(err, store.ErrNoRewind) {
			err = usagef("session %s has no rewind to undo; agenttrace show %s --full shows all of it", c.id, c.id)
		}
		return done, err
	}
	point, err := c.named(to)
	if to == "" {
		point, err = c.inTurn(turn, session.RoleUser)
	}
	switch {
	case err != nil:
		return store.Rewound{}, err
	case point.Role != session.RoleUser:
		return store.Rewound{}, usagef("message %s is the %s's; name one of the user's, or a turn with --turn %d", point.ID,
			point.Role, c.turns[point.ID])
	case point.HiddenAt != nil:
		return store.Rewound{}, usagef("message %s is hidden already; choose an earlier one, or --undo first", point.ID)
	}
	done, err := s.Rewind(ctx, c.id, point.ID, time.Now())
	done.To = point.ID // also where nothing came after it
	return done, err
}

// reportRewind states what was hidden, or brought back.
func reportRewind(cmd *cobra.Command, c *conversation, done store.Rewound, undone, asJSON bool) error {
	turns := []int{}
	for _, id := range done.Messages {
		if n := c.turns[id]; n > 0 && !slices.Contains(turns, n) {
			turns = append(turns, n)
		}
	}
	slices.Sort(turns)
	if asJSON {
		return writeJSON(cmd, struct {
			SessionID string   `json:"session_id"`
			Undone    bool     `json:"undone"`
			To        string   `json:"to_message_id"`
			Turn      int      `json:"turn"`
			Messages  []string `json:"messages"`
			Turns     []int    `json:"turns"`
		}{c.id, undone, done.To, c.turns[done.To], append([]string{}, done.Messages...), turns})
	}
	out := cmd.ErrOrStderr()
	id := printable.Sanitize(c.id)
	var err error
	switch where := turnRange(turns); {
	case len(done.Messages) == 0 && undone:
		_, err = fmt.Fprintf(out, "the last rewind of %s is undone; what it hid an earlier one hides too\n", id)
	case len(done.Messages) == 0:
		_, err = fmt.Fprintf(out, "nothing comes after turn %d of %s\n", c.turns[done.To], id)
	case undone:
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
