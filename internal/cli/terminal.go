package cli

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/inspect"
)

// terminal says how to print for whoever reads standard output: as wide as the
// terminal, or as COLUMNS says, else 100; in color on a terminal unless
// NO_COLOR is set, elsewhere only with CLICOLOR_FORCE.
func terminal(cmd *cobra.Command) inspect.Options {
	o := inspect.Options{Width: 100, Location: time.Local, Color: os.Getenv("CLICOLOR_FORCE") != "" && os.Getenv("CLICOLOR_FORCE") != "0", Now: time.Now()}
	if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(f.Fd()) {
		o.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if w, _, err := term.GetSize(f.Fd()); err == nil && w > 0 {
			o.Width = w
		}
	}
	if w, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && w > 0 {
		o.Width = w
	}
	return o
}

// isTerminal says whether a person sees what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}
