package gate

import (
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/template"

	"github.com/agenttrace/agenttrace/session/document"
)

// Names of the forms in which a verdict is written.
const (
	Text     = "text"
	JUnit    = "junit"
	SARIF    = "sarif"
	Markdown = "markdown"
)

// Write writes the verdict in a form, of which file is the gate's, as the user named it.
func (v *Verdict) Write(w io.Writer, form, file string) error {
	switch form {
	case JUnit:
		return v.junit(w, file)
	case SARIF:
		return v.sarif(w, file)
	}
	_, err := io.WriteString(w, phrases.Text(form, v))
	return err
}

//go:embed words.tmpl
var wordsFile string

// phrases has a template for each form of a verdict that is a text, and the words of an assertion by its key.
var phrases = document.NewPhrases(wordsFile, template.FuncMap{
	"percents": percents, "limits": limits, "list": func(all []string) string { return strings.Join(all, ", ") },
	// cell makes a text fit into a cell of a table of Markdown.
	"cell": func(s string) string {
		return strings.NewReplacer("|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_").Replace(document.OneLine(s))
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
		return figureText(ch.What, v)
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
func (v *Verdict) Unmatched() (lines []string) {
	if len(v.Missing) > 0 {
		lines = append(lines, document.OneLine("not run now, so not compared: "+strings.Join(v.Missing, "; ")))
	}
	if len(v.New) > 0 {
		lines = append(lines, document.OneLine("not in the baseline: "+strings.Join(v.New, "; ")))
	}
	return lines
}

const maxLines = 10 // of what is listed of one assertion

type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func (v *Verdict) junit(w io.Writer, file string) error {
	suite := junitSuite{Name: file}
	for i := range v.Assertions {
		r := &v.Assertions[i]
		c := junitCase{Class: "assertions", Name: r.Name}
		if !r.Passed {
			var lines []string
			for j := range r.Failed {
				lines = append(lines, r.Failed[j].Line())
			}
			c.Failure = &junitFailure{r.Line(), strings.Join(lines, "\n")}
		}
		suite.Cases = append(suite.Cases, c)
	}
	for i := range v.Regressions {
		ch := &v.Regressions[i]
		suite.Cases = append(suite.Cases, junitCase{Class: "baseline", Name: document.OneLine(ch.Case + " " + ch.What),
			Failure: &junitFailure{document.OneLine(ch.String()), ch.Where()}})
	}
	if v.Baseline > 0 && len(v.Regressions) == 0 {
		suite.Cases = append(suite.Cases, junitCase{Class: "baseline", Name: "no regression"})
	}
	suite.Tests = len(suite.Cases)
	for i := range suite.Cases {
		if suite.Cases[i].Failure != nil {
			suite.Failures++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// sarif writes the static analysis results interchange format, version 2.1.0, in which code hosts show findings. The
// place of a finding is the gate's file, because that is in the repository.
func (v *Verdict) sarif(w io.Writer, file string) error {
	type object = map[string]any
	results := []object{}
	add := func(rule, level, text string) {
		results = append(results, object{"ruleId": rule, "level": level, "message": object{"text": text},
			"locations": []object{{"physicalLocation": object{"artifactLocation": object{"uri": file},
				"region": object{"startLine": 1}}}}})
	}
	for i := range v.Assertions {
		r := &v.Assertions[i]
		if r.Passed {
			continue
		}
		lines := []string{r.Line()}
		for j := range r.Failed[:min(maxLines, len(r.Failed))] {
			lines = append(lines, r.Failed[j].Line())
		}
		add("assertion", "error", strings.Join(lines, "\n"))
	}
	for i := range v.Regressions {
		add("regression", "error", strings.TrimSpace(v.Regressions[i].String()+"\n"+v.Regressions[i].Where()))
	}
	for i := range v.Changes {
		add("change", "note", v.Changes[i].String())
	}
	rule := func(id, text string) object { return object{"id": id, "shortDescription": object{"text": text}} }
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": object{"name": "agenttrace gate", "rules": []object{
			rule("assertion", "An assertion on sessions does not hold."),
			rule("regression", "Sessions are worse than those of the baseline, beyond chance."),
			rule("change", "Sessions differ from those of the baseline, beyond chance."),
		}}}, "results": results}},
	})
}
