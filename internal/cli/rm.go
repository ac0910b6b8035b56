package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

func newRemove() *cobra.Command {
	var yes, children, asJSON bool
	cmd := described("rm", flags{"yes": &yes, "children": &children, "json": &asJSON}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args:              atLeastOne("one session or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			r, err := openStore(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			ids, err := resolveAll(ctx, r, args)
			if err != nil {
				return err
			}
			if children {
				if ids, err = document.Descendants(ctx, r, ids); err != nil {
					return err
				}
			}
			var sessions []session.Session
			for _, id := range ids {
				s, err := r.Session(ctx, id)
				if err != nil {
					return err
				}
				sessions = append(sessions, s)
			}
			return deleteSessions(cmd, sessions, yes, asJSON)
		},
	})
	return cmd
}

// deleteSessions deletes what was listed, having asked unless yes is said.
func deleteSessions(cmd *cobra.Command, sessions []session.Session, yes, asJSON bool) error {
	out := cmd.ErrOrStderr()
	deleted := []string{}
	report := func() error {
		if asJSON {
			return writeJSON(cmd, struct {
				Deleted []string `json:"deleted"`
			}{deleted})
		}
		_, err := fmt.Fprintf(out, "%s deleted\n", counted(len(deleted), "session"))
		return err
	}
	if len(sessions) == 0 {
		return report()
	}
	if !yes {
		if in, ok := cmd.InOrStdin().(*os.File); !ok || !isTerminal(in) || !isTerminal(out) {
			return usagef("%s deletes for good, and there is nobody to ask; add --yes", cmd.Name())
		}
		for i := range sessions {
			if i == 20 && len(sessions) > 21 {
				fmt.Fprintf(out, "  and %d more\n", len(sessions)-i)
				break
			}
			fmt.Fprintf(out, "  %s\n", deletionLine(&sessions[i]))
		}
		fmt.Fprintf(out, "delete %s for good? [y/N] ", counted(len(sessions), "session"))
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			fmt.Fprintln(out, "nothing was deleted")
			if asJSON {
				return report()
			}
			return nil
		}
	}
	err := withWriter(cmd, func(ctx context.Context, s store.Service) error {
		for i := range sessions {
			if err := s.Delete(ctx, sessions[i].ID); err == nil {
				deleted = append(deleted, sessions[i].ID)
			} else if !errors.Is(err, store.ErrNotFound) { // somebody else did
				return err
			}
		}
		return nil
	})
	if err == nil || len(deleted) > 0 {
		err = errors.Join(err, report())
	}
	return err
}

func deletionLine(s *session.Session) string {
	title, _, _ := strings.Cut(strings.TrimSpace(document.Sanitize(s.Title)), "\n")
	return fmt.Sprintf("%s  %s", document.Sanitize(s.ID), title)
}
