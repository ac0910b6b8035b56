package session

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// A scan finds where the values of a JSON text begin and end, in one pass over it. Most of a
// transcript is text that nobody asks for, so it pays to look at eight bytes at a time. A scan
// accepts valid JSON only, and leaves it to the callers to find out what is wrong with the rest.
type scan struct {
	text []byte
	// respelled reports that a value has space in it, or escapes that it need not have.
	respelled bool
}

// noValue is returned for the end of what is not a value.
const noValue = -1

// value returns the end of the value at i, which may nest levels deeper.
func (s *scan) value(i, levels int) int {
	if i >= len(s.text) {
		return noValue
	}
	switch c := s.text[i]; {
	case c == '"':
		return s.string(i)
	case c == '{' || c == '[':
		if levels == 0 {
			return noValue
		}
		return s.nested(i, levels)
	case c == '-' || c >= '0' && c <= '9':
		return s.number(i)
	}
	for _, literal := range [...]string{"null", "true", "false"} {
		if end := i + len(literal); end <= len(s.text) && string(s.text[i:end]) == literal {
			return end
		}
	}
	return noValue
}

// nested returns the end of the object or array at i.
func (s *scan) nested(i, levels int) int {
	object := s.text[i] == '{'
	last := byte(']')
	if object {
		last = '}'
	}
	if i = s.inner(i + 1); i < len(s.text) && s.text[i] == last {
		return i + 1
	}
	for i < len(s.text) {
		if object {
			if s.text[i] != '"' {
				return noValue
			}
			if i = s.string(i); i < 0 {
				return noValue
			}
			if i = s.inner(i); i == len(s.text) || s.text[i] != ':' {
				return noValue
			}
			i = s.inner(i + 1)
		}
		if i = s.value(i, levels-1); i < 0 {
			return noValue
		}
		if i = s.inner(i); i == len(s.text) {
			return noValue
		}
		switch s.text[i] {
		case last:
			return i + 1
		case ',':
			i = s.inner(i + 1)
		default:
			return noValue
		}
	}
	return noValue
}

// inner skips the space within a value.
func (s *scan) inner(i int) int {
	end := s.space(i)
	s.respelled = s.respelled || end > i
	return end
}

func (s *scan) space(i int) int {
	for i < len(s.text) && (s.text[i] == ' ' || s.text[i] == '\t' || s.text[i] == '\r' || s.text[i] == '\n') {
		i++
	}
	return i
}

// string returns the end of the string whose quote is at i.
func (s *scan) string(i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	text := s.text
	for i++; ; {
		for i+8 <= len(text) {
			w := binary.LittleEndian.Uint64(text[i:])
			// With this bit changed, quotes and controls, and no others, are up to a space.
			quote, escape := w^(ones*2), w^(ones*'\\')
			// The lowest bit that is set marks the first byte that is a quote, a backslash or a control.
			if found := ((quote - ones*(' '+1)) | (escape - ones)) &^ w & highs; found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		if i >= len(text) {
			return noValue
		}
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i = s.escape(i + 1); i < 0 {
				return noValue
			}
		case c < ' ':
			return noValue
		default:
			i++
		}
	}
}

// escape returns the end of the escape sequence whose letter is at i.
func (s *scan) escape(i int) int {
	if i >= len(s.text) {
		return noValue
	}
	switch s.text[i] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case '/':
		s.respelled = true
		return i + 1
	case 'u':
		s.respelled = true
		if i+5 > len(s.text) {
			return noValue
		}
		for _, c := range s.text[i+1 : i+5] {
			if lower := c | 0x20; (c < '0' || c > '9') && (lower < 'a' || lower > 'f') {
				return noValue
			}
		}
		return i + 5
	}
	return noValue
}

// number returns the end of the number at i.
func (s *scan) number(i int) int {
	if s.text[i] == '-' {
		i++
	}
	begin := i
	if i = s.digits(i); i == begin || s.text[begin] == '0' && i > begin+1 {
		return noValue
	}
	if i < len(s.text) && s.text[i] == '.' {
		begin = i + 1
		if i = s.digits(begin); i == begin {
			return noValue
		}
	}
	if i < len(s.text) && s.text[i]|0x20 == 'e' {
		if i++; i < len(s.text) && (s.text[i] == '+' || s.text[i] == '-') {
			i++
		}
		begin = i
		if i = s.digits(begin); i == begin {
			return noValue
		}
	}
	return i
}

func (s *scan) digits(i int) int {
	for i < len(s.text) && s.text[i] >= '0' && s.text[i] <= '9' {
		i++
	}
	return i
}

// key returns the string in text[from:to], which has quotes.
func (s *scan) key(from, to int) (string, bool) {
	inner := s.text[from+1 : to-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			var name string
			err := json.Unmarshal(s.text[from:to], &name)
			return name, err == nil
		}
	}
	return string(inner), true
}

// ScanObject calls yield for the members of a text that is one JSON object and nests no deeper
// than levels, in their order and with their values as they are in the text. respelled reports
// that there is space in a value, or an escape that it need not have. ScanObject returns false
// where the text is something else; by then, yield may have been called.
func ScanObject(text []byte, levels int, yield func(key string, value json.RawMessage, respelled bool)) bool {
	s := scan{text: text}
	i := s.space(0)
	if i == len(text) || text[i] != '{' {
		return false
	}
	if i = s.space(i + 1); i < len(text) && text[i] == '}' {
		return s.space(i+1) == len(text)
	}
	for i < len(text) && text[i] == '"' {
		end := s.string(i)
		if end < 0 {
			return false
		}
		name, ok := s.key(i, end)
		if i = s.space(end); !ok || i == len(text) || text[i] != ':' {
			return false
		}
		i = s.space(i + 1)
		s.respelled = false
		if end = s.value(i, levels-1); end < 0 {
			return false
		}
		yield(name, text[i:end:end], s.respelled)
		if i = s.space(end); i == len(text) {
			return false
		}
		switch text[i] {
		case '}':
			return s.space(i+1) == len(text)
		case ',':
			i = s.space(i + 1)
		default:
			return false
		}
	}
	return false
}

// ScanArray is [ScanObject] for the elements of an array.
func ScanArray(text []byte, levels int, yield func(element json.RawMessage)) bool {
	s := scan{text: text}
	i := s.space(0)
	if i == len(text) || text[i] != '[' {
		return false
	}
	if i = s.space(i + 1); i < len(text) && text[i] == ']' {
		return s.space(i+1) == len(text)
	}
	for {
		end := s.value(i, levels-1)
		if end < 0 {
			return false
		}
		yield(text[i:end:end])
		if i = s.space(end); i == len(text) {
			return false
		}
		switch text[i] {
		case ']':
			return s.space(i+1) == len(text)
		case ',':
			i = s.space(i + 1)
		default:
			return false
		}
	}
}

// Unquote returns the text that is quoted as a JSON string. It returns false where quoted is
// something else, or has bytes or escapes that are no characters.
func Unquote(quoted []byte) (string, bool) {
	s := scan{text: quoted}
	if len(quoted) == 0 || quoted[0] != '"' || s.string(0) != len(quoted) || !utf8.Valid(quoted) {
		return "", false
	}
	inner := quoted[1 : len(quoted)-1]
	n := bytes.IndexByte(inner, '\\')
	if n < 0 {
		return string(inner), true
	}
	text := make([]byte, 0, len(inner))
	for ; n >= 0; n = bytes.IndexByte(inner, '\\') {
		text = append(text, inner[:n]...)
		letter := inner[n+1]
		if inner = inner[n+2:]; letter != 'u' {
			text = append(text, unescaped[letter])
			continue
		}
		r := unit(inner)
		if inner = inner[4:]; utf16.IsSurrogate(r) {
			if len(inner) < 6 || inner[0] != '\\' || inner[1] != 'u' {
				return "", false
			}
			if r = utf16.DecodeRune(r, unit(inner[2:])); r == utf8.RuneError {
				return "", false
			}
			inner = inner[6:]
		}
		text = utf8.AppendRune(text, r)
	}
	text = append(text, inner...)
	return unsafe.String(&text[0], len(text)), true // nothing else has the text
}

// unescaped has the characters of the letters after a backslash.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unit returns the UTF-16 unit that text begins with, in four hexadecimal digits.
func unit(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16) // the scan has seen the digits
	return rune(n)
}

// bytesOf returns the bytes of a text, which must not be written to.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// IsJSON reports whether a text is one JSON value, without space around it, that nests no deeper
// than levels.
func IsJSON(text []byte, levels int) bool {
	s := scan{text: text}
	return len(text) > 0 && s.value(0, levels) == len(text)
}
