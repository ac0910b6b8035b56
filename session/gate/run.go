package gate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// Run is what is kept of a session that a gate has looked at.
type Run struct {
	SessionID  string `json:"session_id"`
	Title      string `json:"title"`
	Experiment string `json:"experiment,omitempty"`
	// Case is what the run was about: as a tag names it, or else the first prompt.
	Case string `json:"case"`
	// Expected is what the case expects of the last answer, if anything.
	Expected string `json:"expected,omitempty"`
	// Outcome is what a list shows of the session: see [document.Item].
	Outcome string `json:"outcome"`
	// Passed reports that the session has ended, and well, and that no assertion fails that must hold for all sessions.
	Passed bool `json:"passed"`
	// Unfinished reports that the session is at work or waits: it has not passed yet, nor failed.
	Unfinished bool `json:"unfinished,omitempty"`
	// Figures are numbers by the names that [Figures] lists; what is not known is not in it. What is estimated of a cost
	// is beside cost_usd, as estimated_cost_usd. Scores are by name.
	Figures map[string]float64 `json:"figures"`
	Scores  map[string]float64 `json:"scores,omitempty"`
	// Failures are those of assertions, by their index in the gate.
	Failures map[int]Failure `json:"-"`

	steps  []step
	answer string
	tags   []document.Annotation
}

// HasTag reports whether the session, or something in it, has one of the tags.
func (run *Run) HasTag(names ...string) bool {
	return slices.ContainsFunc(run.tags, func(n document.Annotation) bool {
		return n.Kind == store.AnnotationTag && slices.Contains(names, n.Name)
	})
}

// Failure states why an assertion does not hold.
type Failure struct {
	// Detail is one line. Turn is where, and Tool the call's, if it is about one.
	Detail string `json:"detail"`
	Turn   int    `json:"turn,omitempty"`
	Tool   string `json:"tool,omitempty"`
}

// step is a call of a tool.
type step struct {
	// values are the lines of valuesOf.
	tool, shape, values, outcome string
	turn                         int
}

// valuesOf has a line for each single value in the input of a call, as in dir=/srv, if there are several. Dots lead
// into objects. Like shapes, they are without times, ids and temporary paths.
func valuesOf(input json.RawMessage) string {
	var lines []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(strings.TrimPrefix(path+"."+name, "."), v[name])
			}
		case []any, nil:
		default:
			if path != "" {
				text := document.CompareOptions{}.Key(fmt.Sprint(v))
				lines = append(lines, document.OneLine(document.Head(path+"="+text, maxValue)))
			}
		}
	}
	var root any
	if json.Unmarshal(input, &root) == nil { // else it is of no shape that others have
		walk("", root)
	}
	if len(lines) < 2 {
		return ""
	}
	return strings.Join(lines, "\n")
}

// maxValue is how much of a value is compared, in bytes.
const maxValue = 120

// Tags that make sessions and turns members of a set, by its name. Their label is the case, and the comment of a data
// set's tag is what is expected of the last answer.
const (
	TagExperiment = "experiment:"
	TagDataset    = "dataset:"
)

// figureSteps are the steps of runs, among what is compared.
const figureSteps = "steps"

var figures = []string{"tokens", "cost_usd", "duration", "turns", "model_calls", "tool_calls", "tool_errors", "errors",
	"denied"}

// Figures are the names of the figures of a run. A duration is in milliseconds.
func Figures() []string { return slices.Clone(figures) }

func isFigure(name string) bool { return slices.Contains(figures, name) }

// figureEstimated is what of a cost is estimated.
const figureEstimated = "estimated_cost_usd"

// figure returns a figure, with what is estimated of it, and whether it is known and something is estimated.
func (run *Run) figure(name string) (v float64, known, estimated bool) {
	if v, known = run.Figures[name]; name == "cost_usd" {
		var more float64
		more, estimated = run.Figures[figureEstimated]
		return v + more, known || estimated, estimated
	}
	return v, known, false
}

// mark is the sign of an estimate.
var mark = map[bool]string{true: "~"}

func figureText(name string, v float64) string {
	switch name {
	case "duration":
		return document.Duration(int64(v))
	case "cost_usd":
		return document.Cost(&v, nil)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// CaseOf is the case of a session that no tag names: its first prompt, on one line.
func CaseOf(prompt string) string {
	return cmp.Or(document.OneLine(document.Head(document.CompareOptions{}.Key(prompt), 80)), "(no prompt)")
}

// ExperimentOf is the experiment of a session and the case that it ran, as its annotations say, or else its metadata.
// A session that is in several experiments is in the last one that it was added to.
func ExperimentOf(s *session.Session, tags []document.Annotation) (experiment, of string) {
	experiment, of = gjson.Get(s.MetadataJSON, "experiment").String(), gjson.Get(s.MetadataJSON, "case").String()
	for i := range tags {
		if name, ok := strings.CutPrefix(tags[i].Name, TagExperiment); ok && tags[i].Kind == store.AnnotationTag {
			experiment, of = name, cmp.Or(tags[i].Label, of)
		}
	}
	return experiment, of
}

// Look evaluates the assertions on a session. row is that of doc, and tags are its annotations, as
// [document.AnnotationsOf] gives them. expected are what data sets expect, by case. A redactor finds secrets.
func (g *Gate) Look(row *session.Session, doc *document.Document, tags []document.Annotation,
	expected map[string]string, r *redact.Redactor) *Run {
	run := &Run{SessionID: doc.Session.ID, Title: document.Name(doc.Session.Title, doc.Session.Opening),
		Outcome: string(doc.Status.State), Figures: map[string]float64{}, Scores: map[string]float64{},
		Failures: map[int]Failure{}, tags: tags}
	switch s := doc.Status.State; {
	case s == document.ActivityIdle, s == document.ActivityUnknown:
		run.Outcome = cmp.Or(string(doc.Session.State), run.Outcome)
	case s == document.ActivityBusy, s == document.ActivityRetrying, s.Waiting():
		run.Unfinished = true
	}
	run.Experiment, run.Case = ExperimentOf(row, tags)
	for i := range tags {
		if n := &tags[i]; n.Kind == store.AnnotationScore && n.Value != nil {
			run.Scores[n.Name] = *n.Value
		}
	}
	prompt := ""
	for _, t := range doc.Turns {
		if t.Hidden {
			continue
		}
		prompt, run.answer = cmp.Or(prompt, t.UserText()), cmp.Or(t.AnswerText(), run.answer)
		run.Figures["model_calls"] += float64(t.ModelCalls)
		for _, c := range t.ToolCalls() {
			s := step{tool: c.Name, outcome: c.Outcome(), turn: t.Number}
			if inputKnown(c.Input) {
				s.shape, s.values = document.CompareOptions{}.Value(c.Input), valuesOf(c.Input)
			}
			run.steps = append(run.steps, s)
		}
	}
	run.Case = cmp.Or(run.Case, CaseOf(prompt))
	run.Expected = expected[run.Case]
	count := &doc.Totals
	for name, n := range map[string]int{"turns": count.Turns, "tool_calls": count.ToolCalls, "tool_errors": count.Failed,
		"errors": count.Errors, "denied": count.Denied} {
		run.Figures[name] = float64(n)
	}
	if isCopy(doc) { // whose tokens count in the parent alone
		run.Figures["tokens"], run.Figures["cost_usd"] = 0, 0
	}
	if count.Usage != nil {
		run.Figures["tokens"] = float64(count.Usage.Total())
	}
	if count.CostUSD != nil {
		run.Figures["cost_usd"] = *count.CostUSD
	}
	if count.EstimatedCostUSD != nil {
		run.Figures[figureEstimated] = *count.EstimatedCostUSD
	}
	if count.DurationMS != nil {
		run.Figures["duration"] = float64(*count.DurationMS)
	}
	for i := range g.Assertions {
		a := &g.Assertions[i]
		if !a.isAbout(run) {
			continue
		}
		if f := a.failure(run, doc, prompt, r); f != nil {
			run.Failures[i] = *f
		}
	}
	run.Passed = !run.Unfinished && !slices.Contains(bad, run.Outcome)
	for i := range run.Failures {
		run.Passed = run.Passed && g.Assertions[i].Share < 1
	}
	return run
}

// isCopy reports that the session is a fork of which all messages are copies.
func isCopy(doc *document.Document) bool {
	n := len(doc.Turns)
	return n > 0 && !slices.ContainsFunc(doc.Turns[n-1].Messages, func(m *document.Message) bool { return !m.Copied })
}

// bad are the outcomes of sessions that did not pass.
var bad = []string{string(document.StateError), string(document.StateAborted), string(document.ActivityInterrupted)}

// isAbout reports whether the run is of the assertion's case.
func (a *Assertion) isAbout(run *Run) bool { return a.Case == "" || a.Case == run.Case }

// needsOnlySums reports whether the assertion is evaluated on sums, scores and prompts alone, without calls and answers.
func (a *Assertion) needsOnlySums() bool {
	return a.Status != "" || a.Max != nil || a.Min != nil || a.Score != nil || a.Prompt != nil
}

// failure is why the assertion does not hold, or nil. See needsOnlySums for what reads no more of doc.
func (a *Assertion) failure(run *Run, doc *document.Document, prompt string, r *redact.Redactor) *Failure {
	switch {
	case a.Status != "" && run.Outcome != a.Status:
		return &Failure{Detail: "status is " + cmp.Or(run.Outcome, "unknown")}
	case a.ToolErrors != "":
		return firstCall(doc, "failed", (*document.ToolCall).Failed)
	case a.Denied != "":
		return firstCall(doc, "denied", func(c *document.ToolCall) bool { return c.Denied })
	case a.Loops != "":
		return a.loop(doc)
	case a.Secrets != "":
		return secretIn(doc, r)
	case a.Called != nil:
		return a.Called.failure(doc)
	case a.NotCalled != nil:
		found, n, unknown := a.NotCalled.find(doc)
		if n > 0 {
			found.Detail = "called " + times(n) + ": " + found.Detail
		} else if found = unknown; a.goesOn {
			return nil
		}
		return found
	case a.Order != nil:
		return run.outOfOrder(a.Order)
	case a.Answer != nil:
		return a.Answer.failure("the answer", run.answer)
	case a.Prompt != nil:
		return a.Prompt.failure("the prompt", prompt)
	case a.Score != nil:
		return a.Score.failure(run.tags)
	case a.Expected != "":
		return run.unexpected(a.Expected == "equals")
	case a.Max != nil || a.Min != nil:
		return a.outOfBounds(run, doc)
	}
	return nil
}

// firstCall is the first call of a document that is so. One that a rewind hid was made all the same.
func firstCall(doc *document.Document, what string, is func(*document.ToolCall) bool) *Failure {
	for t, m := range doc.Messages() {
		for _, c := range m.ToolCalls() {
			if is(c) {
				return &Failure{what + ": " + callLine(c), t.Number, c.Name}
			}
		}
	}
	return nil
}

func (c *CallMatch) failure(doc *document.Document) *Failure {
	found, n, unknown := c.find(doc)
	least := 1
	if c.Times != nil {
		least = *c.Times
	}
	switch {
	case n < least:
		how := cmp.Or(map[int]string{0: "never"}[n], "only "+times(n))
		text := "it was " + how + " called"
		if other, all, _ := (&CallMatch{Tool: c.Tool}).find(doc); unknown == nil && all > n {
			unknown, other.Detail = other, text+" so, last "+other.Detail
		}
		return cmp.Or(unknown, &Failure{Detail: text})
	case c.AtMost != nil && unknown != nil && n <= *c.AtMost:
		return unknown
	case c.AtMost != nil && n > *c.AtMost:
		found.Detail = "called " + times(n) + ", last " + found.Detail
		return found
	}
	return nil
}

// outOfOrder is the first of tools that is not called after those before it.
func (run *Run) outOfOrder(tools []string) *Failure {
	next := 0
	for _, s := range run.steps {
		if next < len(tools) && glob(tools[next], s.tool) {
			next++
		}
	}
	switch next {
	case len(tools):
		return nil
	case 0:
		return &Failure{Detail: tools[0] + " was not called"}
	}
	return &Failure{Detail: tools[next] + " was not called after " + tools[next-1]}
}

// unexpected compares the last answer with what the case expects.
func (run *Run) unexpected(whole bool) *Failure {
	want, have := spaced(run.Expected), spaced(run.answer)
	if want == "" {
		return &Failure{Detail: fmt.Sprintf("the case %q has no expected value; agenttrace dataset add sets one", run.Case)}
	} else if have != want && (whole || !strings.Contains(have, want)) {
		return &Failure{Detail: fmt.Sprintf("the answer is %q, not %q", document.Head(have, 80), document.Head(want, 80))}
	}
	return nil
}

// outOfBounds is the first figure that is not within Max and Min.
func (a *Assertion) outOfBounds(run *Run, doc *document.Document) *Failure {
	for _, name := range figures {
		v, known, estimated := run.figure(name)
		high, isMax := a.Max[name]
		low, isMin := a.Min[name]
		text := name + " is " + mark[estimated] + figureText(name, v)
		switch {
		case !isMax && !isMin, !known && a.goesOn:
		case !known:
			return &Failure{Detail: name + " is not known"}
		case isMax && v > float64(high):
			return &Failure{Detail: text + ", above " + figureText(name, float64(high))}
		case isMax && !a.goesOn && name == "tokens" && doc.Quality != nil && doc.Quality.Missing["tokens"] > 0 && !isCopy(doc):
			return &Failure{Detail: text + ", or more: an answer does not state its tokens"}
		case isMax && !a.goesOn && name == "cost_usd" && doc.Totals.Unpriced:
			return &Failure{Detail: text + ", or more: there is no price of " + strings.Join(doc.UnpricedModels, ", ")}
		case isMin && v < float64(low):
			return &Failure{Detail: text + ", below " + figureText(name, float64(low))}
		}
	}
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

func spaced(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

func callLine(c *document.ToolCall) string {
	line := strings.TrimSpace(cmp.Or(c.Name, document.Unnamed) + " " + c.Subject())
	if c.Error != "" {
		line += ": " + c.Error
	}
	return document.OneLine(document.Head(line, 160))
}

// loopLength is how often a call is repeated in a row that is a loop.
const loopLength = 3

// loop is the first loop, or else calls in a row that may be one, which an assertion about what goes on leaves out.
func (a *Assertion) loop(doc *document.Document) (unknown *Failure) {
	last, n := "", 0
	for t, m := range doc.Messages() {
		for _, c := range m.ToolCalls() {
			is := c.Name + "\x00" + document.Canonical(c.Input) + "\x00" + c.Outcome()
			if n++; is != last {
				last, n = is, 1
			}
			switch line := fmt.Sprintf("%s was called %d times in a row", cmp.Or(c.Name, document.Unnamed), n); {
			case n < loopLength:
			case inputKnown(c.Input):
				return &Failure{line + " with the same input", t.Number, c.Name}
			case unknown == nil && !a.goesOn:
				unknown = &Failure{line + ", and its input is not known", t.Number, c.Name}
			}
		}
	}
	return unknown
}

// inputKnown reports whether a source reports the input of a call, and the configuration leaves nothing of it out: two
// of which only the length is known may differ.
func inputKnown(input json.RawMessage) bool {
	text := gjson.ParseBytes(input).String()
	return text != "" && !redact.Omitted(text) && !truncated(text)
}

func secretIn(doc *document.Document, r *redact.Redactor) *Failure {
	dirty := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(s string) bool {
			return strings.Contains(s, redact.Marker) || r != nil && r.Text(s) != s
		})
	}
	for t, m := range doc.Messages() {
		for _, p := range m.Parts {
			if dirty(p.Text) {
				return &Failure{"a secret is in the text of the " + m.Role, t.Number, ""}
			}
			if c := p.Tool; c != nil && dirty(string(c.Input), string(c.Output), c.Error) {
				return &Failure{"a secret is in a call of " + c.Name, t.Number, c.Name}
			}
		}
	}
	return nil
}

// find returns the last call that matches, and how many do; unknown is one whose input no source reports, or the
// configuration omits or truncates.
func (c *CallMatch) find(doc *document.Document) (last *Failure, n int, unknown *Failure) {
	for t, m := range doc.Messages() {
		for _, call := range m.ToolCalls() {
			switch is, known := c.hasInput(call.Input); {
			case !glob(c.Tool, call.Name) || c.Outcome != "" && c.Outcome != call.Outcome():
			case !known:
				unknown = &Failure{"the input of a call is not known: " + callLine(call), t.Number, call.Name}
			case is:
				last, n = &Failure{callLine(call), t.Number, call.Name}, n+1
			}
		}
	}
	return last, n, unknown
}

// hasInput reports whether an input matches, and whether that is known.
func (c *CallMatch) hasInput(input json.RawMessage) (is, known bool) {
	is, known = true, true
	for key, pattern := range c.Input {
		texts := textsAt(input, key)
		switch {
		case len(input) == 0, string(input) == "null", slices.ContainsFunc(texts, redact.Omitted):
			known = false
		case slices.ContainsFunc(texts, func(text string) bool { return glob(pattern, text) }):
		case slices.ContainsFunc(texts, truncated):
			known = false
		default:
			return false, true
		}
	}
	return is, known
}

// truncated reports whether the end of a text is missing.
func truncated(text string) bool { return strings.Contains(text, redact.TruncatedMarker+"[") }

// textsAt are the texts of a value in an input. A list, as which some agents give a command, is JSON, and its elements
// with spaces between, too. An input that is a text, and not an object in one, has no keys: it is the value of each.
func textsAt(input json.RawMessage, key string) []string {
	of := gjson.ParseBytes(input)
	if text := of.String(); of.Type == gjson.String && !gjson.Valid(text) {
		return []string{text}
	} else if of.Type == gjson.String {
		of = gjson.Parse(text)
	}
	v := of.Get(key)
	if v.Type == gjson.Null {
		return nil
	} else if !v.IsArray() {
		return []string{v.String()}
	}
	var words []string
	for _, word := range v.Array() {
		words = append(words, word.String())
	}
	return []string{document.Canonical(json.RawMessage(v.Raw)), strings.Join(words, " ")}
}

// glob reports whether a text matches a pattern in which * stands for any characters.
func glob(pattern, text string) bool {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString(text)
}

func (t *TextMatch) failure(what, text string) *Failure {
	shown := document.OneLine(document.Head(text, 80))
	switch {
	case text == "":
		return &Failure{Detail: "there is no " + strings.TrimPrefix(what, "the ")}
	case slices.ContainsFunc(strings.Split(text, "\n"), redact.Omitted), t.Lacks != "" && truncated(text):
		return &Failure{Detail: fmt.Sprintf("%s is not known as a whole: %s", what, shown)}
	case t.Contains != "" && !strings.Contains(text, t.Contains):
		return &Failure{Detail: fmt.Sprintf("%s %q does not contain %q", what, shown, t.Contains)}
	case t.Lacks != "" && strings.Contains(text, t.Lacks):
		return &Failure{Detail: fmt.Sprintf("%s contains %q", what, t.Lacks)}
	case t.pattern != nil && !t.pattern.MatchString(text):
		return &Failure{Detail: fmt.Sprintf("%s %q does not match %s", what, shown, t.Matches)}
	}
	return nil
}

func (s *ScoreMatch) failure(tags []document.Annotation) *Failure {
	found := false
	for i := range tags {
		n := &tags[i]
		if n.Kind != store.AnnotationScore || n.Name != s.Name {
			continue
		}
		found = true
		v := session.Deref(n.Value)
		if s.Label != "" && n.Label != s.Label || (s.Min != nil || s.Max != nil) && n.Value == nil ||
			s.Min != nil && v < *s.Min || s.Max != nil && v > *s.Max {
			return &Failure{Detail: "it is " + n.Short()}
		}
	}
	if !found {
		return &Failure{Detail: "there is no score " + s.Name}
	}
	return nil
}
