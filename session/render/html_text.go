package render

import (
	"html/template"
	"strconv"
	"strings"
)

// Rich is a text with its Markdown, in an element of its own that holds nothing but the
// tags below, each of them closed. A text that is empty has none.
func Rich(text string) template.HTML {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	var w textWriter
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
	cell string // the element of a cell of the row that is written
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

func (w *textWriter) node(n *node) {
	name, attributes := string(n.Kind), ""
	switch n.Kind {
	case nodeText:
		w.text(n.Text)
		return
	case nodeLine:
		w.nodes(n.Children)
		return
	case nodeCode, nodeCodeSpan:
		before, after := "<code>", "</code>"
		if n.Kind == nodeCode {
			before, after = "<pre><code>", "</code></pre>"
		}
		w.WriteString(before + template.HTMLEscapeString(n.Text) + after)
		return
	case nodeRule:
		w.WriteString("<hr>")
		return
	case nodeBreak:
		w.WriteString("<br>\n")
		return
	case nodeBox:
		if n.Checked {
			attributes = " checked"
		}
		w.WriteString(`<input type="checkbox"` + attributes + ` disabled> `)
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
