package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
)

// closeCut makes valid JSON of an array or object whose end is missing, or is not
// JSON: clients cut attributes at a length, and some put an ellipsis there. It
// keeps what is whole and, where a cut goes through a message or its text, what
// is before it. Nothing else is kept in part: the half of a call's arguments
// or of an id would be another one. It returns nil when nothing is left.
func closeCut(raw json.RawMessage) json.RawMessage {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' && raw[0] != '{' {
		return nil
	}
	c := cutter{in: raw}
	if kept, whole := c.value(true, 0); !kept || whole || !json.Valid(c.out) || len(c.out) <= 2 {
		return nil
	}
	return c.out
}

// divisible are the keys whose values are worth something in part.
var divisible = byWord(map[bool]string{
	true: `messages contents content parts text thinking reasoning reasoning_content prompt system message choices
		candidates output`,
})

type cutter struct {
	in, out []byte
	pos     int
}

// value copies a value and reports whether it did, and whether all of it was there.
// Only a value that may be divided is copied in part.
func (c *cutter) value(divide bool, depth int) (kept, whole bool) {
	c.space()
	if c.pos >= len(c.in) || depth > 200 {
		return false, false
	}
	start := len(c.out)
	switch c.in[c.pos] {
	case '{':
		whole = c.object(divide, depth)
	case '[':
		whole = c.array(divide, depth)
	case '"':
		return c.string(divide)
	default:
		return c.literal()
	}
	if !whole && !divide {
		c.out = c.out[:start]
		return false, false
	}
	return true, whole
}

func (c *cutter) object(divide bool, depth int) (whole bool) {
	c.pos++
	c.out = append(c.out, '{')
	defer func() { c.out = append(c.out, '}') }()
	for n := 0; ; {
		if c.space(); n == 0 && c.next('}') {
			return true
		}
		mark := len(c.out)
		if n > 0 {
			c.out = append(c.out, ',')
		}
		from := len(c.out)
		if _, ok := c.string(false); !ok {
			c.out = c.out[:mark]
			return false
		}
		var key string
		json.Unmarshal(c.out[from:], &key)
		if c.space(); !c.next(':') {
			c.out = c.out[:mark]
			return false
		}
		c.out = append(c.out, ':')
		kept, ok := c.value(divide && divisible[key], depth+1)
		if !kept {
			c.out = c.out[:mark]
		}
		if !ok {
			return false
		}
		n++
		if c.space(); c.next('}') {
			return true
		} else if !c.next(',') {
			return false
		}
	}
}

func (c *cutter) array(divide bool, depth int) (whole bool) {
	c.pos++
	c.out = append(c.out, '[')
	defer func() { c.out = append(c.out, ']') }()
	for n := 0; ; n++ {
		if c.space(); n == 0 && c.next(']') {
			return true
		}
		mark := len(c.out)
		if n > 0 {
			c.out = append(c.out, ',')
		}
		kept, ok := c.value(divide, depth+1)
		if !kept {
			c.out = c.out[:mark]
		}
		if !ok {
			return false
		}
		if c.space(); c.next(']') {
			return true
		} else if !c.next(',') {
			return false
		}
	}
}

func (c *cutter) string(divide bool) (kept, whole bool) {
	if c.pos >= len(c.in) || c.in[c.pos] != '"' {
		return false, false
	}
	end := c.pos + 1
	for end < len(c.in) && c.in[end] != '"' {
		if c.in[end] == '\\' {
			end++
		}
		end++
	}
	if end < len(c.in) {
		s := c.in[c.pos : end+1]
		c.pos = end + 1
		if !json.Valid(s) {
			return false, false
		}
		c.out = append(c.out, s...)
		return true, true
	}
	s := bytes.Clone(c.in[c.pos:])
	c.pos = len(c.in)
	if !divide {
		return false, false
	}
	// The cut may go through an escape or a character, which ends in U+FFFD then: at
	// most 12 bytes are lost to a pair of surrogates.
	for range 13 {
		if closed := append(s[:len(s):len(s)], '"'); len(s) > 1 && json.Valid(closed) && !strings.HasSuffix(text(closed), "\uFFFD") {
			c.out = append(c.out, closed...)
			return true, false
		}
		if len(s) <= 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return false, false
}

// literal copies a number or a word. One at the very end may lack digits.
func (c *cutter) literal() (kept, whole bool) {
	end := c.pos
	for end < len(c.in) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(c.in[end])) {
		end++
	}
	s := c.in[c.pos:end]
	c.pos = end
	if end == len(c.in) || !json.Valid(s) {
		return false, false
	}
	c.out = append(c.out, s...)
	return true, true
}

func (c *cutter) space() {
	for c.pos < len(c.in) && (c.in[c.pos] == ' ' || c.in[c.pos] == '\t' || c.in[c.pos] == '\n' || c.in[c.pos] == '\r') {
		c.pos++
	}
}

func (c *cutter) next(b byte) bool {
	if c.pos < len(c.in) && c.in[c.pos] == b {
		c.pos++
		return true
	}
	return false
}
