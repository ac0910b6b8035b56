package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
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
		if err := printMessages(cmd.OutOrStdout(), all, columns(cmd.OutOrStdout(), 0)); err != nil {
			return err
		}
		if damaged > 0 {
			return errFinding
		}
		return nil
	})
}

// printMessages prints a line for each message, cut to a width unless that is 0.
func printMessages(w io.Writer, all []formats.ACPMessage, width int) error {
	what, id := 0, 0
	for i := range all {
		what, id = max(what, ansi.StringWidth(document.Line(all[i].What))), max(id, len(document.Line(all[i].ID)))
	}
	what, id = min(what, 28), min(id, 8)
	var b strings.Builder
	for i := range all {
		m := &all[i]
		at := ""
		if m.At > 0 {
			at = time.UnixMilli(m.At).Format("15:04:05.000") + " "
		}
		arrow := map[string]string{"client": "→", "agent": "←"}[m.From]
		if arrow == "" {
			arrow = "·"
		}
		took := document.OptionalDuration(m.TookMS)
		name := document.Line(m.What)
		if m.Response {
			name = "= " + name
		}
		cut := func(s string, n int) string {
			s = ansi.Truncate(s, n, "…")
			return s + strings.Repeat(" ", max(0, n-ansi.StringWidth(s)))
		}
		line := at + arrow + " " + cut(name, what+2) + " " + cut(document.Line(m.ID), id) + " " + cut(took, 6) + " " +
			document.Line(m.Text)
		if width > 0 {
			line = ansi.Truncate(line, width, "…")
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
