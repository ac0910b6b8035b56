package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/document"
)

func newRedact() *cobra.Command {
	var x struct{ Explain bool }
	return described("redact", &x, between(0, 1, "one file"),
		func(cmd *cobra.Command, args []string) error {
			var text []byte
			var err error
			if len(args) == 0 || args[0] == "-" {
				text, err = io.ReadAll(cmd.InOrStdin())
			} else {
				text, err = os.ReadFile(args[0])
			}
			if err != nil {
				return usagef("read text: %w", err)
			}
			r, err := redact.New(redact.Config{})
			if err != nil {
				return err
			}
			if !x.Explain {
				_, err = io.WriteString(cmd.OutOrStdout(), r.Text(string(text)))
				return err
			}
			return printCandidates(cmd, r, string(text))
		})
}

func printCandidates(cmd *cobra.Command, r *redact.Redactor, text string) error {
	rows := [][]string{{"AT", "VERDICT", "SCORE", "LABEL", "KIND", "WHY"}}
	for _, x := range r.Explain(text) {
		verdict, before := "-", text[:x.Start]
		if x.Secret {
			verdict = "secret"
		}
		var reasons []string
		if x.Rule != "" {
			reasons = append(reasons, "rule "+x.Rule)
		}
		for _, f := range x.Features {
			reasons = append(reasons, fmt.Sprintf("%s %+d", f.Name, f.Weight))
		}
		// A label is a name of the text, where other secrets may be.
		label := r.Text(document.Line(x.Label))
		at := fmt.Sprintf("%d:%d", strings.Count(before, "\n")+1, x.Start-strings.LastIndexByte(before, '\n'))
		rows = append(rows, []string{at, verdict, fmt.Sprintf("%+d", x.Score), cmp.Or(label, "-"), cmp.Or(x.Kind, "-"),
			strings.Join(reasons, ", ")})
	}
	return printTable(cmd, rows)
}
