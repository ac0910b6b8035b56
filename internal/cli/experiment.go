package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// The commands on sets of sessions besides gate: dataset, experiment and blame.

// expected are what a data set expects of its cases: one of the store, or a file that dataset export wrote.
func (g *gating) expected(ctx context.Context, r document.Reader) (map[string]string, error) {
	if g.set == "" {
		return nil, nil
	}
	var cases []gate.Case
	if f, err := os.Open(g.set); err == nil {
		defer f.Close()
		if cases, err = readCases(f); err != nil {
			return nil, usagef("--dataset %s: %w", g.set, err)
		}
	} else if cases, err = gate.Cases(ctx, r, g.set); err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, usagef("there is no data set %q, and no file of that name; agenttrace dataset ls lists them", g.set)
	}
	all := map[string]string{}
	for _, c := range cases {
		all[c.Case] = c.Expected
	}
	return all, nil
}

func readCases(r io.Reader) (all []gate.Case, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<20)
	for line := 1; s.Scan(); line++ {
		if len(strings.TrimSpace(s.Text())) == 0 {
			continue
		}
		var c gate.Case
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("line %d is no case: %w", line, err)
		}
		if c.Case = cmp.Or(c.Case, gate.CaseOf(c.Input)); c.Input == "" && c.Expected == "" {
			return nil, fmt.Errorf("line %d has neither input nor expected; write {\"case\", \"input\", \"expected\"}", line)
		}
		all = append(all, c)
	}
	return all, s.Err()
}

func newDataset() *cobra.Command {
	cmd := described("dataset", nil, cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("dataset has no command %q; use create, add, rm, ls or export", args[0])
		}
		return cmd.Help()
	})
	cmd.AddCommand(newDatasetAdd("create"), newDatasetAdd("add"), newDatasetRemove(), newDatasetList(), newDatasetExport())
	return cmd
}

// newDatasetAdd is dataset create or dataset add, which differ in whether the set may be there.
func newDatasetAdd(name string) *cobra.Command {
	var x filters
	var turn int
	var of, expected string
	var answers bool
	cmd := described("dataset "+name, flags{"turn": &turn, "case": &of, "expected": &expected, "answers": &answers},
		nil, func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("dataset %s needs the name of the set, and sessions or filters", name)
			}
			selects := x.given(cmd)
			switch {
			case selects == (len(args) > 1):
				return usagef("name sessions after the set, or add filters; one of them")
			case expected != "" && answers:
				return usagef("--expected and --answers exclude each other; use one of them")
			case (turn != 0 || of != "") && (selects || len(args) > 2):
				return usagef("--turn and --case are for one session; name it")
			}
			if err := x.read(cmd); err != nil {
				return err
			}
			return withWriter(cmd, func(ctx context.Context, s store.Service) error {
				r := document.Reader{Reader: s}
				names, _, err := gate.Tagged(ctx, r, gate.TagDataset)
				if is := slices.Contains(names, args[0]); err == nil && is && name == "create" {
					err = usagef("there is a data set %q; dataset add adds to it", args[0])
				} else if err == nil && !is && name == "add" {
					err = usagef("there is no data set %q; dataset create makes it", args[0])
				}
				var ids []string
				if err == nil && selects {
					ids, err = x.ids(ctx, r)
				} else if err == nil {
					ids, err = resolveAll(ctx, s, args[1:])
				}
				if err == nil && len(ids) == 0 {
					return x.reportNone(cmd, r, everySession)
				}
				for _, id := range ids {
					if err == nil {
						err = addCase(ctx, r, args[0], id, turn, of, expected, answers)
					}
				}
				if err != nil {
					return err
				}
				return note(cmd, "%s added to data set %s\n", counted(len(ids), "case"), document.Line(args[0]))
			})
		})
	addFilters(cmd, &x)
	return cmd
}

// addCase makes a session, or a turn of it, a case of a data set. With answers, the last answer is what is expected.
func addCase(ctx context.Context, r document.Reader, set, id string, turn int, of, expected string, answers bool) error {
	doc, err := r.LoadAll(ctx, id)
	if err != nil {
		return err
	}
	last := doc.LastTurn()
	if turn != 0 {
		if last = doc.Turn(turn); last == nil {
			return doc.NoTurn(turn)
		}
	}
	if answers && (last == nil || last.AnswerText() == "") {
		return usagef("session %s has no answer to be expected; give one with --expected", id)
	} else if answers {
		expected = last.AnswerText()
	}
	n := store.Annotation{Kind: store.AnnotationTag, Name: gate.TagDataset + set, Label: of, Comment: expected,
		Author: author()}
	if n.MessageID, _, err = web.AnnotationTarget(ctx, r, id, turn, ""); err != nil {
		return err
	}
	return annotate(ctx, r, id, n)
}

// annotate sets an annotation of a session in the store of a reader, which is one that can be written.
func annotate(ctx context.Context, r document.Reader, id string, n store.Annotation) error {
	to, err := web.NewAnnotator(ctx, r, id, time.Now())
	if err == nil {
		_, err = to.Set(n)
	}
	if err == nil {
		err = r.Reader.(store.Service).Annotate(ctx, to.Changes())
	}
	return err
}

func newDatasetRemove() *cobra.Command {
	return described("dataset rm", nil, nil, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("dataset rm needs the name of a set, and sessions if not all are meant")
		}
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			_, in, err := gate.Tagged(ctx, document.Reader{Reader: s}, gate.TagDataset)
			ids := in[args[0]]
			if err == nil && ids == nil {
				return usagef("there is no data set %q; agenttrace dataset ls lists them", args[0])
			}
			if len(args) > 1 && err == nil {
				ids, err = resolveAll(ctx, s, args[1:])
			}
			for _, id := range ids {
				if err != nil {
					return err
				}
				var stored []store.Annotation
				if stored, err = s.Annotations(ctx, id); err != nil {
					return err
				}
				var to *web.Annotator
				to, err = web.NewAnnotator(ctx, s, id, time.Now())
				for i := range stored {
					if n := &stored[i]; n.Name == gate.TagDataset+args[0] && n.DeletedAt == nil && err == nil {
						err = to.Remove(n.ID)
					}
				}
				if err == nil {
					err = s.Annotate(ctx, to.Changes())
				}
			}
			if err == nil {
				err = note(cmd, "%s taken out of data set %s; the sessions stay\n", counted(len(ids), "session"), document.Line(args[0]))
			}
			return err
		})
	})
}

func newDatasetList() *cobra.Command {
	var asJSON bool
	return described("dataset ls", flags{"json": &asJSON}, between(0, 1, "the name of a set, or nothing"),
		func(cmd *cobra.Command, args []string) error {
			return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
				names, _, err := gate.Tagged(ctx, r, gate.TagDataset)
				if len(args) > 0 && err == nil {
					if !slices.Contains(names, args[0]) {
						return usagef("there is no data set %q; agenttrace dataset ls lists them", args[0])
					}
					names = args
				}
				type set struct {
					Name  string      `json:"name"`
					Cases []gate.Case `json:"cases"`
				}
				all := []set{}
				for _, name := range names {
					var cases []gate.Case
					if err == nil {
						cases, err = gate.Cases(ctx, r, name)
					}
					all = append(all, set{name, cases})
				}
				switch {
				case err != nil:
					return err
				case asJSON:
					return writeJSON(cmd, all)
				case len(all) == 0:
					return note(cmd, "no data sets in %s; agenttrace dataset create makes one\n", r.Name())
				}
				rows, left := [][]string{{"DATA SET", "CASES", "EXPECTED"}}, 1
				if len(args) > 0 {
					rows, left = [][]string{{"CASE", "INPUT", "EXPECTED"}}, 3
				}
				for _, s := range all {
					known := 0
					for _, c := range s.Cases {
						if c.Expected != "" {
							known++
						}
						if len(args) > 0 {
							rows = append(rows, []string{document.OneLine(c.Case), document.OneLine(c.Input),
								document.OneLine(c.Expected)})
						}
					}
					if len(args) == 0 {
						rows = append(rows, []string{document.OneLine(s.Name), fmt.Sprint(len(s.Cases)), fmt.Sprint(known)})
					}
				}
				return render.Table(cmd.OutOrStdout(), left, rows, terminal(cmd))
			})
		})
}

func newDatasetExport() *cobra.Command {
	var out output
	var format string
	return described("dataset export", flags{"format": &format, "output": &out.path, "force": &out.force},
		exactly(1, "the name of a data set"), func(cmd *cobra.Command, args []string) error {
			return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
				cases, err := gate.Cases(ctx, r, args[0])
				if err == nil && len(cases) == 0 {
					err = usagef("there is no data set %q; agenttrace dataset ls lists them", args[0])
				}
				if err != nil {
					return err
				}
				if format == "cases" {
					out.source = r.Name()
					return out.write(cmd, out.path, true, func(w io.Writer) error { return document.EncodeJSON(w, "", cases...) })
				}
				var ids []string
				for _, c := range cases {
					if !slices.Contains(ids, c.SessionID) {
						ids = append(ids, c.SessionID)
					}
				}
				return exportTo(cmd, r, ids, format, out.path, out.force)
			})
		})
}

// exportTo exports sessions as export does with filters: without secrets.
func exportTo(cmd *cobra.Command, r document.Reader, ids []string, format, path string, force bool) error {
	names := formats.Names((*formats.Format).Written)
	e := exporter{cmd: cmd, reader: r, ids: ids, format: formats.Named(format, (*formats.Format).Written), all: true,
		selects: true, out: output{path: path, force: force, source: r.Name()}}
	if e.format == nil {
		return usagef("unknown format %q: use cases, %s", format, either(names))
	}
	if err := e.check(len(ids) > 1); err != nil {
		return err
	}
	return e.run()
}

func newExperiment() *cobra.Command {
	var file, set string
	var asJSON bool
	cmd := described("experiment", flags{"gate": &file, "dataset": &set, "json": &asJSON}, nil,
		func(cmd *cobra.Command, args []string) error {
			g := gating{cmd: cmd, file: file, set: set, gate: &gate.Gate{}}
			if file != "" {
				content, err := os.ReadFile(file)
				if err != nil {
					return usagef("%w", err)
				}
				if g.gate, err = gate.Parse(content); err != nil {
					return usagef("%s: %w", file, err)
				}
			}
			return reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
				known, err := gate.Experiments(ctx, r)
				if err != nil {
					return err
				}
				names := args
				if len(args) == 0 {
					names = known
				}
				expected, err := g.expected(ctx, r)
				if err != nil {
					return err
				}
				var runs []*gate.Run
				for _, name := range names {
					if !slices.Contains(known, name) {
						return g.none(r, name)
					}
					of, err := g.gate.Runs(ctx, r, store.SessionQuery{Limit: -1}, "", name, expected)
					if err != nil {
						return err
					}
					runs = append(runs, of...)
				}
				all := gate.Compare(names, runs)
				switch {
				case asJSON:
					return writeJSON(cmd, all)
				case len(all) == 0:
					return note(cmd, "no experiments in %s; agenttrace run --experiment NAME makes one\n", r.Name())
				}
				err = render.Table(cmd.OutOrStdout(), 1, gate.Rows(all), p.terminal(cmd))
				if err == nil {
					_, err = io.WriteString(cmd.OutOrStdout(), "\n"+strings.Join(gate.Remarks(all), "\n")+"\n")
				}
				return err
			})
		})
	pricesFlag(cmd)
	return cmd
}

func newBlame() *cobra.Command {
	var x filters
	var experiment, of, file string
	var good, bad []string
	var asJSON bool
	cmd := described("blame", flags{"experiment": &experiment, "case": &of, "gate": &file, "good": &good, "bad": &bad,
		"json": &asJSON}, exactly(0, "no arguments"), func(cmd *cobra.Command, _ []string) error {
		if (len(good) == 0) != (len(bad) == 0) {
			return usagef("--good and --bad belong together; give both, or leave it to the status of sessions")
		}
		g := gating{cmd: cmd, gate: &gate.Gate{}}
		if file != "" {
			content, err := os.ReadFile(file)
			if err != nil {
				return usagef("%w", err)
			}
			if g.gate, err = gate.Parse(content); err != nil {
				return usagef("%s: %w", file, err)
			}
		}
		return x.reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			runs, err := g.gate.Runs(ctx, r, func() store.SessionQuery { q := x.query(); q.Limit = -1; return q }(), x.status,
				experiment, nil)
			if err != nil {
				return err
			}
			tags := func(run *gate.Run, names []string) (bool, error) {
				stored, err := r.Annotations(ctx, run.SessionID)
				return slices.ContainsFunc(document.AnnotationsOf(stored), func(n document.Annotation) bool {
					return n.Kind == store.AnnotationTag && slices.Contains(names, n.Name)
				}), err
			}
			cases := map[string][2][]*gate.Run{}
			for _, run := range runs {
				if of != "" && run.Case != of {
					continue
				}
				isGood, isBad := run.Passed && run.Figures["errors"] == 0, !run.Passed || run.Figures["errors"] > 0
				if len(g.gate.Assertions) > 0 {
					isGood, isBad = run.Passed, !run.Passed
				}
				if len(good) > 0 {
					var err2 error
					isGood, err = tags(run, good)
					isBad, err2 = tags(run, bad)
					if err = errors.Join(err, err2); err != nil {
						return err
					}
				}
				both := cases[run.Case]
				if isGood {
					both[0] = append(both[0], run)
				} else if isBad {
					both[1] = append(both[1], run)
				}
				cases[run.Case] = both
			}
			found, wanting := []gate.Culprit{}, []string{}
			for _, name := range slices.Sorted(maps.Keys(cases)) {
				both := cases[name]
				culprits := gate.Blame(both[0], both[1], 0.95)
				if found = append(found, culprits...); len(culprits) == 0 {
					wanting = append(wanting, fmt.Sprintf("%s: %d good and %d bad runs; no call separates them beyond chance",
						document.OneLine(name), len(both[0]), len(both[1])))
				}
			}
			if asJSON {
				return writeJSON(cmd, found)
			}
			if err := printCulprits(cmd.OutOrStdout(), found); err != nil {
				return err
			}
			for _, line := range wanting {
				_ = note(cmd, "%s\n", line)
			}
			if len(runs) == 0 {
				return x.reportNone(cmd, r, x.query())
			}
			return nil
		})
	})
	addFilters(cmd, &x)
	return cmd
}

// printCulprits prints a paragraph for each.
func printCulprits(w io.Writer, all []gate.Culprit) error {
	var b strings.Builder
	for i := range all {
		c := &all[i]
		does := "makes this call"
		if c.Missing {
			does = "lacks this call"
		}
		if i == 0 || c.Case != all[i-1].Case {
			fmt.Fprintf(&b, "%s\n", document.OneLine(c.Case))
		}
		fmt.Fprintf(&b, "  call %d: %s\n", c.Call, document.OneLine(c.Step))
		fmt.Fprintf(&b, "    a bad run %s: %d of %d bad runs have it, %d of %d good ones (p = %.2g)\n", does, c.Bad, c.BadRuns,
			c.Good, c.GoodRuns, c.P)
		for _, e := range c.Evidence {
			turn := ""
			if e.Turn > 0 {
				turn = fmt.Sprintf(" %d", e.Turn)
			}
			fmt.Fprintf(&b, "    agenttrace show %s%s\n", document.Sanitize(e.SessionID), turn)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
