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
	cmd := &cobra.Command{
		Use:   "show ID [TURN]",
		Short: "Show a session turn by turn",
		Long: `Show a session turn by turn: messages, tool calls with input and output, permission
decisions, tokens, cost and durations.

TURN is the number of a turn, from 1. Long texts are clipped unless --full is given.
--prompt, --tools, --permissions, --tokens and --provenance print one view each instead
of the timeline, and can be combined.

--json prints one object: session, status, turns (with messages and their parts),
queued, totals, notices (rule, turn, message_id, part_id, tool_call_id, tool, trace_id,
span_id, span_kind, detail, remedy), children, system_prompts, tool_catalogs,
decisions, spans and traces. Times are in Unix milliseconds. Values that are not known
are absent. --raw prints the rows of chat_sessions, chat_messages and chat_parts, one
per line.

` + pricesHelp + `
In JSON they are estimated_cost_usd, beside cost_usd.`,
		Example: `  agenttrace show last
  agenttrace show last 2 --full
  agenttrace show last --prompt --tools
  agenttrace show last --tokens --prices prices.json
  agenttrace show 4bf92f3577b34da6 --json | jq '.turns[].usage'`,
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
	}
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "do not clip, and include messages that rewinds hid")
	f.BoolVar(&asJSON, "json", false, "print the timeline as JSON")
	f.BoolVar(&prompt, "prompt", false, "print the system prompts and the turns that used them")
	f.BoolVar(&tools, "tools", false, "print the available tools and the calls of each turn")
	f.BoolVar(&permissions, "permissions", false, "print the permission rules and the decision on each call")
	f.BoolVar(&tokens, "tokens", false, "print tokens and cost per turn")
	f.BoolVar(&provenance, "provenance", false, "print the spans that the rows were derived from")
	pricesFlag(cmd)
	f.BoolVar(&raw, "raw", false, "print the rows as stored, one JSON object per line")
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
