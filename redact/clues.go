package redact

import (
	_ "embed" // of the weights
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// A secret without a shape of its own is known by what is around it. Each token of a text that may be one, and that no
// shape has shown, is judged by clues: what it looks like, the signs and the words beside it, which labels are near it
// and how they are joined. The score is the sum of the weights of its clues: above zero the token is a secret. The
// weights are in data/clues.txt; a program makes them from the corpus (see clues_test.go).
//
//	password: k39qeapQ9MeYR
//
// has the clues kind=token, class=secret token, between=: and some forty others. Near a label, the name of a secret,
// every token is judged; far from all of them what looks made by chance.

// cluesRule is what Config.DisableRules calls it.
const cluesRule = "clues"

//go:embed data/clues.txt
var cluesFile string

// clueWeights has the weights of clues by the hashes of what they are called; a free place has the hash 0. Most clues
// that are asked for have none, and the places are many so that the first one shows it nearly always.
var clueWeights struct {
	hashes  []uint32
	weights []int8
}

const cluePlaces = 1 << 18

func readClues() {
	w := &clueWeights
	w.hashes, w.weights = make([]uint32, cluePlaces), make([]int8, cluePlaces)
	for _, line := range tableRows(cluesFile) {
		name, rest, _ := strings.Cut(line, "\t")
		number, rest, more := strings.Cut(rest, "\t")
		n, _ := strconv.Atoi(number)
		for more {
			var text string
			text, rest, more = strings.Cut(rest, "\t")
			h := hashOf(name, text)
			i := h % cluePlaces
			for w.hashes[i] != 0 && w.hashes[i] != h {
				i = (i + 1) % cluePlaces
			}
			w.hashes[i], w.weights[i] = h, int8(n)
		}
	}
}

// clueWeight returns the weight of a clue by its hash, 0 where it has none.
func clueWeight(h uint32) int {
	for i := h % cluePlaces; clueWeights.hashes[i] != 0; i = (i + 1) % cluePlaces {
		if clueWeights.hashes[i] == h {
			return int(clueWeights.weights[i])
		}
	}
	return 0
}

// hashOf is the FNV-1a hash of what a clue is called: name=text, or name=text more.
func hashOf(name string, texts ...string) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * prime
	}
	h = (h ^ '=') * prime
	for n, text := range texts {
		if n > 0 {
			h = (h ^ ' ') * prime
		}
		for i := range len(text) {
			h = (h ^ uint32(plain[text[i]])) * prime
		}
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

const (
	clueBytes = 80 // of a line, before and after a word, whose words are clues
	gramBytes = 12 // before a word, of which each gram bytes are a clue
	gram      = 4
)

// clue adds the weight of a clue to the score of the token.
func (c *scan) clue(name string, texts ...string) {
	n := clueWeight(hashOf(name, texts...))
	c.score += n
	if t := c.r.trace; t != nil && (n != 0 || t.clued != nil) {
		c.noted = append(c.noted, Feature{called(name, texts), n})
	}
}

// called is what a clue is called.
func called(name string, texts []string) string {
	b := []byte(name + "=" + strings.Join(texts, " "))
	for i := range b {
		b[i] = plain[b[i]]
	}
	return string(b)
}

// clues adds up those of the token.
func (c *scan) clues(t *token) {
	s := c.s
	v, kind := s[t.lo:t.hi], kindNames[t.kind]
	// What it looks like. Many clues are there twice, alone and with the kind: what speaks for a secret of a word may
	// speak against one of a path, and no sum of two weights says so.
	looks := look(v)
	c.clue("always", "")
	c.clue("kind", kind)
	c.clue("size", few[min(len(v)/4, len(few)-1)], kind)
	c.clue("turns", few[min(looks.turns, 6)])
	c.clue("turns", few[min(looks.turns, 6)], kind)
	c.clue("cases", few[min(looks.cases, 6)])
	c.clue("in words", few[8*looks.inWords/len(v)])
	c.clueShape(v)
	c.clueMarks(t, kind)
	// What is beside it in its line: signs, rows of four bytes, words. The bytes have what no list of words has: the
	// endings of other languages, names of frameworks, how a tool writes its prompt.
	from, to := c.line(t.lo)
	if to < t.hi { // a string of several lines
		to = c.eol(t.hi)
	}
	lo, hi := max(from, t.lo-clueBytes), min(to, t.hi+clueBytes)
	c.clue("sign before", s[runeAt(s, max(from, t.lo-1)):t.lo])
	c.clue("signs before", s[runeAt(s, max(from, t.lo-2)):t.lo])
	c.clue("sign after", s[t.hi:runeAt(s, min(to, t.hi+1))])
	c.clue("signs after", s[t.hi:runeAt(s, min(to, t.hi+2))])
	first := max(lo, t.lo-gramBytes)
	if k := strings.LastIndex(s[first:t.lo], "__"); k >= 0 { // a marker says nothing
		first += k + 2
	}
	for i := first; i+gram <= t.lo; i++ {
		end := i + gram
		for end < t.lo && !utf8.RuneStart(s[end]) {
			end++
		}
		if utf8.RuneStart(s[i]) {
			c.clue("before", s[i:end])
		}
	}
	// Which labels are near, and what joins the nearest ones to it.
	c.clueLabels(t, from, to, kind)
	c.clueJoints(t, kind)
	before := c.wordsIn(lo, t.lo)
	for i, w := range before {
		c.clue("left", w)
		if n := len(before) - 1 - i; n < len(leftward) {
			c.clue(leftward[n], w)
		}
	}
	for i, w := range c.wordsIn(t.hi, hi) {
		if i < len(rightward) {
			c.clue(rightward[i], w)
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
	c.clue("shape", unsafe.String(&buf[0], n))
}

// clueLabels adds a clue for each label near the token, in its line from from to to and in those above and below. In
//
//	Login: admin
//	New password for it? k39qeapQ9MeYR
//
// these are "label above" for Login and "label before" for password, each alone and with the kind of the token.
func (c *scan) clueLabels(t *token, from, to int, kind string) {
	for _, l := range c.labels[c.firstLabel:] {
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
		c.clue(where, l.class)
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

// clueMarks adds those of the token itself that a text either has or not.
func (c *scan) clueMarks(t *token, kind string) {
	s, v := c.s, c.s[t.lo:t.hi]
	rest, owner := s[t.hi:min(len(s), t.hi+3)], c.ownerOf(t.lo)
	mark := func(name string, on bool) {
		if on {
			c.clue("mark", name)
			c.clue("mark", name, kind)
		}
	}
	mark("quoted", t.quoted)
	mark("digit", digits(v))
	mark("capitals", holds(v, upper) && holds(v, lower))
	mark("familiar", familiar(v))
	mark("ends", ends(rest, t.quoted))
	mark("goes on", !t.quoted && goesOnAs(rest))
	// What is assigned to a name of its own is that name's: in token_id=x1 the x1 is an id, though token is near.
	before := skipBack(s, t.lo, max(c.floor, t.lo-4), " "+quotes)
	mark("owned", before > 0 && oneByteOf("=:", s[before-1]) && !ofValue(owner) && !lists["defaults"][owner])
	mark("value", ofValue(owner))
	next := rest
	if t.quoted {
		next = strings.TrimLeft(rest, quotes)
	}
	mark("followed", len(next) > 1 && next[0] == ' ' && class[next[1]]&(letter|foreign) != 0)
	from, to := since(s, t.lo, max(0, t.lo-maxKey), "\n"), until(s, t.hi, maxKey, "\n")
	if !t.quoted { // the string of JSON that it is in may end
		to = until(s[:to], t.hi, maxKey, `"`)
	}
	// Alone in its line it is the answer to the line before, or one of a list.
	head := strings.TrimSuffix(strings.TrimRight(s[from:t.lo], wordStops), "=>")
	mark("alone", len(head) <= 24 && !strings.ContainsAny(head, "={") && strings.Trim(s[t.hi:to], wordStops+",") == "")
	// Secrets come in rows: old and new ones, ten recovery codes, two strings that a sign joins.
	if n := len(c.found); n > c.known {
		if last := c.found[n-1].end; last <= t.lo && t.lo-last < 12 { // SECRET and SECRET
			c.clue("after a secret", s[last:t.lo])
			c.clue("after a secret", s[last:t.lo], kind)
		}
	}
	if t.given != "" {
		c.clue("given", t.given)
		c.clue("given", t.given, kind)
	}
}

// ends reports whether a value before rest ends its line, its sentence or the text.
func ends(rest string, quoted bool) bool {
	return rest == "" || class[rest[0]]&space != 0 && rest[0] != ' ' || !quoted && rest[0] == '"' ||
		oneByteOf(".,;)!`*", rest[0]) && (len(rest) == 1 || class[rest[1]]&space != 0)
}

// goesOnAs reports whether an expression goes on with rest: a bracket, a dot and a letter, a space and an operator.
func goesOnAs(rest string) bool {
	return rest != "" && (oneByteOf("([{", rest[0]) || rest[0] == '.' && len(rest) > 1 && class[rest[1]]&letter != 0 ||
		rest[0] == ' ' && len(rest) > 1 && oneByteOf("-=(+?|&*<>{\"'", rest[1]))
}

// ofValue reports whether owner is the name of the value in a pair of name and value. Most words have no owner.
func ofValue(owner string) bool {
	return owner != "" && (lists["valueWords"][owner] || strings.HasSuffix(owner, "Value"))
}

// beside returns the labels before and after the token that are nearest to it, nil where none is near.
func (c *scan) beside(t *token) (l, r *label) {
	for i := range c.labels[c.firstLabel:] {
		x := &c.labels[c.firstLabel+i]
		if x.hi <= t.lo && x.hi+maxStatement > t.lo && (x.class != hint || l == nil) {
			l = x
		} else if x.lo >= t.hi {
			if x.lo < t.hi+maxStatement {
				r = x
			}
			break
		}
	}
	return l, r
}

// clueJoints adds how the token and the labels beside it are joined. A joint is what is between them, with a for each
// word, so that one weight is for all names and for words of all languages:
//
//	password = "SECRET"                 joint ( = ")
//	getenv("PASSWORD") or "SECRET"      joint (") a ")
//	the password for db is SECRET       joint ( a a a )
//	{"name":"password","value":"SECRET  joint (","a":")
//
// What is short is a clue as it is, too, as ": " and "? " differ, and so is the last word of the label: a key is
// judged otherwise than a password. A label behind the token may have it as well (SECRET is the password).
func (c *scan) clueJoints(t *token, kind string) {
	l, r := c.beside(t)
	quoted := ""
	if t.quoted {
		quoted = "quoted"
	}
	if l != nil {
		name, between := c.s[l.lo:l.hi], c.s[l.hi:t.lo]
		joint := c.skeleton(between)
		c.clue("joint", joint)
		c.clue("joint", joint, kind, quoted)
		c.clue("class", l.class, kind, quoted)
		last := name // of user_password the password
		for w := range splitWords(name) {
			last = w
		}
		last = last[:runeAt(last, min(len(last), 16))]
		c.clue("name", last)
		c.clue("name", last, joint)
		if len(between) <= 24 {
			c.clue("between", between)
		}
		n := min(strings.Count(joint, "a"), len(few)-1)
		c.clue("words between", few[n])
		c.clue("words between", few[n], kind)
		if lines := strings.Count(between, "\n"); lines > 0 {
			c.clue("lines between", few[min(lines, 5)], kind)
		}
	}
	if r != nil {
		joint := c.skeleton(c.s[t.hi:r.lo])
		c.clue("joint to", joint)
		c.clue("joint to", joint, kind)
		c.clue("joint to", joint, r.class)
	}
	c.clue("sign before", c.s[runeAt(c.s, max(0, t.lo-1)):t.lo], kind)
	c.clue("sign after", c.s[t.hi:runeAt(c.s, min(len(c.s), t.hi+1))], kind, quoted)
}

// skeleton is s with a for each word, of at most twelve signs: ": " or " a a = ". It is valid until the next one.
func (c *scan) skeleton(s string) string {
	b := c.joint[:0]
	for i := 0; i < len(s) && len(b) < 12; i++ {
		x := s[i]
		if class[x]&(slug|dot|foreign) != 0 {
			x = 'a'
		}
		if n := len(b); n == 0 || x != b[n-1] || x != 'a' && x != ' ' {
			b = append(b, x)
		}
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}
