package redact

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// hostile are the pieces of testdata/hostile.txt, and others.
func hostile() map[string]string {
	b, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		panic(err)
	}
	units := map[string]string{"github": "gh" + "p_" + mix40[:36] + " "}
	for line := range strings.Lines(string(b)) {
		if name, quoted, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			units[name], _ = strconv.Unquote(quoted)
		}
	}
	for _, key := range DefaultKeys() {
		units["key "+key] = "my_" + key + " "
		units["key of "+key] = "my_" + key + ": "
	}
	for _, x := range rules {
		for i, l := range x.literals {
			if i < 4 {
				units[x.name+" "+l] = " " + l
			}
		}
	}
	return units
}

// ordinary is prose of n bytes, which does not repeat itself.
func ordinary(n int) string {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields(benchProse[:len(benchProse)/12])
	var out strings.Builder
	for out.Len() < n {
		out.WriteString(words[rng.IntN(len(words))])
		out.WriteByte(" \n"[rng.IntN(16)/15])
	}
	return out.String()[:n]
}

// What makes a text costly is looking at it again. The bytes that are looked at besides
// the one pass over all of them are counted, so that the test does not depend on the
// machine: they grow with the text and not with its square, whatever it is.
func TestHostileTextIsLookedAtOnce(t *testing.T) {
	r := mustNew(t, Config{})
	work := func(text string) int {
		c := new(scan)
		c.begin(r, text)
		if !r.suspect(text) {
			return 0
		}
		c.all()
		c.byClues()
		return c.looked
	}
	size := testscale.Rounds(4, 16) << 10
	for name, unit := range hostile() {
		text := func(size int) string { return strings.Repeat(unit, size/len(unit)) + "\x01" }
		small, large := work(text(size)), work(text(4*size))
		if large > 64*4*size || large > 5*small+4*size {
			t.Errorf("%s: %d bytes looked at again in %d, %d in four times as many", name, small, size, large)
		}
	}
}

// A text may end anywhere, amid what leads to a secret.
func TestTextsMayEndAnywhere(t *testing.T) {
	r := mustNew(t, Config{})
	texts := []string{"00000000: 7077 3d5f 5f52 4544 4143 5445 445f 5f61\n",
		strings.Repeat("00000000: 70773d 70773d 70773d 70773d 70773d 74756c\n", 2)} // a line has fewer bytes
	for _, bucket := range r.index.buckets {
		for _, e := range bucket.entries {
			for _, end := range []string{"", " ", "=", ": ", "=\"", "(", "[", "='\\", "\n", " is ", " {", "|"} {
				texts = append(texts, e.literal+end, "x "+e.literal+end)
			}
		}
	}
	for _, e := range readCases(t, "people_v")[:150] {
		for end := range e.text {
			texts = append(texts, e.text[:end])
		}
	}
	for _, text := range texts {
		r.Text(text)
	}
}
