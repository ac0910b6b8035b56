package service

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Load measures the share of the time in which writers of a store are at work. It is safe for concurrent use. The zero
// value is ready for use, and nil is a load of 0.
type Load struct {
	mu    sync.Mutex
	open  int           // writers at work
	since time.Time     // when open became 1
	total time.Duration // of the periods with a writer that are over
	// The share in the period before measured, when total was measuredTotal.
	measured      time.Time
	measuredTotal time.Duration
	share         float64
}

// Begin reports that a writer is at work until end is called.
func (l *Load) Begin() (end func()) {
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open++; l.open == 1 {
		l.since = time.Now()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open--; l.open == 0 {
			l.total += time.Since(l.since)
		}
	}
}

// measurePeriod is how long a share is measured. It changes as soon as readers shall notice that writers have begun or
// are done.
const measurePeriod = 50 * time.Millisecond

// Share is the share of the last tenth of a second in which a writer was at work, from 0 to 1.
func (l *Load) Share() float64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, total := time.Now(), l.total
	if l.open > 0 {
		total += now.Sub(l.since)
	}
	if period := now.Sub(l.measured); period >= measurePeriod {
		if period < 10*measurePeriod {
			l.share = float64(total-l.measuredTotal) / float64(period)
		} else if l.share = 0; l.open > 0 { // nobody has asked for long: what was then counts no more
			l.share = 1
		}
		l.measured, l.measuredTotal = now, total
	}
	return l.share
}

// Pacer lets the requests of readers work by turns, so that any number of them takes little from writers in the same
// process. As many requests work at once as half of the processors; while writers are at work all of the time, each
// of these turns is used for a fifteenth of the time. Readers wait meanwhile, in order, and cost no processor.
//
//	writers idle    │reader 1│reader 2│reader 3│…
//	writers at work │reader 1│                 … pause of 14 times as long …                │reader 2│…
//
// A request that waits for its reader, or for a change of the store, has no turn.
type Pacer struct {
	load     *Load
	turns    chan turn
	requests chan struct{} // those under way
}

// turn is the right to work. It is used by one request at a time.
type turn struct{ notBefore time.Time }

const (
	// readersPause is how many times as long as a request worked the next one waits, while writers are at work.
	readersPause = 14
	// maxPause bounds the pause after a request that worked for long, such as statistics of a very large store.
	maxPause = 10 * time.Second
	// maxRequests bounds the memory of requests, and turnTimeout how long one waits until it begins.
	maxRequests = 2000
	turnTimeout = 20 * time.Second
)

// NewPacer returns a Pacer beside writers.
func NewPacer(l *Load) *Pacer {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	p := &Pacer{load: l, turns: make(chan turn, n), requests: make(chan struct{}, maxRequests)}
	for range n {
		p.turns <- turn{}
	}
	return p
}

// Handler answers requests with next, each in its turn.
func (p *Pacer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.requests <- struct{}{}:
			defer func() { <-p.requests }()
		default:
			refuse(w)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), turnTimeout)
		h := &held{p: p}
		took := h.take(ctx)
		cancel()
		if !took {
			if r.Context().Err() == nil {
				refuse(w)
			}
			return
		}
		defer h.give()
		r = r.WithContext(context.WithValue(r.Context(), heldKey{}, h))
		r.Body = &pacedBody{r.Body, h, r.Context()}
		next.ServeHTTP(&pacedWriter{w, h, r.Context()}, r)
	})
}

// refuse answers a request for which there are too many others.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	WriteProblem(w, NewProblem(CodeOverloaded, http.StatusServiceUnavailable, "", "try again",
		"too many requests are waiting while telemetry is stored"))
}

// held is the turn of a request, while it has one.
type held struct {
	p     *Pacer
	turn  turn
	began time.Time // zero without a turn
}

type heldKey struct{}

// take waits for a turn. It reports whether the request has one.
func (h *held) take(ctx context.Context) bool {
	select {
	case h.turn = <-h.p.turns:
	case <-ctx.Done():
		return false
	}
	if pause := time.Until(h.turn.notBefore); pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			h.p.turns <- h.turn
			return false
		}
	}
	h.began = time.Now()
	return true
}

// give lets another request work.
func (h *held) give() {
	if h.began.IsZero() {
		return
	}
	now := time.Now()
	pause := time.Duration(float64(now.Sub(h.began)) * readersPause * h.p.load.Share())
	h.turn.notBefore = now.Add(min(pause, maxPause))
	h.began = time.Time{}
	h.p.turns <- h.turn
}

// Idle calls wait, which waits for something else than the store and does no work, for a request of a [Pacer]: others
// work meanwhile. It returns the error of a request that ended before it had its turn again.
func Idle(ctx context.Context, wait func()) error {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok || h.began.IsZero() {
		wait()
		return ctx.Err()
	}
	h.give()
	wait()
	h.take(ctx)
	return ctx.Err()
}

const (
	// blockedAfter is how long a write takes that waits for its reader; others only fill a buffer.
	blockedAfter = 5 * time.Millisecond
	// maxTurn is how long a request with a long answer has its turn before others have theirs.
	maxTurn = 50 * time.Millisecond
)

// use calls do, which reads from or writes to the connection of the request. The request has no turn while that waits
// for the other side.
func (h *held) use(ctx context.Context, do func()) {
	if h.began.IsZero() {
		do()
		return
	}
	if time.Since(h.began) > maxTurn {
		h.give()
		h.take(ctx)
	}
	given := make(chan struct{})
	blocked := time.AfterFunc(blockedAfter, func() {
		h.give()
		close(given)
	})
	do()
	if !blocked.Stop() {
		<-given
		h.take(ctx)
	}
}

// pacedWriter is the answer of a request that has turns.
type pacedWriter struct {
	http.ResponseWriter
	held *held
	ctx  context.Context
}

// Write implements [http.ResponseWriter].
func (w *pacedWriter) Write(b []byte) (n int, err error) {
	w.held.use(w.ctx, func() { n, err = w.ResponseWriter.Write(b) })
	return n, err
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// pacedBody is the body of a request that has turns.
type pacedBody struct {
	io.ReadCloser
	held *held
	ctx  context.Context
}

// Read implements [io.Reader].
func (r *pacedBody) Read(b []byte) (n int, err error) {
	r.held.use(r.ctx, func() { n, err = r.ReadCloser.Read(b) })
	return n, err
}
