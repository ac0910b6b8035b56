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
	re *regexp.Regexp
	// literals are in every value that matches, upper and lower case alike.
	literals []string
	// run is the longest piece of them, in lower case, that JSON writes in one way only; what does not have it does not
	// match. Empty rules out nothing. rare is the place in it of the character that texts have least often.
	run  string
	rare int
	// folded are the literals, folded, if there is no run; buf is for folded JSON.
	folded [][]byte
	buf    []byte
}

func newNeedle(q store.SearchQuery) (n needle, err error) {
	n.literals = []string{q.Text}
	if !q.Regexp {
		q.Text = textPattern(q.Text)
	}
	if n.re, err = q.Compile(); err != nil {
		return n, err
	}
	if q.Regexp {
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
		n.folded = append(n.folded, AppendFolded(nil, literal))
	}
	for i := range n.run {
		if strings.IndexByte(seldom, n.run[i]) < strings.IndexByte(seldom, n.run[n.rare]) {
			n.rare = i
		}
	}
	return n, nil
}

// textPattern is a regular expression for a text. What is ASCII matches ASCII only, so that the index misses nothing.
func textPattern(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch quoted := regexp.QuoteMeta(string(r)); {
		case !foldsAcross(r):
			b.WriteString(quoted)
		case r < utf8.RuneSelf:
			b.WriteString("(?-i:[" + strings.ToLower(quoted) + strings.ToUpper(quoted) + "])")
		default:
			b.WriteString("(?-i:" + quoted + ")")
		}
	}
	return b.String()
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

// seldom are the characters that JSON of texts and code has often, those that it has most last.
const seldom = "xk9876543210vwbygfpmc_-.:,uldhsrinoate "

// mayBeIn reports whether JSON can have the text in one of its values.
func (n *needle) mayBeIn(raw []byte) bool {
	if n.run != "" {
		rare, run := n.run[n.rare:n.rare+1], []byte(n.run)
		for _, letter := range []string{rare, strings.ToUpper(rare)} {
			for i := 0; ; i++ {
				k := bytes.IndexByte(raw[i:], letter[0])
				if k < 0 {
					break
				}
				i += k
				from := i - n.rare
				if from >= 0 && from+len(run) <= len(raw) && bytes.EqualFold(raw[from:from+len(run)], run) {
					return true
				}
			}
		}
		return false
	}
	n.buf = AppendFoldedJSON(n.buf[:0], raw)
	for _, literal := range n.folded {
		if !bytes.Contains(n.buf, literal) {
			return false
		}
	}
	return true
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
