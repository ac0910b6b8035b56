package dialect

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// A history grows with every model call that repeats it, so that most of the work of a dialect is to find the few new
// messages in it. What objects and arrays hold is decoded when it is asked for.

// object is a JSON object whose members are read as they are asked for. They are parts of what the object was made of.
type object map[string]json.RawMessage

// objectOf returns raw as an object, or nil and false. The object is the caller's, its members are not.
func objectOf(raw json.RawMessage) (object, bool) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	o := make(object, 6)
	if !jsonscan.Object(raw, maxNesting, func(key string, value json.RawMessage) { o[Text(key)] = value }) {
		return nil, false
	}
	return o, true
}

// maxNesting is how deep encoding/json reads.
const maxNesting = 10_000

// elements returns the elements of an array, or nil and false. They are parts of raw.
func elements(raw json.RawMessage) (all []json.RawMessage, ok bool) {
	if !jsonscan.Array(raw, maxNesting, func(e json.RawMessage) { all = append(all, e) }) {
		return nil, false
	}
	return all, true
}

// objectsOf returns the elements of an array that are objects.
func objectsOf(raw json.RawMessage) (all []object) {
	list, _ := elements(raw)
	for _, e := range list {
		if o, ok := objectOf(e); ok {
			all = append(all, o)
		}
	}
	return all
}

// text returns a JSON string's text, and "" for everything else.
func text(raw json.RawMessage) string {
	if raw = bytes.TrimSpace(raw); len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && raw[len(raw)-1] == '"' && utf8.Valid(inner) {
		return Text(string(inner))
	}
	var s string // which escapes: most texts have returned above
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return Text(s)
}

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || raw[0] == 'n'
}

// firstRaw returns the first value that is there.
func firstRaw(all ...json.RawMessage) json.RawMessage {
	for _, raw := range all {
		if raw != nil {
			return raw
		}
	}
	return nil
}

// has reports whether the object has any of the members, and it is not null.
func (o object) has(keys ...string) bool { return o.first(keys...) != nil }

// str returns the first of the members that is a text with something in it.
func (o object) str(keys ...string) string {
	for _, key := range keys {
		if s := text(o[key]); s != "" {
			return s
		}
	}
	return ""
}

// first returns the first of the members that is there and not null.
func (o object) first(keys ...string) json.RawMessage {
	for _, key := range keys {
		if raw, ok := o[key]; ok && !isNull(raw) {
			return raw
		}
	}
	return nil
}

// inner returns the first of the members that is an object.
func (o object) inner(keys ...string) object {
	for _, key := range keys {
		if in, ok := objectOf(o[key]); ok {
			return in
		}
	}
	return nil
}

// truth reports whether any of the members is true.
func (o object) truth(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return string(bytes.TrimSpace(o[key])) == "true" })
}

func sortedKeys(o object) []string { return slices.Sorted(maps.Keys(o)) }

// divisible are the keys whose values are worth something in part.
var divisible = setOf(wordLists["divisible"]...)

// closeCut makes valid JSON of an array or object whose end is missing, or is not JSON: clients cut attributes at a
// length, and some put an ellipsis there. It keeps what is whole and, where a cut goes through a message or its text,
// what is before it. Nothing else is kept in part: the half of a call's arguments or of an id would be another one. It
// returns nil if nothing remains.
func closeCut(raw json.RawMessage) json.RawMessage {
	const maxDepth = 200
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' && raw[0] != '{' {
		return nil
	}
	type container struct {
		closer  byte
		divide  bool // it is worth something in part
		inValue bool // a key was read, and not yet its value
		end     int  // of what is whole of it
	}
	var open []container // the arrays and objects whose end was not seen yet
	d := json.NewDecoder(bytes.NewReader(raw))
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

// cutString returns raw with an end for the string that begins after the offset and has none, or nil. The cut may go
// through an escape or a character, which ends in U+FFFD then: at most 12 bytes are lost to a pair of surrogates.
func cutString(raw []byte, offset int) []byte {
	start := len(raw) - len(bytes.TrimLeft(raw[offset:], " \t\r\n,:"))
	if start == len(raw) || raw[start] != '"' || jsonscan.String(string(raw), start) >= 0 {
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
