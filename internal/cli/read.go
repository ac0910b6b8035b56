package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// The commands that print what a store has: ls, search, stats, show, status, diff and mcp.

func newList() *cobra.Command {
	var x struct {
		filters
		Limit                         int
		After                         string
		Children, Archived, All, JSON bool
	}
	return described("ls", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		return x.reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
			q := x.query()
			q.Limit, q.Children, q.Archived = x.Limit, x.Children || x.All, x.Archived || x.All
			if x.All && !cmd.Flags().Changed("limit") {
				q.Limit = -1
			}
			if x.After != "" {
				last, err := named(ctx, r, []string{x.After}, false)
				if err != nil {
					return err
				}
				q.Before = &store.Cursor{UpdatedAt: last[0].UpdatedAt, ID: last[0].ID}
			}
			rows, err := r.Select(ctx, q, x.Status)
			switch {
			case err != nil:
				return err
			case len(rows) > 0 || x.JSON:
				return listSessions(cmd, r, rows, p, x.JSON)
			case x.any():
				return x.reportNone(cmd, r, q)
			case x.After != "":
				return note(cmd, "no sessions after %s\n", shown(x.After))
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
}

// listSessions prints a list of sessions with what each of them used, with ids that are as short as the store allows,
// and names the models that p has no price for.
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
	var x struct {
		filters
		Limit        int
		Regexp, JSON bool
	}
	takes := exactly(1, "one text, in quotes if it has spaces")
	return described("search", &x, takes, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the text is empty; give a text to search for")
		}
		q := store.SearchQuery{Text: args[0], Regexp: x.Regexp}
		if x.Regexp {
			if _, err := q.Compile(); err != nil {
				return usagef("%w; the syntax is that of https://github.com/google/re2/wiki/Syntax", err)
			}
		}
		return x.reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			defer extendIndex(ctx, r.Reader)
			q.Agent, q.Since = x.Agent, x.SessionFilter.Since
			x.SessionFilter.Since = time.Time{} // which is for what is found
			within, err := x.within(ctx, r)
			if err != nil {
				return err
			}
			hits, more := []store.Hit{}, false
			nowhere := within != nil && len(within) == 0
			if !nowhere {
				hits, more, err = r.Find(ctx, q, within, x.Limit, 0)
			}
			switch {
			case err != nil:
				return err
			case x.JSON:
				return writeJSON(cmd, hits)
			case nowhere:
				return x.reportNone(cmd, r, everySession)
			case len(hits) == 0:
				asked := struct {
					store.SearchQuery
					Since string
				}{q, x.Since}
				return note(cmd, "%s in %s\n", document.Sanitize(phrases.Text("nothing found", asked)), r.Name())
			}
			if err = render.Hits(cmd.OutOrStdout(), hits, terminal(cmd)); err == nil && more {
				err = note(cmd, "there is more; --limit %d shows it\n", x.Limit*5)
			}
			return err
		})
	})
}

// extendIndex makes what the search index of a store lacks, for up to a second. A search works without it.
func extendIndex(ctx context.Context, r store.Reader) {
	if indexer, ok := r.(store.SearchIndexer); ok {
		end := time.Now().Add(time.Second)
		_ = indexer.UpdateSearchIndex(ctx, func(int, int) bool { return time.Now().Before(end) })
	}
}

func newStats() *cobra.Command {
	var x struct {
		filters
		By   []string
		JSON bool
	}
	return described("stats", &x, noArguments, func(cmd *cobra.Command, _ []string) (err error) {
		q := store.StatsQuery{Location: time.Local}
		if q.By, err = store.ParseStatsBy(x.By...); err != nil {
			return usagef("--by %w", err)
		}
		return x.reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
			q.Sessions, q.Since, q.Until = x.SessionFilter, x.SessionFilter.Since, x.SessionFilter.Until
			q.Price, x.SessionFilter.Since = r.Price, time.Time{} // which is for what is counted
			if x.Status != "" {
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
			case x.JSON:
				return writeJSON(cmd, s)
			case s.Total.Sessions == 0 && x.any():
				x.SessionFilter.Since = q.Since
				return x.reportNone(cmd, r, everySession)
			case q.By != nil && len(s.Groups) == 0:
				return note(cmd, "nothing to count in %s\n", r.Name())
			}
			return render.Stats(cmd.OutOrStdout(), &s, q.By, p.terminal(cmd))
		})
	})
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
	var x struct {
		Full, JSON, Raw, Diff                                  bool
		Prompt, Tools, Permissions, Tokens, Provenance, Errors bool
	}
	turn := 0
	return described("show", &x, func(cmd *cobra.Command, args []string) (err error) {
		if len(args) == 2 {
			if turn, err = strconv.Atoi(args[1]); err != nil || turn < 1 {
				return usagef("turn %q is not a number from 1", args[1])
			}
			return nil
		}
		return exactly(1, "a session and, optionally, the number of a turn")(cmd, args)
	}, func(cmd *cobra.Command, args []string) error {
		if turn > 0 && x.Raw {
			return usagef("--raw prints the rows of the whole session; leave the turn out, or use --json")
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
			id, err := r.Resolve(ctx, args[0])
			if err != nil {
				return err
			}
			if x.Raw {
				t, err := r.Transcript(ctx, id)
				if err != nil {
					return err
				}
				return writeRows(forJSON(cmd.OutOrStdout()), t)
			}
			var doc, all *document.Document
			if turn == 0 {
				all, err = r.LoadAll(ctx, id)
				doc = all
			} else if doc, err = r.LoadTurns(ctx, id, turn, turn); err == nil {
				doc.Queued = nil
			}
			if err == nil && turn != 0 && x.Diff {
				all, err = changedUntil(ctx, r, id, turn)
			}
			if err == nil {
				err = p.lacking(cmd, doc.UnpricedModels)
			}
			if err != nil {
				return err
			}
			if x.JSON {
				return writeJSON(cmd, doc)
			}
			o := p.terminal(cmd)
			o.Full = x.Full
			changes := func(w io.Writer, _ *document.Document, o render.Options) error {
				return render.Changes(w, all, turn, o)
			}
			out, printed := cmd.OutOrStdout(), false
			for _, view := range []struct {
				on    bool
				print func(io.Writer, *document.Document, render.Options) error
			}{
				{x.Prompt, render.Prompts}, {x.Tools, render.Tools}, {x.Permissions, render.Permissions},
				{x.Tokens, render.Tokens}, {x.Provenance, render.Provenance}, {x.Errors, render.Errors}, {x.Diff, changes},
			} {
				if !view.on {
					continue
				}
				if printed {
					fmt.Fprintln(out)
				}
				if err := view.print(out, doc, o); err != nil {
					return err
				}
				printed = true
			}
			if printed {
				return nil
			}
			return render.Document(out, doc, o)
		})
	})
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
	var x struct{ JSON bool }
	return described("status", &x, exactly(1, "one session"), func(cmd *cobra.Command, args []string) error {
		return withSession(cmd, args[0], func(ctx context.Context, r document.Reader, id string) error {
			st, err := r.LoadStatus(ctx, id)
			switch {
			case err != nil:
				return err
			case x.JSON:
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
}

// diffFormats are what diff writes.
var diffFormats = []string{"text", "html", "json"}

func newDiff() *cobra.Command {
	var x struct {
		document.CompareOptions
		output
		Full, Unified, JSON bool
		Format              string
	}
	return described("diff", &x, exactly(2, "two sessions"), func(cmd *cobra.Command, args []string) error {
		switch {
		case !slices.Contains(diffFormats, x.Format):
			return usagef("--format %q is unknown; use %s", x.Format, either(diffFormats))
		case x.JSON && cmd.Flags().Changed("format") && x.Format != "json":
			return usagef("--json and --format %s exclude each other; use one of them", x.Format)
		case x.JSON:
			x.Format = "json"
		}
		if x.Unified && x.Format != "text" {
			return usagef("--unified is for text; leave it out with --format %s", x.Format)
		}
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			x.source = r.Name()
			var ids [2]string
			for i, name := range args {
				var err error
				if ids[i], err = r.Resolve(ctx, name); err != nil {
					return err
				}
			}
			d, a, b, err := r.Compare(ctx, ids[0], ids[1], x.CompareOptions)
			if err != nil {
				return err
			}
			err = x.write(cmd, x.Output, x.Format == "json", func(w io.Writer) error {
				switch x.Format {
				case "json":
					return document.EncodeJSON(w, "  ", d)
				case "html":
					return render.HTMLDiff(w, d, a, b, document.Words{Full: x.Full, Zone: time.Local})
				}
				t := terminal(cmd)
				t.Full = x.Full
				t.Color = t.Color && (x.Output == "" || x.Output == "-")
				return render.Diff(w, d, t, x.Unified)
			})
			if err == nil && !d.Equal {
				err = errFinding
			}
			return err
		})
	})
}

func newMCP() *cobra.Command {
	var x struct{ Scores bool }
	return described("mcp", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			b := web.Backend{Sessions: r, Author: cmp.Or(os.Getenv(envAuthor), "mcp")}
			if x.Scores {
				b.Change = changer(cmd, r)
			}
			c := mcpCalls{open: make(map[jsonrpc.ID]bool)}
			c.answered.L = &c
			return web.NewMCP(b, cmd.Root().Version, time.Local).Run(ctx,
				&mcp.IOTransport{Reader: c.messages(cmd), Writer: &c})
		})
	})
}

// mcpCalls are what a client asked and has no answer to. The server ends with its input, so that end is withheld until
// all is answered: a script pipes its questions in, and closes the pipe before the first answer.
type mcpCalls struct {
	sync.Mutex
	answered sync.Cond
	open     map[jsonrpc.ID]bool
}

// note notes the messages in a line of the client's or of the server's, which may be a batch, and returns them, and
// the answers to what is none.
func (c *mcpCalls) note(line []byte, client bool) (messages [][]byte, refusals []byte) {
	c.Lock()
	defer c.Unlock()
	var batch []json.RawMessage
	if json.Unmarshal(line, &batch) != nil || len(batch) == 0 {
		batch = []json.RawMessage{line}
	}
	for _, text := range batch {
		message, err := jsonrpc.DecodeMessage(text)
		response, answers := message.(*jsonrpc.Response)
		if err != nil || !json.Valid(text) || answers && response.Result == nil && response.Error == nil {
			refusals = append(refusals, refusal(text)...)
			continue
		}
		messages = append(messages, text)
		switch m := message.(type) {
		case *jsonrpc.Response:
			if !client {
				delete(c.open, m.ID)
			}
		case *jsonrpc.Request:
			switch {
			case !client:
			case m.IsCall():
				c.open[m.ID] = true
			case m.Method == "notifications/cancelled": // nobody waits for that answer
				id, _ := jsonrpc.MakeID(gjson.GetBytes(m.Params, "requestId").Value())
				delete(c.open, id)
			}
		}
	}
	return messages, refusals
}

// refusal is the answer to a text that is no message of JSON-RPC, with the id that it has.
func refusal(text []byte) []byte {
	code, reason, id := jsonrpc.CodeInvalidRequest, "Invalid Request", "null"
	if !json.Valid(text) {
		code, reason = jsonrpc.CodeParseError, "Parse error"
	} else if of := gjson.GetBytes(text, "id"); of.Type == gjson.String || of.Type == gjson.Number {
		id = of.Raw
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`+"\n", id, code, reason)
}

// Write writes what the server sends. Nobody waits for more of it after an error.
func (c *mcpCalls) Write(line []byte) (int, error) {
	n, err := os.Stdout.Write(line)
	c.note(line, false)
	c.Lock()
	defer c.Unlock()
	if err != nil {
		clear(c.open)
	}
	c.answered.Signal()
	return n, err
}

func (c *mcpCalls) Close() error { return os.Stdout.Close() }

// messages is the standard input with a message in each line. At others the server would end: at a batch with
// notifications, or at what a shell's profile prints. So they are answered here.
func (c *mcpCalls) messages(cmd *cobra.Command) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewScanner(cmd.InOrStdin())
		for lines.Buffer(nil, mcp.DefaultMaxLineLength); lines.Scan(); {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			all, refusals := c.note(line, true)
			for _, message := range all {
				_, _ = w.Write(append(message, '\n'))
			}
			_, _ = os.Stdout.Write(refusals) // a client that is gone needs none
		}
		c.Lock()
		for len(c.open) > 0 {
			c.answered.Wait()
		}
		c.Unlock()
		_ = w.CloseWithError(lines.Err())
	}()
	return r
}

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
