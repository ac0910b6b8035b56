package redact

import (
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// finding is one secret in a text.
type finding struct {
	start, end int
	marker     string
}

// scan is one pass over a text. What it remembers of lines, words, quotes and commands is what keeps the work for any
// text in proportion to its length: a range is looked at once, however many literals in it ask.
type scan struct {
	r      *Redactor
	s      string
	floor  int       // what is before is redacted already
	found  []finding // in the order that they were found in
	v      view      // of the text; s is what it shows
	spent  int       // steps that afford was asked for
	looked int       // bytes looked at again, for tests

	lineFrom, lineTo int // the line last asked for
	wordFrom, wordTo int // the value last asked for
	wordQuery        bool
	closed           closedQuote
	commands         int      // are read up to here
	whole            span     // the string whose words are judged, if no label is in it
	asked            token    // that is judged
	given            []token  // that tables and commands show
	cellsOf          []span   // of a row
	columns          []string // of the table: the classes of labels that are their names, empty for others
	labels           []label
	firstLabel       int       // that may be near
	far              bool      // words that no label is near are judged, too
	known            int       // how many were found before clues were asked
	score            int       // of the token
	noted            []Feature // the clues that it is the sum of, for a trace
	around           []string  // words last asked for
	joint            [12]byte  // what is between a label and a token
}

type span struct{ lo, hi int }

// maxKept bounds the memory for a view that is kept for the next one.
const maxKept = 1 << 20

var scans = sync.Pool{New: func() any { return new(scan) }}

func (c *scan) begin(r *Redactor, s string) {
	// A scan is taken from a pool and keeps its slices: a text without secrets costs no allocation.
	if cap(c.v.text) > maxKept || cap(c.v.hidden) > maxKept/16 {
		c.v = view{}
	}
	c.v.raw = "" // it is not kept
	*c = scan{r: r, s: s, found: c.found[:0], columns: c.columns[:0],
		given: c.given[:0], labels: c.labels[:0], around: c.around[:0], cellsOf: c.cellsOf[:0],
		v: c.v, lineTo: -1, wordFrom: -1}
}

// next returns where, at or after i, three bytes of a literal are that s holds from floor on, and that literal with
// those after it that have these bytes; -1 where there are none.
func (t *table) next(s string, i, floor int) (int, []entry) {
	if len(s)-i < 3 {
		return -1, nil
	}
	// h has five bits of each of the last bytes, and those of earlier ones: to take them off would have each byte wait
	// longer for the one before. Nearly everywhere, the last three are those of no literal.
	h := uint32(s[i]&31)<<5 | uint32(s[i+1]&31)
	rest := s[i+2:]
	for j := 0; j < len(rest); j++ {
		h = h<<5 | uint32(rest[j]&31)
		bucket := t.bucket[h&0x7fff]
		if bucket == 0 {
			continue
		}
		entries := t.at(s, i+j, bucket)
		for k := range entries {
			if e := &entries[k]; e.at(s, floor, i+j-e.offset) {
				return i + j, entries[k:]
			}
		}
	}
	return -1, nil
}

// all finds the secrets by the literals in the text.
func (c *scan) all() {
	for i := 0; ; {
		at, entries := c.r.index.next(c.s, i, c.floor)
		if at < 0 {
			return
		}
		i = at + 1
		// Where a secret was found the scan goes on behind it, so that the labels within a secret find nothing.
		//
		// Of the literals at the same place the longest is asked first: what is of sk-ant- is not of sk-.
		for k := range entries {
			e := &entries[k]
			begin := at - e.offset
			if (k == 0 || e.at(c.s, c.floor, begin)) && c.ask(e, begin) {
				c.floor = c.found[len(c.found)-1].end
				i = c.floor
				break
			}
		}
	}
}

// inBytes reports whether i is amid the bytes of a picture in Base64, in which each short word and key is somewhere:
// g+Mdp+bISb.
func (c *scan) inBytes(i int) bool {
	const around = 128
	lo, hi := max(c.floor, i-around), min(len(c.s), i+around)
	return hi-lo == 2*around && run(c.s[:hi], lo, alnum|plusSlash) == hi
}

// ask has the literal at begin find its secret, and reports whether all up to the end of what was found last is done
// with. Where it is not, what was found is elsewhere, such as in the rows of a table, and there may be more before it.
func (c *scan) ask(e *entry, begin int) bool {
	switch {
	case (e.key != nil || e.phrase != nil) && c.inBytes(begin):
		return false
	case e.key != nil:
		c.named(e, begin)
	case e.phrase != nil:
		c.phrased(e, begin)
	case e.rule == toolRule:
		c.command(begin)
	case e.rule != hiddenRule:
		start, end := e.rule.find(c, begin, len(e.literal))
		// A rule knows a token by its shape, whatever is around it: sk-ant-…, AKIA…, a key in PEM.
		//
		// What a marker of the rule begins is the rest of a value that was longer than the rule looks.
		if end > start && start >= c.floor && !strings.HasPrefix(c.s[start:end], e.rule.marker) &&
			!marked(c.s[start:end]) && (end-start > 1<<10 || !c.inBytes(start)) {
			return c.note(start, end, e.rule.marker)
		}
	}
	return false
}

// note adds a secret to those found.
func (c *scan) note(lo, hi int, marker string) bool {
	c.found = append(c.found, finding{start: lo, end: c.blockEnd(lo, hi), marker: marker})
	return true
}

// blockEnd returns the end of the lines of Base64 of which s[lo:hi] is the first; hi where it is none.
func (c *scan) blockEnd(lo, hi int) int {
	width := hi - lo
	if width < 40 || run(c.s[:hi], lo, base64) < hi || run(c.s[:hi], lo, hexSet) == hi {
		return hi
	}
	for hi < len(c.s) && c.afford(1) {
		next := skip(c.s, skip(c.s, hi, hi+2, "\r\n"), len(c.s), " \t")
		end := run(c.s, next, base64)
		if next == hi || end > next+width || end < len(c.s) && !oneByteOf("\r\n", c.s[end]) || end < next+width &&
			!strings.HasSuffix(c.s[next:end], "=") && (end < next+16 || !random(c.s[next:end], true)) {
			break
		}
		hi = end
	}
	return hi
}

// sort puts what was found in the order of the text, and leaves out what overlaps what begins before it.
func (c *scan) sort() {
	slices.SortStableFunc(c.found, func(a, b finding) int { return a.start - b.start })
	kept := c.found[:0]
	for _, f := range c.found {
		if n := len(kept) - 1; n < 0 || f.start >= kept[n].end {
			kept = append(kept, f)
		}
	}
	c.found = kept
}

// text redacts s as a text, once: by the shapes and the labels in it and, far, what no label is near. In JSON, what
// goes on after a string that it is in ends with that string.
func (r *Redactor) text(s string, isJSON, far bool) string {
	c := scans.Get().(*scan)
	defer scans.Put(c)
	c.begin(r, s)
	// From here on c.s is the view of the text, and all positions are of the view, until replaced leads them back.
	// Escapes would hide names and values, and each rule would have to know them all.
	c.v.normalize(s)
	if len(c.v.hidden) > 0 {
		c.s = unsafe.String(unsafe.SliceData(c.v.text), len(c.v.text))
	}
	c.far = far
	// Logins have no literal to be found by: what is around an @ shows them.
	for lo, hi := range r.logins(c.s) {
		v := c.s[lo:hi]
		if k := c.kindOf(lo, hi, false); k >= aHash && k != aText && (k != aWord || digits(v)) && !blank(v) {
			c.found = append(c.found, finding{start: lo, end: hi, marker: loginMarker})
		} else {
			c.give(lo, hi, loginRule)
		}
	}
	c.all()
	c.byClues()
	if c.sort(); len(c.found) > 0 {
		out := c.replaced(s)
		// What a label names may go on beyond the quote of JSON that it is in, as a header does to the end of its line.
		// Only the result shows it, and that is rare enough to be written twice.
		if isJSON && !jsonscan.Valid(out) {
			out = c.clipped(s)
		}
		s = out
	}
	c.begin(nil, "")
	return s
}

// maxMarker is longer than the marker of any rule.
const maxMarker = 64

// replaced returns the text s with markers for what was found in its view.
func (c *scan) replaced(s string) string {
	for i := range c.found {
		f := &c.found[i]
		f.start, f.end = c.v.origin(f.start, 0), c.v.origin(f.end, 1)
		// What begins within a marker takes the marker with it, and leaves no piece of it.
		near := max(0, f.start-maxMarker)
		if k := strings.LastIndexByte(s[near:f.start], '['); k >= 0 && strings.HasPrefix(s[near+k:], "[redacted:") &&
			strings.IndexByte(s[near+k:f.start], ']') < 0 {
			f.start = near + k
		}
	}
	c.r.trace.edits(c.found)
	return written(s, c.found)
}

// clipped is replaced for JSON that would not be JSON any more: what was found ends with the string that it is in.
func (c *scan) clipped(s string) string {
	for i := range c.found {
		f := &c.found[i]
		for k := f.start; k < f.end; k++ {
			switch s[k] {
			case '\\':
				k++
			case '"':
				f.end = k
			}
		}
	}
	c.found = slices.DeleteFunc(c.found, func(f finding) bool { return f.start >= f.end })
	return written(s, c.found)
}

// written returns s with its edits.
func written(s string, edits []finding) string {
	if len(edits) == 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + len(edits)*maxMarker/2)
	done := 0
	for _, e := range edits {
		out.WriteString(s[done:max(done, e.start)])
		out.WriteString(e.marker)
		done = e.end
	}
	out.WriteString(s[done:])
	return out.String()
}

// line returns the bounds of the line of i, without its end. Most who ask go forward through the text, so the line that
// was asked for last is where the search begins; only who goes back has it begin anew.
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

// maxHead bounds how far before a label its line is looked at.
const maxHead = 200

// head returns where the line of i begins, or the string of JSON that it is in, if that begins in this line.
func (c *scan) head(i int) int {
	from, _ := c.line(i)
	near := max(from, i-maxHead)
	if k := strings.LastIndex(c.s[near:i], `:"`); k >= 0 {
		return near + k + len(`:"`)
	}
	return from
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

// closedQuote is where the string around from ends.
type closedQuote struct {
	from, end, n int
	q            byte
}

// suspect reports whether a label or a shape is in raw, a text with its escapes, that may lead to a secret. It errs on
// the side of finding one: what it finds none in needs no decoding.
func (r *Redactor) suspect(raw string) bool {
	for at, entries := r.index.next(raw, 0, 0); at >= 0; at, entries = r.index.next(raw, at+1, 0) {
		for k := range entries {
			e := &entries[k]
			if begin := at - e.offset; (k == 0 || e.at(raw, 0, begin)) && r.suspectAt(raw, begin, e) {
				return true
			}
		}
	}
	for range r.logins(raw) {
		return true
	}
	return false
}

// suspectAt is suspect for the literal that is at begin.
func (r *Redactor) suspectAt(raw string, begin int, e *entry) bool {
	end := begin + len(e.literal)
	switch {
	// Hints are in many texts, and most of those have no word that may be a secret.
	case e.phrase != nil && e.phrase.class == hint:
		return true
	case e.key != nil:
		lo, hi := keySpan(raw, 0, begin+e.from, e.n)
		return hi > lo && (lo > 0 && oneByteOf("\\%", raw[lo-1]) || r.classify(raw[lo:hi]) != notSecret)
	case e.rule.shape != nil:
		// A shape has its bytes at once after its literal, also where escapes are within it.
		return e.rule.shape.maybe(raw, end)
	case e.literal == "://": // an @ follows, or the end of the text, before the URL can have ended
		login := raw[end:min(len(raw), end+maxURL)]
		if k := strings.IndexByte(login, '@'); k >= 0 {
			login = login[:k]
		} else if len(login) == maxURL {
			return false
		}
		return !strings.ContainsAny(login, " \"<>")
	}
	return true
}

// afford notes n steps of work that no other place pays for, and reports whether a text of this length may have so
// many. A text that is made to be costly, such as a thousand beginnings of a block that never ends, runs out of them,
// and is read less thoroughly from there on, rather than in a time that grows with its square.
func (c *scan) afford(n int) bool {
	c.spent += n
	c.looked += n
	return c.spent <= len(c.s)/2+4096
}
