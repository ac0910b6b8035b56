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

// sample is a value that the judge saw, and whether it was a secret.
type sample struct {
	f       features
	secret  bool
	weight  float64
	v, text string
}

// String names the features, as data/weights.txt does.
func (f features) String() string {
	out := columnNames[f.kind]
	for _, x := range f.explained() {
		out += " " + x.Name
	}
	return out
}

// learn returns what the judge sees of texts, when it decides as it should.
func learn(t testing.TB, texts []corpusEntry) (samples []sample) {
	t.Helper()
	r := mustNew(t, Config{})
	r.trace = &trace{}
	for _, e := range texts {
		r.trace.judge = func(f features, v string) bool {
			secret := false
			for _, s := range e.plainSecrets() {
				if len(v) > 2*len(s)+8 && strings.Contains(v, s) {
					return true // what is around the secret would be learned, too
				}
				secret = secret || v == s || len(v) >= 4 && (strings.Contains(v, s) || strings.Contains(s, v))
			}
			// A word that nothing joins to the label is like any other.
			var loose []join
			if !f.is(isQuoted) && !(f.kind == aNameDigit && f.class >= credential) {
				loose = append(loose, prose, bare, argument, cell, below)
			}
			names := []kind{aWord, aDotted, aCamel, aNameDigit}
			if !f.is(isFamiliar) {
				names = names[:1]
				if f.class > credential && f.is(ends) && f.join == bare && f.is(startsLine) || f.join == below ||
					f.join == prose || f.is(isListed) {
					names = nil // remote_password SECRET
				}
			}
			assigned := f.class != keyed && (f.join == tight || f.join == flag || f.join == setting)
			if secret && f.class <= countable && (f.kind == aWord || f.class == keyed && slices.Contains(names, f.kind)) &&
				!assigned { // Tokens and keys are no words, unless somebody assigns one.
				return secret
			}
			if len(v) < 16 { // short ids of commits and prompts are everywhere
				names = append(names, aHash)
			}
			if secret && slices.Contains(names, f.kind) && slices.Contains(loose, f.join) {
				return secret
			}
			weight := 1.0
			if strings.HasPrefix(e.class, "!") {
				weight = 2500
			} else if e.class == "cases" {
				weight = 100 // as somebody wrote it, with no others made of it
			}
			samples = append(samples, sample{f, secret, weight, strings.Clone(v), e.text})
			return secret
		}
		r.trace.found = nil
		r.text(e.text, false, false)
	}
	return samples
}

// fit makes weights by logistic regression, averaged over its rounds. Values with the same features count as one, the
// more the more there are of them.
func fit(samples []sample) {
	const secret, harmless = 1, 0
	tally := map[features]*[2]float64{}
	for _, x := range samples {
		n := tally[x.f]
		if n == nil {
			n = new([2]float64)
			tally[x.f] = n
		}
		if x.secret {
			n[secret] += x.weight
		} else {
			n[harmless] += x.weight
		}
	}
	all := slices.SortedFunc(maps.Keys(tally), func(a, b features) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.join, b.join), cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.marks, b.marks))
	})
	var m, total [len(weights)][len(weights[0])]float64
	rng := rand.New(rand.NewPCG(1, 2))
	const rounds, rate, largest = 100, 0.05, 25
	for range rounds {
		rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		for _, f := range all {
			n := tally[f]
			columns := [...]int{int(f.kind), int(kindCount) + int(f.join)}
			sum := 0.0
			for row := range f.rows {
				sum += m[row][columns[0]] + m[row][columns[1]]
			}
			// A text that changes for nothing counts as much as five secrets that stay, and is to be clearly below zero.
			step := rate * (math.Sqrt(n[secret])/(1+math.Exp(sum)) - 5*math.Sqrt(n[harmless])/(1+math.Exp(-sum-2)))
			step = max(-1, min(1, step))
			for row := range f.rows {
				for _, k := range columns {
					if row >= int(joins) || k < int(kindCount) { // of a join none for itself
						m[row][k] = max(-largest, min(largest, m[row][k]+step))
					}
				}
			}
		}
		for row := range m {
			for k := range m[row] {
				m[row][k] *= 0.99
				total[row][k] += m[row][k] / rounds
			}
		}
	}
	for row := range total {
		for k, v := range total[row] {
			weights[row][k] = int8(max(-127, min(127, math.Round(v*5))))
		}
	}
}

func trainingTexts(t testing.TB) []corpusEntry {
	texts := readCorpus(t, "secrets.txt", 1)
	texts = append(append(texts, readCorpus(t, "leaks.txt", 3)...), readCorpus(t, "places.txt", 1)...)
	for i := range texts { // of these none may leak
		texts[i].class = "!" + texts[i].class
	}
	harmless := []string{"harmless", "damage", "places_harmless", "code_harmless"}
	for _, half := range "abcdefgiklmnopqrst" {
		name := "fresh_" + string(half)
		texts = append(texts, readCorpus(t, name+".txt", len(kindsOfValues))...)
		harmless = append(harmless, name+"_harmless")
	}
	texts = append(append(texts, generated("secret", 30)...), generated("harmless", 10)...)
	texts = append(append(texts, generated("names", 40)...), generated("near", 12)...)
	for _, name := range harmless {
		for _, e := range readCorpus(t, name+".txt", 1) {
			if !strings.HasPrefix(name, "fresh") && name != "code_harmless" {
				e.class = "!" + e.class
			}
			if name == "code_harmless" {
				e.class = "cases"
			}
			texts = append(texts, corpusEntry{e.class, e.text, nil})
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
		head, tail, _ := strings.Cut(around[i+1], Marker)
		if text := around[i]; strings.HasPrefix(text, head) {
			texts = append(texts, corpusEntry{"around", text, []string{text[len(head) : len(text)-len(tail)]}})
		}
	}
	for _, part := range "xypqruvz" {
		name := "people_" + string(part)
		for _, e := range append(readCases(t, name), readCases(t, name+"_harmless")...) {
			texts = append(texts, corpusEntry{"cases", e.text, e.secrets})
		}
	}
	for name, text := range cleanTexts {
		texts = append(texts, corpusEntry{"!" + name, text, nil})
	}
	for _, e := range vendorTexts(24) {
		texts = append(texts, corpusEntry{"!" + e.class, e.text, e.secrets})
	}
	for _, text := range []string{"passcode: 078-05-1120", "password=078051120", "Password: 83921734",
		"secret: 4711-0815", `"password": 83921734`, "PASSWORD=4711", "SECRET: 078-05-1120", "PASSWORD: 4711-08-1512",
		"ACCESS_CODE: 1234-56-7890"} {
		number := strings.TrimLeft(text[strings.IndexAny(text, ":=")+1:], " ")
		texts = append(texts, corpusEntry{"!numbers", text, []string{number}},
			corpusEntry{"!numbers", text + " and more", []string{number}})
	}
	return inWays(texts, func(*corpusEntry) bool { return true })
}

// inWays returns the texts, and those that are wrapped in all ways that all texts are tried in, always in the same order.
// Without update it is a part of them, which shows whether the weights are those of the corpus.
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
		for k := 1; k <= everywhere && wrapped(&e); k++ {
			texts = append(texts, corpusEntry{e.class, ways[k].wrap(e.text), e.secrets})
		}
	}
	sorted()
	return texts
}

func TestWeights(t *testing.T) {
	samples := learn(t, trainingTexts(t))
	if update { // the tests that come after this one are judged by the new weights
		fit(samples)
		writeWeights(t)
	}
	wrong, positive := 0, 0
	for _, x := range samples {
		if x.secret {
			positive++
		}
		if (x.f.score() > 0) != x.secret {
			wrong++
			t.Logf("%t %q %s in %q", x.secret, x.v, x.f, x.text)
		}
	}
	t.Logf("%d samples, %d of them secrets, %d wrong", len(samples), positive, wrong)
	if wrong*25 > len(samples) {
		t.Errorf("%d of %d values are judged wrong: are the weights those of this corpus?", wrong, len(samples))
	}
}

// writeWeights writes the weights in the place of those that the file has.
func writeWeights(t *testing.T) {
	t.Helper()
	var b strings.Builder
	row := 0
	for line := range strings.SplitSeq(strings.TrimSpace(weightsFile), "\n") {
		if name, _, _ := strings.Cut(line, " "); name != "#" {
			line = name + " " + strings.Trim(fmt.Sprint(weights[row]), "[]")
			row++
		}
		b.WriteString(line + "\n")
	}
	if err := os.WriteFile("data/weights.txt", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
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
		harmless := strings.HasSuffix(name, "harmless") || name == "damage"
		times, class := 1, ""
		switch {
		case strings.HasPrefix(name, "people_"), name == "real_harmless":
			texts = append(texts, readCases(t, name)...)
			continue
		case slices.Contains(strings.Fields("harmless damage places_harmless code_harmless secrets leaks places"), name):
			class = "!"
		case !harmless && (strings.HasPrefix(name, "fresh_") || name == "third" || name == "people"):
			class, times = "fresh", 6
		case !harmless:
			continue
		}
		for _, e := range readCorpus(t, f.Name(), times) {
			if e.class = class; harmless {
				e.secrets = nil // what is random in it
			}
			texts = append(texts, e)
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
	return inWays(texts, func(e *corpusEntry) bool { return strings.HasPrefix(e.class, "!") })
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
