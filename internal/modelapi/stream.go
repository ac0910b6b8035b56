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
	// line is the line that has not ended, data and name are what the event has so far.
	line, data []byte
	name       string
	some       bool // some line of the event has data
	skip       bool // the event is too large
}

func (s *sse) Feed(p []byte, emit func(string, []byte)) {
	for len(p) > 0 {
		piece, rest, ended := bytes.Cut(p, []byte("\n"))
		if s.skip = s.skip || len(s.line)+len(s.data)+len(piece) > s.max; s.skip {
			const enough = 2 // to know an empty line
			piece = piece[:min(len(piece), max(0, enough-len(s.line)))]
		}
		s.line = append(s.line, piece...)
		if p = rest; ended {
			s.endLine(emit)
		}
	}
}

// endLine takes a line that has ended. An empty one ends the event.
func (s *sse) endLine(emit func(string, []byte)) {
	line := bytes.TrimSuffix(s.line, []byte("\r"))
	s.line = s.line[:0]
	if len(line) == 0 {
		if s.some && !s.skip {
			emit(s.name, s.data)
		}
		s.name, s.data, s.some, s.skip = "", s.data[:0], false, false
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
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
}

// End ends the last line, and the event that it is of.
func (s *sse) End(emit func(string, []byte)) {
	if len(s.line) > 0 {
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

// frameHeaders returns the values of the headers that are read. All headers are texts.
func frameHeaders(h []byte) (kind, event, exception string) {
	const text = 7
	for len(h) > 1 {
		n := int(h[0])
		if len(h) < n+4 || h[n+1] != text {
			return
		}
		end := n + 4 + int(binary.BigEndian.Uint16(h[n+2:]))
		if len(h) < end {
			return
		}
		name, value := h[1:n+1], string(h[n+4:end])
		switch string(name) {
		case ":message-type":
			kind = value
		case ":event-type":
			event = value
		case ":exception-type", ":error-code":
			exception = value
		}
		h = h[end:]
	}
	return
}
