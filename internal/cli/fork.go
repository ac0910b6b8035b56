package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/printable"
	"github.com/agenttrace/agenttrace/session/service"
	"github.com/agenttrace/agenttrace/session/store"
)

func newFork() *cobra.Command {
	var at, title string
	var turn int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Copy the beginning of a session into a new one",
		Long: `Copy a session into a new one, completely or up to a turn or a message, and print the
id of the new session. Messages that a rewind hides are not copied. Tokens and cost are
those of the copies, and the title is that of the session with " (copy)". Permission rules
are not copied. Data of the original messages that arrives later reaches the copies too.

A busy session cannot be forked, nor one with a pending approval in the part that would be
copied.

--json prints an object: session_id, title, parent_id, parent_message_id, the last turn that
was copied, and the number of messages.`,
		Example: `  agenttrace fork last
  agenttrace fork 1fa2bdc08 --turn 3 --title 'Without the cache'
  agenttrace show $(agenttrace fork last --at msg_1fa2bdc1a)`,
		ValidArgsFunction: completeSessions,
		Args:              exactly(1, "one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if title = strings.TrimSpace(title); title == "" && cmd.Flags().Changed("title") {
				return usagef("the title is empty; give one, or omit --title")
			}
			if err := onePlace(cmd, "at"); err != nil {
				return err
			}
			return withIdle(cmd, args[0], func(ctx context.Context, s service.Service, c *conversation) error {
				point, err := c.last()
				switch {
				case err != nil:
					return err
				case cmd.Flags().Changed("at"):
					point, err = c.named(at)
				case cmd.Flags().Changed("turn"):
					point, err = c.inTurn(turn, "")
				}
				if err != nil {
					return err
				}
				if err := c.settledAt(point); err != nil {
					return err
				}
				id, err := s.Fork(ctx, store.ForkOptions{From: c.id, Message: point.ID, Title: title, Now: time.Now()})
				if err != nil {
					return err
				}
				child, err := s.Transcript(ctx, id)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd, struct {
						SessionID       string `json:"session_id"`
						Title           string `json:"title"`
						ParentID        string `json:"parent_id"`
						ParentMessageID string `json:"parent_message_id"`
						Turn            int    `json:"turn"`
						Messages        int    `json:"messages"`
					}{id, child.Session.Title, c.id, point.ID, c.turns[point.ID], len(child.Messages)})
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s up to turn %d of %s copied\n", counted(len(child.Messages), "message"),
					c.turns[point.ID],
					printable.Sanitize(c.id))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "copy up to and including this `message`")
	f.IntVar(&turn, "turn", 0, "copy up to and including this turn, as numbered by show")
	f.StringVar(&title, "title", "", "title of the new session")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// onePlace wants at most one of two flags that name a place in a session.
func onePlace(cmd *cobra.Command, message string) error {
	if cmd.Flags().Changed(message) && cmd.Flags().Changed("turn") {
		return usagef("--%s and --turn exclude each other; use one of them", message)
	}
	return nil
}

// conversation is a session of which a command names a message.
type conversation struct {
	id         string
	transcript *session.Transcript
	timeline   *document.Document
	// turns are the numbers of the turns by the ids of their messages; a message that
	// waits in the queue is of none.
	turns map[string]int
}

// withIdle opens the store for writing and calls fn with the session that name means,
// unless the session is at work.
func withIdle(cmd *cobra.Command, name string,
	fn func(ctx context.Context, s service.Service, c *conversation) error) error {
	idleTimeout, err := idleTimeout(cmd)
	if err != nil {
		return err
	}
	return withWriter(cmd, func(ctx context.Context, s service.Service) error {
		id, err := s.Resolve(ctx, name)
		if err != nil {
			return err
		}
		in, err := document.Collect(ctx, s, id)
		if err != nil {
			return err
		}
		in.Now, in.IdleTimeout = time.Now(), idleTimeout
		c := &conversation{id: id, transcript: in.Transcript, timeline: document.Build(in), turns: make(map[string]int)}
		if st := c.timeline.Status.State; st == document.ActivityBusy || st == document.ActivityRetrying {
			return usagef("session %s is %s; wait until it is idle", id, st)
		}
		for turn, m := range c.timeline.Messages() {
			c.turns[m.ID] = turn.Number
		}
		return fn(ctx, s, c)
	})
}

// named is the message of an id, or of the beginning of one.
func (c *conversation) named(name string) (*session.Message, error) {
	var found []*session.Message
	for i := range c.transcript.Messages {
		m := &c.transcript.Messages[i].Message
		if m.ID == name {
			return m, nil
		}
		if name != "" && (strings.HasPrefix(m.ID, name) || strings.HasPrefix(m.ID, "msg_"+name)) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return nil, usagef("session %s has no message %q; agenttrace show %s --json has their ids", c.id, name, c.id)
	case 1:
		return found[0], nil
	}
	return nil, usagef("%d messages of session %s begin with %q; type more of the id", len(found), c.id, name)
}

// inTurn is the last message of a turn that is not hidden, of a role where one is
// given.
func (c *conversation) inTurn(number int, role string) (*session.Message, error) {
	if number < 1 || number > len(c.timeline.Turns) {
		return nil, usagef("session %s has no turn %d; its turns are 1 to %d", c.id, number, len(c.timeline.Turns))
	}
	var last *session.Message
	for i := range c.transcript.Messages {
		if m := &c.transcript.Messages[i].Message; c.turns[m.ID] == number && m.HiddenAt == nil &&
			(role == "" || m.Role == role) {
			last = m
		}
	}
	if last == nil && role != "" {
		return nil, usagef("turn %d of session %s has no question that is seen; choose another turn", number, c.id)
	}
	if last == nil {
		return nil, usagef("turn %d of session %s is hidden by a rewind; choose another turn", number, c.id)
	}
	return last, nil
}

// last is the last message of the conversation that is not hidden.
func (c *conversation) last() (*session.Message, error) {
	var last *session.Message
	for i := range c.transcript.Messages {
		if m := &c.transcript.Messages[i].Message; m.HiddenAt == nil && c.turns[m.ID] > 0 {
			last = m
		}
	}
	if last == nil {
		return nil, usagef("session %s has no message that is seen; there is nothing to copy", c.id)
	}
	return last, nil
}

// settledAt refuses a copy of what is not over: a call that waits for a human.
func (c *conversation) settledAt(point *session.Message) error {
	if point.HiddenAt != nil {
		return usagef("message %s is hidden by a rewind; choose another, or take the rewind back", point.ID)
	}
	last, err := c.last()
	if err != nil || !c.timeline.Status.State.Waiting() || c.turns[point.ID] < c.turns[last.ID] ||
		point.Role == session.RoleUser {
		return err
	}
	return usagef("session %s waits for a human in turn %d; copy less of it, or answer first", c.id, c.turns[last.ID])
}
