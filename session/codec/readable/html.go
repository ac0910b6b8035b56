// Package readable writes sessions as transcripts for people, in Markdown for an issue, a review or a notebook, and in
// one HTML file that can be sent to anybody: every turn, message and tool call, decisions, compactions, errors and a
// table of tokens. They are exports only, and lose what a reader does not look at: ids of parts, traces, metadata of the
// host. [HTMLDiff] has two sessions side by side. What things are called is decided in package document.
//
// Reasoning, and the input and output of tools, are folded with <details>, which GitHub, GitLab and most viewers of
// Markdown know, and are cut where they are long.
//
// The HTML file loads nothing and runs nothing: its style is in it, there is no script, and a content security policy
// forbids both. It is light or dark as its reader's system is, fits a phone, and prints. Images that were sent or that a
// tool returned are in it. Markdown loads no image, and GitHub notifies nobody.
//
// What people and models wrote is shown with its Markdown; parseText decides what of it may be more than words:
//
//   - HTML is text. So are definitions of links, which would hold for other texts too.
//   - A link leads to http, https or mailto, and opens without a referrer. Of another one its words and its address
//     are left.
//   - An image is a link to it, and is not loaded.
//   - Characters that an entity stands for are fit to be shown, as all others are.
//   - Headings are below those of the transcript, and in Markdown nothing reaches beyond its quotation.
//
// All else that comes from the session is text: tools' input and output, prompts, errors.
package readable

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/printable"
)

// Options state how much is written. The zero value is ready for use.
type Options = document.Words

//go:embed blocks.html transcript.html diff.html style.css text.css diff.css
var files embed.FS

var (
	htmlFunctions = template.FuncMap{
		"style": func(name string) (template.CSS, error) {
			b, err := files.ReadFile(name)
			return template.CSS(b), err
		},
		"policy":   func() string { return policy },
		"join":     func(all []string) string { return printable.Join(all...) },
		"rich":     Rich,
		"source":   func(m printable.Media) template.URL { return template.URL(m.URL()) }, // of a known type, in base64
		"segments": segments,
	}
	// Either page says on its own how it shows the texts of messages.
	htmlTemplate = template.Must(template.New("transcript.html").Funcs(Options{}.Functions()).Funcs(htmlFunctions).ParseFS(
		files, "blocks.html", "transcript.html"))
	diffTemplate = template.Must(template.New("diff.html").Funcs(Options{}.Functions()).Funcs(htmlFunctions).ParseFS(files,
		"blocks.html", "diff.html"))
)

// stylesheets are the files with the style of the pages.
var stylesheets = []string{"style.css", "text.css", "diff.css"}

// Style is the style of all pages, for a server that has parts of them in pages of its own.
func Style() string {
	var all strings.Builder
	for _, name := range stylesheets {
		b, _ := files.ReadFile(name) // it is embedded
		all.Write(b)
	}
	return all.String()
}

// policy allows the style of the pages by its checksum, the images that are in the pages, and nothing else.
var policy = func() string {
	var sources strings.Builder
	for _, name := range stylesheets {
		b, _ := files.ReadFile(name) // it is embedded
		sum := sha256.Sum256(b)
		sources.WriteString(" 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'")
	}
	return "default-src 'none'; img-src data:; style-src" + sources.String() + "; base-uri 'none'; form-action 'none'"
}()

// HTML writes the transcript in HTML. The same document gives the same bytes.
func HTML(w io.Writer, d *document.Document, o Options) error {
	if err := execute(w, htmlTemplate, o, d); err != nil {
		return fmt.Errorf("write session %s: %w", d.Session.ID, err)
	}
	return nil
}

// ready are the pages with the words of options without side files, by what these words
// depend on: cloning and escaping a template takes longer than writing a short session.
var ready sync.Map

// execute fills in a page, with the words as the options say.
func execute(w io.Writer, page *template.Template, o Options, data any) error {
	type key struct {
		page *template.Template
		full bool
		zone *time.Location
	}
	k := key{page, o.Full, o.Zone}
	if known, ok := ready.Load(k); ok && o.Files == nil {
		return known.(*template.Template).Execute(w, data)
	}
	t, err := page.Clone()
	if err != nil {
		return err
	}
	t.Funcs(o.Functions()).Funcs(htmlFunctions)
	if o.Files == nil {
		ready.Store(k, t)
	}
	return t.Execute(w, data)
}
