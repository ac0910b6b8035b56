package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

const envPrices = "AGENTTRACE_PRICES"

// noPrices is what --prices and the environment say for no estimates.
const noPrices = "none"

// prices are those with which costs are estimated.
type prices struct {
	store.Price
	// name is what they are from.
	name string
	// date is when they were current, "" of a file that the user named.
	date string
	kept *price.Prices // nil of a file
}

func pricesDir() (string, error) {
	dir, err := sessionview.StateDir()
	return filepath.Join(dir, "prices"), err
}

// readPrices reads the list that --prices or the environment names, or those that are kept. It has no Price if there is
// none, or the command estimates nothing.
func readPrices(cmd *cobra.Command) (*prices, error) {
	path, err := cmd.Flags().GetString("prices")
	if err != nil {
		return new(prices), nil //nolint:nilerr // it has no such flag
	}
	if path == "" && cmd.Flags().Changed("prices") {
		return nil, usagef("--prices is empty; name a file, or leave the flag out")
	}
	switch path = cmp.Or(path, os.Getenv(envPrices)); path {
	case "":
		return keptPrices(cmd), nil
	case noPrices:
		return new(prices), nil
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
	return &prices{Price: table.Rate, name: path}, nil
}

// keptPrices are those of the lists that are kept, if there are any. Nobody asked for
// them: if they cannot be read, that is no error of the command.
func keptPrices(cmd *cobra.Command) *prices {
	dir, err := pricesDir()
	if err != nil {
		return new(prices) // without a home directory nothing is kept
	}
	kept, err := price.Open(dir)
	if err != nil {
		unreadable(cmd, err)
	}
	if kept == nil {
		return new(prices)
	}
	date := kept.Date().Local().Format(time.DateOnly)
	return &prices{Price: kept.Rate, name: "the price lists of " + date, date: date, kept: kept}
}

// keepPrices has a server use the lists that are kept, as they are when it needs them, unless the command names others.
func keepPrices(cmd *cobra.Command, b *web.Backend) error {
	if cmd.Flags().Changed("prices") || os.Getenv(envPrices) != "" {
		return nil
	}
	dir, err := pricesDir()
	if err != nil {
		return err
	}
	kept := price.NewKept(dir, price.UpdateOptions{UserAgent: "agenttrace/" + cmd.Root().Version})
	b.Sessions.Price, b.UpdatePrices = kept.Rate, kept.Update
	return nil
}

func unreadable(cmd *cobra.Command, err error) {
	what := strings.Join(strings.Fields(err.Error()), " ")
	_ = note(cmd, "agenttrace: %s\nhint: fetch the prices again with: agenttrace prices update\n",
		document.Sanitize(what))
}

// terminal is how to print to standard output, with the day of which estimates are, "" of a file that the user named.
func (p *prices) terminal(cmd *cobra.Command) render.Options {
	o := terminal(cmd)
	if p.date != "" {
		o.Prices = "prices of " + p.date
	}
	return o
}

func (p *prices) lacking(cmd *cobra.Command, models []string) error {
	if p.kept != nil && p.kept.Err() != nil {
		unreadable(cmd, p.kept.Err())
	}
	if len(models) == 0 || p.Price == nil {
		return nil
	}
	names := make([]string, len(models))
	for i, name := range models {
		if names[i] = document.Line(name); name == "" {
			names[i] = "a model that is not named"
		}
	}
	return note(cmd, "no price in %s, so nothing is estimated of: %s\n", document.Sanitize(p.name),
		strings.Join(names, ", "))
}

func newPrices() *cobra.Command {
	var x struct{ JSON bool }
	cmd := described("prices", &x, onlyCommands, func(cmd *cobra.Command, _ []string) error {
		dir, err := pricesDir()
		if err != nil {
			return err
		}
		lists, err := price.Lists(dir)
		switch {
		case err != nil:
			return err
		case x.JSON:
			return writeJSON(cmd, map[string]any{"directory": dir, "lists": append([]price.List{}, lists...)})
		case len(lists) == 0:
			return note(cmd, "no prices in %s; fetch them with: agenttrace prices update\n", document.Sanitize(dir))
		}
		return printLists(cmd, lists)
	})
	cmd.AddCommand(newPricesUpdate(), newPricesList())
	return cmd
}

func printLists(cmd *cobra.Command, lists []price.List) error {
	if len(lists) == 0 {
		return nil
	}
	rows := [][]string{{"LIST", "CHECKED", "PRICES", "FILE"}}
	for _, l := range lists {
		rows = append(rows, []string{l.Name, l.CheckedAt.Local().Format(time.DateOnly), document.Count(int64(l.Models)),
			document.Line(l.Path)})
	}
	return printTable(cmd, rows)
}

func newPricesUpdate() *cobra.Command {
	var x struct{ From []string }
	cmd := described("prices update", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		dir, err := pricesDir()
		if err != nil {
			return err
		}
		var lists []price.List
		for _, path := range x.From {
			l, err := price.Import(dir, path)
			if err != nil {
				return usagef("%w; name another file with --from", err)
			}
			lists = append(lists, l)
		}
		var failed error
		if len(x.From) == 0 {
			lists, failed = price.Update(cmd.Context(), dir, price.UpdateOptions{UserAgent: "agenttrace/" + cmd.Root().Version})
		}
		if err := printLists(cmd, lists); err != nil || failed == nil {
			return err
		}
		for line := range strings.Lines(failed.Error()) {
			_ = note(cmd, "agenttrace: %s\n", document.Sanitize(strings.TrimSpace(line)))
		}
		_ = note(cmd, "hint: check the network and HTTPS_PROXY, or read a file with --from\n")
		all := len(price.Sources())
		return fmt.Errorf("%d of %d price lists could not be updated", all-len(lists), all)
	})
	_ = cmd.MarkFlagFilename("from", "json")
	return cmd
}

func newPricesList() *cobra.Command {
	var x struct{ JSON bool }
	return described("prices list", &x, between(0, 1, "one model or none"), func(cmd *cobra.Command, args []string) error {
		p := keptPrices(cmd)
		if p.kept == nil {
			return usagef("there are no prices; fetch them with: agenttrace prices update")
		}
		models, known := []price.Model{}, make(map[string]bool)
		for i := range p.kept.Lists {
			t := p.kept.Table(i)
			if t == nil {
				unreadable(cmd, p.kept.Err())
				continue
			}
			for _, m := range t.Models() {
				name := nameOf(m)
				if !known[name] && strings.Contains(name, strings.ToLower(strings.Join(args, ""))) {
					models = append(models, m)
				}
				known[name] = true
			}
		}
		models = session.SortedRows(models, func(a, b *price.Model) int { return strings.Compare(nameOf(*a), nameOf(*b)) })
		switch {
		case x.JSON:
			return writeJSON(cmd, models)
		case len(models) == 0:
			return note(cmd, "no model with a price has that name\n")
		}
		number := func(usd float64) string { return strconv.FormatFloat(usd, 'f', -1, 64) }
		rows := [][]string{{"MODEL", "INPUT", "OUTPUT", "REASON", "C.READ", "C.WRITE"}}
		for _, m := range models {
			rows = append(rows, []string{document.Line(nameOf(m)), number(m.Input), number(m.Output), number(m.Reasoning),
				number(m.CacheRead), number(m.CacheWrite)})
		}
		return printTable(cmd, rows)
	})
}

func nameOf(m price.Model) string { return m.Provider + "/" + m.ID }
