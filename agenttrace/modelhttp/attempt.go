package modelhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// exchange is a request and its response: one attempt of a model call.
type exchange struct {
	t      *Transport
	target *target
	req    *http.Request
	flight *flight // nil if the call is not recorded
}

// Headers by which clients number their attempts.
const (
	stainlessRetry = "X-Stainless-Retry-Count"
	awsInvocation  = "Amz-Sdk-Invocation-Id"
	awsAttempt     = "Amz-Sdk-Request"
)

// attempt returns the number of the attempt, from 0, and whether a header has it.
func (x *exchange) attempt() (n int, numbered bool) {
	if v := x.req.Header.Get(stainlessRetry); v != "" {
		n, err := strconv.Atoi(v)
		return n, err == nil
	}
	n, _, numbered = x.awsAttempt()
	return n, numbered
}

// awsAttempt parses a header such as "attempt=2; max=3".
func (x *exchange) awsAttempt() (n, last int, ok bool) {
	for field := range strings.SplitSeq(x.req.Header.Get(awsAttempt), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		v, err := strconv.Atoi(value)
		switch {
		case err != nil:
		case name == "attempt":
			n, ok = v-1, true
		case name == "max":
			last = v - 1
		}
	}
	return n, last, ok
}

// stainlessRetries is how often the clients by Stainless try again by default.
const stainlessRetries = 2

// lastAttempt reports whether the client will not try again.
func (x *exchange) lastAttempt() bool {
	if n, last, ok := x.awsAttempt(); ok {
		return last >= 0 && n >= last
	}
	n, numbered := x.attempt()
	return numbered && n >= stainlessRetries
}

// patience is how long to wait for a client to try again.
func (x *exchange) patience(after time.Duration) time.Duration {
	wait := 10 * time.Second
	if _, numbered := x.attempt(); numbered {
		wait = 15 * time.Second
	}
	return max(wait, min(after, 2*time.Minute)+5*time.Second)
}
