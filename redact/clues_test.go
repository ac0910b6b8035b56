package redact

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// clueSample is a word that was judged by clues: their hashes, and what is right.
type clueSample struct {
	clues  []uint32
	secret bool
	sure   bool // of a text that may not be judged wrong
	weight float64
	text   string
}

// learnClues returns the words of texts that clues judge, and what the clues are called.
func learnClues(t testing.TB, texts []corpusEntry) (samples []clueSample, names map[uint32]string) {
	t.Helper()
	r := mustNew(t, Config{})
	r.trace = &trace{}
	names = map[uint32]string{}
	for _, e := range texts {
		secrets := e.plainSecrets()
		r.trace.clued = func(c *scan, tok *token) bool {
			v := c.s[tok.lo:tok.hi]
			secret, within := false, false
			for _, s := range secrets {
				within = within || strings.Contains(v, s)
				secret = secret || len(v) >= 5 && strings.Contains(s, v) || strings.Contains(v, s) && len(v) <= 2*len(s)+8
			}
			// What labels and shapes have shown is a secret, too, and unlike what they leave: it counts for little.
			weight, taken, sure := 1.0, c.taken(tok.lo, tok.hi), strings.HasPrefix(e.class, "!")
			if sure {
				weight = 4
			} else if e.class == "fresh" { // one of many with other secrets
				weight = 0.3
			}
			switch {
			case !secret && (within || taken), taken && sure: // what is around the secret would be learned, too
				return false
			case taken:
				weight *= 0.3
			case secret:
				weight *= 5
			}
			x := clueSample{secret: secret, sure: sure, weight: weight, text: e.text}
			c.noted = nil
			c.clues(tok)
			for _, f := range c.noted {
				name, text, _ := strings.Cut(f.Name, "=")
				h := hashOf(name, text, "")
				names[h] = f.Name
				x.clues = append(x.clues, h)
			}
			slices.Sort(x.clues)
			samples = append(samples, x)
			return false
		}
		r.trace.found = nil
		r.text(e.text, false, true)
	}
	return samples, names
}

// clueTexts are what the weights of clues are learned from, always the same.
func clueTexts(t testing.TB) (texts []corpusEntry) {
	files, _ := os.ReadDir("testdata/corpus")
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".txt")
		times, class := 1, ""
		switch name {
		case "harmless", "damage", "places_harmless", "code_harmless", "secrets", "leaks", "places":
			class = "!"
		case "third", "people":
			class, times = "fresh", 6
		default:
			if strings.HasPrefix(name, "people_") || name == "real_harmless" {
				texts = append(texts, readCases(t, name)...)
				continue
			} else if !strings.HasPrefix(name, "fresh_") && !strings.HasSuffix(name, "_harmless") {
				continue
			} else if !strings.HasSuffix(name, "_harmless") {
				class, times = "fresh", 6
			}
		}
		for _, e := range readCorpus(t, f.Name(), times) {
			if strings.HasSuffix(name, "harmless") || name == "damage" {
				e.secrets = nil // what is random in it
			}
			texts = append(texts, corpusEntry{class, e.text, e.secrets})
		}
	}
	for name, text := range cleanTexts {
		texts = append(texts, corpusEntry{"!" + name, text, nil})
	}
	for i := range uint64(200) { // ids are in every session
		for _, form := range [...]string{"id ‹l26›", "id ‹r27›", "id ‹r22›", "‹r26› is the id of it"} {
			text, _ := testscale.ExpandSecret(form, i)
			texts = append(texts, corpusEntry{"!ids", text, nil})
		}
	}
	sorted := func() {
		slices.SortStableFunc(texts, func(a, b corpusEntry) int {
			return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.class, b.class))
		})
	}
	if sorted(); !update { // a part shows whether the weights are those of the corpus
		n := 0
		texts = slices.DeleteFunc(texts, func(corpusEntry) bool { n++; return n%testscale.Rounds(20, 1) != 0 })
	}
	for _, e := range texts {
		for k := 1; k <= everywhere && strings.HasPrefix(e.class, "!"); k++ {
			texts = append(texts, corpusEntry{e.class, ways[k].wrap(e.text), e.secrets})
		}
	}
	sorted()
	return texts
}

// fitClues makes weights by logistic regression, averaged over its later rounds, of clues that are not rare.
func fitClues(samples []clueSample) map[uint32]float64 {
	const rare, rounds, rate, decay = 5, 20, 0.1, 1e-3
	count, index := map[uint32]int{}, map[uint32]int{}
	for _, x := range samples {
		for _, h := range x.clues {
			if count[h]++; count[h] == rare {
				index[h] = len(index)
			}
		}
	}
	rows := make([][]int, len(samples))
	for i, x := range samples {
		for _, h := range x.clues {
			if k, ok := index[h]; ok {
				rows[i] = append(rows[i], k)
			}
		}
	}
	w, squares, total := make([]float64, len(index)), make([]float64, len(index)), map[uint32]float64{}
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(samples))
	for n := range rounds {
		for _, i := range order {
			sum := 0.0
			for _, k := range rows[i] {
				sum += w[k]
			}
			wrong := 1 / (1 + math.Exp(-sum))
			if samples[i].secret {
				wrong--
			}
			for _, k := range rows[i] {
				step := wrong*samples[i].weight + decay*w[k]
				squares[k] += step * step
				w[k] -= rate * step / math.Sqrt(squares[k]+1e-6)
			}
		}
		for h, k := range index {
			if n >= rounds/2 {
				total[h] += w[k] / (rounds / 2)
			}
		}
	}
	return total
}

func TestClues(t *testing.T) {
	samples, names := learnClues(t, clueTexts(t))
	wrong := func(x *clueSample) bool {
		score := 0
		for _, h := range x.clues {
			score += clueWeight(h)
		}
		return (score > 0) != x.secret
	}
	// The tests that come after this one are judged by the new weights. Texts that may not be judged wrong, and are, count
	// for more the next time.
	for again := update; again; {
		writeClues(t, fitClues(samples), names)
		again = false
		for i := range samples {
			if x := &samples[i]; x.sure && wrong(x) {
				x.weight *= 3
				again = true
			}
		}
	}
	n := 0
	for i := range samples {
		if x := &samples[i]; wrong(x) {
			n++
			t.Logf("%t in %q", x.secret, x.text)
		}
	}
	t.Logf("%d words, %d wrong", len(samples), n)
	if n*25 > len(samples) {
		t.Errorf("%d of %d words are judged wrong: are the weights those of this corpus?", n, len(samples))
	}
}

// writeClues writes the weights in the place of those that the file has.
func writeClues(t *testing.T, weights map[uint32]float64, names map[uint32]string) {
	pairs := map[string][]string{}
	for h, w := range weights {
		if n := int(math.Round(max(-127, min(127, w*16)))); n < -3 || n > 3 { // what counts for little takes most space
			name, text, _ := strings.Cut(strings.ReplaceAll(names[h], " ", "·"), "=")
			pairs[name] = append(pairs[name], fmt.Sprintf("%s %d", cmp.Or(text, "␀"), n))
		}
	}
	cluesFile = strings.Join(strings.SplitAfterN(cluesFile, "\n", 4)[:3], "")
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		slices.Sort(pairs[name])
		for row := range slices.Chunk(pairs[name], 8) {
			cluesFile += name + " " + strings.Join(row, " ") + "\n"
		}
	}
	testscale.Must(t, os.WriteFile("data/clues.txt", []byte(cluesFile), 0o644))
	clueWeights = readClues()
}
