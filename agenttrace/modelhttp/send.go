package modelhttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.send(req, t.base().RoundTrip)
}

// Middleware returns the transport in the form that option.WithMiddleware of anthropic-sdk-go and openai-go takes.
func (t *Transport) Middleware() func(
	req *http.Request, next func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	return t.send
}

type markKey struct{}

// send sends a request with next, and records it if it is for a model.
func (t *Transport) send(
	req *http.Request, next func(*http.Request) (*http.Response, error),
) (resp *http.Response, err error) {
	out, received := t.Begin(req)
	returned := false
	defer func() {
		if !returned { // next panics, and goes on to
			received(nil, fmt.Errorf("send request: panic: %w", context.Canceled))
		}
	}()
	resp, err = next(out)
	returned = true
	if resp != nil && resp.Request == out {
		resp.Request = req
	}
	received(resp, err)
	return resp, err
}

// Begin records that a request is sent, for a program that sends it otherwise than by the transport. It returns what is
// to be sent, and what takes the response, whose body it replaces by one that records what is read, or the error.
// Requests that a middleware or an agent's own model call records already pass, as does everything else.
func (t *Transport) Begin(req *http.Request) (out *http.Request, received func(*http.Response, error)) {
	x := t.observe(req)
	if x == nil {
		return req, func(*http.Response, error) {}
	}
	return x.outgoing(), x.received
}

// observe returns the exchange of a request that is to be recorded, or nil.
func (t *Transport) observe(req *http.Request) (x *exchange) {
	defer recovered()
	ctx := req.Context()
	if t.tracer == nil || ctx.Value(markKey{}) != nil || agenttrace.ModelCallFromContext(ctx) != nil {
		return nil
	}
	if x = t.reg.poll(req); x != nil || req.Body == nil || req.Body == http.NoBody ||
		req.ContentLength > int64(t.o.MaxBodyBytes) {
		return x
	}
	target := recognize(req.Method, req.URL)
	if target == nil {
		t.unrecognized(req)
		return nil
	}
	return &exchange{t: t, target: target, req: req, attempt: attemptOf(req.Header)}
}

// outgoing returns the request to send: the same, with a body of which we have a copy. It begins the call.
func (x *exchange) outgoing() (out *http.Request) {
	ctx := context.WithValue(x.req.Context(), markKey{}, true)
	if x.polled != "" {
		return x.req.WithContext(trace.ContextWithSpan(ctx, x.flight.span))
	}
	var body bytes.Buffer
	body.Grow(int(max(0, x.req.ContentLength)) + bytes.MinRead)
	_, err := body.ReadFrom(io.LimitReader(x.req.Body, int64(x.t.o.MaxBodyBytes)+1))
	data := body.Bytes()
	whole := err == nil && len(data) <= x.t.o.MaxBodyBytes
	if whole {
		x.begin(data)
		if x.flight != nil {
			ctx = trace.ContextWithSpan(ctx, x.flight.span)
		}
		err = x.req.Body.Close()
	}
	out = x.req.WithContext(ctx)
	if whole && err == nil {
		// net/http knows this type, and sends the body together with the headers, in one packet.
		out.Body = io.NopCloser(bytes.NewReader(data))
		return out
	}
	rest := io.Reader(x.req.Body)
	if err != nil {
		rest = failing{err}
	}
	out.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), x.req.Body}
	return out
}

// failing is a body that could not be read to its end, or closed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// begin begins the call.
func (x *exchange) begin(data []byte) {
	defer recovered()
	if open, _ := x.t.o.decoder(x.req.Header); open != nil {
		data, _ = inflate(open, data, x.t.o.MaxBodyBytes)
	}
	if x.target.api == nil {
		x.target.api = modelapi.OfInvoke(data)
	}
	r := x.target.api.Request(data)
	if r == nil {
		return
	}
	r.Provider, r.Model = x.target.provider, cmp.Or(r.Model, x.target.model)
	if r.Model == "" && r.Provider == "ollama" { // another server's chat
		return
	}
	x.flight = x.t.reg.begin(x, r)
}

// received takes the response, or that there is none.
func (x *exchange) received(resp *http.Response, err error) {
	taken := false
	defer func() {
		if !taken && x.flight != nil {
			x.flight.unparsed("the answer could not be parsed")
		}
	}()
	defer recovered()
	if x.flight == nil {
		return
	}
	switch {
	case err != nil || resp == nil:
		x.failedToSend(err)
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		if resp.Body != nil {
			resp.Body = newTap(x, resp)
		}
	default:
		x.refused(resp)
	}
	taken = true
}

// failedToSend takes the error of a request that got no response.
func (x *exchange) failedToSend(err error) {
	if err == nil || errors.Is(err, io.EOF) { // what net/http reports where the server closed the connection
		err = errors.New("the server closed the connection without a response")
	}
	again := !errors.Is(err, context.Canceled) && !x.attempt.isLast &&
		(x.attempt.isNumbered || !errors.Is(err, context.DeadlineExceeded)) // a program may exit at its deadline
	x.ended(nil, err, again, 0)
}

// ended ends an attempt, whose answer may be nil. If the client may try again, the call stays open.
func (x *exchange) ended(a *answer, err error, again bool, after time.Duration) {
	switch {
	case x.polled != "" && err != nil && (a == nil || a.Err == nil): // the client may ask again
		a, err = x.flight.newAnswer(), nil
		a.Paused, a.Continuation = true, x.polled
	case again:
		x.flight.hold(a, err, x.attempt.number+1, patience(after))
		return
	}
	x.flight.finish(cmp.Or(a, x.flight.newAnswer()), err)
}

// exchange is a request and its response: one attempt of a model call.
type exchange struct {
	t       *Transport
	target  *target
	req     *http.Request
	attempt attempt
	flight  *flight // nil if the call is not recorded
	polled  string  // the id of the response that the request asks for, which the model makes in the background
}

// Headers by which clients number their attempts.
const (
	stainlessRetry = "X-Stainless-Retry-Count"
	awsInvocation  = "Amz-Sdk-Invocation-Id"
	awsAttempt     = "Amz-Sdk-Request"
)

// stainlessRetries is how often the clients by Stainless try again by default.
const stainlessRetries = 2

// attempt is what a client states about one.
type attempt struct {
	number     int // from 0
	isNumbered bool
	isLast     bool // the client will not try again
}

// attemptOf reads the headers of a request, such as "attempt=2; max=3" of AWS.
func attemptOf(h http.Header) attempt {
	if n, err := strconv.Atoi(h.Get(stainlessRetry)); err == nil {
		return attempt{n, true, n >= stainlessRetries}
	}
	given := make(map[string]int)
	for field := range strings.SplitSeq(h.Get(awsAttempt), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if n, err := strconv.Atoi(value); err == nil {
			given[name] = n
		}
	}
	n, isNumbered := given["attempt"]
	limit, isLimited := given["max"]
	return attempt{max(0, n-1), isNumbered, isNumbered && (!isLimited || limit > 0 && n >= limit)}
}

// patience is how long to wait for a client to try again.
func patience(after time.Duration) time.Duration {
	return max(15*time.Second, min(after, 2*time.Minute)+5*time.Second)
}
