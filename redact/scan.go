package redact

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// charset is a set of kinds of bytes.
type charset uint16

const (
	digit charset = 1 << iota
	lower
	upper
	hexLower // a-f; digits are digit
	hexUpper
	under
	dash
	dot
	plusSlash
	equals
	tilde
	space // also line ends

	letter = lower | upper
	alnum  = digit | letter
	word   = alnum | under
	slug   = word | dash
	hexSet = digit | hexLower | hexUpper
	base64 = alnum | plusSlash | equals
)

// class has the sets that each byte is in.
var class = func() (t [256]charset) {
	for c := range 256 {
		switch b := byte(c); {
		case b >= '0' && b <= '9':
			t[c] = digit
		case b >= 'a' && b <= 'z':
			t[c] = lower
			if b <= 'f' {
				t[c] |= hexLower
			}
		case b >= 'A' && b <= 'Z':
			t[c] = upper
			if b <= 'F' {
				t[c] |= hexUpper
			}
		case b == '_':
			t[c] = under
		case b == '-':
			t[c] = dash
		case b == '.':
			t[c] = dot
		case b == '+' || b == '/':
			t[c] = plusSlash
		case b == '=':
			t[c] = equals
		case b == '~':
			t[c] = tilde
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			t[c] = space
		}
	}
	return t
}()

// run returns the end of the bytes of set that begin at i. It stops before a marker,
// whose bytes may be of the set.
func run(s string, i int, set charset) int {
	start := i
	for i < len(s) && class[s[i]]&set != 0 {
		i++
	}
	if set&under != 0 && i-start >= len(Marker) {
		if m := strings.Index(s[start:i], "__"); m >= 0 {
			for _, marker := range [...]string{TruncatedMarker, Marker} {
				if m := strings.Index(s[start:i], marker); m >= 0 {
					i = start + m
				}
			}
		}
	}
	return i
}

// until returns where the first byte of stop is in s at or after i, or the end of the
// limit bytes that are looked at.
func until(s string, i, limit int, stop string) int {
	end := min(len(s), i+limit)
	if k := strings.IndexAny(s[i:end], stop); k >= 0 {
		return i + k
	}
	return end
}

// since returns where what ends at i begins, after the last byte of stop at or after floor.
func since(s string, i, floor int, stop string) int {
	return floor + strings.LastIndexAny(s[floor:i], stop) + 1
}

const (
	blanks    = " \t\r\n"
	wordStops = blanks + "\"'`"
)

// oneByteOf is strings.IndexByte(chars, c) >= 0, inlined: chars are few.
func oneByteOf(chars string, c byte) bool {
	for i := range len(chars) {
		if chars[i] == c {
			return true
		}
	}
	return false
}

// runBack returns where the bytes of set begin that end at i, at or after floor.
func runBack(s string, i, floor int, set charset) int {
	for i > floor && class[s[i-1]]&set != 0 {
		i--
	}
	return i
}

// skip returns the end of the bytes of chars that begin at i, at the latest at limit.
func skip(s string, i, limit int, chars string) int {
	for i < len(s) && i < limit && oneByteOf(chars, s[i]) {
		i++
	}
	return i
}

// skipBack returns where the bytes of chars begin that end at i, at or after floor.
func skipBack(s string, i, floor int, chars string) int {
	for i > floor && oneByteOf(chars, s[i-1]) {
		i--
	}
	return i
}

// index finds the literals of rules and keys in one pass: it looks up every three
// neighbouring bytes, five bits of each, which makes letters equal whatever their
// case, in a bitmap that stays in the first-level cache. Only where a bit is set
// does it compare literals and ask the rule.
//
// Whether JSON may hold a secret at all is asked far more often than where. Then every
// other three bytes are enough, for a literal is entered twice, by three bytes at an
// even and at an odd offset.
type index struct {
	table        // every three bytes
	every2 table // those at even places only
}

type table struct {
	bits    [1 << 15 / 64]uint64
	bucket  [1 << 15]uint16 // into buckets, where the bit is set
	buckets []bucket
}

// bucket has the literals that hold the same three bytes. Few of them are there when the
// bytes are, so the bytes before and after are asked first, five bits of each.
type bucket struct {
	before, after uint32
	entries       []entry
}

func (t *table) add(h uint32, e entry) {
	if t.bits[h>>6]&(1<<(h&63)) == 0 {
		t.bucket[h] = uint16(len(t.buckets))
		t.buckets = append(t.buckets, bucket{})
		t.bits[h>>6] |= 1 << (h & 63)
	}
	b := &t.buckets[t.bucket[h]]
	b.entries = append(b.entries, e)
	near := func(i int) uint32 {
		if i < 0 || i >= len(e.literal) {
			return ^uint32(0)
		}
		return 1 << (e.literal[i] & 31)
	}
	b.before |= near(e.offset - 1)
	b.after |= near(e.offset + 3)
}

// at returns the literals that s may hold around its three bytes at i, of hash h, whose bit
// is set.
func (t *table) at(s string, i int, h uint32) []entry {
	b := &t.buckets[t.bucket[h]]
	if i > 0 && b.before>>(s[i-1]&31)&1 == 0 || i+3 < len(s) && b.after>>(s[i+3]&31)&1 == 0 {
		return nil
	}
	return b.entries
}

// addCheaper enters two bytes behind any as before, or two bytes in front of any as
// after, by how often text has what is not entered yet.
func (t *table) addCheaper(front, back string, before, after entry) {
	behind := func(c byte) uint32 { return trigram(string(rune(c)) + front) }
	ahead := func(c byte) uint32 { return trigram(back + string(rune(c))) }
	cost := func(at func(byte) uint32, score func(byte) int) (sum int) {
		for c := range byte(32) {
			if h := at(c); t.bits[h>>6]&(1<<(h&63)) == 0 {
				sum += score(c)
			}
		}
		return sum
	}
	at, e := ahead, after
	if cost(behind, func(c byte) int { return frequency[c] * follows(c, front[0]) * follows(front[0], front[1]) }) <
		cost(ahead, func(c byte) int { return frequency[back[0]&31] * follows(back[0], back[1]) * follows(back[1], c) }) {
		at, e = behind, before
	}
	for c := range byte(32) {
		t.add(at(c), e)
	}
}

type entry struct {
	rule    *rule
	literal string
	offset  int // of the three bytes within literal
	fold    bool
	key     *keyName // of the rule of keys: whose name is literal[from:from+n]
	from, n int
}

// escapeRule is the rule of escapes in JSON that need decoding before anything is found.
var escapeRule = &rule{where: open}

// keyRule is the rule of keys in text.
var keyRule = &rule{where: open}

func newIndex(active []*rule, keys []keyName) *index {
	x := &index{}
	add := func(e entry) {
		e.offset = rarest(e.literal, 0, 1)
		x.add(trigram(e.literal[e.offset:]), e)
		e.offset = rarest(e.literal, 0, 2)
		x.every2.add(trigram(e.literal[e.offset:]), e)
		if len(e.literal) > 3 {
			e.offset = rarest(e.literal, 1, 2)
			x.every2.add(trigram(e.literal[e.offset:]), e)
			return
		}
		// Two bytes and any, after or before them, whichever makes fewer places look
		// likely: a secret goes on, and what begins the text is at an even place.
		before, after := e, e
		before.offset, after.offset = -1, 1
		x.every2.addCheaper(e.literal[:2], e.literal[1:], before, after)
	}
	// Escapes that may hide a literal.
	ascii := entry{rule: escapeRule, literal: `\u00`}
	x.every2.add(trigram(ascii.literal), ascii)
	ascii.offset = 1
	x.every2.add(trigram(ascii.literal[1:]), ascii)
	slash := entry{rule: escapeRule, literal: `\/`}
	for c := range byte(32) {
		slash.offset = 0
		x.every2.add(trigram(slash.literal+string(rune(c))), slash)
		slash.offset = -1
		x.every2.add(trigram(string(rune(c))+slash.literal), slash)
	}
	for i := range keys {
		for _, l := range keys[i].literals() {
			add(entry{rule: keyRule, literal: l.text, fold: !l.exact, key: &keys[i], from: l.from, n: l.n})
		}
	}
	if len(keys)+len(active) > 0 {
		for _, e := range encodings {
			for _, literal := range e.literals {
				if e.hides == terminal { // JSON has these as escapes
					x.add(trigram(literal), entry{rule: e, literal: literal})
					continue
				}
				add(entry{rule: e, literal: literal})
			}
		}
	}
	for _, r := range active {
		for _, literal := range r.literals {
			if r.where&fold != 0 {
				literal = strings.ToLower(literal)
			}
			add(entry{rule: r, literal: literal, fold: r.where&fold != 0})
		}
	}
	return x
}

func trigram(s string) uint32 {
	return uint32(s[0]&31)<<10 | uint32(s[1]&31)<<5 | uint32(s[2]&31)
}

// frequency is roughly how often a byte of each five-bit class is met in agents'
// text, per thousand; class 0 is the space and class 13 the hyphen besides m.
var frequency = [32]int{150, 82, 15, 28, 43, 127, 22, 20, 50, 70, 3, 8, 40, 40, 67, 75, 30, 6, 60, 63, 91, 28, 12, 20,
	8, 20, 20, 15, 15, 15, 10, 15}

// rarest returns where the rarest three neighbouring bytes of literal begin, of those
// at from and every step after it.
func rarest(literal string, from, step int) int {
	best, at := 1<<62, from
	for i := from; i+3 <= len(literal); i += step {
		score := frequency[literal[i]&31] * follows(literal[i], literal[i+1]) * follows(literal[i+1], literal[i+2])
		if literal[i] == literal[i+1] && literal[i+1] == literal[i+2] {
			score *= 50 // rules drawn with one character
		}
		if score < best {
			best, at = score, i
		}
	}
	return at
}

// follows is roughly how often a byte of the five-bit class of b follows one of that of a
// in agents' text, per thousand.
func follows(a, b byte) int {
	x, y := a&31-1, b&31-1
	if x < 26 && y < 26 {
		return [...]int{2, 4, 6, 10, 18, 31, 54, 94, 164, 286}[pairs[x][y]-'0']
	}
	return frequency[b&31]
}

// at reports whether the literal is in s at begin, on its own.
func (e *entry) at(s string, from, begin int) bool {
	if begin < from || begin+len(e.literal) > len(s) {
		return false
	}
	got := s[begin : begin+len(e.literal)]
	if e.fold {
		if !equalFold(got, e.literal) {
			return false
		}
	} else if got != e.literal {
		return false
	}
	if begin == 0 || e.rule.where&open != 0 {
		return true
	}
	if bounded(s, begin) {
		return len(e.literal) > 4 || s[begin-1] != '-' // a short prefix also turns up within Base64
	}
	// token_ghp_…, or glued to a word where the prefix is unlike any.
	return e.rule.where&alone == 0 && (s[begin-1] == '_' || len(e.literal) >= 4 &&
		strings.IndexByte("_-.", e.literal[len(e.literal)-1]) >= 0)
}

// bounded reports whether no word runs into position i. The letter of an escape, as
// in "\nsk-…", is no word.
func bounded(s string, i int) bool {
	if i == 0 || class[s[i-1]]&word == 0 {
		return true
	}
	if i >= 2 && s[i-2] == '\\' {
		switch s[i-1] {
		case 'n', 't', 'r', 'b', 'f':
			return true
		}
	}
	// \u003d and its like, and a byte encoded for a URL.
	if i >= 6 && s[i-6] == '\\' && s[i-5] == 'u' && run(s, i-4, hexSet) >= i {
		return true
	}
	return i >= 3 && s[i-3] == '%' && class[s[i-2]]&hexSet != 0 && class[s[i-1]]&hexSet != 0
}

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
// stretch is looked at once, however many literals in it ask.
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
	*c = scan{r: r, s: s, found: c.found[:0], later: c.later[:0], hits: c.hits[:0], words: c.words[:0], keep: c.keep[:0],
		columns: c.columns[:0], begins: c.begins[:0], levels: c.levels,
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
		h = (h<<5 | uint32(s[j]&31)) & 0x7fff
		if t.bits[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		entries := t.at(s, j-2, h)
		for k := range entries {
			if e := &entries[k]; e.at(s, floor, j-2-e.offset) {
				return j - 2, entries[k:]
			}
		}
	}
	return -1, nil
}

// candidate returns where a literal of a rule or key stands.
func (r *Redactor) candidate(s string, i int) int {
	at, _ := r.index.next(s, i, 0)
	return at
}

// all finds the secrets of the text from where a literal stands.
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
		if end > start && start >= c.floor && c.s[start:end] != e.rule.marker && !marked(c.s[start:end]) {
			return finding{start, end, e.rule.marker}
		}
	}
	c.hits = append(c.hits, hit{begin, e})
	return finding{}
}

// Surroundings of a literal, before and after it, that decide what it stands for, but
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

// addLater notes a secret that stands beyond what announced it.
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

// text redacts s as plain text until nothing is left to redact: taking one secret out
// can lay another bare. The first round looks everywhere, the others only again at
// what stood near a secret. Each leaves fewer secrets, so it ends; the bound is for the
// reader's peace of mind.
func (r *Redactor) text(s string) string { return r.textFrom(s, r.candidate(s, 0)) }

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
	hidden := c.seen
	for round := 0; ; round++ {
		plain := len(c.found)
		if hidden != 0 {
			c.hidden(hidden)
			if round > 0 && len(c.found) == plain {
				hidden = 0
			}
		}
		if len(c.found) == 0 || round == 8 {
			break
		}
		c.again(c.replaced())
	}
	s = c.s
	c.begin(nil, "")
	return s
}

// replaced returns the text with markers for what was found. The literals that stood
// for nothing move along; those that went with a secret are dropped, and those far from
// any.
func (c *scan) replaced() string {
	const near = 1 << 10
	size := len(c.s)
	for _, f := range c.found {
		size += len(f.marker) - (f.end - f.start)
	}
	out := make([]byte, 0, size)
	kept, done, h := c.hits[:0], 0, 0
	for i, f := range c.found {
		out = append(append(out, c.s[done:f.start]...), f.marker...)
		moved := len(out) - f.end
		done = f.end
		limit := f.end + near
		if i+1 < len(c.found) {
			limit = c.found[i+1].start
		}
		for ; h < len(c.hits) && c.hits[h].at < f.end; h++ {
			if p := c.hits[h]; p.at < f.start && p.at > f.start-near {
				kept = append(kept, hit{p.at + moved + (f.end - f.start) - len(f.marker), p.e})
			}
		}
		for ; h < len(c.hits) && c.hits[h].at < min(limit, f.end+near); h++ {
			kept = append(kept, hit{c.hits[h].at + moved, c.hits[h].e})
		}
	}
	c.hits = kept
	return string(append(out, c.s[done:]...))
}

// again asks the rules of the literals that stood near a secret, now that it is gone.
func (c *scan) again(s string) {
	hits := c.hits
	c.begin(c.r, s)
	c.hits = nil
	for _, h := range hits {
		c.fromLater(h.at)
		if h.at >= c.floor && h.e.at(s, c.floor, h.at) {
			if f := c.ask(h.e, h.at); f.end > f.start {
				c.found = append(c.found, f)
				c.floor = f.end
			}
		}
	}
	for c.fromLater(len(s)) > 0 {
	}
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
