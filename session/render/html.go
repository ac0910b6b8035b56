package render

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
)

//go:embed blocks.html transcript.html diff.html style.css
var files embed.FS

//go:embed style.css
var style string

// Style is the style of all pages, for a server that has parts of them in pages of its own.
func Style() string { return style }

// policy allows the style of the pages by its checksum, the images that are in the pages, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
}()

var htmlTemplates = template.Must(Templates().Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(style) },
	"policy": func() string { return policy },
}).ParseFS(files, "transcript.html", "diff.html"))

// Templates has the templates of messages, for a server that has them in pages of its own: "message" shows
// [document.MessageWords], "block" a [document.Block], "images" its images and "runs" what [Runs] returns.
func Templates() *template.Template {
	return template.Must(template.New("").Funcs(document.Functions()).Funcs(template.FuncMap{
		"rich": Rich, "runs": Runs,
		"cut":  func(s string) string { left, _, _ := strings.Cut(s, ";"); return left },
		"gist": func(s string) string { return document.Head(strings.TrimSpace(s), maxGist) }, "edit": edits, "open": isOpen,
		"source": func(m document.Media) template.URL { return template.URL(m.URL()) }, // of a known type, in base64
	}).ParseFS(files, "blocks.html"))
}

// maxGist is the size in bytes of the head of reasoning that is folded.
const maxGist = 160

// isOpen reports whether a block is not folded, which replaces texts as in e, or nil.
func isOpen(b document.Block, e *Edit) bool {
	return b.Kind == document.BlockTool && b.Outcome != document.OutcomeOK && b.Outcome != document.OutcomeLost ||
		e != nil && e.Added+e.Removed <= openEdit
}

// HTML writes the transcript in HTML. The same document gives the same bytes.
func HTML(w io.Writer, d *document.Document, o document.Words) error {
	if err := htmlTemplates.ExecuteTemplate(w, "transcript", o.Session(d)); err != nil {
		return fmt.Errorf("write session %s: %w", d.Session.ID, err)
	}
	return nil
}
