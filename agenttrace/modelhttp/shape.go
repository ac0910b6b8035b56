package modelhttp

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// shape is the form of the events by which a block of an answer grows. Hundreds in a row differ only in the text, and
// in some values that are not read, such as a sequence number or padding:
//
//	data: {"id":"c","choices":[{"index":0,"delta":{"content":"It is"}}],"obfuscation":"xK2"}
//
// Once such an event was decoded, those that follow are only compared with it: what is compared are hashes. An event
// is one of those if all that it did was to add one of its texts to a block that stays open.
//
// A chunk that arrives alone finds all of this out of the processor's caches. So of a chunk that begins and ends like
// such an event only what is between is copied, until there are many, until another one comes, or for flushInterval;
// and so is the text.
type shape struct {
	// ready reports that the next bytes of the stream begin an event, and that some event is known.
	ready bool
	form
	// text is what the block grows by.
	text []byte
	// max is the size of an event that is too large.
	max int

	a *answer
	// settler takes the usage so far from an event, if events have one.
	settler settler
	// s has read the event that is being decoded, if noted is set.
	s     scanner
	noted bool
	// event is the event that was decoded last, if a block grew by it and nothing else changed, and values are those
	// of its values that may differ in the next one; spare has those of the event before.
	event         []byte
	values, spare []value
	// data are the bytes of the last event, if it has counts that are not read yet; unescaped has a text that had escapes.
	data, unescaped []byte
	// buffers has the text, the event and the values; nil of what is no stream, or has ended.
	buffers *buffers
}

// buffers has what a stream grows by, and room for events of usual size. Streams that have ended leave theirs to
// others.
type buffers struct {
	text   [2 * maxPending]byte
	event  [maxPart / 2]byte
	values [3][maxValues]value
	// line and data are those of [sse], unescaped is that of a scanner. They have grown to the size of long events.
	line, data, unescaped []byte
}

// maxShared is the size above which what has grown is not left to other streams.
const maxShared = 64 << 10

func shared(b []byte) []byte {
	if cap(b) > maxShared {
		return nil
	}
	return b[:0]
}

var sharedBuffers = sync.Pool{New: func() any { return new(buffers) }}

// acquire takes buffers for a stream, until release.
func (h *shape) acquire() *buffers {
	b := sharedBuffers.Get().(*buffers)
	h.buffers = b
	h.text, h.event, h.s.buf = b.text[:0], b.event[:0], b.unescaped
	h.s.values, h.values, h.spare = b.values[0][:0], b.values[1][:0], b.values[2][:0]
	return b
}

// form has what the events of a shape have in common.
type form struct {
	// head and tail are the number of bytes before the first field and after the last one, and headSum and tailSum
	// hashes of them. sum is one of all that is between the fields.
	head, tail            int32
	headSum, tailSum, sum uint64

	block  *block // that grows; nil if no event is known
	n      int
	fields [maxFields]field
	// counts reports that the last event has what replaces that of those before. before and after are what such an
	// event has around its data.
	counts        bool
	before, after int
}

// field is a value in which the events of a shape differ. gap is the number of bytes between the one before and it.
type field struct {
	gap  int32
	kind valueKind
}

// settler is a decoder of events with the usage so far, which replaces that of the events before.
type settler interface{ settle(data []byte) }

// value is where an event has a value.
type value struct {
	start, end int
	kind       valueKind
	varies     bool
	text       []byte // if the kind is readText
}

type valueKind uint8

const (
	readText valueKind = iota
	grownText
	anyText
	anyNumber
	anyCount // as scanner.int reads it, of a usage
)

const (
	// maxFields bounds the values in which the events of a shape differ, maxValues those that may.
	maxFields, maxValues = 8, 32
	// maxPending is how much text is kept, maxUnparsed how much of a stream.
	maxPending, maxUnparsed = 2 << 10, 4 << 10
)

// unmarshal is [unmarshal] that notes where an event has its values; what is decoded of it again has none.
func (h *shape) unmarshal(data []byte, into any) error {
	if h.noted {
		return unmarshal(data, into)
	}
	h.noted, h.s.noting = true, true
	return h.s.unmarshal(data, into)
}

// decoding is called before an event is decoded, decoded afterwards. data is a part of event, unless that has it in
// several lines.
func (h *shape) decoding() {
	h.end()
	h.block, h.noted = nil, false
	h.a.effects, h.a.grew = 0, nil
}

func (h *shape) decoded(event, data []byte) {
	if h == nil || !h.noted || h.a.effects != 1 || h.a.grew == nil || !h.a.grew.open || len(event) > h.max {
		return
	}
	before := bytes.LastIndex(event, data)
	values, counts, ok := h.varying()
	if before < 0 || !ok {
		return
	}
	for i := range values {
		v := &values[i]
		v.start, v.end = v.start+before, v.end+before
		if i < len(h.values) && len(h.values) == len(values) {
			old := &h.values[i]
			v.varies = v.varies || old.varies || !bytes.Equal(h.event[old.start:old.end], event[v.start:v.end])
		}
	}
	h.spare, h.values = h.values, values
	h.event = append(h.event[:0], event...)
	h.form = form{counts: counts, before: before, after: len(event) - before - len(data)}
	at := 0
	for _, v := range values {
		if !v.varies {
			continue
		}
		switch h.n {
		case 0:
			at = v.start
			h.head, h.headSum = int32(at), hashOf(event[:at])
		case maxFields:
			return
		default:
			h.sum = join(h.sum, event[at:v.start])
		}
		h.fields[h.n] = field{int32(v.start - at), v.kind}
		h.n++
		at = v.end
	}
	h.tail, h.tailSum = int32(len(event)-at), hashOf(event[at:])
	h.block = h.a.grew
}

// varying returns the values in which the next event may differ: what is not read, counts, and the one text that the
// answer grew by. It reports false if the text cannot be identified.
func (h *shape) varying() (values []value, counts, ok bool) {
	values = h.spare[:0]
	for _, v := range h.s.values {
		if v.kind == readText {
			if !bytes.Equal(v.text, h.a.growth) {
				continue
			}
			if ok {
				return nil, false, false // two texts are the same
			}
			v.kind, v.varies, ok = grownText, true, true
		}
		counts = counts || v.kind == anyCount
		v.text = nil
		values = append(values, v)
	}
	return values, counts, ok && len(values) <= maxValues
}

// resembles reports whether p begins and ends like an event of the shape. What is none may be taken for one, if it
// differs between. Nothing waits for that: an answer ends with its stream, or with an event that is another one before
// its first field.
func (h *shape) resembles(p []byte) bool {
	head, tail := int(h.head), len(p)-int(h.tail)
	return h.ready && head <= tail && len(p) <= maxPart && hashOf(p[:head]) == h.headSum && hashOf(p[tail:]) == h.tailSum
}

// keep copies what p, which resembles an event of the shape, has between its beginning and its end, after its size. It
// returns how much that is.
func (h *shape) keep(into, p []byte) int {
	p = p[h.head : len(p)-int(h.tail)]
	binary.LittleEndian.PutUint16(into, uint16(len(p)))
	return 2 + copy(into[2:], p)
}

// takeKept takes the events that were kept, and returns those from the first one on that is not of the shape.
func (h *shape) takeKept(kept []byte) (others []byte) {
	var last []byte
	for len(kept) > 0 {
		p, rest := nextKept(kept)
		text, size := h.between(p)
		if size == 0 || size < len(p) || int(h.head)+size+int(h.tail) > h.max {
			break
		}
		h.text = append(h.text, text...)
		last, kept = p, rest
	}
	if h.counts && last != nil {
		h.data = h.whole(h.data[:0], last)
		h.taken(h.data)
	}
	for len(kept) > 0 {
		p, rest := nextKept(kept)
		others, kept = h.whole(others, p), rest
	}
	return others
}

// nextKept returns what keep has copied of the next event, and what follows that.
func nextKept(kept []byte) (p, rest []byte) {
	end := 2 + int(binary.LittleEndian.Uint16(kept))
	return kept[2:end], kept[end:]
}

// whole appends the event of the shape that has p between its beginning and its end.
func (h *shape) whole(into, p []byte) []byte {
	into = append(append(into, h.event[:h.head]...), p...)
	return append(into, h.event[len(h.event)-int(h.tail):]...)
}

func hashOf(p []byte) uint64 { return maphash.Bytes(seed, p) }

func join(sum uint64, p []byte) uint64 { return sum*31 + hashOf(p) }

// take takes as many events of the shape as p begins with, and returns their size.
func (h *shape) take(p []byte) (n int) {
	last := 0
	for n < len(p) {
		text, size := h.match(p[n:])
		if size == 0 {
			break
		}
		h.text = append(h.text, text...)
		last, n = n, n+size
	}
	h.taken(p[last:n])
	return n
}

// takeAll takes p if it is one event of the shape.
func (h *shape) takeAll(p []byte) bool {
	if h == nil {
		return false
	}
	text, size := h.match(p)
	if size == 0 || size < len(p) {
		return false
	}
	h.text = append(h.text, text...)
	h.taken(p)
	return true
}

// taken keeps the counts of the last event that was taken.
func (h *shape) taken(event []byte) {
	if h.counts && len(event) > 0 {
		h.data = append(h.data[:0], event[h.before:len(event)-h.after]...)
	}
}

// match returns the text and the size of an event of the shape at the beginning of p. The size is 0 if there is none.
func (h *shape) match(p []byte) (text []byte, size int) {
	head := int(h.head)
	if h.block == nil || head > len(p) || hashOf(p[:head]) != h.headSum {
		return nil, 0
	}
	text, n := h.between(p[head:])
	at := head + n
	size = at + int(h.tail)
	if n == 0 || size > len(p) || size > h.max || hashOf(p[at:size]) != h.tailSum {
		return nil, 0
	}
	return text, size
}

// between returns the text and the size of what an event of the shape has between its beginning and its end. The size
// is 0 if p begins otherwise.
func (h *shape) between(p []byte) (text []byte, size int) {
	s := scanner{data: p, buf: h.unescaped[:0]}
	sum := uint64(0)
	for i := range h.fields[:h.n] {
		f := &h.fields[i]
		at := s.at
		if s.at += int(f.gap); s.at >= len(p) {
			return nil, 0
		}
		if i > 0 {
			sum = join(sum, p[at:s.at])
		}
		if i == h.n-1 && sum != h.sum {
			return nil, 0
		}
		got := s.field(f.kind)
		if s.bad {
			return nil, 0
		}
		if f.kind == grownText {
			if text = got; len(text) == 0 { // another text may take its place
				return nil, 0
			}
		}
	}
	h.unescaped = s.buf
	return text, s.at
}

// flush adds the text to the block.
func (h *shape) flush() {
	if len(h.text) == 0 {
		return
	}
	text := h.text
	h.text = h.text[:0]
	h.a.add(h.block, text)
}

// end adds the text to the block, and the counts of the last event to the answer: what follows may be without them.
func (h *shape) end() {
	h.flush()
	if len(h.data) > 0 {
		h.settler.settle(h.data)
		h.data = h.data[:0]
	}
}

// release gives the buffers back, with those that the stream was split in. Nothing is read any more.
func (h *shape) release(line, data []byte) {
	if b := h.buffers; b != nil {
		b.line, b.data, b.unescaped = shared(line), shared(data), shared(h.s.buf)
		sharedBuffers.Put(b)
		*h = shape{}
	}
}

// field reads a value in which the events of a shape differ. It returns a text.
func (s *scanner) field(kind valueKind) (text []byte) {
	switch c := s.data[s.at]; {
	case kind == anyNumber:
		s.number()
	case kind == anyCount:
		n := 0
		s.bad = !isDigit(c)
		s.int(&n)
	case c != '"': // before which raw would pass over spaces
		s.bad = true
	default:
		raw, escaped := s.raw()
		if !escaped || s.bad {
			return raw
		}
		start := len(s.buf)
		s.unescape(raw)
		return s.buf[start:]
	}
	return nil
}

// note adds a value that begins at start and has just been read to those that the events of a shape may differ in. text
// is that of a string that an answer may grow by.
func (s *scanner) note(start int, kind valueKind, text []byte) {
	if s.noting && !s.bad {
		s.values = append(s.values, value{start: start, end: s.at, kind: kind, text: text})
	}
}
