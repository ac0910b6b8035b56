package redact

import (
	_ "embed" // of the weights
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// A secret that no sign joins to a label is known by what is around it. Each word of a text that may be one, and that
// no label and no shape has shown, is judged by clues: what it looks like, the signs and the words beside it, those of
// the lines above and below, and which labels are near. The score is the sum of the weights of its clues: above zero
// the word is a secret. The weights are in data/clues.txt; a program makes them from the corpus (see weights_test.go).
//
//	Pour la base de recette, connecte-toi avec k39qeapQ9MeYR
//
// has the clues kind=token, one left=avec, left=connecte and some sixty others.

// cluesRule is what Config.DisableRules calls it.
const cluesRule = "clues"

//go:embed data/clues.txt
var cluesFile string

// clueWeights are the weights of clues by the hashes of what they are called. Most clues have none, and the bits of
// weighed, by the upper half of the hashes, show so in few cycles.
var (
	clueWeights map[uint32]int8
	weighed     [1 << 10]uint64
)

func readClues() map[uint32]int8 {
	all := make(map[uint32]int8, 1<<15)
	weighed = [len(weighed)]uint64{}
	spaces := strings.NewReplacer("·", " ", "␀", "")
	for _, line := range tableRows(cluesFile) {
		row := strings.Split(line, " ")
		name := spaces.Replace(row[0])
		for i := 1; i+1 < len(row); i += 2 {
			n, _ := strconv.Atoi(row[i+1])
			if strings.ContainsAny(row[i], "·␀") {
				row[i] = spaces.Replace(row[i])
			}
			h := hashOf(name, row[i], "")
			all[h] = int8(n)
			weighed[h>>22] |= 1 << (h >> 16 & 63)
		}
	}
	return all
}

// clueWeight returns the weight of a clue by its hash, 0 where it has none.
func clueWeight(h uint32) int {
	if weighed[h>>22]>>(h>>16&63)&1 == 0 {
		return 0
	}
	return int(clueWeights[h])
}

// hashOf is the FNV-1a hash of what a clue is called: name=text, or name=text more.
func hashOf(name, text, more string) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * prime
	}
	h = (h ^ '=') * prime
	for i := range len(text) {
		h = (h ^ uint32(plain[text[i]])) * prime
	}
	if more != "" {
		h = (h ^ ' ') * prime
	}
	for i := range len(more) {
		h = (h ^ uint32(plain[more[i]])) * prime
	}
	return h
}

// plain is how clues have a byte: letters in lower case, digits as 0, blanks as a space.
var plain = func() (t [256]byte) {
	for b := range t {
		switch t[b] = toLower(byte(b)); {
		case class[b]&digit != 0:
			t[b] = '0'
		case class[b]&space != 0:
			t[b] = ' '
		}
	}
	return t
}()

// label is the name of a secret in a text.
type label struct {
	lo, hi int
	class  string
}

const (
	clueBytes = 80 // of a line, before and after a word, whose words are clues
	gramBytes = 24 // before a word, of which each gram bytes are a clue
	gram      = 4
	labelled  = maxStatement // how far from a label words without digits are judged
)

// byClues finds the secrets that no label has named: of the words that have a digit, and near labels of all.
func (c *scan) byClues() {
	c.sort()
	c.floor, c.tokens = 0, c.tokens[:0]
	slices.SortFunc(c.labels, func(a, b label) int { return a.lo - b.lo })
	c.known, c.clueing = len(c.found), true
	for i, n := 0, 0; i < len(c.s); {
		for n < len(c.labels) && c.labels[n].hi+labelled < i {
			n++
		}
		if n == len(c.labels) || i < c.labels[n].lo-labelled {
			to := len(c.s)
			if n < len(c.labels) {
				to = c.labels[n].lo - labelled
			}
			lo, hi := oddWord(c.s, i, to)
			if hi == 0 {
				i = to
				continue
			}
			start := lo
			for start > i && class[c.s[start-1]]&apartBy == 0 {
				start--
			}
			if i = start; i > 0 && oneByteOf(quotes, c.s[i-1]) {
				i--
			}
			for i < hi { // another script may begin within it
				i = c.readToken(i, len(c.s))
			}
		} else {
			i = c.readToken(i, len(c.s))
		}
		for k := range c.tokens {
			c.labelFrom = n
			if t := &c.tokens[k]; c.clued(t) {
				c.found = append(c.found, finding{start: t.lo, end: c.blockEnd(t.lo, t.hi), marker: Marker})
			}
		}
		c.tokens = c.tokens[:0]
	}
}

// odd reports whether s has a word that clues may show to be a secret though no label is near.
func (r *Redactor) odd(s string) bool {
	lo, hi := oddWord(s, 0, len(s))
	if hi == 0 {
		return false // most texts
	}
	c := scans.Get().(*scan)
	defer scans.Put(c)
	c.begin(r, s)
	for hi > 0 && (hi-lo == len(s) || c.ownedApart(lo) || !byItself(s[lo:hi])) {
		lo, hi = oddWord(s, hi, len(s))
	}
	c.begin(nil, "")
	return hi > 0
}

// suspicious reports whether a word of s[from:to] may be a password or a key.
func suspicious(s string, from, to int) bool {
	// This is what most texts with the word "key" or "login" are looked at with, so it is one pass over bytes: a word of
	// letters and digits, or of four parts with hyphens between them.
	const shortest = 8
	start, seen, dashes := max(from, 0), charset(0), 0
	for i := start; i < min(to, len(s)); i++ {
		c := class[s[i]]
		if c&ofToken == 0 {
			start, seen, dashes = i+1, 0, 0
			continue
		}
		if seen |= c; c&dash != 0 {
			dashes++
		}
		if i-start >= shortest-1 && (seen&digit != 0 && seen&letter != 0 || dashes >= 3) {
			return true
		}
	}
	return false
}

// byItself reports whether v looks like a secret wherever it is.
func byItself(v string) bool {
	return len(v) >= 8 && run(v, 0, digit|hexLower) < len(v) &&
		(tokenLike(v) || strong(v) || chancy(v) || byChance(v, 48)) && known(v) == anOther
}

// oddWord returns the bounds of the first word in s[i:to], or of the value of name=value, that mixes digits and letters
// as few words do; 0, 0 where none is.
func oddWord(s string, i, to int) (lo, hi int) {
	for i = nextDigit(s[:to], i); i < to; i = nextDigit(s[:to], i) {
		// A number apart is in most texts: only what is glued to letters is looked at.
		end := run(s[:to], i, digit)
		if i > 0 && class[s[i-1]]&letter != 0 || end < len(s) && class[s[end]]&letter != 0 {
			if lo, end, ok := oddAround(s, i); ok {
				return lo, end
			} else if end > i {
				i = min(to, end+1)
				continue
			}
		}
		i = end
	}
	return 0, 0
}

// oddAround returns the bounds of the word around the digit at i, or of its value, and reports whether it is odd.
func oddAround(s string, i int) (lo, hi int, ok bool) {
	lo = i
	for lo > 0 && i-lo < maxJudged && class[s[lo-1]]&apartBy == 0 {
		lo--
	}
	seen, last, turns, hex := charset(0), charset(0), 0, true
	for hi = lo; hi < len(s) && class[s[hi]]&apartBy == 0; hi++ {
		c := class[s[hi]]
		if b := s[hi]; (b == '=' || b == ':') && hi+1 < len(s) && class[s[hi+1]]&(apartBy|equals) == 0 {
			lo, seen, last, turns, hex = hi+1, 0, 0, 0, true
			continue
		}
		if (c^last)&digit != 0 && (c|last)&letter != 0 && last != 0 {
			turns++
		}
		last, seen, hex = c, seen|c, hex && c&(hexLower|digit|dash|dot|under) != 0
	}
	return lo, hi, hi-lo >= 8 && hi-lo < maxJudged && !hex && seen&digit != 0 &&
		(turns > 1 || seen&lower != 0 && seen&upper != 0 || seen&letter != 0 && seen&(star|dollar|percent) != 0)
}

// nextDigit returns where the first digit at or after i is, the length of s where none is. It looks at eight bytes at
// once: most texts have few.
func nextDigit(s string, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		low := x &^ tops
		if digits := (low + ones*(0x80-'0')) &^ (low + ones*(0x80-'9'-1)) &^ x & tops; digits != 0 {
			return i + bits.TrailingZeros64(digits)/8
		}
	}
	for i < len(s) && class[s[i]]&digit == 0 {
		i++
	}
	return i
}

// unusual reports whether s[lo:hi] may be judged by clues, where they are: it is no word of a language, and nothing
// found yet.
func (c *scan) unusual(lo, hi int) bool {
	v := c.s[lo:hi]
	return !c.clueing || len(v) >= 6 && len(v) < len(c.s) && strings.IndexByte(v, ' ') < 0 && !marked(v) &&
		(digits(v) || strings.ContainsAny(strings.TrimRight(v, "?!"), passwordMarks) || strings.Count(v, "-") > 1 ||
			byChance(v, 40)) &&
		(!c.taken(lo, hi) || c.r.trace != nil && c.r.trace.clued != nil)
}

// taken reports whether s[lo:hi] overlaps what labels and shapes have shown.
func (c *scan) taken(lo, hi int) bool {
	n := c.known
	k, _ := slices.BinarySearchFunc(c.found[:n], lo, func(f finding, lo int) int {
		if f.end <= lo {
			return -1
		}
		return 1
	})
	return k < n && c.found[k].start < hi
}

// judgeable reports whether the token may be a secret for what it is: no name, no id, no part of a certificate, a
// picture or a mail. Apart from labels only what looks made by chance is worth the time.
func (c *scan) judgeable(t *token) bool {
	v, k := c.s[t.lo:t.hi], t.f.kind
	name := v[strings.LastIndexAny(v, "/^")+1:] // out/ses_1fa2bdc08~6d77.json
	if k < aHash && k != aPin && k != aUUID && !byItself(v) || k == aText ||
		has("idPrefixes", name[:max(0, strings.IndexByte(name, '_'))]) ||
		k.named() && (t.f.is(isFamiliar) || !digits(v) && k != aPhrase) ||
		t.f.is(isAlone) && c.inBlock(t.lo) || len(v) > 100 && run(v, 0, base64) == len(v) && k != aHash ||
		strings.HasSuffix(c.s[:t.lo], "id ") ||
		slices.ContainsFunc(words["files"], func(head string) bool { return strings.HasPrefix(v, head) }) {
		return false
	}
	n := c.labelFrom
	return n < len(c.labels) && c.labels[n].lo-labelled <= t.hi || !c.ownedApart(t.lo) && byItself(v)
}

// clued decides by its clues whether the token is a secret.
func (c *scan) clued(t *token) bool {
	v, k, trace := c.s[t.lo:t.hi], t.f.kind, c.r.trace
	if !c.judgeable(t) {
		return false
	}
	if trace != nil && trace.clued != nil {
		return trace.clued(c, t)
	}
	c.score, c.noted = 0, nil
	c.clues(t)
	secret := c.score > 0
	if secret {
		plain, ok := decoded(v)
		secret = !ok || strings.IndexByte(plain, ' ') <= 0 // Base64 of a sentence
	}
	trace.note(Candidate{Start: c.v.origin(t.lo, 0), End: c.v.origin(t.hi, 1), Kind: columnNames[k],
		Features: c.noted, Score: c.score, Secret: secret})
	return secret
}

// inBlock reports whether the line before that of i is of Base64, or begins a block of it.
func (c *scan) inBlock(i int) bool {
	from, _ := c.line(i)
	above := strings.TrimSpace(c.lineBefore(from))
	if above == "" {
		above = strings.TrimSpace(c.lineBefore(max(0, from-1)))
	}
	return strings.HasSuffix(above, "-----") || len(above) >= 40 && run(above, 0, base64) == len(above)
}

// clue adds the weight of a clue to the score of the token.
func (c *scan) clue(name, text, more string) {
	n := clueWeight(hashOf(name, text, more))
	c.score += n
	if t := c.r.trace; t != nil && (n != 0 || t.clued != nil) {
		if more != "" {
			text += " " + more
		}
		called := []byte(name + "=" + text)
		for i := range called {
			called[i] = plain[called[i]]
		}
		c.noted = append(c.noted, Feature{string(called), n})
	}
}

// clues adds up those of the token.
func (c *scan) clues(t *token) {
	s := c.s
	v, kind := s[t.lo:t.hi], columnNames[t.f.kind]
	looks := look(v)
	c.clue("always", "", "")
	c.clue("kind", kind, "")
	c.clue("size", few[min(len(v)/4, len(few)-1)], kind)
	c.clue("turns", few[min(looks.turns, 6)], "")
	c.clue("turns", few[min(looks.turns, 6)], kind)
	c.clue("cases", few[min(looks.cases, 6)], "")
	c.clue("in words", few[8*looks.inWords/len(v)], "")
	c.clueShape(v)
	for k := range marks {
		if t.f.is(k) {
			c.clue("mark", rowNames[int(joins)+int(classes)+int(k)], "")
		}
	}
	from, to := c.line(t.lo)
	if to < t.hi { // a string of several lines
		to = c.eol(t.hi)
	}
	lo, hi := max(from, t.lo-clueBytes), min(to, t.hi+clueBytes)
	c.clue("sign before", s[runeAt(s, max(from, t.lo-1)):t.lo], "")
	c.clue("signs before", s[runeAt(s, max(from, t.lo-2)):t.lo], "")
	c.clue("sign after", s[t.hi:runeAt(s, min(to, t.hi+1))], "")
	c.clue("signs after", s[t.hi:runeAt(s, min(to, t.hi+2))], "")
	for i := max(lo, t.lo-gramBytes); i+gram <= t.lo; i++ {
		end := i + gram
		for end < t.lo && !utf8.RuneStart(s[end]) {
			end++
		}
		if utf8.RuneStart(s[i]) {
			c.clue("before", s[i:end], "")
		}
	}
	c.clueLabels(t, from, to, kind)
	before := c.wordsIn(lo, t.lo)
	for i, w := range before {
		c.clue("left", w, "")
		if n := len(before) - 1 - i; n < len(leftward) {
			c.clue(leftward[n], w, "")
		}
	}
	for i, w := range c.wordsIn(t.hi, hi) {
		c.clue("right", w, "")
		if i < len(rightward) {
			c.clue(rightward[i], w, "")
		}
	}
	if from > 0 {
		for _, w := range c.wordsIn(since(s, from-1, max(0, from-1-clueBytes), "\n"), from-1) {
			c.clue("above", w, "")
		}
	}
	if to < len(s) {
		for _, w := range c.wordsIn(to+1, until(s, to+1, clueBytes, "\n")) {
			c.clue("below", w, "")
		}
	}
}

// Names of clues. Digits in their texts are all alike, so small numbers are words.
var (
	few       = strings.Fields("none one two three four five six seven eight nine ten eleven many")
	leftward  = [...]string{"one left", "two left", "three left", "four left"}
	rightward = [...]string{"one right", "two right", "three right"}
)

// clueShape adds the clue of v with one letter or digit for a row of them: Xa0 for Base64.
func (c *scan) clueShape(v string) {
	var buf [12]byte
	n := 0
	for i := 0; i < len(v) && n < len(buf); i++ {
		b := v[i]
		switch c := class[b]; {
		case c&digit != 0:
			b = '0'
		case c&lower != 0:
			b = 'a'
		case c&upper != 0:
			b = 'x'
		case c&foreign != 0:
			b = '~'
		}
		if n == 0 || b != buf[n-1] {
			buf[n] = b
			n++
		}
	}
	c.clue("shape", unsafe.String(&buf[0], n), "")
}

// clueLabels adds a clue for each label near the token, in its line from from to to and in those above and below.
func (c *scan) clueLabels(t *token, from, to int, kind string) {
	for _, l := range c.labels[c.labelFrom:] {
		where := ""
		switch {
		case l.hi <= t.lo-2*clueBytes:
			continue
		case l.lo >= t.hi+clueBytes:
			return
		case l.hi <= from:
			where = "label above"
		case l.hi <= t.lo && t.lo-l.hi < 4:
			where = "label at"
		case l.hi <= t.lo && t.lo-l.hi < 20:
			where = "label close"
		case l.hi <= t.lo:
			where = "label before"
		case l.lo >= to:
			where = "label below"
		case l.lo >= t.hi:
			where = "label after"
		default:
			continue
		}
		c.clue(where, l.class, "")
		c.clue(where, l.class, kind)
	}
}

// runeAt returns where the rune begins that the byte i is of.
func runeAt(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// wordsIn returns the words of s[lo:hi] that are no secrets, until it is called again.
func (c *scan) wordsIn(lo, hi int) []string {
	c.around = c.around[:0]
	hi = runeAt(c.s, hi)
	for i := runeAt(c.s, lo); i < hi; {
		end := wordFrom(c.s, i, hi)
		if end > i && !c.taken(i, end) && c.s[i:end] != "REDACTED" {
			c.around = append(c.around, c.s[i:end])
		}
		i = max(end, i+1)
	}
	return c.around
}
