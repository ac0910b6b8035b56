// Package gate judges sessions by what a file says of them: by assertions on each of them, by what changed between two
// sets of them, and by rules while they go on.
//
// A [Gate] is read from a file by [Parse]. [Gate.Look] evaluates its assertions on a session, which becomes a [Run].
// [Gate.Judge] decides over all runs, and over those of a baseline, and gives a [Verdict]. [Blame] finds the call that
// separates runs which went well from others. Sets of sessions, which are experiments and data sets, are tags on them:
// [Gate.Runs] reads those of one. No model is asked.
//
// A [Watcher] evaluates [Rules], most of which are assertions, on the sessions of a store while they change. What it
// finds are facts, which it keeps in a file of its own before it delivers them, so that a fact outlives the process.
package gate

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// Gate is a file of assertions. The zero value has none, and takes the defaults of a [Baseline].
type Gate struct {
	Version    int         `yaml:"version"`
	Assertions []Assertion `yaml:"assertions"`
	Baseline   Baseline    `yaml:"baseline"`
}

// Baseline states when a difference between the runs of now and those of a baseline is a regression.
type Baseline struct {
	// Confidence, 0.99 by default, is how sure it must be that nothing is reported of an agent that did not change.
	Confidence float64 `yaml:"confidence"`
	// Tolerance is the difference, relative to the baseline, that is none: 0.2 by default.
	Tolerance *float64 `yaml:"tolerance"`
	// Ignore are figures that are not compared, of those that [Figures] lists.
	Ignore []string `yaml:"ignore"`
}

// Assertion states one thing about sessions: exactly one of the fields from Status on is set.
type Assertion struct {
	// Name is what reports call the assertion; empty is what it asserts, in words.
	Name string `yaml:"name"`
	// Case selects the runs of one case. Empty is all.
	Case string `yaml:"case"`
	// Share is the part of the runs, above 0 and at most 1, for which it must hold: 1 by default. With Confidence, it
	// must be that sure that the share is reached also in runs that were not made.
	Share      float64 `yaml:"share"`
	Confidence float64 `yaml:"confidence"`

	// Status is what a list of sessions shows, such as finished.
	Status string `yaml:"status"`
	// ToolErrors: no call failed, if it is "none".
	ToolErrors string `yaml:"tool_errors"`
	// Denied, Loops and Secrets: there is none, if it is "none". A loop is one call, with the same input and outcome,
	// three times in a row. A secret is one that redaction finds, or has replaced.
	Denied  string `yaml:"denied"`
	Loops   string `yaml:"loops"`
	Secrets string `yaml:"secrets"`
	// Called and NotCalled: a tool was called so, or never.
	Called    *CallMatch `yaml:"called"`
	NotCalled *CallMatch `yaml:"not_called"`
	// Order are tools that are called in this order, with any other calls between.
	Order []string `yaml:"order"`
	// Answer and Prompt are about the text of the last answer and of the first prompt.
	Answer *TextMatch `yaml:"answer"`
	Prompt *TextMatch `yaml:"prompt"`
	// Max and Min bound figures of the session, by the names that [Figures] lists.
	Max Limits `yaml:"max"`
	Min Limits `yaml:"min"`
	// Score bounds a score, wherever in the session it is.
	Score *ScoreMatch `yaml:"score"`
	// Expected: the last answer has the text that the case of the data set expects.
	Expected string `yaml:"expected"`

	// goesOn: the sessions go on, and a figure that is not known yet is within its bounds.
	goesOn bool
}

// CallMatch matches calls of tools.
type CallMatch struct {
	// Tool is the name, in which * stands for any characters.
	Tool string `yaml:"tool"`
	// Input are patterns, with *, for values of the input, by their keys. A key with dots leads into objects.
	Input map[string]string `yaml:"input"`
	// Outcome is ok, failed, denied, lost or open; empty is any.
	Outcome string `yaml:"outcome"`
	// Times is the least number of such calls: 1 by default. AtMost is the greatest. Both are of Called alone.
	Times  *int `yaml:"times"`
	AtMost *int `yaml:"at_most"`
}

// TextMatch matches a text: all that is set must hold.
type TextMatch struct {
	Contains string `yaml:"contains"`
	Matches  string `yaml:"matches"`
	Lacks    string `yaml:"lacks"`

	pattern *regexp.Regexp
}

// ScoreMatch matches scores by name. At least one must be there, and each must hold.
type ScoreMatch struct {
	Name  string   `yaml:"name"`
	Min   *float64 `yaml:"min"`
	Max   *float64 `yaml:"max"`
	Label string   `yaml:"label"`
}

// Limit is a number; of a duration it is in milliseconds, and written like 90s.
type Limit float64

// Limits are bounds of figures, by their names.
type Limits map[string]Limit

// UnmarshalYAML reads numbers, and durations only where a duration is bounded: 5m tokens are not 300,000.
func (l *Limits) UnmarshalYAML(n *yaml.Node) error {
	nodes := map[string]yaml.Node{}
	if err := n.Decode(&nodes); err != nil {
		return err
	}
	*l = Limits{}
	for name, v := range nodes {
		d, err := time.ParseDuration(v.Value)
		f := float64(d.Milliseconds())
		if name != "duration" || err != nil {
			err = v.Decode(&f)
		}
		if err != nil || !(f >= 0) { // also NaN
			return fmt.Errorf("line %d: %s is %q; use a number of 0 or more, or of the duration one such as 90s",
				v.Line, name, v.Value)
		}
		(*l)[name] = Limit(f)
	}
	return nil
}

// Parse reads a gate. The error names the line and what is possible there.
func Parse(content []byte) (*Gate, error) {
	g := &Gate{}
	if err := decode(content, g, &g.Version, Baseline{}, Assertion{}, CallMatch{}, TextMatch{}, ScoreMatch{}); err != nil {
		return nil, err
	}
	g.Baseline.Confidence = cmp.Or(g.Baseline.Confidence, defaultConfidence)
	if c := g.Baseline.Confidence; c <= 0 || c >= 1 {
		return nil, fmt.Errorf("baseline: confidence is %v; use a number between 0 and 1, such as 0.99", c)
	}
	if t := g.Baseline.Tolerance; t != nil && *t < 0 {
		return nil, fmt.Errorf("baseline: tolerance is %v; use 0 or more, such as 0.2", *t)
	}
	for _, name := range g.Baseline.Ignore {
		if !isFigure(name) && name != figureSteps {
			return nil, fmt.Errorf("baseline: ignore has %q; use %s or %s", name, strings.Join(Figures(), ", "), figureSteps)
		}
	}
	for i := range g.Assertions {
		if err := g.Assertions[i].check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", lineOf(content, "assertions", i), err)
		}
	}
	return g, nil
}

//go:embed schema.json
var schema []byte

// Schema is a JSON schema of a gate's file, by which editors complete and check it.
func Schema() []byte { return schema }

const (
	defaultConfidence = 0.99
	defaultTolerance  = 0.2
)

// unknownField is how the decoder reports a key that a type does not have.
var unknownField = lazy.Regexp(`^line (\d+): field (\S+) not found in type \w+\.(\w+)$`)

// decode reads a file into what it is, of which version is the version and types are the structures below.
func decode(content []byte, file any, version *int, types ...any) error {
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(file); errors.Is(err, io.EOF) {
		return errors.New("it is empty; docs/gate.md and docs/watch.md have examples")
	} else if err != nil {
		return explain(err, append(types, reflect.ValueOf(file).Elem().Interface())...)
	}
	if d.Decode(&yaml.Node{}) == nil {
		return errors.New("it has more than one document; remove what comes after ---")
	}
	if *version != 1 {
		return fmt.Errorf("version is %d; write version: 1", *version)
	}
	lists := map[string][]any{}
	_ = yaml.Unmarshal(content, &lists)
	for key, list := range lists {
		if i := slices.Index(list, nil); i >= 0 { // which the decoder leaves out
			return fmt.Errorf("line %d: an element of %s is empty; write what it states, or remove it", lineOf(content, key, i), key)
		}
	}
	return nil
}

// lineOf is the line of an element of a list in a file that has been decoded.
func lineOf(content []byte, key string, i int) int {
	lists := map[string]yaml.Node{}
	_ = yaml.Unmarshal(content, &lists) // it has been decoded before
	list := lists[key]
	if list.Alias != nil {
		list = *list.Alias
	}
	if i >= len(list.Content) { // it is merged from elsewhere
		return 1
	}
	return list.Content[i].Line
}

// wrongKind is how the decoder reports a value that is none of a type.
var wrongKind = lazy.Regexp("^line (\\d+): cannot unmarshal !!(\\w+(?: `.*`)?) into \\S+$")

// explain puts the errors of the decoder into the words of a file, of which types are the structures.
func explain(err error, types ...any) error {
	wrong, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "unknown escape character",
			"unknown escape character; write the text in single quotes"))
	}
	lines := make([]string, len(wrong.Errors))
	for i, text := range wrong.Errors {
		lines[i] = wrongKind().ReplaceAllString(text, "line $1: $2 is not possible here; docs/gate.md and docs/watch.md have what is")
		unknown := unknownField().FindStringSubmatch(text)
		for _, t := range types {
			if of := reflect.TypeOf(t); unknown != nil && unknown[3] == of.Name() {
				lines[i] = fmt.Sprintf("line %s: there is no key %s; use %s", unknown[1], unknown[2],
					strings.Join(keysOf(of), ", "))
			}
		}
	}
	return errors.New(strings.Join(lines, "; "))
}

// keysOf are the keys of a type in a file.
func keysOf(t reflect.Type) (keys []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("yaml"); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// stated are the keys of a structure from one on that state something: {} and [] would hold for any session.
func stated(of any, from int) (keys []string) {
	v := reflect.Indirect(reflect.ValueOf(of))
	for i, key := range keysOf(v.Type())[from:] {
		f := reflect.Indirect(v.Field(from + i))
		if f.IsValid() && !f.IsZero() && (f.Kind() != reflect.Map && f.Kind() != reflect.Slice || f.Len() > 0) {
			keys = append(keys, key)
		}
	}
	return keys
}

// check finds what is wrong with an assertion, and sets its defaults.
func (a *Assertion) check() error {
	const first = 4 // the keys before state nothing
	keys := stated(a, first)
	if len(keys) != 1 {
		all := strings.Join(keysOf(reflect.TypeFor[Assertion]())[first:], ", ")
		if len(keys) == 0 {
			return errors.New("it states nothing; use one of " + all)
		}
		return fmt.Errorf("it states %s; write an assertion for each", strings.Join(keys, " and "))
	}
	if err := errors.Join(a.checkShare(), a.checkMatches()); err != nil {
		return err
	}
	if sign, _ := document.OutcomeWords(a.Status); a.Status != "" && sign == "" {
		return fmt.Errorf("status is %q; use %s", a.Status, strings.Join(document.Statuses(), ", "))
	}
	for key, value := range map[string]string{"tool_errors": a.ToolErrors, "denied": a.Denied, "loops": a.Loops,
		"secrets": a.Secrets} {
		if value != "" && value != "none" {
			return fmt.Errorf("%s is %q; write %s: none, or bound the number with max", key, value, key)
		}
	}
	if a.Expected != "" && a.Expected != "contains" && a.Expected != "equals" {
		return fmt.Errorf("expected is %q; use contains or equals", a.Expected)
	}
	for key, limits := range map[string]Limits{"max": a.Max, "min": a.Min} {
		for name := range limits {
			if !isFigure(name) {
				return fmt.Errorf("%s has %q; use %s", key, name, strings.Join(Figures(), ", "))
			}
		}
	}
	a.Name = cmp.Or(a.Name, phrases.Text(keys[0], a))
	return nil
}

// checkShare checks the part of the runs for which the assertion must hold.
func (a *Assertion) checkShare() error {
	a.Share = cmp.Or(a.Share, 1)
	if a.Share < 0 || a.Share > 1 {
		return fmt.Errorf("share is %v; use a number above 0 and at most 1", a.Share)
	}
	if a.Confidence < 0 || a.Confidence >= 1 {
		return fmt.Errorf("confidence is %v; use a number between 0 and 1", a.Confidence)
	}
	if a.Confidence > 0 && a.Share == 1 {
		return errors.New("confidence needs a share below 1: no number of runs shows that all others hold")
	}
	return nil
}

// outcomes are those of a call.
var outcomes = []string{document.OutcomeOK, document.OutcomeFailed, document.OutcomeDenied, document.OutcomeLost,
	document.OutcomeOpen}

// checkMatches checks what calls, scores and texts are matched with.
func (a *Assertion) checkMatches() error {
	for _, c := range []*CallMatch{a.Called, a.NotCalled} {
		switch {
		case c == nil:
		case c.Tool == "":
			return errors.New("it names no tool; add tool: NAME, or tool: \"*\" for any")
		case c.Outcome != "" && !slices.Contains(outcomes, c.Outcome):
			return fmt.Errorf("outcome is %q; use %s", c.Outcome, strings.Join(outcomes, ", "))
		case c == a.NotCalled && (c.Times != nil || c.AtMost != nil):
			return errors.New("not_called bounds no number; use called with at_most, and times: 0 if none is well, too")
		case c.Times != nil && *c.Times < 0, c.AtMost != nil && *c.AtMost < max(1, session.Deref(c.Times)):
			return errors.New("times or at_most is too small; at_most is at least 1, and at least times")
		}
	}
	if s := a.Score; s != nil && (s.Name == "" || s.Min == nil && s.Max == nil && s.Label == "") {
		return errors.New("a score needs a name, and min, max or label")
	}
	for _, t := range []*TextMatch{a.Answer, a.Prompt} {
		if t == nil || t.Matches == "" {
			continue
		}
		var err error
		if t.pattern, err = regexp.Compile(t.Matches); err != nil {
			return fmt.Errorf("matches: %w; the syntax is that of https://github.com/google/re2/wiki/Syntax", err)
		}
	}
	return nil
}

// limits are bounds of figures in words.
func limits(of Limits, sign string) string {
	var all []string
	for _, name := range figures {
		if v, ok := of[name]; ok {
			all = append(all, name+" "+sign+" "+figureText(name, float64(v)))
		}
	}
	return strings.Join(all, ", ")
}
