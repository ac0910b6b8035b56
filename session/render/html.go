package render

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session"
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

var htmlTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(Templates().Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(style) },
		"policy": func() string { return policy },
	}).ParseFS(files, "transcript.html", "diff.html"))
})

// Templates has the templates of messages, for a server that has them in pages of its own: "message" shows
// [document.MessageWords], "block" a [document.Block], "images" its images and "runs" what [Runs] returns.
func Templates() *template.Template {
	return template.Must(template.New("").Funcs(document.Functions()).Funcs(template.FuncMap{
		"rich": Rich, "runs": Runs,
		"prose": func(b document.Block) template.HTML {
			if b.Colored {
				return rich(b.Text, MaxFenced)
			}
			return Rich(b.Text)
		},
		"section": func(b document.Block, s document.Section) shown {
			return shown{section(b, s), b.Colored}
		},
		"compared": func(c document.Change) (e Edit) {
			e.compare(session.Deref(c.A), session.Deref(c.B))
			return e
		},
		"colored": func(all shown, v Value) shown { return shown{v, all.Colored} },
		"code": func(v shown) []Run {
			if v.Colored && v.Lines {
				return Code(v.Text, v.Lang)
			}
			return Runs(v.Text)
		},
		"cut":  func(s string) string { left, _, _ := strings.Cut(s, ";"); return left },
		"gist": func(s string) string { return document.Head(strings.TrimSpace(s), maxGist) }, "edit": edits, "open": isOpen,
		"source": func(m document.Media) template.URL { return template.URL(m.URL()) }, // of a known type, in base64
	}).ParseFS(files, "blocks.html"))
}

// shown is a value of a page that has code in colors, or not.
type shown struct {
	Value
	Colored bool
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
	if err := htmlTemplates().ExecuteTemplate(w, "transcript", o.Session(d)); err != nil {
		return fmt.Errorf("write session %s: %w", d.Session.ID, err)
	}
	return nil
}

// Rich is a text with its Markdown, in an element of its own that holds nothing but the
// tags below, each of them closed. A text that is empty has none.
func Rich(text string) template.HTML { return rich(text, 0) }

// Fenced is how many bytes the fenced code of a text has.
func Fenced(text string) (n int) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			n += len(part)
		}
	}
	return n
}

// rich has colors in so many bytes of code.
func rich(text string, colored int) template.HTML {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	w := textWriter{colored: colored}
	blocks, ok := parseText(text)
	if ok {
		w.element("div", ` class="rich"`, blocks)
	} else {
		w.WriteString(`<div class="text">`)
		w.text(strings.Trim(text, "\n"))
		w.WriteString("</div>")
	}
	return template.HTML(w.String()) // all that is not of this file is escaped
}

type textWriter struct {
	strings.Builder
	cell    string // the element of a cell of the row that is written
	colored int    // how many bytes of code can have colors
}

func (w *textWriter) text(s string) { template.HTMLEscape(w, []byte(s)) }

// element writes nodes between tags. The attributes are markup.
func (w *textWriter) element(name, attributes string, children []*node) {
	w.WriteString("<" + name + attributes + ">")
	w.nodes(children)
	w.WriteString("</" + name + ">")
}

func (w *textWriter) nodes(all []*node) {
	for _, n := range all {
		w.node(n)
	}
}

// code writes code, with colors if it is not too long for that.
func (w *textWriter) code(n *node) {
	if n.Lang == "" || len(n.Text) > min(maxFenced, w.colored) {
		w.text(n.Text)
		return
	}
	w.colored -= len(n.Text)
	for _, run := range Code(n.Text, n.Lang) {
		if run.Class == "" {
			w.text(run.Text)
			continue
		}
		w.WriteString(`<span class="` + run.Class + `">`)
		w.text(run.Text)
		w.WriteString("</span>")
	}
}

// fixed is what stands before and after nodes that have no attributes, and are not just the element of their kind.
var fixed = map[nodeKind][2]string{nodeLine: {}, nodeCode: {"<pre><code>", "</code></pre>"}, nodeRule: {"<hr>"},
	nodeCodeSpan: {"<code>", "</code>"}, nodeBreak: {"<br>\n"}}

func (w *textWriter) node(n *node) {
	if around, is := fixed[n.Kind]; is {
		w.WriteString(around[0])
		w.code(n)
		w.nodes(n.Children)
		w.WriteString(around[1])
		return
	}
	name, attributes := string(n.Kind), ""
	switch n.Kind {
	case nodeText:
		w.text(n.Text)
		return
	case nodeBox:
		attributes = `"to do"`
		if n.Checked {
			attributes = `"done" checked`
		}
		w.WriteString(`<input type="checkbox" aria-label=` + attributes + ` disabled> `)
		return
	case nodeHeading:
		name = "h" + strconv.Itoa(n.Level+3) // below that of a message
	case nodeList:
		if n.Ordered {
			name = "ol"
		}
		if n.Ordered && n.Start != 1 {
			attributes = ` start="` + strconv.Itoa(n.Start) + `"`
		}
		if !n.Tight {
			attributes += ` class="loose"`
		}
	case nodeItem:
		if len(n.Children) > 0 && len(n.Children[0].Children) > 0 && n.Children[0].Children[0].Kind == nodeBox {
			attributes = ` class="task"` // the box takes the place of the mark
		}
	case nodeTable:
		w.WriteString(`<div class="scroll">`)
		w.cell = "th"
		defer w.WriteString("</div>")
	case nodeRow:
		defer func() {
			w.WriteByte('\n')
			w.cell = "td"
		}()
	case nodeCell:
		if name = w.cell; n.Align != "" {
			attributes = ` align="` + n.Align + `"`
		}
	case nodeLink:
		attributes = ` href="` + template.HTMLEscapeString(n.To) + `" rel="noopener noreferrer nofollow"`
	}
	w.element(name, attributes, n.Children)
}
