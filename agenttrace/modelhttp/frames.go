package modelhttp

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
)

// splitter splits a stream into events as its bytes arrive.
type splitter interface {
	// feed takes the next bytes and calls emit for each event that they complete. What
	// emit is given is valid until it returns.
	feed(p []byte, emit func(name string, data []byte))
	// end takes the end of the stream.
	end(emit func(name string, data []byte))
}

// sse splits server-sent events. An event of more than max bytes is skipped.
type sse struct {
	max   int
	shape *shape // may be nil
	// part is what has arrived of an event, if that is little. Only a whole event is compared with the shape.
	part []byte
	// line is the line that has not ended, name and data are what the event has so far.
	line, data []byte
	name, last string
	some       bool // some line of the event has data
	skip       bool // the event is too large
	begun      bool // the line has bytes, which may have been skipped
	cr         bool // the last byte was a carriage return
}

func (s *sse) feed(p []byte, emit func(string, []byte)) {
	s.split(p, emit)
	if s.shape != nil {
		s.shape.ready = s.shape.block != nil && s.between() && len(s.part) == 0
	}
}

func (s *sse) split(p []byte, emit func(string, []byte)) {
	if n := len(s.part); n > 0 {
		s.part = append(s.part, p...)
		if len(s.part) <= maxPart && !endsEvent(s.part[max(0, n-2):]) {
			return
		}
		p, s.part = s.part, s.part[:0]
	}
	begun := 0 // where the event begins, -1 if it is not in p
	lf := -1   // the next line feed, or the end
	for at := 0; at < len(p); {
		if s.between() {
			if begun = at; s.shape != nil {
				if n := s.shape.take(p[at:]); n > 0 {
					at += n
					continue
				}
				if len(p)-at <= maxPart && !endsEvent(p[at:]) {
					s.part = append(s.part, p[at:]...)
					return
				}
			}
		} else if at == 0 {
			begun = -1
		}
		if s.cr {
			s.cr = false
			if p[at] == '\n' {
				at++
				continue
			}
		}
		if lf < at {
			if lf = at + bytes.IndexByte(p[at:], '\n'); lf < at {
				lf = len(p)
			}
		}
		end := lf
		if cr := bytes.IndexByte(p[at:lf], '\r'); cr >= 0 {
			end = at + cr
		}
		line := p[at:end]
		if end == len(p) {
			s.keep(line)
			return
		}
		if len(s.line) > 0 {
			s.keep(line)
			line = s.line
		}
		if at = end + 1; p[end] == '\r' {
			if s.cr = at == len(p); !s.cr && p[at] == '\n' {
				at++ // of the event that may end here, too
			}
		}
		if data := s.endLine(line, emit); data != nil && begun >= 0 {
			s.shape.decoded(p[begun:at], data)
		}
		s.line, s.begun = s.line[:0], false
	}
}

// maxPart is how much of an event is kept until the rest arrives. More is split into lines at once.
const maxPart = 2 << 10

// endsEvent reports whether p has the end of an event.
func endsEvent(p []byte) bool {
	return bytes.Contains(p, []byte("\n\n")) || bytes.Contains(p, []byte("\n\r\n")) || bytes.Contains(p, []byte("\r\r"))
}

// between reports that no event has begun.
func (s *sse) between() bool {
	return !s.begun && !s.cr && !s.some && !s.skip && s.name == "" && len(s.line) == 0
}

func (s *sse) keep(p []byte) {
	s.begun = s.begun || len(p) > 0
	if len(s.line)+len(s.data)+len(p) > s.max {
		s.skip = true
		return
	}
	if !s.skip {
		s.line = append(s.line, p...)
	}
}

// endLine takes a line that has ended. An empty one ends the event, of which it returns the data.
func (s *sse) endLine(line []byte, emit func(string, []byte)) (data []byte) {
	if len(line) == 0 && !s.begun {
		return s.dispatch(emit)
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		s.last = reuse(s.last, value)
		s.name = s.last
	case "data":
		if len(s.data)+len(value) > s.max {
			s.skip = true
			return nil
		}
		switch {
		case s.some:
			s.data = append(append(s.data, '\n'), value...)
		case len(s.line) > 0: // which the value is a part of
			s.data, s.line = value, s.data
		default:
			s.data = append(s.data, value...)
		}
		s.some = true
	}
	return nil
}

func (s *sse) dispatch(emit func(string, []byte)) (data []byte) {
	if s.some && !s.skip {
		data = s.data
		emit(s.name, data)
	}
	s.name, s.data, s.some, s.skip = "", s.data[:0], false, false
	return data
}

func (s *sse) end(emit func(string, []byte)) {
	if len(s.part) > 0 {
		part := s.part
		s.part, s.shape = nil, nil
		s.feed(part, emit)
	}
	if len(s.line) > 0 && !s.skip {
		s.endLine(s.line, emit)
	}
	s.dispatch(emit)
}

// reuse returns the text of b, which is that of last if they are equal: the events of a stream
// have few names.
func reuse(last string, b []byte) string {
	if string(b) == last {
		return last
	}
	return string(b)
}

// frames splits the binary event streams of AWS: messages of a prelude (lengths and their
// checksum), headers, a payload and a checksum. A message of more than max bytes is
// skipped.
type frames struct {
	max   int
	shape *shape // may be nil
	buf   []byte
	last  string // the name of the event before
	s     scanner
	// chunk has the bytes of the chunk of InvokeModel.
	chunk []byte
	skip  int  // bytes of a message that is too large
	bad   bool // what follows cannot be split
	// head is the size of what messages of the shape begin with, without their prelude, and headSum a hash of that.
	head    int
	headSum uint64
}

const preludeSize = 12

func (f *frames) feed(p []byte, emit func(string, []byte)) {
	f.cut(p, emit)
	if f.shape != nil {
		f.shape.ready = f.shape.block != nil && f.head > 0 && f.skip == 0 && !f.bad
	}
}

// move moves what there is of a message to where it is kept, and returns the size. What is large stays.
func (f *frames) move(into []byte) int {
	n := len(f.buf)
	if f.shape == nil || !f.shape.ready || n == 0 {
		return 0
	}
	if n > maxPart {
		f.shape.ready = false
		return 0
	}
	f.buf = f.buf[:0]
	return copy(into, f.buf[:n])
}

// resembles returns the size of the message at the beginning of m, 0 if it is not whole. It is not known if it begins
// otherwise than those of the shape.
func (f *frames) resembles(m []byte) (size int, known bool) {
	if len(m) < preludeSize {
		return 0, true
	}
	size = int(binary.BigEndian.Uint32(m))
	if size > len(m) {
		return 0, true
	}
	end := preludeSize + f.head
	return size, end <= size && hashOf(m[preludeSize:end]) == f.headSum
}

// cut cuts the stream into messages.
func (f *frames) cut(p []byte, emit func(string, []byte)) {
	for len(p) > 0 && !f.bad {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
			continue
		}
		want := preludeSize
		if len(f.buf) >= preludeSize {
			want = int(binary.BigEndian.Uint32(f.buf))
		}
		n := min(want-len(f.buf), len(p))
		f.buf = append(f.buf, p[:n]...)
		p = p[n:]
		if len(f.buf) < want {
			return
		}
		if want > preludeSize {
			f.message(f.buf, emit)
			f.buf = f.buf[:0]
			continue
		}
		total := binary.BigEndian.Uint32(f.buf)
		switch {
		case crc32.ChecksumIEEE(f.buf[:8]) != binary.BigEndian.Uint32(f.buf[8:]),
			total < preludeSize+4, binary.BigEndian.Uint32(f.buf[4:]) > total-preludeSize-4:
			f.bad = true
		case int64(total) > int64(f.max):
			f.skip = int(total) - preludeSize
			f.buf = f.buf[:0]
		}
	}
}

func (f *frames) end(func(string, []byte)) {}

// message takes a message that is whole.
func (f *frames) message(m []byte, emit func(string, []byte)) {
	end := len(m) - 4
	if crc32.ChecksumIEEE(m[:end]) != binary.BigEndian.Uint32(m[end:]) {
		f.bad = true
		return
	}
	size := int(binary.BigEndian.Uint32(m[4:]))
	headers, payload := m[preludeSize:preludeSize+size], m[preludeSize+size:end]
	kind, name, exception := frameHeaders(headers)
	switch {
	case string(kind) == "exception" || string(kind) == "error":
		var e struct {
			Message string `json:"message"`
		}
		_ = unmarshal(payload, &e) // an exception without a message has a name
		data, err := json.Marshal(map[string]map[string]string{
			"error": {"type": string(exception), "message": e.Message},
		})
		if err == nil {
			emit("exception", data)
		}
	case string(name) == "chunk":
		if !f.decode(payload) || f.event(f.chunk, "", f.chunk, emit) {
			return
		}
		if n := bytes.Index(m, chunkBytes); n >= 0 {
			f.know(m, n+len(chunkBytes), true)
		}
	default:
		f.last = reuse(f.last, name)
		if !f.event(m[preludeSize:end], f.last, payload, emit) {
			f.know(m, preludeSize, false)
		}
	}
}

// chunkBytes is what comes before the base64 of a chunk.
var chunkBytes = []byte(`"bytes":"`)

// know has messages kept that begin like m, up to its first field. What the shape knows begins at start, in base64 or
// as it is.
func (f *frames) know(m []byte, start int, encoded bool) {
	f.head = 0
	if f.shape == nil {
		return
	}
	end := start + int(f.shape.head)
	if encoded {
		end = start + int(f.shape.head)/3*4
	}
	if f.shape.block != nil && preludeSize < end && end <= len(m) {
		f.head, f.headSum = end-preludeSize, hashOf(m[preludeSize:end])
	}
}

// event takes an event, and reports whether it was of the shape. whole is what distinguishes it from others: its
// headers and the data after them.
func (f *frames) event(whole []byte, name string, data []byte, emit func(string, []byte)) bool {
	if f.shape.takeAll(whole) {
		return true
	}
	emit(name, data)
	f.shape.decoded(whole, data)
	return false
}

// decode takes the payload of a chunk, the bytes of which are base64.
func (f *frames) decode(payload []byte) bool {
	var encoded []byte
	f.s.reset(payload)
	f.s.only("bytes", &encoded)
	if f.s.end() && encoded != nil {
		var err error
		f.chunk, err = base64.StdEncoding.AppendDecode(f.chunk[:0], encoded)
		return err == nil
	}
	var chunk struct{ Bytes []byte }
	err := json.Unmarshal(payload, &chunk)
	f.chunk = chunk.Bytes
	return err == nil
}

// frameHeaders returns the values of the headers that are read.
func frameHeaders(h []byte) (kind, event, exception []byte) {
	for len(h) > 1 {
		n := int(h[0])
		if len(h) < n+2 {
			return
		}
		name, typ := h[1:1+n], h[1+n]
		h = h[n+2:]
		size := [...]int{0, 0, 1, 2, 4, 8, -1, -1, 8, 16}
		if int(typ) >= len(size) {
			return
		}
		length := size[typ]
		if length < 0 {
			if len(h) < 2 {
				return
			}
			length = int(binary.BigEndian.Uint16(h))
			h = h[2:]
		}
		if len(h) < length {
			return
		}
		switch string(name) {
		case ":message-type":
			kind = h[:length]
		case ":event-type":
			event = h[:length]
		case ":exception-type", ":error-code":
			exception = h[:length]
		}
		h = h[length:]
	}
	return
}
