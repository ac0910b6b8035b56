package recorder

import (
	"bufio"
	"bytes"
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

// Calls records what a [Tee] has copied, in the order in which it passed, one thing after the other: each request when
// it is on its way, and each piece of an answer. Of a WebSocket of the Responses API, where a client sends a request as
// a message and the events of its answer come as messages, each is recorded as one of HTTP with a stream of events.
type Calls struct {
	// Begin records a request, and returns what takes its answer, as [modelhttp.Transport.Begin] does.
	Begin func(req *http.Request) (out *http.Request, received func(*http.Response, error))

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

// exchange is a request with its answer, as the recording has them.
type exchange struct {
	calls    *Calls
	req      *http.Request
	received func(*http.Response, error)
	body     io.ReadCloser // the answer's, which the recording reads; nil until there is one
	// unread is what came of the answer, and err why it ended.
	unread []byte
	err    error
}

// begin begins an exchange, whose request passes at a time.
func (c *Calls) begin(head *requestHead, body []byte, at time.Time) *exchange {
	u, err := url.Parse(head.URL)
	if err != nil {
		u = &url.URL{Opaque: head.URL}
	}
	e := &exchange{calls: c}
	e.req = (&http.Request{Method: head.Method, URL: u, Host: head.Host, Header: head.Header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(context.WithValue(context.Background(), ownContext{}, e))
	c.setNow(at)
	defer c.setNow(time.Time{})
	_, e.received = c.Begin(e.req)
	return e
}

// ownContext is the key by which the context of each request is another one: two requests of one context are of one
// piece of work, and nobody knows that of what passes.
type ownContext struct{}

// take implements [open].
func (e *exchange) take(p *passage) (done bool) {
	e.calls.setNow(p.At)
	defer e.calls.setNow(time.Time{})
	err := io.EOF // of a body
	if p.Err != nil {
		err = p.Err
	}
	switch {
	case p.What == responded && p.Err == nil:
		resp := &http.Response{StatusCode: p.Response.StatusCode, Header: p.Response.Header, Body: unread{e},
			ContentLength: p.Response.ContentLength, Uncompressed: p.Response.Uncompressed, Request: e.req}
		e.received(resp, nil)
		e.body = resp.Body
	case e.body == nil: // there is no answer
		e.received(nil, err)
		return true
	case p.What == answerPiece:
		e.read(p.Bytes, nil)
	default:
		if !errors.Is(err, errLeft) {
			e.read(nil, err)
		}
		_ = e.body.Close()
		return true
	}
	return false
}

// read has the recording read what came.
func (e *exchange) read(p []byte, err error) {
	e.unread, e.err = p, err
	for buf := make([]byte, 32<<10); ; {
		if n, failed := e.body.Read(buf); n == 0 || failed != nil {
			return
		}
	}
}

// cancel implements [open].
func (e *exchange) cancel(unanswered, answered error, at time.Time) {
	err := answered
	if e.body == nil {
		err = unanswered
	}
	e.take(&passage{What: answerEnded, Err: newPassedError(err), At: at})
}

// unread is the body of an answer, as far as it came.
type unread struct{ of *exchange }

func (r unread) Read(p []byte) (n int, err error) {
	n = copy(p, r.of.unread)
	if r.of.unread = r.of.unread[n:]; n == 0 {
		err = r.of.err
	}
	return n, err
}

func (r unread) Close() error { return nil }
