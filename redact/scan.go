package redact

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// finding is one secret in a text.
type finding struct {
	start, end int
	marker     string
}

// hit is a literal that stood for nothing.
type hit struct {
	at int
	e  *entry
}

// scan is one pass over a text. What it remembers of lines, words, quotes and
// commands is what keeps the work for any text in proportion to its length: a
// range is looked at once, however many literals in it ask.
type scan struct {
	r      *Redactor
	s      string
	floor  int // what is before is redacted already
	found  []finding
	later  []finding // of tables, in order, beyond where the pass is
	hits   []hit
	seen   encoding // of what hides text
	spent  int      // steps that afford was asked for
	looked int      // bytes looked at again, for tests

	lineFrom, lineTo int  // the line last asked for
	key              span // the bytes of keys last asked for
	wordFrom, wordTo int  // the value last asked for
	wordQuery        bool
	quotes           [3]quoteCount
	closed           closedQuote
	commands         int // are read up to here
	tables           int // headers of tables are read up to here
	urlFrom, urlTo   int
	repeated, retry  int // when repeats looked last, and when it does again
	a                assignment
	words, keep      []span
	columns          []column
	levels           []view
	begins           []int
}

type span struct{ lo, hi int }

var scans = sync.Pool{New: func() any { return new(scan) }}

func (c *scan) begin(r *Redactor, s string) {
	*c = scan{r: r, s: s, found: c.found[:0], later: c.later[:0], hits: c.hits[:0],
		words: c.words[:0], keep: c.keep[:0], columns: c.columns[:0], begins: c.begins[:0], levels: c.levels,
		lineFrom: 0, lineTo: -1, key: span{-1, -1}, wordFrom: -1, urlFrom: -1}
}

// next returns where, at or after i, three bytes of a literal are that s holds from floor
// on, and that literal with those after it that have these bytes; -1 where there are none.
func (t *table) next(s string, i, floor int) (int, []entry) {
	if len(s)-i < 3 {
		return -1, nil
	}
	h := uint32(s[i]&31)<<5 | uint32(s[i+1]&31)
	for j := i + 2; j < len(s); j++ {
		// It has bits of earlier bytes, too: to take them off here would have each byte wait longer for the one before.
		h = h<<5 | uint32(s[j]&31)
		if t.bits[h>>6&0x1ff]>>(h&63)&1 == 0 {
			continue
		}
		entries := t.at(s, j-2, h&0x7fff)
		for k := range entries {
			if e := &entries[k]; e.at(s, floor, j-2-e.offset) {
				return j - 2, entries[k:]
			}
		}
	}
	return -1, nil
}

// candidate returns where the first literal of a rule or key is, -1 if there is none.
func (r *Redactor) candidate(s string) int {
	at, _ := r.index.next(s, 0, 0)
	return at
}

// all finds the secrets of the text from a literal on.
func (c *scan) all(i int) {
	for {
		at, entries := c.r.index.next(c.s, i, c.floor)
		if at < 0 {
			break
		}
		i = at + 1
		if end := c.verify(entries, at); end > 0 {
			i = end
		} else if end := c.repeats(); end > at+2 {
			i = end
		}
	}
	for c.fromLater(len(c.s)) > 0 {
	}
}

// verify asks the rules whose literal may be around at, and returns where to go on
// when there is a secret.
func (c *scan) verify(entries []entry, at int) int {
	if len(c.later) > 0 && c.later[0].start <= at {
		if end := c.fromLater(at); end > 0 {
			return end
		}
	}
	for i := range entries {
		e := &entries[i]
		begin := at - e.offset
		if !e.at(c.s, c.floor, begin) {
			continue
		}
		if f := c.ask(e, begin); f.end > f.start {
			c.found = append(c.found, f)
			c.floor = f.end
			return f.end
		}
	}
	return 0
}

// ask runs the rule of the literal at begin, and notes the literal where nothing is found.
func (c *scan) ask(e *entry, begin int) finding {
	switch {
	case e.rule == keyRule:
		if f := c.assign(e, begin); f.end > f.start {
			return f
		}
	case e.rule.hides != 0:
		c.seen |= e.rule.hides
	default:
		start, end := e.rule.find(c, begin, len(e.literal))
		// What a marker of the rule begins is the rest of a value that was longer than the rule looks.
		if end > start && start >= c.floor && !strings.HasPrefix(c.s[start:end], e.rule.marker) &&
			!marked(c.s[start:end]) {
			return finding{start, end, e.rule.marker}
		}
	}
	c.hits = append(c.hits, hit{begin, e})
	return finding{}
}

// Surroundings of a literal, before and after it, that decide what it means, but
// for the quotes before it in its line.
const (
	surroundBefore = 512
	surroundAfter  = 1 << 10
)

// repeats returns where to go on when the last literal begins what repeats what came
// before it, where literals stood for nothing: they do so again. It is what keeps text
// that repeats a few words cheap, since all that it holds is hits.
func (c *scan) repeats() (end int) {
	n := len(c.hits)
	if n == c.repeated || n < 2 {
		return 0
	}
	c.repeated = n
	last := c.hits[n-1]
	if last.at < c.retry || len(c.s)-last.at < 2*surroundAfter || len(c.later) > 0 {
		return 0
	}
	for k := n - 2; k >= max(0, n-12); k-- {
		before := c.hits[k]
		if before.e != last.e {
			continue
		}
		at, period := before.at, last.at-before.at
		if at-surroundBefore < c.floor || period > surroundBefore {
			return 0
		}
		if c.s[at-surroundBefore:at+surroundAfter] != c.s[last.at-surroundBefore:last.at+surroundAfter] {
			continue
		}
		if !evenQuotes(c.s[at:last.at]) {
			continue
		}
		// All up to where the two go apart is the same once more, whatever its length.
		size := surroundAfter
		for step := surroundAfter; step >= 32; {
			if end := last.at + size + step; end <= len(c.s) && c.s[at+size:at+size+step] == c.s[last.at+size:end] {
				size += step
				step = min(2*step, 1<<16)
				continue
			}
			step /= 2
		}
		c.looked += size / 16
		return last.at + size - surroundAfter
	}
	c.retry = last.at + 32
	return 0
}

func evenQuotes(s string) bool {
	return strings.Count(s, `"`)%2 == 0 && strings.Count(s, "'")%2 == 0 && strings.Count(s, "`")%2 == 0
}

// addLater notes a secret that comes after the text that it was found by.
func (c *scan) addLater(f finding) {
	i := len(c.later)
	for i > 0 && c.later[i-1].start > f.start {
		i--
	}
	if i > 0 && c.later[i-1].end > f.start {
		return
	}
	c.later = slices.Insert(c.later, i, f)
}

// fromLater takes the next secret of a table that begins at or before at.
func (c *scan) fromLater(at int) int {
	for len(c.later) > 0 && c.later[0].start <= at {
		f := c.later[0]
		c.later = c.later[1:]
		if f.start = max(f.start, c.floor); f.start < f.end {
			c.found = append(c.found, f)
			c.floor = f.end
			return f.end
		}
	}
	return 0
}

// text redacts s as plain text, once.
func (r *Redactor) text(s string) string { return r.textFrom(s, r.candidate(s)) }

// textFrom is text where the first literal is at from, if at all.
func (r *Redactor) textFrom(s string, from int) string {
	if from < 0 {
		return s
	}
	c := scans.Get().(*scan)
	defer scans.Put(c)
	c.begin(r, s)
	c.all(from)
	if strings.Contains(s, `\n`) {
		c.seen |= backslash // lines that are escaped, as in JSON that breaks off
	}
	if c.seen != 0 {
		c.hidden(c.seen)
	}
	if len(c.found) > 0 {
		s = c.replaced()
	}
	c.begin(nil, "")
	return s
}

// maxMarker is longer than the marker of any rule.
const maxMarker = 64

// replaced returns the text with markers for what was found.
func (c *scan) replaced() string {
	size := len(c.s)
	for _, f := range c.found {
		size += len(f.marker) - (f.end - f.start)
	}
	out, done := make([]byte, 0, size), 0
	for _, f := range c.found {
		// What begins within a marker takes the marker with it, and leaves no piece of it.
		near := max(done, f.start-maxMarker)
		if i := strings.LastIndexByte(c.s[near:f.start], '['); i >= 0 && strings.HasPrefix(c.s[near+i:], "[redacted:") &&
			strings.IndexByte(c.s[near+i:f.start], ']') < 0 {
			f.start = near + i
		}
		out = append(append(out, c.s[done:f.start]...), f.marker...)
		done = f.end
	}
	return string(append(out, c.s[done:]...))
}

// line returns the bounds of the line of i, without its end.
func (c *scan) line(i int) (from, to int) {
	if i < c.lineFrom {
		c.lineFrom, c.lineTo = 0, -1
	}
	if c.lineTo < 0 {
		c.lineTo = c.eol(0)
	}
	for i > c.lineTo {
		c.looked++
		c.lineFrom = c.lineTo + 1
		c.lineTo = c.eol(c.lineFrom)
	}
	return c.lineFrom, c.lineTo
}

// eol returns the end of the line that i is in, before its line feed.
func (c *scan) eol(i int) int {
	n := strings.IndexByte(c.s[i:], '\n')
	if n < 0 {
		n = len(c.s) - i
	}
	c.looked += n / 16 // as a vector instruction does
	return i + n
}

// quoteCount is how many quotes of a kind a line has before pos.
type quoteCount struct{ line, pos, n int }

// openQuotes returns how many quotes of kind q are before i in its line.
func (c *scan) openQuotes(i int, q byte) int {
	from, _ := c.line(i)
	m := &c.quotes[q&3%3] // " is 34, ' is 39, ` is 96
	if m.line != from || m.pos > i || m.pos < from {
		*m = quoteCount{line: from, pos: from}
	}
	m.n += strings.Count(c.s[m.pos:i], string(rune(q)))
	c.looked += (i - m.pos) / 16 // as a vector instruction does
	m.pos = i
	return m.n
}

// suspect reports whether raw, a piece of JSON with its escapes, may hold a secret.
// It errs on the side of true: what it is false for needs no decoding.
func (r *Redactor) suspect(raw string) bool {
	x := &r.index.every2
	b := unsafe.Slice(unsafe.StringData(raw), len(raw))
	i := 0
	// Eight bytes hold three times three bytes at even places. Five bits of two bytes
	// are brought together in each 16 bits, and then those of the third.
	const five = 0x001f001f001f001f
	for ; i+8 <= len(b); i += 6 {
		v := binary.LittleEndian.Uint64(b[i:])
		pairs := v&five<<5 | v>>8&five
		all := pairs<<5 | pairs>>21&five
		h0, h1, h2 := all&0x7fff, all>>16&0x7fff, all>>32&0x7fff
		b0, b1, b2 := x.bits[h0>>6]>>(h0&63)&1, x.bits[h1>>6]>>(h1&63)&1, x.bits[h2>>6]>>(h2&63)&1
		if b0|b1|b2 == 0 {
			continue
		}
		if b0 != 0 && r.suspectAt(raw, i, x.at(raw, i, uint32(h0))) ||
			b1 != 0 && r.suspectAt(raw, i+2, x.at(raw, i+2, uint32(h1))) ||
			b2 != 0 && r.suspectAt(raw, i+4, x.at(raw, i+4, uint32(h2))) {
			return true
		}
	}
	for ; i+3 <= len(raw); i += 2 {
		if h := trigram(raw[i:]); x.bits[h>>6]&(1<<(h&63)) != 0 && r.suspectAt(raw, i, x.at(raw, i, h)) {
			return true
		}
	}
	return false
}

// suspectAt is suspect for the literals that may be around the three bytes at an even
// place.
func (r *Redactor) suspectAt(raw string, at int, entries []entry) bool {
	for j := range entries {
		e := &entries[j]
		begin := at - e.offset
		if !e.at(raw, 0, begin) {
			continue
		}
		if e.rule == keyRule {
			if lo, hi := keySpan(raw, 0, begin+e.from, e.n); hi > lo {
				if _, found := r.classifyAt(raw, lo, hi, begin+e.from, e); found != notSecret {
					return true
				}
			}
		} else if e.rule.maybe == nil || e.rule.maybe(raw, begin, len(e.literal)) {
			return true
		}
	}
	return false
}
