package modelhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// exchange is a request and its response: one attempt of a model call.
type exchange struct {
	t       *Transport
	target  *target
	req     *http.Request
	attempt attempt
	flight  *flight // nil if the call is not recorded
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
