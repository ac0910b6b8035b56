package sqlstore

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// fold returns a character that is the same for all that are equal apart from case.
func fold(r rune) rune {
	if r < utf8.RuneSelf {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f >= utf8.RuneSelf {
			least = min(least, f)
		}
	}
	return least
}

// AppendFolded appends a text in which characters that a search takes for equal are equal.
func AppendFolded(to []byte, text string) []byte {
	for _, r := range text {
		to = utf8.AppendRune(to, fold(r))
	}
	return to
}

// AppendFoldedJSON appends JSON with its escapes resolved, folded likewise: what is in a string of it is in the result.
func AppendFoldedJSON(to, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && i+1 < len(raw):
			r, size := unescaped(raw[i:])
			to = utf8.AppendRune(to, fold(r))
			i += size
		case c < utf8.RuneSelf:
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			to = append(to, c)
			i++
		default:
			r, size := utf8.DecodeRune(raw[i:])
			to = utf8.AppendRune(to, fold(r))
			i += size
		}
	}
	return to
}

// unescaped returns the character that an escape at the beginning of raw means, and the length of the escape.
func unescaped(raw []byte) (rune, int) {
	switch raw[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := escapedUnit(raw)
		if !utf16.IsSurrogate(r) {
			return r, min(6, len(raw))
		}
		if pair := utf16.DecodeRune(r, escapedUnit(raw[min(6, len(raw)):])); pair != utf8.RuneError {
			return pair, 12
		}
		return utf8.RuneError, min(6, len(raw))
	}
	return rune(raw[1]), 2 // the next byte of a longer character, which JSON does not allow here, does not match
}

// escapedUnit returns the UTF-16 unit of an escape \uXXXX at the beginning of raw, [utf8.RuneError] if there is none.
func escapedUnit(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return utf8.RuneError
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return utf8.RuneError
		}
		r = r<<4 | rune(c)
	}
	return r
}
