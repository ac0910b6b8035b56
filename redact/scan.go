package redact

import (
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"
)

// charset is a set of kinds of bytes.
type charset uint16

const (
	digit charset = 1 << iota
	lower
	upper
	hexLower // a-f; digits are digit
	hexUpper
	under
	dash
	dot
	plusSlash
	equals
	tilde
	space // also line ends

	alnum  = digit | lower | upper
	word   = alnum | under
	slug   = word | dash
	hexSet = digit | hexLower | hexUpper
	base64 = alnum | plusSlash | equals
)

// class says of every byte which sets it is in.
var class = func() (t [256]charset) {
	for c := range 256 {
		switch b := byte(c); {
		case b >= '0' && b <= '9':
			t[c] = digit
		case b >= 'a' && b <= 'z':
			t[c] = lower
			if b <= 'f' {
				t[c] |= hexLower
			}
		case b >= 'A' && b <= 'Z':
			t[c] = upper
			if b <= 'F' {
				t[c] |= hexUpper
			}
		case b == '_':
			t[c] = under
		case b == '-':
			t[c] = dash
		case b == '.':
			t[c] = dot
		case b == '+' || b == '/':
			t[c] = plusSlash
		case b == '=':
			t[c] = equals
		case b == '~':
			t[c] = tilde
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			t[c] = space
		}
	}
	return t
}()

// run returns the end of the bytes of set that begin at i. It stops before a marker,
// whose bytes may be of the set.
func run(s string, i int, set charset) int {
	start := i
	for i < len(s) && class[s[i]]&set != 0 {
		i++
	}
	if set&under != 0 {
		if m := strings.Index(s[start:i], "__"); m >= 0 {
			for _, marker := range [...]string{TruncatedMarker, Marker} {
				if m := strings.Index(s[start:i], marker); m >= 0 {
					i = start + m
				}
			}
		}
	}
	return i
}

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
	buckets [][]entry
}

func (t *table) add(h uint32, e entry) {
	if t.bits[h>>6]&(1<<(h&63)) == 0 {
		t.bucket[h] = uint16(len(t.buckets))
		t.buckets = append(t.buckets, nil)
		t.bits[h>>6] |= 1 << (h & 63)
	}
	b := t.bucket[h]
	t.buckets[b] = append(t.buckets[b], e)
}

type entry struct {
	rule    *rule
	literal string
	offset  int // of the three bytes within literal
	fold    bool
}

// escapeRule is the rule of escapes in JSON that need decoding before anything is found.
var escapeRule = &rule{name: "escape", open: true}

// keyRule is the rule of keys in text.
var keyRule = &rule{name: "key", open: true}

func newIndex(active []*rule, keys []keyName) *index {
	x := &index{table: table{buckets: [][]entry{nil}}, every2: table{buckets: [][]entry{nil}}}
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
		e.offset = 1 // two bytes and any: a secret goes on
		for c := range byte(32) {
			x.every2.add(trigram(e.literal[1:]+string(rune(c))), e)
		}
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
	for _, k := range keys {
		for _, literal := range k.literals() {
			add(entry{rule: keyRule, literal: literal, fold: true})
		}
	}
	for _, r := range active {
		for _, literal := range r.literals {
			if r.fold {
				literal = strings.ToLower(literal)
			}
			add(entry{rule: r, literal: literal, fold: r.fold})
		}
	}
	return x
}

func trigram(s string) uint32 {
	return uint32(s[0]&31)<<10 | uint32(s[1]&31)<<5 | uint32(s[2]&31)
}

// frequency is roughly how often a byte of each five-bit class is met in agents'
// text, per thousand; class 0 is the space and class 13 the hyphen besides m.
var frequency = [32]int{150, 82, 15, 28, 43, 127, 22, 20, 50, 70, 3, 8, 40, 40, 67, 75, 30, 6, 60, 63, 91, 28, 12, 20, 8, 20, 20, 15, 15, 15, 10, 15}

// rarest returns where the rarest three neighbouring bytes of literal begin, of those
// at from and every step after it.
func rarest(literal string, from, step int) int {
	best, at := 1<<62, from
	for i := from; i+3 <= len(literal); i += step {
		score := 1
		for _, c := range []byte(literal[i : i+3]) {
			score *= frequency[c&31]
		}
		if literal[i] == literal[i+1] && literal[i+1] == literal[i+2] {
			score *= 50 // rules drawn with one character
		}
		if score < best {
			best, at = score, i
		}
	}
	return at
}

// finding is one secret in a text.
type finding struct {
	start, end int
	marker     string
}

// next finds the first secret of s that begins at or after from.
func (r *Redactor) next(s string, from int) (finding, bool) {
	x := r.index
	if len(s)-from < 3 {
		return finding{}, false
	}
	h := uint32(s[from]&31)<<5 | uint32(s[from+1]&31)
	for i := from + 2; i < len(s); i++ {
		h = (h<<5 | uint32(s[i]&31)) & 0x7fff
		if x.bits[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		if f, ok := r.verify(s, from, i-2, h); ok {
			return f, true
		}
	}
	return finding{}, false
}

// verify asks the rules whose literal may be around at.
func (r *Redactor) verify(s string, from, at int, h uint32) (finding, bool) {
	x := r.index
	for i := range x.buckets[x.bucket[h]] {
		e := &x.buckets[x.bucket[h]][i]
		begin := at - e.offset
		if !e.at(s, from, begin) {
			continue
		}
		if e.rule == keyRule {
			if f := r.assign(s, from, begin, len(e.literal)); f.end > f.start {
				return f, true
			}
			continue
		}
		if start, end := e.rule.find(s, from, begin, len(e.literal)); end > start {
			if s[start:end] != e.rule.marker {
				return finding{start, end, e.rule.marker}, true
			}
		}
	}
	return finding{}, false
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
	if e.rule.open {
		return true
	}
	// A short prefix also turns up within Base64.
	return bounded(s, begin) && !(len(e.literal) <= 4 && begin > 0 && s[begin-1] == '-')
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

// suspect reports whether raw, a piece of JSON with its escapes, may hold a secret.
// It errs on the side of yes: what it says no to needs no decoding.
func (r *Redactor) suspect(raw string) bool {
	x := &r.index.every2
	b := unsafe.Slice(unsafe.StringData(raw), len(raw))
	i := 0
	// Eight bytes hold three times three bytes at even places. Five bits of two bytes
	// are brought together in each 16 bits, and then those of the third.
	const five = 0x001f001f001f001f
	for ; i+8 <= len(b); i += 6 {
		v := binary.LittleEndian.Uint64(b[i:])
		pairs := v&five<<5 | v>>8&five
		all := pairs<<5 | pairs>>21&five
		h0, h1, h2 := all&0x7fff, all>>16&0x7fff, all>>32&0x7fff
		if (x.bits[h0>>6]>>(h0&63)|x.bits[h1>>6]>>(h1&63)|x.bits[h2>>6]>>(h2&63))&1 == 0 {
			continue
		}
		if r.suspectAt(raw, i, uint32(h0)) || r.suspectAt(raw, i+2, uint32(h1)) || r.suspectAt(raw, i+4, uint32(h2)) {
			return true
		}
	}
	for ; i+3 <= len(raw); i += 2 {
		if r.suspectAt(raw, i, trigram(raw[i:])) {
			return true
		}
	}
	return false
}

// suspectAt is suspect for the literals that have three bytes of hash h at an even
// place.
func (r *Redactor) suspectAt(raw string, at int, h uint32) bool {
	x := &r.index.every2
	if x.bits[h>>6]&(1<<(h&63)) == 0 {
		return false
	}
	for j := range x.buckets[x.bucket[h]] {
		e := &x.buckets[x.bucket[h]][j]
		begin := at - e.offset
		if !e.at(raw, 0, begin) {
			continue
		}
		if e.rule == keyRule {
			if _, _, class := r.keyAround(raw, 0, begin, len(e.literal)); class != notSecret {
				return true
			}
		} else if e.rule.maybe == nil || e.rule.maybe(raw, begin, len(e.literal)) {
			return true
		}
	}
	return false
}

// text redacts s as plain text until nothing is left to redact: taking one secret out
// can lay another bare. Each pass leaves fewer secrets, so it ends; the bound is for
// the reader's peace of mind.
func (r *Redactor) text(s string) string {
	for range 8 {
		f, ok := r.next(s, 0)
		if !ok {
			return s
		}
		var out []byte
		done := 0
		for ok {
			out = append(append(out, s[done:f.start]...), f.marker...)
			done = f.end
			f, ok = r.next(s, done)
		}
		s = string(slices.Concat(out, []byte(s[done:])))
	}
	return s
}
