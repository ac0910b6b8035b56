package gate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
