package gate

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

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
	case Markdown:
		_, err := io.WriteString(w, v.markdown())
		return err
	}
	_, err := io.WriteString(w, v.text())
	return err
}

// summary is the verdict in one line.
func (v *Verdict) summary() string {
	held := 0
	for i := range v.Assertions {
		if v.Assertions[i].Passed {
			held++
		}
	}
	word := "red"
	if v.Passed {
		word = "green"
	}
	text := document.Plural(len(v.Runs), "session", "sessions")
	if n := len(v.Assertions); n > 0 {
		text = fmt.Sprintf("%d of %d assertions hold for %s", held, n, text)
	}
	text = word + ": " + text
	if v.Baseline > 0 {
		text += fmt.Sprintf(", %s against %s of the baseline",
			document.Plural(len(v.Regressions), "regression", "regressions"), document.Plural(v.Baseline, "session", "sessions"))
	}
	return text
}

func (r *Result) line() string {
	text := fmt.Sprintf("%s: %d of %d", r.Name, r.Held, r.Runs)
	if r.Sure != nil {
		text += fmt.Sprintf(", at least %.0f %% for sure", 100**r.Sure)
	}
	if r.Share < 1 {
		text += fmt.Sprintf(" (%.0f %% must hold)", 100*r.Share)
	}
	if r.Runs == 0 {
		text += "; no session is of its case"
	}
	return document.OneLine(text)
}

func (f *Failed) line() string {
	text := f.SessionID
	if f.Turn > 0 {
		text += fmt.Sprintf(", turn %d", f.Turn)
	}
	return document.OneLine(text + ": " + f.Detail)
}

// where names the runs that show a change, and what they diverge in first.
func (ch *Change) where() string {
	if ch.A == "" || ch.B == "" {
		return ""
	}
	text := "agenttrace diff " + ch.A + " " + ch.B
	if ch.First != nil {
		text += ": " + ch.First.String()
	}
	return document.OneLine(text)
}

// section are changes with their heading.
type section struct {
	Title   string
	Changes []Change
}

// sections are the changes of a verdict.
func (v *Verdict) sections() []section {
	return slices.DeleteFunc([]section{
		{"Regressions, beyond chance", v.Regressions}, {"Other changes, beyond chance", v.Changes},
		{"Worse, with too few runs to tell from chance", v.Few},
	}, func(s section) bool { return len(s.Changes) == 0 })
}

const maxLines = 10 // of what is listed of one assertion

func (v *Verdict) text() string {
	var b strings.Builder
	for i := range v.Assertions {
		r := &v.Assertions[i]
		state := document.StateError
		if r.Passed {
			state = document.StateFinished
		}
		sign, _ := document.OutcomeWords(string(state))
		fmt.Fprintf(&b, "%s %s\n", sign, r.line())
		for j := range r.Failed[:min(maxLines, len(r.Failed))] {
			fmt.Fprintf(&b, "    %s\n", r.Failed[j].line())
		}
		if more := len(r.Failed) - maxLines; more > 0 {
			fmt.Fprintf(&b, "    and %d more; --json lists all\n", more)
		}
	}
	for _, s := range v.sections() {
		fmt.Fprintf(&b, "\n%s\n", s.Title)
		for i := range s.Changes {
			fmt.Fprintf(&b, "  %s\n", document.OneLine(s.Changes[i].String()))
			if where := s.Changes[i].where(); where != "" {
				fmt.Fprintf(&b, "    %s\n", where)
			}
		}
	}
	for _, line := range v.unmatched() {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String() + v.summary() + "\n"
}

// unmatched names the cases that have no runs on the other side.
func (v *Verdict) unmatched() (lines []string) {
	if len(v.Missing) > 0 {
		lines = append(lines, document.OneLine("not run now, so not compared: "+strings.Join(v.Missing, "; ")))
	}
	if len(v.New) > 0 {
		lines = append(lines, document.OneLine("not in the baseline: "+strings.Join(v.New, "; ")))
	}
	return lines
}

// cell makes a text fit into a cell of a table of Markdown.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_").Replace(document.OneLine(s))
}

func (v *Verdict) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### agenttrace gate: %s\n\n", v.summary())
	if len(v.Assertions) > 0 {
		b.WriteString("| | assertion | holds for | |\n|---|---|--:|---|\n")
		for i := range v.Assertions {
			r := &v.Assertions[i]
			sign, detail := "❌", ""
			if r.Passed {
				sign = "✅"
			}
			if len(r.Failed) > 0 {
				detail = r.Failed[0].line()
			}
			fmt.Fprintf(&b, "| %s | %s | %d of %d | %s |\n", sign, cell(r.Name), r.Held, r.Runs, cell(detail))
		}
	}
	for _, s := range v.sections() {
		fmt.Fprintf(&b, "\n**%s**\n\n| case | what | baseline | now | p | runs | |\n|---|---|--:|--:|--:|--:|---|\n", s.Title)
		for i := range s.Changes {
			ch := &s.Changes[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2g | %d, %d | %s |\n", cell(cmp.Or(ch.Case, "all")),
				cell(cmp.Or(ch.Step, ch.What)), ch.value(ch.Was), ch.value(ch.Now), ch.P, ch.Before, ch.After, cell(ch.where()))
		}
	}
	for _, line := range v.unmatched() {
		fmt.Fprintf(&b, "\n%s\n", cell(line))
	}
	return b.String()
}

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
				lines = append(lines, r.Failed[j].line())
			}
			c.Failure = &junitFailure{r.line(), strings.Join(lines, "\n")}
		}
		suite.Cases = append(suite.Cases, c)
	}
	for i := range v.Regressions {
		ch := &v.Regressions[i]
		suite.Cases = append(suite.Cases, junitCase{Class: "baseline", Name: document.OneLine(ch.Case + " " + ch.What),
			Failure: &junitFailure{document.OneLine(ch.String()), ch.where()}})
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
		lines := []string{r.line()}
		for j := range r.Failed[:min(maxLines, len(r.Failed))] {
			lines = append(lines, r.Failed[j].line())
		}
		add("assertion", "error", strings.Join(lines, "\n"))
	}
	for i := range v.Regressions {
		add("regression", "error", strings.TrimSpace(v.Regressions[i].String()+"\n"+v.Regressions[i].where()))
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
