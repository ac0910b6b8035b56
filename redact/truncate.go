package redact

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Truncate cuts s to the configured limit, marker included. It keeps the head, cuts
// between runes, and says the original size; what it cut before keeps the size it had
// then. Without a limit, or within it, it returns s itself.
func (r *Redactor) Truncate(s string) (string, Result) {
	res := Result{Size: len(s)}
	if r == nil || r.maxBytes == 0 || len(s) <= r.maxBytes {
		return s, res
	}
	res.Truncated, res.SHA256 = true, digest(s)
	if size, ok := originalSize(s); ok {
		res.Size = size
	}
	return cut(s, r.maxBytes, res.Size), res
}

// TruncateJSON cuts raw to the configured limit and depth and keeps it JSON: first
// what is too deep, then long strings, then elements, each with a marker where
// something is missing; where even that is too long a single string remains. What is
// not JSON is cut as by Truncate. Without a limit, or within it, it returns raw
// itself.
func (r *Redactor) TruncateJSON(raw []byte) ([]byte, Result) {
	res := Result{Size: len(raw)}
	if r == nil || r.maxDepth == 0 && (r.maxBytes == 0 || len(raw) <= r.maxBytes) {
		return raw, res
	}
	limit := r.maxBytes
	if limit == 0 {
		limit = int(^uint(0) >> 1)
	}
	s := string(raw)
	if end := skipJSON(s, skipSpace(s, 0)); end < 0 || skipSpace(s, end) != len(s) {
		if len(s) <= limit {
			return raw, res
		}
		out, res := r.Truncate(s)
		return []byte(out), res
	}
	c := cutter{s: s, limit: limit, depth: r.maxDepth, maxString: len(s), maxElements: len(s)}
	out, ok := c.cut()
	for !ok && c.tighten() {
		out, ok = c.cut()
	}
	if !ok {
		out = []byte(`"` + TruncatedMarker + sizeNote(len(s)) + `"`)
	}
	if string(out) == s {
		return raw, res
	}
	res.Truncated, res.SHA256 = true, digest(s)
	return out, res
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func sizeNote(size int) string { return "[" + strconv.Itoa(size) + " bytes]" }

// cut keeps as much of the head of s as fits in limit with the marker.
func cut(s string, limit, size int) string {
	note := TruncatedMarker + sizeNote(size)
	keep := max(0, limit-len(note))
	if k := strings.LastIndex(s[:min(len(s), keep)], TruncatedMarker); k >= 0 && keep-k < len(note)+16 {
		keep = k
	}
	return s[:boundary(s, keep)] + note
}

// boundary returns the last start of a rune at or before i.
func boundary(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	for n := i; n > 0 && n > i-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return n
		}
	}
	return i
}

// originalSize reads the size at the end of what was cut before.
func originalSize(s string) (int, bool) {
	k := strings.LastIndex(s, TruncatedMarker+"[")
	if k < 0 {
		return 0, false
	}
	note, ok := strings.CutSuffix(s[k+len(TruncatedMarker)+1:], " bytes]")
	size, err := strconv.Atoi(note)
	return size, ok && err == nil && size > len(s)
}

// omit replaces s by a marker with its size.
func omit(s string, redacted bool) (string, Result) {
	if body := strings.Trim(s, `"`); strings.HasPrefix(body, "[omitted: ") && strings.HasSuffix(body, " bytes]") &&
		len(body) < 40 {
		return s, Result{Size: len(s), Omitted: true, Redacted: redacted}
	}
	return "[omitted: " + strconv.Itoa(len(s)) + " bytes]",
		Result{Redacted: redacted, Omitted: true, Size: len(s), SHA256: digest(s)}
}

// cutter writes JSON again with shorter strings and fewer elements. Its input is valid.
type cutter struct {
	s           string
	i           int
	out         []byte
	limit       int
	depth       int // 0: none
	maxString   int // bytes of a string between its quotes
	maxElements int
}

// tighten makes the next output smaller; it is false when it cannot.
func (c *cutter) tighten() bool {
	switch {
	case c.maxString > c.limit:
		c.maxString = c.limit
	case c.maxElements == len(c.s) && c.maxString > 64:
		c.maxString = max(c.maxString/2, 64)
	case c.maxElements > 256:
		c.maxElements = 256
	case c.maxElements > 1:
		c.maxElements /= 2
	case c.maxString > 40:
		c.maxString = 40
	default:
		return false
	}
	return true
}

// cut returns false when the output outgrew the limit, which ends it early.
func (c *cutter) cut() ([]byte, bool) {
	c.i, c.out = 0, c.out[:0]
	return c.out, c.value(0)
}

func (c *cutter) value(depth int) bool {
	c.i = skipSpace(c.s, c.i)
	switch b := c.s[c.i]; {
	case (b == '{' || b == '[') && c.depth > 0 && depth >= c.depth:
		end := skipJSON(c.s, c.i)
		if end-c.i > 2 {
			c.out = append(append(append(c.out, '"'), TruncatedMarker+sizeNote(end-c.i)...), '"')
		} else {
			c.out = append(c.out, c.s[c.i:end]...)
		}
		c.i = end
	case b == '{' || b == '[':
		return c.elements(b, depth)
	case b == '"':
		c.str()
	default:
		end := skipJSON(c.s, c.i)
		c.out = append(c.out, c.s[c.i:end]...)
		c.i = end
	}
	return len(c.out) <= c.limit
}

func (c *cutter) elements(open byte, depth int) bool {
	c.out = append(c.out, open)
	c.i = skipSpace(c.s, c.i+1)
	for n := 0; c.s[c.i] != open+2; n++ {
		if n > 0 {
			c.out = append(c.out, ',')
		}
		if n == c.maxElements {
			rest := c.skip(open)
			c.out = append(c.out, `"`+TruncatedMarker...)
			if open == '{' {
				c.out = append(c.out, `":"`...)
			}
			c.out = append(append(strconv.AppendInt(append(c.out, '['), int64(rest), 10), " more]"...), '"')
			break
		}
		if open == '{' {
			end := skipString(c.s, c.i)
			c.out = append(append(c.out, c.s[c.i:end]...), ':')
			c.i = skipSpace(c.s, end) + 1
		}
		if !c.value(depth + 1) {
			return false
		}
		if c.i = skipSpace(c.s, c.i); c.s[c.i] == ',' {
			c.i = skipSpace(c.s, c.i+1)
		}
	}
	c.i++
	c.out = append(c.out, open+2)
	return len(c.out) <= c.limit
}

// skip goes to the end of the array or object and counts what it leaves out.
func (c *cutter) skip(open byte) int {
	n := 0
	for c.s[c.i] != open+2 {
		if open == '{' {
			c.i = skipSpace(c.s, skipSpace(c.s, skipString(c.s, c.i))+1)
		}
		c.i = skipSpace(c.s, skipJSON(c.s, c.i))
		if n++; c.s[c.i] == ',' {
			c.i = skipSpace(c.s, c.i+1)
		}
	}
	return n
}

func (c *cutter) str() {
	end := skipString(c.s, c.i)
	body := c.s[c.i+1 : end-1]
	start := c.i
	c.i = end
	if len(body) <= c.maxString {
		c.out = append(c.out, c.s[start:end]...)
		return
	}
	size := len(body)
	if before, ok := originalSize(body); ok {
		size = before
	}
	note := TruncatedMarker + sizeNote(size)
	keep := max(0, c.maxString-len(note))
	// Back to where no escape is cut: one is at most twelve bytes, a pair.
	k := 0
	for k < len(body) {
		n := 1
		if body[k] == '\\' {
			if n = 2; body[k+1] == 'u' {
				if n = 6; k+12 <= len(body) && body[k+6] == '\\' && body[k+7] == 'u' && body[k+2]|0x20 == 'd' && body[k+3] >= '8' {
					n = 12
				}
			}
		} else if _, size := utf8.DecodeRuneInString(body[k:]); size > 1 {
			n = size
		}
		if k+n > keep {
			break
		}
		k += n
	}
	if k+len(note) >= len(body) {
		c.out = append(c.out, c.s[start:end]...)
		return
	}
	c.out = append(append(append(append(c.out, '"'), body[:k]...), note...), '"')
}
