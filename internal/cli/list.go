package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newList() *cobra.Command {
	var x filters
	var limit int
	var children, archived, all, asJSON bool
	var after string
	cmd := described("ls", flags{
		"limit": &limit, "after": &after, "children": &children, "archived": &archived, "all": &all, "json": &asJSON,
	}, &cobra.Command{
		Aliases: []string{"list"},
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := x.read(cmd); err != nil {
				return err
			}
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			q := x.query()
			if q.Limit, q.Children, q.Archived = limit, children, archived; limit < 1 {
				return usagef("--limit is %d; use a number above 0, or --all", limit)
			}
			if after != "" {
				id, err := r.Resolve(cmd.Context(), after)
				if err != nil {
					return err
				}
				s, err := r.Session(cmd.Context(), id)
				if err != nil {
					return err
				}
				q.Before = &store.Cursor{UpdatedAt: s.UpdatedAt, ID: id}
			}
			if all {
				q.Children, q.Archived = true, true
				if !cmd.Flags().Changed("limit") {
					q.Limit = -1
				}
			}
			rows, err := r.Select(cmd.Context(), q, x.status)
			if err != nil {
				return err
			}
			items, err := listItems(cmd, r, rows, p)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, items)
			}
			switch {
			case len(items) > 0:
			case x.any():
				return x.reportNone(cmd, r, q)
			case after != "":
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no sessions after %s\n", shown(after))
				return err
			default:
				return reportEmpty(cmd, r)
			}
			return printList(cmd, r, items, p)
		},
	})
	addFilters(cmd, &x)
	addSort(cmd, &x)
	pricesFlag(cmd)
	return cmd
}

// printList prints a list of sessions, with ids that are as short as the store allows.
func printList(cmd *cobra.Command, r store.Reader, items []document.Item, p *prices) error {
	document.Abbreviate(items, func(short, id string) bool {
		found, err := r.Resolve(cmd.Context(), short)
		return err == nil && found == id
	})
	o := terminal(cmd)
	o.Prices = p.asOf()
	return render.Sessions(cmd.OutOrStdout(), items, o)
}

// reportEmpty states that there are no sessions to list, and whether the store has others.
func reportEmpty(cmd *cobra.Command, r store.Reader) error {
	w := cmd.ErrOrStderr()
	for _, err := range r.Sessions(cmd.Context(), store.SessionQuery{Children: true, Archived: true, Limit: 1}) {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "no sessions to list in %s: all of them are archived or of sub-agents; add --all\n",
			r.Name())
		return err
	}
	_, err := fmt.Fprintf(w, "no sessions in %s\n", r.Name())
	return err
}

// listItems makes a list of sessions with what each of them used, and names the models that p,
// which may be nil, has no price for.
func listItems(cmd *cobra.Command, r document.Reader, rows []session.Session, p *prices) ([]document.Item, error) {
	r.Price = p.estimate()
	items, unpriced, err := r.Items(cmd.Context(), rows)
	if err != nil {
		return nil, err
	}
	return items, p.lacking(cmd, unpriced)
}

func writeJSON(cmd *cobra.Command, v any) error { return encodeJSON(jsonOutput(cmd), v) }

func encodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func newCollect(version string) *cobra.Command {
	c := collector.Command(version)
	// The collector handles signals itself. With a context that the same signal
	// ends it would have no time left to store what it has accepted.
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SetContext(context.WithoutCancel(cmd.Context()))
		return run(cmd, args)
	}
	for _, cmd := range append(c.Commands(), c) {
		cmd.Args = exactly(0, "no arguments")
	}
	return c
}
