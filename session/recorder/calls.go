package recorder

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"
)

// Middleware sends a request with next, and records the call that it is, as [modelhttp.Transport.Middleware] does.
type Middleware = func(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error)

// Calls is a transport whose requests are recorded, and the WebSockets of the Responses API: there a client sends a
// request as a message, and the events of its answer come as messages. Each is recorded as one of HTTP with a stream of
// events.
//
// What passes is not changed, and never waits for the recording, which has a copy of it: up to 32 MiB of each request
// and each answer wait for it, and an answer of which more does is recorded as one that failed. Everything is recorded
// in the order in which it passed, one thing after the other, and each request when it is on its way. The recording
// takes the processor when nothing passes, or after a while: on a machine of few cores it would delay what passes.
type Calls struct {
	// Base sends the requests.
	Base http.RoundTripper
	// Record records them. It is called on other goroutines.
	Record Middleware
	// Clock has the time at which something passes; nil means [time.Now].
	Clock func() time.Time
	// Flush stores what is recorded, and may take its time. It is called on another goroutine, some times a second at
	// most, when something was recorded and nothing passes.
	Flush func()

	mu   sync.Mutex
	open []*exchange // what is not wholly recorded, in the order of its beginning
	turn *exchange   // of which something is being recorded
	at   time.Time   // when that passed

	passed  time.Time   // when something passed last
	waiting time.Time   // since when something is to be recorded, zero if nothing is
	later   *time.Timer // has something recorded after a pause, nil if it is not set
	ending  bool        // nothing waits for a pause

	flushing bool
	flushed  time.Time // when flushing began last
}

const (
	// pause is how long nothing must have passed when something is recorded, and longest how long that may be put off.
	pause   = 2 * time.Millisecond
	longest = 250 * time.Millisecond
	// often is how long Flush is not called again.
	often = 100 * time.Millisecond
)

// Now returns when that passed which is being recorded, for a request when it began, and else the time. It is the clock
// for what Record uses.
func (c *Calls) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn != nil {
		return c.at
	}
	return c.clock()
}

func (c *Calls) clock() time.Time {
	if c.Clock != nil {
		return c.Clock()
	}
	return time.Now()
}

// next has that recorded which passed first, unless something is being recorded. The caller holds mu.
func (c *Calls) next() {
	if c.turn != nil {
		return
	}
	var first *exchange
	var passed time.Time
	for _, e := range c.open {
		if e.ready == nil {
			continue
		}
		if at, ok := e.ready(); ok && (first == nil || at.Before(passed)) {
			first, passed = e, at
		}
	}
	if first == nil {
		c.waiting = time.Time{}
		return
	}
	if !c.isQuiet() {
		return
	}
	c.turn, c.at = first, passed
	first.ready = nil
	first.resumed <- struct{}{}
}

// isQuiet reports whether something may be recorded now. If not, it will be later. The caller holds mu.
func (c *Calls) isQuiet() bool {
	now := time.Now()
	if c.waiting.IsZero() {
		c.waiting = now
	}
	wait := min(pause-now.Sub(c.passed), longest-now.Sub(c.waiting))
	if wait <= 0 || c.ending {
		return true
	}
	if c.later == nil {
		c.later = time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.later = nil
			c.next()
		})
	}
	return false
}

// leave ends a turn, in which something was recorded. The caller holds mu.
func (c *Calls) leave() {
	c.turn = nil
	c.next()
	now := time.Now()
	if c.Flush == nil || c.turn != nil || !c.waiting.IsZero() || c.flushing || c.ending || now.Sub(c.flushed) < often {
		return
	}
	c.flushing, c.flushed = true, now
	go func() {
		c.Flush()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flushing = false
	}()
}

// passes notes that something has passed, of which the recording has a part by now. The caller holds mu.
func (c *Calls) passes() {
	c.passed = time.Now()
	c.next()
}

// Close ends what is under way for the recording, and returns when all that has passed is recorded.
func (c *Calls) Close() {
	c.mu.Lock()
	all := slices.Clone(c.open)
	c.ending = true
	c.mu.Unlock()
	for _, e := range all {
		e.request.close(context.Canceled)
		e.answer.close(errLeft)
		e.respond(nil, context.Canceled)
		<-e.done
	}
	c.mu.Lock()
	c.ending = false
	c.mu.Unlock()
}

// RoundTrip implements [http.RoundTripper].
func (c *Calls) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.ContentLength > maxWaiting {
		resp, err := c.Base.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
			c.watchSocket(req, resp)
		}
		return resp, err
	}
	e := c.begin(req)
	out := req.Clone(httptrace.WithClientTrace(req.Context(),
		&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { e.sent() }}))
	body := &copied{ReadCloser: req.Body, to: &e.request, left: io.ErrUnexpectedEOF}
	out.Body = unread{body}
	resp, err := c.Base.RoundTrip(out)
	ended, n := e.request.passed()
	if err != nil {
		if !ended && n == 0 {
			_, _ = io.CopyN(io.Discard, body, maxWaiting)
		}
		_ = body.Close()
		e.respond(nil, err)
		return nil, err
	}
	if !ended && n == 0 {
		e.request.close(io.ErrUnexpectedEOF) // its answer came before it was asked for
	}
	seen := *resp
	seen.Header = resp.Header.Clone()
	e.respond(&seen, nil)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &copied{ReadCloser: resp.Body, to: &e.answer, left: errLeft}
	}
	return resp, nil
}

// exchange is a request with its answer, as the recording has them. The mu of calls guards it.
type exchange struct {
	calls           *Calls
	began           time.Time
	isSent          bool // the request is on its way, and may be recorded
	request, answer streamed
	responded       time.Time // when resp or err came, zero before
	resp            *http.Response
	err             error
	// ready reports whether that passed for which the recording waits, and when. It is nil while something is recorded.
	ready   func() (time.Time, bool)
	resumed chan struct{} // gets a value when the recording may go on
	done    chan struct{} // closed when all is recorded
}

// begin begins to record a request, whose body is written to the exchange's.
func (c *Calls) begin(req *http.Request) *exchange {
	e := &exchange{calls: c, began: c.clock(), resumed: make(chan struct{}, 1), done: make(chan struct{})}
	e.request.of, e.answer.of = e, e
	req = req.Clone(context.WithoutCancel(req.Context()))
	req.Body = &e.request
	e.ready = func() (time.Time, bool) { return e.began, e.isSent }
	c.mu.Lock()
	c.open = append(c.open, e)
	c.mu.Unlock()
	go func() {
		<-e.resumed
		e.record(req)
		c.mu.Lock()
		c.open = slices.DeleteFunc(c.open, func(other *exchange) bool { return other == e })
		c.leave()
		c.mu.Unlock()
		close(e.done)
	}()
	return e
}

// await returns when that has passed for which the recording waits, and all that passed before is recorded.
func (e *exchange) await(ready func() (time.Time, bool)) {
	c := e.calls
	c.mu.Lock()
	e.ready = ready
	c.leave()
	c.mu.Unlock()
	<-e.resumed
}

// sent has the request recorded.
func (e *exchange) sent() {
	e.calls.mu.Lock()
	defer e.calls.mu.Unlock()
	e.isSent = true
	e.calls.passes()
}

// respond gives the recording the response, the first time.
func (e *exchange) respond(resp *http.Response, err error) {
	at := e.calls.clock()
	e.calls.mu.Lock()
	defer e.calls.mu.Unlock()
	e.isSent = true
	if e.responded.IsZero() {
		e.responded, e.resp, e.err = at, resp, err
		if resp != nil {
			resp.Body = &e.answer
		}
	}
	e.calls.passes()
}

func (e *exchange) record(req *http.Request) {
	resp, err := e.calls.Record(req, func(*http.Request) (*http.Response, error) {
		e.request.discard()
		e.await(func() (time.Time, bool) { return e.responded, !e.responded.IsZero() })
		return e.resp, e.err
	})
	if err == nil {
		for p := make([]byte, 32<<10); ; {
			if n, err := resp.Body.Read(p); n == 0 || err != nil {
				break
			}
		}
		_ = resp.Body.Close()
	}
	e.answer.discard()
}

// copied is a body of which the recording gets what is read, and left, if it is closed before its end.
type copied struct {
	io.ReadCloser
	to    *streamed
	left  error
	ended bool
}

func (c *copied) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF // the server may have closed it by now
	}
	n, err := c.ReadCloser.Read(p)
	c.to.add(p[:n])
	if err != nil {
		c.to.close(err)
	}
	c.ended = errors.Is(err, io.EOF)
	return n, err
}

func (c *copied) Close() error {
	err := c.ReadCloser.Close()
	c.to.close(c.left)
	return err
}

// unread is the body of a request that is open after it was closed, if nothing was read of it: where there is no
// server, it is read for the recording.
type unread struct{ *copied }

func (u unread) Close() error {
	if _, n := u.to.passed(); n == 0 {
		return nil
	}
	return u.copied.Close()
}

// maxWaiting bounds what waits for its recording, in bytes.
const maxWaiting = 32 << 20

var (
	// errLeft is why an answer ends that its client did not read to the end.
	errLeft    = errors.New("the client has left")
	errTooFast = errors.New("the answer came faster than it could be recorded")
)

// streamed is a body that is being received. Adding to it never waits. The mu of calls guards it.
type streamed struct {
	of     *exchange
	pieces []piece // that are not read
	size   int     // of those
	err    error
	ended  time.Time // when err came
	added  int64     // how many bytes have come
	// discarded reports that nobody reads what is yet to come.
	discarded bool
}

// piece is what came at a time.
type piece struct {
	at    time.Time
	bytes []byte
}

func (s *streamed) add(p []byte) {
	c := s.of.calls
	at := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(p) == 0 || s.err != nil || s.discarded:
	case s.size+len(p) > maxWaiting:
		s.err, s.ended = errTooFast, at
	default:
		s.pieces = append(s.pieces, piece{at, bytes.Clone(p)})
		s.size += len(p)
		s.added += int64(len(p))
	}
	c.passes()
}

func (s *streamed) close(err error) {
	c := s.of.calls
	at := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err == nil {
		s.err, s.ended = err, at
	}
	c.passes()
}

// discard drops what is not read, and what is yet to come.
func (s *streamed) discard() {
	s.of.calls.mu.Lock()
	defer s.of.calls.mu.Unlock()
	s.pieces, s.discarded = nil, true
}

// passed reports whether the body has come to its end, and how much of it has come.
func (s *streamed) passed() (ended bool, n int64) {
	s.of.calls.mu.Lock()
	defer s.of.calls.mu.Unlock()
	return s.err != nil, s.added
}

// next reports whether there is something to read, and since when. A request came when it began.
func (s *streamed) next() (at time.Time, ok bool) {
	switch {
	case s == &s.of.request:
		at = s.of.began
	case len(s.pieces) > 0:
		at = s.pieces[0].at
	default:
		at = s.ended
	}
	return at, len(s.pieces) > 0 || s.err != nil
}

// Read gives what came at one time, and nothing, without an error, at the end of an answer whose client has left.
func (s *streamed) Read(p []byte) (int, error) {
	s.of.await(s.next)
	s.of.calls.mu.Lock()
	defer s.of.calls.mu.Unlock()
	if len(s.pieces) == 0 {
		if errors.Is(s.err, errLeft) {
			return 0, nil
		}
		return 0, s.err
	}
	first := &s.pieces[0]
	n := copy(p, first.bytes)
	s.size -= n
	if first.bytes = first.bytes[n:]; len(first.bytes) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *streamed) Close() error {
	s.discard()
	return nil
}

// watchSocket has the messages of a connection recorded, if it is one of the Responses API.
func (c *Calls) watchSocket(req *http.Request, resp *http.Response) {
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") ||
		!strings.HasSuffix(req.URL.Path, "/responses") {
		return
	}
	s := &socket{ReadWriteCloser: conn, calls: c, req: req}
	extensions := resp.Header.Get("Sec-WebSocket-Extensions")
	s.sent = frames{message: s.asked, forgets: strings.Contains(extensions, "client_no_context_takeover")}
	s.received = frames{message: s.answered, forgets: strings.Contains(extensions, "server_no_context_takeover")}
	resp.Body = s
}
