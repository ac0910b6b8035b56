package otlpguard

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxInFlight is how much memory, in bytes, all requests that are being received and handled may take together.
	maxInFlight = 256 << 20
	// unmeasured is how much of a request does not count: nearly all of them are
	// smaller, and none of those waits for another.
	unmeasured = 1 << 20
	// maxWait is how long a request waits for the memory that others have.
	maxWait = 5 * time.Second
)

// errBusy has a sender try again.
var errBusy = status.Error(codes.Unavailable, "other large requests are being handled: send it again")

// inFlight is the memory of all requests of this process together. A request of 64 MiB is harmless; a dozen at once
// would take gigabytes before the memory limiter sees the first.
var inFlight = semaphore.NewWeighted(maxInFlight)

// request is one request's part of it.
type request struct {
	size, taken int64
	refused     error
}

// grow counts n more bytes of the request. It waits for other requests to end, and fails with errBusy.
func (r *request) grow(n int64) error {
	r.size += n
	// The largest request that is accepted fits, if it is alone.
	want := min(r.size-unmeasured, maxInFlight) - r.taken
	if want <= 0 || r.refused != nil {
		return r.refused
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	if inFlight.Acquire(ctx, want) != nil {
		r.refused = errBusy
		return errBusy
	}
	r.taken += want
	return nil
}

// end gives back what the request has taken.
func (r *request) end() {
	inFlight.Release(r.taken)
	r.taken = 0
}

// pending has the requests of gRPC calls by their messages: a codec knows the message that it decodes and not the call.
type pending struct{ sync.Map }

// intercept is the first to get a message that was decoded. It answers a call whose message was not: the error of a
// codec would have the sender drop it.
func (p *pending) intercept(ctx context.Context, message any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if r, ok := p.LoadAndDelete(message); ok {
		r := r.(*request)
		defer r.end()
		if r.refused != nil {
			return nil, r.refused
		}
	}
	return handler(ctx, message)
}
