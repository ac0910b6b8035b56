package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"

	"github.com/rogpeppe/go-internal/txtar"
)

// names are those of kinds in the file.
var names = map[nodeKind]string{nodeLine: "line", nodeQuote: "quote", nodeList: "list", nodeItem: "item",
	nodeRule: "rule",
	nodeRow:  "row", nodeCell: "cell", nodeStrike: "strike", nodeLink: "link", nodeBreak: "break", nodeBox: "box"}

// dump is a tree in a line.
func dump(all []*node) string {
	var b strings.Builder
	for i, n := range all {
		if i > 0 {
			b.WriteByte(' ')
		}
		if n.Kind == nodeText {
			fmt.Fprintf(&b, "%q", n.Text)
			continue
		}
		b.WriteString("(" + cmp.Or(names[n.Kind], string(n.Kind)))
		switch n.Kind {
		case nodeHeading:
			fmt.Fprint(&b, n.Level)
		case nodeList:
			fmt.Fprintf(&b, " %c%d", n.Marker, n.Start)
			if n.Tight {
				b.WriteString(" tight")
			}
		case nodeCode, nodeCodeSpan:
			fmt.Fprintf(&b, " %q%s", n.Text, n.Lang)
		case nodeCell:
			b.WriteString(n.Align)
		case nodeLink:
			b.WriteString(" " + n.To)
		case nodeBox:
			fmt.Fprint(&b, " ", n.Checked)
		}
		if len(n.Children) > 0 {
			b.WriteString(" " + dump(n.Children))
		}
		b.WriteByte(')')
	}
	return b.String()
}

// TestTexts shows Markdown so that a viewer shows what its writer meant: each text of the file is followed by the tree
// that it is read as, by its HTML, and by the Markdown that quotes it, which is read as the same again.
func TestTexts(t *testing.T) {
	const file = "testdata/texts/texts.txtar"
	archive, err := txtar.ParseFile(file)
	testscale.Must(t, err)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		said := strings.TrimSuffix(string(archive.Files[i].Data), "\n")
		tree, ok := parseText(said)
		quoted := strings.TrimSuffix(quote(said), "\n\n")
		archive.Files[i+1].Data = fmt.Appendf(nil, "%s\n%s\n%s\n", dump(tree), Rich(said), quoted)
		again, _ := parseText(strings.ReplaceAll(quoted, separator, ""))
		if ok && !strings.Contains(quoted, "*"+separator) {
			if d := gocmp.Diff([]*node{{Kind: nodeQuote, Children: tree}}, again,
				gocmp.FilterPath(func(p gocmp.Path) bool { return p.Last().String() == ".Level" }, gocmp.Ignore())); d != "" {
				t.Errorf("%q is read as something else (-meant +read):\n%s", said, d)
			}
		}
	}
	codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
}

// check says what of a tree is not as Node promises.
func check(all []*node, in map[nodeKind]bool, blocks bool) error {
	for _, n := range all {
		if blocks == slices.Contains([]nodeKind{nodeText, nodeCodeSpan, nodeEmphasis, nodeStrong, nodeStrike, nodeLink,
			nodeBreak, nodeBox}, n.Kind) {
			return fmt.Errorf("%s stands where it may not", n.Kind)
		}
		for _, s := range []string{n.Text, n.Lang, n.To} {
			if document.Sanitize(s) != s || strings.Contains(s, "\n") && n.Kind != nodeCode {
				return fmt.Errorf("%q is not clean", s)
			}
		}
		switch n.Kind {
		case nodeEmphasis, nodeStrong, nodeStrike, nodeLink:
			if in[n.Kind] || len(n.Children) == 0 {
				return fmt.Errorf("%s in itself, or empty", n.Kind)
			}
			in[n.Kind] = true
		case nodeHeading:
			if n.Level < 1 || n.Level > 3 {
				return fmt.Errorf("a heading of level %d", n.Level)
			}
		case nodeList:
			if n.Start < 0 || n.Start > 999_999_999 || n.Ordered == (strings.IndexByte("-+*", n.Marker) >= 0) {
				return fmt.Errorf("a list from %d with %q", n.Start, n.Marker)
			}
		case nodeTable:
			for _, row := range n.Children {
				if len(row.Children) > len(n.Children[0].Children) {
					return fmt.Errorf("a row of %d cells", len(row.Children))
				}
			}
		}
		if n.Kind == nodeLink {
			scheme, rest, found := strings.Cut(strings.ToLower(n.To), ":")
			if !found || scheme != "mailto" && !(scheme == "http" || scheme == "https") ||
				scheme != "mailto" && !strings.HasPrefix(rest, "//") || strings.ContainsAny(n.To, "<>\"'\\` ") {
				return fmt.Errorf("a link to %q", n.To)
			}
		}
		holds := n.Kind == nodeQuote || n.Kind == nodeList || n.Kind == nodeItem || n.Kind == nodeTable || n.Kind == nodeRow
		err := check(n.Children, in, holds)
		if err != nil {
			return err
		}
		delete(in, n.Kind)
	}
	return nil
}

func FuzzParse(f *testing.F) {
	for _, body := range codectest.Hostile {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		all, ok := parse(document.Sanitize(body))
		if err := check(all, map[nodeKind]bool{}, true); err != nil {
			t.Errorf("%q: %v", body, err)
		}
		if ok && len(all) == 0 && strings.Trim(document.Sanitize(body), " \n") != "" {
			t.Errorf("%q is lost", body)
		}
	})
}
