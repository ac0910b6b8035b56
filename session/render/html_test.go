package render

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	nethtml "golang.org/x/net/html"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

// What a text may be shown with, and the attributes of it; those of a link are looked at on their own.
var allowed = map[string][]string{
	"p": {""}, "h4": {""}, "h5": {""}, "h6": {""}, "blockquote": {""}, "li": {"", "class=task"}, "pre": {""},
	"code": {""},
	"hr":   {""}, "br": {""},
	"ul": {"dir=auto", "dir=auto class=loose"}, "ol": {"dir=auto", "dir=auto class=loose"},
	"div": {"class=scroll"}, "table": {""}, "tr": {""},
	"th": {"", "align=left", "align=right", "align=center"}, "td": {"", "align=left", "align=right", "align=center"},
	"em": {""}, "strong": {""}, "del": {""}, "input": {"type=checkbox aria-label=to do disabled=",
		"type=checkbox aria-label=done checked= disabled="},
}

var (
	listStart = regexp.MustCompile(`^dir=auto start=[0-9]{1,9}( class=loose)?$`)
	linkTo    = regexp.MustCompile(`^href=(?i:https?://|mailto:)[!#-&(-;=?-\[\]-_a-~]+ rel=noopener noreferrer ` +
		`nofollow$`)
)

// frame is the outline of a page without what the texts of its messages hold, of which
// it wants that it is allowed and ends where the texts do.
func frame(t testing.TB, page string) []string {
	t.Helper()
	z := nethtml.NewTokenizer(strings.NewReader(page))
	var outside, open []string // open: within a text
	for {
		kind := z.Next()
		tok := z.Token()
		attributes := make([]string, len(tok.Attr))
		for i, a := range tok.Attr {
			attributes[i] = a.Key + "=" + a.Val
		}
		all := strings.Join(attributes, " ")
		switch kind {
		case nethtml.ErrorToken:
			if len(open) > 0 {
				t.Errorf("%v are not closed", open)
			}
			return outside
		case nethtml.StartTagToken:
			switch {
			case len(open) > 0:
				if !slices.Contains(allowed[tok.Data], all) && !(tok.Data == "ol" && listStart.MatchString(all)) &&
					!(tok.Data == "a" && linkTo.MatchString(all)) {
					t.Errorf("<%s %s> is in a text", tok.Data, all)
				}
				if !slices.Contains([]string{"hr", "br", "input"}, tok.Data) {
					open = append(open, tok.Data)
				}
			case tok.Data == "span" && slices.Contains(strings.Fields("add del dim c1 c2"), strings.TrimPrefix(all, "class=")):
				open = append(open, "span") // a color of a tool's output
			default:
				outside = append(outside, "<"+tok.Data+">")
				harmless(t, tok)
				if tok.Data == "div" && (all == "class=rich" || all == "class=text") {
					open = append(open, "div")
				}
			}
		case nethtml.EndTagToken:
			if len(open) == 0 {
				outside = append(outside, "</"+tok.Data+">")
				continue
			}
			last := len(open) - 1
			if open[last] != tok.Data {
				t.Errorf("</%s> ends a <%s>", tok.Data, open[last])
			}
			if open = open[:last]; last == 0 && tok.Data == "div" {
				outside = append(outside, "</div>")
			}
		case nethtml.SelfClosingTagToken, nethtml.CommentToken:
			t.Errorf("%v", tok)
		}
	}
}

// harmless wants that an element loads, styles and runs nothing, and leads nowhere else.
func harmless(t testing.TB, tok nethtml.Token) {
	t.Helper()
	for _, a := range tok.Attr {
		switch a.Key {
		case "src", "srcset", "action", "background", "ping", "style", "xlink:href":
			if tok.Data != "img" || !strings.HasPrefix(a.Val, "data:image/png;base64,") {
				t.Errorf("%v loads or styles something", tok)
			}
		case "href":
			if !strings.HasPrefix(a.Val, "#turn-") && a.Val != "https://example.com/a?b=1" {
				t.Errorf("%v leads elsewhere", tok)
			}
		}
		if strings.HasPrefix(a.Key, "on") {
			t.Errorf("%v runs something", tok)
		}
	}
}

// asRead is the outline of a page as a browser understands it, which moves and adds what stands where it may not.
func asRead(t testing.TB, page string) []string {
	t.Helper()
	doc, err := nethtml.Parse(strings.NewReader(page))
	testscale.Must(t, err)
	var b bytes.Buffer
	testscale.Must(t, nethtml.Render(&b, doc))
	return elements(b.String())
}

// elements are those of a page, but a void one has no slash and a table no body.
func elements(page string) []string {
	z := nethtml.NewTokenizer(strings.NewReader(page))
	var all []string
	for {
		switch z.Next() {
		case nethtml.ErrorToken:
			return all
		case nethtml.StartTagToken, nethtml.SelfClosingTagToken:
			if name, _ := z.TagName(); string(name) != "tbody" {
				all = append(all, "<"+string(name)+">")
			}
		case nethtml.EndTagToken:
			if name, _ := z.TagName(); string(name) != "tbody" {
				all = append(all, "</"+string(name)+">")
			}
		}
	}
}

// examine compares a page with one of which the texts say nothing, but for what these may be shown with.
func examine(t testing.TB, said, page string, want []string) {
	t.Helper()
	if d := cmp.Diff(want, frame(t, page)); d != "" {
		t.Errorf("%.300q changes the page (-want +got):\n%s", said, d)
	}
	if d := cmp.Diff(elements(page), asRead(t, page)); d != "" {
		t.Errorf("%.300q is read as something else (-written +read):\n%s", said, d)
	}
	if strings.ContainsAny(page, "\x1b\u202e\x00") || strings.Contains(page, "ZgotmplZ") {
		t.Errorf("%.300q comes through, or what is there is no link", said)
	}
}

// TestHTMLTextsStayInTheirPlace tells a story whose texts try to be something else: the page
// has the elements that it has without, and in its texts none but those of Markdown.
func TestHTMLTextsStayInTheirPlace(t *testing.T) {
	plain := transcript(t, HTML, "x", document.Words{Full: true})
	want := frame(t, plain)
	for _, name := range []string{"script", "iframe", "link", "object", "form"} {
		if slices.Contains(want, "<"+name+">") {
			t.Errorf("the page has a %s", name)
		}
	}
	for _, said := range codectest.Hostile {
		examine(t, said, transcript(t, HTML, said, document.Words{Full: true}), want)
	}
	all := strings.Join(codectest.Hostile, "\n\n")
	examine(t, all, transcript(t, HTML, all, document.Words{Full: true}), want)
}

func FuzzHTML(f *testing.F) {
	for _, said := range codectest.Hostile {
		f.Add(said)
	}
	want := frame(f, transcript(f, HTML, "x", document.Words{Full: true}))
	f.Fuzz(func(t *testing.T, said string) {
		examine(t, said, transcript(t, HTML, said, document.Words{Full: true}), want)
	})
}

// TestHTMLTexts shows texts with their Markdown, and what tools get and give without.
func TestHTMLTexts(t *testing.T) {
	if got := Rich(" \n"); got != "" {
		t.Errorf("nothing is %q", got)
	}
	deep := strings.Repeat("> ", 1000) + "a"
	if got := string(Rich(deep)); got != `<div class="text">`+strings.ReplaceAll(deep, ">", "&gt;")+"</div>" {
		t.Errorf("a text that nests without end is %q", got)
	}
	for budget, want := range map[int]string{7: `func f()`, 8: `<span class="hk">func</span> <span class="hf">f</span>()`} {
		code := string(rich("```go\nfunc f()\n```", budget))
		if want = `<div class="rich"><pre><code>` + want + `</code></pre></div>`; code != want {
			t.Errorf("with %d bytes of colors code is %q, want %q", budget, code, want)
		}
	}
	for _, name := range strings.Fields("a.go a.py a.ts a.tsx a.js a.rs a.java a.kt a.rb a.c a.cpp a.cs a.php a.swift a.lua " +
		"a.sql a.yaml a.toml a.json a.html a.css a.sh a.ps1 a.tf a.proto a.md Makefile Dockerfile bash sh shell golang") {
		code := Code("<a href=\"x\">[a](b)</a>\n# 1\n/* 2 */ select class = \"3\"; if (5) { return 'x': 10 }\n", name)
		if !slices.ContainsFunc(code, func(r Run) bool { return r.Class != "" }) {
			t.Errorf("%s has no colors: %+v", name, code)
		}
	}
	page := transcript(t, HTML, "**bold**", document.Words{})
	for what, n := range map[string]int{"<strong>bold</strong>": 4, "FAIL **bold**": 80, "You are a coder. **bold**": 1,
		"gave up **bold**": 1, `<pre class="short">go test **bold**</pre>`: 1} {
		if strings.Count(page, what) != n {
			t.Errorf("%q %d times, want %d", what, strings.Count(page, what), n)
		}
	}
}
