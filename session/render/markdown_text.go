package render

import (
	"strconv"
	"strings"
)

// quote writes a text that somebody wrote as a quotation, with its Markdown. The Markdown
// is not that of the text: it is written again, in forms that every parser reads alike, so
// that what is closed here is closed in every viewer, and what was text stays text.
func quote(text string) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	var body string
	if blocks, ok := parseText(text); ok {
		body = blocksOf(blocks, false)
	} else {
		body = prose(strings.Trim(text, "\n"))
	}
	return indented(body, "> ", "> ") + "\n\n"
}

// indented is a text with first before its first line and rest before the others.
func indented(text, first, rest string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if line == "" {
			first = strings.TrimRight(first, " ")
		}
		b.WriteString(first + line)
		first = rest
	}
	return b.String()
}

// blocksOf are blocks with an empty line between them; in a tight item they are without where that is safe.
func blocksOf(all []*node, tight bool) string {
	var b strings.Builder
	for i, n := range all {
		if i > 0 {
			b.WriteString("\n")
			before := all[i-1].Kind
			follows := n.Kind == nodeCode || n.Kind == nodeList && (!n.Ordered || n.Start == 1)
			if !tight || !follows || before != nodeLine && before != nodeCode {
				b.WriteString("\n")
			}
		}
		b.WriteString(blockOf(n))
	}
	return strings.Trim(b.String(), "\n")
}

func blockOf(n *node) string {
	switch n.Kind {
	case nodeParagraph, nodeLine:
		return (&lineWriter{begins: true}).write(n.Children)
	case nodeHeading:
		return strings.Repeat("#", 3+n.Level) + " " + strings.ReplaceAll(new(lineWriter).write(n.Children), "\\\n", " ")
	case nodeQuote:
		return indented(blocksOf(n.Children, false), "> ", "> ")
	case nodeList:
		return listOf(n)
	case nodeCode:
		fence := fenceFor(n.Text)
		return fence + n.Lang + "\n" + n.Text + "\n" + fence
	case nodeRule:
		return "___" // which is not an item, wherever it stands
	case nodeTable:
		return tableOf(n)
	}
	return ""
}

func listOf(n *node) string {
	var b strings.Builder
	for i, item := range n.Children {
		if i > 0 {
			b.WriteByte('\n')
			if !n.Tight {
				b.WriteByte('\n')
			}
		}
		marker := string(n.Marker) + " "
		if n.Ordered {
			marker = strconv.Itoa(min(n.Start+i, 999_999_999)) + marker
		}
		b.WriteString(indented(blocksOf(item.Children, n.Tight), marker, strings.Repeat(" ", len(marker))))
	}
	return b.String()
}

func tableOf(n *node) string {
	var b strings.Builder
	columns := 0
	for i, row := range n.Children {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteByte('|')
		for _, c := range row.Children {
			b.WriteString(" " + (&lineWriter{cell: true}).write(c.Children) + " |")
		}
		for range columns - len(row.Children) {
			b.WriteString(" |")
		}
		if i > 0 {
			continue
		}
		columns = len(row.Children)
		b.WriteString("\n|")
		for _, c := range row.Children {
			b.WriteString(map[string]string{"": "---|", "left": ":---|", "right": "---:|", "center": ":---:|"}[c.Align])
		}
	}
	return b.String()
}

// lineWriter writes what is in a paragraph, a heading or a cell.
type lineWriter struct {
	strings.Builder
	cell   bool
	begins bool // a line, which a heading and a cell do not
	last   byte // that a mark ended with, or 0
}

func (w *lineWriter) write(all []*node) string {
	for _, n := range all {
		w.node(n)
	}
	return strings.TrimRight(w.String(), " ")
}

func (w *lineWriter) node(n *node) {
	switch n.Kind {
	case nodeText:
		text := escape(n.Text)
		if w.begins {
			text = begin(n.Text)
		}
		if text != "" {
			w.WriteString(text)
			w.begins, w.last = false, 0
		}
	case nodeBreak:
		w.WriteString("\\\n")
		w.begins, w.last = true, 0
	case nodeCodeSpan:
		ticks := strings.Repeat("`", longestRun(n.Text, '`')+1)
		text := n.Text
		if strings.Trim(text, " ") == "" {
			return // which is not code in Markdown
		}
		if w.cell {
			text = strings.ReplaceAll(text, "|", "\\|") // or it ends the cell
		}
		if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.HasPrefix(text, " ") &&
			strings.HasSuffix(text, " ") {
			text = " " + text + " "
		}
		w.mark(ticks + text + ticks)
	case nodeEmphasis:
		w.around("*", n)
	case nodeStrong:
		w.around("**", n)
	case nodeStrike:
		w.around("~~", n)
	case nodeLink:
		to := strings.ReplaceAll(n.To, "|", "%7C")
		if len(n.Children) == 1 && n.Children[0].Kind == nodeText && n.Children[0].Text == to {
			w.mark("<" + to + ">")
			return
		}
		w.around("[", n)
		w.WriteString("(<" + to + ">)")
	case nodeBox:
		if n.Checked {
			w.mark("[x] ")
		} else {
			w.mark("[ ] ")
		}
	}
}

// mark writes what is not text.
func (w *lineWriter) mark(s string) {
	if w.last == s[0] {
		w.WriteString(separator)
	}
	w.WriteString(s)
	w.begins, w.last = false, s[len(s)-1]
}

func (w *lineWriter) around(mark string, n *node) {
	if w.last == mark[0] && w.last != 0 {
		w.WriteString(separator)
	}
	w.WriteString(mark)
	w.begins, w.last = false, 0
	for _, c := range n.Children {
		w.node(c)
	}
	if mark == "[" {
		mark = "]"
	}
	w.WriteString(mark)
	w.last = mark[0]
}
