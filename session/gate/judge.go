package gate

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/template"

	"github.com/agenttrace/agenttrace/session/document"
)

// Verdict is what a gate comes to. Its JSON is a stable format: keys are added, never renamed.
type Verdict struct {
	// Passed reports that each assertion holds and nothing regressed.
	Passed bool `json:"passed"`
	// Runs are the sessions that were judged, and Baseline the number of those that they are compared with.
	Runs     []*Run `json:"runs"`
	Baseline int    `json:"baseline_runs,omitempty"`
	// Assertions are in the order of the file.
	Assertions []Result `json:"assertions"`
	// Regressions are worse than the baseline, beyond chance; Changes differ from it beyond chance, or are better.
	Regressions []Change `json:"regressions,omitempty"`
	Changes     []Change `json:"changes,omitempty"`
	// Missing are cases of the baseline that have no run now, and New those of now that the baseline lacks: neither is
	// compared.
	Missing []string `json:"missing_cases,omitempty"`
	New     []string `json:"new_cases,omitempty"`
	// Few are cases that differ and have too few runs to tell that from chance.
	Few []Change `json:"too_few_runs,omitempty"`
	// Alpha is the probability below which a difference counts.
	Alpha float64 `json:"alpha,omitempty"`
}

// Result is what an assertion came to.
type Result struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	// Held of Runs runs; the share that must hold, and what is sure at least where a confidence is asked for.
	Held   int      `json:"held"`
	Runs   int      `json:"runs"`
	Share  float64  `json:"share"`
	Sure   *float64 `json:"sure,omitempty"`
	Failed []Failed `json:"failed,omitempty"`
}

// Failed is a run for which an assertion does not hold.
type Failed struct {
	SessionID string `json:"session_id"`
	Case      string `json:"case"`
	Failure
}

// Change is what differs between the runs of a case, or of all cases, and those of the baseline.
type Change struct {
	// Case is empty where it is about all cases.
	Case string `json:"case,omitempty"`
	// What is passed, steps, the name of a figure, or "score " and its name. Step is the call that it is about.
	What string `json:"what"`
	Step string `json:"step,omitempty"`
	// Was and Now are the medians, or of what is true or false the shares.
	Was float64 `json:"was"`
	Now float64 `json:"now"`
	// Estimated reports that there are estimates in them.
	Estimated bool `json:"estimated,omitempty"`
	// P is the probability of a difference as large, or larger, if nothing had changed; Before and After are the runs.
	P      float64 `json:"p"`
	Before int     `json:"baseline_runs"`
	After  int     `json:"runs"`
	// A and B are a run of the baseline and one of now that show it. First is where they diverge first, without noise:
	// who has the sessions adds it.
	A     string               `json:"baseline_session,omitempty"`
	B     string               `json:"session,omitempty"`
	First *document.Divergence `json:"first_divergence,omitempty"`

	worse bool
}

// Judge decides about runs. was are those of a baseline; nil compares nothing.
func (g *Gate) Judge(runs, was []*Run) *Verdict {
	v := &Verdict{Passed: true, Runs: runs, Baseline: len(was), Assertions: []Result{}}
	for i := range g.Assertions {
		a := &g.Assertions[i]
		r := Result{Name: a.Name, Share: a.Share}
		for _, run := range runs {
			if !a.isAbout(run) {
				continue
			}
			r.Runs++
			if f, failed := run.Failures[i]; failed {
				r.Failed = append(r.Failed, Failed{run.SessionID, run.Case, f})
			}
		}
		r.Held = r.Runs - len(r.Failed)
		share := float64(r.Held) / max(float64(r.Runs), 1)
		if r.Passed = r.Runs > 0 && share >= a.Share; a.Confidence > 0 && r.Runs > 0 {
			r.Sure = new(lowest(r.Held, r.Runs, a.Confidence))
			r.Passed = *r.Sure >= a.Share
		}
		v.Passed = v.Passed && r.Passed
		v.Assertions = append(v.Assertions, r)
	}
	if was != nil {
		g.compare(v, byCase(was), byCase(runs))
	}
	v.Passed = v.Passed && len(v.Regressions) == 0
	return v
}

func byCase(runs []*Run) map[string][]*Run {
	all := map[string][]*Run{}
	for _, r := range runs {
		all[r.Case] = append(all[r.Case], r)
	}
	return all
}

// comparison collects what differs.
type comparison struct {
	*Verdict
	tolerance float64
	cases     []string
	was, now  map[string][]*Run
}

// compare adds what differs to a verdict. The probability that is allowed is divided by the number of comparisons
// (Bonferroni): an unchanged agent must stay green also if a gate runs every day.
func (g *Gate) compare(v *Verdict, was, now map[string][]*Run) {
	c := comparison{Verdict: v, tolerance: defaultTolerance, was: was, now: now}
	if g.Baseline.Tolerance != nil {
		c.tolerance = *g.Baseline.Tolerance
	}
	v.Alpha = 1 - cmp.Or(g.Baseline.Confidence, defaultConfidence)
	only := func(in, lacking map[string][]*Run) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(in)), func(name string) bool { return lacking[name] != nil })
	}
	v.New, v.Missing = only(now, was), only(was, now)
	c.cases = slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(name string) bool { return was[name] == nil })
	names := append([]string{"passed"}, figures...)
	for _, name := range scoresOf(now, was) {
		names = append(names, "score "+name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(g.Baseline.Ignore, name) })
	for _, name := range names {
		c.figure(name, len(names))
	}
	if !slices.Contains(g.Baseline.Ignore, figureSteps) {
		c.steps()
	}
}

// scoresOf are the names of the scores that runs have.
func scoresOf(sets ...map[string][]*Run) []string {
	names := map[string]bool{}
	for _, set := range sets {
		for _, r := range slices.Concat(slices.Collect(maps.Values(set))...) {
			for name := range r.Scores {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// value is a figure of a run in the direction in which more is worse.
func (run *Run) value(name string) (v float64, known bool) {
	if name == "passed" {
		if run.Passed {
			return -1, true
		}
		return 0, !run.Unfinished
	}
	if score, ok := strings.CutPrefix(name, "score "); ok {
		v, known = run.Scores[score]
		return -v, known
	}
	v, known, _ = run.figure(name)
	return v, known
}

func values(runs []*Run, name string) (all []float64) {
	for _, r := range runs {
		if v, known := r.value(name); known {
			all = append(all, v)
		}
	}
	return all
}

// figure compares a figure, which is one of so many, by case and over all cases.
func (c *comparison) figure(name string, figures int) {
	least := leastCount
	if isRatio(name) || strings.HasPrefix(name, "score ") {
		least = leastRatio
	}
	var pairs, scaled []pair
	var changes []Change
	for _, of := range c.cases {
		p := pair{values(c.was[of], name), values(c.now[of], name)}
		if len(p.was) == 0 || len(p.now) == 0 {
			continue
		}
		ch := Change{Case: of, What: name, Before: len(p.was), After: len(p.now)}
		for _, run := range slices.Concat(c.was[of], c.now[of]) {
			_, _, estimated := run.figure(name)
			ch.Estimated = ch.Estimated || estimated
		}
		changes, pairs = append(changes, ch), append(pairs, p)
		if isRatio(name) {
			p = pair{logs(p.was), logs(p.now)}
		}
		scaled = append(scaled, p)
	}
	squares, freedom := spread(scaled, least)
	var worst *Change
	found := false
	for i := range changes {
		ch, p := &changes[i], scaled[i]
		if !c.differs(ch, pairs[i].was, pairs[i].now) {
			continue
		}
		if !ch.worse {
			p = pair{p.now, p.was}
		}
		ch.P = p.exceeds(squares, freedom)
		ch.A, ch.B = c.example(ch.Case, name, ch)
		found = c.decide(*ch, len(c.cases)*figures) && ch.worse || found
		if ch.worse && (worst == nil || ch.P < worst.P) {
			worst = ch
		}
	}
	if len(pairs) < 2 || found || worst == nil {
		return
	}
	all := Change{What: name, A: worst.A, B: worst.B}
	var was, now []float64
	for i, p := range pairs {
		was, now = append(was, mean(p.was)), append(now, mean(p.now))
		all.Before, all.After = all.Before+changes[i].Before, all.After+changes[i].After
		all.Estimated = all.Estimated || changes[i].Estimated
	}
	if c.differs(&all, []float64{mean(was)}, []float64{mean(now)}) && all.worse {
		all.P = allExceed(scaled, least)
		c.decide(all, figures)
	}
}

// The distances of the run that [spread] adds: in counts, shares and what is passed, and in ratios and scores.
const (
	leastCount = 0.7
	leastRatio = 0.1
)

// isRatio reports whether differences of the figure are given as a ratio.
func isRatio(name string) bool { return isFigure(name) && !isCount(name) }

func logs(all []float64) []float64 {
	l := make([]float64, len(all))
	for i, v := range all {
		l[i] = math.Log(max(v, 1e-9))
	}
	return l
}

// decide adds a change where it belongs, of which the probability is allowed to be its part of so many comparisons, and
// reports whether it is beyond chance.
func (c *comparison) decide(ch Change, comparisons int) (certain bool) {
	switch certain = ch.P <= c.Alpha/float64(comparisons); {
	case certain && ch.worse:
		c.Regressions = append(c.Regressions, ch)
	case certain:
		c.Changes = append(c.Changes, ch)
	case ch.worse && ch.P <= suspicious:
		c.Few = append(c.Few, ch)
	}
	return certain
}

// suspicious is the probability from which on a difference is not worth a line.
const suspicious = 0.1

// differs sets what a figure was and is, and reports whether that is more than the tolerance.
func (c *comparison) differs(ch *Change, was, now []float64) bool {
	of := median
	if ch.What == "passed" || isCount(ch.What) {
		of = mean
	}
	a, b := of(was), of(now)
	ch.worse = b > a
	if ch.Was, ch.Now = a, b; ch.What == "passed" || strings.HasPrefix(ch.What, "score ") {
		ch.Was, ch.Now = -a, -b
	}
	least := c.tolerance * math.Abs(a)
	if ch.What == "passed" || isCount(ch.What) {
		least = max(least, c.tolerance)
	}
	return math.Abs(b-a) > least
}

// isCount reports whether the figure is a small whole number, of which a median says little.
func isCount(name string) bool { return name == "errors" || name == "tool_errors" || name == "denied" }

// example are a run of the baseline and one of now that are furthest apart in what changed.
func (c *comparison) example(of, name string, ch *Change) (a, b string) {
	by := func(x, y *Run) int {
		vx, _ := x.value(name)
		vy, _ := y.value(name)
		return cmp.Compare(vx, vy)
	}
	was, now := c.was[of], c.now[of]
	if ch.worse {
		return slices.MinFunc(was, by).SessionID, slices.MaxFunc(now, by).SessionID
	}
	return slices.MaxFunc(was, by).SessionID, slices.MinFunc(now, by).SessionID
}

// feature is one thing that runs have or have not: a step, in as much detail as separates runs.
type feature struct {
	text string
	// failed reports that it is a step that did not succeed.
	failed bool
}

// features are those of a run, with the place of the first step that has each. In detail, they are also the single
// values of inputs, as one value may matter beside others that differ from run to run, and which tool follows which.
func (run *Run) features(detailed bool) map[feature]int {
	all := map[feature]int{}
	add := func(f feature, at int) {
		if _, ok := all[f]; !ok {
			all[f] = at
		}
	}
	for i, s := range run.steps {
		tool := cmp.Or(s.tool, document.Unnamed)
		failed, end := s.outcome != document.OutcomeOK, " "+s.outcome
		add(feature{tool + end, failed}, i)
		if line := document.OneLine(document.Head(s.shape, maxValue)); line != "" {
			add(feature{tool + " " + line + end, failed}, i)
		}
		if !detailed {
			continue
		}
		for value := range strings.Lines(s.values) {
			add(feature{tool + " " + strings.TrimSuffix(value, "\n") + end, failed}, i)
		}
		if i > 0 {
			add(feature{cmp.Or(run.steps[i-1].tool, document.Unnamed) + ", then " + tool, false}, i)
		}
	}
	return all
}

// compared is a feature of the runs of a case.
type compared struct {
	feature
	was, now supported
	shares   pair
}

// steps compares which calls the runs of each case make. A call that the runs of the baseline made and those of now
// do not, and one that fails now, are regressions; others are changes. Of those of a case, the clearest counts, and
// of equal ones the first.
func (c *comparison) steps() {
	all := map[string][]compared{}
	shares := map[string][]pair{} // by the text of a feature, of all cases that have it
	comparisons := 0
	for _, of := range c.cases {
		was, now := support(c.was[of], false), support(c.now[of], false)
		for _, f := range unite(was, now) {
			p := pair{ones(c.was[of], was[f].has), ones(c.now[of], now[f].has)}
			all[of] = append(all[of], compared{f, was[f], now[f], p})
			shares[f.text] = append(shares[f.text], p)
			comparisons++
		}
	}
	for _, of := range c.cases {
		var best *Change
		at := 0.0
		for _, f := range all[of] {
			p, ch := f.shares, Change{Case: of, What: figureSteps, Step: f.text, Was: mean(f.shares.was),
				Now: mean(f.shares.now), Before: len(f.shares.was), After: len(f.shares.now)}
			const much = 0.5 // a call that half of the runs make more or less often
			if math.Abs(ch.Was-ch.Now) < much {
				continue
			}
			lost := ch.Now < ch.Was
			ch.worse = lost != f.failed
			first := 0.0
			if lost {
				p, first = pair{p.now, p.was}, f.was.first()
				ch.A, ch.B = f.was.runs[0].SessionID, without(c.now[of], f.now.runs)
			} else {
				first = f.now.first()
				ch.A, ch.B = without(c.was[of], f.was.runs), f.now.runs[0].SessionID
			}
			squares, freedom := spread(shares[f.text], leastCount)
			ch.P = p.exceeds(squares, freedom)
			if best == nil || ch.worse && !best.worse || ch.worse == best.worse &&
				(ch.P < best.P || ch.P == best.P && first < at) {
				best, at = &ch, first
			}
		}
		if best != nil {
			c.decide(*best, comparisons)
		}
	}
}

// supported are the runs with a feature, and for each of them the place of the first step that has it.
type supported struct {
	runs []*Run
	at   []float64
}

// first is the median of the places.
func (s supported) first() float64 { return median(s.at) }

// has reports whether a run has the feature.
func (s supported) has(run *Run) bool { return slices.Contains(s.runs, run) }

func support(runs []*Run, detailed bool) map[feature]supported {
	all := map[feature]supported{}
	for _, run := range runs {
		for f, at := range run.features(detailed) {
			s := all[f]
			all[f] = supported{append(s.runs, run), append(s.at, float64(at))}
		}
	}
	return all
}

func unite(a, b map[feature]supported) []feature {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.SortedFunc(maps.Keys(all), func(x, y feature) int { return strings.Compare(x.text, y.text) })
}

// without is the id of the first run that is not among others.
func without(runs, others []*Run) string {
	for _, r := range runs {
		if !slices.Contains(others, r) {
			return r.SessionID
		}
	}
	return ""
}

// Names of the forms in which a verdict is written.
const (
	Text     = "text"
	JUnit    = "junit"
	SARIF    = "sarif"
	Markdown = "markdown"
)

// Write writes the verdict in a form, of which file is the gate's, as the user named it. SARIF is the static analysis
// results interchange format, in which code hosts show findings: their place is the gate's file, because that is in the
// repository.
func (v *Verdict) Write(w io.Writer, form, file string) error {
	_, err := io.WriteString(w, phrases.Text(form, struct {
		*Verdict
		File string
	}{v, file}))
	return err
}

//go:embed words.tmpl
var wordsFile string

// phrases has a template for each form of a verdict that is a text, and the words of an assertion by its key.
var phrases = document.NewPhrases(wordsFile, template.FuncMap{
	"percents": percents, "limits": limits, "list": func(all []string) string { return strings.Join(all, ", ") },
	"cases": func(all []string) string { return strings.Join(all, "; ") },
	// cell makes a text fit into a cell of a table of Markdown, xml and json into a value of those.
	"cell": func(s string) string {
		return strings.NewReplacer("|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_").Replace(document.OneLine(s))
	},
	"xml": func(s string) (string, error) {
		var b strings.Builder
		err := xml.EscapeText(&b, []byte(s))
		return b.String(), err
	},
	"json": func(s string) (string, error) {
		b, err := json.Marshal(s)
		return string(b[1 : len(b)-1]), err
	},
})

// Summary is the verdict in one line.
func (v *Verdict) Summary() string { return phrases.Text("summary", v) }

// Held counts the assertions that hold.
func (v *Verdict) Held() (n int) {
	for i := range v.Assertions {
		if v.Assertions[i].Passed {
			n++
		}
	}
	return n
}

// Line states in one line what the assertion came to.
func (r *Result) Line() string { return document.OneLine(phrases.Text("result", r)) }

// Line names the session and states in one line why the assertion does not hold.
func (f *Failed) Line() string { return document.OneLine(phrases.Text("failed", f)) }

// String states a change in one line.
func (ch *Change) String() string { return phrases.Text("change", ch) }

// Where names the runs that show a change, and what they diverge in first.
func (ch *Change) Where() string { return document.OneLine(phrases.Text("runs that show it", ch)) }

// Value is what was or is, in words.
func (ch *Change) Value(v float64) string {
	switch {
	case ch.What == "passed" || ch.What == figureSteps:
		return percents(v)
	case isFigure(ch.What) && ch.What != "cost_usd" && ch.What != "duration":
		return fmt.Sprintf("%.4g", math.Round(v*10)/10)
	case isFigure(ch.What):
		return mark[ch.Estimated] + figureText(ch.What, v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Section are changes with their heading.
type Section struct {
	Title   string
	Changes []Change
}

// Sections are the changes of a verdict.
func (v *Verdict) Sections() []Section {
	return slices.DeleteFunc([]Section{
		{"Regressions, beyond chance", v.Regressions}, {"Other changes, beyond chance", v.Changes},
		{"Worse, with too few runs to tell from chance", v.Few},
	}, func(s Section) bool { return len(s.Changes) == 0 })
}

// Unmatched names the cases that have no runs on the other side.
func (v *Verdict) Unmatched() []string { return phrases.Facts("unmatched", v) }
