package agentdbg

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// AgentDbg's files are what Python's json.dump makes of its dictionaries: a space
// after a comma and a colon on one line, or an indent of two, and nothing escaped
// that need not be.

// appendLine appends the value on one line.
func appendLine(dst []byte, value json.RawMessage) []byte { return appendPython(dst, value, false) }

// appendIndented appends the value with an indent of two.
func appendIndented(dst []byte, value json.RawMessage) []byte { return appendPython(dst, value, true) }

// appendPython appends a JSON value that has no space in it.
func appendPython(dst []byte, value json.RawMessage, indent bool) []byte {
	depth := 0
	newline := func() {
		dst = append(dst, '\n')
		for range depth {
			dst = append(dst, "  "...)
		}
	}
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			end := stringEnd(value, i)
			dst = appendPythonString(dst, value[i:end])
			i = end - 1
		case '{', '[':
			dst = append(dst, c)
			if i+1 < len(value) && value[i+1] == c+2 { // the bracket that closes it
				dst = append(dst, c+2)
				i++
				continue
			}
			depth++
			if indent {
				newline()
			}
		case '}', ']':
			depth--
			if indent {
				newline()
			}
			dst = append(dst, c)
		case ',':
			dst = append(dst, ',')
			if indent {
				newline()
			} else {
				dst = append(dst, ' ')
			}
		case ':':
			dst = append(dst, ": "...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// stringEnd returns the place after the string that starts at i.
func stringEnd(value []byte, i int) int {
	for i++; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(value)
}

// appendPythonString appends a JSON string with no escape that json.dump would
// not make. Half of a surrogate pair has no other spelling and keeps its escape.
func appendPythonString(dst, quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return append(dst, quoted...)
	}
	s, ok := rows.Text(quoted)
	if !ok || strings.Count(s, "\uFFFD") != bytes.Count(quoted, []byte("\uFFFD")) {
		return append(dst, quoted...)
	}
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r == '\b':
			dst = append(dst, `\b`...)
		case r == '\f':
			dst = append(dst, `\f`...)
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xF])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// through returns the object as a reader of its Python spelling gets it.
func through(o rows.Object) rows.Object {
	read, err := rows.Parse(appendLine(nil, o.JSON()))
	if err != nil {
		return o
	}
	return read
}

// parsePython reads one object that json.dump wrote. Python writes numbers that
// JSON has not; they are read as null and named in notes, as are bytes that are no
// UTF-8.
func parsePython(text []byte) (o rows.Object, notes []string, err error) {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		notes = append(notes, "bytes that are not UTF-8 were replaced by U+FFFD")
	}
	if o, err = rows.Parse(text); err == nil {
		return o, notes, nil
	}
	if fixed, ok := withoutNaN(text); ok {
		if o, err := rows.Parse(fixed); err == nil {
			return o, append(notes, "NaN and Infinity are not JSON and were read as null"), nil
		}
	}
	return nil, nil, err
}

func withoutNaN(text []byte) (fixed []byte, found bool) {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return nil, false // which saves a copy of most files
	}
	for i := 0; i < len(text); {
		if text[i] == '"' {
			end := stringEnd(text, i)
			fixed = append(fixed, text[i:end]...)
			i = end
			continue
		}
		n := 0
		for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
			if bytes.HasPrefix(text[i:], []byte(word)) {
				n = len(word)
				break
			}
		}
		if n == 0 {
			fixed = append(fixed, text[i])
			i++
			continue
		}
		fixed, found = append(fixed, "null"...), true
		i += n
	}
	return fixed, found
}
