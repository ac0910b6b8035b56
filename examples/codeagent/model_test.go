package codeagent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// roundTripper answers requests from a list and repeats the last answer.
type roundTripper struct {
	answers []func() (*http.Response, error)
	calls   int
}

func (r *roundTripper) RoundTrip(*http.Request) (*http.Response, error) {
	i := min(r.calls, len(r.answers)-1)
	r.calls++
	return r.answers[i]()
}

func answer(code int, body string, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func unreachable() (*http.Response, error) { return nil, errors.New("connection refused") }

const hello = `data: {"id":"1","model":"m","choices":[{"delta":{"content":"Hel"}}]}

: a comment

data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}

data: [DONE]

`

func TestRetry(t *testing.T) {
	busy := answer(429, `{"error":{"message":"slow down"}}`, "Retry-After-Ms", "7000")
	for _, test := range []struct {
		name    string
		answers []func() (*http.Response, error)
		calls   int
		least   time.Duration // minimum duration
		err     string
	}{
		{"at once", []func() (*http.Response, error){answer(200, hello)}, 1, 0, ""},
		{"busy", []func() (*http.Response, error){busy, answer(200, hello)}, 2, 7 * time.Second, ""},
		{"seconds", []func() (*http.Response, error){answer(503, "", "Retry-After", "3"), answer(200, hello)}, 2,
			3 * time.Second, ""},
		{"broken twice", []func() (*http.Response, error){answer(500, "oops"), unreachable, answer(200, hello)}, 3,
			750 * time.Millisecond, ""},
		{"for ever", []func() (*http.Response, error){answer(500, "oops")}, maxAttempts, 1750 * time.Millisecond,
			"model server answered 500 Internal Server Error: oops"},
		{"our fault", []func() (*http.Response, error){answer(401, `{"error":{"message":"bad key"}}`)}, 1, 0,
			"model server answered 401 Unauthorized: bad key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := &roundTripper{answers: test.answers}
				retries := 0
				c := &client{baseURL: "http://model", http: http.Client{Transport: transport}}
				start := time.Now()
				done, err := complete(t.Context(), c, chatRequest{}, nil, func(error, time.Duration) { retries++ })
				if took := time.Since(start); took < test.least || took > 2*test.least {
					t.Errorf("took %v, want %v or a little more", took, test.least)
				}
				if transport.calls != test.calls || retries != test.calls-1 {
					t.Errorf("%d calls, %d retries reported; want %d calls", transport.calls, retries, test.calls)
				}
				if test.err != "" {
					if err == nil || err.Error() != test.err {
						t.Errorf("error = %v, want %s", err, test.err)
					}
					return
				}
				if err != nil || done.message.Content != "Hello" || done.model != "m" || done.usage != nil {
					t.Errorf("got %+v, %v", done, err)
				}
			})
		})
	}
}

func TestRetryStopsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := &client{baseURL: "http://model", http: http.Client{
			Transport: &roundTripper{answers: []func() (*http.Response, error){answer(429, "", "Retry-After", "60")}}}}
		start := time.Now()
		_, err := complete(ctx, c, chatRequest{}, nil, func(error, time.Duration) {})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("error = %v after %v, want a deadline after 1s", err, time.Since(start))
		}
	})
}

func TestReadStream(t *testing.T) {
	for name, stream := range map[string]string{
		"cut short":  hello[:60],
		"no end":     strings.Replace(hello, `,"finish_reason":"stop"`, "", 1),
		"not JSON":   "data: {\n",
		"broken off": `data: {"error":{"message":"overloaded"}}` + "\n\n",
	} {
		if done, err := readStream(strings.NewReader(stream), nil); err == nil {
			t.Errorf("%s: got %+v, want an error", name, done)
		}
	}
}
