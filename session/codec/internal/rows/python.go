package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
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
	space := jsontext.SpaceAfterComma(true)
	if p.Indent {
		space = jsontext.WithIndent("  ")
	}
	text, _ := jsontext.AppendFormat(nil, value, space, jsontext.SpaceAfterColon(true), jsontext.PreserveRawStrings(true),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // it is JSON
	if !p.ASCII {
		return append(dst, text...)
	}
	for _, c := range string(text) {
		switch {
		case c > 0xFFFF:
			high, low := utf16.EncodeRune(c)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		case c > '~':
			dst = fmt.Appendf(dst, `\u%04x`, c)
		default:
			dst = append(dst, byte(c))
		}
	}
	return dst
}

// ParsePython is [Parse] of an object in which NaN and the like, as [ReplaceNaN] has them, are replaced. found reports
// whether there are any.
func ParsePython(text []byte, with func(word string) string) (o Object, found bool, err error) {
	if o, err = Parse(text); err == nil {
		return o, false, nil
	}
	fixed, found := ReplaceNaN(text, with)
	if again, failed := Parse(fixed); found && failed == nil {
		return again, true, nil
	}
	return nil, false, err
}

var notJSON = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// ReplaceNaN replaces NaN, Infinity and -Infinity outside of strings, which Python writes and JSON does not have. found
// reports whether there are any; otherwise the result is text itself.
func ReplaceNaN(text []byte, with func(word string) string) (replaced []byte, found bool) {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text, false
	}
	replaced = notJSON.ReplaceAllFunc(text, func(word []byte) []byte {
		if word[0] == '"' {
			return word
		}
		found = true
		return []byte(with(string(word)))
	})
	return replaced, found
}
