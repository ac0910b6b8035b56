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

// update, in the environment, has the weights written anew.
var update = os.Getenv("AGENTTRACE_WEIGHTS") != ""

// inWays returns the texts, and those that are wrapped in all ways that all texts are tried in, always in the same
// order. Without update it is a part of them, which shows whether the weights are those of the corpus.
func inWays(texts []corpusEntry, wrapped func(e *corpusEntry) bool) []corpusEntry {
	sorted := func() {
		slices.SortStableFunc(texts, func(a, b corpusEntry) int {
			return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.class, b.class))
		})
	}
	if sorted(); !update {
		n := 0
		texts = slices.DeleteFunc(texts, func(corpusEntry) bool { n++; return n%testscale.Rounds(20, 1) != 0 })
	}
	for _, e := range texts {
		for k := 1; k < len(ways) && wrapped(&e); k++ {
			if k > everywhere && (e.class != "!leaks" || strings.Contains(e.text, "\n")) {
				break
			}
			texts = append(texts, corpusEntry{e.class, ways[k].wrap(e.text), e.secrets})
		}
	}
	sorted()
	return texts
}

// clueSample is a word that was judged by clues: their hashes, and what is right.
type clueSample struct {
	clues        []uint32
	secret, sure bool // sure is what is of a text that may not be judged wrong
	weight       float64
	text         string
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
			secret, covered := false, 0
			for _, s := range secrets {
				secret = secret || len(v) >= 5 && strings.Contains(s, v)
				if strings.Contains(v, s) {
					covered += len(s)
				}
			}
			within := covered > 0
			secret = secret || within && len(v) <= 2*covered+8
			// What labels and shapes have shown is a secret, too, and unlike what they leave: it counts for little.
			weight, taken, sure := 1.0, c.taken(tok.lo, tok.hi), strings.HasPrefix(e.class, "!")
			if sure {
				weight = 2
			} else if e.class == "look-alike" {
				weight = 3
			} else if e.class == "fresh" { // one of many with other secrets
				weight = 0.3
			}
			switch {
			case !secret && (within || taken), taken && sure: // what is around the secret would be learned, too
				return false
			case secret && !tok.quoted && c.inString(tok.lo, secrets): // the string is the secret
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
				h := hashOf(name, text)
				names[h] = f.Name
				x.clues = append(x.clues, h)
			}
			slices.Sort(x.clues)
			samples = append(samples, x)
			return secret
		}
		r.trace.found = nil
		r.text(e.text, false, true)
	}
	return samples, names
}

// joined returns the secrets of a text, of which those that only a sign parts are one.
func joined(text string, secrets []string) (out []string) {
	at := 0 // where the last one ends
	for _, s := range secrets {
		k := strings.Index(text[at:], s)
		if k < 0 {
			return secrets
		}
		if n := len(out) - 1; k == 1 && n >= 0 {
			out[n] += text[at : at+1+len(s)]
		} else {
			out = append(out, s)
		}
		at += k + len(s)
	}
	return out
}

// inString reports whether i is within a secret of several words that is a string.
func (c *scan) inString(i int, secrets []string) bool {
	for _, s := range secrets {
		if strings.IndexByte(s, ' ') < 0 {
			continue
		}
		from := max(0, i-len(s))
		k := strings.Index(c.s[from:min(len(c.s), i+len(s))], s) + from
		if k > from && oneByteOf(quotes, c.s[k-1]) {
			return true
		}
	}
	return false
}

// clueTexts are what the weights of clues are learned from, always the same.
func clueTexts(t testing.TB) (texts []corpusEntry) {
	files, _ := os.ReadDir("testdata/corpus")
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".txt")
		harmless := strings.HasSuffix(name, "harmless") || name == "damage"
		times, class := 1, ""
		switch {
		case strings.HasPrefix(name, "people_held"): // these show what is done with texts not learned from
			continue
		case name == "sure", strings.HasPrefix(name, "people_"), name == "real_harmless", name == "agents_harmless":
			for _, e := range readCases(t, name) {
				if name == "agents_harmless" || name == "sure" {
					e.class = "!" + name
				}
				texts = append(texts, e)
			}
			continue
		case slices.Contains(strings.Fields("harmless damage places_harmless code_harmless secrets leaks places"), name):
			class = "!"
			if name == "leaks" {
				class = "!leaks"
			}
		case !harmless && (strings.HasPrefix(name, "fresh_") || name == "third" || name == "people"):
			class, times = "fresh", len(kindsOfValues)
		case !harmless:
			continue
		}
		for i, e := range readCorpus(t, f.Name(), times) {
			if class == "fresh" && i%7 != 0 { // of each form some kinds of values, of each another
				continue
			}
			if e.class = class; harmless {
				e.secrets = nil // what is random in it
				e.class = cmp.Or(class, "look-alike")
			}
			texts = append(texts, e)
		}
	}
	for name, text := range cleanTexts {
		texts = append(texts, corpusEntry{"!" + name, text, nil})
	}
	texts = append(texts, generated("secret", 10)...)
	for _, class := range []string{"harmless", "names", "near"} {
		for _, e := range generated(class, 10) {
			texts = append(texts, corpusEntry{"", e.text, nil})
		}
	}
	for _, x := range ruleExamples {
		if x.rule() == nil {
			texts = append(texts, corpusEntry{"!" + x.name, x.whole(), []string{secretOf(&x)}},
				corpusEntry{"!" + x.name, places["log line"](x.whole()), []string{secretOf(&x)}})
		}
		for _, not := range x.not {
			texts = append(texts, corpusEntry{"!" + x.name, not, nil})
		}
	}
	around := passwords(t, "around.txt")
	for i := 0; i < len(around); i += 2 {
		pieces, text := strings.Split(around[i+1], Marker), around[i]
		var secrets []string
		for _, piece := range pieces[1:] {
			rest, ok := strings.CutPrefix(text, pieces[0])
			end := strings.Index(rest, piece)
			if piece == "" {
				end = len(rest)
			}
			if !ok || end < 0 {
				break
			}
			secrets, text, pieces[0] = append(secrets, rest[:end]), rest[end:], piece
		}
		texts = append(texts, corpusEntry{"!around", around[i], secrets})
	}
	for _, e := range vendorTexts(24) {
		texts = append(texts, corpusEntry{"!vendors", e.text, e.secrets})
	}
	for _, what := range []string{"passwords", "keys"} {
		forms, secrets := people(t, what)
		for i, form := range forms {
			for k := i % 4; k < len(secrets); k += 4 {
				text := strings.NewReplacer("‹›", secrets[k], "␤", "\n").Replace(form)
				texts = append(texts, corpusEntry{"", text, []string{secrets[k]}})
			}
		}
	}
	for i := range uint64(200) { // ids are in every session
		for _, form := range [...]string{"id ‹l26›", "id ‹r27›", "id ‹r22›", "‹r26› is the id of it"} {
			text, _ := testscale.ExpandSecret(form, i)
			texts = append(texts, corpusEntry{"!ids", text, nil})
		}
	}
	for i, e := range texts {
		texts[i].secrets = joined(e.text, e.secrets)
	}
	for _, e := range texts { // what is redacted stays as it is, and hides nothing else
		text := e.text
		for i, s := range e.secrets {
			if len(s) >= 4 && e.class != "fresh" && strings.Contains(text, s) {
				text = strings.ReplaceAll(text, s, Marker)
				texts = append(texts, corpusEntry{e.class, text, e.secrets[i+1:]})
			}
		}
	}
	return inWays(texts, func(e *corpusEntry) bool {
		return strings.HasPrefix(e.class, "!") && e.class != "!vendors" && e.class != "!agents_harmless"
	})
}

// fitting makes weights by logistic regression.
type fitting struct {
	samples    []clueSample
	rows       [][]int32 // the clues of each sample, by their indices
	hashes     []uint32  // of the clues
	w, squares []float64
}

// newFitting returns one for the clues that ok reports true for.
func newFitting(samples []clueSample, ok func(h uint32) bool) *fitting {
	f := fitting{samples: samples, rows: make([][]int32, len(samples))}
	index := map[uint32]int32{}
	for i, x := range samples {
		for _, h := range x.clues {
			k, known := index[h]
			if !known && !ok(h) {
				continue
			} else if !known {
				k = int32(len(f.hashes))
				index[h] = k
				f.hashes = append(f.hashes, h)
			}
			f.rows[i] = append(f.rows[i], k)
		}
	}
	f.w, f.squares = make([]float64, len(f.hashes)), make([]float64, len(f.hashes))
	return &f
}

// fit goes over all samples some times, and returns the average of the weights over the later half of them.
func (f *fitting) fit(rounds int, rate float64) map[uint32]float64 {
	const decay = 1e-3
	sums := make([]float64, len(f.w))
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(f.samples))
	for n := range rounds {
		for _, i := range order {
			sum := 0.0
			for _, k := range f.rows[i] {
				sum += f.w[k]
			}
			wrong := 1 / (1 + math.Exp(-sum))
			if f.samples[i].secret {
				wrong--
			}
			for _, k := range f.rows[i] {
				step := wrong*f.samples[i].weight + decay*f.w[k]
				f.squares[k] += step * step
				f.w[k] -= rate * step / math.Sqrt(f.squares[k]+1e-6)
			}
		}
		for k, w := range f.w {
			if n >= rounds/2 {
				sums[k] += w / float64(rounds-rounds/2)
			}
		}
	}
	total := map[uint32]float64{}
	for k, h := range f.hashes {
		total[h] = sums[k]
	}
	return total
}

const scale = 16 // of the weights in the file

func TestClues(t *testing.T) {
	samples, names := learnClues(t, clueTexts(t))
	wrong := func(x *clueSample) bool {
		score := 0
		for _, h := range x.clues {
			score += clueWeight(h)
		}
		return (score > 0) != x.secret
	}
	if update { // the tests that come after this one are judged by the new weights
		const rare, least = 5, 0.25 // rare clues, and those that count for little, get no weight
		count := map[uint32]int{}
		for _, x := range samples {
			for _, h := range x.clues {
				if count[h]++; x.sure {
					count[h] += 2
				}
			}
		}
		weights := newFitting(samples, func(h uint32) bool { return count[h] >= rare }).fit(8, 0.1)
		f := newFitting(samples, func(h uint32) bool { return math.Abs(weights[h]) >= least })
		weights = f.fit(8, 0.1)
		// Texts that may not be judged wrong, and are, count for more the next time.
		for round, bad := 0, 1; bad > 0 && round < 16; round++ {
			writeClues(t, weights, names)
			bad = 0
			for i := range samples {
				if x := &samples[i]; x.sure && wrong(x) {
					x.weight *= 2
					bad++
				}
			}
			t.Logf("%d that may not be judged wrong are", bad)
			weights = f.fit(2, 0.1/float64(1+round/4))
		}
	}
	n := 0
	for i := range samples {
		if x := &samples[i]; wrong(x) {
			n++
			t.Logf("%t in %q, sure: %t", x.secret, x.text, x.sure)
		}
	}
	t.Logf("%d words, %d wrong", len(samples), n)
	if n*25 > len(samples) {
		t.Errorf("%d of %d words are judged wrong: are the weights those of this corpus?", n, len(samples))
	}
}

// writeClues writes the weights in the place of those that the file has.
func writeClues(t *testing.T, weights map[uint32]float64, names map[uint32]string) {
	texts := map[string][]string{} // of clues by their name and weight
	for h, w := range weights {
		if n := int(math.Round(max(-127, min(127, w*scale)))); n != 0 { // what counts for little takes most space
			name, text, _ := strings.Cut(names[h], "=")
			row := fmt.Sprintf("%s\t%d", name, n)
			texts[row] = append(texts[row], text)
		}
	}
	cluesFile = strings.Join(strings.SplitAfterN(cluesFile, "\n", 4)[:3], "")
	for _, row := range slices.Sorted(maps.Keys(texts)) {
		slices.Sort(texts[row])
		for some := range slices.Chunk(texts[row], 12) {
			cluesFile += row + "\t" + strings.Join(some, "\t") + "\n"
		}
	}
	testscale.Must(t, os.WriteFile("data/clues.txt", []byte(cluesFile), 0o644))
	readClues()
}
