package gate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Experiment is a set of runs, in figures. Its JSON is a stable format.
type Experiment struct {
	Name  string `json:"name"`
	Runs  int    `json:"runs"`
	Cases int    `json:"cases"`
	// Passed, Figures and Scores are means over the runs that have them, with an interval of 95 %.
	Passed  Estimate            `json:"passed"`
	Figures map[string]Estimate `json:"figures"`
	Scores  map[string]Estimate `json:"scores,omitempty"`
	// Changed are the cases of which the share that passed differs from that in the experiment before in the list.
	Changed []CaseChange `json:"changed_cases,omitempty"`
	// Seed is that of the bootstrap that the intervals are of.
	Seed int `json:"seed"`
}

// Estimate is a mean, with an interval that has it with a probability of 95 %: by bootstrap.
type Estimate struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	Runs int     `json:"runs"`
}

// CaseChange is a case that another share of runs passed than before.
type CaseChange struct {
	Case string  `json:"case"`
	Was  float64 `json:"was"`
	Now  float64 `json:"now"`
}

// Compare reads the runs of experiments, and makes a row for each, in the order of names. Runs pass as the gate says.
func (g *Gate) Compare(ctx context.Context, r document.Reader, names []string, expected map[string]string) (
	[]Experiment, error) {
	if len(names) == 0 {
		return []Experiment{}, nil
	}
	sums := !slices.ContainsFunc(g.Assertions, func(a Assertion) bool { return !a.needsOnlySums() })
	runs, err := g.Runs(ctx, r, store.SessionQuery{}, "", expected, sums, names...)
	if err != nil {
		return nil, err
	}
	all := make([]Experiment, len(names))
	var before map[string][]*Run
	for i, name := range names {
		e := Experiment{Name: name, Figures: map[string]Estimate{}, Scores: map[string]Estimate{}, Seed: seed}
		var of []*Run
		for _, r := range runs {
			if r.Experiment == name {
				of = append(of, r)
			}
		}
		cases := byCase(of)
		e.Runs, e.Cases, e.Passed = len(of), len(cases), estimate(passes(of))
		for _, figure := range figures {
			if v := values(of, figure); len(v) > 0 {
				e.Figures[figure] = estimate(v)
			}
		}
		for _, score := range scoresOf(cases) {
			var v []float64
			for _, r := range of {
				if s, ok := r.Scores[score]; ok {
					v = append(v, s)
				}
			}
			e.Scores[score] = estimate(v)
		}
		for _, of := range slices.Sorted(maps.Keys(cases)) {
			was, now := mean(passes(before[of])), mean(passes(cases[of]))
			if before[of] != nil && was != now {
				e.Changed = append(e.Changed, CaseChange{of, was, now})
			}
		}
		before = cases
		all[i] = e
	}
	return all, nil
}

// passes has 1 for each run that passed, and 0 for the others.
func passes(runs []*Run) []float64 {
	v := make([]float64, len(runs))
	for i, r := range runs {
		if r.Passed {
			v[i] = 1
		}
	}
	return v
}

func estimate(v []float64) Estimate {
	if len(v) == 0 {
		return Estimate{}
	}
	low, high := interval(v)
	return Estimate{mean(v), low, high, len(v)}
}

// columns are the figures of the table of experiments.
var columns = []struct {
	figure, head string
	text         func(float64) string
}{
	{"tokens", "TOKENS", func(v float64) string { return document.Brief(int64(v)) }},
	{"cost_usd", "COST", func(v float64) string { return document.Cost(&v, nil) }},
	{"duration", "TIME", func(v float64) string { return document.Duration(int64(v)) }},
	{"tool_errors", "TOOL ERRORS", func(v float64) string { return fmt.Sprintf("%.1f", v) }},
}

// Rows are experiments as a table: the heads of the columns, and a row for each.
func Rows(all []Experiment) [][]string {
	heads := []string{"EXPERIMENT", "RUNS", "CASES", "PASSED"}
	for _, c := range columns {
		heads = append(heads, c.head)
	}
	known := map[string]bool{}
	for i := range all {
		for name := range all[i].Scores {
			known[name] = true
		}
	}
	scores := slices.Sorted(maps.Keys(known))
	for _, name := range scores {
		heads = append(heads, strings.ToUpper(document.OneLine(name)))
	}
	rows := [][]string{heads}
	for i := range all {
		e := &all[i]
		row := []string{document.OneLine(e.Name), fmt.Sprint(e.Runs), fmt.Sprint(e.Cases), e.Passed.text(percents)}
		for _, c := range columns {
			row = append(row, e.Figures[c.figure].text(c.text))
		}
		for _, name := range scores {
			row = append(row, e.Scores[name].text(func(v float64) string { return fmt.Sprintf("%.3g", v) }))
		}
		rows = append(rows, row)
	}
	return rows
}

// Remarks are lines below the table: what the intervals are, and which cases changed.
func Remarks(all []Experiment) []string {
	lines := []string{fmt.Sprintf("Means, with what has them with a probability of 95 %% (bootstrap, seed %d).", seed)}
	for i := range all {
		for _, c := range all[i].Changed {
			lines = append(lines, fmt.Sprintf("%s: %s passed %s of its runs, %s before", document.OneLine(all[i].Name),
				document.OneLine(c.Case), percents(c.Now), percents(c.Was)))
		}
	}
	return lines
}

func percents(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

// text is the mean with its interval, if it has one.
func (e Estimate) text(of func(float64) string) string {
	switch {
	case e.Runs == 0:
		return "–"
	case of(e.Low) == of(e.High):
		return of(e.Mean)
	}
	return fmt.Sprintf("%s (%s–%s)", of(e.Mean), of(e.Low), of(e.High))
}

// tagged reads the rows of sessions that a query and a status select, and their annotations by their ids.
func tagged(ctx context.Context, r document.Reader, q store.SessionQuery, status string) (rows []session.Session,
	tags map[string][]document.Annotation, err error) {
	if rows, err = r.Select(ctx, q, status); err != nil {
		return nil, nil, err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	stored, err := r.Annotations(ctx, ids...)
	tags = map[string][]document.Annotation{}
	for i := range stored {
		if n := &stored[i]; n.DeletedAt == nil {
			tags[n.SessionID] = append(tags[n.SessionID], document.AnnotationOf(n))
		}
	}
	return rows, tags, err
}

// setsOf are the names of the sets that tags with a prefix make the target a member of, each once.
func setsOf(tags []document.Annotation, prefix string) (names []string) {
	for i := range tags {
		name, ok := strings.CutPrefix(tags[i].Name, prefix)
		if ok && tags[i].Kind == store.AnnotationTag && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// experimentsOf are the experiments that a session is in.
func experimentsOf(row *session.Session, tags []document.Annotation) []string {
	names := setsOf(tags, TagExperiment)
	if name, _ := ExperimentOf(row, nil); name != "" && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return names
}

// Datasets returns the ids of the sessions in each data set of a store, newest first.
func Datasets(ctx context.Context, r document.Reader) (map[string][]string, error) {
	rows, tags, err := tagged(ctx, r, store.SessionQuery{Limit: -1, Children: true, Archived: true}, "")
	in := map[string][]string{}
	for i := range rows {
		for _, name := range setsOf(tags[rows[i].ID], TagDataset) {
			in[name] = append(in[name], rows[i].ID)
		}
	}
	return in, err
}

// Experiments returns the names of the experiments of a store, in the order in which their sessions began.
func Experiments(ctx context.Context, r document.Reader) ([]string, error) {
	rows, tags, err := tagged(ctx, r, store.SessionQuery{Limit: -1, Children: true}, "")
	if err != nil {
		return nil, err
	}
	began := map[string]int64{}
	for i := range rows {
		for _, name := range experimentsOf(&rows[i], tags[rows[i].ID]) {
			if before, known := began[name]; !known || rows[i].CreatedAt < before {
				began[name] = rows[i].CreatedAt
			}
		}
	}
	return slices.SortedFunc(maps.Keys(began), func(a, b string) int {
		return cmp.Or(cmp.Compare(began[a], began[b]), strings.Compare(a, b))
	}), nil
}

// Case is a case of a data set, and a line of its file. Its JSON is a stable format.
type Case struct {
	Case     string `json:"case"`
	Input    string `json:"input"`
	Expected string `json:"expected,omitempty"`
	// SessionID and Turn are what the case was made of; the turn is 0 where it is the whole session.
	SessionID string `json:"session_id,omitempty"`
	Turn      int    `json:"turn,omitempty"`
}

// Cases returns the cases of a data set, of which the sessions are given as [Datasets] does: the oldest first.
func Cases(ctx context.Context, r document.Reader, set string, sessions []string) (all []Case, err error) {
	for _, id := range slices.Backward(sessions) {
		doc, err := r.LoadAll(ctx, id)
		if err != nil {
			return nil, err
		}
		stored, err := r.Annotations(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, n := range document.AnnotationsOf(stored) {
			if n.Name != TagDataset+set || n.Kind != store.AnnotationTag {
				continue
			}
			c := Case{Case: n.Label, Expected: n.Comment, SessionID: id}
			for _, t := range doc.Turns {
				question := t.Question()
				if n.MessageID != "" && (question == nil || question.ID != n.MessageID) {
					continue
				}
				if c.Input = t.UserText(); n.MessageID != "" {
					c.Turn = t.Number
				}
				if c.Input != "" {
					break
				}
			}
			c.Case = cmp.Or(c.Case, CaseOf(c.Input))
			all = append(all, c)
		}
	}
	return all, nil
}

// Runs returns the runs of the sessions that a query and a status select. If experiments are named, they are the runs
// of these: of a session that is in several of them, a run for each. A sub-agent's session is in an experiment if it
// was made a part of it.
//
// With sums, documents have the sums alone: see [document.Reader.Each].
func (g *Gate) Runs(ctx context.Context, r document.Reader, q store.SessionQuery, status string,
	expected map[string]string, sums bool, experiments ...string) (runs []*Run, err error) {
	finder, err := redact.New(redact.Config{})
	if err != nil {
		return nil, err
	}
	q.Limit, q.Children = -1, q.Children || len(experiments) > 0
	rows, tags, err := tagged(ctx, r, q, status)
	if err != nil {
		return nil, err
	}
	var ids []string
	chosen := map[string]*session.Session{}
	in := map[string][]string{} // the experiments of each, among those that are named
	for i := range rows {
		row := &rows[i]
		member := experimentsOf(row, tags[row.ID])
		of := slices.DeleteFunc(slices.Clone(experiments), func(name string) bool { return !slices.Contains(member, name) })
		if len(experiments) == 0 || len(of) > 0 {
			ids, chosen[row.ID], in[row.ID] = append(ids, row.ID), row, of
		}
	}
	for doc, err := range r.Each(ctx, ids, sums) {
		if err != nil {
			return nil, err
		}
		id := doc.Session.ID
		run := g.Look(chosen[id], doc, tags[id], expected, finder)
		if len(experiments) == 0 {
			runs = append(runs, run)
		}
		for _, name := range in[id] {
			of := *run
			of.Experiment = name
			runs = append(runs, &of)
		}
	}
	return runs, nil
}
