package sqlstore

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestARegularExpressionMissesNothing: a value that matches is in JSON that the filter lets pass, however the JSON is
// written.
func TestARegularExpressionMissesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	atoms := []string{"a", "K", "s", "é", "ß", "ı", "err", "Ask", `\.`, ".", "[ks]", `\w`, "\u212a", "ſ", "(?-i:k)",
		"日本",
		`"`, "x{2}"}
	after := []string{"", "", "", "+", "*", "?", "{2,3}", "|"}
	letters := []string{"a", "A", "k", "K", "\u212a", "s", "ſ", "É", "ß", "err", "ERR", "ask", ".", "日", "本", `"`,
		"\n", "xx"}
	matched := 0
	for range 20_000 {
		var expression, value strings.Builder
		for range 1 + random.IntN(5) {
			atom := pick(atoms) + pick(after)
			if random.IntN(4) == 0 {
				atom = "(" + atom + ")"
			}
			expression.WriteString(atom)
		}
		for range random.IntN(8) {
			value.WriteString(pick(letters))
		}
		q := store.SearchQuery{Text: expression.String(), Regexp: true}
		n, err := newNeedle(q)
		if err != nil {
			continue // "x|" may be followed by "*"
		}
		raw, _ := json.Marshal(value.String())
		if hit, ok := n.hit(value.String()); ok {
			matched++
			if !n.mayBeIn(raw) {
				t.Fatalf("%q matches %q, and is filtered out by %q", q.Text, value.String(), n.run)
			}
			for _, m := range hit.Marks {
				if m[0] >= m[1] || m[1] > len(hit.Context) {
					t.Fatalf("%q in %q: marks %v", q.Text, value.String(), hit.Marks)
				}
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d of the values match", matched)
	}
}

// TestALongMatchIsShownAbridged: and all matches are counted.
func TestALongMatchIsShownAbridged(t *testing.T) {
	n, err := newNeedle(store.SearchQuery{Text: `(?s)begin.*?end|ok`, Regexp: true})
	testscale.Must(t, err)
	hit, ok := n.hit("begin" + strings.Repeat("é", 100_000) + "end ok ok")
	if !ok || hit.Matches != 3 || len(hit.Context) > longest+2*around || len(hit.Marks) != 1 || !hit.CutAfter ||
		hit.Marks[0] != [2]int{0, len(hit.Context)} {
		t.Errorf("%d matches, %d bytes, marks %v", hit.Matches, len(hit.Context), hit.Marks)
	}
}

// TestARegularExpressionIsFilteredByItsLongestText: what every match has saves decoding the other parts.
func TestARegularExpressionIsFilteredByItsLongestText(t *testing.T) {
	for expression, want := range map[string]string{
		`timeout after \d+ ?ms`:        "timeout after ", // s is equal to the long s, too
		`(permission|access) denied`:   " denied",
		`(?-i)Sessions\[\d+\]`:         "sessions[",
		`(foo bar)+ baz`:               "foo bar",
		`(foo bar)? baz`:               " baz",
		`foo|bar`:                      "",
		`[a-z]+`:                       "",
		`exit (status )?(?:code){2,3}`: "exit ",
	} {
		n, err := newNeedle(store.SearchQuery{Text: expression, Regexp: true})
		if err != nil || n.run != want {
			t.Errorf("%s: %q, want %q, %v", expression, n.run, want, err)
		}
	}
}
