package gate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Experiment is a set of runs, in figures. Its JSON is a stable format.
type Experiment struct {
	Name string `json:"name"`
	Runs int    `json:"runs"`
	// Unfinished are the runs that have not ended, which Passed and Changed leave out.
	Unfinished int `json:"unfinished,omitempty"`
	Cases      int `json:"cases"`
	// Passed, Figures and Scores are means over the runs that have them, with an interval of 95 %. What is estimated of
	// costs is beside cost_usd, as estimated_cost_usd.
	Passed  Estimate            `json:"passed"`
	Figures map[string]Estimate `json:"figures"`
	Scores  map[string]Estimate `json:"scores,omitempty"`
	// Changed are the cases of which the share that passed differs from that in the experiment before in the list.
	Changed []CaseChange `json:"changed_cases,omitempty"`
	// Seed is that of the bootstrap that the intervals are of.
	Seed int `json:"seed"`

	cost Estimate // with what is estimated of it
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
		e.Unfinished = e.Runs - e.Passed.Runs
		e.cost = estimate(values(of, "cost_usd"))
		for _, name := range append(Figures(), figureEstimated) {
			if v := known(of, name, func(r *Run) map[string]float64 { return r.Figures }); len(v) > 0 {
				e.Figures[name] = estimate(v)
			}
		}
		for _, name := range scoresOf(cases) {
			e.Scores[name] = estimate(known(of, name, func(r *Run) map[string]float64 { return r.Scores }))
		}
		for _, of := range slices.Sorted(maps.Keys(cases)) {
			was, now := passes(before[of]), passes(cases[of])
			if len(was) > 0 && len(now) > 0 && mean(was) != mean(now) {
				e.Changed = append(e.Changed, CaseChange{of, mean(was), mean(now)})
			}
		}
		before = cases
		all[i] = e
	}
	return all, nil
}

// known are the values of a name, of the runs that have one.
func known(runs []*Run, name string, in func(*Run) map[string]float64) (all []float64) {
	for _, r := range runs {
		if v, ok := in(r)[name]; ok {
			all = append(all, v)
		}
	}
	return all
}

// passes has 1 for each run that passed, and 0 for the others that have ended.
func passes(runs []*Run) []float64 {
	ended := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return r.Unfinished })
	return ones(ended, func(r *Run) bool { return r.Passed })
}

// ones has 1 for each run that is so, and 0 for the others.
func ones(runs []*Run, is func(*Run) bool) []float64 {
	v := make([]float64, len(runs))
	for i, r := range runs {
		if is(r) {
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
	{"cost_usd", "COST", document.Dollars},
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
		runs := fmt.Sprint(e.Runs)
		if e.Unfinished > 0 {
			runs += fmt.Sprintf(" (%d unfinished)", e.Unfinished)
		}
		row := []string{document.OneLine(e.Name), runs, fmt.Sprint(e.Cases), e.Passed.text(percents)}
		for _, c := range columns {
			cell := e.Figures[c.figure].text(c.text)
			if _, estimated := e.Figures[figureEstimated]; estimated && c.figure == "cost_usd" {
				cell = mark[estimated] + e.cost.text(c.text)
			}
			row = append(row, cell)
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
	stored, err := r.Annotations(ctx, session.IDs(rows)...)
	return rows, document.AnnotationsBySession(stored), err
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
		row, err := r.Session(ctx, id)
		if err != nil {
			return nil, err
		}
		tags := document.AnnotationsOf(stored)
		for _, n := range tags {
			if n.Name != TagDataset+set || n.Kind != store.AnnotationTag {
				continue
			}
			c := Case{Case: n.Label, Expected: n.Comment, SessionID: id}
			if _, ran := ExperimentOf(&row, tags); n.MessageID == "" {
				c.Case = cmp.Or(c.Case, ran)
			}
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
	// Step is the tool, its input or one value of it where that separates the runs, and the outcome; or two tools, as in
	// "read, then edit", where the second one follows the first. Missing reports that the bad runs lack it.
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
	all = session.SortedRows(all, func(a, b *Culprit) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), -cmp.Compare(apart(a), apart(b)),
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
	has := func(run *Run) bool { return a.has(run) || b.has(run) }
	split := make([]byte, len(runs))
	for i, run := range runs {
		if has(run) == has(runs[0]) {
			split[i] = 1
		}
	}
	return string(split)
}

const maxEvidence = 5
