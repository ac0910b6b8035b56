package modelapi

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"strings"
)

// Stream splits a stream into events as its bytes arrive.
type Stream interface {
	// Feed takes the next bytes and calls emit for each event that they complete. What
	// emit is given is valid until it returns.
	Feed(p []byte, emit func(name string, data []byte))
	// End takes the end of the stream.
	End(emit func(name string, data []byte))
}

// StreamOf returns the stream of a content type, nil if that is no stream. Events of more than so many bytes are
// skipped.
func StreamOf(contentType string, most int) Stream {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/event-stream":
		return &sse{max: most}
	case "application/vnd.amazon.eventstream":
		return &frames{max: most}
	}
	return nil
}

// sse splits server-sent events. An event of more than max bytes is skipped.
type sse struct {
	max int
	// line is the line that has not ended, without the bytes that were skipped, and size how long it is. name and data
	// are what the event has so far.
	line, data []byte
	size       int
	name       string
	some       bool // some line of the event has data
	skip       bool // the event is too large
	cr         bool // the last byte was a carriage return
}

func (s *sse) Feed(p []byte, emit func(string, []byte)) {
	for len(p) > 0 {
		n := bytes.IndexAny(p, "\r\n")
		line := p[:max(n, 0)]
		if n < 0 {
			line = p
		}
		if s.size += len(line); len(s.line)+len(s.data)+len(line) > s.max {
			s.skip = true
		} else if !s.skip {
			s.line = append(s.line, line...)
		}
		if n < 0 {
			s.cr = false
			return
		}
		if n > 0 || p[0] == '\r' || !s.cr {
			s.endLine(emit)
		}
		s.cr = p[n] == '\r'
		p = p[n+1:]
	}
}

// endLine takes a line that has ended. An empty one ends the event.
func (s *sse) endLine(emit func(string, []byte)) {
	if s.size == 0 {
		if s.some && !s.skip {
			emit(s.name, s.data)
		}
		s.name, s.data, s.some, s.skip = "", s.data[:0], false, false
		return
	}
	name, value, _ := bytes.Cut(s.line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		s.name = string(value)
	case "data":
		if s.some {
			s.data = append(s.data, '\n')
		}
		s.data, s.some = append(s.data, value...), true
	}
	s.line, s.size = s.line[:0], 0
}

// End ends the last line, and the event that it is of.
func (s *sse) End(emit func(string, []byte)) {
	if s.size > 0 {
		s.endLine(emit)
	}
	s.endLine(emit)
}

// frames splits the binary event streams of AWS: messages of a prelude (lengths and their checksum), headers, a payload
// and a checksum. What follows a message of more than max bytes, or one that is damaged, is not read.
type frames struct {
	max int
	buf []byte
	bad bool
}

const preludeSize = 12

func (f *frames) Feed(p []byte, emit func(string, []byte)) {
	all := append(f.buf, p...)
	rest := all
	for len(rest) >= preludeSize && !f.bad {
		total, headers := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		if crc32.ChecksumIEEE(rest[:8]) != binary.BigEndian.Uint32(rest[8:]) || int64(total) > int64(f.max) ||
			total < preludeSize+4 || headers > total-preludeSize-4 {
			f.bad = true
			break
		}
		if len(rest) < int(total) {
			break
		}
		f.message(rest[:total], emit)
		rest = rest[total:]
	}
	switch {
	case f.bad:
		f.buf = nil
	case len(rest) < len(all):
		f.buf = append(all[:0], rest...)
	default:
		f.buf = all
	}
}

func (f *frames) End(func(string, []byte)) {}

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
	case kind == "exception" || kind == "error":
		data, err := json.Marshal(map[string]map[string]string{
			"error": {"type": exception, "message": parse(payload).text("message")},
		})
		if err == nil {
			emit("exception", data)
		}
	case name == "chunk": // of InvokeModel
		if data, err := base64.StdEncoding.DecodeString(parse(payload).text("bytes")); err == nil {
			emit("", data)
		}
	default:
		emit(name, payload)
	}
}

// frameHeaders returns the values of the headers that are read.
func frameHeaders(h []byte) (kind, event, exception string) {
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
		value := string(h[:length])
		switch string(name) {
		case ":message-type":
			kind = value
		case ":event-type":
			event = value
		case ":exception-type", ":error-code":
			exception = value
		}
		h = h[length:]
	}
	return
}
