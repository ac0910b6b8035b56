package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/document"
)

// markedRuns writes runs as text, each that has classes in brackets.
func markedRuns(all []Run) string {
	var b strings.Builder
	for _, r := range all {
		if r.Class != "" {
			r.Text = "[" + r.Class + ":" + r.Text + "]"
		}
		b.WriteString(r.Text)
	}
	return b.String()
}

func TestOutputForATerminalIsShownInItsColors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"plain\ntext", "plain\ntext"},
		{"\x1b[31mred\x1b[0m not", "[c1:red] not"},
		{"\x1b[1;32mok\x1b[22m green\x1b[m", "[c2 bold:ok][c2: green]"},
		{"\x1b[91mbright\x1b[39m", "[c1:bright]"},
		{"\x1b[38;5;196mone of 256\x1b[38;2;1;31;3m rgb\x1b[41m back", "one of 256 rgb back"},
		{"\x1b[38:2:1:31:3mcolons", "colons"},
		{"\x1b]8;;http://evil.test\x07link\x1b]8;;\x1b\\ end", "link end"},
		{"\x1b[2J\x1b[10;10Hcleared\x1b[K", "cleared"},
		{"a\n 10 %\r 50 %\r100 %\nb", "a\n100 %\nb"},
		{"\x1b[32m1\r\x1b[31m2\n3", "[c1:2\n][c1:3]"},
		{"cut \x1b[3", "cut "},
		{"cut \x1b[3\nline", "cut \nline"},
		{"cut \x1b", "cut "},
		{"<b>\x1b[31m<script>", "<b>[c1:<script>]"},
		{"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same",
			"--- a/x\n+++ b/x\n[dim:@@ -1 +1 @@\n][del:-old\n][add:+new\n] same"},
	} {
		if got := markedRuns(Runs(document.Sanitize(test.text))); got != test.want {
			t.Errorf("%q is shown as %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzOutputForATerminal(f *testing.F) {
	f.Add("\x1b[31mred\x1b]0;title\x07\r\n\x1b[38;5m")
	f.Fuzz(func(t *testing.T, text string) {
		length := 0
		for _, r := range Runs(document.Sanitize(text)) {
			if strings.Trim(r.Class, "abcdefghijklmnopqrstuvwxyz 01234567") != "" {
				t.Errorf("class %q", r.Class)
			}
			length += len(r.Text)
		}
		if clean := document.Sanitize(text); length > len(clean) {
			t.Errorf("%d bytes of %d", length, len(clean))
		}
	})
}

func TestAnEditIsShownAsWhatItChanges(t *testing.T) {
	for input, want := range map[string]string{
		`{"file_path":"x","old_string":"a\nb\nc","new_string":"a\nB\nc"}`: "  a\n[del:- b\n][add:+ B\n]  c\n+1 −1",
		`{"old":"a\nb","new":""}`: "[del:- a\n- b\n]+0 −2",
		`{"edits":[{"oldText":"a","newText":"b"},{"oldText":"c","newText":"d"}]}`: "[del:- a\n][add:+ b\n][del:- c\n" +
			"][add:+ d\n]+2 −2",
		`{"old":1,"new":"b"}`:      "",
		`{"command":"ls"}`:         "",
		`["old_string"]`:           "",
		`{"old_string":"a"}`:       "",
		`{"edits":"not an object"`: "",
	} {
		got := ""
		if e := edits(&document.Part{Tool: &document.ToolCall{Input: json.RawMessage(input)}}); e != nil {
			got = markedRuns(e.Runs) + e.Gist()
		}
		if got != want {
			t.Errorf("%s is shown as %q, want %q", input, got, want)
		}
	}
}
