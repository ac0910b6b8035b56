package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newShow() *cobra.Command {
	var full, asJSON, prompt, tools, permissions, tokens, raw, provenance bool
	cmd := described("show", flags{
		"full": &full, "json": &asJSON, "prompt": &prompt, "tools": &tools, "permissions": &permissions,
		"tokens": &tokens, "provenance": &provenance, "raw": &raw,
	}, &cobra.Command{
		ValidArgsFunction: completeSessions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if n, err := strconv.Atoi(args[1]); err != nil || n < 1 {
					return usagef("turn %q is not a number from 1", args[1])
				}
				return nil
			}
			return exactly(1, "a session and, optionally, the number of a turn")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && raw {
				return usagef("--json and --raw exclude each other; use one of them")
			}
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			return withSession(cmd, args[0], func(ctx context.Context, r store.Reader, id string) error {
				if raw {
					t, err := r.Transcript(ctx, id)
					if err != nil {
						return err
					}
					return writeRows(jsonOutput(cmd), t)
				}
				idleTimeout, err := idleTimeout(cmd)
				if err != nil {
					return err
				}
				sessions := document.Reader{Reader: r, IdleTimeout: idleTimeout, Price: p.estimate()}
				var doc *document.Document
				if len(args) == 2 {
					number, _ := strconv.Atoi(args[1])
					doc, err = sessions.LoadTurns(ctx, id, number, number)
					if err == nil {
						doc.Queued = nil
					}
				} else {
					doc, err = sessions.LoadAll(ctx, id)
				}
				if err != nil {
					return err
				}
				if err := p.lacking(cmd, doc.UnpricedModels); err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd, doc)
				}
				o := terminal(cmd)
				o.Full, o.Prices = full, p.asOf()
				views := []struct {
					on    bool
					print func(io.Writer, *document.Document, render.Options) error
				}{
					{prompt, render.Prompts}, {tools, render.Tools}, {permissions, render.Permissions},
					{tokens, render.Tokens}, {provenance, render.Provenance},
				}
				printed := false
				for _, v := range views {
					if !v.on {
						continue
					}
					if printed {
						fmt.Fprintln(cmd.OutOrStdout())
					}
					printed = true
					if err := v.print(cmd.OutOrStdout(), doc, o); err != nil {
						return err
					}
				}
				if printed {
					return nil
				}
				return render.Document(cmd.OutOrStdout(), doc, o)
			})
		},
	})
	pricesFlag(cmd)
	return cmd
}

// writeRows writes every row of a session as JSON, without the envelope of an
// export.
func writeRows(w io.Writer, t *session.Transcript) error {
	b := append(t.Session.AppendJSON(nil), '\n')
	for i := range t.Messages {
		b = append(t.Messages[i].Message.AppendJSON(b), '\n')
		for j := range t.Messages[i].Parts {
			b = append(t.Messages[i].Parts[j].AppendJSON(b), '\n')
		}
	}
	_, err := w.Write(b)
	return err
}
