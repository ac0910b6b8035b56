package redact

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unsafe"
)

// This file decides which tokens are judged. Near the name of a secret all are; elsewhere only what looks made by
// chance, and is no id, no part of a picture, and not assigned to a name that has no secrets.

// byClues judges the words that commands and tables show, those near labels, and of the others those that look odd.
func (c *scan) byClues() {
	// What has a shape is found already, and no token that overlaps it is judged. What commands and tables show comes
	// first: its bounds are sure, and other tokens may be more or less than it.
	c.sort()
	c.floor, c.known = 0, len(c.found)
	slices.SortStableFunc(c.labels, func(a, b label) int { return a.lo - b.lo })
	c.tables()
	slices.SortStableFunc(c.given, func(a, b token) int { return a.lo - b.lo })
	for _, t := range c.given {
		c.labelsFrom(t.lo)
		c.judge(t)
	}
	c.sort()
	c.known = len(c.found)
	// Then the text from its beginning: token by token where a label is near, and elsewhere from one odd word to the
	// next. Most texts have neither, and end here at once.
	c.firstLabel = 0
	for i := 0; i < len(c.s); {
		c.labelsFrom(i)
		to := len(c.s)
		if c.firstLabel < len(c.labels) {
			to = max(i, c.labels[c.firstLabel].lo-maxStatement)
		}
		if i == to {
			i = c.readToken(i)
			continue
		}
		lo, hi := 0, 0
		if c.far {
			lo, hi = oddWord(c.s, i, to)
		}
		if hi == 0 {
			i = to
			continue
		}
		start := lo // of the word, whose value is odd, or of its string
		for start > i && class[c.s[start-1]]&apartBy == 0 {
			start--
		}
		if i = start; i > 0 && oneByteOf(quotes, c.s[i-1]) {
			i--
		}
		for i < hi { // another script may begin within it
			i = c.readToken(i)
		}
	}
}

// labelsFrom has firstLabel be the first of the labels that may be near i.
func (c *scan) labelsFrom(i int) {
	for c.firstLabel < len(c.labels) && c.labels[c.firstLabel].hi+maxStatement < i {
		c.firstLabel++
	}
}

// near reports whether s[lo:hi] is near a label, or a hint.
func (c *scan) near(lo, hi int) (label, hinted bool) {
	for _, l := range c.labels[c.firstLabel:] {
		if l.lo-maxStatement > hi {
			break
		}
		if l.class != hint {
			return true, true
		}
		hinted = true
	}
	return false, hinted
}

// labelIn reports whether a label is in the string s[lo:hi]. One that ends a word without spaces may be there by
// chance.
func (c *scan) labelIn(lo, hi int) bool {
	spaced := strings.IndexByte(c.s[lo:hi], ' ') >= 0
	for _, l := range c.labels[c.firstLabel:] {
		if l.lo >= hi {
			break
		}
		if l.lo >= lo && l.class != hint &&
			(spaced && l.hi-l.lo < hi-lo-2 || l.hi < hi-1 && class[c.s[l.hi]]&alnum == 0) {
			return true
		}
	}
	return false
}

// odd reports whether s has a word that clues may show to be a secret though no label is near.
func odd(s string) bool {
	for lo, hi := oddWord(s, 0, len(s)); hi > 0; lo, hi = oddWord(s, hi, len(s)) {
		if hi-lo < len(s) && byItself(s[lo:hi]) {
			return true
		}
	}
	return false
}

// byItself reports whether v looks like a secret wherever it is.
func byItself(v string) bool {
	return len(v) >= 8 && run(v, 0, digit|hexLower) < len(v) && !isID(v) &&
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
	// One pass over the bytes counts what chance makes and words lack: turns between letters and digits, both cases,
	// marks of passwords. A sign of an assignment begins the count anew, for the value.
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
	// The sum with 0x80-'0' has the top bit of each byte from '0' on, that with 0x80-'9'-1 from the byte after '9' on.
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

// token judges s[lo:hi], a string or a word.
func (c *scan) token(lo, hi int, quoted bool) {
	if hi-lo >= 2 && hi-lo <= maxHeader {
		c.judge(token{lo: lo, hi: hi, quoted: quoted})
	}
}

// judge finds the token where its clues show that it is a secret, and reports whether they do.
func (c *scan) judge(t token) bool {
	c.asked = t // where it costs no allocation
	if !c.mayBe(&c.asked) || !c.clued(&c.asked) {
		return false
	}
	marker := Marker
	if t.given == loginRule {
		marker = loginMarker
	}
	// A short string of which a word is a secret is one, if a label is before it: ("bob", "tea@six o'clock").
	if w := c.whole; t.given == "" && w.lo <= t.lo && t.hi <= w.hi && w.hi-w.lo <= maxWhole {
		if l, _ := c.beside(&token{lo: w.lo, hi: w.lo}); l != nil {
			t.lo, t.hi = w.lo, w.hi
		}
	}
	return c.note(t.lo, t.hi, marker)
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

// mayBe reports whether the token may be a secret for what it is, and works out its kind.
func (c *scan) mayBe(t *token) bool {
	v := c.s[t.lo:min(t.hi, t.lo+maxJudged)]
	label, hinted := t.given != "", false
	if !label {
		label, hinted = c.near(t.lo, t.hi)
	}
	// Placeholders and markers are no secrets anywhere, so they are no clues. The program that learns weights judges
	// what shapes have found, too.
	switch learning := c.r.trace != nil && c.r.trace.clued != nil; {
	case t.hi-t.lo < 2, blank(v), t.quoted && validates(v), c.taken(t.lo, t.hi) && !learning,
		strings.HasSuffix(c.s[:t.lo], ";base64,"):
		return false
	case !label:
		return c.far && c.mayBeFar(t, v, hinted)
	}
	// Words are secrets only shortly after a label, and so are sentences and expressions: what else is near a label is
	// mostly the sentence that the label is in, and to judge all of it would take the time of the whole text.
	if run(v, 1, lower|foreign) == len(v) && !t.quoted && t.given == "" && !c.closeTo(t.lo, 24) && !c.answers(t.lo) {
		return false
	}
	if t.kind = c.kindOf(t.lo, t.hi, t.quoted); t.kind == aStop {
		c.score, c.noted = 0, nil
		c.explain(t, false)
		return false
	}
	return !isID(v) && (t.kind != aText && t.kind != aCode || strings.IndexByte(v, ' ') < 0 ||
		c.closeTo(t.lo, 8) || t.given == "bytes" || t.given == "flag" || t.quoted &&
		run(v, 0, alnum|foreign|space|dash) == len(v) && (strings.Count(v, " ") < 4 || c.afterNames(t.lo, "ofPhrases")))
}

// mayBeFar is mayBe for the token v that no label is near, or but a hint. Only what looks made by chance is worth the
// time.
func (c *scan) mayBeFar(t *token, v string, hinted bool) bool {
	if len(v) < 6 && !(hinted && len(v) >= 4 && digits(v)) || len(v) == len(c.s) || strings.IndexByte(v, ' ') >= 0 ||
		!digits(v) && !strings.ContainsAny(strings.TrimRight(v, "?!"), passwordMarks) && strings.Count(v, "-") < 2 &&
			!byChance(v, 40) || !hinted && !byItself(v) {
		return false
	}
	// Kinds that are in every program and every session are left to labels: names, numbers, paths, long Base64.
	t.kind = c.kindOf(t.lo, t.hi, t.quoted)
	switch k := t.kind; {
	case k == aText, k < aHash && k != aPin && k != aUUID && !byItself(v),
		k == aWord && !digits(v) && strings.Count(v, "-") < 2,
		k != aHash && len(v) > 100 && run(v, 0, base64) == len(v):
		return false
	}
	return !isID(v) && !c.inBlock(t.lo) && !strings.HasSuffix(c.s[:t.lo], "id ")
}

// closeTo reports whether a label ends in the n bytes before i.
func (c *scan) closeTo(i, n int) bool {
	for _, l := range c.labels[c.firstLabel:] {
		if l.hi > i {
			return false
		}
		if i-l.hi < n && l.class != hint {
			return true
		}
	}
	return false
}

// answers reports whether the word at i may be the answer to a question that is asked of who forgot a password: a name.
func (c *scan) answers(i int) bool {
	l, r := c.beside(&token{lo: i, hi: i})
	return class[c.s[i]]&lower == 0 && (l != nil && l.class == "answer" || r != nil && r.class == "answer")
}

// isID reports whether v is an id of a known form, or the head of a picture or an archive in Base64.
func isID(v string) bool {
	name := v[strings.LastIndexAny(v, "/^")+1:] // out/ses_1fa2bdc08~6d77.json
	return has("idPrefixes", name[:max(0, strings.IndexByte(name, '_'))]) && !strings.Contains(name, "_secret_") ||
		slices.ContainsFunc(words["files"], func(head string) bool { return strings.HasPrefix(v, head) })
}

// ownerOf returns the name that what is at i is assigned to.
func (c *scan) ownerOf(i int) string {
	sign := skipBack(c.s, i, max(c.floor, i-4), " "+quotes)
	if sign == 0 || !oneByteOf("=:", c.s[sign-1]) {
		return ""
	}
	end := skipBack(c.s, sign-1, max(c.floor, sign-12), " "+quotes)
	return c.s[runBack(c.s, end, max(c.floor, end-16), slug):end]
}

// clued decides by its clues whether the token is a secret.
func (c *scan) clued(t *token) bool {
	trace := c.r.trace
	if trace != nil && trace.clued != nil {
		return trace.clued(c, t)
	}
	c.score, c.noted = 0, nil
	c.clues(t)
	secret := c.score > 0
	if secret && t.given == "" {
		plain, ok := decoded(c.s[t.lo:t.hi])
		secret = !ok || len(plain) < 8 || strings.IndexByte(plain, ' ') <= 0 // Base64 of a sentence
	}
	c.explain(t, secret)
	return secret
}

// explain notes the token for a trace.
func (c *scan) explain(t *token, secret bool) {
	if c.r.trace == nil {
		return
	}
	name := ""
	if l, _ := c.beside(t); l != nil {
		name = c.s[l.lo:l.hi]
	}
	c.r.trace.note(Candidate{Start: c.v.origin(t.lo, 0), End: c.v.origin(t.hi, 1), Label: name, Kind: kindNames[t.kind],
		Features: c.noted, Score: c.score, Secret: secret})
}

// inBlock reports whether the line before that of i is of Base64, or begins a block of it: of a certificate.
func (c *scan) inBlock(i int) bool {
	from, _ := c.line(i)
	above := strings.TrimSpace(c.lineBefore(from))
	return strings.HasSuffix(above, "-----") || len(above) >= 40 && run(above, 0, base64) == len(above)
}
