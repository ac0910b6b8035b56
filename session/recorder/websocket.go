package recorder

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Middleware sends a request with next, and records the call that it is, as [modelhttp.Transport.Middleware] does.
type Middleware = func(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error)

// RecordSockets returns a transport as base is, of which the WebSockets of the Responses API are recorded, too: a
// client sends a request as a message, and the events of its answer come as messages. Each request is recorded as one
// of HTTP with a stream of events. What a connection carries is not changed, and never waits for the recording.
func RecordSockets(base http.RoundTripper, record Middleware) http.RoundTripper {
	return sockets{base, record}
}

type sockets struct {
	http.RoundTripper
	record Middleware
}

func (s sockets) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols ||
		!strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") || !strings.HasSuffix(req.URL.Path, "/responses") {
		return resp, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return resp, nil
	}
	c := &socket{ReadWriteCloser: conn, record: s.record, req: req}
	extensions := resp.Header.Get("Sec-WebSocket-Extensions")
	c.sent = frames{message: c.asked, forgets: strings.Contains(extensions, "client_no_context_takeover")}
	c.received = frames{message: c.answered, forgets: strings.Contains(extensions, "server_no_context_takeover")}
	resp.Body = c
	return resp, nil
}

// socket is a connection of which the messages are recorded.
type socket struct {
	io.ReadWriteCloser
	record         Middleware
	req            *http.Request
	sent, received frames

	mu   sync.Mutex
	open *streamed // the answer that is under way
	// recorded is closed when the last request and its answer are: a request is recorded after the one that it follows.
	recorded chan struct{}
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
		Body: io.NopCloser(bytes.NewReader(message)), ContentLength: int64(len(message))}).WithContext(context.Background())
	for _, name := range []string{"Connection", "Upgrade"} {
		req.Header.Del(name)
	}
	answer := newStreamed()
	recorded := make(chan struct{})
	c.mu.Lock()
	before := c.recorded
	c.open, c.recorded = answer, recorded
	c.mu.Unlock()
	go func() {
		defer close(recorded)
		if before != nil {
			<-before
		}
		resp, err := c.record(req, func(out *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, out.Body)
			return &http.Response{StatusCode: http.StatusOK, Request: out, Body: answer, ProtoMajor: 1, ProtoMinor: 1,
				Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil
		})
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
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

// maxSocketMessage bounds a message, and what of an answer waits for its recording.
const maxSocketMessage = 32 << 20

// streamed is the body of an answer that is being received. Adding to it never waits.
type streamed struct {
	mu    sync.Mutex
	more  sync.Cond
	bytes []byte
	err   error
}

func newStreamed() *streamed {
	s := new(streamed)
	s.more.L = &s.mu
	return s
}

func (s *streamed) add(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && len(s.bytes)+len(p) > maxSocketMessage {
		s.err = io.ErrShortBuffer
	}
	if s.err == nil {
		s.bytes = append(s.bytes, p...)
	}
	s.more.Signal()
}

func (s *streamed) close(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.more.Signal()
}

func (s *streamed) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.bytes) == 0 && s.err == nil {
		s.more.Wait()
	}
	n := copy(p, s.bytes)
	s.bytes = s.bytes[n:]
	if n == 0 {
		return 0, s.err
	}
	return n, nil
}

func (s *streamed) Close() error {
	s.close(io.ErrClosedPipe)
	return nil
}

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
