package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// gateFile is where the assertions are unless the command line names another file.
const gateFile = "agenttrace.gate.yaml"

// gating is one run of gate.
type gating struct {
	filters
	Gate, Experiment, Baseline, Green, Dataset string // Gate is the file
	Sessions, Output                           []string
	Schema, Strict, JSON                       bool

	cmd  *cobra.Command
	gate *gate.Gate
}

func newGate() *cobra.Command {
	var g gating
	return described("gate", &g, nil, func(cmd *cobra.Command, args []string) error {
		g.cmd = cmd
		if g.Schema {
			_, err := cmd.OutOrStdout().Write(gate.Schema())
			return err
		}
		if err := g.check(args); err != nil {
			return err
		}
		return g.run()
	})
}

// check reads the gate's file, and finds what on the command line contradicts itself.
func (g *gating) check(args []string) error {
	for _, arg := range args { // the shell puts all but the first of a pattern's files there
		switch ext := filepath.Ext(arg); {
		case ext != ".yaml" && ext != ".yml":
			g.Sessions = append(g.Sessions, arg)
		case g.Gate != "":
			return usagef("a gate is one file, not %s and %s; put the assertions into one", g.Gate, arg)
		default:
			g.Gate = arg
		}
	}
	if err := g.read(g.cmd); err != nil {
		return err
	}
	for _, path := range g.Output {
		if outputForm(path) == "" {
			return usagef("--output %s: the extension states the form; use .xml (JUnit), .sarif, .md, .json or .txt", path)
		}
	}
	selects := g.given(g.cmd) || g.Experiment != ""
	switch {
	case len(g.Sessions) > 0 && g.given(g.cmd):
		return usagef("--sessions reads files, and filters select from the store; use one of them")
	case len(g.Sessions) == 0 && !selects:
		return usagef("gate does not know which sessions; add --sessions FILE..., --experiment NAME or a filter")
	}
	named := g.Gate != ""
	g.Gate = cmp.Or(g.Gate, gateFile)
	if _, err := os.Stat(g.Gate); !named && errors.Is(err, fs.ErrNotExist) {
		if g.Baseline == "" {
			return usagef("there is no %s here; name a file of assertions, or add --baseline to compare only", gateFile)
		}
		g.gate = &gate.Gate{}
		return nil
	}
	return g.readGate()
}

// readGate reads the gate in the file; none has no assertions.
func (g *gating) readGate() (err error) {
	if g.gate = (&gate.Gate{}); g.Gate == "" {
		return nil
	}
	content, err := os.ReadFile(g.Gate)
	if err != nil {
		return usagef("%w; name a file of assertions, as docs/gate.md describes", err)
	}
	if g.gate, err = gate.Parse(content); err != nil {
		return usagef("%s: %w", g.Gate, err)
	}
	if len(g.gate.Assertions) == 0 && g.Baseline+g.Green == "" {
		return usagef("%s has no assertions; write one, or add --baseline to compare only", g.Gate)
	}
	return nil
}

func outputForm(path string) string {
	return map[string]string{".xml": gate.JUnit, ".sarif": gate.SARIF, ".md": gate.Markdown, ".json": "json",
		".txt": gate.Text}[filepath.Ext(path)]
}

func (g *gating) run() error {
	ctx := g.cmd.Context()
	now, _, err := newReader(g.cmd)
	switch {
	case err != nil:
	case len(g.Sessions) == 0:
		now.Reader, err = openStore(g.cmd)
	default:
		now.Reader, err = readFiles(g.cmd, g.Sessions)
	}
	if err != nil {
		return err
	}
	defer now.Close()
	expected, err := g.expected(ctx, now)
	if err != nil {
		return err
	}
	runs, err := g.runs(ctx, now, g.query(), g.Status, g.Experiment, g.Sessions, expected)
	if err != nil {
		return err
	}
	was, experiment, file := now, g.Baseline, g.Green
	if _, err := os.Stat(experiment); experiment != "" && err == nil {
		experiment, file = "", experiment
	}
	if _, err := os.Stat(file); err != nil {
		file = "" // the first green run makes it
	} else {
		if was.Reader, err = readFiles(g.cmd, []string{file}); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		defer was.Close()
	}
	var old []*gate.Run
	if experiment != "" || file != "" {
		old, err = g.runs(ctx, was, store.SessionQuery{}, "", experiment, document.Present(file), expected)
	}
	if err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	v := g.gate.Judge(runs, old)
	if g.Strict && len(v.Changes) > 0 {
		v.Passed = false
	}
	for _, changes := range [][]gate.Change{v.Regressions, v.Changes, v.Few} {
		for i := range changes {
			if err := diverge(ctx, &changes[i], was, now); err != nil {
				return err
			}
		}
	}
	if err := g.write(v); err != nil {
		return err
	}
	switch {
	case !v.Passed:
		return errFinding
	case g.Green != "":
		return g.keep(now, runs)
	}
	return nil
}

// runs are the runs that a query selects in a store or in the store of some files, at least one.
func (g *gating) runs(ctx context.Context, r document.Reader, q store.SessionQuery, status, experiment string,
	files []string, expected map[string]string) ([]*gate.Run, error) {
	runs, err := g.gate.Runs(ctx, r, q, status, expected, false, document.Present(experiment)...)
	switch {
	case err != nil || len(runs) > 0:
		return runs, err
	case len(files) > 0:
		return nil, noSession(files)
	case experiment != "":
		return nil, g.none(r, experiment)
	}
	return nil, errors.Join(g.reportNone(g.cmd, r, g.query()), errFinding)
}

func noSession(files []string) error {
	return usagef("there is no session in %s; name files that export or an agent has written", strings.Join(files, ", "))
}

// none is the error for an experiment without sessions, or without any that the filters select.
func (g *gating) none(r document.Reader, name string) error {
	all, err := gate.Experiments(g.cmd.Context(), r)
	if err == nil && slices.Contains(all, name) {
		return errors.Join(g.reportNone(g.cmd, r, g.query()), errFinding)
	}
	return cmp.Or(err, usagef("there is no experiment %q; agenttrace experiment lists those that there are", name))
}

// madeStore is a store that is removed when it is closed.
type madeStore struct {
	store.Reader
	dir string
}

func (s madeStore) Close() error { return errors.Join(s.Reader.Close(), os.RemoveAll(s.dir)) }

// readFiles makes a store of the sessions in files of any format.
func readFiles(cmd *cobra.Command, files []string) (_ store.Reader, err error) {
	for _, file := range files { // a name that is none is no directory to be looked through
		if _, err := os.Stat(file); err != nil {
			return nil, usagef("%w", err)
		}
	}
	dir, err := os.MkdirTemp("", "agenttrace-gate-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	path := filepath.Join(dir, "sessions.db")
	warn := func(text string) { _ = note(cmd, "agenttrace: %s\n", document.Line(text)) }
	sum, failed, err := importInto(cmd.Context(), path, importer.Options{Warn: warn}, importer.Inputs(files, nil, nil))
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	} else if sum.Total.Damaged > 0 {
		return nil, errors.New("what is damaged cannot be judged; repair what is named above, or leave its file out")
	}
	r, err := stores.OpenReader(cmd.Context(), path)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noSession(files)
	}
	return madeStore{r, dir}, err
}

// diverge adds to a change where the two runs that show it diverge first.
func diverge(ctx context.Context, ch *gate.Change, was, now document.Reader) error {
	if ch.A == "" || ch.B == "" {
		return nil
	}
	a, err := was.LoadAll(ctx, ch.A)
	if err != nil {
		return err
	}
	b, err := now.LoadAll(ctx, ch.B)
	if err != nil {
		return err
	}
	ch.First = document.Compare(a, b, document.CompareOptions{}).First
	return nil
}

func (g *gating) write(v *gate.Verdict) error {
	for _, path := range g.Output {
		form := outputForm(path)
		err := output{Force: true}.write(g.cmd, path, form == "json", func(w io.Writer) error {
			if form == "json" {
				return document.EncodeJSON(w, "  ", v)
			}
			return v.Write(w, form, g.Gate)
		})
		if err != nil {
			return err
		}
	}
	if g.JSON {
		return writeJSON(g.cmd, v)
	}
	return v.Write(g.cmd.OutOrStdout(), gate.Text, g.Gate)
}

// keep writes the sessions of a green run, the baseline of the next one.
func (g *gating) keep(r document.Reader, runs []*gate.Run) error {
	ids := make([]string, len(runs))
	for i, run := range runs {
		ids[i] = run.SessionID
	}
	return exportTo(g.cmd, r, ids, "jsonl", output{Output: g.Green, Force: true})
}

func newWatch() *cobra.Command {
	var x struct{ Rules, State string }
	return described("watch", &x, noArguments,
		func(cmd *cobra.Command, _ []string) error {
			if x.Rules == "" {
				return usagef("watch needs rules; add --rules FILE, as docs/watch.md describes")
			}
			path, err := ownStore(cmd)
			if err != nil {
				return err
			}
			if x.State == "" {
				if stores.HasEngine(path) {
					return usagef("watch of a database needs --state FILE, which remembers what was found")
				}
				x.State = path + gate.WatchSuffix
			}
			w := gate.Watcher{Store: stores.Follow(path), State: x.State}
			defer w.Store.Close()
			if w.Rules, err = gate.ReadRules(x.Rules); err != nil {
				return usageError{err}
			}
			p, err := readPrices(cmd)
			if err != nil {
				return err
			}
			w.Price = p.Price
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			w.Found = func(rule *gate.Rule, f gate.Fact) {
				if !rule.Does(gate.ActionLog) {
					return
				}
				if err := document.EncodeJSON(forJSON(cmd.OutOrStdout()), "", f); err != nil {
					cancel(err)
				}
			}
			w.Problem = func(err error) { _ = note(cmd, "%s\n", document.Sanitize(fmt.Sprint(err))) }
			if err := w.Run(ctx); err != nil {
				return err
			}
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
}
