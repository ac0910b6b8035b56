package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

func newShow() *cobra.Command {
	var full, asJSON, prompt, tools, permissions, tokens, raw, provenance bool
	cmd := &cobra.Command{
		Use:   "show ID [TURN]",
		Short: "Show a session turn by turn",
		Long: `Show a session turn by turn: what was said, every tool call with its input and
output, every permission decision, and what it took.

TURN is a number as the timeline shows it, from 1. Long texts are clipped unless
--full is given. The views may be combined; each prints its part instead of the
timeline.

With --json the whole is one object: session, status, turns (with messages and their
parts), queued, totals, notices (rule, turn, message_id, part_id, tool_call_id, tool,
trace_id, span_id, span_kind, detail, remedy), children, system_prompts, tool_catalogs, decisions,
spans and traces. Times are in Unix milliseconds; what the source did not say is
absent. With --raw each line is a row of chat_sessions, chat_messages or
chat_parts.

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
			return exactly(1, "one session and, if you like, the number of a turn")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && raw {
				return usagef("--json and --raw exclude each other; use one of them")
			}
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			return withSession(cmd, args[0], func(ctx context.Context, r *sqlite.Reader, id string) error {
				if raw {
					t, err := r.Transcript(ctx, id)
					if err != nil {
						return err
					}
					return writeRows(jsonOutput(cmd), t)
				}
				in, err := inspect.Collect(ctx, r, id)
				if err != nil {
					return err
				}
				in.Now = time.Now()
				if in.Silence, err = silence(cmd); err != nil {
					return err
				}
				tl := inspect.Build(in)
				tl.FindNotices(in)
				if p != nil {
					tl.Estimate(p.Estimate)
					if err := p.lacking(cmd, tl.UnpricedModels); err != nil {
						return err
					}
				}
				if len(args) == 2 {
					number, _ := strconv.Atoi(args[1])
					one := tl.Only(number)
					if one == nil {
						return usagef("session %s has no turn %d; its turns are 1 to %d", id, number, len(tl.Turns))
					}
					tl = one
				}
				if asJSON {
					return writeJSON(cmd, tl)
				}
				o := terminal(cmd)
				o.Full = full
				views := []struct {
					on     bool
					render func(io.Writer, inspect.Options) error
				}{
					{prompt, tl.RenderPrompts}, {tools, tl.RenderTools}, {permissions, tl.RenderPermissions},
					{tokens, tl.RenderTokens}, {provenance, tl.RenderProvenance},
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
					if err := v.render(cmd.OutOrStdout(), o); err != nil {
						return err
					}
				}
				if printed {
					return nil
				}
				return tl.Render(cmd.OutOrStdout(), o)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "clip nothing, and show what rewinds hid")
	f.BoolVar(&asJSON, "json", false, "print the timeline as JSON")
	f.BoolVar(&prompt, "prompt", false, "the system prompts, and the turns that had them")
	f.BoolVar(&tools, "tools", false, "the tools that were available, and those called")
	f.BoolVar(&permissions, "permissions", false, "the rules in force and the decision at each call")
	f.BoolVar(&tokens, "tokens", false, "tokens and cost per turn")
	f.BoolVar(&provenance, "provenance", false, "the spans that the rows were made from")
	pricesFlag(cmd)
	f.BoolVar(&raw, "raw", false, "the rows as they are stored, one JSON object per line")
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
