package gate

import (
	"cmp"
	"slices"
)

// Culprit is a call that separates runs which went well from others. Its JSON is a stable format.
type Culprit struct {
	Case string `json:"case,omitempty"`
	// Step is the tool, its input where that is what tells the runs apart, and the outcome if it is not ok. Missing
	// reports that the bad runs lack it.
	Step    string `json:"step"`
	Missing bool   `json:"missing,omitempty"`
	// Good of GoodRuns have the step, and Bad of BadRuns. P is the probability of such a difference by chance.
	Good     int     `json:"good"`
	GoodRuns int     `json:"good_runs"`
	Bad      int     `json:"bad"`
	BadRuns  int     `json:"bad_runs"`
	P        float64 `json:"p"`
	// Call is the place of the step among the calls of a run, from 1: the median.
	Call int `json:"call"`
	// Evidence are runs that show it: of the bad ones those with the step, or those that lack it, up to five.
	Evidence []Evidence `json:"evidence"`
}

// Evidence names a turn of a session; the turn is 0 where it is about what the session lacks.
type Evidence struct {
	SessionID string `json:"session_id"`
	Turn      int    `json:"turn,omitempty"`
}

// Blame finds the earliest call whose tool, input and outcome separate good runs of one task from bad ones, and what
// else separates them as well or nearly, in the order in which a run comes to it. A confidence, such as 0.95, must be
// reached. It is nil if nothing separates them.
//
// A step separates as well as the difference of the shares of runs that have it. Of those within a tenth of the best,
// the one that comes first is the likely cause: what follows from it separates the runs, too.
func Blame(good, bad []*Run, confidence float64) []Culprit {
	if len(good) == 0 || len(bad) == 0 {
		return nil
	}
	in, out := support(good), support(bad)
	var all []Culprit
	best := 0.0
	apart := func(c *Culprit) float64 {
		d := float64(c.Bad)/float64(c.BadRuns) - float64(c.Good)/float64(c.GoodRuns)
		return max(d, -d)
	}
	for _, f := range unite(in, out) {
		a, b := in[f], out[f]
		c := Culprit{Case: bad[0].Case, Step: f.text, Good: len(a.runs), GoodRuns: len(good), Bad: len(b.runs),
			BadRuns: len(bad)}
		first := b.first()
		if c.Missing = c.Bad*c.GoodRuns < c.Good*c.BadRuns; c.Missing {
			first = a.first()
			c.P = fisher(c.Good, c.GoodRuns, c.Bad, c.BadRuns)
		} else {
			c.P = fisher(c.Bad, c.BadRuns, c.Good, c.GoodRuns)
		}
		if c.P > 1-confidence {
			continue
		}
		c.Call = int(first) + 1
		for _, run := range bad {
			switch i := slices.Index(b.runs, run); {
			case len(c.Evidence) == maxEvidence || (i >= 0) == c.Missing:
			case c.Missing:
				c.Evidence = append(c.Evidence, Evidence{SessionID: run.SessionID})
			default:
				c.Evidence = append(c.Evidence, Evidence{run.SessionID, run.steps[int(b.at[i])].turn})
			}
		}
		best = max(best, apart(&c))
		all = append(all, c)
	}
	const near = 0.9
	all = slices.DeleteFunc(all, func(c Culprit) bool { return apart(&c) < near*best })
	slices.SortStableFunc(all, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), -cmp.Compare(apart(&a), apart(&b)), cmp.Compare(len(a.Step), len(b.Step)))
	})
	return all
}

const maxEvidence = 5
