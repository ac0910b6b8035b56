package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Python spells JSON as Python's json.dump does: with a space after each comma and colon.
type Python struct {
	// Indent puts each value on a line of its own, with an indent of two.
	Indent bool
	// ASCII escapes every other character, which is json.dump's default.
	ASCII bool
}

// Append appends a value, which must be spelled as [Value] returns it.
func (p Python) Append(dst []byte, value json.RawMessage) []byte {
	depth, quoted := 0, false
	newline := func() {
		if p.Indent {
			dst = append(append(dst, '\n'), strings.Repeat("  ", depth)...)
		}
	}
	for i, size := 0, 0; i < len(value); i += size {
		var c rune
		switch c, size = utf8.DecodeRune(value[i:]); {
		case p.ASCII && c > 0xFFFF:
			high, low := utf16.EncodeRune(c)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		case p.ASCII && c > '~':
			dst = fmt.Appendf(dst, `\u%04x`, c)
		case quoted && c == '\\':
			size = 2
			dst = append(dst, value[i:i+size]...)
		case c == '"':
			quoted = !quoted
			dst = append(dst, '"')
		case quoted:
			dst = append(dst, value[i:i+size]...)
		case (c == '{' || c == '[') && value[i+1] == byte(c)+2: // the closing bracket
			size = 2
			dst = append(dst, value[i:i+size]...)
		case c == '{' || c == '[':
			dst = append(dst, byte(c))
			depth++
			newline()
		case c == '}' || c == ']':
			depth--
			newline()
			dst = append(dst, byte(c))
		case c == ',' && p.Indent:
			dst = append(dst, ',')
			newline()
		case c == ',' || c == ':':
			dst = append(dst, byte(c), ' ')
		default:
			dst = append(dst, byte(c))
		}
	}
	return dst
}

// ReplaceNaN replaces NaN, Infinity and -Infinity outside of strings, which Python writes
// and JSON does not have. found reports whether there are any; otherwise the result is
// text itself.
func ReplaceNaN(text []byte, with func(word string) string) (replaced []byte, found bool) {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text, false
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted && c == '\\' && i+1 < len(text) {
			replaced = append(replaced, c, text[i+1])
			i++
			continue
		}
		quoted = quoted != (c == '"')
		word := ""
		for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
			if !quoted && bytes.HasPrefix(text[i:], []byte(w)) {
				word = w
			}
		}
		if word == "" {
			replaced = append(replaced, c)
			continue
		}
		replaced, found = append(replaced, with(word)...), true
		i += len(word) - 1
	}
	return replaced, found
}
