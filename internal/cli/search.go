package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
)

func newSearch() *cobra.Command {
	var since string
	var x filters
	var limit int
	var isRegexp, asJSON bool
	to := flags{"since": &since, "limit": &limit, "regexp": &isRegexp, "json": &asJSON}
	cmd := described("search", to, &cobra.Command{
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              exactly(1, "one text, in quotes if it has spaces"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef("the text is empty; give a text to search for")
			}
			if limit < 1 {
				return usagef("--limit is %d; use a number above 0", limit)
			}
			if err := x.read(cmd); err != nil {
				return err
			}
			q := store.SearchQuery{Text: args[0], Regexp: isRegexp, Agent: x.Agent}
			if isRegexp {
				if _, err := q.Compile(); err != nil {
					return usagef("%w; the syntax is that of https://github.com/google/re2/wiki/Syntax", err)
				}
			}
			var err error
			if q.Since, err = parseTime("since", since); err != nil {
				return err
			}
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			defer extendIndex(cmd.Context(), r.Reader)
			within, err := x.within(cmd.Context(), r)
			if err != nil {
				return err
			}
			if within != nil && len(within) == 0 {
				if asJSON {
					return writeJSON(cmd, []store.Hit{})
				}
				return x.reportNone(cmd, r, store.SessionQuery{Children: true, Archived: true})
			}
			hits, more, err := r.Find(cmd.Context(), q, within, limit, 0)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, hits)
			}
			if len(hits) == 0 {
				return nothingFound(cmd, q, since, r.Name())
			}
			if err := render.Hits(cmd.OutOrStdout(), hits, terminal(cmd)); err != nil {
				return err
			}
			if more {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "there is more; --limit %d shows it\n", limit*5)
			}
			return err
		},
	})
	addFilters(cmd, &x)
	return cmd
}

// extendIndex makes what the search index of a store lacks, for up to a second. A search works without it.
func extendIndex(ctx context.Context, r store.Reader) {
	if indexer, ok := r.(store.SearchIndexer); ok {
		end := time.Now().Add(time.Second)
		_ = indexer.UpdateSearchIndex(ctx, func(int, int) bool { return time.Now().Before(end) })
	}
}

// nothingFound reports where nothing was found, and by which filters.
func nothingFound(cmd *cobra.Command, q store.SearchQuery, since, name string) error {
	what := strconv.Quote(q.Text) + " is not"
	if q.Regexp {
		what = `no match of "` + q.Text + `"`
	}
	within := ""
	if q.Agent != "" {
		within += " of agent " + strconv.Quote(q.Agent)
	}
	if since != "" {
		within += " since " + since
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(),
		"%s in the titles, notes, messages, tool calls, system prompts and tool catalogs of the sessions%s in %s\n",
		document.Sanitize(what), document.Sanitize(within), name)
	return err
}
