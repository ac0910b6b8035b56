package render

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// checkLines reports lines that are wider than the page or end in a space, and
// anything in them that a terminal would obey.
func checkLines(t *testing.T, what, text string, o Options) {
	t.Helper()
	if o.Width == 0 {
		o.Width = 80
	}
	plain := text
	if o.Color {
		plain = stripColors(text)
	}
	for i, line := range strings.Split(plain, "\n") {
		if w := ansi.StringWidth(line); w > max(o.Width, 40) {
			t.Errorf("%s: line %d has %d columns: %q", what, i+1, w, line)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("%s: line %d ends in a space: %q", what, i+1, line)
		}
	}
	if bad := dangerous(plain); bad != "" {
		t.Errorf("%s: %q reaches the terminal", what, bad)
	}
}

// stripColors removes the sequences that set colors and nothing else.
func stripColors(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := strings.TrimLeft(after, "0123456789;")
		if !strings.HasPrefix(end, "m") {
			b.WriteString("\x1b[")
			s = after
			continue
		}
		s = end[1:]
	}
}

// dangerous returns the first character that a terminal would obey, or that changes the order of what is shown.
func dangerous(s string) string {
	for i, r := range s {
		switch {
		case r == '\n':
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069,
			r >= 0xe0000 && r <= 0xe007f:
			return s[i:min(len(s), i+8)]
		}
	}
	if !utf8.ValidString(s) {
		return "invalid UTF-8"
	}
	return ""
}

func TestSanitize(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain text is left", "a – ü 界 👩‍💻\n", "a – ü 界 👩‍💻\n"},
		{"colors", "\x1b[31mred\x1b[0m", "␛[31mred␛[0m"},
		{"a window title", "\x1b]0;owned\x07", "␛]0;owned␇"},
		{"an eight bit sequence", "\u009b2J", "<U+009B>2J"},
		{"a raw eight bit sequence", "\x9b2J", "\ufffd2J"},
		{"line ends of Windows", "a\r\nb", "a\nb"},
		{"a line that overwrites itself", "safe\rrm -rf", "safe␍rm -rf"},
		{"backspaces", "ab\b\bcd\x7f", "ab␈␈cd␡"},
		{"tabs", "\ta", "    a"},
		{"text in reverse", "\u202egnp.exe", "<U+202E>gnp.exe"},
		{"text in tags that nobody sees", "hi\U000e0048\U000e0049", "hi<U+E0048><U+E0049>"},
		{"a space of no width", "pass\u200bword", "pass<U+200B>word"},
		{"line separators", "a\u2028b", "a\nb"},
		{"a cut character", "caf\xc3", "caf\ufffd"},
	} {
		if got := document.Sanitize(c.in); got != c.want {
			t.Errorf("%s: Sanitize(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

// views prints every view of a timeline, and a list that has its session.
func views(t *testing.T, in document.Input, o Options) {
	t.Helper()
	doc := document.Build(in)
	list := func(w interface{ Write([]byte) (int, error) }) error {
		return Sessions(w, []document.Item{document.NewItem(&in.Transcript.Session, nil, new(store.Spent), o.Now,
			document.DefaultIdleTimeout)}, o)
	}
	var b strings.Builder
	for _, print := range []func() error{
		func() error { return Document(&b, doc, o) }, func() error { return Prompts(&b, doc, o) },
		func() error { return Tools(&b, doc, o) },
		func() error { return Permissions(&b, doc, o) }, func() error { return Provenance(&b, doc, o) },
		func() error { return list(&b) },
	} {
		if err := print(); err != nil {
			t.Fatalf("print: %v", err)
		}
	}
	checkLines(t, "views", b.String(), o)
}

// TestNothingReachesTheTerminal puts an attack into every text of a session and prints every view.
func TestNothingReachesTheTerminal(t *testing.T) {
	attack := "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u009b1;1H\r\b\x7f\u202e\U000e0041\nx\tz"
	for _, o := range []Options{{Width: 40}, {Width: 80}, {Width: 120, Full: true},
		{Width: 80, Color: true, Full: true}} {
		o.Now = time.UnixMilli(0)
		views(t, readStoryOf(t, "hostile", attack), o)
	}
}

// FuzzViews prints sessions made of anything at any width.
func FuzzViews(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b[31m", "{}", "界界界界 👩‍💻", `{"a":[1,{"b":"c\nd"}]}`,
		strings.Repeat("word ", 50), strings.Repeat("x", 300), "\u0301\u0301"} {
		f.Add(s, 80, true)
		f.Add(s, 41, false)
	}
	f.Fuzz(func(t *testing.T, text string, width int, full bool) {
		o := Options{Width: width%200 + 1, Full: full, Color: full}
		if width < 0 {
			o.Width = 1
		}
		views(t, readStoryOf(t, "hostile", text), o)
	})
}
