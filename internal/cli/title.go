package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

func newTitle() *cobra.Command {
	var asJSON bool
	cmd := described("title", flags{"json": &asJSON}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              exactly(2, "a session and a title, in quotes if it has spaces"),
		RunE: func(cmd *cobra.Command, args []string) error {
			title := strings.TrimSpace(args[1])
			if title == "" {
				return usagef("the title is empty; give one")
			}
			return withWriter(cmd, func(ctx context.Context, s store.Service) error {
				id, err := s.Resolve(ctx, args[0])
				if err != nil {
					return err
				}
				title := strings.ToValidUTF8(title, "\uFFFD")
				if err := s.SetTitle(ctx, id, title, time.Now()); err != nil {
					return err
				}
				if !asJSON {
					_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s is called “%s”\n", id, document.Sanitize(title))
					return err
				}
				return writeJSON(cmd, struct {
					SessionID string `json:"session_id"`
					Title     string `json:"title"`
				}{id, title})
			})
		},
	})
	return cmd
}
