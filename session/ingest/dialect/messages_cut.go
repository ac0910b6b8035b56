package dialect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// divisible are the keys whose values are worth something in part.
var divisible = byWord(map[bool]string{
	true: `messages contents content parts text thinking reasoning reasoning_content prompt system message choices
		candidates output`,
})

// container is an array or object whose end was not seen yet.
type container struct {
	closer  byte
	divide  bool // it is worth something in part
	inValue bool // a key was read, and not yet its value
	end     int  // of what is whole of it
}

// closeCut makes valid JSON of an array or object whose end is missing, or is not JSON: clients cut
// attributes at a length, and some put an ellipsis there. It keeps what is whole and, where a cut
// goes through a message or its text, what is before it. Nothing else is kept in part: the half of
// a call's arguments or of an id would be another one. It returns nil if nothing remains.
func closeCut(raw json.RawMessage) json.RawMessage {
	const maxDepth = 200
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' && raw[0] != '{' {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	var open []container
	divide := true // the next value is worth something in part
	for len(open) <= maxDepth {
		token, err := d.Token()
		end := int(d.InputOffset())
		delim, isDelim := token.(json.Delim)
		key, isText := token.(string)
		if err != nil || !isDelim && !isText && bytes.IndexAny(raw[end:], ",]} \t\r\n") != 0 {
			break // a number before the cut may lack digits
		}
		if delim == '[' || delim == '{' {
			open = append(open, container{closer: byte(delim) + 2, divide: divide, end: end})
			continue
		}
		if isDelim {
			if open = open[:len(open)-1]; len(open) == 0 {
				return nil // nothing is missing
			}
		}
		in := &open[len(open)-1]
		if in.closer == '}' && !in.inValue && !isDelim {
			in.inValue, divide = true, in.divide && divisible[key]
			continue
		}
		in.end, in.inValue, divide = end, false, in.divide
	}
	var out []byte
	if i := slices.IndexFunc(open, func(c container) bool { return !c.divide }); i >= 0 {
		open = open[:i]
	} else if in := open[len(open)-1]; divide && (in.closer == ']' || in.inValue) {
		out = cutString(raw, int(d.InputOffset()))
	}
	if out == nil {
		out = slices.Clone(raw[:open[len(open)-1].end])
	}
	for _, c := range slices.Backward(open) {
		out = append(out, c.closer)
	}
	var closed bytes.Buffer
	if json.Compact(&closed, out) != nil || closed.Len() <= 2 {
		return nil
	}
	return closed.Bytes()
}

// cutString returns raw with an end for the string that begins after the offset and has none, or
// nil. The cut may go through an escape or a character, which ends in U+FFFD then: at most 12 bytes
// are lost to a pair of surrogates.
func cutString(raw []byte, offset int) []byte {
	start := len(raw) - len(bytes.TrimLeft(raw[offset:], " \t\r\n,:"))
	if start == len(raw) || raw[start] != '"' || skipString(raw, start) >= 0 {
		return nil
	}
	for end := len(raw); end > start+1 && end >= len(raw)-12; end-- {
		s := append(slices.Clone(raw[start:end]), '"')
		if json.Valid(s) && !strings.HasSuffix(text(s), "\uFFFD") {
			return append(slices.Clone(raw[:start]), s...)
		}
	}
	return nil
}
