package modelhttp

import (
	"fmt"
	"strings"
	"testing"
)

// TestDigestsOfTextsAreRememberedWithinBounds has messages more than once, and more than are remembered.
func TestDigestsOfTextsAreRememberedWithinBounds(t *testing.T) {
	var sums textSums
	long := strings.Repeat("a long text\n", 100)
	digestOf := func(m *message, remembered bool) digest {
		var c content
		if remembered {
			texts := sums.sum(&c, m)
			return c.afterTexts(digest{}, m.role, texts)
		}
		for k := range m.items {
			c.add(&m.items[k])
		}
		return c.after(digest{}, m.role)
	}
	for i := range 3 * maxTextSums {
		items := []item{{kind: textItem, text: long}, {kind: callItem, id: "call", name: "f"}, {text: fmt.Sprint(i)}}
		m := &message{assistant, items[i%2:]}
		if i > 10 {
			sums.sum(new(content), m)
			continue
		}
		want := digestOf(m, false)
		for range 2 {
			if got := digestOf(m, true); got != want {
				t.Errorf("message %d has the digest %x, want %x", i, got, want)
			}
		}
		m.items = append(m.items, item{kind: textItem, text: "more"})
		if digestOf(m, true) == want {
			t.Errorf("message %d has the digest of another one", i)
		}
	}
	if n := len(sums.recent) + len(sums.older); n == 0 || n > 2*maxTextSums {
		t.Errorf("%d digests are remembered", n)
	}
}
