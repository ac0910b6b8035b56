package sessionexporter

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"zombiezen.com/go/sqlite"
)

// patience is how long requests wait for a store that is away, with a full disk or a
// file that was moved. A sender that waits in vain gives up by itself, knows nothing,
// and holds its connection and its memory until then; one that is built can keep its
// spans and send them again.
const patience = 1500 * time.Millisecond

// lockedPatience is the same for a store that another program is writing to. It will be
// done in a moment, unless it was stopped with its transaction open.
const lockedPatience = 11 * time.Second

// away is since when the store has been away. It is safe for concurrent use.
type away struct {
	mu    sync.Mutex
	since time.Time // zero while it is there
}

// end notes that the store took a request.
func (a *away) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Time{}
}

// answer returns the error of a request that began at begin and that the store did not
// take now. At first it is one that the exporter's retries heed. When the store has
// been away for longer, and the sender is waiting, it is one that ends them and has
// the sender try again: the receiver answers with UNAVAILABLE, or 503.
//
// A sender does not wait that was answered when the request was queued: then the
// exporter alone can try again.
func (a *away) answer(c *Config, begin time.Time, err error) error {
	limit := patience
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked:
		limit = lockedPatience
	}
	if q := c.QueueConfig.Get(); q != nil && !q.WaitForResult {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = begin
	}
	if time.Since(a.since) < limit {
		return err
	}
	return consumererror.NewPermanent(status.Error(codes.Unavailable, fmt.Sprintf("%v; send it again later", err)))
}
