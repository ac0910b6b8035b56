package redact

import (
	"strings"
	"testing"
	"time"
)

// TestHostileTextIsLinear feeds what makes a careless matcher look at everything again
// and again. Four times the text may cost ten times as much, not sixteen.
func TestHostileTextIsLinear(t *testing.T) {
	r := mustNew(t, Config{})
	for name, unit := range map[string]string{
		"headers":        "cookie: cookie ",
		"open objects":   `"secret":{"`,
		"open arrays":    `"secret":[`,
		"key begins":     "-----BEGIN PRIV" + "ATE KEY-----",
		"urls":           "://a:",
		"quotes":         `password="`,
		"escaped quotes": `password=\"x `,
		"flags":          "curl -p -u -a -w ",
		"netrc":          "login password ",
		"tokens":         "eyJeyJeyJ.",
		"prefixes":       "sk-sk-sk-gh" + "p_AIza",
		"blocks":         "password: |\n",
		"types":          "password: str = ",
		"xml":            "<password>",
		"bearer":         "bearer basic ",
		"arrays":         "[[[[",
		"strings":        `{"a":"`,
	} {
		cost := func(size int) time.Duration {
			text := strings.Repeat(unit, size/len(unit)) + "\x01"
			best := time.Hour
			for range 3 {
				start := time.Now()
				r.Text(text)
				best = min(best, time.Since(start))
			}
			return best
		}
		small, large := cost(32<<10), cost(128<<10)
		t.Logf("%-15s %8v %8v", name, small, large)
		if large > 10*small+20*time.Millisecond {
			t.Errorf("%s: %v for 32 KiB, %v for 128 KiB", name, small, large)
		}
	}
}
