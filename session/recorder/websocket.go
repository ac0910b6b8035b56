package recorder

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// socket is a connection of which the messages are recorded: each that asks for a response, with the events that answer
// it, as an exchange.
type socket struct {
	calls          *Calls
	head           requestHead // of a request by HTTP
	sent, received frames
	at             time.Time // when that passed which is being recorded
	open           *exchange // that is under way
}

func (c *Calls) newSocket(head *requestHead, resp *responseHead) *socket {
	s := &socket{calls: c, head: *head}
	s.head.Method, s.head.URL = http.MethodPost, strings.Replace(head.URL, "ws", "http", 1)
	s.head.Header.Del("Connection")
	s.head.Header.Del("Upgrade")
	extensions := resp.Header.Get("Sec-WebSocket-Extensions")
	s.sent = frames{message: s.asked, forgets: strings.Contains(extensions, "client_no_context_takeover")}
	s.received = frames{message: s.answered, forgets: strings.Contains(extensions, "server_no_context_takeover")}
	return s
}

// take implements [open].
func (s *socket) take(p *passage) (done bool) {
	s.at = p.At
	switch p.What {
	case sentPiece:
		s.sent.add(p.Bytes)
	case answerPiece:
		s.received.add(p.Bytes)
	default:
		s.end(io.ErrUnexpectedEOF)
		return true
	}
	return false
}

// cancel implements [open].
func (s *socket) cancel(_, _ error, at time.Time) { s.take(&passage{What: answerEnded, At: at}) }

// pass has something of what is under way recorded.
func (s *socket) pass(p passage) {
	if p.At = s.at; s.open != nil && s.open.take(&p) {
		s.open = nil
	}
}

// end ends the answer that is under way.
func (s *socket) end(err error) { s.pass(passage{What: answerEnded, Err: newPassedError(err)}) }

// asked takes a message of the client. One that asks for a response begins a call.
func (s *socket) asked(message []byte) {
	var event struct{ Type string }
	if json.Unmarshal(message, &event) != nil || event.Type != "response.create" {
		return
	}
	s.end(io.ErrUnexpectedEOF)
	head := s.head
	head.Header = head.Header.Clone()
	s.open = s.calls.begin(&head, message, s.at)
	s.pass(passage{What: responded, Response: &responseHead{StatusCode: http.StatusOK, ContentLength: -1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}}})
}

// answered takes a message of the server: an event.
func (s *socket) answered(message []byte) {
	var event struct{ Type string }
	if json.Unmarshal(message, &event) != nil || s.open == nil {
		return
	}
	s.pass(passage{What: answerPiece, Bytes: slices.Concat([]byte("data: "), message, []byte("\n\n"))})
	if slices.Contains([]string{"response.completed", "response.failed", "response.incomplete", "error"}, event.Type) {
		s.end(nil)
	}
}

// maxSocketMessage bounds a message.
const maxSocketMessage = 32 << 20

// frames finds the messages in what one side of a WebSocket sends (RFC 6455), also those that are compressed (RFC
// 7692). What is malformed, or too long, ends it: the connection goes on.
type frames struct {
	message func([]byte)
	// forgets reports that each message is compressed by itself.
	forgets bool

	buffered   []byte
	whole      []byte // the fragments of a message so far
	compressed bool
	window     []byte // what was decompressed last, to which the next message may refer
	ended      bool
}

func (f *frames) add(p []byte) {
	if f.ended {
		return
	}
	f.buffered = append(f.buffered, p...)
	for !f.ended && f.next() {
	}
	if len(f.buffered) > maxSocketMessage+16 {
		f.ended, f.buffered = true, nil
	}
}

// next takes a frame, and reports false where it is not there whole.
func (f *frames) next() bool {
	b := f.buffered
	if len(b) < 2 {
		return false
	}
	final, compressed, kind := b[0]&0x80 != 0, b[0]&0x40 != 0, b[0]&0x0f
	masked, size, at := b[1]&0x80 != 0, uint64(b[1]&0x7f), 2
	switch {
	case size == 126 && len(b) >= 4:
		size, at = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case size == 127 && len(b) >= 10:
		size, at = binary.BigEndian.Uint64(b[2:]), 10
	case size >= 126:
		return false
	}
	if size > maxSocketMessage {
		f.ended, f.buffered = true, nil
		return false
	}
	var mask [4]byte
	if masked {
		if len(b) < at+4 {
			return false
		}
		copy(mask[:], b[at:])
		at += 4
	}
	if uint64(len(b)-at) < size {
		return false
	}
	payload := slices.Clone(b[at : at+int(size)])
	f.buffered = b[at+int(size):]
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	if kind >= 8 { // of the connection
		return true
	}
	if kind != 0 {
		f.whole, f.compressed = nil, compressed
	}
	if f.whole = append(f.whole, payload...); len(f.whole) > maxSocketMessage {
		f.ended = true
		return false
	}
	if final {
		f.deliver()
	}
	return true
}

func (f *frames) deliver() {
	message := f.whole
	f.whole = nil
	if f.compressed {
		// The end of a message, which is left out of it, and of the whole.
		rest := strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff")
		var err error
		message, err = io.ReadAll(io.LimitReader(
			flate.NewReaderDict(io.MultiReader(bytes.NewReader(message), rest), f.window), maxSocketMessage))
		if err != nil {
			f.ended = true
			return
		}
		if !f.forgets {
			f.window = append(f.window, message...)
			f.window = slices.Clone(f.window[max(0, len(f.window)-1<<15):])
		}
	}
	f.message(message)
}
