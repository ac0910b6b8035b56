package redact

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// encoding is a set of ways to write a text that hide its words from a reader of
// bytes.
type encoding uint8

const (
	terminal        encoding = 1 << iota // colours and other control sequences
	backslash                            // \x3d, \u003d, \033[31m, \"
	quotedPrintable                      // =3D
	percent                              // %3D
	entity                               // &quot; &#61;
	structure                            // an object of JSON with one member that shows what the others are
)

// encodings are found by literals, as rules are. What they hide is looked for
// in a second text, the view, where it is plain.
var encodings = []*rule{
	hiding(terminal, "\x1b[0|\x1b[1|\x1b[2|\x1b[3|\x1b[4|\x1b[5|\x1b[7|\x1b[8|\x1b[9|"+
		"\x1b[m|\x1b[K|\x1b[;|\x1b[?|\x1b]8"),
	hiding(backslash, `\x1b|\x1B|\x3d|\x3D|\x3a|\x3A|\x22|\x27|\x20|\u00|\e[|\033|\075|\072|n:\ |y:\ |e:\ `),
	hiding(quotedPrintable, "=3D"),
	hiding(percent, "%3D|%3d|%22%3|%3A%2|%3a%2|%253|%252"),
	hiding(structure, `"kty|Secret"|Secret\`),
	hiding(entity, "&quot|&lt;|&#34|&#39|&#61|&#58|&#x3|&#x2|&equals|&amp;"),
}

func hiding(kind encoding, literals string) *rule {
	return &rule{where: open, hides: kind, literals: strings.Split(literals, "|")}
}

// view is a text without what hid it.
type view struct {
	text  []byte
	edges []edge
}

// edge maps bytes of the view to the text: the one at "at" and those after it, up to the
// next edge, are written there from "from" on, with size bytes each.
type edge struct{ at, from, size int }

// join adds an edge where the last one does not give as much.
func (v *view) join(at, from, size int) {
	last := &v.edges[len(v.edges)-1]
	switch {
	case last.size == size && last.from+(at-last.at)*size == from:
	case last.at == at:
		last.from, last.size = from, size
	default:
		v.edges = append(v.edges, edge{at, from, size})
	}
}

// hidden adds the secrets that a view shows.
func (c *scan) hidden(kinds encoding) {
	// A text may be encoded more than once.
	var levels []view
	plain := c.s
	for range 4 {
		v, ok := reveal(plain, kinds)
		if !ok {
			break
		}
		levels = append(levels, v)
		plain = string(v.text)
		kinds |= backslash & (kinds << 1) // colours may be written as escapes
	}
	if len(levels) == 0 {
		return
	}
	from := c.r.candidate(plain)
	if from < 0 {
		return
	}
	inner := scans.Get().(*scan)
	defer scans.Put(inner)
	inner.begin(c.r, plain)
	inner.all(from)
	for _, f := range inner.found {
		for _, v := range slices.Backward(levels) {
			f.start, f.end = v.origin(f.start, 0), v.origin(f.end, 1)
		}
		if !marked(c.s[f.start:f.end]) {
			c.found = append(c.found, f)
		}
	}
	inner.begin(nil, "")
	c.found = disjoint(c.found)
}

// disjoint sorts findings and joins those that overlap.
func disjoint(found []finding) []finding {
	slices.SortStableFunc(found, func(a, b finding) int { return a.start - b.start })
	out := found[:0]
	for _, f := range found {
		if n := len(out); n > 0 && f.start < out[n-1].end {
			out[n-1].end = max(out[n-1].end, f.end)
			continue
		}
		out = append(out, f)
	}
	return out
}

// edge returns the edge of the byte i of the view.
func (v *view) edge(i int) edge {
	return v.edges[sort.Search(len(v.edges), func(k int) bool { return v.edges[k].at > i })-1]
}

// origin returns where the byte i of the view begins in the text, or with back = 1 where the
// byte before it ends.
func (v *view) origin(i, back int) int {
	e := v.edge(i - back)
	return e.from + (i-e.at)*e.size
}

// reveal returns the view of s, and false when nothing in it is hidden.
func reveal(s string, kinds encoding) (v view, ok bool) {
	var special [256]bool
	special[0x1b] = kinds&terminal != 0
	special['\\'] = kinds&backslash != 0
	special['='] = kinds&quotedPrintable != 0
	special['%'] = kinds&percent != 0
	special['&'] = kinds&entity != 0
	v.edges = append(v.edges, edge{0, 0, 1})
	done := 0
	for i := 0; i < len(s); {
		if !special[s[i]] {
			i++
			continue
		}
		c, n := decode(s, i)
		if n == 0 {
			v.join(len(v.text)+i-done, i, 1)
			i++
			continue
		}
		if v.text == nil {
			v.text = make([]byte, 0, len(s))
		}
		v.text = append(v.text, s[done:i]...)
		if c >= 0 {
			v.join(len(v.text), i, n)
			v.text = append(v.text, byte(c))
		}
		i += n
		done = i
		if i < len(s) && s[i] != s[i-n] { // else more of the kind may follow
			v.join(len(v.text), i, 1)
		}
	}
	if v.text == nil {
		return v, false
	}
	v.text = append(v.text, s[done:]...)
	return v, true
}

// decode returns the byte that the n bytes at i encode, -1 when they encode none, and n = 0
// when they are what they are.
func decode(s string, i int) (c, n int) {
	switch s[i] {
	case 0x1b:
		return -1, controlSequence(s, i)
	case '\\':
		return backslashed(s, i)
	case '=', '%':
		if s[i] == '=' && i+1 < len(s) && (s[i+1] == '\n' || s[i+1] == '\r') {
			if strings.HasPrefix(s[i+1:], "\r\n") {
				return -1, 3
			}
			return -1, 2
		}
		if i+2 < len(s) {
			if c := hex2(s[i+1 : i+3]); c >= ' ' && c < 0x7f {
				return c, 3
			}
		}
	case '&':
		return entityAt(s, i)
	}
	return 0, 0
}

func hex2(s string) int {
	if class[s[0]]&hexSet == 0 || class[s[1]]&hexSet == 0 {
		return -1
	}
	return int(jsonscan.Unit("00" + s[:2]))
}

// controlSequence returns the length of the terminal's control sequence at i.
func controlSequence(s string, i int) int {
	if i+1 == len(s) {
		return 1
	}
	switch s[i+1] {
	case '[':
		return 2 + parameters(s[i+2:])
	case ']':
		// A link or a title goes up to a bell or ESC \.
		rest := s[i+2 : min(len(s), i+2+2048)]
		end := strings.IndexAny(rest, "\a\x1b\n")
		switch {
		case end < 0:
			return 2
		case rest[end] == 0x1b && end+1 < len(rest) && rest[end+1] == '\\':
			return 2 + end + 2
		case rest[end] == '\a':
			return 2 + end + 1
		}
		return 2 + end
	}
	return 2
}

// parameters returns the length of what follows "ESC [".
func parameters(s string) int {
	i := 0
	for i < len(s) && i < 64 && s[i] >= ' ' && s[i] <= '?' {
		i++
	}
	if i < len(s) && s[i] >= '@' && s[i] <= '~' {
		i++
	}
	return i
}

// octals are the escapes in octal that hide something.
var octals = [...]struct {
	digits string
	c      int
}{{"033", 0x1b}, {"75", '='}, {"075", '='}, {"072", ':'}}

// backslashed decodes an escape of a programming language, however many backslashes
// escape it in turn.
func backslashed(s string, i int) (c, n int) {
	j := i + slashesAt(s, i)
	if j == len(s) {
		return 0, 0
	}
	rest := s[j:]
	value, size := -1, 0
	switch rest[0] {
	case '"', '\'', '/':
		return int(rest[0]), j - i + 1
	case ' ':
		if i > 0 && class[s[i-1]]&space == 0 { // Authorization:\ Bearer
			return ' ', j - i + 1
		}
	case 'n', 'r':
		return '\n', j - i + 1
	case 't':
		return '\t', j - i + 1
	case 'e':
		value, size = 0x1b, 1
	case 'x':
		if len(rest) >= 3 {
			value, size = hex2(rest[1:]), 3
		}
	case 'u':
		if len(rest) >= 5 && rest[1] == '0' && rest[2] == '0' {
			value, size = hex2(rest[3:]), 5
		}
	case '0', '7':
		for _, o := range octals {
			if strings.HasPrefix(rest, o.digits) {
				value, size = o.c, len(o.digits)
			}
		}
	}
	switch {
	case value == 0x1b && j+size < len(s) && s[j+size] == '[':
		return -1, j - i + size + 1 + parameters(s[j+size+1:])
	case value >= ' ' && value < 0x7f:
		return value, j - i + size
	}
	return 0, 0
}

// entities are the named references that hide something.
var entities = map[string]int{"quot": '"', "apos": '\'', "amp": '&', "lt": '<', "gt": '>', "equals": '=', "colon": ':',
	"nbsp": ' '}

// entityAt decodes a character reference of HTML.
func entityAt(s string, i int) (c, n int) {
	name, _, ok := strings.Cut(s[i+1:min(len(s), i+10)], ";")
	if !ok {
		return 0, 0
	}
	if c := entities[name]; c != 0 {
		return c, len(name) + 2
	}
	digits, ok := strings.CutPrefix(name, "#")
	base := 10
	if ok && digits != "" && digits[0]|0x20 == 'x' {
		base, digits = 16, digits[1:]
	}
	v, err := strconv.ParseUint(digits, base, 8)
	if !ok || err != nil || v < ' ' || v > 0x7e {
		return 0, 0
	}
	return int(v), len(name) + 2
}
