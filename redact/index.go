package redact

import (
	"strings"
)

// index finds the literals of rules and keys in one pass: it looks up every three
// neighbouring bytes, five bits of each, which makes letters equal whatever their
// case, in a bitmap that stays in the first-level cache. Only where a bit is set
// does it compare literals and ask the rule.
//
// Whether JSON may hold a secret at all is asked far more often than where. Then every
// other three bytes are enough, for a literal is entered twice, by three bytes at an
// even and at an odd offset.
type index struct {
	table        // every three bytes
	every2 table // those at even places only
}

type table struct {
	bits    [1 << 15 / 64]uint64
	bucket  [1 << 15]uint16 // into buckets, where the bit is set
	buckets []bucket
}

// bucket has the literals that hold the same three bytes. Few of them are there when the
// bytes are, so the bytes before and after are asked first, five bits of each.
type bucket struct {
	before, after uint32
	entries       []entry
}

func (t *table) add(h uint32, e entry) {
	if t.bits[h>>6]&(1<<(h&63)) == 0 {
		t.bucket[h] = uint16(len(t.buckets))
		t.buckets = append(t.buckets, bucket{})
		t.bits[h>>6] |= 1 << (h & 63)
	}
	b := &t.buckets[t.bucket[h]]
	b.entries = append(b.entries, e)
	near := func(i int) uint32 {
		if i < 0 || i >= len(e.literal) {
			return ^uint32(0)
		}
		return 1 << (e.literal[i] & 31)
	}
	b.before |= near(e.offset - 1)
	b.after |= near(e.offset + 3)
}

// at returns the literals that s may hold around its three bytes at i, of hash h, whose bit
// is set.
func (t *table) at(s string, i int, h uint32) []entry {
	b := &t.buckets[t.bucket[h]]
	if i > 0 && b.before>>(s[i-1]&31)&1 == 0 || i+3 < len(s) && b.after>>(s[i+3]&31)&1 == 0 {
		return nil
	}
	return b.entries
}

// addCheaper enters two bytes behind any as before, or two bytes in front of any as
// after, by how often text has what is not entered yet.
func (t *table) addCheaper(front, back string, before, after entry) {
	behind := func(c byte) uint32 { return trigram(string(rune(c)) + front) }
	ahead := func(c byte) uint32 { return trigram(back + string(rune(c))) }
	cost := func(at func(byte) uint32, score func(byte) int) (sum int) {
		for c := range byte(32) {
			if h := at(c); t.bits[h>>6]&(1<<(h&63)) == 0 {
				sum += score(c)
			}
		}
		return sum
	}
	at, e := ahead, after
	if cost(behind, func(c byte) int { return frequency[c] * follows(c, front[0]) * follows(front[0], front[1]) }) <
		cost(ahead, func(c byte) int {
			return frequency[back[0]&31] * follows(back[0], back[1]) * follows(back[1], c)
		}) {
		at, e = behind, before
	}
	for c := range byte(32) {
		t.add(at(c), e)
	}
}

type entry struct {
	rule    *rule
	literal string
	offset  int // of the three bytes within literal
	fold    bool
	key     *keyName // of the rule of keys: whose name is literal[from:from+n]
	from, n int
}

// escapeRule is the rule of escapes in JSON that need decoding before anything is found.
var escapeRule = &rule{where: open}

// keyRule is the rule of keys in text.
var keyRule = &rule{where: open}

func newIndex(active []*rule, keys []keyName) *index {
	x := &index{}
	add := func(e entry) {
		e.offset = rarest(e.literal, 0, 1)
		x.add(trigram(e.literal[e.offset:]), e)
		e.offset = rarest(e.literal, 0, 2)
		x.every2.add(trigram(e.literal[e.offset:]), e)
		if len(e.literal) > 3 {
			e.offset = rarest(e.literal, 1, 2)
			x.every2.add(trigram(e.literal[e.offset:]), e)
			return
		}
		// Two bytes and any, after or before them, whichever makes fewer places look
		// likely: a secret goes on, and what begins the text is at an even place.
		before, after := e, e
		before.offset, after.offset = -1, 1
		x.every2.addCheaper(e.literal[:2], e.literal[1:], before, after)
	}
	// Escapes that may hide a literal.
	ascii := entry{rule: escapeRule, literal: `\u00`}
	x.every2.add(trigram(ascii.literal), ascii)
	ascii.offset = 1
	x.every2.add(trigram(ascii.literal[1:]), ascii)
	slash := entry{rule: escapeRule, literal: `\/`}
	for c := range byte(32) {
		slash.offset = 0
		x.every2.add(trigram(slash.literal+string(rune(c))), slash)
		slash.offset = -1
		x.every2.add(trigram(string(rune(c))+slash.literal), slash)
	}
	for i := range keys {
		for _, l := range keys[i].literals() {
			add(entry{rule: keyRule, literal: l.text, fold: !l.exact, key: &keys[i], from: l.from, n: l.n})
		}
	}
	if len(keys)+len(active) > 0 {
		for _, e := range encodings {
			for _, literal := range e.literals {
				if e.hides == terminal { // JSON has these as escapes
					x.add(trigram(literal), entry{rule: e, literal: literal})
					continue
				}
				add(entry{rule: e, literal: literal})
			}
		}
	}
	for _, r := range active {
		for _, literal := range r.literals {
			if r.where&fold != 0 {
				literal = strings.ToLower(literal)
			}
			add(entry{rule: r, literal: literal, fold: r.where&fold != 0})
		}
	}
	return x
}

func trigram(s string) uint32 {
	return uint32(s[0]&31)<<10 | uint32(s[1]&31)<<5 | uint32(s[2]&31)
}

// frequency is roughly how often a byte of each five-bit class is met in agents'
// text, per thousand; class 0 is the space and class 13 the hyphen besides m.
var frequency = [32]int{150, 82, 15, 28, 43, 127, 22, 20, 50, 70, 3, 8, 40, 40, 67, 75, 30, 6, 60, 63, 91, 28, 12, 20,
	8, 20, 20, 15, 15, 15, 10, 15}

// rarest returns where the rarest three neighbouring bytes of literal begin, of those
// at from and every step after it.
func rarest(literal string, from, step int) int {
	best, at := 1<<62, from
	for i := from; i+3 <= len(literal); i += step {
		score := frequency[literal[i]&31] * follows(literal[i], literal[i+1]) * follows(literal[i+1], literal[i+2])
		if literal[i] == literal[i+1] && literal[i+1] == literal[i+2] {
			score *= 50 // rules drawn with one character
		}
		if score < best {
			best, at = score, i
		}
	}
	return at
}

// follows is roughly how often a byte of the five-bit class of b follows one of that of a
// in agents' text, per thousand.
func follows(a, b byte) int {
	x, y := a&31-1, b&31-1
	if x < 26 && y < 26 {
		return [...]int{2, 4, 6, 10, 18, 31, 54, 94, 164, 286}[pairs[x][y]-'0']
	}
	return frequency[b&31]
}

// at reports whether the literal is in s at begin, on its own.
func (e *entry) at(s string, from, begin int) bool {
	if begin < from || begin+len(e.literal) > len(s) {
		return false
	}
	got := s[begin : begin+len(e.literal)]
	if e.fold {
		if !equalFold(got, e.literal) {
			return false
		}
	} else if got != e.literal {
		return false
	}
	if begin == 0 || e.rule.where&open != 0 {
		return true
	}
	if bounded(s, begin) {
		return len(e.literal) > 4 || s[begin-1] != '-' // a short prefix also turns up within Base64
	}
	// token_ghp_…, or glued to a word where the prefix is unlike any.
	return e.rule.where&alone == 0 && (s[begin-1] == '_' || len(e.literal) >= 4 &&
		strings.IndexByte("_-.", e.literal[len(e.literal)-1]) >= 0)
}

// bounded reports whether no word runs into position i. The letter of an escape, as
// in "\nsk-…", is no word.
func bounded(s string, i int) bool {
	if i == 0 || class[s[i-1]]&word == 0 {
		return true
	}
	if i >= 2 && s[i-2] == '\\' {
		switch s[i-1] {
		case 'n', 't', 'r', 'b', 'f':
			return true
		}
	}
	// \u003d and its like, and a byte encoded for a URL.
	if i >= 6 && s[i-6] == '\\' && s[i-5] == 'u' && run(s, i-4, hexSet) >= i {
		return true
	}
	return i >= 3 && s[i-3] == '%' && class[s[i-2]]&hexSet != 0 && class[s[i-1]]&hexSet != 0
}
