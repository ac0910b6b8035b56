package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

var names = map[nodeKind]string{
	nodeParagraph: "p", nodeLine: "line", nodeHeading: "h", nodeQuote: "quote", nodeList: "list", nodeItem: "item", nodeCode: "pre", nodeRule: "rule",
	nodeTable: "table", nodeRow: "row", nodeCell: "cell",
	nodeText: "text", nodeCodeSpan: "code", nodeEmphasis: "em", nodeStrong: "strong", nodeStrike: "strike", nodeLink: "link", nodeBreak: "break",
	nodeBox: "box",
}

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
		b.WriteString("(" + names[n.Kind])
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

func TestParse(t *testing.T) {
	for body, want := range map[string]string{
		"a *b* **c** ~~d~~ `e`":     `(p "a " (em "b") " " (strong "c") " " (strike "d") " " (code "e"))`,
		"a\nb  \nc\\\nd":            `(p "a" (break) "b" (break) "c" (break) "d")`,
		"## a\n### b\n###### c":     `(h1 "a") (h2 "b") (h3 "c")`,
		"a\n===":                    `(h1 "a")`,
		"```go x\nif a {\n    b\n}": `(pre "if a {\n    b\n}"go)`,
		"```<b>\nx\n```":            `(pre "x")`,
		"    a\n\n    b":            `(pre "a\n\nb")`,
		"- a\n- b\n  1. c": `(list -0 tight (item (line "a")) (item (line "b") (list .1 tight (item ` +
			`(line "c")))))`,
		"7) a\n\n8) b":     `(list )7 (item (p "a")) (item (p "b")))`,
		"- [x] a\n- [ ] b": `(list -0 tight (item (line (box true) "a")) (item (line (box false) "b")))`,
		"> a\nb\n\n---":    `(quote (p "a" (break) "b")) (rule)`,
		"|a|b|\n|:-|-:|\n|`c\\|d`|\n": `(table (row (cellleft "a") (cellright "b")) (row (cellleft (code "c|d")) ` +
			`(cellright)))`,
		"[a](http://b.c \"title\")":   `(p (link http://b.c "a"))`,
		"[a](b/c.go#L1) [d.go](d.go)": `(p "a (" (code "b/c.go#L1") ") d.go")`,
		"[a](javascript:b)":           `(p "a (" (code "javascript:b") ")")`,
		"![a](https://b/c.png)![](d)": `(p (link https://b/c.png "a") (code "d"))`,
		"[![a](http://b)](http://c)":  `(p (link http://c "a"))`,
		"[](http://b)":                `(p (link http://b "http://b"))`,
		"http://a.b/c?d=e&f. <g@h.i>": `(p (link http://a.b/c?d=e&f "http://a.b/c?d=e&f") ". " (link ` +
			`mailto:g@h.i "g@h.i"))`,
		"ftp://a.b <javascript:c>":        `(p "ftp://a.b javascript:c")`,
		"<b>a</b>\n\n<div>\n*c*":          `(p "<b>a</b>") (p "<div>" (break) (em "c"))`,
		"[a]: http://b.c\n\n[a] [^1]":     `(p "[a]: " (link http://b.c "http://b.c")) (p "[a] [^1]")`,
		"&lt;&copy;&#x202e;&#10;\\*":      `(p "<©<U+202E> *")`,
		"**a **b** c** ***d* e**":         `(p (strong "a b c") " " (strong (em "d") " e"))`,
		"# a {#top}":                      `(h1 "a {#top}")`,
		strings.Repeat("-", 90):           `(rule)`,
		"x\n\n" + strings.Repeat(".", 90): fmt.Sprintf(`(p "x") (p %q)`, strings.Repeat(".", 90)),
	} {
		all, ok := parseText(body)
		if got := dump(all); got != want || !ok {
			t.Errorf("%q (-want +got):\n%s", body, cmp.Diff(want, got))
		}
	}
}

// check says what of a tree is not as Node promises.
func check(all []*node, in map[nodeKind]bool, blocks bool) error {
	for _, n := range all {
		if name := names[n.Kind]; name == "" || (n.Kind < nodeText) != blocks {
			return fmt.Errorf("%v %s stands where it may not", n.Kind, name)
		}
		for _, s := range []string{n.Text, n.Lang, n.To} {
			if document.Sanitize(s) != s || strings.Contains(s, "\n") && n.Kind != nodeCode {
				return fmt.Errorf("%q is not clean", s)
			}
		}
		switch n.Kind {
		case nodeEmphasis, nodeStrong, nodeStrike, nodeLink:
			if in[n.Kind] || len(n.Children) == 0 {
				return fmt.Errorf("%s in itself, or empty", names[n.Kind])
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
