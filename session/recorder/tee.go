package recorder

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/spans"
)

// Tee is a transport of which what passes is copied for [Calls], also in another process, to record it: requests that
// have a body or ask for a response of the Responses API, with their answers, and the WebSockets of that API.
//
// What passes is not changed, and does not wait for its recording: its copy is in the pipe before it passes on, so that
// it outlives this process, unless the pipe is full. Then up to 64 MiB of copies wait to be written; what passes while
// more do is left out, and what has been copied of that request ends with an error.
type Tee struct {
	base http.RoundTripper
	now  func() time.Time
	last atomic.Int64 // the number of the last exchange

	mu       sync.Mutex
	to       *os.File
	encoded  bytes.Buffer // what encoder writes
	encoder  *gob.Encoder
	waiting  [][]byte      // what did not fit into the pipe
	size     int           // of that
	draining chan struct{} // closed when nothing of it waits any more, nil when nothing does
	ended    bool          // nothing is copied any more
}

// NewTee returns a transport that sends requests by base, and writes copies of what passes to a pipe, which it owns. On
// Linux the pipe holds 1 MiB from then on.
func NewTee(base http.RoundTripper, to *os.File) *Tee {
	enlarge(to)
	t := &Tee{base: base, now: time.Now, to: to}
	t.encoder = gob.NewEncoder(&t.encoded)
	return t
}

// Bounds of what is copied, in bytes: of a request and of all that waits to be written.
const (
	maxRequestCopy = 32 << 20
	maxCopies      = 64 << 20
)

// passage is something of an exchange, which is a request with its answer, that passed at a time. Gob encodes it.
type passage struct {
	Exchange int64
	At       time.Time
	What     what
	Bytes    []byte
	Request  *requestHead
	Response *responseHead
	Err      *passedError
}

// what has passed of an exchange.
type what byte

const (
	requested   what = iota // Request, and Bytes as its body
	upgraded                // Request and Response of a WebSocket
	sentPiece               // Bytes of the client of a WebSocket
	responded               // Response or Err
	answerPiece             // Bytes
	answerEnded             // Err, nil at the end of the body
	lost                    // Err: the rest is not copied
)

type requestHead struct {
	Method, URL, Host string
	Header            http.Header
}

type responseHead struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
	Uncompressed  bool
}

// copy writes a copy. The caller holds mu.
func (t *Tee) copy(p *passage) {
	t.encoded.Reset()
	if t.ended || t.encoder.Encode(p) != nil {
		return
	}
	rest := t.encoded.Bytes()
	if t.draining == nil {
		// Without deadlines, as on Windows, writing could wait for the other side.
		if t.to.SetWriteDeadline(time.Now().Add(time.Millisecond/20)) == nil {
			n, err := t.to.Write(rest)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.ended = true // nobody reads
				return
			}
			rest = rest[n:]
		}
		if len(rest) == 0 {
			return
		}
		t.draining = make(chan struct{})
		go t.drain()
	}
	t.waiting = append(t.waiting, bytes.Clone(rest))
	t.size += len(rest)
}

// drain writes what waits.
func (t *Tee) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.to.SetWriteDeadline(time.Time{})
	for len(t.waiting) > 0 {
		first := t.waiting[0]
		t.waiting[0], t.waiting = nil, t.waiting[1:]
		t.mu.Unlock()
		_, err := t.to.Write(first)
		t.mu.Lock()
		if t.size -= len(first); err != nil {
			t.waiting, t.ended = nil, true
		}
	}
	t.size = 0
	close(t.draining)
	t.draining = nil
}

// Close ends the copies, and returns when all are written. What is under way passes on.
func (t *Tee) Close() error {
	t.mu.Lock()
	t.ended = true
	draining := t.draining
	t.mu.Unlock()
	if draining != nil {
		<-draining
	}
	return t.to.Close()
}

// exchanged is an exchange of which what passes is copied.
type exchanged struct {
	tee    *Tee
	number int64
	isLost bool // it was more than could be copied
}

// pass copies something, which passes now if it has no time.
func (e *exchanged) pass(p passage) {
	t := e.tee
	if p.At.IsZero() {
		p.At = t.now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.isLost {
		return
	}
	if t.size+len(p.Bytes) > maxCopies {
		e.isLost = true
		p = passage{What: lost, At: p.At, Err: newPassedError(errTooFast)}
	}
	p.Exchange = e.number
	t.copy(&p)
}

func (t *Tee) newExchange() *exchanged { return &exchanged{tee: t, number: t.last.Add(1)} }

func headOf(req *http.Request) *requestHead {
	return &requestHead{Method: req.Method, URL: req.URL.String(), Host: req.Host, Header: req.Header.Clone()}
}

func responseHeadOf(resp *http.Response) *responseHead {
	return &responseHead{resp.StatusCode, resp.Header.Clone(), resp.ContentLength, resp.Uncompressed}
}

// RoundTrip implements [http.RoundTripper]. It reads the body of a request that is copied before it sends that, as
// requests to models are whole documents.
func (t *Tee) RoundTrip(req *http.Request) (*http.Response, error) {
	isJSON := strings.Contains(req.Header.Get("Content-Type"), "json")
	if req.Body == nil && modelapi.BackgroundOf(req.URL.Path) != "" {
		req = req.Clone(req.Context())
		req.Body = http.NoBody
	}
	if req.Body == nil || req.ContentLength > maxRequestCopy || req.ContentLength < 0 && !isJSON {
		resp, err := t.base.RoundTrip(req)
		if err == nil {
			t.copySocket(req, resp)
		}
		return resp, err
	}
	began := t.now()
	body, err := io.ReadAll(io.LimitReader(req.Body, maxRequestCopy+1))
	if err != nil {
		return nil, errors.Join(err, req.Body.Close())
	}
	out := req.Clone(req.Context())
	if len(body) > maxRequestCopy {
		out.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
		return t.base.RoundTrip(out)
	}
	_ = req.Body.Close() // it is read
	// A connection that the server has closed meanwhile costs no request: the transport sends it again by another.
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	if out.Body, _ = out.GetBody(); len(body) == 0 {
		out.Body, out.GetBody = http.NoBody, nil
	}
	e := t.newExchange()
	e.pass(passage{What: requested, At: began, Request: headOf(req), Bytes: body})
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		e.pass(passage{What: responded, Err: newPassedError(err)})
		return nil, err
	}
	e.pass(passage{What: responded, Response: responseHeadOf(resp)})
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = e.copied(resp.Body, errLeft)
	}
	return resp, nil
}

// copied has what is read of an answer copied, and left, if it is closed before its end.
func (e *exchanged) copied(body io.ReadCloser, left error) *modelapi.Body {
	var isOver atomic.Bool // its end is copied
	over := func(err error) {
		if isOver.Swap(true) {
			return
		}
		p := passage{What: answerEnded}
		if !errors.Is(err, io.EOF) {
			p.Err = newPassedError(err)
		}
		e.pass(p)
	}
	return &modelapi.Body{ReadCloser: body, Closed: func() { over(left) }, Took: func(p []byte, err error) {
		if len(p) > 0 && !isOver.Load() {
			e.pass(passage{What: answerPiece, Bytes: p})
		}
		if err != nil {
			over(err)
		}
	}}
}

// copySocket has what both sides send copied if the request has begun a WebSocket of the Responses API.
func (t *Tee) copySocket(req *http.Request, resp *http.Response) {
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.HasSuffix(req.URL.Path, "/responses") ||
		!strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
		return
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		e := t.newExchange()
		e.pass(passage{What: upgraded, Request: headOf(req), Response: responseHeadOf(resp)})
		resp.Body = &copiedSocket{Body: e.copied(conn, io.ErrUnexpectedEOF), to: conn, of: e}
	}
}

type copiedSocket struct {
	*modelapi.Body
	to io.Writer
	of *exchanged
}

func (c *copiedSocket) Write(p []byte) (int, error) {
	c.of.pass(passage{What: sentPiece, Bytes: p})
	return c.to.Write(p)
}

var (
	// errLeft is why an answer ends that its client did not read to the end.
	errLeft    = errors.New("the client has left")
	errTooFast = errors.New("the answer came faster than it could be recorded")
)

// passedError is an error in a copy.
type passedError struct {
	Text, Type string
	Known      int // the number in knownErrors of what it wraps, and one more
}

// knownErrors are those of which a recording needs more than the text and the type.
var knownErrors = []error{io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, errLeft}

func newPassedError(err error) *passedError {
	if err == nil {
		return nil
	}
	return &passedError{Text: err.Error(), Type: spans.ErrorType(err),
		Known: 1 + slices.IndexFunc(knownErrors, func(known error) bool { return errors.Is(err, known) })}
}

func (p *passedError) Error() string     { return p.Text }
func (p *passedError) ErrorType() string { return p.Type }

func (p *passedError) Unwrap() error {
	if p.Known == 0 {
		return nil
	}
	return knownErrors[p.Known-1]
}
