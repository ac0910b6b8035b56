package jsonscan

import (
	"strconv"
	"unicode/utf8"
)

// Cut returns text, which is valid JSON that nests as deep as a scan reads, in at most limit bytes, and nesting no
// deeper than depth; 0 is any depth. First goes what is too deep, then the ends of long strings, then elements. Each
// cut shows: note returns what stands for a text or its end, and marker is the name of the elements that are missing.
// Where even that is too long, all is one string with the note.
func Cut(text string, limit, depth int, marker string, note func(cut string) string) []byte {
	c := cutter{s: text, limit: limit, depth: depth, marker: marker, note: note,
		maxString: len(text), maxElements: len(text)}
	for !c.cut() {
		if !c.tighten() {
			return []byte(`"` + note(text) + `"`)
		}
	}
	return c.out
}

// cutter writes JSON again with shorter strings and fewer elements. Its input is valid.
type cutter struct {
	s           string
	out         []byte
	limit       int
	depth       int // 0: none
	marker      string
	note        func(cut string) string
	maxString   int // bytes of a string between its quotes
	maxElements int
}

// tighten makes the next output smaller; it is false when it cannot.
func (c *cutter) tighten() bool {
	switch {
	case c.maxString > 64:
		c.maxString = max(min(c.maxString/2, c.limit), 64)
	case c.maxElements > 1:
		c.maxElements = min(c.maxElements/2, 256)
	case c.maxString > 40:
		c.maxString = 40
	default:
		return false
	}
	return true
}

// cut returns false when the output outgrew the limit, which ends it early.
func (c *cutter) cut() bool {
	c.out = c.out[:0]
	return c.value(Space(c.s, 0), 0) >= 0
}

// value writes the value at i and returns its end, below 0 where the output outgrew the limit.
func (c *cutter) value(i, depth int) (end int) {
	nests := c.s[i] == '{' || c.s[i] == '['
	if nests && (c.depth == 0 || depth < c.depth) {
		end = c.elements(i, depth)
	} else {
		end = Value(c.s, i, maxLevels)
		value := c.s[i:end]
		if nests && len(value) > 2 {
			value = `"` + c.note(value) + `"`
		} else if value[0] == '"' {
			value = c.shorter(value)
		}
		c.out = append(c.out, value...)
	}
	if len(c.out) > c.limit {
		return -1
	}
	return end
}

func (c *cutter) elements(i, depth int) (end int) {
	c.out = append(c.out, c.s[i])
	n := 0
	end = Container(c.s, i, func(key Key, at int) int {
		if n++; n > c.maxElements {
			return Value(c.s, at, maxLevels)
		}
		if n > 1 {
			c.out = append(c.out, ',')
		}
		if key.To > 0 {
			c.out = append(append(c.out, c.s[key.From:key.To]...), ':')
		}
		return c.value(at, depth+1)
	})
	if rest := n - c.maxElements; rest > 0 {
		c.out = append(c.out, `,"`+c.marker...)
		if c.s[i] == '{' {
			c.out = append(c.out, `":"`...)
		}
		c.out = append(c.out, "["+strconv.Itoa(rest)+` more]"`...)
	}
	c.out = append(c.out, c.s[i]+2)
	return end
}

// shorter returns a string in its quotes, cut where it is too long.
func (c *cutter) shorter(quoted string) string {
	body := quoted[1 : len(quoted)-1]
	if len(body) <= c.maxString {
		return quoted
	}
	note := c.note(body)
	text, _ := AppendUnescaped(make([]byte, 0, len(body)), body)
	plain := string(text)
	keep := max(0, min(len(plain), c.maxString-len(note)))
	for keep > 0 && len(AppendString(nil, plain[:keep]))-len(`""`) > max(0, c.maxString-len(note)) {
		keep -= keep/16 + 1
	}
	for keep > 0 && keep < len(plain) && !utf8.RuneStart(plain[keep]) {
		keep--
	}
	head := AppendString(nil, plain[:keep])
	if out := string(head[:len(head)-1]) + note + `"`; len(out) < len(quoted) {
		return out
	}
	return quoted
}
