package nesting

import (
	"bytes"
	"io"
)

// JSON cuts what is nested too deep out of a request in JSON, in place, and returns
// the request. What is not JSON stays so. It does not look at [MaxDecoded].
func JSON(request []byte) []byte {
	if bytes.Count(request, []byte("{"))+bytes.Count(request, []byte("[")) <= maxJSONDepth {
		return request
	}
	var c jsonCutter
	return request[:c.cut(request)]
}

// JSONReader returns a reader of the same request with what is nested too deep cut
// out. Read fails with [ErrTooLarge], and with the error of grow, which is called with
// about how much memory what was read takes beside its texts. Of the request the
// reader holds nothing.
func JSONReader(request io.ReadCloser, grow func(bytes int64) error) io.ReadCloser {
	return &jsonReader{request: request, grow: grow}
}

type jsonReader struct {
	request io.ReadCloser
	grow    func(int64) error
	cutter  jsonCutter
	grown   int64 // objects that grow was called with
}

func (r *jsonReader) Read(p []byte) (int, error) {
	for {
		n, err := r.request.Read(p)
		n = r.cutter.cut(p[:n])
		if r.cutter.tooLarge() {
			return 0, ErrTooLarge
		}
		if more := r.cutter.objects - r.grown; more > 0 {
			if err := r.grow(more * objectCost); err != nil {
				return 0, err
			}
			r.grown = r.cutter.objects
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

func (r *jsonReader) Close() error { return r.request.Close() }

// jsonCutter is where a reader of JSON stands. An object or array that begins too deep
// loses its inside: {} and [] are valid wherever OTLP has an object or an array, so
// the cutter needs to know nothing of OTLP, nor to go back.
type jsonCutter struct {
	depth    int
	inString bool
	escaped  bool  // the last byte was a backslash in a string
	objects  int64 // how many objects, arrays and elements stay
	// array has a bit for each level that is kept: whether it is an array. element says
	// that one begins: the decoder makes a span or value of each, also where a number or
	// null stands.
	array   [maxJSONDepth/64 + 1]uint64
	element bool
}

// objectCost is what an object of a request takes in memory at most, about: a span.
const objectCost = 256

func (c *jsonCutter) tooLarge() bool { return c.objects > MaxDecoded/objectCost }

// cut moves what stays of b to its beginning and returns its length.
func (c *jsonCutter) cut(b []byte) int {
	kept := 0 // b[:kept] stays
	from := 0 // b[from:i] stays too, and is moved when something behind it goes
	keep := func(to int) {
		if kept != from {
			copy(b[kept:], b[from:to])
		}
		kept += to - from
		from = to
	}
	for i := 0; i < len(b); i++ {
		if c.inString {
			i += c.skipString(b[i:]) - 1
			continue
		}
		if c.element {
			c.begin(b[i])
		}
		switch b[i] {
		case '"':
			c.inString = true
		case ',':
			c.element = c.inArray()
		case '{', '[':
			if c.depth++; c.depth <= maxJSONDepth {
				c.objects++
				c.enter(b[i] == '[')
			} else if c.depth == maxJSONDepth+1 {
				keep(i + 1)
			}
		case '}', ']':
			if c.depth == maxJSONDepth+1 {
				from = i // the inside goes
			}
			c.depth = max(c.depth-1, 0)
		}
		if c.depth > maxJSONDepth {
			from = i + 1
		}
	}
	if c.depth > maxJSONDepth {
		return kept
	}
	keep(len(b))
	return kept
}

// begin looks at the first byte of an element, and at spaces before it. Objects and
// arrays count for themselves.
func (c *jsonCutter) begin(first byte) {
	switch first {
	case ' ', '\n', '\t', '\r':
		return
	case '{', '[', ']', '}':
	default:
		c.objects++
	}
	c.element = false
}

// enter notes what the level is that begins.
func (c *jsonCutter) enter(array bool) {
	word, bit := c.depth/64, uint64(1)<<(c.depth%64)
	c.array[word] &^= bit
	if array {
		c.array[word] |= bit
	}
	c.element = array
}

func (c *jsonCutter) inArray() bool {
	return c.depth <= maxJSONDepth && c.array[c.depth/64]&(1<<(c.depth%64)) != 0
}

// skipString returns how many bytes at the beginning of b are of the string that c
// is in.
func (c *jsonCutter) skipString(b []byte) int {
	i, quote := 0, -1
	if c.escaped {
		c.escaped = false
		i = 1
	}
	for i < len(b) {
		if quote < i { // looked for once, however many escapes are before it
			if quote = bytes.IndexByte(b[i:], '"'); quote < 0 {
				quote = len(b)
			} else {
				quote += i
			}
		}
		escape := bytes.IndexByte(b[i:quote], '\\')
		if escape < 0 {
			if quote < len(b) {
				c.inString = false
				quote++
			}
			return quote
		}
		if i += escape + 2; i > len(b) {
			c.escaped = true
		}
	}
	return len(b)
}
