package render

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
	"text/template"

	"github.com/agenttrace/agenttrace/session/document"
)

//go:embed transcript.md.tmpl
var markdownPage string

var markdownTemplate = template.Must(template.New("").Funcs(document.Functions()).Funcs(template.FuncMap{
	"escape": escape, "start": start, "link": link, "quote": quote, "code": code,
	"fold": details, "emphasized": emphasized,
	"named": func(name string, all []string) any { return map[string]any{"Name": name, "Value": all} },
	"text":  func(s string) document.Text { return document.Text{Body: s} },
}).Parse(markdownPage))

// Markdown writes the transcript in Markdown. The same document gives the same bytes. Transcripts may
// follow one another.
func Markdown(w io.Writer, d *document.Document, o document.Words) error {
	b := bufio.NewWriter(w)
	err := markdownTemplate.ExecuteTemplate(b, "transcript", o.Session(d))
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("write session %s: %w", d.Session.ID, err)
	}
	return nil
}

// emphasized are facts in a paragraph of their own.
func emphasized(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return "*" + escape(strings.Join(all, " · ")) + "*\n\n"
}

// details writes what only opens when it is asked to.
func details(title string, content ...string) string {
	return "<details><summary>" + html.EscapeString(title) + "</summary>\n\n" + strings.Join(content, "") +
		"</details>\n\n"
}

// code writes a text between fences that no line of it can close.
func code(t document.Text) string {
	var b strings.Builder
	if t.Body != "" {
		fence := fenceFor(t.Body)
		b.WriteString(fence + "\n" + strings.TrimSuffix(t.Body, "\n") + "\n" + fence + "\n\n")
	}
	if t.Cut != "" {
		b.WriteString("*… " + escape(t.Cut) + "*\n\n")
	}
	return b.String()
}

// fenceFor is a fence that no line of a text can close.
func fenceFor(s string) string { return strings.Repeat("`", max(3, longestRun(s, '`')+1)) }

func longestRun(s string, c byte) int {
	maximum, run := 0, 0
	for i := range len(s) {
		if s[i] != c {
			run = 0
			continue
		}
		run++
		maximum = max(maximum, run)
	}
	return maximum
}
