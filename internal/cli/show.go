package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
)

// allPrompts is the value of --prompt without one.
const allPrompts = "all"

func (p *program) show() *cobra.Command {
	var full, asJSON, tools, permissions, raw, provenance bool
	var prompt string
	c := &cobra.Command{
		Use:   "show [ID]",
		Short: "Read a session, turn by turn",
		Long: `Read a session, turn by turn: what the user said, what the model thought, said and
called, what the tools gave back, who allowed it, and what it took. ID is an id,
the head of one, a trace id, or "last", which is the default.

Long outputs are cut short and rewound turns are folded away unless --full is
given. --prompt, --tools, --permissions, --provenance and --raw show one side of
the session instead.

With --json the whole is one JSON object: session, turns (with messages and their
parts), queued, totals, children, system_prompts, tool_catalogs, decisions, spans
and traces. Times are in Unix milliseconds; what the source did not say is absent.`,
		Example: `  agenttrace show last
  agenttrace show 1fa2bdc0 --full | less -R
  agenttrace show last --prompt=2 > prompt.txt
  agenttrace show last --json | jq '.turns[] | {number, usage, tools: .tools.called}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) == 2 && prompt == allPrompts && isNumber(args[1]) {
				return nil
			}
			return usageError("show takes one session", "agenttrace show --help shows examples")
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.completeIDs(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			views := 0
			for _, on := range []bool{asJSON, prompt != "", tools, permissions, raw, provenance} {
				if on {
					views++
				}
			}
			if views > 1 {
				return usageError("--json, --prompt, --tools, --permissions, --provenance and --raw exclude each other", "use one of them")
			}
			name := "last"
			switch {
			case len(args) == 1 && prompt == allPrompts && isNumber(args[0]) && len(args[0]) < 4:
				prompt = args[0] // show --prompt 3
			case len(args) > 0:
				name = args[0]
			}
			if len(args) == 2 {
				prompt = args[1]
			}
			o := p.options()
			o.Full = full
			return p.with(cmd.Context(), func(r store.Reader) error {
				id, err := r.Resolve(cmd.Context(), name)
				if err != nil {
					return err
				}
				if raw {
					t, err := r.Transcript(cmd.Context(), id)
					if err != nil {
						return err
					}
					return jsonl.Encode(p.rows(), t)
				}
				tl, err := inspect.Load(cmd.Context(), r, id)
				if err != nil {
					return err
				}
				switch {
				case asJSON:
					return writeJSON(p.rows(), tl)
				case prompt == allPrompts:
					return tl.RenderPrompts(p.stdout, o)
				case prompt != "":
					return p.promptOf(tl, prompt)
				case tools:
					return tl.RenderTools(p.stdout, o)
				case permissions:
					return tl.RenderPermissions(p.stdout, o)
				case provenance:
					return tl.RenderProvenance(p.stdout, o)
				}
				return tl.Render(p.stdout, o)
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&full, "full", false, "cut nothing short, fold nothing away")
	f.BoolVar(&asJSON, "json", false, "print the session as one JSON object")
	f.StringVar(&prompt, "prompt", "", "print the system prompts; with a `turn`, as in --prompt=2, that turn's alone, as it was sent")
	f.Lookup("prompt").NoOptDefVal = allPrompts
	f.BoolVar(&tools, "tools", false, "print which tools were available and which were called")
	f.BoolVar(&permissions, "permissions", false, "print the permission decisions and rules of each tool call")
	f.BoolVar(&provenance, "provenance", false, "print the spans that the session was made from")
	f.BoolVar(&raw, "raw", false, "print the rows as JSON lines")
	return c
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// promptOf prints the system prompt of a turn: byte for byte, unless to a
// terminal.
func (p *program) promptOf(tl *inspect.Timeline, turn string) error {
	n, err := strconv.Atoi(turn)
	if err != nil {
		return usageError("--prompt is "+quote(turn), "give the number of a turn, as in --prompt=2")
	}
	t := tl.Turn(n)
	if t == nil {
		return &failure{fmt.Errorf("session %s has no turn %d", tl.Session.ID, n), ExitNotFound, fmt.Sprintf("its turns are 1 to %d", len(tl.Turns))}
	}
	if t.SystemPromptDigest == "" {
		return &failure{fmt.Errorf("turn %d of session %s does not say what its system prompt was", n, tl.Session.ID), ExitNotFound, ""}
	}
	i := slices.IndexFunc(tl.SystemPrompts, func(s inspect.SystemPrompt) bool { return s.Digest == t.SystemPromptDigest })
	s := &tl.SystemPrompts[i]
	if !s.Resolved {
		return &failure{fmt.Errorf("system prompt %s of turn %d is unresolved: no span that had its text has arrived", s.Digest, n), ExitNotFound, ""}
	}
	body := s.Body
	if isTerminal(p.stdout) {
		body = strings.TrimRight(inspect.Sanitize(body), "\n") + "\n"
	}
	_, err = io.WriteString(p.stdout, body)
	return err
}

// writeJSON prints v indented.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
