package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

func newFork() *cobra.Command {
	var at, title string
	var turn int
	var asJSON bool
	cmd := described("fork", flags{"at": &at, "turn": &turn, "title": &title, "json": &asJSON}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              exactly(1, "one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if title = strings.TrimSpace(title); title == "" && cmd.Flags().Changed("title") {
				return usagef("the title is empty; give one, or omit --title")
			}
			if err := onePlace(cmd, "at"); err != nil {
				return err
			}
			return withIdle(cmd, args[0], func(ctx context.Context, s store.Service, c *web.Conversation) error {
				done, err := c.Fork(ctx, s, placeOf(cmd, "at", &at, &turn), title, time.Now())
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd, done)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s up to turn %d of %s copied\n", counted(done.Messages, "message"),
					done.Turn, document.Sanitize(c.ID))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), done.SessionID)
				return err
			})
		},
	})
	return cmd
}

// onePlace wants at most one of two flags that name a place in a session.
func onePlace(cmd *cobra.Command, message string) error {
	if cmd.Flags().Changed(message) && cmd.Flags().Changed("turn") {
		return usagef("--%s and --turn exclude each other; use one of them", message)
	}
	return nil
}

// placeOf is the place that one of two flags names.
func placeOf(cmd *cobra.Command, name string, message *string, turn *int) (p web.Place) {
	if cmd.Flags().Changed(name) {
		p.Message = message
	}
	if cmd.Flags().Changed("turn") {
		p.Turn = turn
	}
	return p
}

// withIdle opens the store for writing and calls fn with the session that name means,
// unless the session is at work.
func withIdle(cmd *cobra.Command, name string,
	fn func(ctx context.Context, s store.Service, c *web.Conversation) error) error {
	idleTimeout, err := idleTimeout(cmd)
	if err != nil {
		return err
	}
	return withWriter(cmd, func(ctx context.Context, s store.Service) error {
		id, err := s.Resolve(ctx, name)
		if err != nil {
			return err
		}
		c, err := web.AtRest(ctx, document.Reader{Reader: s, IdleTimeout: idleTimeout}, id)
		if err != nil {
			return err
		}
		return fn(ctx, s, c)
	})
}
