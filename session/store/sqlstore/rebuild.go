package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// rebuildAfter is how long after it was stored an observation of a long turn is in its rows, unless rebuilding takes so
// long that there would be time for nothing else.
const rebuildAfter = time.Second

// rebuilder has the turns rebuilt that a store has left unbuilt; see [store.Batch].
type rebuilder struct {
	// working is held while turns are rebuilt, so that who asks for that waits until it is done.
	working sync.Mutex
	mu      sync.Mutex
	// functions has the functions of the last batch, nil until there is one. With the first, it is not known what an
	// earlier process has left.
	functions *store.Batch
	// unbuilt reports that there may be such turns, timer is set while they are to be rebuilt, and pause how long after.
	unbuilt bool
	timer   *time.Timer
	pause   time.Duration
	closed  bool
	running sync.WaitGroup
}

// applied notes what a batch has left.
func (w *Writer) applied(b *store.Batch, unbuilt bool) {
	r := w.rebuilder
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.functions == nil {
		r.functions = &store.Batch{Assemble: b.Assemble, Adopt: b.Adopt, Threads: b.Threads}
		r.pause, unbuilt = rebuildAfter, true
	}
	if unbuilt {
		r.unbuilt = true
		w.rebuildSoon()
	}
}

// rebuildSoon starts the timer. The rebuilder is locked.
func (w *Writer) rebuildSoon() {
	r := w.rebuilder
	if r.timer != nil || r.closed {
		return
	}
	r.running.Add(1)
	r.timer = time.AfterFunc(r.pause, func() {
		defer r.running.Done()
		begin := time.Now()
		_ = w.Rebuild(context.Background()) // the marks are still there, and it is tried again
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timer, r.pause = nil, max(rebuildAfter, 4*time.Since(begin))
		if r.unbuilt {
			w.rebuildSoon()
		}
	})
}

// Rebuild builds what long turns lack, and returns when that is committed: the turns of each owner that is marked in a
// transaction of its own. Without it, that is done within a second, or when the store is closed.
func (w *Writer) Rebuild(ctx context.Context) error {
	r := w.rebuilder
	r.working.Lock()
	defer r.working.Unlock()
	r.mu.Lock()
	functions, unbuilt := r.functions, r.unbuilt
	r.unbuilt = false
	r.mu.Unlock()
	for owner := ""; unbuilt; unbuilt = owner != "" {
		var err error
		owner, err = committed(ctx, w, func(t Tx) (string, error) { return store.Rebuild(t, functions, owner) })
		if err != nil {
			r.mu.Lock()
			r.unbuilt = true
			r.mu.Unlock()
			return err
		}
	}
	return nil
}

// Finish rebuilds what is left before an engine closes. What cannot be rebuilt now stays marked.
func (w *Writer) Finish() {
	r := w.rebuilder
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.running.Done()
	}
	r.mu.Unlock()
	r.running.Wait()
	if !closed {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = w.Rebuild(ctx) // the marks are still there
	}
}
