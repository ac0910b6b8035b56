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

type textWriter struct{ strings.Builder }

func (w *textWriter) text(s string) { template.HTMLEscape(w, []byte(s)) }

// element writes nodes between tags. The attributes are markup.
func (w *textWriter) element(name, attributes string, children []*node) {
	w.WriteString("<" + name + attributes + ">")
	for _, n := range children {
		w.node(n)
	}
	w.WriteString("</" + name + ">")
}

func (w *textWriter) node(n *node) {
	switch n.Kind {
	case nodeText:
		w.text(n.Text)
	case nodeLine:
		for _, c := range n.Children {
			w.node(c)
		}
	case nodeHeading:
		w.element("h"+strconv.Itoa(n.Level+3), "", n.Children) // below that of a message
	case nodeList:
		w.list(n)
	case nodeItem:
		attributes := ""
		if len(n.Children) > 0 && len(n.Children[0].Children) > 0 && n.Children[0].Children[0].Kind == nodeBox {
			attributes = ` class="task"` // the box takes the place of the mark
		}
		w.element("li", attributes, n.Children)
	case nodeCode:
		w.WriteString("<pre><code>" + template.HTMLEscapeString(n.Text) + "</code></pre>")
	case nodeTable:
		w.table(n)
	case nodeCodeSpan:
		w.WriteString("<code>" + template.HTMLEscapeString(n.Text) + "</code>")
	case nodeLink:
		w.element("a", ` href="`+template.HTMLEscapeString(n.To)+`" rel="noopener noreferrer nofollow"`, n.Children)
	case nodeRule:
		w.WriteString("<hr>")
	case nodeBreak:
		w.WriteString("<br>\n")
	case nodeBox:
		checked := ""
		if n.Checked {
			checked = " checked"
		}
		w.WriteString(`<input type="checkbox"` + checked + ` disabled> `)
	default:
		w.element(string(n.Kind), "", n.Children)
	}
}

func (w *textWriter) list(n *node) {
	name, attributes := "ul", ""
	if n.Ordered {
		name = "ol"
		if n.Start != 1 {
			attributes = ` start="` + strconv.Itoa(n.Start) + `"`
		}
	}
	if !n.Tight {
		attributes += ` class="loose"`
	}
	w.element(name, attributes, n.Children)
}

func (w *textWriter) table(n *node) {
	w.WriteString(`<div class="scroll"><table>`)
	cell := "th"
	for _, row := range n.Children {
		w.WriteString("<tr>")
		for _, c := range row.Children {
			attributes := ""
			if c.Align != "" {
				attributes = ` align="` + c.Align + `"`
			}
			w.element(cell, attributes, c.Children)
		}
		w.WriteString("</tr>\n")
		cell = "td"
	}
	w.WriteString("</table></div>")
}
