package recorder

import (
	"bufio"
	"bytes"
	"cmp"
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

	mu sync.Mutex
	at time.Time // when that passed which is being recorded
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

// open is what is under way.
type open interface {
	// take has that recorded which has passed, and reports whether all is recorded.
	take(p *passage) (done bool)
	// cancel ends it, for one reason without a whole answer, for the other with a part of it.
	cancel(unanswered, answered error, at time.Time)
}

// Read records what r has to its end, and then as canceled what is under way. The error is one of reading r.
func (c *Calls) Read(r io.Reader) error {
	all := make(map[int64]open)
	for from := gob.NewDecoder(bufio.NewReaderSize(afterPause{r}, 64<<10)); ; {
		var p passage
		if err := from.Decode(&p); err != nil {
			for _, number := range slices.Sorted(maps.Keys(all)) {
				all[number].cancel(context.Canceled, errLeft, time.Now())
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		switch o := all[p.Exchange]; {
		case p.What == requested:
			all[p.Exchange] = c.begin(p.Request, p.Bytes, p.At)
		case p.What == upgraded:
			all[p.Exchange] = c.newSocket(p.Request, p.Response)
		case o != nil && o.take(&p):
			delete(all, p.Exchange)
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
	calls *Calls
	req   *http.Request
	resp  *http.Response
	err   error
	// unread is what came of the answer, and answerErr why it ended; discarded reports that nobody reads it.
	unread    []byte
	answerErr error
	discarded bool

	// resumed has the recording go on. paused says that it cannot, and is closed when all is recorded.
	resumed, paused chan struct{}
}

// begin begins an exchange, whose request passes at a time.
func (c *Calls) begin(head *requestHead, body []byte, at time.Time) *exchange {
	e := &exchange{calls: c, resumed: make(chan struct{}), paused: make(chan struct{})}
	u, err := url.Parse(head.URL)
	if err != nil {
		u = &url.URL{Opaque: head.URL}
	}
	e.req = (&http.Request{Method: head.Method, URL: u, Host: head.Host, Header: head.Header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(context.WithValue(context.Background(), ownContext{}, e))
	go e.record()
	e.resume(at)
	return e
}

// ownContext is the key by which the context of each request is another one: what two requests of one context are, is
// one that is sent again.
type ownContext struct{}

// take implements [open].
func (e *exchange) take(p *passage) (done bool) {
	switch p.What {
	case lost:
		e.cancel(p.Err, p.Err, p.At)
		return true
	case responded:
		e.respond(p)
	case answerPiece:
		if e.answerErr == nil && !e.discarded {
			e.unread = append(e.unread, p.Bytes...)
		}
	case answerEnded:
		e.answerErr = cmp.Or(e.answerErr, p.Err.orEOF())
	}
	return e.resume(p.At)
}

// respond takes the response, or why there is none.
func (e *exchange) respond(p *passage) {
	switch {
	case e.resp != nil || e.err != nil:
	case p.Err != nil:
		e.err = p.Err
	default:
		e.resp = &http.Response{StatusCode: p.Response.StatusCode, Header: p.Response.Header, Body: received{e},
			ContentLength: p.Response.ContentLength, Uncompressed: p.Response.Uncompressed, Request: e.req}
	}
}

// cancel implements [open].
func (e *exchange) cancel(unanswered, answered error, at time.Time) {
	if !e.take(&passage{What: responded, Err: newPassedError(unanswered), At: at}) {
		e.take(&passage{What: answerEnded, Err: newPassedError(answered), At: at})
	}
}

// resume has the recording go on with what passed at a time, and reports whether all is recorded.
func (e *exchange) resume(at time.Time) (done bool) {
	e.calls.setNow(at)
	defer e.calls.setNow(time.Time{})
	select {
	case e.resumed <- struct{}{}:
	case <-e.paused: // it was recorded without a response
		return true
	}
	_, paused := <-e.paused
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

// received is the body of an answer that is being received.
type received struct{ of *exchange }

// Read gives what came at one time, and nothing, without an error, at the end of an answer whose client has left.
func (r received) Read(p []byte) (n int, err error) {
	e := r.of
	e.await(func() bool { return len(e.unread) > 0 || e.answerErr != nil })
	n = copy(p, e.unread)
	e.unread = e.unread[n:]
	if n == 0 && !errors.Is(e.answerErr, errLeft) {
		err = e.answerErr
	}
	return n, err
}

func (r received) Close() error {
	r.of.unread, r.of.discarded = nil, true
	return nil
}
