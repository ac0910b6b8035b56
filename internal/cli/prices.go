package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/printable"
)

const envPrices = "AGENTTRACE_PRICES"

// pricesHelp is what the help of every command with --prices reports of it.
const pricesHelp = `With --prices, or $AGENTTRACE_PRICES, costs that the source does not report are
estimated with a price list that you provide: https://models.dev/api.json or
LiteLLM's model_prices_and_context_window.json. Estimates are marked with ~
and never stored. Models without a price are named on standard error.`

func pricesFlag(cmd *cobra.Command) {
	cmd.Flags().String("prices", "", "price list to estimate costs with, a `file` (default $"+envPrices+")")
	_ = cmd.MarkFlagFilename("prices", "json")
}

// prices are those of the file that the user named.
type prices struct {
	*price.Table
	path string
}

// readPrices reads the file that --prices or the environment names; nil where neither
// does.
func readPrices(cmd *cobra.Command) (*prices, error) {
	path, _ := cmd.Flags().GetString("prices")
	if path == "" {
		if cmd.Flags().Changed("prices") {
			return nil, usagef("--prices is empty; name a file, or leave the flag out")
		}
		if path = os.Getenv(envPrices); path == "" {
			return nil, nil
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("read prices: %w; name another file with --prices or %s", err, envPrices)
	}
	defer f.Close()
	table, err := price.Read(f)
	if err != nil {
		return nil, usagef("read prices from %s: %w", path, err)
	}
	return &prices{table, path}, nil
}

// lacking names the models without a price.
func (p *prices) lacking(cmd *cobra.Command, models []string) error {
	if len(models) == 0 {
		return nil
	}
	names := make([]string, len(models))
	for i, name := range models {
		if names[i] = printable.Line(name); name == "" {
			names[i] = "a model that is not named"
		}
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no price in %s, so nothing is estimated of: %s\n",
		printable.Sanitize(p.path), strings.Join(names, ", "))
	return err
}
