package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
)

func newACP() *cobra.Command {
	var x struct{ Inspect string }
	return described("acp", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		path := x.Inspect
		if path == "" {
			return usagef("acp what? name a trace of the Agent Client Protocol with --inspect")
		}
		text, err := codec.ReadFile(path)
		if err != nil {
			return usagef("read a trace: %w; name another file", err)
		}
		damaged := 0
		all, err := formats.ACPMessages(text, func(p codec.Problem) {
			damaged++
			_ = note(cmd, "agenttrace: %s: %s\n", document.Line(path), document.Line(p.String()))
		})
		if err != nil {
			return fmt.Errorf("read trace %s: %w", path, err)
		}
		rows := [][]string{{"TIME", "FROM", "WHAT", "ID", "TOOK", "TEXT"}}
		for i := range all {
			m := &all[i]
			at, what := "", document.Line(m.What)
			if m.At > 0 {
				at = time.UnixMilli(m.At).Format("15:04:05.000")
			}
			if m.Response {
				what = "= " + what
			}
			rows = append(rows, []string{at, m.From, what, document.Line(m.ID), document.OptionalDuration(m.TookMS),
				document.Line(m.Text)})
		}
		if err := printTable(cmd, rows); err != nil {
			return err
		}
		if damaged > 0 {
			return errFinding
		}
		return nil
	})
}
