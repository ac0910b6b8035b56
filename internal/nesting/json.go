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
// out. Read fails with [ErrTooLarge]. Of the request it holds nothing.
func JSONReader(request io.ReadCloser) io.ReadCloser {
	return &jsonReader{request: request}
}

type jsonReader struct {
	request io.ReadCloser
	cutter  jsonCutter
}

func (r *jsonReader) Read(p []byte) (int, error) {
	for {
		n, err := r.request.Read(p)
		n = r.cutter.cut(p[:n])
		if r.cutter.tooLarge() {
			return 0, ErrTooLarge
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
	objects  int64 // how many objects and arrays stay
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
		switch b[i] {
		case '"':
			c.inString = true
		case '{', '[':
			if c.depth++; c.depth <= maxJSONDepth {
				c.objects++
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

// skipString returns how many bytes at the beginning of b are of the string that c
// stands in.
func (c *jsonCutter) skipString(b []byte) int {
	i, quote := 0, -1
	if c.escaped {
		c.escaped = false
		i = 1
	}
	for i < len(b) {
		if quote < i { // looked for once, however many escapes stand before it
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
