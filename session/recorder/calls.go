package recorder

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Middleware sends a request with next, and records the call that it is, as [modelhttp.Transport.Middleware] does.
type Middleware = func(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error)

// Calls records what a [Tee] has copied, in the order in which it passed, one thing after the other: each request when
// it is on its way, and each piece of an answer. Of a WebSocket of the Responses API, where a client sends a request as
// a message and the events of its answer come as messages, each is recorded as one of HTTP with a stream of events.
type Calls struct {
	// Record records them. It is called on other goroutines, while Read waits.
	Record Middleware

	mu   sync.Mutex
	at   time.Time // when that passed which is being recorded
	open map[int64]*exchange
}

// Now returns when that passed which is being recorded, for a request when it began, and else the time. It is the clock
// for what Record uses.
func (c *Calls) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() {
		return c.at
	}
	return time.Now()
}

func (c *Calls) setNow(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// Read records what r has to its end, and then as canceled what is under way. The error is one of reading r.
func (c *Calls) Read(r io.Reader) error {
	c.open = make(map[int64]*exchange)
	for from := gob.NewDecoder(bufio.NewReaderSize(afterPause{r}, 64<<10)); ; {
		var p passage
		if err := from.Decode(&p); err != nil {
			for _, number := range slices.Sorted(maps.Keys(c.open)) {
				c.open[number].cancel(context.Canceled, errLeft, time.Now())
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		if p.What == requestBegan {
			c.open[p.Exchange] = c.begin(p.Request, p.At)
		} else if e := c.open[p.Exchange]; e != nil && e.take(&p) {
			delete(c.open, p.Exchange)
		}
	}
}

// afterPause has what comes a moment later: at first, those for whom it passed need the processor, and then the other
// side is at work, a model or a tool.
type afterPause struct{ io.Reader }

func (r afterPause) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	time.Sleep(2 * time.Millisecond)
	return n, err
}

// exchange is a request with its answer, as the recording has them. Either it is changed or the recording goes on.
type exchange struct {
	calls           *Calls
	began           time.Time
	req             *http.Request
	started         bool // to be recorded
	request, answer received
	resp            *http.Response
	err             error
	socket          *socket // of which the messages are recorded instead, nil for none

	// resumed has the recording go on. paused says that it cannot, and is closed when all is recorded.
	resumed, paused chan struct{}
}

// begin begins an exchange, whose request passes at a time.
func (c *Calls) begin(head *requestHead, at time.Time) *exchange {
	e := &exchange{calls: c, began: at, resumed: make(chan struct{}), paused: make(chan struct{})}
	e.request.of, e.answer.of = e, e
	u, err := url.Parse(head.URL)
	if err != nil {
		u = &url.URL{Opaque: head.URL}
	}
	e.req = (&http.Request{Method: head.Method, URL: u, Host: head.Host, Header: head.Header, Body: &e.request,
		ContentLength: head.ContentLength, ProtoMajor: 1, ProtoMinor: 1}).WithContext(
		context.WithValue(context.Background(), ownContext{}, e))
	return e
}

// ownContext is the key by which the context of each request is another one: what two requests of one context are, is
// one that is sent again.
type ownContext struct{}

// take has that recorded which has passed, and reports whether the exchange is recorded.
func (e *exchange) take(p *passage) (done bool) {
	if p.What == lost {
		e.cancel(p.Err, p.Err, p.At)
		return true
	}
	if e.socket != nil {
		return e.socket.take(p)
	}
	if r := p.Response; r != nil && isSocket(e.req, r.StatusCode, r.Header) {
		e.socket = newSocket(e, r.Header.Get("Sec-WebSocket-Extensions"))
		return false
	}
	if !e.started && p.What >= requestSent {
		e.started = true
		go e.record()
		if e.resume(e.began) {
			return true
		}
	}
	switch p.What {
	case requestPiece:
		e.request.add(p.Bytes)
	case requestEnded:
		e.request.end(p.Err.orEOF())
	case responded:
		e.respond(p)
	case answerPiece:
		e.answer.add(p.Bytes)
	case answerEnded:
		e.answer.end(p.Err.orEOF())
	}
	return e.started && e.resume(p.At)
}

// respond takes the response, or why there is none.
func (e *exchange) respond(p *passage) {
	switch {
	case e.resp != nil || e.err != nil:
	case p.Err != nil:
		e.err = p.Err
	default:
		e.resp = &http.Response{StatusCode: p.Response.StatusCode, Header: p.Response.Header, Body: &e.answer,
			ContentLength: p.Response.ContentLength, Uncompressed: p.Response.Uncompressed, Request: e.req}
	}
}

// cancel ends what is under way, for one reason without a whole answer, for the other with a part of it.
func (e *exchange) cancel(unanswered, answered error, at time.Time) {
	for _, p := range []passage{{What: requestEnded, Err: newPassedError(unanswered)},
		{What: responded, Err: newPassedError(unanswered)}, {What: answerEnded, Err: newPassedError(answered)}} {
		if p.At = at; e.take(&p) {
			return
		}
	}
}

// resume has the recording go on with what passed at a time, and reports whether all is recorded.
func (e *exchange) resume(at time.Time) (done bool) {
	e.calls.setNow(at)
	e.resumed <- struct{}{}
	_, paused := <-e.paused
	e.calls.setNow(time.Time{})
	return !paused
}

// await returns when that has passed for which the recording waits.
func (e *exchange) await(passed func() bool) {
	for !passed() {
		e.paused <- struct{}{}
		<-e.resumed
	}
}

func (e *exchange) record() {
	defer close(e.paused)
	<-e.resumed
	resp, err := e.calls.Record(e.req, func(*http.Request) (*http.Response, error) {
		_ = e.request.Close()
		e.await(func() bool { return e.resp != nil || e.err != nil })
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
}

// received is a body that is being received.
type received struct {
	of     *exchange
	unread []byte
	err    error
	// discarded reports that nobody reads what is yet to come.
	discarded bool
}

func (r *received) add(p []byte) {
	switch {
	case r.err != nil || r.discarded:
	case len(r.unread)+len(p) > maxRequestCopy:
		r.err = errTooFast
	default:
		r.unread = append(r.unread, p...)
	}
}

func (r *received) end(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Read gives what came at one time, and nothing, without an error, at the end of an answer whose client has left.
func (r *received) Read(p []byte) (n int, err error) {
	r.of.await(func() bool { return len(r.unread) > 0 || r.err != nil })
	n = copy(p, r.unread)
	r.unread = r.unread[n:]
	if n == 0 && !errors.Is(r.err, errLeft) {
		err = r.err
	}
	return n, err
}

func (r *received) Close() error {
	r.unread, r.discarded = nil, true
	return nil
}
