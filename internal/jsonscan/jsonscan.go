// Package jsonscan finds where the values of a JSON text begin and end, in one pass and
// without decoding them, and quotes and unquotes strings. Most of what agents store is
// long texts that nobody looks into, so strings are read eight bytes at a time.
//
// A scan takes valid JSON only, as encoding/json does, except that it does not look at whether strings are valid UTF-8.
// It leaves it to its callers to find out what is wrong with the rest. Positions are offsets in the text; an end below
// 0 is the complement of the position where the text is no JSON any more.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// maxLevels is how deep encoding/json reads arrays and objects.
const maxLevels = 10_000

// Valid reports whether text is one JSON value, as json.Valid does.
func Valid(text string) bool {
	end := Value(text, Space(text, 0), maxLevels)
	return end >= 0 && Space(text, end) == len(text)
}

// IsValue reports whether text is one JSON value, without space around it, that nests no deeper than levels.
func IsValue(text []byte, levels int) bool {
	return len(text) > 0 && Value(view(text), 0, levels) == len(text)
}

// Space returns the first position at or after i that is not white space.
func Space(text string, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
		i++
	}
	return i
}

// Value returns the end of the value at i, which may nest levels deeper.
func Value(text string, i, levels int) int {
	if i >= len(text) {
		return ^i
	}
	switch c := text[i]; {
	case c == '"':
		return String(text, i)
	case c == '{' || c == '[':
		if levels == 0 {
			return ^i
		}
		return Container(text, i, func(_ Key, i int) int { return Value(text, i, levels-1) })
	case c == '-' || isDigit(c):
		return number(text, i)
	}
	for _, literal := range [...]string{"null", "true", "false"} {
		if strings.HasPrefix(text[i:], literal) {
			return i + len(literal)
		}
	}
	return ^i
}

// Key is where the name of a member is, with its quotes: text[From:To].
type Key struct{ From, To int }

// Container returns the end of the object or array at i. It has value return the end of
// each of its values, which begins at the position; key is the zero Key in an array. A value
// that returns less than 0 stops the scan, which returns the same.
func Container(text string, i int, value func(key Key, i int) int) int {
	last := text[i] + 2 // } after {, ] after [
	if i = Space(text, i+1); i < len(text) && text[i] == last {
		return i + 1
	}
	for {
		var key Key
		if i = Space(text, i); last == '}' {
			key.From, key.To = i, String(text, i)
			if key.To < 0 {
				return key.To
			}
			if i = Space(text, key.To); i == len(text) || text[i] != ':' {
				return ^i
			}
			i = Space(text, i+1)
		}
		if i == len(text) {
			return ^i
		}
		if i = value(key, i); i < 0 {
			return i
		}
		if i = Space(text, i); i == len(text) {
			return ^i
		}
		switch text[i] {
		case ',':
			i++
		case last:
			return i + 1
		default:
			return ^i
		}
	}
}

// String returns the end of the string whose quote is at i.
func String(text string, i int) int {
	start := i
	if i >= len(text) || text[i] != '"' {
		return ^start
	}
	for i++; i < len(text); i++ {
		if i += plain(text[i:]); i == len(text) {
			break
		}
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			if i++; i == len(text) {
				return ^start
			}
			if unescaped[text[i]] != 0 {
				break
			}
			if text[i] != 'u' || Unit(text[i+1:]) < 0 {
				return ^start
			}
			i += 4
		default: // a control character
			return ^start
		}
	}
	return ^start
}

// plain returns how many bytes at the beginning of a text are none of those that JSON escapes in strings.
func plain(text string) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(text); i += 8 {
		w := binary.LittleEndian.Uint64(bytesOf(text[i : i+8]))
		quote, slash := w^ones*'"', w^ones*'\\'
		// The lowest bit that is set is of the first byte that is a quote, a backslash or a control
		// character: subtraction borrows from higher bytes only.
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\'; i++ {
	}
	return i
}

func number(text string, i int) int {
	start := i
	digits := func() bool {
		from := i
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		return i > from
	}
	if text[i] == '-' {
		i++
	}
	whole := i
	if !digits() || text[whole] == '0' && i > whole+1 {
		return ^start
	}
	if i < len(text) && text[i] == '.' {
		if i++; !digits() {
			return ^start
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return ^start
		}
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Object calls yield for the members of a text that is one JSON object and nests no deeper than levels, in their order
// and with their values as they are in the text, of which they share the memory. It returns false where the text is
// something else, or a name has bytes or escapes that are no characters; by then, yield may have been called.
func Object[B ~[]byte](text []byte, levels int, yield func(key string, value B)) bool {
	s := view(text)
	return elements(s, '{', func(key Key, i int) int {
		name, ok := keyOf(s[key.From:key.To])
		if !ok {
			return ^i
		}
		end := Value(s, i, levels-1)
		if end >= 0 {
			yield(name, B(text[i:end:end]))
		}
		return end
	})
}

// Array is [Object] for the elements of an array.
func Array[B ~[]byte](text []byte, levels int, yield func(element B)) bool {
	s := view(text)
	return elements(s, '[', func(_ Key, i int) int {
		end := Value(s, i, levels-1)
		if end >= 0 {
			yield(B(text[i:end:end]))
		}
		return end
	})
}

func elements(text string, first byte, value func(key Key, i int) int) bool {
	i := Space(text, 0)
	if i == len(text) || text[i] != first {
		return false
	}
	end := Container(text, i, value)
	return end >= 0 && Space(text, end) == len(text)
}

// keyOf returns the name of a member in memory of its own.
func keyOf(quoted string) (string, bool) {
	for i := range len(quoted) {
		if quoted[i] == '\\' || quoted[i] >= 0x80 {
			return Unquote(bytesOf(quoted))
		}
	}
	return strings.Clone(quoted[1 : len(quoted)-1]), true
}

// NestsDeeper reports whether arrays and objects in JSON nest deeper than so many levels. It reads any text, and takes
// time and no memory for it: it is asked before recursive code runs.
func NestsDeeper(text []byte, levels int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > levels {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// view returns the bytes as a string; they must not be written to as long as it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// bytesOf returns the bytes of a text, which must not be written to.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// unescaped has the characters of the letters after a backslash.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// Unit returns the UTF-16 unit that text begins with, in four hexadecimal digits; -1 if it does not.
func Unit(text string) rune {
	if len(text) < 4 {
		return -1
	}
	var r rune
	for i := range 4 {
		c := text[i]
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Unquote returns the text that is quoted as a JSON string. It returns false where quoted is
// something else, or has bytes or escapes that are no characters.
func Unquote(quoted []byte) (string, bool) {
	if String(view(quoted), 0) != len(quoted) || !utf8.Valid(quoted) {
		return "", false
	}
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	text, ok := AppendUnescaped(make([]byte, 0, len(inner)), view(inner))
	return unsafe.String(unsafe.SliceData(text), len(text)), ok // nothing else has the text
}

// AppendUnescaped appends what the body of a JSON string means, which a scan has accepted.
// Half a surrogate pair becomes the three bytes it would have in UTF-8, and ok is false.
func AppendUnescaped(dst []byte, body string) (text []byte, ok bool) {
	ok = true
	for n := strings.IndexByte(body, '\\'); n >= 0; n = strings.IndexByte(body, '\\') {
		dst = append(dst, body[:n]...)
		letter := body[n+1]
		if body = body[n+2:]; letter != 'u' {
			dst = append(dst, unescaped[letter])
			continue
		}
		r := Unit(body)
		if body = body[4:]; !utf16.IsSurrogate(r) {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		if strings.HasPrefix(body, `\u`) {
			if pair := utf16.DecodeRune(r, Unit(body[2:])); pair != utf8.RuneError {
				dst, body = utf8.AppendRune(dst, pair), body[6:]
				continue
			}
		}
		ok = false
		dst = append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
	}
	return append(dst, body...), ok
}

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; only quotes,
// backslashes and control characters are escaped, the latter with the shortest escape.
func AppendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // each byte on its own, as encoding/json does
	}
	dst = append(slices.Grow(dst, len(s)+len(s)/16+2), '"') // code has few escapes
	for {
		n := plain(s)
		if dst = append(dst, s[:n]...); n == len(s) {
			return append(dst, '"')
		}
		const hex = "0123456789abcdef"
		c := s[n]
		if i := strings.IndexByte("\"\\\b\f\n\r\t", c); i >= 0 {
			dst = append(dst, '\\', `"\bfnrt`[i])
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[n+1:]
	}
}

// Cut returns text, which is valid JSON that nests as deep as a scan reads, in at most limit bytes, and nesting no
// deeper than depth; 0 is any depth. First goes what is too deep, then the ends of long strings, then elements. Each
// cut shows: note returns what stands for a text or its end, and marker is the name of the elements that are missing.
// Where even that is too long, all is one string with the note. Of the head of a string, as many bytes stay as whole
// returns, if it is set.
func Cut(
	text string, limit, depth int, marker string, note func(cut string) string, whole func(head string) int,
) []byte {
	c := cutter{s: text, limit: math.MaxInt, depth: depth, marker: marker, note: note, whole: whole,
		maxString: len(text), maxElements: len(text)}
	c.cut() // finds the longest string and the most elements
	c.limit = limit
	for done := len(c.out) <= limit; !done; done = c.cut() {
		if !c.tighten() {
			return []byte(`"` + note(text) + `"`)
		}
	}
	return c.out
}

// cutter writes JSON again with shorter strings and fewer elements. Its input is valid.
type cutter struct {
	s           string
	out         []byte
	limit       int
	depth       int // 0: none
	marker      string
	note        func(cut string) string
	whole       func(head string) int
	maxString   int // bytes of a string between its quotes
	maxElements int
	longest     int // string, and the most elements of an object or array
	most        int
}

// tighten makes the next output smaller; it is false when it cannot.
func (c *cutter) tighten() bool {
	switch {
	case c.maxString > 64:
		c.maxString = max(min(c.maxString/2, c.limit), 64)
		return c.maxString < c.longest || c.tighten()
	case c.maxElements > 1:
		c.maxElements = min(c.maxElements/2, 256<<bits.Len(uint(c.limit)>>9)) // an element has two bytes at least
		return c.maxElements < c.most || c.tighten()
	case c.maxString > 40:
		c.maxString = 40
	default:
		return false
	}
	return true
}

// cut returns false when the output outgrew the limit, which ends it early.
func (c *cutter) cut() bool {
	c.out = c.out[:0]
	return c.value(Space(c.s, 0), 0) >= 0
}

// value writes the value at i and returns its end, below 0 where the output outgrew the limit.
func (c *cutter) value(i, depth int) (end int) {
	nests := c.s[i] == '{' || c.s[i] == '['
	if nests && (c.depth == 0 || depth < c.depth) {
		end = c.elements(i, depth)
	} else {
		end = Value(c.s, i, maxLevels)
		value := c.s[i:end]
		if nests && len(value) > 2 {
			value = `"` + c.note(value) + `"`
		} else if value[0] == '"' {
			value = c.shorter(value)
		}
		c.out = append(c.out, value...)
	}
	if len(c.out) > c.limit {
		return -1
	}
	return end
}

func (c *cutter) elements(i, depth int) (end int) {
	c.out = append(c.out, c.s[i])
	n := 0
	last := "" // may state how many an earlier cut left out
	end = Container(c.s, i, func(key Key, at int) int {
		if n++; n > c.maxElements {
			end := Value(c.s, at, maxLevels)
			last = c.s[key.From:key.To] + c.s[at:min(end, at+64)]
			return end
		}
		if n > 1 {
			c.out = append(c.out, ',')
		}
		if key.To > 0 {
			c.out = append(append(c.out, c.s[key.From:key.To]...), ':')
		}
		return c.value(at, depth+1)
	})
	c.most = max(c.most, n)
	if rest := n - c.maxElements; rest > 0 {
		before := 1
		_, _ = fmt.Sscanf(strings.ReplaceAll(last, `"`, ""), c.marker+"[%d more]", &before)
		rest += before - 1
		c.out = append(c.out, `,"`+c.marker...)
		if c.s[i] == '{' {
			c.out = append(c.out, `":"`...)
		}
		c.out = append(c.out, "["+strconv.Itoa(rest)+` more]"`...)
	}
	c.out = append(c.out, c.s[i]+2)
	return end
}

// shorter returns a string in its quotes, cut where it is too long.
func (c *cutter) shorter(quoted string) string {
	body := quoted[1 : len(quoted)-1]
	c.longest = max(c.longest, len(body))
	if len(body) <= c.maxString {
		return quoted
	}
	note := c.note(body)
	text, _ := AppendUnescaped(make([]byte, 0, len(body)), body)
	plain := string(text)
	keep := max(0, min(len(plain), c.maxString-len(note)))
	for keep > 0 && len(AppendString(nil, plain[:keep]))-len(`""`) > max(0, c.maxString-len(note)) {
		keep -= keep/16 + 1
	}
	for keep > 0 && keep < len(plain) && !utf8.RuneStart(plain[keep]) {
		keep--
	}
	if c.whole != nil {
		keep = c.whole(plain[:keep])
	}
	head := AppendString(nil, plain[:keep])
	if out := string(head[:len(head)-1]) + note + `"`; len(out) < len(quoted) {
		return out
	}
	return quoted
}
