package gate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// seed is that of all resampling, so that the same runs give the same figures.
const seed = 20240607

// resamples is how often runs are drawn again.
const resamples = 2000

func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / max(float64(len(all)), 1)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// interval is the 95 % interval of the mean of values by bootstrap, of a fixed seed. One value has none: both ends are
// it.
func interval(all []float64) (low, high float64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(all))))
	means := make([]float64, resamples)
	drawn := make([]float64, len(all))
	for i := range means {
		for k := range drawn {
			drawn[k] = all[r.IntN(len(all))]
		}
		means[i] = mean(drawn)
	}
	slices.Sort(means)
	return means[resamples*25/1000], means[resamples*975/1000-1]
}

// lowest is the least share of successes that n runs with k of them leave possible, with a confidence: the lower end of
// the exact interval of Clopper and Pearson, one-sided.
func lowest(k, n int, confidence float64) float64 {
	low, high := 0.0, 1.0
	for range 60 {
		p := (low + high) / 2
		if tail(k, n, p) < 1-confidence {
			low = p
		} else {
			high = p
		}
	}
	return low
}

// tail is the probability of k or more successes of n, each of probability p.
func tail(k, n int, p float64) (sum float64) {
	for i := k; i <= n; i++ {
		sum += math.Exp(logChoose(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// fisher is the probability, if nothing differs, that of a of n and b of m the second share is as small or smaller:
// Fisher's exact test, one-sided.
func fisher(a, n, b, m int) (p float64) {
	all := a + b
	for i := max(0, all-n); i <= b; i++ {
		p += math.Exp(logChoose(m, i) + logChoose(n, all-i) - logChoose(n+m, all))
	}
	return min(p, 1)
}

// pair are the values of one case, in the baseline and now.
type pair struct{ was, now []float64 }

// spread is how far values are from the mean of their side and case: the squares of the distances, and the degrees of
// freedom, over all cases. Each case has few runs, and all together show how much an agent varies.
//
// least is added as the distance of a run that was not made. A value that never varied in a few runs may all the same:
// the fewer there are, the more this counts.
func spread(pairs []pair, least float64) (squares, freedom float64) {
	squares, freedom = least*least, 1
	for _, p := range pairs {
		for _, side := range [][]float64{p.was, p.now} {
			m := mean(side)
			for _, v := range side {
				squares += (v - m) * (v - m)
			}
			freedom += max(float64(len(side))-1, 0)
		}
	}
	return squares, freedom
}

// exceeds is the probability, if nothing differs, that the mean of now is as far above that of the baseline as it is:
// Student's test with the spread of all cases.
func (p *pair) exceeds(squares, freedom float64) float64 {
	scale := 1/float64(len(p.was)) + 1/float64(len(p.now))
	return student((mean(p.now)-mean(p.was))/math.Sqrt(squares/freedom*scale), freedom)
}

// allExceed is exceeds over all cases together. Where cases have about one run each, their differences show how much
// they vary, and the test is the paired one.
func allExceed(pairs []pair, least float64) float64 {
	squares, freedom := spread(pairs, least)
	n, sum, scale := float64(len(pairs)), 0.0, 0.0
	for _, p := range pairs {
		sum += mean(p.now) - mean(p.was)
		scale += 1/float64(len(p.was)) + 1/float64(len(p.now))
	}
	if freedom <= n {
		squares, freedom, scale = least*least, n, n
		for _, p := range pairs {
			d := mean(p.now) - mean(p.was) - sum/n
			squares += d * d
		}
	}
	return student(sum/math.Sqrt(squares/freedom*scale), freedom)
}

// student is the probability of a value of t or more of Student's distribution: with t = √f tan θ its density is
// proportional to cos θ to the power of f-1, which is summed up by Simpson's rule.
func student(t, freedom float64) float64 {
	area := func(from float64) (sum float64) {
		const pieces = 2000
		step := (math.Pi/2 - from) / pieces
		for i := range pieces + 1 {
			weight := 2.0 + 2*float64(i%2)
			if i == 0 || i == pieces {
				weight = 1
			}
			sum += weight * math.Pow(max(math.Cos(from+float64(i)*step), 0), freedom-1)
		}
		return sum * step / 3
	}
	return area(math.Atan(t/math.Sqrt(freedom))) / (2 * area(0))
}

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
