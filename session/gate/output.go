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
