package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
)

// twoStories are the story, and one in which something of every kind differs: the words of inB are B's alone.
func twoStories(tb testing.TB, said, inB string) (a, b *document.Document) {
	a, b = story(tb, said), story(tb, said)
	for i, doc := range []*document.Document{a, b} {
		t := conversation(100+i, "First of all: "+said, "The same answer "+said)
		last := conversation(200+i, "And the end.", "Only tokens differ.")
		last.Usage = &session.Usage{Input: int64(1000 + i)}
		last.Number, t.Number = 5, 1
		for k := range doc.Turns {
			doc.Turns[k].Number += 1
		}
		doc.Turns = append(append([]*document.Turn{t}, doc.Turns...), last)
	}
	b.Session.ID = "ses_2"
	t := b.Turns[1]
	t.Model = &session.Model{ProviderID: "anthropic", ModelID: "other" + inB}
	t.SystemPromptDigest = strings.Repeat("cd", 32)
	b.SystemPrompts = append(b.SystemPrompts, &document.SystemPrompt{Digest: t.SystemPromptDigest, Resolved: true,
		Body: "You are a coder. " + said + " And " + inB})
	answer := t.Messages[1]
	for _, p := range answer.Parts {
		switch {
		case p.Kind == document.KindReasoning:
			p.Text += " " + inB
		case p.Kind == document.KindText:
			p.Text = strings.Replace(p.Text, "I look", "I wait "+inB, 1)
		case p.Kind == document.KindTool && p.Tool.CallID == "call_1":
			call := *p.Tool
			call.Input, _ = json.Marshal(map[string]string{"command": "go test " + said + " ./... " + inB})
			text := numbered(said, 10) + inB + "\n" + numbered(said, 30)
			call.Output, _ = json.Marshal(text)
			p.Tool = &call
		case p.Kind == document.KindTool:
			call := *p.Tool
			call.Name = "edit" + inB
			p.Tool = &call
		}
	}
	a.Turns[1].Messages[1].Parts[2].Tool.Output, _ = json.Marshal(numbered(said, 10) + "other\n" + numbered(said, 30))
	t.State, t.Error = document.StateError, inB
	more := conversation(300, "One more: "+inB, "Well: "+inB)
	more.Number = 6
	b.Turns = append(b.Turns, more)
	return a, b
}

func numbered(said string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d %s\n", i, said)
	}
	return b.String()
}

func conversation(at int, question, answer string) *document.Turn {
	return &document.Turn{Messages: []*document.Message{
		{ID: "q", Role: session.RoleUser, CreatedAt: int64(at),
			Parts: []*document.Part{{Kind: document.KindText, Text: question}}},
		{ID: "a", Role: session.RoleAssistant, CreatedAt: int64(at),
			Parts: []*document.Part{{Kind: document.KindText, Text: answer}}},
	}}
}

func diffHTML(t testing.TB, a, b *document.Document, o document.Words) string {
	t.Helper()
	var out bytes.Buffer
	testscale.Must(t, HTMLDiff(&out, document.Compare(a, b, document.CompareOptions{}), a, b, o))
	return out.String()
}

func TestDiffGolden(t *testing.T) {
	a, b := twoStories(t, "the <b>*test*</b>", "B & alone")
	golden(t, "diff.html", diffHTML(t, a, b, document.Words{}))
}

// TestDiffIsNoMarkup compares sessions whose texts try to be something else. What both have leaves the page as it is;
// what one of them has adds no element but those of a diff.
func TestDiffIsNoMarkup(t *testing.T) {
	a, b := twoStories(t, "x", "y")
	want := frame(t, diffHTML(t, a, b, document.Words{Full: true}))
	for _, said := range codectest.Hostile {
		var page string
		if len(said) < 100 && !strings.ContainsAny(document.Sanitize(said), "\n") { // or it has rows of its own
			a, b := twoStories(t, said, "y")
			page = diffHTML(t, a, b, document.Words{Full: true})
			if d := cmp.Diff(want, frame(t, page)); d != "" {
				t.Errorf("%q in both (-want +got):\n%s", said, d)
			}
		}
		a, b = twoStories(t, "x", said)
		page += diffHTML(t, a, b, document.Words{Full: true})
		for _, element := range frame(t, page) {
			if !slices.Contains(want, element) {
				t.Errorf("%q in one adds %s", said, element)
			}
		}
		if strings.ContainsAny(page, "\x1b\u202e\x00") || strings.Contains(page, "ZgotmplZ") {
			t.Errorf("%q comes through, or what is there is no link", said)
		}
	}
}

// TestDiffNamesFactsOnce: the table of what both sessions are has a row for each fact.
func TestDiffNamesFactsOnce(t *testing.T) {
	page := diffHTML(t, story(t, "x"), story(t, "y"), document.Words{})
	facts, _, _ := strings.Cut(page, "</header>")
	for _, name := range []string{"Title", "Session", "Tokens", "Cost"} {
		if n := strings.Count(facts, `<th scope="row">`+name+"</th>"); n != 1 {
			t.Errorf("%s is named %d times, want once", name, n)
		}
	}
}

// TestDiffLinks: every link leads to the one element that has its name, and the first divergence to where it stands.
func TestDiffLinks(t *testing.T) {
	a, b := twoStories(t, "x", "y")
	page := diffHTML(t, a, b, document.Words{})
	links := strings.Split(page, `href="#`)[1:]
	if len(links) < 8 {
		t.Fatalf("%d links", len(links))
	}
	for i, rest := range links {
		id, _, _ := strings.Cut(rest, `"`)
		if n := strings.Count(page, `id="`+id+`"`); n != 1 {
			t.Errorf("%d elements are %q", n, id)
		}
		if i == 0 && id != "turn-2-2" { // the user says the same, the system prompt is another
			t.Errorf("the first divergence is %s", id)
		}
	}
}

func TestDiffOfEqual(t *testing.T) {
	a, b := twoStories(t, "x", "y")
	if page := diffHTML(t, a, a, document.Words{}); !strings.Contains(page, "no difference") ||
		strings.Contains(page, "<mark>") || !strings.Contains(page, "Turns 1–5: equal, copied") {
		t.Error("a session and itself differ")
	}
	if c := document.Compare(a, b, document.CompareOptions{}); len(c.Turns) != 6 {
		t.Errorf("%d turns", len(c.Turns))
	}
}

// TestDiffIsBounded: what differs without end is cut, unless all is wanted.
func TestDiffIsBounded(t *testing.T) {
	a, b := twoStories(t, "x", "y")
	text := func(doc *document.Document) *string { return &doc.Turns[0].Messages[1].Parts[0].Text }
	for i := range maxLines + 100 {
		*text(a) += fmt.Sprintf("a%d\n", i)
		*text(b) += fmt.Sprintf("b%d\n", i)
	}
	same := strings.Repeat("same\n", 2*maxLines)
	*text(a) += same
	*text(b) += same
	cut, full := diffHTML(t, a, b, document.Words{}), diffHTML(t, a, b, document.Words{Full: true})
	for _, left := range []string{"⋯ 100 lines more are left out", "⋯ 397 lines more are left out"} {
		if !strings.Contains(cut, left) || strings.Contains(full, left) {
			t.Errorf("%q: cut %v, full %v", left, strings.Contains(cut, left), strings.Contains(full, left))
		}
	}
	if strings.Contains(cut, "b499") || !strings.Contains(full, "b499") {
		t.Error("not all is there, or too much")
	}
}

func FuzzHTMLDiff(f *testing.F) {
	for _, said := range codectest.Hostile {
		f.Add(said, "y")
		f.Add("x", said)
	}
	a, b := twoStories(f, "x", "y")
	known := frame(f, diffHTML(f, a, b, document.Words{}))
	f.Fuzz(func(t *testing.T, said, inB string) {
		a, b := twoStories(t, said, inB)
		for _, element := range frame(t, diffHTML(t, a, b, document.Words{})) {
			if !slices.Contains(known, element) {
				t.Errorf("%q and %q add %s", said, inB, element)
			}
		}
	})
}
