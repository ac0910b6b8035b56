package gate

import (
	"maps"
	"slices"
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

// Compare makes a row for each experiment, in the order of names.
func Compare(names []string, runs []*Run) []Experiment {
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
		e.Runs, e.Cases, e.Passed = len(of), len(cases), share(of)
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
			if was, now := share(before[of]), share(cases[of]); before[of] != nil && was.Mean != now.Mean {
				e.Changed = append(e.Changed, CaseChange{of, was.Mean, now.Mean})
			}
		}
		before = cases
		all[i] = e
	}
	return all
}

func share(runs []*Run) Estimate {
	v := make([]float64, len(runs))
	for i, r := range runs {
		if r.Passed {
			v[i] = 1
		}
	}
	return estimate(v)
}

func estimate(v []float64) Estimate {
	if len(v) == 0 {
		return Estimate{}
	}
	low, high := interval(v)
	return Estimate{mean(v), low, high, len(v)}
}
