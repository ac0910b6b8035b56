package sqlstore

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"regexp/syntax"
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
	// re is the regular expression that is searched for instead of the text.
	re *regexp.Regexp
	// literals are in every value that matches, upper and lower case alike.
	literals []string
	// run is the longest piece of them, in lower case, that JSON writes in one way
	// only; what does not have it does not match. Empty rules out nothing.
	run string
	// folded are the literals, folded, if there is no run; buf is for folded JSON.
	folded [][]byte
	buf    []byte
	// rare is the place in run of the letter that texts have least often.
	rare int
}

func newNeedle(q store.SearchQuery) (n needle, err error) {
	n.text, n.literals = q.Text, []string{q.Text}
	if q.Regexp {
		if n.re, err = q.Compile(); err != nil {
			return n, err
		}
		parsed, err := syntax.Parse(n.re.String(), syntax.Perl)
		if err != nil {
			return n, err
		}
		n.literals = literals(parsed, nil)
	}
	plain := func(r rune) bool {
		// Some writers of JSON escape more than they must.
		return r >= ' ' && r < 0x7f && !strings.ContainsRune(`"\/<>&'+`, r)
	}
	for _, literal := range n.literals {
		for _, piece := range strings.FieldsFunc(literal, func(r rune) bool { return !plain(r) }) {
			if len(piece) > len(n.run) {
				n.run = strings.ToLower(piece)
			}
		}
	}
	for _, literal := range n.literals {
		if n.run == "" {
			n.folded = append(n.folded, AppendFolded(nil, literal))
		}
	}
	for i := range n.run {
		if rarity(n.run[i]) > rarity(n.run[n.rare]) {
			n.rare = i
		}
	}
	return n, nil
}

// literals appends the texts that every match of a regular expression has.
func literals(re *syntax.Regexp, all []string) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return append(all, strings.FieldsFunc(string(re.Rune), func(r rune) bool {
			return re.Flags&syntax.FoldCase != 0 && foldsAcross(r)
		})...)
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
	case syntax.OpRepeat:
		if re.Min == 0 {
			return all
		}
	default:
		return all
	}
	for _, sub := range re.Sub {
		all = literals(sub, all)
	}
	return all
}

// foldsAcross reports whether a letter is equal, apart from case, to one of ASCII and to another one: to k and the
// Kelvin sign, or to s and the long s. A regular expression takes them for equal, the search for a text does not.
func foldsAcross(r rune) bool {
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if (f < utf8.RuneSelf) != (r < utf8.RuneSelf) {
			return true
		}
	}
	return false
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
		return n.mayBeFolded(raw)
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
		if start := i - n.rare; start >= 0 && start+len(n.run) <= len(raw) &&
			equalLower(raw[start:start+len(n.run)], n.run) {
			return true
		}
		if i == at {
			at = next(low, i+1)
		} else {
			atHigh = next(high, i+1)
		}
	}
}

// mayBeFolded is mayBeIn for texts that JSON writes in several ways.
func (n *needle) mayBeFolded(raw []byte) bool {
	if len(n.folded) == 0 {
		return true
	}
	n.buf = AppendFoldedJSON(n.buf[:0], raw)
	for _, literal := range n.folded {
		if !bytes.Contains(n.buf, literal) {
			return false
		}
	}
	return true
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
	return a == b || (a < utf8.RuneSelf) == (b < utf8.RuneSelf) && fold(a) == fold(b)
}

const (
	// around is how many bytes of a value are built before and after a match, longest how many of the match.
	around  = 120
	longest = 4 << 10
	// maxMatches is how many matches of a regular expression in a value are counted.
	maxMatches = 100_000
)

// matches calls fn with the range of each match in a value, in order.
func (n *needle) matches(value string, fn func(start, end int)) {
	if n.re == nil {
		for start, end := n.index(value, 0); start >= 0; start, end = n.index(value, end) {
			fn(start, end)
		}
		return
	}
	for _, m := range n.re.FindAllStringIndex(value, maxMatches) {
		if m[0] < m[1] {
			fn(m[0], m[1])
		}
	}
}

// hit returns the first match in a value, with what is around it.
func (n *needle) hit(value string) (h store.Hit, found bool) {
	var from, to int
	n.matches(value, func(start, end int) {
		if !found {
			found = true
			from, to = max(start-around, 0), min(min(end, start+longest)+around, len(value))
			for from > 0 && !utf8.RuneStart(value[from]) {
				from--
			}
			for to < len(value) && !utf8.RuneStart(value[to]) {
				to++
			}
			h.Context, h.CutBefore, h.CutAfter = value[from:to], from > 0, to < len(value)
			h.Marks = append(h.Marks, [2]int{start - from, min(end, to) - from})
		} else if end <= to {
			h.Marks = append(h.Marks, [2]int{start - from, end - from})
		}
		h.Matches++
	})
	return h, found
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
