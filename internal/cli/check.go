package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonfile"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
)

func (p *program) check() *cobra.Command {
	var rules, asJSON bool
	c := &cobra.Command{
		Use:   "check [FILE | ID]...",
		Short: "Check that sessions are sound",
		Long: `Check that sessions are sound, by rules that know nothing of how they were made. A
FILE is a store or an export in JSON lines or JSON; an ID names a session of the
store. Without arguments the whole store is checked. A name that is a file is
taken as one.

Violations are printed one per line, and the exit status is then 1. With --json
each is an object: source, session_id, rule, where and detail.`,
		Example: `  agenttrace check
  agenttrace check last session.jsonl other/sessions.db
  agenttrace check --rules`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			ids, _ := p.completeIDs(cmd, args, toComplete)
			return ids, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if rules {
				if len(args) > 0 {
					return usageError("--rules checks nothing", "leave out the names")
				}
				return p.rules(asJSON)
			}
			k := checker{program: p, json: asJSON}
			if len(args) == 0 {
				path, err := p.path()
				if err != nil {
					return err
				}
				args = []string{path}
				if _, err := os.Stat(path); err != nil {
					_, err := p.reader(cmd.Context()) // the store words what is wrong
					return err
				}
			}
			for _, name := range args {
				if err := k.check(cmd.Context(), name); err != nil {
					return err
				}
			}
			return k.end()
		},
	}
	c.Flags().BoolVar(&rules, "rules", false, "list the rules")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one violation or rule per line")
	return c
}

func (p *program) rules(asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(p.rows())
		e.SetEscapeHTML(false)
		for _, r := range session.Rules() {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, r := range session.Rules() {
		fmt.Fprintf(w, "%s\t%s\n", r.Rule, r.Doc)
	}
	return w.Flush()
}

// checker counts what it finds.
type checker struct {
	*program
	json                 bool
	sessions, violations int
}

// finding is a line of check --json.
type finding struct {
	Source    string `json:"source"`
	SessionID string `json:"session_id"`
	session.Violation
}

func (k *checker) check(ctx context.Context, name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return k.with(ctx, func(r store.Reader) error {
			id, err := r.Resolve(ctx, name)
			if err != nil {
				return err
			}
			t, err := r.Transcript(ctx, id)
			if err != nil {
				return err
			}
			return k.session(name, t)
		})
	}
	if info.IsDir() {
		return &failure{fmt.Errorf("check %s: it is a directory", name), ExitUnreadable, "name the files in it"}
	}
	for t, err := range k.sessionsIn(ctx, name) {
		if err != nil {
			return err
		}
		if err := k.session(name, t); err != nil {
			return err
		}
	}
	return nil
}

// sessionsIn reads a file of any format that is known.
func (k *checker) sessionsIn(ctx context.Context, path string) iter.Seq2[*session.Transcript, error] {
	return func(yield func(*session.Transcript, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(nil, &failure{fmt.Errorf("check %s: %w", path, err), ExitUnreadable, ""})
			return
		}
		defer f.Close()
		b := bufio.NewReaderSize(f, 64<<10)
		head, _ := b.Peek(512) // a shorter file has less
		unreadable := func(err error) error {
			return &failure{fmt.Errorf("check %s: %w", path, err), ExitUnreadable, "it should be a store, or an export in JSON lines or JSON"}
		}
		switch {
		case bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
			k.inStore(ctx, path, yield)
		case isLines(head):
			for t, err := range jsonl.Decode(b) {
				if err != nil {
					err = unreadable(err)
				}
				if !yield(t, err) {
					return
				}
			}
		default:
			t, err := jsonfile.Decode(b)
			if err != nil {
				err = unreadable(err)
			}
			yield(t, err)
		}
	}
}

// isLines tells JSON lines from a JSON file: the first key of a line is its
// type, that of a file is not.
func isLines(head []byte) bool {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(bytes.TrimSpace(head), []byte("\xef\xbb\xbf"))))
	first, _ := d.Token()
	key, _ := d.Token()
	return first == json.Delim('{') && (key == "type" || key == "data")
}

func (k *checker) inStore(ctx context.Context, path string, yield func(*session.Transcript, error) bool) {
	r, err := k.open(ctx, path)
	if err != nil {
		yield(nil, storeError(err))
		return
	}
	defer r.Close()
	for s, err := range r.Sessions(ctx, store.SessionQuery{Children: true, Archived: true, Limit: -1}) {
		if err != nil {
			yield(nil, err)
			return
		}
		t, err := r.Transcript(ctx, s.ID)
		if !yield(t, err) || err != nil {
			return
		}
	}
}

func (k *checker) session(source string, t *session.Transcript) error {
	k.sessions++
	for _, v := range session.Check(t) {
		k.violations++
		if k.json {
			b, err := json.Marshal(finding{source, t.Session.ID, v})
			if err != nil {
				return fmt.Errorf("print violation: %w", err)
			}
			if _, err := fmt.Fprintf(k.rows(), "%s\n", b); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(k.stdout, "%s: %s\n", source, strings.ReplaceAll(inspect.Sanitize(v.String()), "\n", " ")); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) end() error {
	noun := "sessions"
	if k.sessions == 1 {
		noun = "session"
	}
	if k.violations == 0 {
		fmt.Fprintf(k.stderr, "%d %s, no violations\n", k.sessions, noun)
		return nil
	}
	fmt.Fprintf(k.stderr, "%d %s, %d violations; agenttrace check --rules explains\n", k.sessions, noun, k.violations)
	return errFinding
}
