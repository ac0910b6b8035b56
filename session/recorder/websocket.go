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
	"sync"
)

// socket is a connection of which the messages are recorded.
type socket struct {
	io.ReadWriteCloser
	calls          *Calls
	req            *http.Request
	sent, received frames

	mu   sync.Mutex
	open *streamed // the answer that is under way
}

func (c *socket) Write(p []byte) (int, error) {
	c.sent.add(p)
	return c.ReadWriteCloser.Write(p)
}

func (c *socket) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.received.add(p[:n])
	if err != nil {
		c.end(io.ErrUnexpectedEOF)
	}
	return n, err
}

func (c *socket) Close() error {
	c.end(io.ErrUnexpectedEOF)
	return c.ReadWriteCloser.Close()
}

// end ends the answer that is under way.
func (c *socket) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != nil {
		c.open.close(err)
		c.open = nil
	}
}

// asked takes a message of the client. One that asks for a response begins a call.
func (c *socket) asked(message []byte) {
	var event struct{ Type string }
	if json.Unmarshal(message, &event) != nil || event.Type != "response.create" {
		return
	}
	c.end(io.ErrUnexpectedEOF)
	u := *c.req.URL
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	req := (&http.Request{Method: http.MethodPost, URL: &u, Host: c.req.Host, Header: c.req.Header.Clone(),
		ContentLength: int64(len(message))}).WithContext(c.req.Context())
	for _, name := range []string{"Connection", "Upgrade"} {
		req.Header.Del(name)
	}
	e := c.calls.begin(req)
	e.request.add(message)
	e.request.close(io.EOF)
	e.respond(&http.Response{StatusCode: http.StatusOK, Request: req, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil)
	c.mu.Lock()
	c.open = &e.answer
	c.mu.Unlock()
}

// answered takes a message of the server: an event.
func (c *socket) answered(message []byte) {
	var event struct{ Type string }
	if json.Unmarshal(message, &event) != nil {
		return
	}
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	if open == nil {
		return
	}
	open.add(slices.Concat([]byte("data: "), message, []byte("\n\n")))
	if slices.Contains([]string{"response.completed", "response.failed", "response.incomplete", "error"}, event.Type) {
		c.end(io.EOF)
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
