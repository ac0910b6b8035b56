package redact

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// table finds the literals of rules and labels in one pass: it looks up every three neighbouring bytes, five bits of
// each, which makes letters equal whatever their case. Only where they are those of a literal does it compare it and
// ask the rule.
type table struct {
	bucket  [1 << 15]uint16 // into buckets
	buckets []bucket        // the first is of the bytes that no literal has
}

// bucket has the literals that hold the same three bytes. Few of them are there when the bytes are, so the bytes before
// and after are asked first, five bits of each.
type bucket struct {
	before, after uint32
	entries       []entry
}

// entry is a literal, of a rule, of a key or of a phrase.
type entry struct {
	rule    *rule
	literal string
	offset  int // of the three bytes within literal
	fold    bool
	key     *keyName // of a key: whose name is literal[from:from+n]
	from, n int
	phrase  *phrase
}

// Rules of literals that are no secrets themselves: the names of keys and phrases, those of commands, and what shows
// that the text has to be read through a view.
var (
	nameRule   = &rule{where: open}
	toolRule   = &rule{where: open}
	hiddenRule = &rule{where: open}
	placed     = map[placing]*rule{open: nameRule, alone: {where: alone}, 0: {}}
)

// encodedRunes are how JSON, URLs and mail write the first rune of a phrase that is not ASCII: \u5bc6, %d0%bf, =d0=bf.
var encodedRunes []string

func encodeRunes() (out []string) {
	for i := range phrases {
		for _, literal := range phrases[i].literals {
			if k := strings.IndexFunc(literal, func(c rune) bool { return c >= utf8.RuneSelf }); k >= 0 {
				c, _ := utf8.DecodeRuneInString(literal[k:])
				out = append(out, fmt.Sprintf(`\u%04x`, c), fmt.Sprintf("%%%x%%%x", literal[k], literal[k+1]),
					fmt.Sprintf("=%x=%x", literal[k], literal[k+1]))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func newIndex(active []*rule, keys []keyName) *table {
	// A label is looked for by the whole name, password, and by its parts where a text may have them: api_key, api-key,
	// apiKey. Which three bytes of it the table has is chosen by how rare they are in what agents write.
	x := &table{buckets: make([]bucket, 1)}
	var all []entry
	for i := range keys {
		all = append(all, keys[i].entries()...)
	}
	if len(keys) > 0 {
		for i := range phrases {
			for _, literal := range phrases[i].literals {
				all = append(all, entry{rule: placed[phrases[i].where&(open|alone)], literal: literal,
					fold: phrases[i].where&fold != 0, phrase: &phrases[i]})
			}
		}
		for _, code := range encodedRunes {
			all = append(all, entry{rule: hiddenRule, literal: code, fold: true})
		}
		for _, literal := range commandLiterals {
			all = append(all, entry{rule: toolRule, literal: literal})
		}
	}
	for _, r := range active {
		for _, literal := range r.literals {
			if r.where&fold != 0 {
				literal = strings.ToLower(literal)
			}
			all = append(all, entry{rule: r, literal: literal, fold: r.where&fold != 0})
		}
	}
	// A name may be spelled in escapes entirely, and then none of its literals is in the text.
	for i := 0; len(all) > 0 && i < len(words["hidden"]); i++ {
		literal := strings.ReplaceAll(words["hidden"][i], "␛", "\x1b")
		all = append(all, entry{rule: hiddenRule, literal: literal})
	}

	// All of them are found by three of their bytes; the rest is compared where those are met.
	for _, e := range all {
		e.offset = rarest(e.literal)
		x.add(trigram(e.literal[e.offset:]), e)
	}
	for i := range x.buckets {
		slices.SortStableFunc(x.buckets[i].entries, func(a, b entry) int { return len(b.literal) - len(a.literal) })
	}
	return x
}

func (t *table) add(h uint32, e entry) {
	if t.bucket[h] == 0 {
		t.bucket[h] = uint16(len(t.buckets))
		t.buckets = append(t.buckets, bucket{})
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

// at returns the literals of a bucket that s may hold around its three bytes at i.
func (t *table) at(s string, i int, bucket uint16) []entry {
	// Three bytes of five bits are met by chance; those around them show nearly always that no literal is there.
	b := &t.buckets[bucket]
	if i > 0 && b.before>>(s[i-1]&31)&1 == 0 || i+3 < len(s) && b.after>>(s[i+3]&31)&1 == 0 {
		return nil
	}
	return b.entries
}

func trigram(s string) uint32 {
	return uint32(s[0]&31)<<10 | uint32(s[1]&31)<<5 | uint32(s[2]&31)
}

// common are the three bytes that texts have often.
var common map[uint32]bool

func readCommon() map[uint32]bool {
	set := map[uint32]bool{}
	for _, three := range words["common"] {
		set[trigram(three)] = true
	}
	return set
}

// rarest returns where the three neighbouring bytes of literal begin that are met least.
func rarest(literal string) (at int) {
	for i, best := 0, 1<<62; i+3 <= len(literal); i++ {
		s := literal[i : i+3]
		score := follows(s[0], s[1]) * follows(s[1], s[2])
		if common[trigram(s)] {
			score *= 50
		}
		if score < best {
			best, at = score, i
		}
	}
	return at
}

// follows is roughly how often a byte of the five-bit class of b follows one of that of a in agents' text, per
// thousand.
func follows(a, b byte) int {
	x, y := a&31-1, b&31-1
	if x < 26 && y < 26 {
		return [...]int{2, 4, 6, 10, 18, 31, 54, 94, 164, 286}[pairs[26*int(x)+int(y)]-'0']
	}
	return 200 // spaces above all
}

// at reports whether the literal is in s at begin, on its own.
func (e *entry) at(s string, from, begin int) bool {
	end := begin + len(e.literal)
	if begin < from || end > len(s) || s[begin:end] != e.literal && !(e.fold && equalFold(s[begin:end], e.literal)) {
		return false
	}
	// A prefix of a token within a word is there by chance.
	if begin == 0 || e.rule.where&open != 0 {
		return true
	}
	if bounded(s, begin) {
		return len(e.literal) > 4 || s[begin-1] != '-' // a short prefix also turns up within Base64
	}
	// token_ghp_…, or glued to a word where the prefix is unlike any.
	return e.rule.where&alone == 0 && (s[begin-1] == '_' || len(e.literal) >= 4 && oneByteOf("_-.", s[end-1]))
}

// bounded reports whether no word runs into position i: sk- is the beginning of a key, but not within "task-list". The
// letter of an escape, as in "\nsk-…", is no word.
func bounded(s string, i int) bool {
	switch {
	case i == 0 || class[s[i-1]]&word == 0:
		return true
	case i >= 2 && s[i-2] == '\\' && oneByteOf("ntrbf", s[i-1]):
		return true
	case i >= 6 && s[i-6] == '\\' && s[i-5] == 'u' && run(s, i-4, hexSet) >= i: // \u003d
		return true
	}
	return i >= 3 && s[i-3] == '%' && class[s[i-2]]&hexSet != 0 && class[s[i-1]]&hexSet != 0
}
