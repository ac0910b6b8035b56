package redact

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func skipSpace(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the end of the string at i, or -1. It looks at eight bytes at a time.
func skipString(s string, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	if i >= len(s) || s[i] != '"' {
		return -1
	}
	for i++; i < len(s); i++ {
		for i+8 <= len(s) {
			w := binary.LittleEndian.Uint64([]byte(s[i : i+8]))
			quote, slash := w^ones*'"', w^ones*'\\'
			// The lowest bit that is set is of the first byte that is a quote, a backslash or a control.
			m := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & highs
			if m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		if i == len(s) {
			break
		}
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
			if i == len(s) {
				return -1
			}
			switch s[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if i+4 >= len(s) || hex4(s[i+1:i+5]) < 0 {
					return -1
				}
				i += 4
			default:
				return -1
			}
		case c < ' ':
			return -1
		}
	}
	return -1
}

func hex4(s string) rune {
	var v rune
	for i := range 4 {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}

// skipJSON returns the end of the value at i, below 0 when there is none.
func skipJSON(s string, i int) int { return skipLevel(s, i, maxLevels) }

// ValidJSON reports whether s is one JSON value, as json.Valid does. It is some five times as fast
// on what tools read and write, which is mostly long strings.
func ValidJSON(s string) bool {
	const levels = 10_000 // as encoding/json
	end := skipLevel(s, skipSpace(s, 0), levels)
	return end >= 0 && skipSpace(s, end) == len(s)
}

// embedded redacts the arrays and objects of JSON within a text, as a line of a log or of
// JSON Lines has them.
func (r *Redactor) embedded(s string, nested int) string {
	var edits walker
	spent := 0 // on what turned out to be no JSON
	object, array := nextByte(s, 0, '{'), nextByte(s, 0, '[')
	for i := min(object, array); i < len(s) && spent <= len(s)/2+4096; i = min(object, array) {
		next := skipSpace(s, i+1)
		end := -1
		if next < len(s) && strings.IndexByte(`"{[`, s[next]) >= 0 {
			if end = skipJSON(s, i); end < 0 {
				spent += ^end - i
			}
		}
		after := max(end, i+1)
		if object < after {
			object = nextByte(s, after, '{')
		}
		if array < after {
			array = nextByte(s, after, '[')
		}
		if end < 0 {
			continue
		}
		if part := s[i:end]; r.suspect(part) {
			if out, ok := r.document(part, nested); ok && out != part {
				edits.replace(i, end, out)
			}
		}
	}
	if len(edits.edits) == 0 {
		return s
	}
	edits.s = s
	return string(edits.written())
}

// nextByte returns where c is next in s at or after i, or the length of s.
func nextByte(s string, i int, c byte) int {
	if k := strings.IndexByte(s[i:], c); k >= 0 {
		return i + k
	}
	return len(s)
}

// truncatedJSON reports whether the value at i is JSON up to the end of s, where it
// breaks off. What is long is taken for it unread.
func truncatedJSON(s string, i int) bool {
	s = s[:min(len(s), i+16<<10)]
	for depth := 0; i < len(s); {
		switch c := s[i]; c {
		case '"':
			end := skipString(s, i)
			if end < 0 {
				return !strings.ContainsAny(s[i:], "\n\r")
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return false
			}
		case ':', ',', ' ', '\t', '\n', '\r', '.', '-', '+':
		default:
			if class[c]&alnum == 0 {
				return false
			}
		}
		i++
	}
	return true
}

// skipLevel is skipJSON for a value of so many levels; where there is none, it returns the
// complement of where it broke off.
func skipLevel(s string, i, levels int) int {
	if i >= len(s) {
		return ^i
	}
	end := -1
	switch c := s[i]; {
	case c == '"':
		end = skipString(s, i)
	case c == '{' || c == '[':
		if levels == 0 {
			return ^i
		}
		return container(s, i, func(_ span, i int) int { return skipLevel(s, i, levels-1) })
	case c == '-' || class[c]&digit != 0:
		end = skipNumber(s, i)
	default:
		for _, name := range [...]string{"true", "false", "null"} {
			if strings.HasPrefix(s[i:], name) {
				end = i + len(name)
			}
		}
	}
	if end < 0 {
		return ^i
	}
	return end
}

// container reads the array or object at i. It has value read each of its values, from i on,
// with the bounds of its key, quotes included; value returns where that ends, below 0 to
// stop. Where there is no container, the end is the complement of where it broke off.
func container(s string, i int, value func(key span, i int) int) (end int) {
	open := s[i]
	if i = skipSpace(s, i+1); i < len(s) && s[i] == open+2 {
		return i + 1
	}
	for {
		var key span
		if i = skipSpace(s, i); open == '{' {
			key.lo, key.hi = i, skipString(s, i)
			if key.hi < 0 {
				return ^i
			}
			if i = skipSpace(s, key.hi); i == len(s) || s[i] != ':' {
				return ^i
			}
			i = skipSpace(s, i+1)
		}
		if i == len(s) {
			return ^i
		}
		if i = value(key, i); i < 0 {
			return i
		}
		if i = skipSpace(s, i); i == len(s) {
			return ^i
		}
		switch s[i] {
		case ',':
			i++
		case open + 2:
			return i + 1
		default:
			return ^i
		}
	}
}

func skipNumber(s string, i int) int {
	if s[i] == '-' {
		i++
	}
	whole := i
	if i = run(s, i, digit); i == whole || i-whole > 1 && s[whole] == '0' {
		return -1
	}
	if i < len(s) && s[i] == '.' {
		end := run(s, i+1, digit)
		if end == i+1 {
			return -1
		}
		i = end
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		end := run(s, i, digit)
		if end == i {
			return -1
		}
		i = end
	}
	return i
}

// unescape returns the bytes that the body of a JSON string means. Half a surrogate
// pair becomes the three bytes it would have in UTF-8, which escape turns back.
func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch s[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			v := hex4(s[i+1 : i+5])
			i += 4
			if v >= 0xd800 && v < 0xdc00 && i+6 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
				if pair := utf16.DecodeRune(v, hex4(s[i+3:i+7])); pair != utf8.RuneError {
					v = pair
					i += 6
				}
			}
			if v >= 0xd800 && v < 0xe000 {
				out = append(out, 0xe0|byte(v>>12), 0x80|byte(v>>6)&0xbf, 0x80|byte(v)&0xbf)
			} else {
				out = utf8.AppendRune(out, v)
			}
		default:
			out = append(out, s[i])
		}
	}
	return string(out)
}

// escape returns s as the body of a JSON string.
func escape(s string) string {
	const hexDigits = "0123456789abcdef"
	out := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c == 0xed && i+2 < len(s) && s[i+1] >= 0xa0 && s[i+1] < 0xc0 && s[i+2] >= 0x80 && s[i+2] < 0xc0:
			v := rune(c&15)<<12 | rune(s[i+1]&0x3f)<<6 | rune(s[i+2]&0x3f)
			out = append(out, '\\', 'u', hexDigits[v>>12], hexDigits[v>>8&15], hexDigits[v>>4&15], hexDigits[v&15])
			i += 2
		default:
			out = append(out, c)
		}
	}
	return string(out)
}
