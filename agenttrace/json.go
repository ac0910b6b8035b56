package agenttrace

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth bounds how deep JSON may nest, as encoding/json does.
const maxDepth = 10000

// validJSON reports whether s is one JSON value, as json.Valid does. It is some
// five times as fast on what tools read and write, mostly long strings: it was
// the greater part of the cost of a tool call.
func validJSON(s string) bool {
	i, ok := scanValue(s, scanSpace(s, 0), 0)
	return ok && scanSpace(s, i) == len(s)
}

func scanSpace(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// scanValue and its siblings return the index after what they scan, which
// begins at i.
func scanValue(s string, i, depth int) (int, bool) {
	if i >= len(s) {
		return i, false
	}
	switch c := s[i]; {
	case c == '"':
		return scanString(s, i+1)
	case (c == '{' || c == '[') && depth < maxDepth:
		return scanMembers(s, i+1, depth+1, c+2) // both closing brackets are two on
	case c == '-' || '0' <= c && c <= '9':
		return scanNumber(s, i)
	case c == 't':
		return i + 4, i+4 <= len(s) && s[i:i+4] == "true"
	case c == 'f':
		return i + 5, i+5 <= len(s) && s[i:i+5] == "false"
	case c == 'n':
		return i + 4, i+4 <= len(s) && s[i:i+4] == "null"
	}
	return i, false
}

// scanMembers scans what is between the brackets of an object or an array.
func scanMembers(s string, i, depth int, end byte) (int, bool) {
	i = scanSpace(s, i)
	if i < len(s) && s[i] == end {
		return i + 1, true
	}
	for {
		var ok bool
		if end == '}' {
			if i >= len(s) || s[i] != '"' {
				return i, false
			}
			if i, ok = scanString(s, i+1); !ok {
				return i, false
			}
			if i = scanSpace(s, i); i >= len(s) || s[i] != ':' {
				return i, false
			}
			i = scanSpace(s, i+1)
		}
		if i, ok = scanValue(s, i, depth); !ok {
			return i, false
		}
		if i = scanSpace(s, i); i >= len(s) {
			return i, false
		}
		switch s[i] {
		case end:
			return i + 1, true
		case ',':
			i = scanSpace(s, i+1)
		default:
			return i, false
		}
	}
}

// scanString scans a string whose opening quote is before i, eight bytes at
// a time.
func scanString(s string, i int) (int, bool) {
	for {
		if i+8 <= len(s) {
			m := special(binary.LittleEndian.Uint64([]byte(s[i : i+8])))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) / 8
		} else {
			for i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' {
				i++
			}
			if i >= len(s) {
				return i, false
			}
		}
		switch {
		case s[i] == '"':
			return i + 1, true
		case s[i] != '\\' || i+1 >= len(s):
			return i, false
		case s[i+1] == 'u':
			if i+6 > len(s) || !isHex(s[i+2]) || !isHex(s[i+3]) || !isHex(s[i+4]) || !isHex(s[i+5]) {
				return i, false
			}
			i += 6
		case !escapes[s[i+1]]:
			return i, false
		default:
			i += 2
		}
	}
}

// special sets the high bit of the lowest byte of w that is a quote, a backslash
// or a control character. It may set bits above that one too.
func special(w uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & highs
}

// escapes are what may follow a backslash, except for u.
var escapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func scanNumber(s string, i int) (int, bool) {
	if s[i] == '-' {
		i++
	}
	start := i
	i = skipDigits(s, i)
	if i == start || s[start] == '0' && i > start+1 {
		return i, false
	}
	if i < len(s) && s[i] == '.' {
		start = i + 1
		if i = skipDigits(s, start); i == start {
			return i, false
		}
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		start = i
		if i = skipDigits(s, start); i == start {
			return i, false
		}
	}
	return i, true
}

func skipDigits(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
