package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// The commands that print what a store has: ls, search, stats, show, status, diff and mcp.

func newList() *cobra.Command {
	var x filters
	var limit int
	var children, archived, all, asJSON bool
	var after string
	cmd := described("ls", flags{
		"limit": &limit, "after": &after, "children": &children, "archived": &archived, "all": &all, "json": &asJSON,
	}, noArguments, func(cmd *cobra.Command, _ []string) error {
		return x.reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
			q := x.query()
			if q.Limit, q.Children, q.Archived = limit, children || all, archived || all; limit < 1 {
				return usagef("--limit is %d; use a number above 0, or --all", limit)
			}
			if all && !cmd.Flags().Changed("limit") {
				q.Limit = -1
			}
			if after != "" {
				id, err := r.Resolve(ctx, after)
				if err != nil {
					return err
				}
				s, err := r.Session(ctx, id)
				if err != nil {
					return err
				}
				q.Before = &store.Cursor{UpdatedAt: s.UpdatedAt, ID: id}
			}
			rows, err := r.Select(ctx, q, x.status)
			switch {
			case err != nil:
				return err
			case len(rows) > 0 || asJSON:
				return listSessions(cmd, r, rows, p, asJSON)
			case x.any():
				return x.reportNone(cmd, r, q)
			case after != "":
				return note(cmd, "no sessions after %s\n", shown(after))
			}
			for _, err := range r.Sessions(ctx, store.SessionQuery{Children: true, Archived: true, Limit: 1}) {
				if err != nil {
					return err
				}
				return note(cmd, "no sessions to list in %s: all of them are archived or of sub-agents; add --all\n", r.Name())
			}
			return note(cmd, "no sessions in %s\n", r.Name())
		})
	})
	addFilters(cmd, &x)
	flags{"sort": &x.sort}.of("(sort)", cmd.Flags())
	complete(cmd, "sort", store.SessionSorts())
	pricesFlag(cmd)
	return cmd
}

// listSessions prints a list of sessions with what each of them used, with ids that are as short as the store allows,
// and names the models that p, which may be nil, has no price for.
func listSessions(cmd *cobra.Command, r document.Reader, rows []session.Session, p *prices, asJSON bool) error {
	items, unpriced, err := r.Items(cmd.Context(), rows)
	if err == nil {
		err = p.lacking(cmd, unpriced)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(cmd, items)
	}
	abbreviate(cmd.Context(), r, items)
	return render.Sessions(cmd.OutOrStdout(), items, p.terminal(cmd))
}

// abbreviate makes the ids of a list as short as the store allows.
func abbreviate(ctx context.Context, r store.Reader, items []document.Item) {
	document.Abbreviate(items, func(short, id string) bool {
		found, err := r.Resolve(ctx, short)
		return err == nil && found == id
	})
}

func newSearch() *cobra.Command {
	var x filters
	var limit int
	var isRegexp, asJSON bool
	to := flags{"since": &x.since, "limit": &limit, "regexp": &isRegexp, "json": &asJSON}
	takes := exactly(1, "one text, in quotes if it has spaces")
	cmd := described("search", to, takes, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the text is empty; give a text to search for")
		}
		if limit < 1 {
			return usagef("--limit is %d; use a number above 0", limit)
		}
		q := store.SearchQuery{Text: args[0], Regexp: isRegexp}
		if isRegexp {
			if _, err := q.Compile(); err != nil {
				return usagef("%w; the syntax is that of https://github.com/google/re2/wiki/Syntax", err)
			}
		}
		return x.reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			defer extendIndex(ctx, r.Reader)
			q.Agent, q.Since = x.Agent, x.Since
			x.Since = time.Time{} // which is for what is found
			within, err := x.within(ctx, r)
			if err != nil {
				return err
			}
			hits, more := []store.Hit{}, false
			nowhere := within != nil && len(within) == 0
			if !nowhere {
				hits, more, err = r.Find(ctx, q, within, limit, 0)
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(cmd, hits)
			case nowhere:
				return x.reportNone(cmd, r, everySession)
			case len(hits) == 0:
				asked := struct {
					store.SearchQuery
					Since string
				}{q, x.since}
				return note(cmd, "%s in %s\n", document.Sanitize(phrases.Text("nothing found", asked)), r.Name())
			}
			if err = render.Hits(cmd.OutOrStdout(), hits, terminal(cmd)); err == nil && more {
				err = note(cmd, "there is more; --limit %d shows it\n", limit*5)
			}
			return err
		})
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

func newStats() *cobra.Command {
	var by []string
	var asJSON bool
	var x filters
	to := flags{"by": &by, "since": &x.since, "json": &asJSON}
	cmd := described("stats", to, noArguments, func(cmd *cobra.Command, _ []string) error {
		q := store.StatsQuery{Location: time.Local}
		var err error
		if q.By, err = store.ParseStatsBy(by...); err != nil {
			return usagef("--by %w", err)
		}
		return x.reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
			q.Sessions, q.Since, q.Until, q.Price = x.SessionFilter, x.Since, x.Until, r.Price
			x.Since = time.Time{} // which is for what is counted
			if x.status != "" {
				if q.Sessions.IDs, err = x.ids(ctx, r); err != nil {
					return err
				}
			}
			s, err := r.Stats(ctx, q)
			if err == nil {
				err = p.lacking(cmd, s.UnpricedModels)
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(cmd, s)
			case s.Total.Sessions == 0 && x.any():
				x.Since = q.Since
				return x.reportNone(cmd, r, everySession)
			case q.By != nil && len(s.Groups) == 0:
				return note(cmd, "nothing to count in %s\n", r.Name())
			}
			return render.Stats(cmd.OutOrStdout(), &s, q.By, p.terminal(cmd))
		})
	})
	addFilters(cmd, &x)
	pricesFlag(cmd)
	complete(cmd, "by", store.StatsKeys())
	return cmd
}

// changedUntil reads of a session what the changes of a turn need: the outline, and the turns that lead to it.
func changedUntil(ctx context.Context, r document.Reader, id string, turn int) (*document.Document, error) {
	o, err := r.LoadOutline(ctx, id)
	if err == nil {
		err = o.LoadContext(ctx, turn)
	}
	if err != nil {
		return nil, err
	}
	return o.Document(), nil
}

func newShow() *cobra.Command {
	var full, asJSON, raw bool
	type view struct {
		flag  string
		print func(io.Writer, *document.Document, render.Options) error
		on    bool
	}
	views := []view{
		{"prompt", render.Prompts, false}, {"tools", render.Tools, false}, {"permissions", render.Permissions, false},
		{"tokens", render.Tokens, false}, {"provenance", render.Provenance, false}, {"errors", render.Errors, false},
	}
	var changes bool
	to := flags{"full": &full, "json": &asJSON, "raw": &raw, "diff": &changes}
	for i := range views {
		to[views[i].flag] = &views[i].on
	}
	turn := 0
	cmd := described("show", to, func(cmd *cobra.Command, args []string) (err error) {
		if len(args) == 2 {
			if turn, err = strconv.Atoi(args[1]); err != nil || turn < 1 {
				return usagef("turn %q is not a number from 1", args[1])
			}
			return nil
		}
		return exactly(1, "a session and, optionally, the number of a turn")(cmd, args)
	}, func(cmd *cobra.Command, args []string) error {
		if asJSON && raw {
			return usagef("--json and --raw exclude each other; use one of them")
		}
		if turn > 0 && raw {
			return usagef("--raw prints the rows of the whole session; leave the turn out, or use --json")
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
			id, err := r.Resolve(ctx, args[0])
			if err != nil {
				return err
			}
			if raw {
				t, err := r.Transcript(ctx, id)
				if err != nil {
					return err
				}
				return writeRows(jsonOutput(cmd), t)
			}
			var doc, all *document.Document
			if turn == 0 {
				all, err = r.LoadAll(ctx, id)
				doc = all
			} else if doc, err = r.LoadTurns(ctx, id, turn, turn); err == nil {
				doc.Queued = nil
			}
			if err == nil && turn != 0 && changes {
				all, err = changedUntil(ctx, r, id, turn)
			}
			if err == nil {
				err = p.lacking(cmd, doc.UnpricedModels)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd, doc)
			}
			o := p.terminal(cmd)
			o.Full = full
			shown := slices.DeleteFunc(slices.Clone(views), func(v view) bool { return !v.on })
			if changes {
				shown = append(shown, view{print: func(w io.Writer, _ *document.Document, o render.Options) error {
					return render.Changes(w, all, turn, o)
				}})
			}
			if len(shown) == 0 {
				return render.Document(cmd.OutOrStdout(), doc, o)
			}
			for i, v := range shown {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if err := v.print(cmd.OutOrStdout(), doc, o); err != nil {
					return err
				}
			}
			return nil
		})
	})
	pricesFlag(cmd)
	return cmd
}

// writeRows writes every row of a session as JSON, without the envelope of an export.
func writeRows(w io.Writer, t *session.Transcript) error {
	b := append(t.Session.AppendJSON(nil), '\n')
	for i := range t.Messages {
		b = append(t.Messages[i].Message.AppendJSON(b), '\n')
		for j := range t.Messages[i].Parts {
			b = append(t.Messages[i].Parts[j].AppendJSON(b), '\n')
		}
	}
	_, err := w.Write(b)
	return err
}

func newStatus() *cobra.Command {
	var asJSON bool
	takes := exactly(1, "one session")
	cmd := described("status", flags{"json": &asJSON}, takes, func(cmd *cobra.Command, args []string) error {
		return withSession(cmd, args[0], func(ctx context.Context, r document.Reader, id string) error {
			st, err := r.LoadStatus(ctx, id)
			switch {
			case err != nil:
				return err
			case asJSON:
				err = writeJSON(cmd, st)
			default:
				err = render.Status(cmd.OutOrStdout(), &st, terminal(cmd))
			}
			if err == nil && st.State.Trouble() {
				err = errFinding
			}
			return err
		})
	})
	idleTimeoutFlag(cmd)
	return cmd
}

func newDiff() *cobra.Command {
	var full, unified, asJSON bool
	var compare document.CompareOptions
	var format string
	var out output
	formats := []string{"text", "html", "json"}
	cmd := described("diff", flags{
		"full": &full, "unified": &unified, "ignore-usage": &compare.IgnoreUsage, "exact": &compare.Exact,
		"format": &format, "json": &asJSON, "output": &out.path, "force": &out.force,
	}, exactly(2, "two sessions"), func(cmd *cobra.Command, args []string) error {
		switch {
		case !slices.Contains(formats, format):
			return usagef("--format %q is unknown; use %s", format, either(formats))
		case asJSON && cmd.Flags().Changed("format") && format != "json":
			return usagef("--json and --format %s exclude each other; use one of them", format)
		case asJSON:
			format = "json"
		}
		if unified && format != "text" {
			return usagef("--unified is for text; leave it out with --format %s", format)
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			out.source = r.Name()
			var ids [2]string
			for i, name := range args {
				var err error
				if ids[i], err = r.Resolve(ctx, name); err != nil {
					return err
				}
			}
			d, a, b, err := r.Compare(ctx, ids[0], ids[1], compare)
			if err != nil {
				return err
			}
			err = out.write(cmd, out.path, format == "json", func(w io.Writer) error {
				switch format {
				case "json":
					return document.EncodeJSON(w, "  ", d)
				case "html":
					return render.HTMLDiff(w, d, a, b, document.Words{Full: full, Zone: time.Local})
				}
				t := terminal(cmd)
				t.Full = full
				t.Color = t.Color && (out.path == "" || out.path == "-")
				return render.Diff(w, d, t, unified)
			})
			if err == nil && !d.Equal {
				err = errFinding
			}
			return err
		})
	})
	complete(cmd, "format", formats)
	return cmd
}

func newMCP(version string) *cobra.Command {
	var scores bool
	to := flags{"scores": &scores}
	return described("mcp", to, noArguments, func(cmd *cobra.Command, _ []string) error {
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			b := web.Backend{Sessions: r, Author: cmp.Or(os.Getenv(envAuthor), "mcp")}
			if scores {
				b.Change = func(_ context.Context, fn func(context.Context, store.Service) error) error {
					return withWriter(cmd, fn)
				}
			}
			return web.NewMCP(b, version, time.Local).Run(ctx, &mcp.StdioTransport{})
		})
	})
}
