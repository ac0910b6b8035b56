package render

import (
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

func TestRenderHits(t *testing.T) {
	hits := []store.Hit{
		{SessionID: "s", Title: "One", Agent: "a", Turn: 2, Role: "assistant", Tool: "bash", Field: "input.command",
			Matches: 1,
			Context: "run\n go test \x1b[31m", Marks: [][2]int{{5, 12}}, CutBefore: true},
		{SessionID: "s", Role: "user", Field: "text", Matches: 2, Context: "go test, go test",
			Marks: [][2]int{{0, 7}, {9, 16}}, CutAfter: true, Hidden: true},
		{SessionID: "x", Role: "user", Field: "text", Matches: 1, Context: strings.Repeat("日本", 100) + "go test",
			Marks: [][2]int{{600, 607}}},
	}
	for _, w := range []int{40, 80, 120} {
		var out strings.Builder
		testscale.Must(t, Hits(&out, hits, Options{Width: w}))
		text := out.String()
		for _, want := range []string{"s  One · a\n", "turn 2 · assistant · bash · input.command\n    …run »go test« " +
			"␛[31m\n",
			"  user (rewound) · 2 matches\n    »go test«, »go test«…\n"} {
			if w >= 80 && !strings.Contains(text, want) {
				t.Errorf("at %d columns %q is not in\n%s", w, want, text)
			}
		}
		for line := range strings.Lines(text) {
			if n := width(strings.TrimSuffix(line, "\n")); n > w {
				t.Errorf("at %d columns a line has %d", w, n)
			}
		}
	}
	var out strings.Builder
	if err := Hits(&out, hits[:1], Options{Color: true}); err != nil || strings.Contains(out.String(), "»") {
		t.Errorf("in color: %v, %q", err, out.String())
	}
}
