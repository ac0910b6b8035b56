package jsonscan

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

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
