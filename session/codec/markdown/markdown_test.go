package markdown

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec/internal/transcript/transcripttest"
	"github.com/agenttrace/agenttrace/session/inspect"
)

var update = flag.Bool("update", false, "write the golden file")

func write(t *testing.T, said string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, transcripttest.Story(said), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	got := write(t, "the <b>*test*</b>", Options{Files: map[string]string{"out/the <b>*test*</b>": "files/1 (a).txt"}})
	const file = "testdata/story.md"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("run with -update to accept (-want +got):\n%s", d)
	}
}

// TestNothingIsMarkup tells a story whose texts try to be something else. Outside of
// fences nothing of them may be more than text.
func TestNothingIsMarkup(t *testing.T) {
	for _, said := range []string{
		"<script>alert(1)</script>", "![x](http://evil/x.png)", "[a](javascript:alert(1))", "</details><h1>", "`code` **bold** | cell | $x$",
		"\x1b[31mred\u202e", "a\n# heading\n> quote\n| a | b |\n|---|---|", "a\n````\n<img src=x>\n```\n</details>", "&lt;b&gt; &#60;",
	} {
		got := write(t, said, Options{Full: true})
		fence, details := "", 0
		for n, l := range strings.Split(got, "\n") {
			run := l[:len(l)-len(strings.TrimLeft(l, "`"))]
			switch {
			case fence == "" && len(run) >= 3:
				fence = run
				continue
			case fence != "" && l == fence:
				fence = ""
				continue
			case fence != "":
				continue
			}
			switch {
			case strings.HasPrefix(l, "<details><summary>"):
				details++
				l = strings.TrimSuffix(strings.TrimPrefix(l, "<details><summary>"), "</summary>")
			case l == "</details>":
				details--
				continue
			}
			if strings.HasPrefix(l, "- [Another](<https://example.com/a?b=1>)") {
				continue
			}
			for i := range len(l) {
				if strings.IndexByte("<>`![]", l[i]) >= 0 && (i == 0 || l[i-1] != '\\') {
					t.Errorf("%q: line %d: %q is markup", said, n+1, l)
					break
				}
			}
			if strings.HasPrefix(l, "> ") || strings.ContainsAny(l, "\x1b\u202e") {
				t.Errorf("%q: line %d: %q", said, n+1, l)
			}
		}
		if fence != "" || details != 0 {
			t.Errorf("%q: a fence or a fold is not closed", said)
		}
	}
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

func TestCutAndFull(t *testing.T) {
	if cut := write(t, "x", Options{}); !strings.Contains(cut, "are left out; a full export has them") {
		t.Error("a long output is not cut")
	}
	if full := write(t, "x", Options{Full: true}); strings.Contains(full, "left out") || strings.Count(full, "FAIL x") != 120 {
		t.Error("a full transcript is cut")
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
		tl := &inspect.Timeline{Turns: []inspect.Turn{{Number: 1, Messages: []inspect.Message{{Role: "assistant", Parts: []inspect.Part{
			{Kind: inspect.KindStep, Step: 1},
			{Kind: inspect.KindTool, Tool: &inspect.ToolCall{Name: "bash", State: "output-available", Input: []byte(input)}},
			{Kind: inspect.KindStep, Step: 2},
		}}}}}}
		var b bytes.Buffer
		if err := Encode(&b, tl, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("%s: want %q in\n%s", input, want, got)
		}
		if n := strings.Count(b.String(), "\n---\n"); n != 1 {
			t.Errorf("%s: %d rules between steps, want 1", input, n)
		}
	}
}

// TestCutOfLittle leaves out no end that is shorter than what would be said of it.
func TestCutOfLittle(t *testing.T) {
	for lines, cut := range map[int]bool{80: false, 85: false, 200: true} {
		tl := &inspect.Timeline{Turns: []inspect.Turn{{Number: 1, Messages: []inspect.Message{{Role: "assistant", Parts: []inspect.Part{
			{Kind: inspect.KindTool, Tool: &inspect.ToolCall{Name: "bash", State: "output-error", Error: strings.Repeat("line\n", lines)}},
		}}}}}}
		var b bytes.Buffer
		if err := Encode(&b, tl, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "left out"); got != cut {
			t.Errorf("%d lines: cut %t, want %t", lines, got, cut)
		}
	}
}
