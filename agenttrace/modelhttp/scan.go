package modelhttp

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads a JSON document once, from its beginning to its end, and allocates nothing but
// a buffer that it reuses. It can note where the values are, for the shape of a stream's events.
//
// It reads what providers send, and becomes bad at anything else: a value of another type, a
// name in other case, bytes that are not UTF-8, a document that is not JSON. The caller then has
// [encoding/json] decode the document, so both have the same result.
//
//	for s.object(); s.member(); {
//		switch string(s.key) {
//		case "index":
//			s.int(&index)
//		default:
//			s.other(names)
//		}
//	}
//	ok := s.end()
type scanner struct {
	data []byte
	at   int
	// key is the name of the member that member has found.
	key []byte
	// first reports that the object or list has just begun.
	first bool
	bad   bool
	depth int
	// buf has the strings with escapes.
	buf []byte
	// values are the texts, and those numbers that may differ in the next event, if noting is set. use is what skip
	// passes over values for.
	values []value
	noting bool
	use    use
}

// use is what becomes of a value that is passed over: nothing, or it is decoded later, as counts or otherwise.
type use byte

const (
	unread use = iota
	decoded
	counted
)

// maxScanDepth bounds the nesting of values that are passed over.
const maxScanDepth = 64

// reset begins a document. Strings of the one before are no longer valid.
func (s *scanner) reset(data []byte) {
	*s = scanner{data: data, buf: s.buf[:0], values: s.values[:0], noting: s.noting}
}

// end reports whether the document was read to its end and nothing follows it.
func (s *scanner) end() bool { return s.peek() == 0 && s.at == len(s.data) && !s.bad }

// peek returns the next byte that is not a space, or 0.
func (s *scanner) peek() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take reads the byte, or becomes bad.
func (s *scanner) take(c byte) {
	if s.bad || s.peek() != c {
		s.bad = true
		return
	}
	s.at++
}

// object begins an object, array a list.
func (s *scanner) object() { s.take('{'); s.first = true }
func (s *scanner) array()  { s.take('['); s.first = true }

// more reads what is between two values, or ends the object or list.
func (s *scanner) more(closing byte) bool {
	first := s.first
	s.first = false
	switch {
	case s.bad:
		return false
	case s.peek() == closing:
		s.at++
		return false
	case !first:
		s.take(',')
	}
	return !s.bad
}

// member reads the name of the next member, element what is before the next element. They
// return false at the end.
func (s *scanner) member() bool {
	if !s.more('}') {
		return false
	}
	key, escaped := s.raw()
	s.key = key
	s.take(':')
	s.bad = s.bad || escaped
	return !s.bad
}

func (s *scanner) element() bool { return s.more(']') }

// other passes over the value of a member that is not read. The member must not be one of the
// names in other case, which [encoding/json] would read.
func (s *scanner) other(names []string) {
	for _, name := range names {
		if len(name) == len(s.key) && strings.EqualFold(name, string(s.key)) {
			s.bad = true
			return
		}
	}
	for _, c := range s.key {
		s.bad = s.bad || c >= utf8.RuneSelf // some letters fold to those of ASCII
	}
	s.skip()
}

// null reads a null, if there is one.
func (s *scanner) null() bool { return s.peek() == 'n' && s.literal("null") }

func (s *scanner) literal(word string) bool {
	if end := s.at + len(word); end <= len(s.data) && string(s.data[s.at:end]) == word {
		s.at = end
		return true
	}
	s.bad = true
	return false
}

// str reads a text. A null is no text.
func (s *scanner) str(into *[]byte) {
	if s.bad || s.null() {
		s.bad = s.bad || *into != nil
		return
	}
	at := s.at
	raw, escaped := s.raw()
	if *into = raw; escaped {
		start := len(s.buf)
		s.unescape(raw)
		*into = s.buf[start:]
	}
	s.note(at, readText, *into)
}

// int reads a count of up to nine digits.
func (s *scanner) int(into *int) {
	if s.bad {
		return
	}
	s.peek()
	n, start := 0, s.at
	for ; s.at < len(s.data) && isDigit(s.data[s.at]); s.at++ {
		n = n*10 + int(s.data[s.at]-'0')
		if s.at-start >= 9 {
			s.bad = true
			return
		}
	}
	if s.at == start || s.data[start] == '0' && s.at > start+1 {
		s.bad = true
		return
	}
	*into = n
}

// bool reads a truth value.
func (s *scanner) bool(into *bool) {
	switch s.peek() {
	case 't':
		*into = s.literal("true")
	case 'f':
		*into = !s.literal("false")
	default:
		s.bad = true
	}
}

// only reads an object of which one member is read, a text.
func (s *scanner) only(name string, into *[]byte) {
	for s.object(); s.member(); {
		if string(s.key) == name {
			s.str(into)
		} else {
			s.other([]string{name})
		}
	}
}

// isCount reports whether int would read the number.
func isCount(number []byte) bool {
	return 0 < len(number) && len(number) < 10 && isDigit(number[0]) && !bytes.ContainsAny(number, ".eE")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// raw reads a text as it is, without its quotes. Most of what is read is text, so it looks at
// eight bytes at a time.
func (s *scanner) raw() (text []byte, escaped bool) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	s.take('"')
	start, all := s.at, uint64(0)
	for !s.bad && s.at < len(s.data) {
		if s.at+8 <= len(s.data) {
			w := binary.LittleEndian.Uint64(s.data[s.at:])
			quote, slash := w^ones*'"', w^ones*'\\'
			// The high bit of each byte that is a quote, a backslash or a control character. A byte above
			// one that is may have it too, so only the lowest counts.
			found := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & highs
			all |= w
			if found == 0 {
				s.at += 8
				continue
			}
			s.at += bits.TrailingZeros64(found) / 8
		}
		c := s.data[s.at]
		all |= uint64(c)
		switch {
		case c == '"':
			text = s.data[start:s.at]
			s.at++
			s.bad = all&highs != 0 && !utf8.Valid(text)
			return text, escaped
		case c == '\\':
			escaped = true
			s.at++ // what is escaped is checked when the text is read
		case c < ' ':
			s.bad = true
		}
		s.at++
	}
	s.bad = true
	return nil, false
}

// unescape appends a text to buf.
func (s *scanner) unescape(raw []byte) {
	s.buf = slices.Grow(s.buf, len(raw))
	for i := 0; i < len(raw); i++ {
		n := bytes.IndexByte(raw[i:], '\\')
		if n < 0 {
			s.buf = append(s.buf, raw[i:]...)
			return
		}
		s.buf = append(s.buf, raw[i:i+n]...)
		i += n
		i++
		switch c := raw[i]; c {
		case '"', '\\', '/':
			s.buf = append(s.buf, c)
		case 'b':
			s.buf = append(s.buf, '\b')
		case 'f':
			s.buf = append(s.buf, '\f')
		case 'n':
			s.buf = append(s.buf, '\n')
		case 'r':
			s.buf = append(s.buf, '\r')
		case 't':
			s.buf = append(s.buf, '\t')
		case 'u':
			r, n := unicodeEscape(raw[i-1:])
			s.bad = s.bad || n == 0
			s.buf = utf8.AppendRune(s.buf, r)
			i += max(n, 2) - 2
		default:
			s.bad = true
		}
	}
}

// unicodeEscape returns the character of an escape such as \u00e4, or of a pair of them, and
// the length of it; 0 if it has no character.
func unicodeEscape(raw []byte) (r rune, n int) {
	r, ok := hex4(raw)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	second, ok := hex4(raw[6:])
	if r = utf16.DecodeRune(r, second); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func hex4(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, c := range raw[2:6] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// skip passes over a value of any type.
func (s *scanner) skip() {
	if s.bad {
		return
	}
	c := s.peek()
	at := s.at
	switch c {
	case '"':
		text, escaped := s.raw()
		if escaped {
			start := len(s.buf)
			s.unescape(text)
			text = s.buf[start:]
			if !s.noting {
				s.buf = s.buf[:start]
			}
		}
		if s.use == unread {
			s.note(at, anyText, nil)
		} else {
			s.note(at, readText, text)
		}
	case '{', '[':
		if s.depth++; s.depth > maxScanDepth {
			s.bad = true
			return
		}
		if c == '{' {
			for s.object(); s.member(); {
				s.skip()
			}
		} else {
			for s.array(); s.element(); {
				s.skip()
			}
		}
		s.depth--
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
		switch digits := s.data[at:s.at]; {
		case s.use == unread:
			s.note(at, anyNumber, nil)
		case s.use == counted && isCount(digits):
			s.note(at, anyCount, nil)
		}
	}
}

// number passes over a number.
func (s *scanner) number() {
	if s.is("-") {
		s.at++
	}
	if s.is("0") {
		s.at++
	} else {
		s.digits()
	}
	if s.is(".") {
		s.at++
		s.digits()
	}
	if s.is("eE") {
		s.at++
		if s.is("+-") {
			s.at++
		}
		s.digits()
	}
}

func (s *scanner) digits() {
	s.bad = s.bad || s.at >= len(s.data) || !isDigit(s.data[s.at])
	for s.at < len(s.data) && isDigit(s.data[s.at]) {
		s.at++
	}
}

// is reports whether the next byte is one of those.
func (s *scanner) is(any string) bool {
	return s.at < len(s.data) && strings.IndexByte(any, s.data[s.at]) >= 0
}
