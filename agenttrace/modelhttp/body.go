package modelhttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel"
)

// tap is the body of an answer. The caller reads it as it is; what it has read is parsed.
type tap struct {
	body io.ReadCloser

	// mu guards what follows. The fields that kept reads come first, in one cache line.
	mu sync.Mutex
	// used is how much of pending is in use.
	used     atomic.Int32
	finished bool
	// waits reports that the transport will have parsed what is pending.
	waits bool
	sized bool // the length is known
	// framed reports that split is of [frames].
	framed bool
	shape  shape

	gzip bool
	// dropped reports that the body is too large, or encoded otherwise.
	dropped      bool
	length, read int64
	x            *exchange
	answer       *answer
	dec          decoder
	split        splitter // nil if the body is one document
	emit         func(string, []byte)
	// buf is a document or compressed stream until its end.
	buf []byte
	// pending is what was kept of events that are not parsed yet, because they seem to add text only. Of frames it is all
	// of them, and begun is where the last one begins.
	pending [maxUnparsed]byte
	begun   int
}

func newTap(x *exchange, resp *http.Response) *tap {
	a := x.flight.newAnswer()
	b := &tap{body: resp.Body, x: x, answer: a, dec: x.target.api.answer(a), length: resp.ContentLength}
	b.sized = b.length > 0
	b.emit = b.event
	b.shape.settler, _ = b.dec.(settler)
	b.shape.a, b.shape.max, a.shape = a, x.t.o.MaxBodyBytes, &b.shape
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/event-stream":
		buffers := b.shape.acquire()
		b.split = &sse{max: x.t.o.MaxBodyBytes, shape: &b.shape, line: buffers.line, data: buffers.data}
	case "application/vnd.amazon.eventstream":
		b.framed = true
		b.split = &frames{max: x.t.o.MaxBodyBytes, shape: &b.shape, buf: b.shape.acquire().data}
	}
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		b.gzip = true
	default:
		b.dropped, b.split = true, nil // an encoding that we cannot decode
	}
	return b
}

// Read implements [io.Reader].
func (b *tap) Read(p []byte) (int, error) {
	next := min((b.used.Load()+3)&^3, maxUnparsed-4)
	n, err := b.body.Read(p)
	// After a pause, what kept reads and where it writes are out of the processor's caches. Loaded here, at once, they
	// arrive together, where the lock would have them wait for each other. Meanwhile flush may have moved a message that
	// is not whole, of up to maxPart bytes, to the beginning of what was in use, and never writes beyond that.
	atomic.LoadUint32((*uint32)(unsafe.Pointer(&b.pending[next])))
	b.used.Load()
	b.took(p[:n], err)
	return n, err
}

// Close implements [io.Closer]. An answer that is closed before its end is aborted.
func (b *tap) Close() error {
	err := b.body.Close()
	b.closed()
	return err
}

func (b *tap) took(p []byte, err error) {
	b.mu.Lock()
	if err == nil && b.kept(p) {
		b.mu.Unlock()
		return
	}
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	defer b.recovered()
	b.read += int64(len(p))
	if b.split != nil && !b.gzip {
		b.feed(p)
		b.hold()
	} else {
		b.keep(p)
	}
	switch {
	case errors.Is(err, io.EOF):
		b.end(true)
	case err != nil:
		b.parse()
		if _, numbered := b.x.attempt(); numbered && b.split == nil && !errors.Is(err, context.Canceled) {
			// anthropic-sdk-go tries again when a document breaks off.
			b.release()
			b.x.failed(err, !b.x.lastAttempt(), 0)
			return
		}
		b.finish(err)
	case b.answer.complete, b.sized && b.read >= b.length:
		b.end(true)
	}
}

// kept keeps p for later if it resembles the event before, and reports whether it did. Most chunks of an answer take
// this path. What one costs is the memory that it touches: little of that is still in the processor's caches.
func (b *tap) kept(p []byte) bool {
	used := int(b.used.Load())
	if !b.waits || b.finished || b.sized || used+2+len(p) > len(b.pending) {
		return false
	}
	if b.framed {
		return b.keptFrame(used, p)
	}
	if !b.shape.resembles(p) {
		return false
	}
	b.used.Store(int32(used + b.shape.keep(b.pending[used:], p)))
	return true
}

// keptFrame is kept for frames, which clients read in small pieces. One that is not whole changes nothing.
func (b *tap) keptFrame(used int, p []byte) bool {
	f, ok := b.split.(*frames)
	if !ok || !b.shape.ready {
		return false
	}
	end := used + copy(b.pending[used:], p)
	for begun := b.begun; ; {
		n, known := f.resembles(b.pending[begun:end])
		if !known {
			return false
		}
		if n == 0 {
			b.begun = begun
			b.used.Store(int32(end))
			return true
		}
		begun += n
	}
}

// event takes an event of a stream that is not of the shape of the one before.
func (b *tap) event(name string, data []byte) {
	b.shape.decoding()
	b.dec.event(name, data)
}

// feed parses the bytes of a stream.
func (b *tap) feed(p []byte) {
	if used := b.used.Load(); used > 0 {
		others := b.pending[:used]
		if !b.framed {
			others = b.shape.takeKept(others)
		}
		b.split.feed(others, b.emit)
		b.used.Store(0)
		b.begun = 0
	}
	b.split.feed(p, b.emit)
	if f, ok := b.split.(*frames); ok {
		b.used.Store(int32(f.move(b.pending[:])))
	}
}

// hold has the stream parsed again in flushInterval, until when text is kept, and chunks that resemble the last event.
func (b *tap) hold() {
	if len(b.shape.text) >= maxPending {
		b.shape.flush()
	}
	if b.waits || !b.shape.ready && len(b.shape.text) == 0 {
		return
	}
	b.waits = true
	b.x.t.growing.add(b)
}

// flush parses what is pending, adds the text to the session, and waits for more unless the stream stalls.
func (b *tap) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.recovered()
	b.waits = false
	if b.finished {
		return
	}
	grew := b.used.Load() > 0 && (!b.framed || b.begun > 0)
	b.feed(nil)
	b.shape.flush()
	if grew {
		b.hold()
	}
}

func (b *tap) closed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	defer b.recovered()
	b.end(false)
}

// recovered ends the call when the parser panics. The caller holds mu.
func (b *tap) recovered() {
	if p := recover(); p != nil {
		b.finished, b.buf = true, nil
		otel.Handle(fmt.Errorf("record a model's answer: panic: %v", p))
		b.x.flight.unparsed("the answer could not be parsed")
	}
}

// keep appends to the document.
func (b *tap) keep(p []byte) {
	if b.dropped {
		return
	}
	if len(b.buf)+len(p) > b.x.t.o.MaxBodyBytes {
		b.buf, b.dropped = nil, true
		return
	}
	b.buf = append(b.buf, p...)
}

// parse parses what was kept. It reports whether the body is whole as far as its framing
// shows.
func (b *tap) parse() (whole bool) {
	data := b.buf
	b.buf = nil
	if b.gzip && len(data) > 0 {
		data, whole = inflate(data, b.x.t.o.MaxBodyBytes)
	}
	if b.split != nil {
		b.feed(data)
		b.split.end(b.emit)
		b.shape.end()
		return whole
	}
	if whole = len(data) > 0 && isJSON(data); whole {
		b.dec.body(data)
	}
	return whole
}

// inflate decompresses what there is of a document.
func inflate(data []byte, limit int) (out []byte, whole bool) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	out, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if len(out) > limit {
		return nil, false
	}
	return out, err == nil
}

// end ends the answer at the end of the body, or where the caller closed it.
func (b *tap) end(atEnd bool) {
	if b.dropped {
		b.release()
		b.x.flight.unparsed("the answer is too large or encoded")
		return
	}
	whole := b.parse()
	switch {
	case b.answer.err != nil:
		b.finish(b.answer.err)
	case b.answer.ended:
		b.finish(nil)
	case !atEnd:
		b.finish(context.Canceled)
	case whole && b.split == nil:
		b.finish(nil) // a document without an answer, such as one that is queued
	default:
		b.finish(errTruncated)
	}
}

func (b *tap) finish(err error) {
	b.release()
	b.x.flight.finish(b.answer, err)
}

// release has other streams use the buffers: nothing is parsed any more.
func (b *tap) release() {
	b.finished = true
	switch s := b.split.(type) {
	case *sse:
		b.shape.release(s.line, s.data)
	case *frames:
		b.shape.release(nil, s.buf)
	}
}

// httpError is the error of a response that is not an answer.
type httpError struct {
	status int
	kind   string
	text   string
}

func (e *httpError) Error() string {
	s := fmt.Sprintf("%d %s", e.status, http.StatusText(e.status))
	if e.text != "" {
		s += ": " + e.text
	}
	return s
}

// ErrorType returns the provider's name of the error or, as the conventions have it, the
// status.
func (e *httpError) ErrorType() string {
	if e.kind != "" {
		return e.kind
	}
	return strconv.Itoa(e.status)
}

// errorBody is the body of a response that is not an answer. Its beginning is kept.
type errorBody struct {
	io.ReadCloser
	once sync.Once
	mu   sync.Mutex
	buf  []byte
	done func(body []byte)
}

const maxErrorBody = 64 << 10

func (b *errorBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.buf = append(b.buf, p[:min(n, maxErrorBody-len(b.buf))]...)
	b.mu.Unlock()
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *errorBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

func (b *errorBody) end() {
	b.once.Do(func() {
		defer recovered()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done(b.buf)
	})
}

// refused takes a response that is not an answer.
func (x *exchange) refused(resp *http.Response) {
	err := &httpError{status: resp.StatusCode}
	again := retryable(resp) && !x.lastAttempt()
	if again {
		x.failed(err, true, retryAfter(resp.Header))
	}
	describe := func(body []byte) {
		if resp.Header.Get("Content-Encoding") == "gzip" {
			body, _ = inflate(body, maxErrorBody)
		}
		kind, text := errorText(body)
		if !again {
			x.failed(&httpError{resp.StatusCode, kind, text}, false, 0)
			return
		}
		x.flight.describe(&httpError{resp.StatusCode, kind, text})
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		describe(nil)
		return
	}
	resp.Body = &errorBody{ReadCloser: resp.Body, done: describe}
}

// errorText returns the kind and the text of an error in a body.
func errorText(body []byte) (kind, text string) {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Type    string          `json:"__type"`
	}
	var list []json.RawMessage
	if unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0] // Gemini
	}
	if unmarshal(body, &e) != nil {
		return "", strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 300)]), ""))
	}
	if len(e.Error) > 0 {
		return openAIError(e.Error)
	}
	return e.Type, e.Message
}

// retryable reports whether clients try again after a response.
func retryable(resp *http.Response) bool {
	switch resp.Header.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	switch c := resp.StatusCode; c {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return c >= 500 || c < 400 // a redirect is sent again too
	}
}

// retryAfter returns what a response asks clients to wait.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return time.Until(at)
	}
	return 0
}
