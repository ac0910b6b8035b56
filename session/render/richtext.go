package render

import (
	"bytes"
	"html"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	render "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/document"
)

// nodeKind is what a node is: the element that it is in HTML.
type nodeKind string

const (
	// Blocks, which parseText returns, and quotations and items hold. Of a table the first row is the titles, and no row
	// has more cells than it.
	nodeParagraph nodeKind = "p"
	nodeLine      nodeKind = "" // of an item that is not set apart as a paragraph
	nodeHeading   nodeKind = "h"
	nodeQuote     nodeKind = "blockquote"
	nodeList      nodeKind = "ul"
	nodeItem      nodeKind = "li"
	nodeCode      nodeKind = "pre"
	nodeRule      nodeKind = "hr"
	nodeTable     nodeKind = "table"
	nodeRow       nodeKind = "tr"
	nodeCell      nodeKind = "td"

	// Inlines. An emphasis, strong, strike or link holds inlines, but none of its own kind however deep.
	nodeText     nodeKind = "text" // words of one line
	nodeCodeSpan nodeKind = "code"
	nodeEmphasis nodeKind = "em"
	nodeStrong   nodeKind = "strong"
	nodeStrike   nodeKind = "del"
	nodeLink     nodeKind = "a"
	nodeBreak    nodeKind = "br"    // the end of a line that its writer ended
	nodeBox      nodeKind = "input" // of a task
)

// kinds are the nodes that hold what those of the parser do.
var kinds = map[ast.NodeKind]nodeKind{
	ast.KindParagraph: nodeParagraph, ast.KindTextBlock: nodeLine, ast.KindHeading: nodeHeading,
	ast.KindBlockquote: nodeQuote, ast.KindList: nodeList, ast.KindListItem: nodeItem,
	ast.KindThematicBreak: nodeRule, extast.KindTable: nodeTable, extast.KindTableHeader: nodeRow,
	extast.KindTableRow: nodeRow, extast.KindTableCell: nodeCell, extast.KindTaskCheckBox: nodeBox,
}

// node is a piece of a text. Its strings are sanitized and not escaped for any markup.
type node struct {
	Kind     nodeKind
	Children []*node
	// Text is that of words and code. Only a block of code has more than one line, and Lang, the name of its language.
	Text, Lang string
	// Level is that of a heading, from 1 to 3: the highest of a text has 1.
	Level int
	// Ordered and Start are of a list that counts, from 0 to 999999999. Marker stands before its items if it does not,
	// and behind the numbers if it does. Items of one that is Tight are not set apart.
	Ordered, Tight bool
	Start          int
	Marker         byte
	// Align is "left", "right", "center" or "" for a cell.
	Align string
	// To is where a link leads to: printable ASCII without spaces, of which the scheme is http, https or mailto.
	To string
	// Checked is a box that has a mark.
	Checked bool
}

var markdownParser = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(without(parser.DefaultBlockParsers(), parser.NewHTMLBlockParser())...),
		parser.WithInlineParsers(append(without(parser.DefaultInlineParsers(), parser.NewRawHTMLParser()),
			util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
			util.Prioritized(
				extension.NewLinkifyParser(extension.WithLinkifyAllowedProtocols([]string{"http", "https"})), 999),
			util.Prioritized(extension.NewStrikethroughParser(), 500),
		)...),
		// Not that of link definitions.
		parser.WithParagraphTransformers(util.Prioritized(extension.NewTableParagraphTransformer(), 200)),
	)
})

func without(all []util.PrioritizedValue, one any) []util.PrioritizedValue {
	return slices.DeleteFunc(all, func(v util.PrioritizedValue) bool { return v.Value == one })
}

// parseText reports what blocks a text is made of. It is false where a text is built so that it would take long to
// read, or nests deeper than a writer does: it is to be shown as it is. It takes time in proportion to the text.
func parseText(body string) (blocks []*node, ok bool) {
	// Whatever a text does to the parser, it is still a text.
	defer func() {
		if recover() != nil {
			blocks, ok = nil, false
		}
	}()
	return parse(body)
}

func parse(body string) ([]*node, bool) {
	if !simple(body) {
		return nil, false
	}
	source := []byte(body)
	r := reader{source: source, top: 6, in: make(map[nodeKind]bool)}
	doc := markdownParser().Parse(text.NewReader(source))
	if !r.survey(doc, 1) {
		return nil, false
	}
	return r.children(doc), true
}

// reader makes nodes of what was parsed.
type reader struct {
	source []byte
	top    int // level of the highest heading
	// What the node that is read is in.
	in   map[nodeKind]bool
	cell bool
}

// survey finds the highest heading, and whether what was parsed nests no deeper than it may.
func (r *reader) survey(n ast.Node, depth int) (fits bool) {
	if h, is := n.(*ast.Heading); is {
		r.top = min(r.top, h.Level)
	}
	fits = depth <= maxDepth
	for c := n.FirstChild(); c != nil && fits; c = c.NextSibling() {
		fits = r.survey(c, depth+1)
	}
	return fits
}

// children are what a node holds. Words that follow each other are one.
func (r *reader) children(parent ast.Node) (all []*node) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		for _, one := range r.read(n) {
			if last := len(all) - 1; last >= 0 && one.Kind == nodeText && all[last].Kind == nodeText {
				all[last].Text += one.Text
			} else {
				all = append(all, one)
			}
		}
	}
	return all
}

func (r *reader) read(n ast.Node) []*node {
	kind, holds := kinds[n.Kind()]
	one := &node{Kind: kind}
	switch n := n.(type) {
	case *ast.Heading:
		one.Level = min(n.Level-r.top+1, 3)
	case *ast.List:
		one.Ordered, one.Start, one.Marker, one.Tight = n.IsOrdered(), n.Start, n.Marker, n.IsTight
	case *ast.CodeBlock, *ast.FencedCodeBlock:
		one.Kind, one.Text = nodeCode, strings.TrimSuffix(string(n.Lines().Value(r.source)), "\n")
		if fenced, is := n.(*ast.FencedCodeBlock); is {
			if s := string(fenced.Language(r.source)); languageName().MatchString(s) {
				one.Lang = s[:min(len(s), 20)]
			}
		}
		return []*node{one}
	case *extast.TableCell:
		r.cell = true
		defer func() { r.cell = false }()
		if n.Alignment != extast.AlignNone {
			one.Align = n.Alignment.String()
		}
	case *extast.TaskCheckBox:
		one.Checked = n.IsChecked
	case *ast.Text:
		one.Kind, one.Text = nodeText, r.words(n.Segment.Value(r.source))
		if n.SoftLineBreak() || n.HardLineBreak() {
			return []*node{one, {Kind: nodeBreak}}
		}
		return []*node{one}
	case *ast.CodeSpan:
		one.Kind, one.Text = nodeCodeSpan, r.code(n)
		return []*node{one}
	case *ast.Emphasis:
		if n.Level == 2 {
			return r.within(nodeStrong, n)
		}
		return r.within(nodeEmphasis, n)
	case *extast.Strikethrough:
		return r.within(nodeStrike, n)
	case *ast.AutoLink:
		return r.autoLink(n)
	case *ast.Link:
		return r.link(n, n.Destination)
	case *ast.Image:
		return r.link(n, n.Destination)
	}
	one.Children = r.children(n)
	if !holds {
		return one.Children
	}
	for k := 1; kind == nodeTable && k < len(one.Children); k++ {
		for i, c := range one.Children[k].Children {
			c.Align = one.Children[0].Children[i].Align // which one that was not written lacks
		}
	}
	return []*node{one}
}

var languageName = lazy.Regexp(`^[a-zA-Z0-9+#._-]*$`)

// within is a node of a kind, or what is in it where it is in such a node already.
func (r *reader) within(k nodeKind, n ast.Node) []*node {
	if r.in[k] {
		return r.children(n)
	}
	r.in[k] = true
	defer func() { r.in[k] = false }()
	children := r.children(n)
	if len(children) == 0 {
		return nil
	}
	return []*node{{Kind: k, Children: children}}
}

// maxAddress is as much as is shown of an address that is no link.
const maxAddress = 120

func (r *reader) link(n ast.Node, destination []byte) []*node {
	to := address(destination, true)
	if to == "" || r.in[nodeLink] {
		all := r.children(n)
		shown := []rune(r.words(destination))
		if len(shown) > maxAddress {
			shown = append(shown[:maxAddress], '…')
		}
		if len(shown) == 0 || r.in[nodeLink] || len(all) == 1 && all[0].Text == string(shown) {
			return all
		}
		code := &node{Kind: nodeCodeSpan, Text: string(shown)}
		if len(all) == 0 {
			return []*node{code}
		}
		return append(append(all, &node{Kind: nodeText, Text: " ("}), code, &node{Kind: nodeText, Text: ")"})
	}
	link := r.within(nodeLink, n)
	if link == nil {
		link = []*node{{Kind: nodeLink, Children: []*node{{Kind: nodeText, Text: to}}}}
	}
	link[0].To = to
	return link
}

func (r *reader) autoLink(n *ast.AutoLink) []*node {
	words := []*node{{Kind: nodeText, Text: document.Sanitize(string(n.Label(r.source)))}}
	to := string(n.URL(r.source))
	if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(to), "mailto:") {
		to = "mailto:" + to
	}
	if to = address([]byte(to), false); to == "" || r.in[nodeLink] {
		return words
	}
	return []*node{{Kind: nodeLink, To: to, Children: words}}
}

// address is one that a reader may be sent to, or "".
func address(destination []byte, resolve bool) string {
	to := string(util.URLEscape(destination, resolve))
	lower := strings.ToLower(to)
	if !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") &&
		!strings.HasPrefix(lower, "mailto:") {
		return ""
	}
	for i := range len(to) {
		if to[i] <= ' ' || to[i] >= 0x7f || strings.IndexByte("<>\"'\\`", to[i]) >= 0 {
			return ""
		}
	}
	return to
}

// words are a stretch of text in one line, without escapes and entities.
func (r *reader) words(segment []byte) string {
	var b bytes.Buffer
	w := util.BufWriter(&plainWriter{&b})
	render.DefaultWriter.Write(w, segment)
	// What the writer wrote is escaped for HTML in full.
	return document.Flat(html.UnescapeString(b.String()))
}

func (r *reader) code(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, is := c.(*ast.Text); is {
			b.Write(t.Segment.Value(r.source))
		}
	}
	s := strings.ReplaceAll(b.String(), "\n", " ")
	if r.cell {
		s = strings.ReplaceAll(s, `\|`, "|") // a bar that did not end the cell
	}
	return s
}

// plainWriter is a buffer as the library wants it.
type plainWriter struct{ *bytes.Buffer }

func (plainWriter) Available() int { return 0 }
func (plainWriter) Buffered() int  { return 0 }
func (plainWriter) Flush() error   { return nil }

// What is beyond is no text that somebody wrote, and takes the parser more than time in proportion to the text.
const (
	// maxDepth is how deep nodes are in each other.
	maxDepth = 100
	// maxMarkers is how many quotations and items a line opens.
	maxMarkers = 40
	// maxCells bounds the cells of tables, of which a row of one cell gets as many as the titles have.
	maxCells = 1 << 18
	// maxWork bounds the sum, over the stretches of a text, of their delimiters times
	// their bytes: for a delimiter the parser may look at all that follows or precedes.
	maxWork = 400_000_000
)

// simple reports whether the parser has little to do with a text. It looks at lines and errs on the side of more work:
// code in a fence counts as well.
func simple(body string) bool {
	var work, cells int
	var bytes, delimiters, lines, columns int // of a stretch
	for line := range strings.SplitSeq(body, "\n") {
		if n := markers(line); n > maxMarkers || n > 0 && len(line)-len(strings.TrimLeft(line, " ")) > 2*maxDepth {
			return false
		}
		if begins(line) {
			work += bytes * delimiters
			cells += lines * columns
			bytes, delimiters, lines, columns = 0, 0, 0, 0
		}
		lines++
		columns = max(columns, columnsOf(line))
		bytes += len(line) + 1
		for i := range len(line) {
			if strings.IndexByte("*_~[]()<`!", line[i]) >= 0 {
				delimiters++
			}
		}
		if work+bytes*delimiters > maxWork || cells+lines*columns > maxCells {
			return false
		}
	}
	return true
}

// begins is true of lines that cannot go on with a paragraph: those that are empty, or begin an item.
func begins(line string) bool {
	body := strings.TrimLeft(line, " ")
	if body == "" {
		return true
	}
	return len(line)-len(body) < 4 && len(body) > 2 && strings.IndexByte("-*+", body[0]) >= 0 && body[1] == ' ' &&
		strings.Trim(body, "-*+ ") != ""
}

// markers is how many quotations and items a line may open.
func markers(line string) int {
	n := 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '>':
			n++
		case c == '-', c == '+', c == '*', c == '.', c == ')':
			if i+1 < len(line) && line[i+1] != ' ' {
				return n
			}
			n++
		case c == ' ', c >= '0' && c <= '9':
		default:
			return n
		}
	}
	return n
}

// columnsOf is how many columns a table has of which the line tells the alignment, or 0.
func columnsOf(line string) int {
	if strings.Trim(line, "|-: >*+.)0123456789") != "" {
		return 0
	}
	return strings.Count(line, "|")
}
