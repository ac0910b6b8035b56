package redact

import (
	"html"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A view is a text without what hides its words: escapes of JSON and of programming languages, however often one is
// within another, colours of a terminal, the encodings of URLs, of mail and of HTML. It is what everything else in
// this package reads, so that no rule knows an encoding.
type view struct {
	raw    string   // the text
	text   []byte   // what the view shows, unless that is the text itself
	hidden []hidden // in the order of the text
}

// hidden are the size bytes at from in a text which hide the n bytes at at in its view, or nothing.
type hidden struct{ at, n, from, size int }

// last returns the last of them that begins at or before the byte i of the view.
func (v *view) last(i int) hidden {
	k := sort.Search(len(v.hidden), func(k int) bool { return v.hidden[k].at > i })
	if k == 0 {
		return hidden{}
	}
	return v.hidden[k-1]
}

// origin returns where the byte i of the view begins in the text, or with back = 1 where the byte before it ends.
func (v *view) origin(i, back int) int {
	h := v.last(i - back)
	if back == 0 && i == h.at && h.n > 0 {
		return h.from
	}
	return h.from + h.size + max(0, i-h.at-h.n)
}

// level returns how many backslashes hide the quote i of the view, or for another encoding an odd number that is more:
// such a quote ends no string that begins with a plain one.
func (v *view) level(i int) int {
	h := v.last(i)
	switch {
	case i != h.at || h.n == 0:
		return 0
	case v.raw[h.from] == '\\':
		return h.size - 1
	}
	return 1<<16 - 1
}

// encodes reports whether the byte i of the view is encoded as in a URL, or with sign & as in XML.
func (v *view) encodes(i int, sign byte) bool {
	h := v.last(i)
	return i == h.at && h.n > 0 && v.raw[h.from] == sign
}

// hides reports whether the byte at is encoded with sign, and what is before the value at i is not: it is part of the
// value, whatever it is.
func (v *view) hides(at, i int, sign byte) bool { return v.encodes(at, sign) && !v.encodes(i-1, sign) }

// hiding are what hides text begins with.
var hiding = [...]string{"\\", "%", "&", "\x1b", "=3D", "=20", "=C", "=D", "=E", "=\n", "=\r\n", "^\n", "^\r\n",
	"`\n", "`\r\n", "<t", "</t", "<![CDATA[", "]]>", "\xe2\x80", "\xc2", "\xef\xbb\xbf", "\xe3\x80"}

// normalize sets the view to that of s. Most texts hide nothing: those have no view of their own. In the others, too,
// most bytes hide nothing, so what hides text is searched for by its beginnings, rather than each byte looked at.
func (v *view) normalize(s string) {
	v.raw, v.text, v.hidden = s, v.text[:0], v.hidden[:0]
	//
	//	raw   {\"pw\":\"a\u0040b\"}    text  {"pw":"a@b"}
	//
	// hidden notes for each piece where it is in both, so that a secret found in the view is replaced in the text.
	var next [len(hiding)]int // where each of them is, at or after i
	for i, done := 0, 0; ; {
		first := len(s)
		for k, sign := range hiding {
			if next[k] < i || i == 0 {
				if next[k] = i + strings.Index(s[i:], sign); next[k] < i {
					next[k] = len(s)
				}
			}
			first = min(first, next[k])
		}
		if i = first; i == len(s) {
			if done > 0 {
				v.text = append(v.text, s[done:]...)
			}
			return
		}
		if c, n := decode(s, i); n > 0 {
			v.text = append(v.text, s[done:i]...)
			h := hidden{at: len(v.text), from: i, size: n}
			if c >= 0 {
				v.text = utf8.AppendRune(v.text, c)
			}
			h.n = len(v.text) - h.at
			v.hidden = append(v.hidden, h)
			done = i + n
		}
		i = max(i+1, done)
	}
}

// decode returns the rune that the n bytes at i encode, -1 when they encode none, and n = 0 when they are what they
// are.
func decode(s string, i int) (c rune, n int) {
	switch s[i] {
	case 0x1b: // pass␛[31mword: SECRET
		if i+1 < len(s) && oneByteOf("]\\", s[i+1]) {
			return ' ', controlSequence(s, i)
		}
		return -1, controlSequence(s, i)
	case '<', ']':
		return markup(s, i)
	case '\\':
		return backslashed(s, i)
	case '=':
		return quotedPrintable(s, i)
	case '^', '`': // goes on in the next line, in shells of Windows
		if i > 0 && s[i-1] == ' ' {
			return -1, skip(s, i+1, i+3, "\r\n") - i
		}
	case '%': // password%3DSECRET
		if c, n := hexRune(s, i); n > 0 {
			return c, n
		}
		k := i + 1
		// An encoded percent sign is of a URL within a URL, as deep as they nest.
		for strings.HasPrefix(s[k:], "25") && k+4 <= len(s) && class[s[k+2]]&hexSet != 0 && class[s[k+3]]&hexSet != 0 {
			k += 2 // %253D
		}
		c, n = hexByte(s, i, k)
		if n > 0 && strings.IndexByte("()[]{}<>|\"'`\\", byte(c)) >= 0 && !encoded(s[max(0, i-80):i]) &&
			!encoded(s[i+n:min(len(s), i+n+80)]) {
			return 0, 0 // of a password
		}
		return c, n
	case '&': // &quot;password&quot;: &quot;SECRET&quot;
		return entity(s, i, i+1)
	default:
		switch c, n := utf8.DecodeRuneInString(s[i:]); c {
		case '“', '”', '„', '«', '»', '「', '」', '『', '』':
			return '"', n
		case '\u00a0', '\u2009', '\u202f': // they do not break
			return ' ', n
		case '\u200b', '\u200c', '\u200d', '\u2060', '\ufeff': // without a width
			return -1, n
		}
	}
	return 0, 0
}

// quotedPrintable decodes password=3DSECRET, as decode does.
func quotedPrintable(s string, i int) (c rune, n int) {
	around := s[max(0, i-200):min(len(s), i+200)]
	if i+2 < len(s) && (s[i+1:i+3] == "3D" || s[i+1:i+3] == "20" && strings.Contains(around, "=3D")) { // year=2025
		return hexByte(s, i, i+1)
	}
	if end := skip(s, i+1, i+3, "\r\n"); end > i+1 { // a line that is as long as a mail has them goes on
		if n := i - since(s, i, max(0, i-80), "\n"); (n < 70 || n > 76) &&
			!strings.Contains(around, "=3D") {
			return 0, 0
		}
		return -1, end - i
	}
	return hexRune(s, i)
}

// encoded reports whether s has an escape of a URL.
func encoded(s string) bool {
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 || i+2 >= len(s) {
			return false
		}
		if class[s[i+1]]&class[s[i+2]]&hexSet != 0 {
			return true
		}
		s = s[i+1:]
	}
}

// hexByte decodes the two digits at k of what begins at i.
func hexByte(s string, i, k int) (c rune, n int) {
	if end := k + 2; end <= len(s) && run(s[:end], k, hexSet) == end {
		b, _ := strconv.ParseUint(s[k:end], 16, 8)
		if b >= ' ' && b < 0x7f || b == '\n' {
			return rune(b), end - i
		}
	}
	return 0, 0
}

// hexRune decodes the bytes of a rune that is not ASCII: %D0%BF, =D0=BF.
func hexRune(s string, i int) (c rune, n int) {
	var buf [utf8.UTFMax]byte // on the stack: most signs that it is asked about begin no rune
	b := buf[:0]
	for n = i; !utf8.FullRune(b) && n+3 <= len(s) && s[n] == s[i] && run(s[:n+3], n+1, hexSet) == n+3; n += 3 {
		x, _ := strconv.ParseUint(s[n+1:n+3], 16, 8)
		b = append(b, byte(x))
	}
	if c, size := utf8.DecodeRune(b); size > 1 {
		return c, n - i
	}
	return 0, 0
}

// controlSequence returns the length of the terminal's control sequence at i.
func controlSequence(s string, i int) int {
	rest := s[i+1 : min(len(s), i+2048)]
	switch {
	case strings.HasPrefix(rest, "["):
		return 2 + parameters(rest[1:])
	case strings.HasPrefix(rest, "]8;;"): // a link: its URL is read
		return len("\x1b]8;;")
	}
	return min(2, 1+len(rest))
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

// backslashed decodes an escape of a programming language, however many backslashes escape it in turn. A backslash at
// the end of a line continues it.
func backslashed(s string, i int) (c rune, n int) {
	j := skip(s, i, len(s), `\`)
	if j == len(s) || i > 0 && s[i-1] == '\\' { // the first of them has decided
		return 0, 0
	}
	n = j - i + 1
	if class[s[j]]&lower != 0 && ofPath(s, i, j-i) {
		return 0, 0
	}
	// \", \\\" and \\\\\\\" are the same quote, in JSON one, two and three levels deep.
	switch s[j] {
	case '"', '\'', '/', '`', '&', '=', ':', '#', '?', '@':
		return rune(s[j]), n
	case '\n', 'n', 'r':
		// A line that goes on, as it is and in strings of JSON: a space, or nothing within a word.
		switch continued := s[j] == '\n' || j-i == 3 || j-i == 6 || j-i == 12; {
		case !continued:
			return '\n', n
		case i > 0 && class[s[i-1]]&space == 0:
			return -1, n
		}
		return ' ', n
	case 't':
		return '\t', n
	}
	// The rest is what Go has, which is what most languages have.
	var value rune = 0x1b
	end := j + 1
	if s[j] != 'e' {
		rest := s[j-1 : min(len(s), j+9)]
		c, _, tail, err := strconv.UnquoteChar(rest, 0)
		if err != nil {
			return 0, 0
		}
		value, end = c, j-1+len(rest)-len(tail)
	}
	switch {
	case value == '&':
		if c, n := entity(s, i, end); n > 0 {
			return c, n
		}
	case value == 0x1b && end < len(s) && s[end] == '[':
		return -1, end - i + 1 + parameters(s[end+1:])
	}
	// Other control bytes stay as they are: a rule may end a value at one, and no name has any.
	if value < ' ' && value != '\n' || value == 0x7f {
		return 0, 0
	}
	return value, end - i
}

// ofPath reports whether the n backslashes at i are in a path of Windows, however often they are escaped: those after
// the root have as many as those of C:\new, and half as many as the first of \\host\new.
// C:\new\token.txt is not a line that begins with "ew", nor has it a tab.
func ofPath(s string, i, n int) bool {
	root, parts := since(s, i, max(0, i-maxKey), wordStops+"=([,;"), 2
	if root+2 <= i && s[root+1] == ':' {
		root, parts = root+2, 1
	}
	if root < i {
		return skip(s, root, len(s), `\`)-root == n*parts
	}
	host := run(s, i+n, slug|dot)
	return parts == 1 || n%2 == 0 && skip(s, host, len(s), `\`)-host == n/2
}

// markup decodes the tag of a table of HTML at i, so that its rows and cells are those of any table, and what XML has
// before and after a string, as a quote.
func markup(s string, i int) (c rune, n int) {
	for _, quote := range [...]string{"<![CDATA[", "]]>"} {
		if strings.HasPrefix(s[i:], quote) {
			return '"', len(quote)
		}
	}
	k := i + 1
	name := strings.TrimPrefix(s[k:min(len(s), k+4)], "/")
	if len(name) < 3 || name[0] != 't' || !oneByteOf("dhr", name[1]) || !oneByteOf("> ", name[2]) {
		return 0, 0
	}
	end := k + strings.IndexByte(s[k:min(len(s), k+100)], '>')
	switch {
	case end < k:
		return 0, 0
	case s[k] == '/':
		return -1, end + 1 - i
	case name[1] == 'r':
		return '\n', end + 1 - i
	}
	return '|', end + 1 - i
}

// entity decodes a character reference of HTML whose name begins at k; it may be of the ampersand of another. What it
// is part of begins at i.
func entity(s string, i, k int) (c rune, n int) {
	start := k
	for strings.HasPrefix(s[k:], "amp;") {
		k += len("amp;")
	}
	if end := k + strings.IndexByte(s[k:min(len(s), k+9)], ';'); end > k && (s[k] == '#' || class[s[k]]&lower != 0) {
		plain := html.UnescapeString("&" + s[k:end+1])
		if c, size := utf8.DecodeRuneInString(plain); size == len(plain) && (c >= ' ' || c == '\n') {
			if c == '\u00a0' {
				c = ' '
			}
			return c, end + 1 - i
		}
	}
	if k > start {
		return '&', k - i
	}
	return 0, 0
}
