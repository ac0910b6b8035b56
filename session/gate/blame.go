package gate

import (
	"cmp"
	"slices"
)

// Culprit is a call that separates runs which went well from others. Its JSON is a stable format.
type Culprit struct {
	Case string `json:"case,omitempty"`
	// Step is the tool, its input or one value of it where that separates the runs, and the outcome if it is not
	// ok; or two tools, as in "read, then edit", where the second one follows the first. Missing reports that the bad
	// runs lack it.
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

// Blame finds the earliest call whose tool, input, outcome or place separates good runs of one task from bad ones, and
// what else separates them as well or nearly, in the order in which a run comes to it. A confidence, such as 0.95, must
// be reached. It is nil if nothing separates them.
//
// A step separates as well as the difference of the shares of runs that have it. Of those within a tenth of the best,
// the one that comes first is the likely cause: what follows from it separates the runs, too.
//
// Many steps are looked at, of which some separate any runs. So the probability that is allowed is divided by the number
// of those that could separate these: steps of the same runs count as one, and those of too few or too many runs do not.
func Blame(good, bad []*Run, confidence float64) []Culprit {
	if len(good) == 0 || len(bad) == 0 {
		return nil
	}
	in, out := support(good, true), support(bad, true)
	var all []Culprit
	apart := func(c *Culprit) float64 {
		d := float64(c.Bad)/float64(c.BadRuns) - float64(c.Good)/float64(c.GoodRuns)
		return max(d, -d)
	}
	runs := slices.Concat(good, bad)
	comparisons := map[string]bool{} // by the runs that have a step, and those that have not
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
		if leastP(c.Good+c.Bad, len(good), len(bad)) > 1-confidence {
			continue
		}
		comparisons[splitOf(runs, a, b)] = true
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
		all = append(all, c)
	}
	all = slices.DeleteFunc(all, func(c Culprit) bool { return c.P*float64(len(comparisons)) > 1-confidence })
	if len(all) == 0 {
		return nil
	}
	best := 0.0
	for i := range all {
		best = max(best, apart(&all[i]))
	}
	const near = 0.9
	all = slices.DeleteFunc(all, func(c Culprit) bool { return apart(&c) < near*best })
	lacks := map[bool]int{true: 1} // what bad runs do says more than what they lack
	slices.SortStableFunc(all, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), -cmp.Compare(apart(&a), apart(&b)),
			cmp.Compare(lacks[a.Missing], lacks[b.Missing]), cmp.Compare(len(a.Step), len(b.Step)))
	})
	return all
}

// leastP is the least probability that a step of so many runs can have, of those that are good and those that are bad.
func leastP(have, good, bad int) float64 {
	inGood, inBad := min(have, good), min(have, bad)
	return min(fisher(inGood, good, have-inGood, bad), fisher(inBad, bad, have-inBad, good))
}

// splitOf names the two groups into which a step splits the runs.
func splitOf(runs []*Run, a, b supported) string {
	has := func(run *Run) bool { return slices.Contains(a.runs, run) || slices.Contains(b.runs, run) }
	split := make([]byte, len(runs))
	for i, run := range runs {
		if has(run) == has(runs[0]) {
			split[i] = 1
		}
	}
	return string(split)
}

const maxEvidence = 5
