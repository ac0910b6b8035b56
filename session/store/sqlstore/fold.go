package sqlstore

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
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
	if i := strings.IndexByte("bfnrt", raw[1]); i >= 0 {
		return rune("\b\f\n\r\t"[i]), 2
	} else if raw[1] != 'u' {
		return rune(raw[1]), 2 // the next byte of a longer character, which JSON does not allow here, does not match
	}
	r, size := escapedUnit(raw), min(6, len(raw))
	if !utf16.IsSurrogate(r) {
		return r, size
	}
	if pair := utf16.DecodeRune(r, escapedUnit(raw[size:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, size
}

// escapedUnit returns the UTF-16 unit of an escape \uXXXX at the beginning of raw, [utf8.RuneError] if there is none.
func escapedUnit(raw []byte) rune {
	if bytes.HasPrefix(raw, []byte(`\u`)) {
		if r := jsonscan.Unit(string(raw[2:min(6, len(raw))])); r >= 0 {
			return r
		}
	}
	return utf8.RuneError
}
