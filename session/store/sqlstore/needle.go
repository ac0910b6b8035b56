package sqlstore

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session/store"
)

// needle is what is searched for.
type needle struct {
	text string
	// run is the longest piece of it, in lower case, that JSON writes in one way
	// only; what does not have it has not the text either. Empty rules out nothing.
	run string
	// rare is the place in run of the letter that texts have least often.
	rare int
}

func newNeedle(text string) needle {
	n := needle{text: text}
	plain := func(r rune) bool {
		// Some writers of JSON escape more than they must.
		return r >= ' ' && r < 0x7f && !strings.ContainsRune(`"\/<>&'+`, r)
	}
	for _, piece := range strings.FieldsFunc(text, func(r rune) bool { return !plain(r) }) {
		if len(piece) > len(n.run) {
			n.run = strings.ToLower(piece)
		}
	}
	for i := range n.run {
		if rarity(n.run[i]) > rarity(n.run[n.rare]) {
			n.rare = i
		}
	}
	return n
}

// rarity orders characters by how seldom they are in JSON of texts and code.
func rarity(c byte) int {
	const common = " etaonirshdlu,:.-_cmpfgybwv0123456789kx"
	if i := strings.IndexByte(common, c); i >= 0 {
		return i
	}
	return len(common)
}

// mayBeIn reports whether JSON can have the text in one of its values.
func (n *needle) mayBeIn(raw []byte) bool {
	if n.run == "" {
		return true
	}
	low := n.run[n.rare]
	high := low
	if low >= 'a' && low <= 'z' {
		high -= 'a' - 'A'
	}
	// Each of the two is looked for once per place where it is, however often the
	// other one is.
	next := func(c byte, from int) int {
		if i := bytes.IndexByte(raw[from:], c); i >= 0 {
			return from + i
		}
		return len(raw)
	}
	at, atHigh := next(low, 0), len(raw)
	if high != low {
		atHigh = next(high, 0)
	}
	for {
		i := min(at, atHigh)
		if i == len(raw) {
			return false
		}
		if start := i - n.rare; start >= 0 && start+len(n.run) <= len(raw) && equalLower(raw[start:start+len(n.run)], n.run) {
			return true
		}
		if i == at {
			at = next(low, i+1)
		} else {
			atHigh = next(high, i+1)
		}
	}
}

// equalLower compares bytes in any case with ASCII in lower case.
func equalLower(b []byte, lower string) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// index returns the range of the first match at or after from, or -1.
func (n *needle) index(text string, from int) (start, end int) {
	first, _ := utf8.DecodeRuneInString(n.text)
	for i, r := range text[from:] {
		if !equalFold(r, first) {
			continue
		}
		if length := n.prefix(text[from+i:]); length >= 0 {
			return from + i, from + i + length
		}
	}
	return -1, -1
}

// prefix returns the length of the head of text that is the needle, or -1.
func (n *needle) prefix(text string) int {
	at := 0
	for _, want := range n.text {
		r, size := utf8.DecodeRuneInString(text[at:])
		if size == 0 || !equalFold(r, want) {
			return -1
		}
		at += size
	}
	return at
}

// equalFold ignores case. What is ASCII is equal to ASCII only, not to the Kelvin
// sign or the long s, so that [needle.mayBeIn] misses nothing.
func equalFold(a, b rune) bool {
	if a == b {
		return true
	}
	if (a < utf8.RuneSelf) != (b < utf8.RuneSelf) {
		return false
	}
	for r := unicode.SimpleFold(a); r != a; r = unicode.SimpleFold(r) {
		if r == b {
			return true
		}
	}
	return false
}

// around is how many bytes of a value are built before and after a match.
const around = 120

// hit returns the first match in a value, with what is around it.
func (n *needle) hit(value string) (store.Hit, bool) {
	start, end := n.index(value, 0)
	if start < 0 {
		return store.Hit{}, false
	}
	from, to := max(start-around, 0), min(end+around, len(value))
	for from > 0 && !utf8.RuneStart(value[from]) {
		from--
	}
	for to < len(value) && !utf8.RuneStart(value[to]) {
		to++
	}
	h := store.Hit{Context: value[from:to], CutBefore: from > 0, CutAfter: to < len(value)}
	for start >= 0 {
		h.Matches++
		if end <= to {
			h.Marks = append(h.Marks, [2]int{start - from, end - from})
		}
		start, end = n.index(value, end)
	}
	return h, true
}

// leaves calls fn for every value that is neither object nor list, by path.
func leaves(path string, v any, fn func(path, value string)) {
	switch v := v.(type) {
	case string:
		fn(path, v)
	case json.Number:
		fn(path, v.String())
	case bool:
		fn(path, strconv.FormatBool(v))
	case []any:
		for i := range v {
			leaves(path+"["+strconv.Itoa(i)+"]", v[i], fn)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			leaves(path+"."+key, v[key], fn)
		}
	}
}
