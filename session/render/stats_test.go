package render

import (
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestRenderStats: the table fits, what matters least goes first, and the sessions, turns and tokens never do.
func TestRenderStats(t *testing.T) {
	rate, ms := 0.876, int64(123456)
	group := func(key string) store.StatsGroup {
		return store.StatsGroup{Key: key, Sessions: 123456, Turns: 1234567, Errors: 12,
			Usage: session.Usage{Input: 1e9, CacheRead: 7e9}, TotalTokens: 8e9,
			CostUSD: 12345.67, CacheHitRate: &rate, ToolCalls: 7654321, FailedCalls: 4, DeniedCalls: 5, MedianMS: &ms,
			P95MS: &ms}
	}
	s := store.Stats{Total: group(""), Groups: []store.StatsGroup{group("p/a model with a long name\x1b[31m"),
		group("")}}
	for _, test := range []struct {
		width         int
		with, without []string
	}{
		{200, []string{"1,234,567", "DENIED", "C.WRITE", "88%", "2m 03s"}, nil},
		{120, []string{"1.2M", "CACHED", "P95", "(unknown)"}, []string{"DENIED"}},
		{80, []string{"SESSIONS", "TURNS", "TOKENS", "CALLS", "$12345.67"}, []string{"INPUT"}},
		{40, []string{"SESSIONS", "TURNS", "TOKENS"}, []string{"COST", "MEDIAN"}},
	} {
		var out strings.Builder
		testscale.Must(t, Stats(&out, &s, []store.StatsBy{store.StatsByModel}, Options{Width: test.width}))
		text := out.String()
		for _, want := range test.with {
			if !strings.Contains(text, want) {
				t.Errorf("at %d columns %q is missing:\n%s", test.width, want, text)
			}
		}
		for _, not := range append(test.without, "\x1b") {
			if strings.Contains(text, not) {
				t.Errorf("at %d columns there is %q:\n%s", test.width, not, text)
			}
		}
		for line := range strings.Lines(text) {
			if n := width(strings.TrimSuffix(line, "\n")); n > test.width {
				t.Errorf("at %d columns a line has %d: %q", test.width, n, line)
			}
		}
	}
	var out strings.Builder
	for i := range s.Groups {
		s.Groups[i].Keys = map[store.StatsBy]string{store.StatsByModel: "openai/a-model-with-a-name-that-is-quite-long",
			store.StatsByAgent: "an agent that has a name as long as that of its model"}
	}
	by := []store.StatsBy{store.StatsByModel, store.StatsByAgent}
	if err := Stats(&out, &s, by, Options{Width: 80}); err != nil || strings.Count(out.String(), "7.7M") != 3 {
		t.Errorf("the figures beside two long keys: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := Stats(&out, &s, nil, Options{}); err != nil ||
		!strings.Contains(out.String(), "errors        12\n") {
		t.Errorf("list: %v\n%s", err, out.String())
	}
}
