package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

const envPrices = "AGENTTRACE_PRICES"

// noPrices is what --prices and the environment say for no estimates.
const noPrices = "none"

func pricesFlag(cmd *cobra.Command) {
	flags{"prices": new(string)}.of("(prices)", cmd.Flags())
	_ = cmd.MarkFlagFilename("prices", "json")
}

// prices are those with which costs are estimated.
type prices struct {
	store.Price
	// name is what they are from.
	name string
	// date is when they were current, "" of a file that the user named.
	date string
	kept *price.Prices // nil of a file
}

// pricesDir is where the lists of prices are kept.
func pricesDir() (string, error) {
	path, err := collector.DefaultStore()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(path), "prices"), nil
}

// readPrices reads the list that --prices or the environment names, or those that are kept;
// nil if there is none.
func readPrices(cmd *cobra.Command) (*prices, error) {
	path, _ := cmd.Flags().GetString("prices")
	if path == "" {
		if cmd.Flags().Changed("prices") {
			return nil, usagef("--prices is empty; name a file, or leave the flag out")
		}
		if path = os.Getenv(envPrices); path == "" {
			return keptPrices(cmd), nil
		}
	}
	if path == noPrices {
		return nil, nil
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

// keptPrices are those of the lists that are kept, nil if there are none. Nobody asked for
// them: if they cannot be read, that is no error of the command.
func keptPrices(cmd *cobra.Command) *prices {
	dir, err := pricesDir()
	if err != nil {
		return nil // without a home directory nothing is kept
	}
	kept, err := price.Open(dir)
	if err != nil {
		unreadable(cmd, err)
	}
	if kept == nil {
		return nil
	}
	date := kept.Date().Local().Format(time.DateOnly)
	return &prices{Price: kept.Rate, name: "the price lists of " + date, date: date, kept: kept}
}

// unreadable reports price lists that cannot be read.
func unreadable(cmd *cobra.Command, err error) {
	what := strings.Join(strings.Fields(err.Error()), " ")
	fmt.Fprintf(cmd.ErrOrStderr(), "agenttrace: %s\nhint: fetch the prices again with: agenttrace prices update\n",
		document.Sanitize(what))
}

// estimate returns the price, nil without prices.
func (p *prices) estimate() store.Price {
	if p == nil {
		return nil
	}
	return p.Price
}

// asOf says for a person of which day estimates are, "" of a file that the user named.
func (p *prices) asOf() string {
	if p == nil || p.date == "" {
		return ""
	}
	return "prices of " + p.date
}

// lacking names the models without a price.
func (p *prices) lacking(cmd *cobra.Command, models []string) error {
	if p == nil {
		return nil
	}
	if p.kept != nil && p.kept.Err() != nil {
		unreadable(cmd, p.kept.Err())
	}
	if len(models) == 0 {
		return nil
	}
	names := make([]string, len(models))
	for i, name := range models {
		if names[i] = document.Line(name); name == "" {
			names[i] = "a model that is not named"
		}
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no price in %s, so nothing is estimated of: %s\n",
		document.Sanitize(p.name), strings.Join(names, ", "))
	return err
}

func newPrices(version string) *cobra.Command {
	var asJSON bool
	cmd := described("prices", flags{"json": &asJSON}, &cobra.Command{
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := pricesDir()
			if err != nil {
				return err
			}
			lists, err := price.Lists(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, map[string]any{"directory": dir, "lists": append([]price.List{}, lists...)})
			}
			if len(lists) == 0 {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no prices in %s; fetch them with: agenttrace prices update\n",
					document.Sanitize(dir))
				return err
			}
			return printLists(cmd, lists)
		},
	})
	cmd.AddCommand(newPricesUpdate(version), newPricesList())
	return cmd
}

// printLists prints a line for each list.
func printLists(cmd *cobra.Command, lists []price.List) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, l := range lists {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Name, l.CheckedAt.Local().Format(time.DateOnly),
			document.Count(int64(l.Models))+" prices", document.Sanitize(l.Path))
	}
	return w.Flush()
}

func newPricesUpdate(version string) *cobra.Command {
	var from []string
	cmd := described("prices update", flags{"from": &from}, &cobra.Command{
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := pricesDir()
			if err != nil {
				return err
			}
			if len(from) > 0 {
				var lists []price.List
				for _, path := range from {
					l, err := price.Import(dir, path)
					if err != nil {
						return usagef("%w; name another file with --from", err)
					}
					lists = append(lists, l)
				}
				return printLists(cmd, lists)
			}
			lists, failed := price.Update(cmd.Context(), dir, price.UpdateOptions{UserAgent: "agenttrace/" + version})
			if err := printLists(cmd, lists); err != nil {
				return err
			}
			if failed == nil {
				return nil
			}
			for line := range strings.Lines(failed.Error()) {
				fmt.Fprintf(cmd.ErrOrStderr(), "agenttrace: %s\n", document.Sanitize(strings.TrimSpace(line)))
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "hint: check the network and HTTPS_PROXY, or read a file with --from")
			all := len(price.Sources())
			return fmt.Errorf("%d of %d price lists could not be updated", all-len(lists), all)
		},
	})
	_ = cmd.MarkFlagFilename("from", "json")
	return cmd
}

func newPricesList() *cobra.Command {
	var asJSON bool
	cmd := described("prices list", flags{"json": &asJSON}, &cobra.Command{
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := keptPrices(cmd)
			if p == nil {
				return usagef("there are no prices; fetch them with: agenttrace prices update")
			}
			models := []price.Model{}
			known := make(map[string]bool)
			for i := range p.kept.Lists {
				t := p.kept.Table(i)
				if t == nil {
					unreadable(cmd, p.kept.Err())
					continue
				}
				for _, m := range t.Models() {
					name := m.Provider + "/" + m.ID
					if known[name] || len(args) > 0 && !strings.Contains(name, strings.ToLower(args[0])) {
						continue
					}
					known[name] = true
					models = append(models, m)
				}
			}
			slices.SortFunc(models, func(a, b price.Model) int {
				return strings.Compare(a.Provider+"/"+a.ID, b.Provider+"/"+b.ID)
			})
			if asJSON {
				return writeJSON(cmd, models)
			}
			if len(models) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "no model with a price has that name")
				return err
			}
			return printPrices(cmd, models)
		},
	})
	return cmd
}

func printPrices(cmd *cobra.Command, models []price.Model) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	number := func(usd float64) string { return strconv.FormatFloat(usd, 'f', -1, 64) }
	fmt.Fprintln(w, "MODEL\tINPUT\tOUTPUT\tREASON\tC.READ\tC.WRITE")
	for _, m := range models {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", document.Line(m.Provider+"/"+m.ID), number(m.Input),
			number(m.Output), number(m.Reasoning), number(m.CacheRead), number(m.CacheWrite))
	}
	return w.Flush()
}
