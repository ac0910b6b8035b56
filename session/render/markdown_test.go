package render

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

var viewer = goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote)).Parser()

// outline is what stands at the top of a transcript, as a viewer reads it. It wants that
// what is quoted there is harmless: no HTML, no image, no heading like those of the
// transcript, no definition of a link, and no link but to the web.
func outline(t testing.TB, page string) []string {
	t.Helper()
	source := []byte(page)
	doc := viewer.Parse(text.NewReader(source))
	var all []string
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		what := n.Kind().String()
		switch n := n.(type) {
		case *ast.Heading:
			what += strconv.Itoa(n.Level)
		case *ast.HTMLBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				what += " " + string(line.Value(source))
			}
		case *ast.List:
			what += strconv.Itoa(n.ChildCount())
		}
		all = append(all, what)
	}
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		to := ""
		switch n := n.(type) {
		case *ast.Heading:
			if n.Parent() != doc && n.Level < 4 {
				t.Errorf("a heading of level %d is quoted", n.Level)
			}
		case *ast.HTMLBlock:
			if n.Parent() != doc {
				t.Errorf("HTML is quoted: %q", n.Lines().Value(source))
			}
		case *ast.RawHTML:
			if html := string(n.Segments.Value(source)); html != separator {
				t.Errorf("HTML is in a line: %q", html)
			}
		case *ast.Image, *ast.LinkReferenceDefinition, *extast.Footnote, *extast.FootnoteLink:
			t.Errorf("a %s", n.Kind())
		case *ast.Link:
			to = string(n.Destination)
		case *ast.AutoLink:
			if to = string(n.URL(source)); n.AutoLinkType == ast.AutoLinkEmail || strings.HasPrefix(to, "ftp://") {
				to = "" // which the viewer finds in any text
			}
		}
		if to != "" && !webAddress.MatchString(to) {
			t.Errorf("a link to %q", to)
		}
		return ast.WalkContinue, nil
	})
	return all
}

var webAddress = regexp.MustCompile(`^(?i:https?://|mailto:)`)

func examineMarkdown(t testing.TB, said string, want []string) {
	t.Helper()
	got := transcript(t, Markdown, said, document.Words{Full: true})
	if d := cmp.Diff(want, outline(t, got)); d != "" {
		t.Errorf("%.300q changes the transcript (-want +got):\n%s", said, d)
	}
	if strings.ContainsAny(got, "\x1b\u202e\x00") {
		t.Errorf("%.300q comes through", said)
	}
}

// TestMarkdownTextsStayInTheirPlace renders a session whose texts try to be something else, or not to
// end: what stands at the top is the same.
func TestMarkdownTextsStayInTheirPlace(t *testing.T) {
	want := outline(t, transcript(t, Markdown, "x", document.Words{Full: true}))
	for _, said := range codectest.Hostile {
		examineMarkdown(t, said, want)
	}
	examineMarkdown(t, strings.Join(codectest.Hostile, "\n\n"), want)
}

func FuzzMarkdown(f *testing.F) {
	for _, said := range codectest.Hostile {
		f.Add(said)
	}
	want := outline(f, transcript(f, Markdown, "x", document.Words{Full: true}))
	f.Fuzz(func(t *testing.T, said string) { examineMarkdown(t, said, want) })
}

func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb":          "a\\\nb",
		"a\n\nb":        "a\n\nb",
		"# no heading":  `\# no heading`,
		"- no list":     `\- no list`,
		"1. no list":    `1\. no list`,
		"12) no":        `12\) no`,
		"=====":         `\=====`,
		"    no code":   "\u00a0\u00a0\u00a0\u00a0no code",
		"a_b*c~d":       `a\_b\*c\~d`,
		"https://a.b/c": "https://a.b/c",
		"1996":          "1996",
		"&copy;":        "&amp;copy;",
	} {
		if got := prose(text); got != want {
			t.Errorf("%q: have %q, want %q", text, got, want)
		}
	}
}

// TestCall says of a call in its title what it is about, in one line and not at length.
func TestCall(t *testing.T) {
	for input, want := range map[string]string{
		`{"command":"ls -la","description":"List"}`:      "**bash** ls -la · ok",
		`{"command":"a <b>\n  c"}`:                       "**bash** a \\<b\\> … · ok",
		`{"command":"` + strings.Repeat("é", 200) + `"}`: "**bash** " + strings.Repeat("é", 119) + "… · ok",
		`{}`: "**bash** · ok",
	} {
		doc := &document.Document{Turns: []*document.Turn{{Number: 1,
			Messages: []*document.Message{{Role: "assistant", Parts: []*document.Part{
				{Kind: document.KindStep, Step: 1},
				{Kind: document.KindTool, Tool: &document.ToolCall{Name: "bash", State: "output-available",
					Input: []byte(input)}},
				{Kind: document.KindStep, Step: 2},
			}}}}}}
		var b bytes.Buffer
		testscale.Must(t, Markdown(&b, doc, document.Words{}))
		if got := b.String(); !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("%s: want %q in\n%s", input, want, got)
		}
		if n := strings.Count(b.String(), "\n---\n"); n != 1 {
			t.Errorf("%s: %d rules between steps, want 1", input, n)
		}
	}
}

// TestRoleOfAnyScript: a role that a program made up is text like any other.
func TestRoleOfAnyScript(t *testing.T) {
	for role, want := range map[string]string{"user": "### User", "ärztin": "### Ärztin", "\x1b[2J": "### ␛\\[2J",
		"": "### Message"} {
		d := &document.Document{Turns: []*document.Turn{{Number: 1, Messages: []*document.Message{{Role: role}}}}}
		var b bytes.Buffer
		testscale.Must(t, Markdown(&b, d, document.Words{}))
		if got := b.String(); !strings.Contains(got, "\n"+want+"\n") || !utf8.ValidString(got) {
			t.Errorf("%q: no %q in %q", role, want, got)
		}
	}
}

// TestCutOfLittle leaves out no end that is shorter than what would be said of it.
func TestCutOfLittle(t *testing.T) {
	for lines, cut := range map[int]bool{80: false, 85: false, 200: true} {
		doc := &document.Document{Turns: []*document.Turn{{Number: 1,
			Messages: []*document.Message{{Role: "assistant", Parts: []*document.Part{
				{Kind: document.KindTool, Tool: &document.ToolCall{Name: "bash", State: "output-error",
					Error: strings.Repeat("line\n", lines)}},
			}}}}}}
		var b bytes.Buffer
		testscale.Must(t, Markdown(&b, doc, document.Words{}))
		if got := strings.Contains(b.String(), "left out"); got != cut {
			t.Errorf("%d lines: cut %t, want %t", lines, got, cut)
		}
	}
}
