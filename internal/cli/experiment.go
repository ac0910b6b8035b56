package cli

import (
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
	if g.Dataset == "" {
		return nil, nil
	}
	var cases []gate.Case
	if f, err := os.Open(g.Dataset); err == nil {
		defer f.Close()
		if cases, err = readCases(f); err != nil {
			return nil, usagef("--dataset %s: %w", g.Dataset, err)
		}
	} else {
		sets, err := gate.Datasets(ctx, r)
		if err == nil {
			cases, err = gate.Cases(ctx, r, g.Dataset, sets[g.Dataset])
		}
		if err != nil {
			return nil, err
		}
	}
	if len(cases) == 0 {
		return nil, usagef("there is no data set %q, and no file of that name; agenttrace dataset ls lists them", g.Dataset)
	}
	all := map[string]string{}
	for _, c := range cases {
		all[c.Case] = c.Expected
	}
	return all, nil
}

func readCases(r io.Reader) (all []gate.Case, _ error) {
	for d := json.NewDecoder(r); ; {
		var c gate.Case
		switch err := d.Decode(&c); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("case %d: %w", len(all)+1, err)
		case c.Case == "" && c.Input == "" && c.Expected == "":
			return nil, fmt.Errorf("case %d has neither input nor expected; "+
				"write {\"case\", \"input\", \"expected\"}", len(all)+1)
		}
		c.Case = cmp.Or(c.Case, gate.CaseOf(c.Input))
		all = append(all, c)
	}
}

func newDataset() *cobra.Command {
	cmd := described("dataset", nil, onlyCommands, func(cmd *cobra.Command, _ []string) error { return cmd.Help() })
	cmd.AddCommand(newDatasetAdd("create"), newDatasetAdd("add"), newDatasetRemove(), newDatasetList(), newDatasetExport())
	return cmd
}

// datasets returns the sessions in each data set, newest first, of which the names given must be there.
func datasets(ctx context.Context, r document.Reader, names ...string) (map[string][]string, error) {
	sets, err := gate.Datasets(ctx, r)
	for _, name := range names {
		if err == nil && sets[name] == nil {
			err = usagef("there is no data set %q; agenttrace dataset ls lists them", name)
		}
	}
	return sets, err
}

// newCase is what the command line says of cases that are added to a data set.
type newCase struct {
	filters
	Case, Expected string
	Turn           int
	turn           *int // nil if it is not given
	Answers        bool
}

// newDatasetAdd is dataset create or dataset add, which differ in whether the set may be there.
func newDatasetAdd(name string) *cobra.Command {
	var x newCase
	return described("dataset "+name, &x, nil, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("dataset %s needs the name of the set, and sessions or filters", name)
		}
		x.turn = placeOf(cmd, "", nil, &x.Turn).Turn
		selects := x.given(cmd)
		switch {
		case args[0] == "":
			return usagef("the name of the data set is empty; give one")
		case selects == (len(args) > 1):
			return usagef("name sessions after the set, or add filters; one of them")
		case (x.turn != nil || x.Case != "") && (selects || len(args) > 2):
			return usagef("--turn and --case are for one session; name it")
		}
		if err := x.read(cmd); err != nil {
			return err
		}
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			r := document.Reader{Reader: s}
			sets, err := gate.Datasets(ctx, r)
			switch is := sets[args[0]] != nil; {
			case err != nil:
				return err
			case is && name == "create":
				return usagef("there is a data set %q; dataset add adds to it", args[0])
			case !is && name == "add":
				return usagef("there is no data set %q; dataset create makes it", args[0])
			}
			var ids []string
			if selects {
				ids, err = x.ids(ctx, r)
			} else {
				ids, err = resolveAll(ctx, s, args[1:])
			}
			if err == nil && len(ids) == 0 {
				return x.reportNone(cmd, r, everySession)
			}
			for _, id := range ids {
				if err == nil {
					err = x.add(ctx, s, args[0], id)
				}
			}
			if err != nil {
				return err
			}
			return note(cmd, "%s added to data set %s\n", counted(len(ids), "case"), document.Line(args[0]))
		})
	})
}

// add makes a session, or a turn of it, a case of a data set. With answers, the last answer is what is expected.
func (x *newCase) add(ctx context.Context, s store.Service, set, id string) error {
	doc, err := document.Reader{Reader: s}.LoadAll(ctx, id)
	if err != nil {
		return err
	}
	last := doc.LastTurn()
	if x.turn != nil {
		if last = doc.Turn(x.Turn); last == nil {
			return doc.NoTurn(x.Turn)
		}
	}
	expected := x.Expected
	if x.Answers && (last == nil || last.AnswerText() == "") {
		return usagef("session %s has no answer to be expected; give one with --expected", id)
	} else if x.Answers {
		expected = last.AnswerText()
	}
	n := store.Annotation{Kind: store.AnnotationTag, Name: gate.TagDataset + set, Label: x.Case, Comment: expected,
		Author: author()}
	if n.MessageID, _, err = web.AnnotationTarget(ctx, s, id, x.turn, ""); err == nil {
		_, err = web.AddAnnotation(ctx, s, id, n)
	}
	return err
}

func newDatasetRemove() *cobra.Command {
	return described("dataset rm", nil, nil, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("dataset rm needs the name of a set, and sessions if not all are meant")
		}
		return withWriter(cmd, func(ctx context.Context, s store.Service) error {
			sets, err := datasets(ctx, document.Reader{Reader: s}, args[0])
			ids := sets[args[0]]
			if len(args) > 1 && err == nil {
				ids, err = resolveAll(ctx, s, args[1:])
			}
			for _, id := range ids {
				if err == nil {
					err = removeCases(ctx, s, args[0], id)
				}
			}
			if err != nil {
				return err
			}
			return note(cmd, "%s taken out of data set %s; the sessions stay\n", counted(len(ids), "session"),
				document.Line(args[0]))
		})
	})
}

// removeCases takes a session and its turns out of a data set.
func removeCases(ctx context.Context, s store.Service, set, id string) error {
	stored, err := s.Annotations(ctx, id)
	if err != nil {
		return err
	}
	to, err := web.NewAnnotator(ctx, s, id, time.Now())
	for i := range stored {
		if n := &stored[i]; n.Name == gate.TagDataset+set && n.DeletedAt == nil && err == nil {
			err = to.Remove(n.ID)
		}
	}
	if err != nil {
		return err
	}
	return s.Annotate(ctx, to.Changes())
}

func newDatasetList() *cobra.Command {
	type set struct {
		Name  string      `json:"name"`
		Cases []gate.Case `json:"cases"`
	}
	var x struct{ JSON bool }
	return described("dataset ls", &x, between(0, 1, "the name of a set, or nothing"),
		func(cmd *cobra.Command, args []string) error {
			return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
				sets, err := datasets(ctx, r, args...)
				if err != nil {
					return err
				}
				names := args
				if len(names) == 0 {
					names = slices.Sorted(maps.Keys(sets))
				}
				all := []set{}
				for _, name := range names {
					cases, err := gate.Cases(ctx, r, name, sets[name])
					if err != nil {
						return err
					}
					all = append(all, set{name, cases})
				}
				switch {
				case x.JSON:
					return writeJSON(cmd, all)
				case len(all) == 0:
					return note(cmd, "no data sets in %s; agenttrace dataset create makes one\n", r.Name())
				case len(args) > 0:
					rows := [][]string{{"CASE", "INPUT", "EXPECTED"}}
					for _, c := range all[0].Cases {
						rows = append(rows, []string{document.OneLine(c.Case), document.OneLine(c.Input),
							document.OneLine(c.Expected)})
					}
					return printTable(cmd, rows)
				}
				rows := [][]string{{"DATA SET", "CASES", "EXPECTED"}}
				for _, s := range all {
					known := 0
					for _, c := range s.Cases {
						if c.Expected != "" {
							known++
						}
					}
					rows = append(rows, []string{document.OneLine(s.Name), fmt.Sprint(len(s.Cases)), fmt.Sprint(known)})
				}
				return printTable(cmd, rows)
			})
		})
}

func newDatasetExport() *cobra.Command {
	var x struct {
		output
		Format string
	}
	return described("dataset export", &x,
		exactly(1, "the name of a data set"), func(cmd *cobra.Command, args []string) error {
			return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
				sets, err := datasets(ctx, r, args[0])
				if err != nil {
					return err
				}
				ids := sets[args[0]]
				if x.Format != "cases" {
					slices.Reverse(ids) // as they are in the file of cases
					return exportTo(cmd, r, ids, x.Format, x.output)
				}
				cases, err := gate.Cases(ctx, r, args[0], ids)
				if err != nil {
					return err
				}
				x.source = r.Name()
				return x.write(cmd, x.Output, true, func(w io.Writer) error { return document.EncodeJSON(w, "", cases...) })
			})
		})
}

// exportTo exports sessions as export does with filters: without secrets.
func exportTo(cmd *cobra.Command, r document.Reader, ids []string, format string, to output) error {
	to.source = r.Name()
	e := exporter{cmd: cmd, reader: r, ids: ids, format: formats.Named(format, (*formats.Format).Written), All: true,
		selects: true, output: to}
	if e.format == nil {
		return usagef("unknown format %q: use cases, %s", format, either(formats.Names((*formats.Format).Written)))
	}
	if err := e.check(len(ids) > 1); err != nil {
		return err
	}
	return e.run()
}

func newExperiment() *cobra.Command {
	var g gating
	return described("experiment", &g, nil,
		func(cmd *cobra.Command, names []string) error {
			g.cmd = cmd
			if err := g.readGate(); err != nil {
				return err
			}
			return reading(cmd, func(ctx context.Context, r document.Reader, p *prices) error {
				known, err := gate.Experiments(ctx, r)
				if err != nil {
					return err
				}
				if len(names) == 0 {
					names = known
				}
				for _, name := range names {
					if !slices.Contains(known, name) {
						return g.none(r, name)
					}
				}
				expected, err := g.expected(ctx, r)
				if err != nil {
					return err
				}
				all, err := g.gate.Compare(ctx, r, names, expected)
				switch {
				case err != nil:
					return err
				case g.JSON:
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
}

func newBlame() *cobra.Command {
	var g struct {
		gating
		Case      string
		Good, Bad []string
	}
	return described("blame", &g, noArguments, func(cmd *cobra.Command, _ []string) error {
		g.cmd = cmd
		if err := g.readGate(); err != nil {
			return err
		}
		return g.reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
			runs, err := g.gate.Runs(ctx, r, g.query(), g.Status, nil, false, document.Present(g.Experiment)...)
			if err == nil && len(runs) == 0 && g.Experiment != "" {
				err = g.none(r, g.Experiment)
			}
			if err != nil {
				return err
			}
			cases := map[string][2][]*gate.Run{} // good ones and bad ones
			for _, run := range runs {
				if g.Case != "" && run.Case != g.Case {
					continue
				}
				isGood := run.Passed && (len(g.gate.Assertions) > 0 || run.Figures["errors"] == 0)
				isBad := !isGood && !run.Unfinished
				if len(g.Good) > 0 {
					isGood, isBad = run.HasTag(g.Good...), run.HasTag(g.Bad...)
				}
				both := cases[run.Case]
				if isGood {
					both[0] = append(both[0], run)
				} else if isBad {
					both[1] = append(both[1], run)
				}
				cases[run.Case] = both
			}
			found, wanting := []gate.Culprit{}, ""
			for _, name := range slices.Sorted(maps.Keys(cases)) {
				both := cases[name]
				culprits := gate.Blame(both[0], both[1], 0.95)
				if found = append(found, culprits...); len(culprits) == 0 {
					wanting += fmt.Sprintf("%s: %d good and %d bad runs; no call separates them beyond chance\n",
						document.OneLine(name), len(both[0]), len(both[1]))
				}
			}
			switch {
			case g.JSON:
				return writeJSON(cmd, found)
			case len(runs) == 0:
				return g.reportNone(cmd, r, g.query())
			case len(cases) == 0:
				return note(cmd, "no session is a run of the case %q\n", g.Case)
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), phrases.Text("culprits", found)); err != nil {
				return err
			}
			return note(cmd, "%s", wanting)
		})
	})
}
