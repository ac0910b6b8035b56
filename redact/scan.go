package redact

import (
	"slices"
	"strings"
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
type index struct {
	bits    [1 << 15 / 64]uint64
	bucket  [1 << 15]uint16 // into buckets, where the bit is set
	buckets [][]entry
}

type entry struct {
	rule    *rule
	literal string
	offset  int // of the three bytes within literal
	fold    bool
}

// keyRule is the rule of keys in text.
var keyRule = &rule{name: "key", open: true}

func newIndex(active []*rule, keys []keyName) *index {
	x := &index{buckets: [][]entry{nil}}
	add := func(e entry) {
		e.offset = rarest(e.literal)
		h := trigram(e.literal[e.offset:])
		if x.bits[h>>6]&(1<<(h&63)) == 0 {
			x.bucket[h] = uint16(len(x.buckets))
			x.buckets = append(x.buckets, nil)
			x.bits[h>>6] |= 1 << (h & 63)
		}
		b := x.bucket[h]
		x.buckets[b] = append(x.buckets[b], e)
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

// rarest returns where the rarest three neighbouring bytes of literal begin.
func rarest(literal string) int {
	best, at := 1<<62, 0
	for i := 0; i+3 <= len(literal); i++ {
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
	x := r.index
	if len(raw) < 3 {
		return false
	}
	h := uint32(raw[0]&31)<<5 | uint32(raw[1]&31)
	for i := 2; i < len(raw); i++ {
		h = (h<<5 | uint32(raw[i]&31)) & 0x7fff
		if x.bits[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for j := range x.buckets[x.bucket[h]] {
			e := &x.buckets[x.bucket[h]][j]
			begin := i - 2 - e.offset
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
	}
	return strings.Contains(raw, `\u00`) || strings.Contains(raw, `\/`)
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
