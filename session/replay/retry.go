package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// Bounds of trying a request again.
const (
	DefaultMaxAttempts = 5
	DefaultMaxWait     = 2 * time.Minute

	firstBackoff   = 500 * time.Millisecond
	longestBackoff = 16 * time.Second
)

// do sends a request until the server takes it, the bounds are reached, or the request's
// context ends. The last response, or error, is returned.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	attempts, left := cmp.Or(c.MaxAttempts, DefaultMaxAttempts), cmp.Or(c.MaxWait, DefaultMaxWait)
	backoff := firstBackoff
	for attempt := 1; ; attempt++ {
		resp, err := direct.Do(req)
		if attempt >= attempts || !again(req.Context(), resp, err) {
			return resp, err
		}
		// Between half of it and all, so that many that were refused do not return at once.
		wait := backoff/2 + rand.N(backoff/2)
		if resp != nil {
			if asked, ok := modelapi.RetryAfter(resp.Header, time.Now()); ok {
				wait = asked
			}
		}
		if wait > left {
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal) // so that the connection can be used again
			_ = resp.Body.Close()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return nil, req.Context().Err()
		}
		left -= wait
		backoff = min(2*backoff, longestBackoff)
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// again reports whether a request may succeed when it is sent again.
func again(ctx context.Context, resp *http.Response, err error) bool {
	if err != nil {
		return ctx.Err() == nil && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
			errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
	}
	if !retryable(resp.StatusCode) || strings.EqualFold(resp.Header.Get("X-Should-Retry"), "false") {
		return false
	}
	if resp.StatusCode != http.StatusTooManyRequests {
		return true
	}
	// An account without money is refused by the same status.
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return !bytes.Contains(head, []byte("insufficient_quota")) &&
		!bytes.Contains(head, []byte("billing_hard_limit_reached"))
}

// retryable reports whether a status reports that the server cannot take the request now.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}
