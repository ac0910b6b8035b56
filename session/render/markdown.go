package render

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/document"
)

//go:embed transcript.md.tmpl
var markdownPage string

var markdownTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(document.Functions()).Funcs(template.FuncMap{
		"escape": escape, "start": start, "link": link, "quote": quote, "code": code,
		"fold": details, "emphasized": emphasized,
		"named": func(name string, all []string) any { return map[string]any{"Name": name, "Value": all} },
		"text":  func(s string) document.Text { return document.Text{Body: s} },
	}).Parse(markdownPage))
})

// Markdown writes the transcript in Markdown. The same document gives the same bytes. Transcripts may
// follow one another.
func Markdown(w io.Writer, d *document.Document, o document.Words) error {
	b := bufio.NewWriter(w)
	err := markdownTemplate().ExecuteTemplate(b, "transcript", o.Session(d))
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
	maximum := 0
	for run := range strings.FieldsFuncSeq(s, func(r rune) bool { return r != rune(c) }) {
		maximum = max(maximum, len(run))
	}
	return maximum
}

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
		box := "[ ] "
		if n.Checked {
			box = "[x] "
		}
		w.mark(box)
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
	w.mark(mark)
	w.last = 0
	for _, c := range n.Children {
		w.node(c)
	}
	if mark == "[" {
		mark = "]"
	}
	w.WriteString(mark)
	w.last = mark[0]
}

// escape makes text of one line that Markdown and HTML leave as it is, and of which GitHub
// notifies nobody: neither a name after an at sign nor the number of an issue.
func escape(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '`', '*', '_', '[', ']', '<', '>', '|', '~', '$', '#', '!':
			b.WriteByte('\\')
			b.WriteByte(c)
			if c == '#' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9' {
				b.WriteString(separator)
			}
		case '&':
			b.WriteString("&amp;")
		case '@':
			b.WriteByte(c)
			if (i == 0 || !wordly(s[i-1])) && i+1 < len(s) && wordly(s[i+1]) {
				b.WriteString(separator)
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// separator is between two characters that would mean something together. It shows
// nothing, and who copies what is shown does not get it.
const separator = "<!-- -->"

func wordly(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// prose is text of many lines, each of which stays one.
func prose(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = start(l)
		if i+1 < len(lines) && lines[i] != "" && strings.TrimSpace(lines[i+1]) != "" {
			lines[i] += "\\" // a break, which a newline is not
		}
	}
	return strings.Join(lines, "\n")
}

// start escapes a line, see begin, without the spaces at its end.
func start(l string) string { return strings.TrimRight(begin(l), " ") }

// begin escapes a text of which the beginning could be that of a list, a heading, a
// table, a quotation or indented code.
func begin(l string) string {
	body := strings.TrimLeft(l, " ")
	if body == "" {
		return ""
	}
	indent := strings.Repeat("\u00a0", len(l)-len(body))
	out := escape(body)
	switch digits := strings.TrimLeft(body, "0123456789"); {
	case strings.HasPrefix(body, "-"), strings.HasPrefix(body, "+"), strings.HasPrefix(body, "="),
		strings.HasPrefix(body, ":"):
		out = "\\" + out
	case len(digits) < len(body) && (strings.HasPrefix(digits, ".") || strings.HasPrefix(digits, ")")):
		n := len(body) - len(digits)
		out = body[:n] + "\\" + escape(digits)
	}
	return indent + out
}

// link is a link to an address, or only its text where there is none.
func link(text, to string) string {
	if to == "" {
		return escape(text)
	}
	if u, err := url.Parse(to); err == nil {
		to = u.String()
	}
	// Between angle brackets only these end the address.
	to = strings.NewReplacer("<", "%3C", ">", "%3E", "\\", "%5C", "\n", "", " ", "%20").Replace(to)
	return "[" + escape(text) + "](<" + to + ">)"
}

// losses are what no transcript shows.
var losses = codec.ForeignLosses(codec.Losses{
	{What: "ids and times", Note: "those of messages and parts"},
	{What: "agents and models", Note: "agents of messages"},
	{What: "columns of the session", Note: "when it was archived, and its metadata"},
	{What: "borders of messages, steps and texts", Note: "gaps in the order of parts"},
	{What: "tokens and costs of messages", Note: "tokens by kind"},
	{What: "ends of turns", Note: "stop reasons"},
	{What: "permissions", Note: "details of decisions"},
	{What: "tags, notes and scores", Note: "their authors and times"},
})

// Explain lists what a transcript does not show of a session, full or cut.
func Explain(s *codec.Session, full bool) []codec.Loss {
	losses := losses.Of(s)
	if parts := 0; !full {
		for i := range s.Messages {
			parts += len(s.Messages[i].Parts)
		}
		losses = codec.AddLoss(losses, "ends of long inputs, outputs and prompts, if any", "with --full", parts)
	}
	return losses
}
