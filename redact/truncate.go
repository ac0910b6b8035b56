package redact

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Truncate cuts s to the configured limit, marker included. It keeps the head, cuts
// between runes, and states the original size; what it cut before keeps the size it had
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
	if end := skipJSON(s, jsonscan.Space(s, 0)); end < 0 || jsonscan.Space(s, end) != len(s) {
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
	out         []byte
	limit       int
	depth       int // 0: none
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
func (c *cutter) cut() ([]byte, bool) {
	c.out = c.out[:0]
	end := c.value(jsonscan.Space(c.s, 0), 0)
	return c.out, end >= 0
}

// value writes the value at i and returns its end, below 0 where the output outgrew the limit.
func (c *cutter) value(i, depth int) (end int) {
	b := c.s[i]
	switch nests := b == '{' || b == '['; {
	case nests && (c.depth == 0 || depth < c.depth):
		end = c.elements(i, depth)
	case b == '"':
		end = jsonscan.String(c.s, i)
		c.str(c.s[i:end])
	default:
		end = skipJSON(c.s, i)
		if nests && end-i > 2 {
			c.out = append(append(append(c.out, '"'), TruncatedMarker+sizeNote(end-i)...), '"')
		} else {
			c.out = append(c.out, c.s[i:end]...)
		}
	}
	if len(c.out) > c.limit {
		return -1
	}
	return end
}

func (c *cutter) elements(i, depth int) (end int) {
	c.out = append(c.out, c.s[i])
	n := 0
	end = jsonscan.Container(c.s, i, func(key jsonscan.Key, at int) int {
		if n++; n > c.maxElements {
			return skipJSON(c.s, at)
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
		c.out = append(c.out, `,"`+TruncatedMarker...)
		if c.s[i] == '{' {
			c.out = append(c.out, `":"`...)
		}
		c.out = append(append(strconv.AppendInt(append(c.out, '['), int64(rest), 10), " more]"...), '"')
	}
	c.out = append(c.out, c.s[i]+2)
	return end
}

// str writes a string, shorter where it is too long.
func (c *cutter) str(quoted string) {
	body := quoted[1 : len(quoted)-1]
	if len(body) <= c.maxString {
		c.out = append(c.out, quoted...)
		return
	}
	size := len(body)
	if before, ok := originalSize(body); ok {
		size = before
	}
	note := TruncatedMarker + sizeNote(size)
	keep := max(0, c.maxString-len(note))
	// Back to where no rune, no escape and no pair of surrogates is cut.
	k := boundary(body, min(len(body), keep))
	for k > 0 && (jsonscan.String(quoted[:k+1]+`"`, 0) != k+2 || k >= 6 &&
		strings.HasPrefix(strings.ToLower(body[k-6:k]), `\ud`) && oneByteOf("89abAB", body[k-3])) {
		k--
	}
	if k+len(note) >= len(body) {
		c.out = append(c.out, quoted...)
		return
	}
	c.out = append(append(append(append(c.out, '"'), body[:k]...), note...), '"')
}

// Fit returns the length to which texts must be cut, the longest first, so that all of them together are shorter by
// excess bytes. It is never less than [MinLimit], which may be too much. With no excess it returns the greatest length.
func Fit(lengths []int, excess int) (limit int) {
	longest := slices.Max(append([]int{MinLimit}, lengths...))
	return longest - sort.Search(longest-MinLimit, func(less int) bool {
		saved := 0
		for _, n := range lengths {
			saved += max(0, n-(longest-less))
		}
		return saved >= excess
	})
}
